"""The server, with real sockets on both loops."""

import asyncio
import json
import struct

import msgpack  # type: ignore[import-untyped]
import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.codec import (
    Request,
    Response,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection, host_bytes
from pocketmq.remoting.errors import AddressInUse, BindFailed, ConnectionLost, RequestTimeout
from pocketmq.remoting.frame import BINARY, FRAME_BYTES_MAX, JSON, MSGPACK, SCRATCH_BYTES
from pocketmq.remoting.protocol.client import ConsumerGroupRequestHeader
from pocketmq.remoting.protocol.offset import TopicQueueRequestHeader
from pocketmq.remoting.protocol.relay import GetConsumerRunningInfoRequestHeader
from pocketmq.remoting.server import ServerConfig
from tests.remoting.conftest import MemoryLog, Run
from tests.remoting.harness import EchoHandler, Peer, open_channel, start_server, until

HEART_BEAT = RequestCode.HEART_BEAT


def request_bytes(opaque: int, body: bytes = b"", serialize_type: int = MSGPACK, *, oneway: bool = False) -> bytes:
    return b"".join(encode_request(HEART_BEAT, opaque, None, body, serialize_type=serialize_type, oneway=oneway))


@pytest.mark.parametrize("serialize_type", [JSON, BINARY, MSGPACK])
def test_requests_are_answered_in_their_own_codec(run: Run, serialize_type: int) -> None:
    """Many requests in one write, the last one large; oneway ones have no answer."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        peer = await Peer.connect(server.port)
        peer.send(b"".join(request_bytes(at, b"%d" % at, serialize_type) for at in range(50)))
        peer.send(request_bytes(50, b"unanswered", serialize_type, oneway=True))
        peer.send(request_bytes(51, b"L" * 3_000_000, serialize_type))
        for at in range(50):
            response = decode_response(await peer.frame(), HEART_BEAT)
            assert (response.opaque, bytes(response.body), response.serialize_type) == (at, b"%d" % at, serialize_type)
        response = decode_response(await peer.frame(), HEART_BEAT)
        assert (response.opaque, bytes(response.body)) == (51, b"L" * 3_000_000)
        assert handler.requests[50].oneway
        assert handler.requests[0].received_ns > 0
        await peer.close()
        await until(lambda: bool(handler.closed))
        await server.stop()

    run(scenario)


def test_a_connection_knows_both_ends(run: Run) -> None:
    """Addresses are text and the record's host bytes."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        peer = await Peer.connect(server.port)
        await until(lambda: bool(handler.opened))
        connection = handler.opened[0]
        host, port = peer.writer.get_extra_info("sockname")
        assert connection.remote == f"{host}:{port}"
        assert connection.remote_host == bytes([127, 0, 0, 1]) + struct.pack(">I", port)
        assert connection.local == f"127.0.0.1:{server.port}"
        await peer.close()
        await server.stop()
        assert [(c, r) for c, r in handler.closed] == [(connection, handler.closed[0][1])]
        connection.respond([b"dropped"])

    run(scenario)


def test_host_bytes_of_ipv6() -> None:
    """20 bytes; an IPv4 peer on an IPv6 socket has 8."""
    assert host_bytes(("::1", 9, 0, 0)) == bytes(15) + b"\1" + struct.pack(">I", 9)
    assert host_bytes(("fe80::1%eth0", 9, 0, 2))[:2] == b"\xfe\x80"
    assert host_bytes(("::ffff:10.0.0.7", 9, 0, 0)) == bytes([10, 0, 0, 7]) + struct.pack(">I", 9)


def test_the_announcement_goes_into_the_first_answer(run: Run) -> None:
    """Only a client that sends _pmq gets it, and only once; RocketMQ's clients see plain answers."""

    async def scenario() -> None:
        server = await start_server(EchoHandler())
        peer = await Peer.connect(server.port)
        ask = encode_request(HEART_BEAT, 3, None, b"body", serialize_type=JSON, extra={"_pmq": "1"})
        peer.send(request_bytes(2, b"", JSON) + b"".join(ask) + request_bytes(4, b"", JSON))
        answers = [decode_response(await peer.frame(), HEART_BEAT) for _ in range(3)]
        assert [answer.opaque for answer in answers] == [2, 3, 4]
        assert ["_pmq" in answer.extra for answer in answers] == [False, True, False]
        assert json.loads(answers[1].extra["_pmq"])["broker"] == "b"
        assert bytes(answers[1].body) == b"body"
        await peer.close()
        await server.stop()

    run(scenario)


def test_hello_is_answered_by_the_remoting_layer(run: Run) -> None:
    """The answer is in JSON or in msgpack; no handler sees the request."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        peer = await Peer.connect(server.port)
        peer.send(b"".join(encode_request(RequestCode.HELLO, 0, serialize_type=JSON, extra={"_pmq": "1"})))
        assert "_pmq" in decode_response(await peer.frame(), RequestCode.HELLO).extra
        peer.send(b"".join(encode_request(RequestCode.HELLO, 1)))
        assert "_pmq" in decode_response(await peer.frame(), RequestCode.HELLO).extra
        assert handler.requests == []
        await peer.close()
        await server.stop()

    run(scenario)


def test_an_illegal_header_is_answered_and_the_connection_goes_on(run: Run, log: MemoryLog) -> None:
    """What, why and hint arrive; a oneway request is not answered."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler, log=log)
        peer = await Peer.connect(server.port)
        for flag in (2, 0):
            header = msgpack.packb([30, 5 + flag, flag, 409, 3, "", ["T", "x"]])
            peer.send(struct.pack(">II", 4 + len(header), 2 << 24 | len(header)) + header)
        response = decode_response(await peer.frame(), RequestCode.GET_MAX_OFFSET)
        assert (response.code, response.opaque) == (ResponseCode.SYSTEM_ERROR, 5)
        assert response.extra == {"cause": "codec", "stored": "no", "retry_after_ms": "0"}
        assert "TopicQueueRequestHeader refused" in response.remark
        assert "Expected `int`" in response.remark
        peer.send(request_bytes(6))
        assert decode_response(await peer.frame(), HEART_BEAT).opaque == 6
        assert log.count("header_illegal") == 2
        await peer.close()
        await server.stop()

    run(scenario)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">II", FRAME_BYTES_MAX + 1, 0),
        struct.pack(">II", 10, 20),
        struct.pack(">II", 8, 2 << 24 | 4) + b"\xc1\xc1\xc1\xc1",
        struct.pack(">II", 8, 9 << 24 | 4) + b"\0\0\0\0",
        struct.pack(">II", 4, 0),
    ],
    ids=["http", "oversized", "bad header length", "unreadable msgpack", "unknown codec", "empty JSON"],
)
def test_garbage_closes_the_connection_with_one_event(run: Run, log: MemoryLog, garbage: bytes) -> None:
    """The good requests before it are answered, or at least handled."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler, log=log)
        peer = await Peer.connect(server.port)
        peer.send(request_bytes(1) + garbage + request_bytes(2))
        await peer.closed_by_server()
        await until(lambda: bool(handler.closed))
        assert [request.opaque for request in handler.requests] == [1]
        assert log.count("bad_frame") == 1
        other = await Peer.connect(server.port)
        other.send(request_bytes(3))
        assert decode_response(await other.frame(), HEART_BEAT).opaque == 3
        await peer.close()
        await other.close()
        await server.stop()

    run(scenario)


def test_a_truncated_frame_is_forgotten_with_its_connection(run: Run) -> None:
    """No bytes stay charged."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        peer = await Peer.connect(server.port)
        peer.send(struct.pack(">II", 1_000_000, 4) + bytes(300_000))
        await until(lambda: server.budget.used_bytes > 250_000)
        await peer.close()
        await until(lambda: bool(handler.closed))
        assert server.budget.used_bytes == 0
        assert handler.requests == []
        await server.stop()

    run(scenario)


