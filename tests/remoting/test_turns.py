"""Backlogs of flooding peers: served in slices, in turn, and no longer than their share of a turn of the loop."""

import asyncio
from itertools import groupby

from pocketmq.common.clock import ManualClock
from pocketmq.remoting.codec import Request, encode_request, encode_response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.frame import MSGPACK, NARROW_BYTES
from pocketmq.remoting.turns import FRAMES_AT_ONCE, SLICE_FRAMES, TURN_NS, Backlog
from tests.remoting.conftest import MemoryLog, Run
from tests.remoting.harness import EchoHandler, Peer, start_server, until

HEART_BEAT = RequestCode.HEART_BEAT


def requests(count: int, body: bytes = b"") -> bytes:
    return b"".join(
        buffer
        for at in range(count)
        for buffer in encode_request(HEART_BEAT, at, None, body, serialize_type=MSGPACK, oneway=True)
    )


def slow(clock: ManualClock, request_ns: int, served: list[str]) -> EchoHandler:
    """Each request takes ``request_ns``."""

    def script(connection: Connection, request: Request) -> None:
        clock.advance_ms(request_ns / 1_000_000)
        served.append(connection.remote)

    return EchoHandler(script)


def test_a_backlog_keeps_order_and_times() -> None:
    """The first frame has the time of its own first byte."""
    frames = [object() for _ in range(5)]
    backlog = Backlog(frames, 3, 7)  # type: ignore[arg-type]
    assert list(backlog.take(2)) == [(frames[0], 3), (frames[1], 7)]
    assert len(backlog) == 3
    assert list(backlog.take(9)) == [(frame, 7) for frame in frames[2:]]
    assert len(backlog) == 0


