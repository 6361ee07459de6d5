"""Signals that end a consumer: in this process, and in a worker that gets SIGTERM in the middle of a message."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq.client import Message, Producer
from pocketmq.client.push.stop_signals import DEFAULT_SIGNALS, StopSignals
from pocketmq.testing.broker import PocketBroker
from tests.client.push.test_push_consumer import committed

WORKER = """
import asyncio, sys
from pocketmq.client import PushConsumer, ConsumeFromWhere
consumer = PushConsumer(sys.argv[2], sys.argv[1], consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)

@consumer.subscribe(sys.argv[3])
async def handle(message):
    print("begun", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print("done", flush=True)

asyncio.run(consumer.run())
print("stopped", flush=True)
"""


@pytest.fixture(autouse=True)
def default_handlers() -> Iterator[None]:
    """Begin as a new process does, whatever tests before have left."""
    before = {number: signal.getsignal(number) for number in DEFAULT_SIGNALS}
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


@pytest.mark.parametrize("number", DEFAULT_SIGNALS)
async def test_a_worker_finishes_its_message_and_commits(
    broker: PocketBroker, topic: str, group: str, number: signal.Signals
) -> None:
    """The signal comes while the handler runs: the message is done once, committed, and the exit code is 0."""
    async with Producer(group=group, namesrv=broker.namesrv) as producer:
        await producer.send(Message(topic, b"x"))
    arguments = [sys.executable, "-c", WORKER, broker.namesrv, group + "c", topic]
    worker = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    try:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert await asyncio.to_thread(worker.stdout.readline) == "begun\n"
        worker.send_signal(number)
        if number == signal.SIGTERM:
            worker.send_signal(number)  # a supervisor may send it to the group, and to the process
        worker.stdin.write("\n")
        worker.stdin.flush()
        rest = await asyncio.to_thread(worker.stdout.read)
        assert rest == "done\nstopped\n"
        assert await asyncio.to_thread(worker.wait) == 0
    finally:
        worker.kill()
        worker.wait()
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                pipe.close()
    assert sum(await committed(broker, group + "c", topic)) == 1


async def test_all_consumers_of_a_loop_stop_and_handlers_before_come_back() -> None:
    """Two at once; afterwards the process handles the signals as it did."""
    before = [signal.getsignal(number) for number in DEFAULT_SIGNALS]
    first, second = asyncio.Event(), asyncio.Event()
    with StopSignals(DEFAULT_SIGNALS, first.set), StopSignals(DEFAULT_SIGNALS, second.set):
        os.kill(os.getpid(), signal.SIGTERM)
        await first.wait()
        await second.wait()
    assert [signal.getsignal(number) for number in DEFAULT_SIGNALS] == before


async def test_a_handler_of_the_application_is_left_alone() -> None:
    """Its own handler gets the signal, and ours does not."""
    got: list[Any] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    stops: list[Any] = []
    try:
        with StopSignals((signal.SIGTERM,), lambda: stops.append(1)):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
        assert got == [signal.SIGTERM]
        assert stops == []
    finally:
        signal.signal(signal.SIGTERM, before)


def test_another_thread_handles_no_signals() -> None:
    """Only the main thread can; there is no error elsewhere."""

    async def enter() -> None:
        with StopSignals(DEFAULT_SIGNALS, lambda: None):
            assert signal.getsignal(signal.SIGTERM) == before

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=lambda: asyncio.run(enter()))
    thread.start()
    thread.join()