def test_a_frame_byte_by_byte_is_a_frame(run: Run) -> None:
    """A slow frame is still a frame."""

    async def scenario() -> None:
        server = await start_server(EchoHandler())
        peer = await Peer.connect(server.port)
        for byte in request_bytes(7, b"slow"):
            peer.send(bytes([byte]))
            await asyncio.sleep(0)
        assert bytes(decode_response(await peer.frame(), HEART_BEAT).body) == b"slow"
        await peer.close()
        await server.stop()

    run(scenario)


def test_a_frame_that_never_ends_closes_the_connection(run: Run, log: MemoryLog) -> None:
    """Slow loris: bytes keep arriving, the frame does not end; a peer with whole frames stays."""

    async def scenario() -> None:
        clock = ManualClock()
        handler = EchoHandler()
        server = await start_server(handler, log=log, clock=clock, half_frame_ms_max=30_000)
        peer = await Peer.connect(server.port)
        good = await Peer.connect(server.port)
        data = request_bytes(1, bytes(100))
        for at in range(5):
            sent = server.budget.used_bytes
            peer.send(data[at * 10 : at * 10 + 10])
            await until(lambda sent=sent: server.budget.used_bytes > sent)  # type: ignore[misc]
            good.send(request_bytes(at) + request_bytes(at)[:9])
            await until(lambda at=at: len(handler.requests) > at)  # type: ignore[misc]
            good.send(request_bytes(at)[9:])
            await good.frame()
            server.expire()
            clock.advance_ms(10_000)
        server.expire()
        assert await peer.closed_by_server() == b""
        await until(lambda: bool(handler.closed))
        assert len(handler.closed) == 1
        assert log.count("frame_slow") == 1
        assert server.budget.used_bytes == 0
        await peer.close()
        await good.close()
        await server.stop()

    run(scenario)


