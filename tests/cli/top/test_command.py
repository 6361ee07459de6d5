"""``pocketmq top`` against a real broker: once, and on a terminal with its keys."""

import json
import os
import pty
import subprocess
import termios
import time
from collections.abc import Iterator

import pytest

from pocketmq.client.blocking import Producer
from pocketmq.common.message import Message
from pocketmq.testing import PocketBroker
from tests.cli.conftest import COMMAND, environment


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    """A broker with a topic of seven messages, of which a group has read two."""
    with PocketBroker() as running:
        with Producer("writer", running.namesrv) as producer:
            for number in range(7):
                producer.send(
                    Message("News", b"%d" % number),
                )
        command = [*COMMAND, "consume", "News", "-n", "2", "--group", "readers", "--namesrv", running.namesrv]
        subprocess.run(command, env=environment(), check=True, capture_output=True)
        yield running


@pytest.mark.slow
def test_a_pipe_gets_the_tables_once(broker: PocketBroker) -> None:
    """Text without escapes, JSON with all rows: the group and its lag, the broker and its health."""
    command = [*COMMAND, "top", "--namesrv", broker.namesrv]
    text = subprocess.run(command, env=environment(), check=True, capture_output=True, text=True).stdout
    assert "\x1b" not in text
    assert "sorted by lag" in text
    assert any(line.split()[:2] == ["readers", "5"] for line in text.splitlines()), text
    found = json.loads(subprocess.run([*command, "--json"], env=environment(), check=True, capture_output=True).stdout)
    assert [(row["group"], row["lag"]) for row in found["groups"]] == [("readers", 5)]
    assert [row["health"] for row in found["brokers"]] == ["ok"]


@pytest.mark.slow
def test_keys_on_a_terminal(broker: PocketBroker) -> None:
    """It refreshes, r, l and f change the order, q ends it; the terminal is then as it was."""
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    command = [*COMMAND, "top", "--interval", "500ms", "--namesrv", broker.namesrv]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment())
    shown = b""

    def until(text: bytes) -> None:
        nonlocal shown
        end = time.monotonic() + 60
        while text not in shown:
            assert time.monotonic() < end, shown[-2000:]
            shown += os.read(ours, 65_536)
        shown = shown[shown.index(text) + len(text) :]

    try:
        until(b"\x1b[?1049h")
        until(b"sorted by lag")
        until(b"sorted by lag")  # the next look
        for key, order in ((b"r", b"rate"), (b"f", b"refusals"), (b"L", b"lag")):
            os.write(ours, key)
            until(b"sorted by " + order)
        os.write(ours, b"q")
        until(b"\x1b[?1049l")
        assert process.wait(30) == 0
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def test_no_name_server_is_an_error() -> None:
    done = subprocess.run(
        [*COMMAND, "top", "--once", "--namesrv", "127.0.0.1:1"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert "127.0.0.1:1" in done.stderr
