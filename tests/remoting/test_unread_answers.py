"""Peers that do not read their answers: the server stops reading them, and closes them after a time or at a limit."""

import asyncio

from pocketmq.common.clock import ManualClock
from pocketmq.remoting.codec import (
    decode_response,
    encode_response,
)
from tests.remoting.conftest import MemoryLog, Run
from tests.remoting.harness import EchoHandler, Peer, start_server, until
from tests.remoting.test_server import HEART_BEAT, request_bytes


def test_a_peer_that_does_not_read_is_not_read_and_goes_on_when_it_reads(run: Run) -> None:
    """Above the high-water mark its requests wait in its own socket."""

    async def scenario() -> None:
        body = bytes(100_000)
        handler = EchoHandler()
        server = await start_server(handler, write_high_water_bytes=500_000, write_low_water_bytes=100_000)
        peer = await Peer.connect(server.port)
        count = 400
        asking = asyncio.get_running_loop().create_task(
            _send_all(peer, [request_bytes(at, body) for at in range(count)])
        )
        await until(lambda: bool(handler.opened) and handler.opened[0].over_high_water)
        connection = handler.opened[0]
        await asyncio.sleep(0.02)
        taken = len(handler.requests)
        assert taken < count
        assert connection.unwritten_bytes < 2_000_000
        for at in range(count):
            assert decode_response(await peer.frame(), HEART_BEAT).opaque == at
        await asking
        assert not connection.over_high_water
        await peer.close()
        await server.stop()

    run(scenario)


async def _send_all(peer: Peer, parts: list[bytes]) -> None:
    for part in parts:
        peer.send(part)
        await peer.writer.drain()


def test_a_peer_that_does_not_read_is_closed_after_a_time(run: Run, log: MemoryLog) -> None:
    """30 s above the high-water mark."""

    async def scenario() -> None:
        clock = ManualClock()
        handler = EchoHandler(lambda connection, request: None)
        server = await start_server(
            handler, log=log, clock=clock, write_high_water_bytes=100_000, write_low_water_bytes=1
        )
        peer = await Peer.connect(server.port)
        peer.send(request_bytes(1))
        await until(lambda: bool(handler.requests))
        connection = handler.opened[0]
        while not connection.over_high_water:
            connection.respond(encode_response(0, 1, HEART_BEAT, body=bytes(100_000)))
            await asyncio.sleep(0)
        clock.advance_ms(29_000)
        server.expire()
        assert not connection.closed
        clock.advance_ms(2_000)
        server.expire()
        assert connection.closed
        assert log.count("peer_does_not_read") == 1
        await until(lambda: bool(handler.closed))
        assert "did not read for 30000 ms" in handler.closed[0][1]
        await peer.close()
        await server.stop()

    run(scenario)


def test_unread_answers_beyond_the_hard_limit_close_the_connection(run: Run) -> None:
    """A handler that ignores over_high_water cannot fill the memory."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(
            handler, write_high_water_bytes=100_000, write_low_water_bytes=1, write_hard_limit_bytes=10_000_000
        )
        peer = await Peer.connect(server.port)
        await until(lambda: bool(handler.opened))
        connection = handler.opened[0]
        for _ in range(1000):
            connection.respond(encode_response(0, 1, HEART_BEAT, body=bytes(100_000)))
            await asyncio.sleep(0)
            if connection.closed:
                break
        assert connection.closed
        await until(lambda: bool(handler.closed))
        assert "does not read" in handler.closed[0][1]
        await peer.close()
        await server.stop()

    run(scenario)


def test_too_many_unread_answers_close_the_connection_with_most(run: Run, log: MemoryLog) -> None:
    """Each stays below its own limit; together they must not fill the memory. Peers that read are spared."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(
            handler,
            log=log,
            write_high_water_bytes=1,
            write_low_water_bytes=1,
            write_hard_limit_bytes=20_000_000,
            unwritten_bytes_max=64_000_000,
        )
        peers = [await Peer.connect(server.port) for _ in range(10)]
        await until(lambda: len(handler.opened) == 10)
        for _ in range(15):
            for connection in handler.opened[1:]:
                connection.respond(encode_response(0, 1, HEART_BEAT, body=bytes(1_000_000)))
            handler.opened[0].respond(encode_response(0, 1, HEART_BEAT, body=bytes(100_000)))
            await asyncio.sleep(0)
            assert sum(each.unwritten_bytes for each in server.connections if not each.closed) <= 64_000_000
        assert log.count("answers_not_read") >= 1
        assert not handler.opened[0].closed
        assert await peers[0].frame()
        for peer in peers:
            await peer.close()
        await until(lambda: len(handler.closed) == 10)
        assert server.unwritten_bytes == 0
        await server.stop()

    run(scenario)