def test_a_flood_of_half_frames_stays_in_the_budget(run: Run) -> None:
    """30 peers send half of 1 MiB each against a budget of 4 MiB; an honest one is served meanwhile."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(
            handler,
            frame_bytes_max=1 << 20,
            half_frames_bytes_max=4 << 20,
            expire_interval_ms=20,
            half_frame_ms_max=300,
        )
        peers = [await Peer.connect(server.port) for _ in range(30)]
        highest = 0
        for peer in peers:
            peer.send(struct.pack(">II", 1 << 20, 4) + bytes(512 << 10))
            await asyncio.sleep(0.001)
            highest = max(highest, server.budget.used_bytes)
        honest = await Peer.connect(server.port)
        honest.send(request_bytes(1, bytes(1000)))
        assert len(decode_response(await honest.frame(), HEART_BEAT).body) == 1000
        await until(lambda: len(handler.closed) == 30)  # too old at last
        assert 2 << 20 < highest <= (4 << 20) // 4 * 5 + (512 << 10)
        assert server.budget.used_bytes == 0
        for peer in [*peers, honest]:
            await peer.close()
        await server.stop()

    run(scenario)


def test_half_frames_that_fill_the_budget_have_three_seconds(run: Run, log: MemoryLog) -> None:
    """While any connection is paused for lack of memory, a frame older than a sender's timeout ends its connection."""

    async def scenario() -> None:
        clock = ManualClock()
        server = await start_server(
            EchoHandler(), log=log, clock=clock, frame_bytes_max=1 << 20, half_frames_bytes_max=2 << 20
        )
        peers = [await Peer.connect(server.port) for _ in range(6)]
        for at, peer in enumerate(peers):
            peer.send(struct.pack(">II", 1 << 20, 4) + bytes(400 << 10))
            if at < 5:
                await until(lambda at=at: server.budget.used_bytes >= at * (100 << 10))  # type: ignore[misc]
        await until(lambda: server.budget.is_crowded)
        server.expire()
        clock.advance_ms(2_900)
        server.expire()
        assert log.count("frame_slow") == 0
        clock.advance_ms(200)
        server.expire()
        await until(lambda: server.budget.used_bytes < 2 << 20)
        assert log.count("frame_slow") >= 1
        assert not server.budget.is_crowded
        for peer in peers:
            await peer.close()
        await server.stop()

    run(scenario)


