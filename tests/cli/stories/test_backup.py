"""``pocketmq log backup`` of a real broker under load, which is killed; another broker starts from the copy."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from pocketmq.cli.own_broker import OwnBroker
from pocketmq.client import Message, Producer, PullConsumer
from pocketmq.client.admin.admin import Admin
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.testing import PocketBroker
from tests.cli.conftest import COMMAND, RunCommand, environment
from tests.client.consume_fakes import until

ARGUMENTS = ["--profile", "small", "--set", "metrics.listen_port=0"]


def back_up(source: str, target: Path) -> dict[str, object]:
    command = [*COMMAND, "log", "backup", source, str(target), "--verify", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    report: dict[str, object] = json.loads(done.stdout)
    return report


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["", "transient_store_pool_path=anonymous"])
def test_a_backup_under_load_has_everything_acknowledged_before(tmp_path: Path, pool: str) -> None:
    """Two backups (the second adds) of a broker under load; it is killed; a broker on the copy has every message
    acknowledged before the second began, in the order of its queue, and the offsets of a group.
    """
    arguments = list(ARGUMENTS)
    if pool:
        arguments += ["--set", "store.transient_store_pool_enable=true", "--set", f"store.{pool}"]
        arguments += ["--set", "store.transient_store_pool_size=5"]

    async def under_load(broker: OwnBroker) -> tuple[dict[tuple[int, int], bytes], dict[int, int]]:
        acknowledged: dict[tuple[int, int], bytes] = {}
        stop = asyncio.Event()

        async def load() -> None:
            number = 0
            async with Producer(group="load", namesrv=broker.namesrv) as producer:
                while not stop.is_set():
                    bodies = [b"%d." % (number + each) + b"x" * 500 for each in range(20)]
                    sends = (producer.send(Message("orders", body)) for body in bodies)
                    for receipt, body in zip(await asyncio.gather(*sends, return_exceptions=True), bodies, strict=True):
                        if not isinstance(receipt, BaseException):  # a busy machine may refuse some
                            acknowledged[receipt.queue_id, receipt.queue_offset] = body
                    number += 20
                    await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load())
            await until(lambda: len(acknowledged) >= 400)
            committed = {0: 17, 1: 5}
            async with PullConsumer(group="billing", namesrv=broker.namesrv) as consumer:
                await consumer.commit(
                    {MessageQueue("orders", "broker-a", queue_id): offset for queue_id, offset in committed.items()}
                )
            path = broker.data_dir / "config" / "consumerOffset.json"

            def written() -> bool:
                """The file is written every 5 s, perhaps between the two commits; nothing is promised before."""
                table = json.loads(path.read_bytes())["offsetTable"].get("orders@billing", {})
                return {int(queue_id): offset for queue_id, offset in table.items()}.items() >= committed.items()

            await until(written)
            await asyncio.to_thread(back_up, str(broker.data_dir), tmp_path / "copy")
            before = dict(acknowledged)
            report = await asyncio.to_thread(back_up, broker.address, tmp_path / "copy")
            assert report["backup"]["is_incremental"]  # type: ignore[index]
            assert report["backup"]["is_live"]  # type: ignore[index]
            stop.set()
        assert len(acknowledged) > len(before), "no load while the copy was made"
        return before, committed

    async def read(broker: OwnBroker) -> tuple[dict[tuple[int, int], bytes], dict[int, int]]:
        found: dict[tuple[int, int], bytes] = {}
        async with PullConsumer(group="reader", namesrv=broker.namesrv) as consumer:
            async for message in consumer.stream("orders", start="earliest", stop_at_end=True):
                assert message.queue_offset == sum(queue_id == message.queue_id for queue_id, _ in found)
                found[message.queue_id, message.queue_offset] = bytes(message.body)
        async with Admin(broker.namesrv) as admin:
            group = await admin.describe_group("billing")
        return found, {each.queue.queue_id: each.consumer_offset for each in group.queues if each.is_committed}

    with OwnBroker(data_dir=tmp_path / "data", arguments=arguments) as broker:
        before, committed = asyncio.run(under_load(broker))
        broker.kill()
    with OwnBroker(data_dir=tmp_path / "copy", arguments=arguments) as copy:
        found, offsets = asyncio.run(read(copy))
    assert {place: body for place, body in found.items() if place in before} == before
    assert offsets.items() >= committed.items()


def test_a_port_without_a_broker_is_named() -> None:
    """An address where no broker listens ends with the exit code of one that cannot be reached."""
    command = [*COMMAND, "log", "backup", "127.0.0.1:1", "/nonexistent/copy"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60, check=False)
    assert done.returncode == 4, done.stderr
    assert "127.0.0.1:1" in done.stderr


def test_a_link_does_not_hide_that_the_target_lies_in_the_store(run_command: RunCommand, tmp_path: Path) -> None:
    """Neither one to the store nor one to the target."""
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "link").symlink_to("store")
    for source, target in (("link", "store/copy"), ("store", "link/copy"), ("store", "link")):
        refused = run_command("log", "backup", source, target)
        assert refused.returncode != 0
        assert b"lie within each other" in refused.stderr
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["commitlog"]


def test_a_part_of_the_store_on_another_disk_takes_no_backup(run_command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "disk" / "log").mkdir(parents=True)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "commitlog").symlink_to(tmp_path / "disk" / "log")
    for target in ("disk/log", "disk/log/copy", "store/commitlog/copy"):
        refused = run_command("log", "backup", "store", target)
        assert refused.returncode == 1
        assert b"lies within" in refused.stderr or b"lie within" in refused.stderr
    assert not list((tmp_path / "disk" / "log").iterdir())
    done = run_command("log", "backup", "store", "disk/copy")
    assert done.returncode == 0, done.stderr


def test_a_target_that_is_a_file_is_refused(run_command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused = run_command("log", "backup", "store", "file")
    assert refused.returncode == 2
    assert b"is no directory" in refused.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_a_name_server_is_no_broker(run_command: RunCommand) -> None:
    with PocketBroker() as broker:
        refused, address = run_command("log", "backup", broker.namesrv, "copy"), broker.namesrv
    assert refused.returncode == 1
    assert f"{address} is no broker".encode() in refused.stderr
