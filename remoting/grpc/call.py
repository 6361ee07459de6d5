"""One gRPC call: the messages that came, the ones that go, its deadline and its status.

Source of the format: grpc.io, "gRPC over HTTP2". A message is a flag (1: compressed, which is refused), its length in
four bytes, and its bytes; a call ends with trailers that hold ``grpc-status``.

Lives here: ``Call``, ``GrpcError``, ``Method``, ``Methods``, the text of a deadline and of a status.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import quote

from pocketmq.remoting.grpc.codes import GrpcStatus
from pocketmq.remoting.grpc.protobuf import Message, decode, encode

HEAD_BYTES: Final = 5
TIMEOUT_DIGITS_MAX: Final = 8
NS: Final = {
    "H": 3_600_000_000_000,
    "M": 60_000_000_000,
    "S": 1_000_000_000,
    "m": 1_000_000,
    "u": 1_000,
    "n": 1,
}  # fmt: skip
TEXT_MAX: Final = 2_048
"""Characters of a status's text that are sent: clients accept 8 KiB of headers."""
UNREAD_MAX: Final = 16
"""Messages of a stream that a service has not read yet; a client that sends more is too fast."""


class GrpcError(Exception):
    """Ends a call with a status of gRPC's own. RocketMQ's errors are answers with a ``status`` inside."""

    def __init__(self, status: GrpcStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Wire(Protocol):
    """The connection of a call."""

    host: str
    remote: str
    remote_host: bytes
    local: str
    is_encrypted: bool

    async def send_message(self, call: "Call", data: bytes) -> None:
        """Send one message; wait while the client has no room for it. Raise ``GrpcError`` if the call is over."""
        ...


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a service."""

    name: str
    request: type[Message]
    serve: Callable[["Call", Any], Awaitable[Message | None]]
    """Takes the request and returns the answer; None: it has sent its answers itself. Of a method with
    ``takes_stream`` the request is None: ``call.messages`` has it."""
    takes_stream: bool = False
    bytes_max: int = 64 << 10
    """Longest request. Only sends need more."""


Methods = Mapping[str, Method]
"""Path (``/package.Service/Name``) → method."""


class Call:
    """A call between its first header and its status. Loop thread only.

    ``buffered_bytes`` is what it keeps of messages that are not whole or not read.
    """

    __slots__ = (
        "_arrived",
        "_data",
        "_ended",
        "_messages",
        "_wanted",
        "buffered_bytes",
        "charged_bytes",
        "closed",
        "connection",
        "deadline_ns",
        "metadata",
        "method",
        "sent_headers",
        "stream_id",
        "task",
        "timer",
        "window_opened",
    )

    def __init__(
        self,
        connection: Wire,
        stream_id: int,
        method: Method,
        metadata: Mapping[str, str],
        deadline_ns: int,
    ) -> None:
        """``deadline_ns`` is monotonic; 0: it has none."""
        self.connection = connection
        self.stream_id = stream_id
        self.method = method
        self.metadata = metadata
        self.deadline_ns = deadline_ns
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.closed = False
        """Whether its status is sent, or the client has gone."""
        self.sent_headers = False
        self.window_opened: asyncio.Future[None] | None = None
        self.buffered_bytes = 0
        self.charged_bytes = 0
        """Belongs to the budget of memory."""
        self._data = bytearray()
        self._wanted = 0  # bytes of the message that is arriving, with its head; 0: the head is not here
        self._messages: deque[bytes] = deque()
        self._arrived: asyncio.Future[None] | None = None
        self._ended = False

    # ---- what comes ------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take bytes of the client. Raise ``GrpcError`` for what is refused."""
        self.buffered_bytes += len(data)
        buffer = self._data
        if not buffer and not self._wanted and len(data) >= HEAD_BYTES:  # most messages come whole
            size = self._size(data)
            if len(data) == size:
                self._take(bytes(data[HEAD_BYTES:]))
                return
        buffer += data
        while True:
            if not self._wanted:
                if len(buffer) < HEAD_BYTES:
                    return
                self._wanted = self._size(buffer)
            if len(buffer) < self._wanted:
                return
            self._take(bytes(buffer[HEAD_BYTES : self._wanted]))
            del buffer[: self._wanted]
            self._wanted = 0

    def _size(self, head: bytes | bytearray) -> int:
        """Return the bytes of a message with its head. Raise ``GrpcError``."""
        if head[0]:
            raise GrpcError(GrpcStatus.UNIMPLEMENTED, "a compressed message: this server takes identity only")
        size = int.from_bytes(head[1:HEAD_BYTES], "big")
        if size > self.method.bytes_max:
            raise GrpcError(
                GrpcStatus.RESOURCE_EXHAUSTED,
                f"a message of {size} bytes: the limit is {self.method.bytes_max}. Send fewer or smaller messages",
            )
        return HEAD_BYTES + size

    def _take(self, message: bytes) -> None:
        if not self.method.takes_stream and self._messages:
            raise GrpcError(GrpcStatus.INTERNAL, f"{self.method.name} takes one message, and a second one came")
        if len(self._messages) >= UNREAD_MAX:
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, f"{UNREAD_MAX} messages of this stream wait to be read")
        self._messages.append(message)
        self._wake()

    def end(self) -> None:
        """Note that the client sends no more. Raise ``GrpcError`` if it stops in the middle of a message."""
        self._ended = True
        self._wake()
        if self._data:
            raise GrpcError(GrpcStatus.INTERNAL, "the stream ended in the middle of a message")
        if not self.method.takes_stream and not self._messages:
            raise GrpcError(GrpcStatus.INTERNAL, f"{self.method.name} takes one message, and none came")

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    def request(self) -> Message:
        """Return the one message of a call that takes one. Raise ``ProtobufIllegal``."""
        return decode(self.method.request, self._pop())

    def _pop(self) -> bytes:
        message = self._messages.popleft()
        self.buffered_bytes = len(self._data) + sum(map(len, self._messages))
        return message

    async def next(self) -> Message | None:
        """Return the next message of a stream; None: the client has ended it. Raise ``ProtobufIllegal``."""
        while not self._messages:
            if self._ended:
                return None
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        return decode(self.method.request, self._pop())

    # ---- what goes -------------------------------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        """Send one message of an answer; wait while the client has no room. Raise ``GrpcError`` when it has gone."""
        await self.connection.send_message(self, encode(message))


def framed(message: bytes) -> bytes:
    """Return a message with its head."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def timeout_ns(text: str) -> int | None:
    """Return the time of ``grpc-timeout``; None: it is none."""
    digits, unit = text[:-1], text[-1:]
    if unit not in NS or not digits.isascii() or not digits.isdecimal() or len(digits) > TIMEOUT_DIGITS_MAX:
        return None
    return int(digits) * NS[unit]


def status_text(text: str) -> str:
    """Return a text for ``grpc-message``: percent-encoded UTF-8."""
    return quote(text[:TEXT_MAX], safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")