@pytest.mark.parametrize("size", [0, 1, 4095, (16 << 20) + 1])
def test_impossible_frame_limits_are_refused(size: int) -> None:
    """A limit below the size of a heartbeat would leave a broker that reports ready and serves no client."""
    with pytest.raises(ValueError, match="frame_bytes_max"):
        ServerConfig(frame_bytes_max=size)


def test_a_flood_of_small_frames_leaves_the_loop_to_the_others(run: Run) -> None:
    """A connection's turn is short, however much it has sent, and none of its frames is lost."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        flood = await Peer.connect(server.port)
        await until(lambda: bool(handler.opened))
        largest = seen = 0

        def look() -> None:
            nonlocal largest, seen
            largest, seen = max(largest, len(handler.requests) - seen), len(handler.requests)
            if seen < 30_000:
                asyncio.get_running_loop().call_soon(look)

        look()
        flood.send(b"".join(request_bytes(at, bytes(100), oneway=True) for at in range(30_000)))
        await until(lambda: len(handler.requests) == 30_000)
        assert [request.opaque for request in handler.requests] == list(range(30_000))
        assert largest <= 3 * SCRATCH_BYTES // 100  # without turns: all frames in the socket, some 20,000
        await flood.close()
        await server.stop()

    run(scenario)


def test_idle_connections_are_closed(run: Run, log: MemoryLog) -> None:
    """The limit is 120 s without read and write; a connection that reads or is written to stays."""

    async def scenario() -> None:
        clock = ManualClock()
        handler = EchoHandler()
        server = await start_server(handler, log=log, clock=clock)
        idle = await Peer.connect(server.port)
        busy = await Peer.connect(server.port)
        await until(lambda: len(handler.opened) == 2)
        server.expire()
        for at in range(3):
            clock.advance_ms(50_000)
            busy.send(request_bytes(at))
            await busy.frame()
            server.expire()
        await until(lambda: bool(handler.closed))
        assert len(server.connections) == 1
        assert "idle for 150000 ms" in handler.closed[0][1]
        assert log.count("connection_idle") == 1
        await idle.close()
        await busy.close()
        await server.stop()

    run(scenario)


def test_connections_beyond_the_limit_are_closed_at_once(run: Run, log: MemoryLog) -> None:
    """The first is reported, the others when requests expire next; a free place can be used again."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler, log=log, connections_max=2)
        peers = [await Peer.connect(server.port) for _ in range(5)]
        for peer in peers[2:]:
            assert await peer.closed_by_server() == b""
        assert len(handler.opened) == 2
        assert server.refused_count == 3
        server.expire()
        assert [fields["count"] for event, fields in log.events if event == "connections_refused"] == [1, 2]
        await peers[0].close()
        await until(lambda: len(server.connections) == 1)
        again = await Peer.connect(server.port)
        again.send(request_bytes(1))
        await again.frame()
        for peer in [*peers[1:], again]:
            await peer.close()
        await server.stop()
        assert len(handler.closed) == len(handler.opened)

    run(scenario)


def test_silent_connections_give_way_to_new_ones(run: Run) -> None:
    """The oldest one that has never said anything; who has spoken keeps its place, and then nobody gives way."""

    async def scenario() -> None:
        clock = ManualClock()
        server = await start_server(EchoHandler(), connections_max=3, clock=clock)
        speaking = await Peer.connect(server.port)
        speaking.send(request_bytes(1))
        await speaking.frame()
        silent = [await Peer.connect(server.port) for _ in range(2)]
        await until(lambda: len(server.connections) == 3)
        server.expire()
        early = await Peer.connect(server.port)
        assert await early.closed_by_server() == b""
        clock.advance_ms(2001)
        server.expire()
        others = []
        for number in range(2):
            others.append(await Peer.connect(server.port))
            others[-1].send(request_bytes(1))
            await others[-1].frame()
            assert server.silent_closed == number + 1
        assert [await peer.closed_by_server() for peer in silent] == [b"", b""]
        assert (server.refused_count, server.full_ns > 0) == (1, True)
        clock.advance_ms(2001)
        server.expire()
        late = await Peer.connect(server.port)
        assert await late.closed_by_server() == b""
        speaking.send(request_bytes(2))
        await speaking.frame()
        for peer in (speaking, early, late, *others, *silent):
            await peer.close()
        await server.stop()
        assert not server._of_host

    run(scenario)


