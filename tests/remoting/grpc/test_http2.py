"""The listener: calls, deadlines, and what strangers may cost, with real frames over loopback."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("h2", reason="gRPC needs h2: pip install 'pocketmq[grpc]'")

import h2.settings

from pocketmq.common.clock import ManualClock, SystemClock
from pocketmq.common.events import NullLog
from pocketmq.remoting.grpc.call import Call, GrpcError, Method, framed
from pocketmq.remoting.grpc.codes import GrpcStatus
from pocketmq.remoting.grpc.http2 import CONTROLS, HEADERS_BYTES_MAX, RESETS, STREAMS_MAX, Budget, Http2Connection
from pocketmq.remoting.grpc.messages import Resource, Status
from pocketmq.remoting.grpc.protobuf import encode
from pocketmq.remoting.security.client_security import TLS
from pocketmq.remoting.server import RemotingServer
from tests.remoting.grpc.grpc_client import WAIT_S, GrpcClient
from tests.remoting.harness import EchoHandler, start_server, until
from tests.remoting.test_acceptor import CA, tls_files

CALM = 11
"""ENHANCE_YOUR_CALM (RFC 9113, 7)."""
BYTES_MAX = 64 << 10


class Service:
    """Answers with the name that it was sent; ``gate`` holds answers back."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.began = self.cancelled = 0
        self.errors: list[str] = []
        self.size = 0
        self.count = 1

    async def echo(self, call: Call, request: Resource) -> Status:
        self.began += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if request.name == "bug":
            raise KeyError("a bug")
        if request.name == "refused":
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "no such thing: ä 100%")
        return Status(code=1, message=request.name + "x" * self.size)

    async def stream(self, call: Call, nothing: None) -> None:
        self.began += 1
        while (message := await call.next()) is not None:
            assert isinstance(message, Resource)
            for _ in range(self.count):
                await call.send(Status(message=message.name + "x" * self.size))

    def failed(self, method: str, error: Exception) -> None:
        self.errors.append(f"{method} {error!r}")


@asynccontextmanager
async def served(
    *, limit_bytes: int = 1 << 20, clock: Any = None, tls: Any = None, log: Any = None, **config: Any
) -> AsyncIterator[tuple[RemotingServer, Service, int, Budget]]:
    """A server with both methods; gives it, the service, the port and the memory."""
    service, memory = Service(), Budget(limit_bytes)
    methods = {
        "/t/Echo": Method("Echo", Resource, service.echo, bytes_max=BYTES_MAX),
        "/t/Stream": Method("Stream", Resource, service.stream, takes_stream=True, bytes_max=BYTES_MAX),
    }
    server = await start_server(EchoHandler(), clock=clock or SystemClock(), tls=tls, log=log, **config)

    def made() -> Http2Connection:
        return Http2Connection(server, methods, memory, on_error=service.failed)

    port = await server.listen_also("127.0.0.1", 0, made)
    try:
        yield server, service, port, memory
    finally:
        await server.stop(0)


async def echo(client: GrpcClient, name: str) -> Status:
    return await client.call("", Resource(name=name), Status, path="/t/Echo")


async def test_calls_are_answered_side_by_side() -> None:
    async with served() as (_, _service, port, memory):
        client = await GrpcClient.connect(port)
        answers = await asyncio.gather(*(echo(client, f"n{number}") for number in range(50)))
        assert [answer.message for answer in answers] == [f"n{number}" for number in range(50)]
        assert memory.used_bytes == 0


async def test_an_answer_larger_than_the_windows_comes_whole() -> None:
    async with served() as (_, service, port, memory):
        service.size = 300_000
        client = await GrpcClient.connect(port)
        assert len((await echo(client, "")).message) == 300_000
        assert memory.used_bytes == 0


async def test_a_request_in_many_pieces_is_one_request() -> None:
    async with served() as (_, _service, port, _memory):
        client = await GrpcClient.connect(port)
        stream, data = client.open("", path="/t/Echo"), framed(encode(Resource(name="pieces")))
        for at in range(len(data)):
            stream.send_raw(data[at : at + 1], end=at == len(data) - 1)
            await asyncio.sleep(0)
        assert (await stream.next(Status)).message == "pieces"


