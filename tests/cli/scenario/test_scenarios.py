"""``pocketmq scenario`` with real processes."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from pocketmq.cli.scenario.catalog import CATALOG
from pocketmq.client import Message, SendStatus
from pocketmq.client.blocking import Producer
from tests.cli.conftest import COMMAND, environment
from tests.signals import interruptible

RunCommand = Callable[..., "subprocess.CompletedProcess[bytes]"]
START_S_MAX = 30.0


@pytest.mark.slow
def test_the_list_names_them_all(run_command: RunCommand) -> None:
    """As a table and as JSON."""
    names = [scenario.name for scenario in CATALOG]
    found = run_command("scenario", "list", "--json")
    assert [each["name"] for each in json.loads(found.stdout)] == names
    plain = run_command("scenario", "list").stdout.decode()
    assert all(name in plain for name in names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("nonsense",), "there are: timeout-clean-queue"),
        (("pcbusy", "--picture", "out.pdf"), "neither .png nor .svg"),
        (("pcbusy", "--full"), "pcbusy does not divide times"),
        (("ordered-lock-stuck", "--full", "--quick"), "cannot be combined with --quick"),
        (("slave-killed", "--append-ms", "5"), "it has: --rate, --seconds, --body-bytes, --timeout"),
        (("pool-loss", "--hold"), "these last: timeout-clean-queue"),
        (("pcbusy", "--run", "2"), "only with --hold"),
    ],
)
def test_wrong_usage_is_refused_before_anything_starts(
    arguments: tuple[str, ...], text: str, run_command: RunCommand
) -> None:
    """Exit code 2 and a hint."""
    found = run_command("scenario", *arguments)
    assert found.returncode == 2
    assert text in " ".join(found.stderr.decode().replace("│", " ").split())


def run_quick(name: str, run_process: RunCommand, tmp_path: Path) -> dict[str, Any]:
    """Run a scenario with ``--quick --json``, which leaves no files."""
    found = run_process("scenario", name, "--quick", "--json", env={"TMPDIR": str(tmp_path)})
    report: dict[str, Any] = json.loads(found.stdout)
    differed = [
        f"{phase['name']}: {check['what']}: {check['found']}"
        for phase in report["phases"]
        for check in phase["checks"]
        if not check["ok"]
    ]
    assert differed == []
    assert found.returncode == 0
    assert report["ok"]
    assert list(tmp_path.glob("pocketmq-scenario-*")) == []
    return report


@pytest.mark.scenario
def test_too_many_requests(run_process: RunCommand, tmp_path: Path) -> None:
    """The client gets the exact text, the broker's log has the line, and with a second broker all are delivered."""
    full, longer, cured = run_quick("too-many-requests", run_process, tmp_path)["phases"]
    texts = [outcome["text"] for outcome in full["outcomes"]]
    assert "2 SYSTEM_BUSY: [OVERLOAD]system busy, start flow control for a while" in texts
    assert any("RejectedExecutionException" in each["value"] for each in full["evidence"])
    assert longer["role"] == "bad cure"
    assert cured["delivered"] == cured["sends"]


@pytest.mark.slow
@pytest.mark.soak
def test_retry_codes(run_process: RunCommand, tmp_path: Path) -> None:
    """The old set ends at the busy broker, the new one delivers at the healthy one."""
    old, new, added = run_quick("retry-codes", run_process, tmp_path)["phases"]
    assert old["delivered"] < old["sends"]
    assert new["delivered"] == new["sends"]
    assert added["delivered"] == added["sends"]


@pytest.mark.slow
@pytest.mark.scenario
@pytest.mark.parametrize(
    "name",
    [
        *["timeout-clean-queue", "pcbusy", "pc-synchronized", "reject-request", "pool-loss"],
        *["slave-readonly", "slave-killed", "slave-frozen", "network-cut"],
    ],
)
def test_the_others(name: str, run_process: RunCommand, tmp_path: Path) -> None:
    """Each shows its fault and its cure."""
    run_quick(name, run_process, tmp_path)


@pytest.mark.slow
@pytest.mark.scenario
def test_ordered_lock_stuck(run_process: RunCommand, tmp_path: Path) -> None:
    """A killed consumer's queue waits for the expiry, and names its holder; each cure is quicker."""
    killed, graceful, shorter, early = run_quick("ordered-lock-stuck", run_process, tmp_path)["phases"]
    texts = [each["value"] for each in killed["evidence"]]
    assert any("tryLockBatch, message queue locked by other client. Group: billing" in text for text in texts)
    assert any("tryLockBatch, message queue lock expired, I got it." in text for text in texts)
    assert any(each["what"] == "queue_waits_for_lock" for each in killed["evidence"])
    still_s = {
        phase["name"]: float(each["value"])
        for phase in (killed, graceful, shorter, early)
        for each in phase["evidence"]
        if each["what"] == "the queue stood still, s"
    }
    assert len(still_s) == 4
    assert max(still_s, key=lambda name: still_s[name]) == killed["name"]
    assert {span[0] for span in killed["spans"]} == {"lock", "work"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.soak),
        *(pytest.param(each, marks=pytest.mark.scenario) for each in (signal.SIGTERM, signal.SIGHUP)),
    ],
)
def test_a_signal_leaves_no_process_and_no_file(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a run: exit code 130, brokers and directory are gone."""
    with interruptible():
        process = subprocess.Popen(
            [*COMMAND, "scenario", "pcbusy", "--quick"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment({"TMPDIR": str(tmp_path)}),
        )
    try:
        assert process.stderr is not None
        deadline_s = time.monotonic() + START_S_MAX
        while "100 a second" not in process.stderr.readline():
            assert time.monotonic() < deadline_s
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 3
        os.kill(process.pid, number)
        process.communicate(timeout=30)
        assert process.returncode == 130
        _, alive = psutil.wait_procs(children, timeout=5)
        assert alive == []
        assert list(tmp_path.iterdir()) == []
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_a_held_incident_is_there_for_another_client_until_ctrl_c(tmp_path: Path) -> None:
    """RocketMQ's serial wait: the pair stays up, a stranger's send waits for its slave; after Ctrl-C it does not."""
    command = [*COMMAND, "scenario", "slave-readonly", "--quick", "--hold", "--set", "fileReservedTime=48"]
    with (
        interruptible(),
        open(tmp_path / "errors", "wb") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, env=environment({"TMPDIR": str(tmp_path)}), text=True
        ) as process,
    ):
        assert process.stdout is not None
        said: list[str] = []
        try:
            while not said or "a second one ends" not in said[-1]:
                line = process.stdout.readline()
                assert line, (tmp_path / "errors").read_text()
                said.append(line)
            namesrv = next(line.split()[-1] for line in said if line.startswith("name server"))
            with Producer("stranger", namesrv, send_msg_timeout_ms=20_000) as producer:
                assert producer.send(Message("Scenario_1", b"held")).status is SendStatus.FLUSH_SLAVE_TIMEOUT
                process.send_signal(signal.SIGINT)
                assert "repaired" in process.stdout.readline(), (tmp_path / "errors").read_text()
                assert producer.send(Message("Scenario_1", b"well")).status is SendStatus.SEND_OK
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["errors"]