def test_one_address_has_its_share(run: Run) -> None:
    """Beyond it only that address is refused, and the broker is not reported as full."""

    async def scenario() -> None:
        server = await start_server(EchoHandler(), connections_max=10, connections_per_address_max=2)
        taken = [StrangerConnection(host) for host in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "127.0.0.1")]
        opened = [server.opened(connection) for connection in taken]  # type: ignore[arg-type]
        assert opened == [True, True, False, True, True]
        assert (server.refused_count, server.full_ns) == (1, 0)
        for connection, was_opened in zip(taken, opened, strict=True):
            if was_opened:
                server.lost(connection)  # type: ignore[arg-type]
        assert not server.connections
        assert not server._of_host
        await server.stop()

    run(scenario)


class StrangerConnection:
    """A connection of some host, as the server counts it."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.charged_unwritten_bytes = 0


def test_a_port_in_use_is_named(run: Run) -> None:
    """An address of another machine causes another error."""

    async def scenario() -> None:
        server = await start_server(EchoHandler())
        with pytest.raises(AddressInUse, match=f"port {server.port} is in use"):
            await start_server(EchoHandler(), port=server.port)
        other = await start_server(EchoHandler())
        await other.stop()
        with pytest.raises(BindFailed):
            await other.start("192.0.2.1", 0)
        await server.stop()

    run(scenario)


def test_a_failing_handler_is_answered_and_reported(run: Run, log: MemoryLog) -> None:
    """A handler's bug costs one request, not the connection."""

    async def scenario() -> None:
        def script(connection: Connection, request: Request) -> None:
            raise KeyError("bug")

        server = await start_server(EchoHandler(script), log=log)
        peer = await Peer.connect(server.port)
        peer.send(request_bytes(1) + request_bytes(2))
        for opaque in (1, 2):
            response = decode_response(await peer.frame(), HEART_BEAT)
            assert (response.code, response.opaque) == (ResponseCode.SYSTEM_ERROR, opaque)
            assert "KeyError" in response.remark
            assert (response.extra["cause"], response.extra["stored"]) == ("internal", "unknown")
        assert log.count("request_handler_failed") == 2
        await peer.close()
        await server.stop()

    run(scenario)


def test_the_server_can_ask_its_clients(run: Run) -> None:
    """The server asks oneway, with an answer, without one in time, and while the client disconnects."""

    async def scenario() -> None:
        clock = ManualClock()
        handler = EchoHandler()
        server = await start_server(handler, clock=clock)
        peer = await Peer.connect(server.port)
        peer.send(request_bytes(1))
        await peer.frame()
        connection = handler.opened[0]
        header = ConsumerGroupRequestHeader("g")
        connection.send_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
        told = decode_request(await peer.frame())
        assert (told.code, told.oneway, told.header) == (40, True, header)
        info = GetConsumerRunningInfoRequestHeader("g", "c")
        results: list[Response | PocketMQError] = []
        for _ in range(3):
            connection.request_nowait(RequestCode.GET_CONSUMER_RUNNING_INFO, info, timeout_ms=1000, done=results.append)
        asked = [decode_request(await peer.frame()) for _ in range(3)]
        peer.send(b"".join(encode_response(0, asked[0].opaque, asked[0].code, body=b"info")))
        peer.send(b"".join(encode_response(0, 9999, asked[0].code)))
        await until(lambda: bool(results))
        assert isinstance(results[0], Response)
        assert bytes(results[0].body) == b"info"
        clock.advance_ms(1001)
        server.expire()
        assert [type(result) for result in results[1:]] == [RequestTimeout, RequestTimeout]
        connection.request_nowait(RequestCode.GET_CONSUMER_RUNNING_INFO, info, timeout_ms=1000, done=results.append)
        await peer.close()
        await until(lambda: len(results) == 4)
        assert isinstance(results[3], ConnectionLost)
        await server.stop()

    run(scenario)