async def test_a_stream_goes_both_ways_until_the_client_ends_it() -> None:
    async with served() as (_, _service, port, memory):
        client = await GrpcClient.connect(port)
        stream = client.open("", path="/t/Stream")
        for name in ("a", "b"):
            stream.send(Resource(name=name))
            assert (await stream.next(Status)).message == name
        stream.end()
        await stream.done()
        assert stream.status == 0
        assert memory.used_bytes == 0


@pytest.mark.parametrize(
    ("metadata", "body", "status", "text"),
    [
        ({"path": "/t/Other"}, b"", GrpcStatus.UNIMPLEMENTED, "/t/Other is not served here"),
        ({}, b"\1\0\0\0\0", GrpcStatus.UNIMPLEMENTED, "a compressed message"),
        ({}, b"\0\0\1\0\1", GrpcStatus.RESOURCE_EXHAUSTED, "a message of 65537 bytes: the limit is 65536"),
        ({}, b"\0\0\0\0\5abc", GrpcStatus.INTERNAL, "the stream ended in the middle of a message"),
        ({}, b"", GrpcStatus.INTERNAL, "takes one message, and none came"),
        ({}, framed(b"") + framed(b""), GrpcStatus.INTERNAL, "takes one message, and a second one came"),
        ({}, framed(b"\xff"), GrpcStatus.INTERNAL, "Resource cannot be read"),
        ({}, framed(encode(Resource(name="refused"))), GrpcStatus.INVALID_ARGUMENT, "no such thing: %C3%A4 100%25"),
        ({"grpc_timeout": "soon"}, framed(b""), GrpcStatus.INTERNAL, "grpc-timeout: 'soon' is no time"),
        ({"grpc_timeout": "123456789S"}, framed(b""), GrpcStatus.INTERNAL, "is no time"),
        ({"content_type": "text/plain"}, framed(b""), GrpcStatus.UNKNOWN, "this port speaks gRPC"),
    ],
)
async def test_what_is_wrong_has_a_clear_status(metadata: dict[str, str], body: bytes, status: int, text: str) -> None:
    async with served() as (_, _service, port, memory):
        client = await GrpcClient.connect(port)
        found, said = await client.fails("", body, **{"path": "/t/Echo", **metadata})
        assert (found, text in said) == (status, True), said
        assert (await echo(client, "and on")).message == "and on"
        assert memory.used_bytes == 0


async def test_a_bug_of_a_service_ends_its_call_alone() -> None:
    async with served() as (_, service, port, _memory):
        client = await GrpcClient.connect(port)
        status, text = await client.fails("", Resource(name="bug"), path="/t/Echo")
        assert (status, "KeyError" in text) == (GrpcStatus.INTERNAL, True)
        assert service.errors == ["Echo KeyError('a bug')"]
        assert (await echo(client, "on")).message == "on"


async def test_a_deadline_ends_the_call_and_its_work() -> None:
    async with served() as (_, service, port, memory):
        service.gate.clear()
        client = await GrpcClient.connect(port)
        status, text = await client.fails("", Resource(name="slow"), path="/t/Echo", grpc_timeout="30m")
        assert (status, "deadline" in text) == (GrpcStatus.DEADLINE_EXCEEDED, True)
        assert (service.cancelled, memory.used_bytes) == (1, 0)


async def test_a_cancelled_call_ends_its_work() -> None:
    async with served() as (_, service, port, _memory):
        service.gate.clear()
        client = await GrpcClient.connect(port)
        stream = client.open("", path="/t/Echo")
        stream.send(Resource(name="x"), end=True)
        await until(lambda: service.began == 1)
        stream.cancel()
        await until(lambda: service.cancelled == 1)


