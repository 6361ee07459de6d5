"""Frames of another thread and frames of the loop share one socket, and each arrives whole."""

import asyncio
import os
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.remoting.direct_writer import DirectWriter
from pocketmq.remoting.loop import new_event_loop
from pocketmq.remoting.output import Output
from tests.broker.conftest import eventually
from tests.profiles import tries
from tests.remoting.test_output import Peer, connected

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, new_event_loop]


def frame_of(number: int, size: int) -> bytes:
    """Return a frame that says which one it is and how long."""
    return number.to_bytes(4, "big") + size.to_bytes(4, "big") + bytes([number % 251]) * size


def numbers_of(data: bytes) -> list[int]:
    """Cut frames; fail where one is not whole."""
    numbers, at = [], 0
    while at < len(data):
        number, size = (int.from_bytes(data[at + skip : at + skip + 4], "big") for skip in (0, 4))
        assert data[at + 8 : at + 8 + size] == bytes([number % 251]) * size, number
        numbers.append(number)
        at += 8 + size
    return numbers


def direct_writer(transport: Any, output: Output, write: Any = os.write) -> DirectWriter:
    """Return the writer of another thread to a transport."""
    return DirectWriter(asyncio.get_running_loop(), output, transport.get_extra_info("socket").fileno(), write)


async def both_write(seed: int) -> None:
    """Let a thread write small frames while the loop adds others; some of the thread's writes take only a part."""
    rng = random.Random(seed)
    transport, peer = await connected()
    output = Output(asyncio.get_running_loop(), transport, lambda: None)

    def write(descriptor: int, data: bytes) -> int:
        luck = rng.random()
        if luck < 0.1:
            raise BlockingIOError
        return os.write(descriptor, data[: rng.randint(1, len(data))] if luck < 0.4 else data)

    direct = direct_writer(transport, output, write)
    asked: list[tuple[bytes, int]] = []
    left: list[bytes] = []
    bell, answered = threading.Semaphore(0), threading.Semaphore(0)

    def work() -> None:
        while True:
            bell.acquire()
            if not asked:
                return
            frame, turn = asked.pop(0)
            if turn < 0 or not direct.write(frame, turn):
                left.append(frame)
            answered.release()

    worker = threading.Thread(target=work)
    worker.start()
    size_bytes = 0
    for number in range(200):
        frame = frame_of(number, rng.choice((10, 60, 5000)))
        size_bytes += len(frame)
        if rng.random() < 0.5:
            output.add((frame,))
        else:
            asked.append((frame, output.turn if output.is_clear() else -1))
            bell.release()
        while left:
            output.add((left.pop(),))
        if rng.random() < 0.5:
            await asyncio.sleep(0)
    bell.release()
    await asyncio.to_thread(worker.join)
    while left:
        output.add((left.pop(),))
    await eventually(lambda: len(peer.got) == size_bytes)
    assert sorted(numbers_of(bytes(peer.got))) == list(range(200))
    direct.close()
    transport.close()
    await peer.ended


@pytest.mark.scaled
@pytest.mark.parametrize("new_loop", LOOPS)
def test_frames_of_both_arrive_whole_and_once(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Whatever part of a write the socket takes, and whoever comes second."""
    for seed in range(tries(5, 100)):
        loop = new_loop()
        try:
            loop.run_until_complete(both_write(seed))
        finally:
            loop.close()


async def test_nothing_is_written_after_an_answer_of_the_loop() -> None:
    """Its turn is over: bytes of the loop may still wait in the transport."""
    transport, peer = await connected()
    output = Output(asyncio.get_running_loop(), transport, lambda: None)
    direct = direct_writer(transport, output)
    turn = output.turn
    output.add((frame_of(1, 10),))
    assert not direct.write(frame_of(2, 10), turn)
    output.flush()
    assert not direct.write(frame_of(2, 10), turn)
    assert not output.is_clear()
    await eventually(output.is_clear)
    assert direct.write(frame_of(2, 10), output.turn)
    await eventually(lambda: len(peer.got) == 36)
    assert numbers_of(bytes(peer.got)) == [1, 2]
    direct.close()
    transport.close()


async def test_a_closed_writer_writes_nothing_and_keeps_no_descriptor() -> None:
    """The connection ends for the peer, although a duplicate of its socket was open."""
    transport, peer = await connected()
    output = Output(asyncio.get_running_loop(), transport, lambda: None)
    direct = direct_writer(transport, output)
    [descriptor] = direct._descriptors
    direct.close()
    direct.close()
    assert not direct.write(b"late", output.turn)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    transport.abort()
    async with asyncio.timeout(60):
        await peer.ended


async def test_a_writer_that_is_closed_in_the_middle_of_a_write_closes_its_descriptor_itself() -> None:
    """The loop does not wait for it."""
    transport, _ = await connected()
    output = Output(asyncio.get_running_loop(), transport, lambda: None)

    def write(descriptor: int, data: bytes) -> int:
        direct.close()
        return os.write(descriptor, data)

    direct = direct_writer(transport, output, write)
    [descriptor] = direct._descriptors
    assert direct.write(b"x", output.turn)
    assert direct._descriptors == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    transport.abort()


async def test_a_writer_that_is_closed_in_the_middle_of_a_partial_write_keeps_no_descriptor() -> None:
    """The rest is the loop's, which drops it; then nobody else would close the descriptor."""
    transport, peer = await connected()
    output = Output(asyncio.get_running_loop(), transport, lambda: None)

    def write(descriptor: int, data: bytes) -> int:
        direct.close()
        transport.abort()
        return os.write(descriptor, data[:1])

    direct = direct_writer(transport, output, write)
    assert direct.write(b"xyz", output.turn)
    await eventually(lambda: not direct._descriptors)
    assert not direct.lock.locked()
    async with asyncio.timeout(60):
        await peer.ended


async def test_a_peer_that_has_gone_is_no_error() -> None:
    """The loop learns it by its next read."""
    transport, peer = await connected()
    output = Output(asyncio.get_running_loop(), transport, lambda: None)

    def write(descriptor: int, data: bytes) -> int:
        raise BrokenPipeError

    direct = direct_writer(transport, output, write)
    assert direct.write(b"x", output.turn)
    direct.close()
    transport.abort()
    assert isinstance(peer, Peer)