def test_stop_writes_what_was_answered(run: Run) -> None:
    """Answers made before the stop arrive; then every connection ends."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        channel = await open_channel(server)
        peer = await Peer.connect(server.port)
        peer.send(request_bytes(1))
        await peer.frame()
        connection = next(c for c in handler.opened if c.remote != channel.local)
        connection.respond(encode_response(0, 8, HEART_BEAT, body=bytes(1_000_000)))
        stopping = asyncio.get_running_loop().create_task(server.stop(grace_ms=5000))
        assert decode_response(await peer.frame(), HEART_BEAT).opaque == 8
        await peer.closed_by_server()
        await stopping
        assert server.connections == set()
        assert len(handler.closed) == 2
        await until(lambda: channel.closed)
        await peer.close()
        await server.stop()

    run(scenario)


def test_stop_does_not_wait_for_a_peer_that_does_not_read(run: Run) -> None:
    """The stop waits at most for the grace period."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        peer = await Peer.connect(server.port)
        await until(lambda: bool(handler.opened))
        handler.opened[0].respond(encode_response(0, 8, HEART_BEAT, body=bytes(15_000_000)))
        await server.stop(grace_ms=10)
        assert server.connections == set()
        await peer.close()

    run(scenario)


def test_large_answers_are_not_copied(run: Run) -> None:
    """A memoryview of 64 KiB or more reaches the transport as it is, in order with the small ones."""

    async def scenario() -> None:
        handler = EchoHandler(lambda connection, request: None)
        server = await start_server(handler)
        peer = await Peer.connect(server.port)
        await until(lambda: bool(handler.opened))
        large = memoryview(bytes(70_000))
        connection = handler.opened[0]
        connection.respond_all(
            [
                encode_response(0, 1, HEART_BEAT, body=b"a"),
                encode_response(0, 2, HEART_BEAT, body=[b"b", large, b"c"]),
                encode_response(0, 3, HEART_BEAT, body=b"d"),
            ]
        )
        bodies = [bytes(decode_response(await peer.frame(), HEART_BEAT).body) for _ in range(3)]
        assert bodies == [b"a", b"b" + bytes(large) + b"c", b"d"]
        await peer.close()
        await server.stop()

    run(scenario)


@pytest.mark.parametrize(
    "settings",
    [
        {"connections_max": 0},
        {"frame_bytes_max": FRAME_BYTES_MAX + 1},
        {"half_frames_bytes_max": 1000},
        {"write_high_water_bytes": 1},
        {"unwritten_bytes_max": 1},
    ],
)
def test_impossible_limits_are_refused(settings: dict[str, int]) -> None:
    """The message names the key."""
    with pytest.raises(ValueError, match=f"remoting.*{next(iter(settings))}"):
        ServerConfig(**settings)


def test_a_typed_request_reaches_the_handler(run: Run) -> None:
    """Handlers see structs, whatever the codec."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        peer = await Peer.connect(server.port)
        header = TopicQueueRequestHeader("T", 3)
        for serialize_type in (JSON, BINARY, MSGPACK):
            peer.send(b"".join(encode_request(RequestCode.GET_MIN_OFFSET, 1, header, serialize_type=serialize_type)))
            await peer.frame()
            assert handler.requests[-1].header == header
            assert handler.opened[0].serialize_type == serialize_type
        assert handler.opened[0].version == 409
        await peer.close()
        await server.stop()

    run(scenario)