async def test_a_client_that_goes_ends_its_calls() -> None:
    async with served() as (server, service, port, memory):
        service.gate.clear()
        client = await GrpcClient.connect(port)
        for _ in range(3):
            client.open("", path="/t/Echo").send(Resource(name="x"), end=True)
        client.open("", path="/t/Echo").send_raw(b"\0\0\0\1\0half")
        await until(lambda: service.began == 3)
        await client.close()
        await until(lambda: service.cancelled == 3)
        await until(lambda: not server.connections)
        assert memory.used_bytes == 0


async def test_plain_and_tls_share_the_port() -> None:
    async with served(tls=tls_files()) as (_, _service, port, _memory):
        context = TLS(ca=CA).context()
        context.set_alpn_protocols(["h2"])
        secret, plain = await GrpcClient.connect(port, tls=context), await GrpcClient.connect(port)
        found: ssl.SSLObject = secret.transport.get_extra_info("ssl_object")
        assert found.selected_alpn_protocol() == "h2"
        for client in (secret, plain):
            assert (await echo(client, "x")).message == "x"


@pytest.mark.parametrize(
    ("first", "hint"), [(b"\x16\x03\x01\x02\x00\x01", "it speaks TLS"), (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP/1")]
)
async def test_another_protocol_is_named_in_the_log(first: bytes, hint: str) -> None:
    class Log(NullLog):
        lines: list[str] = []

        def warning(self, event: str, **fields: Any) -> None:
            self.lines.append(f"{event} {fields}")

    log = Log()
    async with served(log=log) as (_, _service, port, _memory):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(first + bytes(64))
        await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()
        assert any(hint in line for line in log.lines), log.lines


# ---- strangers -----------------------------------------------------------------------------------------------------


async def ends_calmly(client: GrpcClient) -> None:
    await asyncio.wait_for(client.closed.wait(), WAIT_S)
    assert client.goaway == CALM


async def test_calls_that_are_cancelled_at_once_end_the_connection_and_start_nothing() -> None:
    """Rapid reset (CVE-2023-44487)."""
    async with served() as (_, service, port, memory):
        client = await GrpcClient.connect(port)
        for _ in range(RESETS.burst + 1_000):
            if client.closed.is_set():
                break
            client.open("", path="/t/Echo").cancel()
            if client.transport.get_write_buffer_size() > 1 << 16:
                await asyncio.sleep(0)
        await ends_calmly(client)
        assert (service.began, memory.used_bytes) == (0, 0)
        assert (await echo(await GrpcClient.connect(port), "others are served")).message == "others are served"


@pytest.mark.parametrize("kind", ["ping", "settings", "window", "empty data"])
async def test_frames_without_content_end_the_connection(kind: str) -> None:
    async with served() as (_, _service, port, _memory):
        client = await GrpcClient.connect(port)
        stream = client.open("", path="/t/Stream")
        for _ in range(CONTROLS.burst + 20_000):
            if client.closed.is_set():
                break
            if kind == "ping":
                client.h2.ping(b"12345678")
            elif kind == "settings":
                client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 65_535})
            elif kind == "window":
                client.h2.increment_flow_control_window(1)
            else:
                client.h2.send_data(stream.stream_id, b"")
            client.flush()
            if client.transport.get_write_buffer_size() > 1 << 16:
                await asyncio.sleep(0)
        await ends_calmly(client)


async def test_settings_that_nobody_knows_end_the_connection() -> None:
    async with served() as (_, _service, port, _memory):
        client = await GrpcClient.connect(port)
        frame = b"".join(number.to_bytes(2, "big") + bytes(4) for number in range(100, 400))
        client.transport.write(len(frame).to_bytes(3, "big") + b"\4\0" + bytes(4) + frame)
        await ends_calmly(client)


async def test_headers_that_unpack_to_much_end_the_connection() -> None:
    """A few bytes that stand for many: an entry of the table, named again and again (CVE-2016-6581)."""
    async with served() as (_, service, port, _memory):
        client = await GrpcClient.connect(port)
        stream_id = client.h2.get_next_available_stream_id()
        block = b"\x40\x01a\x7f\x81\x1e" + b"v" * 4_000 + b"\xbe" * 12_000
        client.transport.write(len(block).to_bytes(3, "big") + b"\1\4" + stream_id.to_bytes(4, "big") + block[:16_384])
        await asyncio.wait_for(client.closed.wait(), WAIT_S)
        assert service.began == 0


