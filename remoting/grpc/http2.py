"""HTTP/2 of the gRPC listener: one connection, its streams, its limits.

The library h2 turns bytes into events and back; it keeps HTTP/2's rules, the compression of headers and the sizes of
windows. Here: sockets, calls, and what a stranger may cost:

- ``STREAMS_MAX`` calls of a connection at once; a call becomes a task only when its request is whole;
- ``HEADERS_BYTES_MAX`` of headers in a call, decoded; longer ones end the connection;
- ``resets`` and ``controls``: how often a peer may cancel calls, and send frames that carry nothing (PING, SETTINGS,
  WINDOW_UPDATE, empty DATA); above it the connection ends with ENHANCE_YOUR_CALM;
- a message has at most the ``bytes_max`` of its method; all that is not whole, or not read yet, ``Budget.limit_bytes``;
- bytes that the socket does not take: the limits of every connection (``remoting.write_…``).

A connection counts at the server like any other (``connections_max``, per address, idle time, ``/connz``).

Why h2 and not grpclib, which stands on h2: grpclib has no bound on the length of a message, starts a task for each
stream at its headers, and acknowledges data before anybody looked at it; each of the limits above would be a patch of
its inside. What it adds to h2 is ``call`` and half of this module.

Lives here: ``Http2Connection``, ``Budget``.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from hpack.struct import HeaderTuple, NeverIndexedHeaderTuple

from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.connection_owner import ConnectionOwner
from pocketmq.remoting.frame import Buffer
from pocketmq.remoting.grpc.call import Call, GrpcError, Methods, framed, status_text, timeout_ns
from pocketmq.remoting.grpc.codes import GrpcStatus
from pocketmq.remoting.grpc.protobuf import ProtobufIllegal, encode
from pocketmq.remoting.limits.token_bucket import Limit, TokenBucket

STREAMS_MAX: Final = 1_000
"""Calls of one connection at once. A push consumer holds one long poll for each topic and broker, and sends beside."""
WINDOW_BYTES: Final = 1 << 20
"""What a client may send in one call before it is acknowledged."""
CONNECTION_WINDOW_BYTES: Final = 8 << 20
HEADERS_BYTES_MAX: Final = 16 << 10
READ_BYTES: Final = 16 << 10
"""One read of a socket: h2 needs up to 150 µs for the few bytes of a call that is cancelled at once."""
CLOSED_STREAMS_MAX: Final = 1_024
"""Ended streams that h2 remembers; its own limit is 65,536, some megabytes a connection."""
SETTINGS_MAX: Final = 64
"""Different settings of a peer. h2 keeps each one, also those that nobody knows."""
TABLE_BYTES_MAX: Final = 4_096
"""Of the table that compresses answers' headers, whatever a peer allows."""
RESETS: Final = Limit("resets", False, rate=100, burst=1_000)
CONTROLS: Final = Limit("controls", False, rate=2_000, burst=10_000)
GREETING_NS_MAX: Final = 10_000_000_000
"""How long a connection may take until its first call."""
NS_PER_S: Final = 1_000_000_000
CALL_OVER: Final = "the call is over"
GRPC: Final = "application/grpc"

_CONFIG: Final = h2.config.H2Configuration(
    client_side=False,
    header_encoding=None,
    validate_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_inbound_headers=False,
    normalize_outbound_headers=False,
)
_SETTINGS: Final = {
    h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS_MAX,
    h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: HEADERS_BYTES_MAX,
    h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
}
Headers = Sequence[tuple[str, str] | HeaderTuple]
_HEADERS: Final = ((":status", "200"), ("content-type", GRPC))
_OK: Final = (("grpc-status", "0"),)
_NOTHING: Final = (
    h2.events.PingReceived,
    h2.events.PingAckReceived,
    h2.events.PriorityUpdated,
    h2.events.SettingsAcknowledged,
    h2.events.UnknownFrameReceived,
)
_BAD_PREFACE: Final = "no HTTP/2: "


