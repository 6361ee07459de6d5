"""A server with a scripted handler, raw peers, and waiting for conditions."""

import asyncio
from collections.abc import Callable
from typing import Any

from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.events import EventLog, NullLog
from pocketmq.remoting.channel import ChannelConfig, ClientChannel
from pocketmq.remoting.codec import Request, encode_response
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.frame import Frame, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.protocol.hello import Announcement
from pocketmq.remoting.security.client_security import NO_SECURITY, ClientSecurity
from pocketmq.remoting.security.tls_files import TlsFiles
from pocketmq.remoting.server import RemotingServer, ServerConfig

ANNOUNCED = Announcement(cluster="C", broker="b")


class EchoHandler:
    """Answers each request with its body, or by ``script``; keeps its requests."""

    def __init__(self, script: Callable[[Connection, Request], None] | None = None) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.opened: list[Connection] = []
        self.closed: list[tuple[Connection, str]] = []

    def on_request(self, connection: Connection, request: Request) -> None:
        self.requests.append(request)
        if self.script is not None:
            self.script(connection, request)
        elif not request.oneway:
            echo(connection, request)

    def on_open(self, connection: Connection) -> None:
        self.opened.append(connection)

    def on_close(self, connection: Connection, reason: str) -> None:
        self.closed.append((connection, reason))


def echo(connection: Connection, request: Request) -> None:
    connection.respond(
        encode_response(
            ResponseCode.SUCCESS, request.opaque, 0, body=request.body, serialize_type=request.serialize_type
        )
    )


async def start_server(
    handler: EchoHandler,
    *,
    log: EventLog | None = None,
    clock: Clock | None = None,
    port: int = 0,
    tls: TlsFiles | None = None,
    **config: Any,
) -> RemotingServer:
    server = RemotingServer(
        ServerConfig(**config),
        handler,
        announce=lambda connection: ANNOUNCED,
        log=log or NullLog(),
        clock=clock or SystemClock(),
        tls=tls,
    )
    await server.start("127.0.0.1", port)
    return server


async def open_channel(
    server: RemotingServer,
    *,
    hello: bool = True,
    log: EventLog | None = None,
    security: ClientSecurity = NO_SECURITY,
    **config: Any,
) -> ClientChannel:
    """Open a channel; it probes a server that is slow to say hello only where ``config`` says when."""
    settings = ChannelConfig(**{"hello_probe_after_ms": 60_000, **config})
    address = f"127.0.0.1:{server.port}"
    channel = ClientChannel(address, clock=SystemClock(), log=log or NullLog(), config=settings, security=security)
    await channel.open()
    if hello:
        await channel.hello()
    return channel


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the loop's own limit ends a test whose condition never holds."""
    while not condition():  # noqa: ASYNC110 (conditions of many kinds, seen from outside)
        await asyncio.sleep(0.002)


class Peer:
    """A raw TCP peer of a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder(new_scratch(), FrameBudget())
        self._frames: list[Frame] = []

    @classmethod
    async def connect(cls, port: int) -> "Peer":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> Frame:
        while not self._frames:
            data = await self.reader.read(65536)
            assert data, "the server closed the connection"
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    async def closed_by_server(self) -> bytes:
        """Wait for the end of the connection; return the bytes received before it."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (ConnectionResetError, BrokenPipeError):
            pass
