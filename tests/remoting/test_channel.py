"""The client channel and the pool, with real sockets on both loops."""

import asyncio
from collections.abc import Callable

import pytest

from pocketmq.common.clock import ManualClock, SystemClock
from pocketmq.common.errors import PocketMQError, Stored
from pocketmq.common.events import NullLog
from pocketmq.remoting.channel import ChannelConfig, ClientChannel
from pocketmq.remoting.codec import Request, Response, decode_request, encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import (
    ConnectFailed,
    ConnectionLost,
    FrameTooLarge,
    HeaderIllegal,
    RemotingTooMuchRequestError,
    RequestTimeout,
)
from pocketmq.remoting.frame import FRAME_BYTES_MAX, JSON, MSGPACK, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.pending import OPAQUE_MIN
from pocketmq.remoting.protocol.client import ConsumerGroupRequestHeader
from pocketmq.remoting.protocol.pull import PullMessageRequestHeader
from tests.remoting.conftest import MemoryLog, Run
from tests.remoting.harness import ANNOUNCED, EchoHandler, echo, open_channel, start_server, until

HEART_BEAT = RequestCode.HEART_BEAT


class RocketMQ:
    """A server that is not PocketMQ: JSON only, no announcement; the test chooses its answers."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer = b""
        self.silent = False
        self.drops: set[int] = set()
        self.writers: list[asyncio.StreamWriter] = []
        self.server: asyncio.Server

    async def start(self) -> str:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        decoder = FrameDecoder(new_scratch(), FrameBudget())
        while data := await reader.read(65536):
            for frame in decoder.feed(data):
                request = decode_request(frame)
                self.requests.append(request)
                if self.answer:
                    writer.write(self.answer)
                elif not self.silent and request.code not in self.drops:
                    writer.write(
                        b"".join(encode_response(3, request.opaque, 0, remark="not supported", serialize_type=JSON))
                    )
        writer.close()

    async def stop(self) -> None:
        self.server.close()
        for writer in self.writers:
            writer.close()
            try:
                await writer.wait_closed()
            except (ConnectionResetError, BrokenPipeError):
                pass
        await self.server.wait_closed()


def test_a_channel_upgrades_to_msgpack(run: Run) -> None:
    """The first request is JSON with _pmq; the answer announces, and the next request is msgpack."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        channel = await open_channel(server, hello=False)
        assert channel.serialize_type == JSON
        assert await channel.hello() == ANNOUNCED
        response = await channel.request(HEART_BEAT, None, b"body", timeout_ms=5000)
        assert bytes(response.body) == b"body"
        assert handler.requests[0].serialize_type == response.serialize_type == MSGPACK
        assert channel.local == handler.opened[0].remote
        channel.close()
        await channel.wait_closed()
        await server.stop()

    run(scenario)


def test_a_channel_to_rocketmq_stays_with_json(run: Run) -> None:
    """Without an announcement it uses JSON, and a refused hello is no error."""

    async def scenario() -> None:
        rocketmq = RocketMQ()
        config = ChannelConfig(hello_probe_after_ms=60_000)
        channel = ClientChannel(await rocketmq.start(), clock=SystemClock(), log=NullLog(), config=config)
        await channel.open()
        assert await channel.hello() is None
        response = await channel.request(HEART_BEAT, None, timeout_ms=5000)
        assert (response.code, response.remark) == (3, "not supported")
        assert [request.serialize_type for request in rocketmq.requests] == [JSON, JSON]
        assert dict(rocketmq.requests[0].extra) == {"_pmq": "1"}
        assert not rocketmq.requests[1].extra
        channel.close()
        await channel.wait_closed()
        await rocketmq.stop()

    run(scenario)


