"""``pocketmq doctor`` as a process against a broker that is healthy, hangs, or is gone; and ``doctor disk``."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.blocking import Producer
from pocketmq.client.errors import ClientError
from pocketmq.common.message import Message
from pocketmq.testing import PocketBroker
from tests.cli.conftest import COMMAND, RunCommand, StartDaemon, environment
from tests.signals import interruptible

pytestmark = pytest.mark.slow

AREAS = [
    "admission",
    "send queue",
    "append",
    "page cache",
    "pool",
    "flush",
    "slaves",
    "reads",
    "locks",
    "disk",
    "access",
]


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker(broker={"send_thread_pool_queue_capacity": 20_000}) as running:
        with Producer(group="doctor", namesrv=running.namesrv) as producer:
            for _ in range(20):
                producer.send(Message("DoctorTopic", b"x" * 100))
        yield running


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Return the first true value of ``condition``; fail after 60 s."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"never: {what}")


def test_a_running_broker_has_all_areas_and_its_bad_cure(broker: PocketBroker, run_command: RunCommand) -> None:
    """Numbers of real sends, the raised capacity named, exit code 0 because no finding is an error."""
    result = run_command("doctor", "--namesrv", broker.namesrv)
    text = result.stdout.decode()
    assert result.returncode == 0, text + result.stderr.decode()
    lines = text.splitlines()
    assert [line[2:12].strip() for line in lines[1:12]] == AREAS
    assert "append lock free now" in text
    assert "bad cure: broker.send_thread_pool_queue_capacity is raised to 20,000  [bad-cure-queue-capacity]" in text
    assert "broker.send_thread_pool_queue_capacity = 20000 → 10000; it costs:" in text
    assert "p50" in next(line for line in lines if line.strip().startswith("append"))


def test_json_and_rounds(broker: PocketBroker, run_command: RunCommand) -> None:
    """One document per check; the second has rates."""
    result = run_command("doctor", "--broker", broker.address, "--json", "--watch", "0.1", "--rounds", "2")
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert first["worst"] == "warning"
    assert [first["findings"][0][name] for name in ("key", "address")] == ["bad-cure-queue-capacity", broker.address]
    assert [area["area"] for area in first["brokers"][0]["diagnosis"]["areas"]] == AREAS
    assert first["brokers"][0]["rates"] == []
    assert any("messages stored" in text for text in second["brokers"][0]["rates"])


def test_no_broker_there_exits_with_4_and_says_what_to_check(broker: PocketBroker, run_command: RunCommand) -> None:
    """The address is a dead port, or a name server instead of a broker."""
    dead = run_command("doctor", "--broker", "127.0.0.1:1")
    assert (dead.returncode, b"nothing listens there" in dead.stdout) == (4, True)
    wrong = run_command("doctor", "--broker", broker.namesrv)
    assert (wrong.returncode, b"is it a broker, and not a name server?" in wrong.stdout) == (4, True)
    assert run_command("doctor", "--namesrv", "127.0.0.1:1").returncode == 4


@pytest.mark.parametrize("arguments", [("--broker", "nonsense"), ("--rounds", "2"), ("--watch", "x")])
def test_wrong_options_exit_with_2(arguments: tuple[str, ...], run_command: RunCommand) -> None:
    """It contacts no broker."""
    assert run_command("doctor", *arguments).returncode == 2


def test_a_broker_whose_append_hangs_is_diagnosed_while_it_refuses(
    start_daemon: StartDaemon, run_command: RunCommand, tmp_path: Path
) -> None:
    """The store of a real daemon hangs under the append lock: the doctor reports it with exit code 1."""
    control = tmp_path / "faults.json"
    daemon = start_daemon(
        "standalone",
        *("--data-dir", str(tmp_path / "data"), "--namesrv-port", "0", "--broker-port", "0", "--log-level", "error"),
        *("--set", "fault.enable=true", "--set", f"fault.control_file={control}"),
    )
    with Producer(group="doctor", namesrv=daemon.namesrv, send_msg_timeout_ms=500) as producer:
        producer.send(Message("T", b"x"), timeout_ms=30_000)
        rule = {"operations": ["store", "write_at"], "path": "commitlog/*", "hang": True}
        control.write_text(json.dumps({"rules": [rule]}))

        def refused_at_the_door() -> "dict[str, Any] | None":
            try:
                producer.send(Message("T", b"x"))
            except ClientError:
                pass
            result = run_command("doctor", "--broker", daemon.broker, "--json")
            told: dict[str, Any] = json.loads(result.stdout)
            found = {each["key"]: each for each in told["brokers"][0]["diagnosis"]["findings"]}
            return {"code": result.returncode, **found} if "refused-page-cache-reject" in found else None

        found = wait_for(refused_at_the_door, "a refusal for a busy page cache")
        control.write_text("{}")
    assert found["code"] == 1
    assert found["page-cache-busy"]["severity"] == "error"
    assert found["refused-page-cache-reject"]["settings"][0]["name"] == "store.transient_store_pool_enable"
    assert "[REJECTREQUEST]system busy" in found["refused-page-cache-reject"]["evidence"][0]


def test_doctor_disk_measures_and_leaves_nothing(run_command: RunCommand, tmp_path: Path) -> None:
    """Measurements, sentences, and an empty directory; the same as JSON."""
    place = tmp_path / "place"
    place.mkdir()
    result = run_command("doctor", "disk", str(place), "--seconds", "0.5", "--size", "8")
    text = result.stdout.decode()
    assert result.returncode == 0, result.stderr.decode()
    assert "append 4 KiB + sync, written before\t" in text
    assert "SYNC_FLUSH: Estimate" in text or "no disk is that fast" in text
    told = json.loads(run_command("doctor", "disk", str(place), "--seconds", "0.5", "--size", "8", "--json").stdout)
    assert told["figures"]["size_bytes"] == 8 << 20
    assert told["meaning"]
    assert os.listdir(place) == []


def test_doctor_disk_of_nowhere_fails(run_command: RunCommand, tmp_path: Path) -> None:
    """A missing directory is named and not created."""
    result = run_command("doctor", "disk", str(tmp_path / "typo"))
    assert result.returncode == 1
    assert b"there is no directory" in result.stderr
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_doctor_disk_removes_its_files_when_interrupted(number: signal.Signals, tmp_path: Path) -> None:
    """After Ctrl-C, or SIGTERM: exit code 130, and the directory is empty."""
    place = tmp_path / "place"
    place.mkdir()
    command = [*COMMAND, "doctor", "disk", str(place), "--seconds", "60", "--size", "64"]
    with interruptible():
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
    timer = threading.Timer(60, process.kill)
    timer.start()
    try:
        wait_for(lambda: os.listdir(place), "the first file of the measurement")
        os.kill(process.pid, number)
        assert process.wait(timeout=100) == 130
    finally:
        timer.cancel()
        process.kill()
        process.wait()
    assert os.listdir(place) == []