async def test_long_headers_end_the_connection() -> None:
    async with served() as (_, service, port, _memory):
        client = await GrpcClient.connect(port)
        client.open("", path="/t/Echo", x_long="v" * HEADERS_BYTES_MAX)
        await asyncio.wait_for(client.closed.wait(), WAIT_S)
        assert service.began == 0


async def test_half_requests_share_a_memory() -> None:
    async with served(limit_bytes=200_000) as (_, _service, port, memory):
        client = await GrpcClient.connect(port)
        streams = [client.open("", path="/t/Echo") for _ in range(5)]
        for stream in streams:
            stream.send_raw(b"\0\0\1\0\0" + bytes(50_000))
            await asyncio.sleep(0)
        refused = streams[-1]
        await refused.done()
        assert refused.status == GrpcStatus.RESOURCE_EXHAUSTED
        assert memory.used_bytes <= 200_000
        streams[0].send_raw(bytes(15_531), end=True)
        await streams[0].done()
        await client.close()
        await until(lambda: memory.used_bytes == 0)


async def test_answers_that_nobody_reads_share_the_memory() -> None:
    async with served(limit_bytes=1 << 20) as (_, service, port, memory):
        service.size = 300_000
        client = await GrpcClient.connect(port)
        client.reads = False
        streams = [client.open("", path="/t/Echo") for _ in range(6)]
        for stream in streams:
            stream.send(Resource(name="x"), end=True)
        await until(lambda: any(stream.status == GrpcStatus.RESOURCE_EXHAUSTED for stream in streams))
        assert memory.used_bytes <= 1 << 20
        await client.close()
        await until(lambda: memory.used_bytes == 0)


async def test_more_streams_than_allowed_are_refused() -> None:
    async with served() as (_, service, port, _memory):
        service.gate.clear()
        client = await GrpcClient.connect(port)
        await until(lambda: client.h2.remote_settings.max_concurrent_streams == STREAMS_MAX)
        for _ in range(STREAMS_MAX):
            client.open("", path="/t/Echo").send(Resource(name="x"), end=True)
        await until(lambda: service.began == STREAMS_MAX)
        frame = client.h2.streams  # the client's own library would refuse one more
        assert len(frame) >= STREAMS_MAX
        service.gate.set()


async def test_a_connection_that_says_nothing_is_closed() -> None:
    clock = ManualClock(1_000)
    async with served(clock=clock) as (server, _service, port, _memory):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: len(server.connections) == 1)
        clock.advance_ms(11_000)
        server.expire()
        while await asyncio.wait_for(reader.read(1024), WAIT_S):
            pass
        writer.close()
        await until(lambda: not server.connections)


async def test_connections_count_with_all_others() -> None:
    async with served(connections_max=2) as (server, _service, port, _memory):
        one, two = await GrpcClient.connect(port), await GrpcClient.connect(port)
        assert (await echo(one, "1")).message == (await echo(two, "1")).message
        third = await GrpcClient.connect(port)
        await asyncio.wait_for(third.closed.wait(), WAIT_S)
        assert server.refused_count == 1


async def test_a_stop_answers_what_is_ready_and_says_goodbye() -> None:
    async with served() as (server, service, port, _memory):
        service.gate.clear()
        client = await GrpcClient.connect(port)
        stream, open_one = client.open("", path="/t/Echo"), client.open("", path="/t/Stream")
        stream.send(Resource(name="x"), end=True)
        await until(lambda: service.began == 2)
        [connection] = server.connections
        assert isinstance(connection, Http2Connection)
        tasks = connection.end("the broker stops")
        service.gate.set()
        await asyncio.wait(tasks)
        assert (await stream.next(Status)).message == "x"
        await open_one.done()
        assert open_one.status == GrpcStatus.UNAVAILABLE
        connection.say_goodbye()
        await until(lambda: client.goaway == 0)