def test_answers_find_their_requests_in_any_order(run: Run) -> None:
    """Answers match by opaque; callbacks need no futures."""

    async def scenario() -> None:
        held: list[Request] = []

        def script(connection: Connection, request: Request) -> None:
            held.append(request)
            if len(held) == 200:
                for request in reversed(held):
                    echo(connection, request)

        server = await start_server(EchoHandler(script))
        channel = await open_channel(server)
        got: list[tuple[int, bytes]] = []

        def done_of(at: int) -> Callable[[Response | PocketMQError], None]:
            def done(result: Response | PocketMQError) -> None:
                assert isinstance(result, Response)
                got.append((at, bytes(result.body)))

            return done

        for at in range(200):
            channel.request_nowait(HEART_BEAT, None, b"%d" % at, timeout_ms=5000, done=done_of(at))
        assert channel.pending_count == 200
        await until(lambda: len(got) == 200)
        assert got == [(at, b"%d" % at) for at in reversed(range(200))]
        assert channel.pending_count == 0
        channel.close()
        await channel.wait_closed()
        await server.stop()

    run(scenario)


def test_a_request_without_an_answer_times_out(run: Run) -> None:
    """Other requests are not delayed; a late answer is dropped and counted; the channel goes on."""

    async def scenario() -> None:
        late: list[Request] = []
        handler = EchoHandler(
            lambda connection, request: (
                late.append(request) if bytes(request.body) == b"late" else echo(connection, request)
            )
        )
        server = await start_server(handler)
        channel = await open_channel(server, expire_interval_ms=5)
        with pytest.raises(RequestTimeout, match=r"HEART_BEAT.*the limit was 20 ms") as caught:
            await channel.request(HEART_BEAT, None, b"late", timeout_ms=20)
        assert caught.value.stored is Stored.UNKNOWN
        assert caught.value.retriable
        await until(lambda: bool(late))
        echo(handler.opened[0], late[0])
        assert bytes((await channel.request(HEART_BEAT, None, b"now", timeout_ms=5000)).body) == b"now"
        assert channel.unmatched_count == 1
        channel.close()
        await channel.wait_closed()
        await server.stop()

    run(scenario)


def test_oneway_requests_have_no_answer(run: Run) -> None:
    """Nothing is pending, no timer runs."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        channel = await open_channel(server)
        channel.send_oneway(HEART_BEAT, None, b"x")
        await until(lambda: bool(handler.requests))
        assert handler.requests[0].oneway
        assert channel.pending_count == 0
        channel.close()
        await channel.wait_closed()
        await server.stop()

    run(scenario)


def test_what_was_added_before_close_still_leaves(run: Run) -> None:
    """The server still receives a oneway good-bye."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        channel = await open_channel(server)
        channel.send_oneway(HEART_BEAT, None, bytes(1_000_000))
        channel.close()
        await channel.wait_closed()
        await until(lambda: bool(handler.requests))
        await server.stop()

    run(scenario)


def test_a_lost_connection_ends_every_request(run: Run) -> None:
    """Requests that were sent are UNKNOWN, others are not stored; later requests are refused at once."""

    async def scenario() -> None:
        handler = EchoHandler(lambda connection, request: None)
        server = await start_server(handler)
        closed: list[str] = []
        channel = ClientChannel(
            f"127.0.0.1:{server.port}",
            clock=SystemClock(),
            log=NullLog(),
            on_close=lambda channel, reason: closed.append(reason),
        )
        await channel.open()
        results: list[Response | PocketMQError] = []
        channel.request_nowait(HEART_BEAT, None, timeout_ms=5000, done=results.append)
        await until(lambda: bool(handler.requests))
        handler.opened[0].close("test")
        await until(lambda: bool(results))
        lost = results[0]
        assert isinstance(lost, ConnectionLost)
        assert lost.stored is Stored.UNKNOWN
        assert lost.retriable
        assert f"127.0.0.1:{server.port}" in str(lost)
        assert "ms" in lost.why
        assert len(closed) == 1
        with pytest.raises(ConnectionLost) as caught:
            channel.request_nowait(HEART_BEAT, None, timeout_ms=5000, done=results.append)
        assert caught.value.stored is Stored.NO
        with pytest.raises(ConnectionLost):
            await channel.request(HEART_BEAT, None, timeout_ms=5000)
        with pytest.raises(ConnectionLost):
            await channel.drain()
        assert len(results) == 1
        await channel.wait_closed()
        await server.stop()

    run(scenario)