def test_flooding_peers_are_served_in_turn(run: Run) -> None:
    """A slice each; no turn of the loop serves more than fits its time, and a peer with one request does not wait."""

    async def scenario() -> None:
        clock = ManualClock()
        served: list[str] = []
        handler = slow(clock, TURN_NS // SLICE_FRAMES + 1, served)
        server = await start_server(handler, clock=clock)
        floods = [await Peer.connect(server.port) for _ in range(3)]
        await until(lambda: len(handler.opened) == 3)
        longest = seen = 0

        def look() -> None:
            nonlocal longest, seen
            longest, seen = max(longest, len(served) - seen), len(served)
            if seen < 300:
                asyncio.get_running_loop().call_soon(look)

        look()
        for flood in floods:
            flood.send(requests(100))
        await until(lambda: len(served) == 300)
        assert longest <= 2 * SLICE_FRAMES  # a new turn's slice may come right after the last one's
        runs = [len(list(group)) for _, group in groupby(served)]
        assert runs[0] >= SLICE_FRAMES
        alone = 100 - FRAMES_AT_ONCE  # while only one peer's bytes had arrived
        assert max(runs) <= alone
        for flood in floods:
            own = [request.opaque for request in handler.requests if request.opaque is not None]
            assert sorted(own) == sorted(list(range(100)) * 3)
            await flood.close()
        await server.stop()

    run(scenario)


def test_a_peer_that_does_not_read_waits_with_its_backlog(run: Run) -> None:
    """Above its high-water mark no further request of its backlog is served; when it reads, all are."""

    async def scenario() -> None:
        clock = ManualClock()

        def script(connection: Connection, request: Request) -> None:
            clock.advance_ms(TURN_NS / 1_000_000)
            connection.respond(encode_response(0, request.opaque, HEART_BEAT, body=bytes(1_000_000)))

        handler = EchoHandler(script)
        server = await start_server(handler, clock=clock, write_high_water_bytes=100_000, write_low_water_bytes=1_000)
        peer = await Peer.connect(server.port)
        peer.reader._limit = 1  # type: ignore[attr-defined] # asyncio reads no more than this ahead
        body = b"".join(
            buffer for at in range(100) for buffer in encode_request(HEART_BEAT, at, None, b"", serialize_type=MSGPACK)
        )
        peer.send(body)
        await until(lambda: bool(handler.opened) and handler.opened[0].over_high_water)
        stood = -1
        while stood != len(handler.requests):  # until the socket's own buffers are full
            stood = len(handler.requests)
            for _ in range(20):
                await asyncio.sleep(0)
        assert len(handler.requests) < 100
        for at in range(100):
            answer = await peer.frame()
            assert len(answer.body) == 1_000_000, at
        assert [request.opaque for request in handler.requests] == list(range(100))
        await peer.close()
        await server.stop()

    run(scenario)


def test_a_backlog_before_a_bad_frame_is_served(run: Run, log: MemoryLog) -> None:
    """The connection closes after it, not before."""

    async def scenario() -> None:
        clock = ManualClock()
        served: list[str] = []
        handler = slow(clock, TURN_NS, served)
        server = await start_server(handler, clock=clock, log=log)
        peer = await Peer.connect(server.port)
        peer.send(requests(50) + b"\xff" * 16)
        assert await peer.closed_by_server() == b""
        assert len(served) == 50
        assert log.count("bad_frame") == 1
        await until(lambda: bool(handler.closed))
        await peer.close()
        await server.stop()

    run(scenario)


def test_a_closed_connection_serves_no_backlog(run: Run) -> None:
    """What its peer sent before is dropped with it."""

    async def scenario() -> None:
        clock = ManualClock()

        def script(connection: Connection, request: Request) -> None:
            clock.advance_ms(TURN_NS / 1_000_000)
            if request.opaque == 20:
                connection.close("enough")

        handler = EchoHandler(script)
        server = await start_server(handler, clock=clock)
        peer = await Peer.connect(server.port)
        peer.send(requests(100))
        await until(lambda: bool(handler.closed))
        assert [request.opaque for request in handler.requests] == list(range(21))
        assert handler.closed[0][1] == "enough"
        await peer.close()
        await server.stop()

    run(scenario)


def test_an_error_outside_the_handler_closes_its_connection_only(run: Run, log: MemoryLog) -> None:
    """The other backlogs are served."""

    async def scenario() -> None:
        clock = ManualClock()
        served: list[str] = []
        handler = slow(clock, TURN_NS, served)
        server = await start_server(handler, clock=clock, log=log)
        broken, good = await Peer.connect(server.port), await Peer.connect(server.port)
        await until(lambda: len(handler.opened) == 2)
        victim = handler.opened[0]

        def fail(frame: object, began_ns: int) -> None:
            raise RuntimeError("a bug")

        victim._take = fail  # type: ignore[method-assign]
        broken.send(requests(50))
        good.send(requests(50))
        await until(lambda: len(served) == 50 and bool(handler.closed))
        assert handler.closed[0][0] is victim
        assert "a bug" in handler.closed[0][1]
        assert log.count("serving_failed") == 1
        await broken.close()
        await good.close()
        await server.stop()

    run(scenario)


def test_reads_widen_for_long_frames_and_narrow_for_small_ones(run: Run) -> None:
    """A new peer is read in small pieces: what it sends is not known yet."""

    async def scenario() -> None:
        handler = EchoHandler(lambda connection, request: None)
        server = await start_server(handler)
        peer = await Peer.connect(server.port)
        await until(lambda: bool(handler.opened))
        decoder = handler.opened[0]._decoder
        assert len(decoder.get_buffer()) == NARROW_BYTES
        peer.send(requests(1, bytes(4 * NARROW_BYTES)))
        await until(lambda: len(handler.requests) == 1)
        assert len(decoder.get_buffer()) > NARROW_BYTES
        peer.send(requests(5_000))
        await until(lambda: len(handler.requests) == 5_001)
        assert len(decoder.get_buffer()) == NARROW_BYTES
        await peer.close()
        await server.stop()

    run(scenario)
