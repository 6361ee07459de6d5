"""How long frames take to arrive: the server counts the times and reports slow frames."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.events import NullLog
from pocketmq.common.histogram import SampledHistogram
from pocketmq.remoting.codec import encode_request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.server import RemotingServer, ServerConfig
from tests.remoting.conftest import Run
from tests.remoting.harness import ANNOUNCED, EchoHandler, Peer, until

MS = 1_000_000


def request_bytes(opaque: int, body: bytes = b"") -> bytes:
    return b"".join(encode_request(RequestCode.HEART_BEAT, opaque, None, body))


class World:
    """A server on a clock that stands still."""

    async def start(self) -> None:
        self.clock = ManualClock()
        self.times = SampledHistogram()
        self.handler = EchoHandler()
        self.slow: list[tuple[str, int, int]] = []
        self.server = RemotingServer(
            ServerConfig(),
            self.handler,
            announce=lambda connection: ANNOUNCED,
            log=NullLog(),
            clock=self.clock,
            read_times=self.times,
            slow_read_ms=500,
            on_slow_read=lambda connection, request, ns: self.slow.append((connection.remote, request.opaque, ns)),
        )
        await self.server.start()
        self.peer = await Peer.connect(self.server.port)

    async def stop(self) -> None:
        await self.peer.close()
        await until(lambda: bool(self.handler.closed))
        await self.server.stop()

    async def half_received(self) -> None:
        """Wait until the server has the first part of a frame."""
        await until(lambda: bool(self.handler.opened) and self.handler.opened[0]._half_began_ns > 0)


def with_world(run: Run, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        world = World()
        await world.start()
        await scenario(world)
        await world.stop()

    run(whole)


@pytest.mark.parametrize("size_bytes", [10, 1_000_000])
def test_a_frame_in_two_parts_counts_from_its_first_byte(run: Run, size_bytes: int) -> None:
    """This holds for small and large frames; the next frame in a read has its own time; a late one is reported."""

    async def scenario(world: World) -> None:
        data = request_bytes(7, bytes(size_bytes))
        begin_ns = world.clock.monotonic_ns()
        world.peer.send(data[: len(data) // 2])
        await world.half_received()
        world.clock.advance_ms(800)
        world.peer.send(data[len(data) // 2 :] + request_bytes(8))
        await until(lambda: len(world.handler.requests) == 2)
        assert [request.received_ns - begin_ns for request in world.handler.requests] == [0, 800 * MS]
        [(remote, opaque, took_ns)] = world.slow
        assert (remote, opaque, took_ns) == (world.handler.opened[0].remote, 7, 800 * MS)
        await until(lambda: world.times.window().count == 2)
        assert world.times.window().max_ns == 800 * MS
        assert world.times.window().sum_ns == 800 * MS

    with_world(run, scenario)


def test_a_frame_that_comes_at_once_is_not_slow(run: Run) -> None:
    """Every frame counts; idle time between frames does not count."""

    async def scenario(world: World) -> None:
        for opaque in range(5):
            world.peer.send(request_bytes(opaque))
            await world.peer.frame()
            world.clock.advance_ms(10_000)
        await until(lambda: world.times.window().count == 5)
        assert world.times.window().max_ns == 0
        assert world.slow == []

    with_world(run, scenario)


def test_without_a_histogram_nothing_is_counted(run: Run) -> None:
    """A name server counts no times, and still answers."""

    async def scenario() -> None:
        handler = EchoHandler()
        server: Any = RemotingServer(
            ServerConfig(), handler, announce=lambda connection: ANNOUNCED, log=NullLog(), clock=ManualClock()
        )
        await server.start()
        peer = await Peer.connect(server.port)
        peer.send(request_bytes(1))
        await peer.frame()
        assert server.read_times is None
        await peer.close()
        await until(lambda: bool(handler.closed))
        await server.stop()

    run(scenario)