def test_what_never_left_is_not_stored(run: Run) -> None:
    """The connection is lost in the same turn of the loop."""

    async def scenario() -> None:
        server = await start_server(EchoHandler())
        channel = await open_channel(server)
        results: list[Response | PocketMQError] = []
        channel.request_nowait(HEART_BEAT, None, timeout_ms=5000, done=results.append)
        channel.connection_lost(None)
        assert isinstance(results[0], ConnectionLost)
        assert results[0].stored is Stored.NO
        await server.stop()
        await until(lambda: not server.connections)

    run(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\0\0\0\x08\0\0\0\x04{{{{",
        b"\0\0\0\x08\x07\0\0\x04abcd",
        b"\xff" * 20,
    ],
    ids=["http", "bad JSON", "unknown codec", "oversized"],
)
def test_a_server_that_answers_garbage_is_left(run: Run, log: MemoryLog, answer: bytes) -> None:
    """It causes one event and one clear error, and no wait for the timeout."""

    async def scenario() -> None:
        rocketmq = RocketMQ()
        rocketmq.answer = answer
        channel = ClientChannel(await rocketmq.start(), clock=SystemClock(), log=log)
        await channel.open()
        with pytest.raises(ConnectFailed, match="no valid frame"):
            await channel.hello()
        assert channel.closed
        assert log.count("bad_frame") == 1
        await channel.wait_closed()
        await rocketmq.stop()

    run(scenario)


def test_wrong_opaques_match_nothing(run: Run) -> None:
    """The request times out; the answer is counted."""

    async def scenario() -> None:
        rocketmq = RocketMQ()
        rocketmq.answer = b"".join(encode_response(0, 777, 0, serialize_type=JSON))
        clock = ManualClock()
        channel = ClientChannel(
            await rocketmq.start(),
            clock=clock,
            log=NullLog(),
            config=ChannelConfig(expire_interval_ms=5, hello_timeout_ms=20, hello_probe_after_ms=60_000),
        )
        await channel.open()
        greeting = asyncio.create_task(channel.hello())
        await until(lambda: channel.unmatched_count > 0)
        clock.advance_ms(20)
        with pytest.raises(ConnectFailed, match="no answer"):
            await greeting
        assert channel.unmatched_count == 1
        await channel.wait_closed()
        await rocketmq.stop()

    run(scenario)


def test_an_answer_without_its_fields_is_an_error_of_that_request(run: Run) -> None:
    """A SUCCESS without a required field does not close the channel."""

    async def scenario() -> None:
        server = await start_server(EchoHandler())  # echoes without a header
        channel = await open_channel(server)
        header = PullMessageRequestHeader("g", "T", 0, 0, 32, 0, 0, 0, 0)
        with pytest.raises(HeaderIllegal, match="PullMessageResponseHeader"):
            await channel.request(RequestCode.LITE_PULL_MESSAGE, header, timeout_ms=5000)
        assert (await channel.request(HEART_BEAT, None, timeout_ms=5000)).code == ResponseCode.SUCCESS
        channel.close()
        await channel.wait_closed()
        await server.stop()

    run(scenario)


def test_a_bad_announcement_leaves_the_channel_with_json(run: Run, log: MemoryLog) -> None:
    """Whatever the field contains."""

    async def scenario() -> None:
        rocketmq = RocketMQ()
        rocketmq.answer = b"".join(encode_response(0, OPAQUE_MIN, 0, serialize_type=JSON, extra={"_pmq": "[[["}))
        channel = ClientChannel(await rocketmq.start(), clock=SystemClock(), log=log)
        await channel.open()
        assert await channel.hello() is None
        assert channel.serialize_type == JSON
        assert log.count("announcement_illegal") == 1
        channel.close()
        await channel.wait_closed()
        await rocketmq.stop()

    run(scenario)


def test_requests_of_the_server_reach_the_callback(run: Run) -> None:
    """Oneway and answered requests arrive; a failing callback is reported and affects no other."""

    async def scenario() -> None:
        log = MemoryLog()
        handler = EchoHandler()
        server = await start_server(handler)
        asked: list[Request] = []

        def on_request(channel: ClientChannel, request: Request) -> None:
            asked.append(request)
            if request.oneway:
                raise KeyError("bug")
            channel.respond(encode_response(0, request.opaque, request.code, body=b"info"))

        channel = ClientChannel(f"127.0.0.1:{server.port}", clock=SystemClock(), log=log, on_request=on_request)
        await channel.open()
        await channel.hello()
        results: list[Response | PocketMQError] = []
        header = ConsumerGroupRequestHeader("g")
        handler.opened[0].send_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
        handler.opened[0].request_nowait(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, header, timeout_ms=5000, done=results.append
        )
        await until(lambda: bool(results))
        assert isinstance(results[0], Response)
        assert [request.header for request in asked] == [header, header]
        assert log.count("request_handler_failed") == 1
        channel.close()
        await channel.wait_closed()
        await server.stop()

    run(scenario)


def test_a_failing_callback_does_not_harm_the_others(run: Run, log: MemoryLog) -> None:
    """It is reported; the next answer is delivered."""

    async def scenario() -> None:
        server = await start_server(EchoHandler())
        channel = await open_channel(server, log=log)
        results: list[Response | PocketMQError] = []

        def fail(result: Response | PocketMQError) -> None:
            raise KeyError("bug")

        channel.request_nowait(HEART_BEAT, None, timeout_ms=5000, done=fail)
        channel.request_nowait(HEART_BEAT, None, timeout_ms=5000, done=results.append)
        await until(lambda: bool(results))
        assert log.count("request_callback_failed") == 1
        channel.close()
        await channel.wait_closed()
        await server.stop()

    run(scenario)


def test_a_server_that_does_not_read_bounds_the_outgoing_bytes(run: Run) -> None:
    """The channel is not writable, then refuses; drain returns when the server reads again."""

    async def scenario() -> None:
        handler = EchoHandler(lambda connection, request: None)
        server = await start_server(handler)
        channel = await open_channel(server, unwritten_bytes_max=8_000_000, write_high_water_bytes=1_000_000)
        handler.opened[0].pause_for_budget()
        sent = 0
        while channel.unwritten_bytes <= 8_000_000:
            channel.send_oneway(HEART_BEAT, None, bytes(300_000))
            sent += 1
            await asyncio.sleep(0)
        with pytest.raises(RemotingTooMuchRequestError, match=r"invoke too fast: .* bytes wait to be sent"):
            channel.send_oneway(HEART_BEAT, None, bytes(300_000))
        assert not channel.writable
        assert channel.unwritten_bytes < 9_000_000
        handler.opened[0].resume_for_budget()
        await channel.drain()
        assert channel.writable
        await until(lambda: len(handler.requests) == sent)
        channel.close()
        await channel.wait_closed()
        await server.stop()

    run(scenario)


def test_a_burst_in_one_turn_is_bounded_too(run: Run) -> None:
    """The bytes of the present turn of the loop count."""

    async def scenario() -> None:
        server = await start_server(EchoHandler(lambda connection, request: None))
        channel = await open_channel(server, unwritten_bytes_max=4_000_000, write_high_water_bytes=1_000_000)
        with pytest.raises(RemotingTooMuchRequestError):
            _send_many(channel, 20_000)
        assert channel.unwritten_bytes < 5_000_000
        channel.close()
        await channel.wait_closed()
        await server.stop(grace_ms=0)

    run(scenario)


def _send_many(channel: ClientChannel, count: int) -> None:
    for _ in range(count):
        channel.send_oneway(HEART_BEAT, None, bytes(30_000))


def test_too_many_pending_requests_are_refused(run: Run) -> None:
    """So is a frame above the limit; neither calls done."""

    async def scenario() -> None:
        server = await start_server(EchoHandler(lambda connection, request: None))
        channel = await open_channel(server, pending_max=3)
        results: list[Response | PocketMQError] = []
        for _ in range(2):
            channel.request_nowait(HEART_BEAT, None, timeout_ms=5000, done=results.append)
        with pytest.raises(FrameTooLarge):
            channel.request_nowait(HEART_BEAT, None, bytes(FRAME_BYTES_MAX), timeout_ms=5000, done=results.append)
        channel.request_nowait(HEART_BEAT, None, timeout_ms=5000, done=results.append)
        with pytest.raises(RemotingTooMuchRequestError, match="invokeAsyncImpl invoke too fast: 3 requests"):
            channel.request_nowait(HEART_BEAT, None, timeout_ms=5000, done=results.append)
        assert results == []
        channel.close()
        assert [type(result) for result in results] == [ConnectionLost] * 3
        await channel.wait_closed()
        await server.stop()

    run(scenario)
