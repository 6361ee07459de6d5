"""``pocketmq request`` and ``pocketmq reply``: both sides by hand."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import NoReply
from pocketmq.client.blocking import Producer
from pocketmq.common.message import Message
from pocketmq.testing import PocketBroker
from tests.cli.conftest import COMMAND, environment
from tests.signals import interruptible

pytestmark = pytest.mark.slow
Replier = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker() as running:
        yield running


@pytest.fixture
def replier(broker: PocketBroker, tmp_path: Path) -> Iterator[Replier]:
    """Start ``pocketmq reply …``; it is killed at the end of the test if it still runs."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> "subprocess.Popen[bytes]":
        with interruptible():
            process = subprocess.Popen(
                [*COMMAND, "reply", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment({"POCKETMQ_NAMESRV": broker.namesrv}),
                cwd=tmp_path,
            )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def ask(run_command: Any, broker: PocketBroker) -> Callable[..., str]:
    """Run ``pocketmq request TOPIC -m BODY`` and return the reply."""

    def run(topic: str, body: str) -> str:
        env = {"POCKETMQ_NAMESRV": broker.namesrv}
        done = run_command("request", topic, "-m", body, "--timeout", "60s", env=env)
        assert done.returncode == 0, done.stderr
        return str(done.stdout.decode())

    return run


def test_lines_typed_by_hand_are_replies(replier: Replier, ask: Callable[..., str]) -> None:
    """One line for each request; it waits for the topic, and prints what was asked."""
    process = replier("Typed", "-n", "2")
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"waiting for topic Typed: ")
    assert process.stdin is not None
    process.stdin.write(b"first\nsecond\n")
    process.stdin.flush()
    assert ask("Typed", "1 + 1") == "first\n"
    assert ask("Typed", "2 + 2") == "second\n"
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"1 + 1\n2 + 2\n")


@pytest.mark.parametrize(
    ("options", "reply"), [(["--echo"], "ping\n"), (["-m", "pong"], "pong\n")], ids=["echo", "fixed"]
)
def test_fixed_replies(replier: Replier, ask: Callable[..., str], options: list[str], reply: str) -> None:
    process = replier("Fixed" + options[0].strip("-"), *options, "-n", "1")
    assert ask("Fixed" + options[0].strip("-"), "ping") == reply
    assert process.wait(60) == 0


def test_requests_that_nobody_waits_for_and_plain_messages_are_passed_over(
    broker: PocketBroker, run_command: Any, replier: Replier, ask: Callable[..., str]
) -> None:
    """A request is answered once, also by the next run of the command."""
    with Producer("asker", broker.namesrv) as producer:
        producer.send(Message("Passed", b"no request"))
        with pytest.raises(NoReply):
            producer.request(Message("Passed", b"too late"), timeout_ms=1)
    for number in range(2):
        process = replier("Passed", "--echo", "-n", "1")
        assert ask("Passed", f"in time {number}") == f"in time {number}\n"
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, f"in time {number}\n".encode())
    env = {"POCKETMQ_NAMESRV": broker.namesrv}
    done = run_command("reply", "Passed", "--echo", "-n", "1", "--timeout", "500ms", env=env)
    assert (done.returncode, done.stderr) == (
        1,
        b"error: 0 of 1 requests came: waited 500ms (raise --timeout)\n",
    )
    assert "pocketmq-reply" not in run_command("group", "list", env=env).stdout.decode()
