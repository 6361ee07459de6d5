"""The case ``masters``: it reads the command's ready output, and limits processes by what the machine has."""

from pathlib import Path

import pytest

from bench.base import cpu_shares
from bench.base.cpu_shares import CpuShares
from bench.own.broker.masters import BROKER_ROW
from pocketmq.cli.daemon.masters import ready_text
from pocketmq.cli.daemon.masters_plan import Addresses, plan_masters
from pocketmq.cli.daemon.supervisor import Member
from tests.cli.daemon.test_supervisor import Fake, World


async def test_the_ids_of_the_brokers_are_found_in_the_ready_output() -> None:
    plan = plan_masters(2, 1, Path("/data"), Addresses("127.0.0.1", 9876, 10911), [])
    members = [Member(each, address=f"127.0.0.1:{each.port}") for each in plan.processes]
    for pid, member in enumerate(members):
        member.running = Fake(World(), member.planned.name, (), pid, None)
    matches = [BROKER_ROW.fullmatch(line.strip()) for line in ready_text(plan, members, "127.0.0.1:9876").splitlines()]
    assert [match[1] for match in matches if match] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("name", ["cpu.max", "cpu.cfs_quota_us"])
def test_each_process_gets_a_group_with_its_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With both kinds of control groups; ``make`` stands for the kernel, which makes the files of a new group."""
    top = tmp_path / "top"
    top.mkdir()
    (top / name).touch()
    monkeypatch.setattr(cpu_shares, "_new_group", lambda: top)
    monkeypatch.setattr(cpu_shares, "REMOVE_S", 0.0)
    make = Path.mkdir

    def mkdir(path: Path) -> None:
        make(path)
        (path / name).touch()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with CpuShares(0.25) as shares:
        shares.limit([4711, 4712], 0)
    assert name in shares.means
    assert "0.25 of a core" in shares.means
    assert (top / "4711" / name).read_text() == ("2500 10000" if name == "cpu.max" else "2500")
    assert (top / "4712" / "cgroup.procs").read_text() == "4712"
