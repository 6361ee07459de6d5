"""A small gRPC client on h2, with its hands on the frames: for tests of the server's limits.

Lives here: ``GrpcClient``, ``Answer``, ``Stream``.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, TypeVar

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from pocketmq.remoting.grpc.call import HEAD_BYTES, framed
from pocketmq.remoting.grpc.protobuf import Message, decode, encode

M = TypeVar("M", bound=Message)
SERVICE = "/apache.rocketmq.v2.MessagingService/"
WAIT_S = 30.0


class Stream:
    """One call, as the client sees it."""

    def __init__(self, client: "GrpcClient", stream_id: int) -> None:
        self.client = client
        self.stream_id = stream_id
        self.headers: dict[str, str] = {}
        self.trailers: dict[str, str] = {}
        self.data = bytearray()
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.ended = asyncio.Event()
        self.reset: int | None = None

    @property
    def status(self) -> int:
        """The status of gRPC; -1: none came."""
        return int(self.trailers.get("grpc-status", "-1"))

    @property
    def text(self) -> str:
        """The text beside it."""
        return self.trailers.get("grpc-message", "")

    def send(self, message: Message, *, end: bool = False) -> None:
        """Send a message."""
        self.send_raw(framed(encode(message)), end=end)

    def send_raw(self, data: bytes, *, end: bool = False) -> None:
        """Send bytes; there must be room for them in the windows."""
        size = self.client.h2.max_outbound_frame_size
        for at in range(0, max(len(data), 1), size):
            self.client.h2.send_data(self.stream_id, data[at : at + size], end_stream=end and at + size >= len(data))
        self.client.flush()

    def end(self) -> None:
        """Send no more."""
        self.client.h2.end_stream(self.stream_id)
        self.client.flush()

    def cancel(self) -> None:
        """Cancel the call."""
        self.client.h2.reset_stream(self.stream_id, 8)
        self.client.flush()

    async def next(self, kind: type[M]) -> M:
        """Return the next message of the answer."""
        data = await asyncio.wait_for(self.messages.get(), WAIT_S)
        assert data is not None, (self.trailers, self.reset)
        return decode(kind, data)

    async def done(self) -> "Stream":
        """Wait for the end."""
        await asyncio.wait_for(self.ended.wait(), WAIT_S)
        return self


class GrpcClient(asyncio.Protocol):
    """One connection."""

    def __init__(self, metadata: Mapping[str, str] | None = None) -> None:
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8", validate_inbound_headers=False)
        self.h2 = h2.connection.H2Connection(config)
        self.metadata = dict(metadata or {})
        self.streams: dict[int, Stream] = {}
        self.transport: asyncio.Transport
        self.closed = asyncio.Event()
        self.greeted = asyncio.Event()
        self.goaway: int | None = None
        self.reads = True
        """Whether it acknowledges what it gets."""

    @classmethod
    async def connect(
        cls, port: int, *, tls: ssl.SSLContext | None = None, client_id: str = "c1", **metadata: str
    ) -> "GrpcClient":
        """Return a connected client."""
        names = {name.replace("_", "-"): value for name, value in metadata.items()}
        fields = {"x-mq-client-id": client_id, "x-mq-language": "PYTHON", "x-mq-client-version": "5.1.2", **names}
        loop = asyncio.get_running_loop()
        host = "localhost" if tls is not None else None
        _, client = await loop.create_connection(lambda: cls(fields), "127.0.0.1", port, ssl=tls, server_hostname=host)
        await asyncio.wait_for(client.greeted.wait(), WAIT_S)
        return client

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.transport.write(self.h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        try:
            events = self.h2.receive_data(data)
        except h2.exceptions.ProtocolError:
            self.transport.close()
            return
        for event in events:
            self._take(event)
        self.flush()

    def _take(self, event: Any) -> None:
        stream = self.streams.get(getattr(event, "stream_id", None) or 0)
        if isinstance(event, h2.events.RemoteSettingsChanged):
            self.greeted.set()
        if isinstance(event, h2.events.ConnectionTerminated):
            self.goaway = int(event.error_code or 0)
        if stream is None:
            return
        if isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
            fields: dict[str, str] = dict(event.headers)  # type: ignore[arg-type]
            if isinstance(event, h2.events.ResponseReceived):
                stream.headers = fields
            if "grpc-status" in fields:
                stream.trailers = fields
        elif isinstance(event, h2.events.DataReceived):
            stream.data += event.data
            if self.reads:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            while len(stream.data) >= HEAD_BYTES:
                size = HEAD_BYTES + int.from_bytes(stream.data[1:HEAD_BYTES], "big")
                if len(stream.data) < size:
                    break
                stream.messages.put_nowait(bytes(stream.data[HEAD_BYTES:size]))
                del stream.data[:size]
        elif isinstance(event, h2.events.StreamReset):
            stream.reset = int(event.error_code)
            self._end(stream)
        elif isinstance(event, h2.events.StreamEnded):
            self._end(stream)

    @staticmethod
    def _end(stream: Stream) -> None:
        stream.messages.put_nowait(None)
        stream.ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        self.greeted.set()
        for stream in self.streams.values():
            self._end(stream)

    def open(self, name: str, *, path: str | None = None, end: bool = False, **metadata: str) -> Stream:
        """Begin a call."""
        stream_id = self.h2.get_next_available_stream_id()
        names = {name.replace("_", "-"): value for name, value in metadata.items()}
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path or f"{SERVICE}{name}",
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
            **self.metadata,
            **names,
        }
        headers = {name: value for name, value in headers.items() if value}
        self.h2.send_headers(stream_id, list(headers.items()), end_stream=end)
        stream = self.streams[stream_id] = Stream(self, stream_id)
        self.flush()
        return stream

    async def call(self, name: str, request: Message, kind: type[M], **metadata: Any) -> M:
        """Make a call with one answer, which must be there."""
        stream = self.open(name, **metadata)
        stream.send(request, end=True)
        answer = await stream.next(kind)
        await stream.done()
        assert stream.status == 0, stream.trailers
        return answer

    async def fails(self, name: str, request: Message | bytes, **metadata: Any) -> tuple[int, str]:
        """Make a call that gRPC refuses; return its status and text."""
        stream = self.open(name, **metadata)
        stream.send_raw(request if isinstance(request, bytes) else framed(encode(request)), end=True)
        await stream.done()
        return stream.status, stream.text

    async def close(self) -> None:
        """Close the connection."""
        self.transport.close()
        await asyncio.wait_for(self.closed.wait(), WAIT_S)
