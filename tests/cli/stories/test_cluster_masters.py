"""``pocketmq cluster --masters N`` as processes: messages on all masters, a death and a return, the end."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pocketmq.client import Message, Producer
from pocketmq.client.admin.admin import Admin
from tests.cli.conftest import COMMAND, RunCommand, environment
from tests.signals import interruptible

pytestmark = pytest.mark.slow

GIVE_UP_S = 90.0
ROW = re.compile(r"(\S+) +([A-Z_]+) +(\S+:\d+) +(\d+) +(\S+)\n")


@dataclass
class Row:
    """One line of the ready output."""

    role: str
    address: str
    pid: int
    directory: Path


@dataclass
class Masters:
    """A running cluster. ``log``: the file of its standard error."""

    process: "subprocess.Popen[str]"
    namesrv: str
    rows: dict[str, Row]
    log: Path

    def end(self, number: int) -> tuple[int, str]:
        """Send a signal to the command; return its exit code and its log."""
        os.kill(self.process.pid, number)
        self.process.communicate(timeout=GIVE_UP_S)
        return self.process.returncode, self.log.read_text()


def until(is_so: Callable[[], bool], log: Path) -> None:
    """Wait for a state of other processes."""
    give_up_s = time.monotonic() + GIVE_UP_S
    while not is_so():
        assert time.monotonic() < give_up_s, log.read_text()
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    """Say whether a process has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@contextmanager
def cluster(tmp_path: Path, *arguments: str) -> Iterator[Masters]:
    """Run the command on free ports; its processes end with it."""
    log = tmp_path / "cluster.log"
    command = [*COMMAND, "cluster", "--namesrv-port", "0", "--broker-port", "0", *arguments]
    with interruptible(), log.open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment(), cwd=tmp_path
        )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("ready namesrv="), log.read_text()
        rows = {}
        for line in process.stdout:
            if match := ROW.fullmatch(line):
                rows[match[1]] = Row(match[2], match[3], int(match[4]), Path(match[5]))
            if line.startswith("end "):
                break
        yield Masters(process, ready.split()[1].removeprefix("namesrv="), rows, log)
    finally:
        process.kill()
        process.communicate()


def until_registered(masters: Masters, run_command: RunCommand, brokers: int = 2) -> None:
    """Wait until the name server has so many masters: on a slow machine a restarted broker serves before that."""

    def count() -> int:
        return run_command("ha", "status", "--namesrv", masters.namesrv).stdout.decode().count("_MASTER")

    until(lambda: count() == brokers, masters.log)


def messages_of(done: "subprocess.CompletedProcess[bytes]") -> list[bytes]:
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_both_masters_serve_one_dies_and_comes_back(tmp_path: Path, run_command: RunCommand) -> None:
    """A topic is on both; after ``kill -9`` of one everything acknowledged is there, at the same address."""
    with cluster(tmp_path, "--masters", "2") as masters:
        assert {name: row.role for name, row in masters.rows.items()} == {
            "namesrv": "NAME_SERVER",
            "broker-a-0": "ASYNC_MASTER",
            "broker-b-0": "ASYNC_MASTER",
        }
        option = ("--namesrv", masters.namesrv)
        assert run_command("topic", "create", "Both", "--queues", "2", *option).returncode == 0
        lines = b"".join(b"message %d\n" % number for number in range(4000))
        assert run_command("produce", "Both", *option, stdin=lines).returncode == 0
        described = run_command("topic", "describe", "Both", *option).stdout.decode().splitlines()[1:]
        counts = {(row.split("\t")[0], row.split("\t")[1]): int(row.split("\t")[5]) for row in described}
        assert counts.keys() == {(broker, queue) for broker in ("broker-a", "broker-b") for queue in "01"}
        assert all(counts.values()), counts

        os.kill(masters.rows["broker-b-0"].pid, signal.SIGKILL)
        until(lambda: "broker-b-0 serves again" in masters.log.read_text(), masters.log)
        text = masters.log.read_text()
        assert "broker-b-0 has ended (signal SIGKILL); restart 1 in 0.5 s" in text
        assert f"broker-b-0 serves again at {masters.rows['broker-b-0'].address}, pid " in text
        until_registered(masters, run_command)
        assert run_command("produce", "Both", "-m", "after", *option).returncode == 0
        assert messages_of(run_command("consume", "Both", *option)) == sorted([*lines.splitlines(), b"after"])

        code, text = masters.end(signal.SIGINT)
        assert code == 0, text
        assert "Traceback" not in text
        assert all((row.directory / "abort").exists() is False for row in masters.rows.values()), "a clean stop"


