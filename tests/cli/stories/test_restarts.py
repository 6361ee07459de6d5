"""Sends while name server and broker start, in any order, and restart: real processes, nothing fails."""

import asyncio
import contextlib
import itertools
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import ConsumeFromWhere, Message, NoNameServer, NoRoute, Producer, PushConsumer, ReceivedMessage
from tests.cli.conftest import COMMAND, RunCommand, environment
from tests.servers import free_port

TIMEOUT_MS = 60_000
"""Longer than any restart here, also on a slow machine."""
SMALL = ("--set", "store.mapped_file_size_commit_log=4194304")

Start = Callable[..., Awaitable[Process]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start a daemon and wait for its ready line, while the event loop goes on; at the end of the test kill it."""
    processes: list[Process] = []

    async def begin(*arguments: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            *COMMAND, *arguments, stdout=PIPE, env=environment(), cwd=tmp_path
        )
        processes.append(process)
        assert process.stdout is not None
        assert (await process.stdout.readline()).startswith(b"ready ")
        return process

    yield begin
    for process in processes:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_send_waits_for_name_server_and_broker(start: Start) -> None:
    """The send comes first, then the name server, then, after it has answered that nobody is there, the broker."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    async with Producer("p", address, send_msg_timeout_ms=TIMEOUT_MS) as producer:
        early: list[asyncio.Future[Any]] = [
            producer.send_nowait(Message("Orders", b"1")),
            asyncio.ensure_future(producer.send_batch(_two())),
        ]
        with pytest.raises(NoNameServer, match=r"waited \d+ ms"):
            await producer.send_batch(_two(), timeout_ms=100)
        await start("namesrv", "--namesrv-port", str(port))
        with contextlib.suppress(NoRoute):
            while True:
                with contextlib.suppress(NoNameServer):  # it has not come to its next try to connect yet
                    await producer.send_batch(_two(), timeout_ms=200)
        text = r"could create Orders is registered at 127.* \(waited .*is a broker running"
        with pytest.raises(NoRoute, match=text):
            await producer.send_batch(_two(), timeout_ms=200)
        assert not any(future.done() for future in early)
        await start("broker", "--broker-port", "0", "--namesrv", address, *SMALL)
        for future in early:
            await future


async def test_each_parked_send_has_its_own_time() -> None:
    """A send that comes while others wait for the route does not end with them."""
    async with Producer("p", "127.0.0.1:1", send_msg_timeout_ms=200) as producer:
        patient = producer.send_nowait(Message("Orders", b"1"), timeout_ms=TIMEOUT_MS)
        with pytest.raises(NoNameServer, match=r"waited \d+ ms"):
            await producer.send(Message("Orders", b"2"))
        assert not patient.done()
        patient.cancel()


async def test_the_command_line_waits_too(run_process: RunCommand) -> None:
    """``produce`` says how long it has waited, and for whom."""
    done = await asyncio.to_thread(
        run_process, "produce", "Orders", "-m", "x", "--namesrv", "127.0.0.1:1", "--timeout", "200ms"
    )
    assert done.returncode != 0
    assert b"waited" in done.stderr


async def test_a_planned_restart_fails_no_send_and_loses_no_handler(start: Start) -> None:
    """Plain and keyed sends, singly and in batches, and handlers go on through a stop and a start of the broker."""
    names, brokers = free_port(), free_port()
    await start("namesrv", "--namesrv-port", str(names))
    namesrv = f"127.0.0.1:{names}"

    arguments = ("broker", "--broker-port", str(brokers), "--namesrv", namesrv, *SMALL)
    broker = await start(*arguments)
    got: set[bytes] = set()
    begun: list[bytes] = []
    ended: list[bytes] = []
    consumer = PushConsumer("c", namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)

    @consumer.subscribe("Orders")
    async def handle(message: ReceivedMessage) -> None:
        begun.append(message.body)
        await asyncio.sleep(0.01)
        ended.append(message.body)
        got.add(message.body)

    sent: set[bytes] = set()
    stop = asyncio.Event()

    async def send(producer: Producer, name: str, key: str | None, batch: int) -> None:
        for number in itertools.count():
            bodies = [b"%s-%d-%d" % (name.encode(), number, each) for each in range(batch)]
            messages = [Message("Orders", body, sharding_key=key) for body in bodies]
            if batch == 1:
                await producer.send(messages[0])
            else:
                await producer.send_batch(messages)
            sent.update(bodies)
            if stop.is_set():
                return

    async def progress(count: int) -> None:
        async with asyncio.timeout(100):
            while len(sent) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async with consumer, Producer("p", namesrv, send_msg_timeout_ms=TIMEOUT_MS) as producer:
        senders = [
            asyncio.ensure_future(send(producer, f"{kind}{each}", key, batch))
            for each in range(8)
            for kind, key, batch in (("plain", None, 1), ("keyed", "k", 1), ("batch", None, 3))
        ]
        await progress(200)
        for _ in range(2):
            broker.send_signal(signal.SIGTERM)
            assert await broker.wait() == 0
            failed = [sender.exception() for sender in senders if sender.done()]
            assert failed == []
            broker = await start(*arguments)
            await progress(len(sent) + 200)
        stop.set()
        await asyncio.gather(*senders)
        async with asyncio.timeout(100):
            while not sent <= got:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert sorted(begun) == sorted(ended)


def _two() -> list[Message]:
    return [Message("Orders", b"2"), Message("Orders", b"3")]
