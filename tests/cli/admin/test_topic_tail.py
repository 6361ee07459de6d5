"""``pocketmq topic tail``: order over queues, lines that are safe for a terminal, a real topic."""

import asyncio
import json
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from pocketmq.cli.admin.topic_tail import MERGE_MAX, body_of, in_order, line_of
from pocketmq.client.blocking import Producer
from pocketmq.common.message import Message
from pocketmq.testing import PocketBroker
from tests.cli.conftest import COMMAND, environment


@dataclass
class Came:
    """What the tail reads of a message."""

    store_timestamp: int = 1_700_000_000_456
    body: bytes = b"hello"
    tags: str = ""
    keys: list[str] = field(default_factory=list)
    queue_id: int = 3
    queue_offset: int = 17

    @property
    def raw_body(self) -> bytes:
        return self.body


def came(**fields: Any) -> Any:
    return Came(**fields)


async def test_messages_of_several_queues_come_by_store_time() -> None:
    """What is at hand at once is put in order; the end of the stream ends the tail, an error comes through."""

    async def stream(times: list[int]) -> AsyncIterator[Any]:
        for each in times:
            yield came(store_timestamp=each)
        raise OSError("gone")

    seen: list[int] = []

    async def take() -> None:
        async for ready in in_order(stream([3, 9, 1, 5, 2])):
            seen.extend(each.store_timestamp for each in ready)

    with pytest.raises(OSError, match="gone"):
        await take()
    assert seen == [1, 2, 3, 5, 9]


async def test_a_slow_terminal_holds_the_reading() -> None:
    """The tail keeps at most a fixed number of messages in memory, and loses none."""
    read = 0

    async def stream() -> AsyncIterator[Any]:
        nonlocal read
        for number in range(5 * MERGE_MAX):
            read += 1
            yield came(store_timestamp=number)

    seen = 0
    async for ready in in_order(stream()):
        seen += len(ready)
        assert len(ready) <= MERGE_MAX
        await asyncio.sleep(0)
        assert read - seen <= 2 * MERGE_MAX
    assert seen == 5 * MERGE_MAX


@pytest.mark.parametrize("evil", ["\x1b[2J\x1b]0;gone\x07", "a\r\x9b31m", "one\ntwo", "\u202eabc"])
def test_a_line_is_one_line_without_control_characters(evil: str) -> None:
    """Bodies, tags and keys cannot move the cursor, clear the screen or begin another line."""
    line = line_of(came(body=evil.encode(), tags=evil, keys=[evil]))
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    assert "3/17" in line


def test_bodies_are_shortened_and_binary_ones_are_bytes() -> None:
    assert body_of(came(body=b"")) == ""
    assert body_of(came(body="ä".encode() * 500)) == "ä" * 200 + " ... 1,000 bytes"
    assert body_of(came(body=b"\xff\x00\x01abc")) == "(6 bytes) ff 00 01 61 62 63"
    assert body_of(came(body=b"\xff")) == "(1 bytes) ff"


@pytest.mark.slow
def test_a_topic_is_followed_without_a_group() -> None:
    """Only messages sent after the start come, those of a tag; no group appears; Ctrl-C ends it without a trace."""
    with PocketBroker() as broker, Producer("writer", broker.namesrv) as producer:
        producer.send(Message("News", b"old", tags="A"))
        command = [*COMMAND, "topic", "tail", "News", "--tags", "A", "--namesrv", broker.namesrv]
        process = subprocess.Popen(
            [*command, "--json", "-n", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        )
        number = 0
        while process.poll() is None:  # it reads from its start on, which nobody else can see
            producer.send(Message("News", b"new \x9b%d" % number, tags="AB"[number % 2]))
            number += 1
            time.sleep(0.02)
        out, errors = process.communicate()
        lines = [json.loads(line) for line in out.splitlines()]
        assert process.returncode == 0, errors
        assert len(lines) == 2
        assert {line["tags"] for line in lines} == {"A"}
        assert b"\x9b" not in out
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        assert process.stdout is not None
        line = b""
        with process:
            stop = threading.Event()

            def send() -> None:
                while not stop.is_set():
                    producer.send(Message("News", b"more", tags="A"))
                    stop.wait(0.02)

            sender = threading.Thread(target=send)
            sender.start()
            line = process.stdout.readline()
            stop.set()
            sender.join()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate()
        assert line.rstrip().endswith(b"more")
        assert process.returncode == 130
        assert errors == b""
        groups = subprocess.run(
            [*COMMAND, "group", "list", "--json", "--namesrv", broker.namesrv],
            capture_output=True,
            env=environment(),
            check=True,
        )
        assert b"pocketmq-cli" not in groups.stdout