class _H2(h2.connection.H2Connection):
    MAX_CLOSED_STREAMS = CLOSED_STREAMS_MAX


class Budget:
    """Memory of all connections together, for requests that are not whole and answers that are not read."""

    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def charge(self, call: Call, size_bytes: int) -> None:
        """Count what a call holds from now on. Raise ``GrpcError`` if all of them hold too much."""
        self.used_bytes += size_bytes - call.charged_bytes
        grows, call.charged_bytes = size_bytes > call.charged_bytes, size_bytes
        if grows and self.used_bytes > self.limit_bytes:
            raise GrpcError(
                GrpcStatus.RESOURCE_EXHAUSTED, "too much waits to be received or read: try again in a second"
            )

    def free(self, call: Call) -> None:
        """Count a call no more."""
        self.used_bytes -= call.charged_bytes
        call.charged_bytes = 0


class Http2Connection(Connection):
    """One client's connection. Loop thread only."""

    def __init__(
        self,
        owner: ConnectionOwner,
        methods: Methods,
        budget: Budget,
        *,
        on_error: Callable[[str, Exception], None],
    ) -> None:
        """``on_error(method, error)`` gets the errors that no service expected."""
        super().__init__(owner)
        self.get_buffer = self._read_buffer  # type: ignore[method-assign]
        self._methods = methods
        self._memory = budget
        self._on_error = on_error
        self._h2 = _H2(_CONFIG)
        self._calls: dict[int, Call] = {}
        self._blocked: set[Call] = set()
        """Calls that wait for room to send."""
        now_ns = self._clock.monotonic_ns()
        self._resets = TokenBucket(RESETS, now_ns)
        self._controls = TokenBucket(CONTROLS, now_ns)
        self._greeted = False
        self.call_count = 0
        """Calls since it was made."""

    # ---- asyncio's side --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the client, unless the server has enough connections."""
        super().connection_made(transport)
        if self.closed:
            return
        engine = self._h2
        engine.local_settings = h2.settings.Settings(client=False, initial_values=dict(_SETTINGS))
        engine.decoder.max_header_list_size = HEADERS_BYTES_MAX
        engine.initiate_connection()
        engine.increment_flow_control_window(CONNECTION_WINDOW_BYTES - 65_535)
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        """End every call."""
        for call in list(self._calls.values()):
            self._forget(call)
        super().connection_lost(exc)

    def _read_buffer(self, sizehint: int) -> memoryview:
        return self._owner.scratch[:READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """Take received bytes."""
        if self.closed:
            return
        self.touched = True
        try:
            events = self._h2.receive_data(self._owner.scratch[:nbytes])
        except h2.exceptions.DenialOfServiceError as error:
            self._end_connection(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM, f"its headers are too long: {error}")
            return
        except (h2.exceptions.H2Error, ValueError, IndexError, KeyError) as error:  # h2 lets some broken frames by
            greeting = "" if self._greeted else _preface_hint(self._owner.scratch[:nbytes])
            self._write()
            self._break(f"{greeting}{type(error).__name__}: {error}")
            return
        now_ns = self._clock.monotonic_ns()
        control = 0
        for event in events:
            control += self._take_event(event)
            if self.closed:
                return
        if control:
            self._controls.take(control, now_ns)
            if self._controls.level < 0:
                self._end_connection(
                    h2.errors.ErrorCodes.ENHANCE_YOUR_CALM, f"more than {CONTROLS.rate} frames without content a second"
                )
                return
        self._write()

    def _take_event(self, event: h2.events.Event) -> int:
        """Serve an event; return 1 if it carried nothing."""
        if isinstance(event, h2.events.RequestReceived):
            self._begin(event)
        elif isinstance(event, h2.events.DataReceived):
            return self._data(event)
        elif isinstance(event, h2.events.StreamEnded):
            self._stream_ended(event.stream_id)
        elif isinstance(event, h2.events.WindowUpdated):
            self._window_opened(event.stream_id)
            return 1
        elif isinstance(event, h2.events.StreamReset):
            self._reset(event)
        elif isinstance(event, h2.events.RemoteSettingsChanged):
            if len(self._h2.remote_settings) > SETTINGS_MAX:
                self._end_connection(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM, f"more than {SETTINGS_MAX} settings")
            elif self._h2.encoder.header_table_size > TABLE_BYTES_MAX:
                self._h2.encoder.header_table_size = TABLE_BYTES_MAX
            self._greeted = True
            self._window_opened(0)
            return 1
        elif isinstance(event, h2.events.ConnectionTerminated):  # h2 sends nothing more
            for call in list(self._calls.values()):
                self._forget(call)
            self.close_when_written("the client has said goodbye")
        elif isinstance(event, _NOTHING):
            return 1
        return 0

    def expire(self, now_ns: int) -> None:
        """See ``Connection``; a connection that makes no call is closed as well."""
        if not self._greeted and now_ns - self.opened_ns > GREETING_NS_MAX:
            self._break("it has not said that it speaks HTTP/2")
            return
        super().expire(now_ns)

    # ---- calls in --------------------------------------------------------------------------------------------------

    def _begin(self, event: h2.events.RequestReceived) -> None:
        stream_id = event.stream_id
        metadata: dict[str, str] = {}
        for name, value in event.headers:
            metadata[_text(name)] = _text(value)
        self.call_count += 1
        self._greeted = True
        path = metadata.get(":path", "")
        if metadata.get(":method") != "POST" or not metadata.get("content-type", "").startswith(GRPC):
            self._refuse_request(stream_id, metadata)
            return
        method = self._methods.get(path)
        if method is None:
            self._refuse_call(stream_id, GrpcStatus.UNIMPLEMENTED, f"{path[:200]} is not served here")
            return
        timeout = metadata.get("grpc-timeout")
        span_ns = 0 if timeout is None else timeout_ns(timeout)
        if span_ns is None:
            self._refuse_call(stream_id, GrpcStatus.INTERNAL, f"grpc-timeout: {timeout!r:.20} is no time")
            return
        deadline_ns = 0 if timeout is None else self._clock.monotonic_ns() + span_ns
        call = Call(self, stream_id, method, metadata, deadline_ns)
        self._calls[stream_id] = call
        if deadline_ns:
            call.timer = self._owner.loop.call_later(span_ns / NS_PER_S, self._expired, call)
        if method.takes_stream:
            call.task = self._owner.loop.create_task(self._serve_stream(call))

    def _data(self, event: h2.events.DataReceived) -> int:
        size = event.flow_controlled_length or 0
        if size:
            self._h2.acknowledge_received_data(size, event.stream_id)
        call = self._calls.get(event.stream_id)
        if call is None:
            return 1
        data = event.data or b""
        try:
            call.feed(data)
            self._memory.charge(call, call.buffered_bytes)
        except GrpcError as error:
            self._fail(call, error.status, str(error))
        return 0 if data else 1

    def _stream_ended(self, stream_id: int) -> None:
        call = self._calls.get(stream_id)
        if call is None:
            return
        try:
            call.end()
        except GrpcError as error:
            self._fail(call, error.status, str(error))
            return
        if call.task is None:
            call.task = self._owner.loop.create_task(self._serve(call))

    def _reset(self, event: h2.events.StreamReset) -> None:
        call = self._calls.get(event.stream_id)
        if call is not None:
            self._forget(call)
        if event.remote_reset:
            self._resets.take(1, self._clock.monotonic_ns())
            if self._resets.level < 0:
                self._end_connection(
                    h2.errors.ErrorCodes.ENHANCE_YOUR_CALM, f"more than {RESETS.rate} cancelled calls a second"
                )

    async def _serve(self, call: Call) -> None:
        try:
            request = call.request()
            self._memory.charge(call, 0)
            answer = await call.method.serve(call, request)
            if not call.closed:
                self._complete(call, None if answer is None else encode(answer))
        except Exception as error:
            self._failed(call, error)

    async def _serve_stream(self, call: Call) -> None:
        try:
            await call.method.serve(call, None)
            self._complete(call, None)
        except Exception as error:
            self._failed(call, error)

    def _failed(self, call: Call, error: Exception) -> None:
        if isinstance(error, GrpcError):
            self._fail(call, error.status, str(error))
        elif isinstance(error, ProtobufIllegal):
            self._fail(call, GrpcStatus.INTERNAL, str(error))
        elif isinstance(error, PocketMQError):
            self._fail(call, GrpcStatus.UNKNOWN, str(error))
        else:
            self._on_error(call.method.name, error)
            self._fail(call, GrpcStatus.INTERNAL, f"the server failed: {error!r}")

    def _expired(self, call: Call) -> None:
        self._fail(call, GrpcStatus.DEADLINE_EXCEEDED, f"{call.method.name} was not done when its deadline was over")

    # ---- answers out -----------------------------------------------------------------------------------------------

    async def send_message(self, call: Call, data: bytes) -> None:
        """See ``Wire``."""
        if call.closed or self.closed:
            raise GrpcError(GrpcStatus.CANCELLED, CALL_OVER)
        self._send_headers(call)
        message = memoryview(framed(data))
        at = 0
        self._memory.charge(call, max(call.charged_bytes, len(message)))
        while at < len(message):
            room = self._room(call)
            if room <= 0 or self.over_high_water:
                await self._wait_for_room(call)
                continue
            part = message[at : at + room]
            self._h2.send_data(call.stream_id, part)
            at += len(part)
            self._write()

    def _send_headers(self, call: Call) -> None:
        if not call.sent_headers:
            call.sent_headers = True
            self._h2.send_headers(call.stream_id, _HEADERS)

    def _room(self, call: Call) -> int:
        return min(self._h2.local_flow_control_window(call.stream_id), self._h2.max_outbound_frame_size)

    async def _wait_for_room(self, call: Call) -> None:
        call.window_opened = self._owner.loop.create_future()
        self._blocked.add(call)
        try:
            async with asyncio.timeout(self._owner.config.write_blocked_ms_max / 1000):
                await call.window_opened
        except TimeoutError:
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, "the client does not read its answers") from None
        finally:
            self._blocked.discard(call)
        if call.closed or self.closed:
            raise GrpcError(GrpcStatus.CANCELLED, CALL_OVER)

    def _window_opened(self, stream_id: int) -> None:
        """Wake those that wait for room: one call, or all of them for the connection (0)."""
        if not self._blocked:
            return
        for call in list(self._blocked):
            if stream_id in (0, call.stream_id) and call.window_opened is not None and not call.window_opened.done():
                call.window_opened.set_result(None)

    def resume_writing(self) -> None:
        """See ``Connection``."""
        super().resume_writing()
        self._window_opened(0)

    def _complete(self, call: Call, answer: bytes | None) -> None:
        """Send the answer and the status OK."""
        if call.closed or self.closed:
            return
        if answer is not None:
            data = framed(answer)
            if len(data) > self._room(call) or self.over_high_water:
                call.task = self._owner.loop.create_task(self._complete_slowly(call, answer))
                return
            self._send_headers(call)
            self._h2.send_data(call.stream_id, data)
        self._end(call, _OK)

    async def _complete_slowly(self, call: Call, answer: bytes) -> None:
        try:
            await self.send_message(call, answer)
            self._end(call, _OK)
        except GrpcError as error:
            self._fail(call, error.status, str(error))

    def _fail(self, call: Call, status: GrpcStatus, text: str) -> None:
        """Send a status that is not OK, and forget the call."""
        self._end(call, (("grpc-status", str(int(status))), NeverIndexedHeaderTuple("grpc-message", status_text(text))))

    def _end(self, call: Call, trailers: Headers) -> None:
        if call.closed or self.closed:
            return
        stream_id = call.stream_id
        headers = trailers if call.sent_headers else (*_HEADERS, *trailers)
        try:
            self._h2.send_headers(stream_id, headers, end_stream=True)
            stream = self._h2.streams.get(stream_id)
            if stream is not None and not stream.closed:  # the client may still be sending
                self._h2.reset_stream(stream_id, h2.errors.ErrorCodes.NO_ERROR)
        except h2.exceptions.H2Error:  # it has gone meanwhile
            pass
        self._forget(call)
        self._write()

    def _forget(self, call: Call) -> None:
        call.closed = True
        self._calls.pop(call.stream_id, None)
        self._memory.free(call)
        if call.timer is not None:
            call.timer.cancel()
        if call.task is not None and call.task is not asyncio.current_task(self._owner.loop):
            call.task.cancel()

    def _refuse_call(self, stream_id: int, status: GrpcStatus, text: str) -> None:
        """Answer a call that is not begun."""
        message = NeverIndexedHeaderTuple("grpc-message", status_text(text))
        self._answer(stream_id, (*_HEADERS, ("grpc-status", str(int(status))), message))

    def _refuse_request(self, stream_id: int, metadata: dict[str, str]) -> None:
        is_post = metadata.get(":method") == "POST"
        text = NeverIndexedHeaderTuple("grpc-message", "this port speaks gRPC")
        headers = ((":status", "415" if is_post else "405"), ("grpc-status", str(int(GrpcStatus.UNKNOWN))), text)
        self._answer(stream_id, headers)

    def _answer(self, stream_id: int, headers: Headers) -> None:
        try:
            self._h2.send_headers(stream_id, headers, end_stream=True)
            stream = self._h2.streams.get(stream_id)
            if stream is not None and not stream.closed:
                self._h2.reset_stream(stream_id, h2.errors.ErrorCodes.NO_ERROR)
        except h2.exceptions.H2Error:
            pass

    def _write(self) -> None:
        data: Buffer = self._h2.data_to_send()
        if data and self._output is not None:
            self._output.add((data,))

    # ---- the end of it ---------------------------------------------------------------------------------------------

    def end(self, why: str) -> list[asyncio.Task[None]]:
        """End streams and what is not whole; return the calls that are being answered."""
        for call in list(self._calls.values()):
            if call.method.takes_stream or call.task is None:
                self._fail(call, GrpcStatus.UNAVAILABLE, why)
        return [call.task for call in self._calls.values() if call.task is not None]

    def say_goodbye(self) -> None:
        """Tell the client to connect elsewhere. The last frame: h2 and its like read nothing behind it."""
        if not self.closed:
            self._h2.close_connection(h2.errors.ErrorCodes.NO_ERROR)
            self._write()

    def _end_connection(self, code: h2.errors.ErrorCodes, why: str) -> None:
        self._owner.log.warning("grpc_connection_ended", remote=self.remote, why=why)
        self._h2.close_connection(code)
        self._write()
        self.close_when_written(why)

    def _break(self, why: str) -> None:
        self._owner.log.warning("grpc_connection_broken", remote=self.remote, why=why[:300])
        self.close_when_written(why)


def _text(value: bytes | str) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _preface_hint(data: memoryview) -> str:
    """Return what the first bytes of a connection look like."""
    if data and data[0] == 0x16:
        return f"{_BAD_PREFACE}it speaks TLS, and this port has no certificate; "
    if bytes(data[:4]) in (b"GET ", b"POST", b"HEAD"):
        return f"{_BAD_PREFACE}it speaks HTTP/1; "
    return _BAD_PREFACE