async def test_a_topic_that_nobody_created_is_on_both(tmp_path: Path) -> None:
    """As with RocketMQ: the default topic's route has all masters, and each creates the topic at its first message."""
    with cluster(tmp_path, "--masters", "2") as masters:
        async with Producer(group="g", namesrv=masters.namesrv) as producer:
            for number in range(32):
                await producer.send(Message("Automatic", b"%d" % number))
        async with Admin(masters.namesrv) as admin:
            described = await admin.describe_topic("Automatic")
        assert {each.queue.broker_name for each in described.queues if each.count} == {"broker-a", "broker-b"}
        assert described.count == 32


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_no_process_survives_the_command(tmp_path: Path, number: int) -> None:
    """Whatever ends it, also ``kill -9``; each broker closes its store."""
    with cluster(tmp_path, "--masters", "2") as masters:
        code, _ = masters.end(number)
        assert code == (-number if number == signal.SIGKILL else 0)
        until(lambda: all(is_gone(row.pid) for row in masters.rows.values()), masters.log)
        assert not [row.directory for row in masters.rows.values() if (row.directory / "abort").exists()]


def test_a_port_in_use_ends_the_command(tmp_path: Path, run_process: RunCommand) -> None:
    """It says which process and why, and stops the others."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_process("cluster", "--masters", "1", "--namesrv-port", "0", "--broker-port", port)
    assert done.returncode == 3
    assert done.stdout == b""
    errors = done.stderr.decode()
    assert "error: broker-a-0 did not start: " in errors
    assert f"127.0.0.1:{port}" in errors
    assert "in use" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--masters", "0"), b"from 1 to 64"),
        (("--masters", "65"), b"from 1 to 64"),
        (("--slaves-per-master", "1"), b"--slaves-per-master without --masters"),
        (("--metrics-port", "5557"), b"--metrics-port without --masters"),
        (("--broker-port", "0"), b"port 0 without --masters"),
        (("--masters", "1", "--set", "store.flush_disk_typ=x"), b"did you mean 'flush_disk_type'"),
    ],
)
def test_options_that_cannot_be(
    tmp_path: Path, run_command: RunCommand, arguments: tuple[str, ...], why: bytes
) -> None:
    done = run_command("cluster", "--data-dir", str(tmp_path / "c"), *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert why in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.soak
def test_synchronous_masters_with_two_slaves_each(tmp_path: Path, run_command: RunCommand) -> None:
    """Every SEND_OK is on a slave; a slave that dies follows again; a new start finds everything."""
    arguments = ("--masters", "2", "--slaves-per-master", "2", "--set", "store.broker_role=SYNC_MASTER")
    lines = b"".join(b"message %d\n" % number for number in range(4000))
    with cluster(tmp_path, *arguments) as masters:
        option = ("--namesrv", masters.namesrv)
        assert [row.role for row in masters.rows.values()].count("SLAVE") == 4

        def in_sync() -> list[str]:
            rows = run_command("ha", "status", *option).stdout.decode().splitlines()[1:]
            return [row for row in rows if "SLAVE" in row and "yes" in row.split("\t")]

        until(lambda: len(in_sync()) == 4, masters.log)
        assert run_command("topic", "create", "Both", *option).returncode == 0
        assert run_command("produce", "Both", *option, stdin=lines).returncode == 0
        os.kill(masters.rows["broker-a-1"].pid, signal.SIGKILL)
        until(lambda: "broker-a-1 serves again" in masters.log.read_text(), masters.log)
        until(lambda: len(in_sync()) == 4, masters.log)
        assert masters.end(signal.SIGTERM)[0] == 0
    with cluster(tmp_path, *arguments) as masters:
        assert messages_of(run_command("consume", "Both", "--namesrv", masters.namesrv)) == sorted(lines.splitlines())
        assert masters.end(signal.SIGTERM)[0] == 0
