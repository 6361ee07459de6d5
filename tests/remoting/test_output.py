"""Outgoing bytes keep their order, whichever way they take."""

import asyncio
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.remoting.loop import new_event_loop
from pocketmq.remoting.output import Output

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, new_event_loop]


class Peer(asyncio.Protocol):
    """The other end: keeps what comes; reads only in pieces if it is slow."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.transport: Any = None
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(None)


async def connected() -> tuple[Any, Peer]:
    """Return our transport and the peer."""
    loop = asyncio.get_running_loop()
    peers: asyncio.Queue[Peer] = asyncio.Queue()

    def accept() -> Peer:
        peer = Peer()
        peers.put_nowait(peer)
        return peer

    server = await loop.create_server(accept, "127.0.0.1", 0)
    transport, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
    peer = await peers.get()
    server.close()
    return transport, peer


async def mix(seed: int, write: Callable[[int, Any], int]) -> None:
    """Add and write at once in any order, over many turns; compare what arrives."""
    rng = random.Random(seed)
    loop = asyncio.get_running_loop()
    transport, peer = await connected()
    output = Output(loop, transport, lambda: None, write)
    expected = bytearray()

    def step() -> None:
        data = b"%06d" % rng.randrange(1_000_000) * rng.choice([1, 10, 20_000])
        expected.extend(data)
        if rng.random() < 0.5:
            output.add((data,))
        else:
            output.write_now(data)

    for _ in range(300):
        for _ in range(rng.randrange(4)):
            step()
        if rng.random() < 0.3:
            loop.call_soon(step)
        if rng.random() < 0.1:
            (peer.transport.pause_reading if rng.random() < 0.5 else peer.transport.resume_reading)()
        if rng.random() < 0.7:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    output.flush()
    transport.close()
    peer.transport.resume_reading()
    await peer.ended
    assert peer.got == expected


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("seed", range(4))
def test_bytes_arrive_in_the_order_in_which_they_were_given(seed: int, loop: Any) -> None:
    """A transport may hold bytes until its turn's end without saying so; nothing passes them."""
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(mix(seed, os.write))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("seed", range(4))
def test_what_a_socket_does_not_take_follows(seed: int, loop: Any) -> None:
    """Part of a buffer, or nothing: the transport writes the rest."""
    rng = random.Random(seed)

    def write(descriptor: int, data: Any) -> int:
        kind = rng.randrange(3)
        if kind == 0:
            raise BlockingIOError
        return os.write(descriptor, data[: rng.randint(1, len(data))] if kind == 1 else data)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(mix(seed, write))


class FakeTransport:
    """A transport that keeps what it gets."""

    def __init__(self, *, sock: bool = True, tls: bool = False) -> None:
        self.got: list[bytes] = []
        self._infos = {"socket": self if sock else None, "sslcontext": "a context" if tls else None}
        self.closing = False
        self.unwritten_bytes = 0

    def fileno(self) -> int:
        return 7

    def get_extra_info(self, name: str) -> Any:
        return self._infos[name]

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.unwritten_bytes

    def write(self, data: bytes) -> None:
        self.got.append(bytes(data))


async def test_a_write_goes_past_the_transport_only_if_that_holds_nothing() -> None:
    """Else it follows what is there; the turn counter moves with each."""
    written: list[tuple[int, bytes]] = []

    def write(descriptor: int, data: Any) -> int:
        written.append((descriptor, data))
        return len(data)

    transport: Any = FakeTransport()
    flushed: list[int] = []
    output = Output(asyncio.get_running_loop(), transport, lambda: flushed.append(1), write)
    output.write_now(b"direct")
    assert (written, transport.got, output.turn) == ([(7, b"direct")], [], 1)
    transport.unwritten_bytes = 1
    output.write_now(b"a")
    transport.unwritten_bytes = 0
    output.write_now(b"b")  # the transport may still hold the last one
    output.add((b"c",))
    output.write_now(b"d")
    assert (len(written), transport.got, len(flushed)) == (1, [b"a", b"b", b"cd"], 3)
    for _ in range(3):
        await asyncio.sleep(0)
    output.write_now(b"direct again")
    assert written[1:] == [(7, b"direct again")]


async def test_nothing_is_written_to_the_descriptor_of_a_closing_transport() -> None:
    """It may belong to another connection by then."""

    def write(descriptor: int, data: Any) -> int:
        raise AssertionError(data)

    transport: Any = FakeTransport()
    transport.closing = True
    output = Output(asyncio.get_running_loop(), transport, lambda: None, write)
    output.write_now(b"x")
    assert not transport.got


async def test_a_transport_without_a_socket_gets_everything() -> None:
    """As in a simulation."""
    transport: Any = FakeTransport(sock=False)
    output = Output(asyncio.get_running_loop(), transport, lambda: None)
    output.write_now(b"x")
    assert transport.got == [b"x"]


async def test_a_lost_connection_is_left_to_the_transport() -> None:
    """It notices when it writes."""

    def write(descriptor: int, data: Any) -> int:
        raise BrokenPipeError

    transport: Any = FakeTransport()
    Output(asyncio.get_running_loop(), transport, lambda: None, write).write_now(b"x")
    assert transport.got == [b"x"]


async def test_nothing_goes_past_the_transport_that_encrypts() -> None:
    def write(descriptor: int, data: Any) -> int:
        raise AssertionError("plain text on the socket")

    transport: Any = FakeTransport(tls=True)
    Output(asyncio.get_running_loop(), transport, lambda: None, write).write_now(b"x")
    assert transport.got == [b"x"]
