"""The client's end of one connection.

    channel = ClientChannel("127.0.0.1:10911", clock=clock, log=log);  await channel.open()
    response = await channel.request(RequestCode.GET_MAX_OFFSET, header, timeout_ms=3000)
    channel.request_nowait(code, header, body, timeout_ms=3000, done=callback)      # no future, no task

The first request, ``hello``, is JSON, which every RocketMQ server understands. Where the answer carries an
``Announcement`` the channel speaks msgpack from then on, else JSON. RocketMQ's servers refuse it, or drop it.

With credentials the channel signs each request, as RocketMQ wants it, until it knows that the server is PocketMQ. If
that one announces a nonce, AUTHENTICATE proves once who the client is; nothing is signed any more.

Lives here: ``ClientChannel``: opaque matching, timeouts, outgoing limits, requests that come from the server.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from pocketmq.common.addresses import address_text
from pocketmq.common.clock import Clock
from pocketmq.common.errors import DECODE_ERRORS, PocketMQError, Stored
from pocketmq.common.events import EventLog
from pocketmq.common.topics import AUTO_CREATE_TOPIC
from pocketmq.remoting.codec import Body, Request, Response, decode_request, decode_response_of, encode_request
from pocketmq.remoting.codes import RequestCode, request_name
from pocketmq.remoting.connecting import connect
from pocketmq.remoting.connection import ANNOUNCEMENT_FIELD
from pocketmq.remoting.errors import (
    AuthenticationFailed,
    BadFrame,
    ConnectFailed,
    ConnectionLost,
    HeaderIllegal,
    RemotingTooMuchRequestError,
    RequestTimeout,
    WrongDirection,
)
from pocketmq.remoting.frame import (
    FRAME_BYTES_MAX,
    JSON,
    MSGPACK,
    SPEAKS_HTTP,
    Buffer,
    Frame,
    FrameDecoder,
    new_scratch,
)
from pocketmq.remoting.frame_budget import FRAME_BUDGET_BYTES, FrameBudget
from pocketmq.remoting.introduction import Introduction, explain_refusal, refusal_of, signed_fields
from pocketmq.remoting.output import Output
from pocketmq.remoting.pending import PENDING_MAX, Pending, PendingTable, Waiting
from pocketmq.remoting.protocol.hello import Announcement
from pocketmq.remoting.protocol.namesrv import GetRouteInfoRequestHeader
from pocketmq.remoting.protocol.spec import Header
from pocketmq.remoting.security.client_security import NO_SECURITY, ClientSecurity
from pocketmq.remoting.short_answers import ShortAnswers
from pocketmq.remoting.silence import Silence, watch_peer

Done = Callable[[Response | PocketMQError], None]
"""Called once, in the loop's thread, with the answer or the error (passed, not raised)."""


class ChannelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one client channel."""

    connect_timeout_ms: int = 3_000
    """RocketMQ's ``connectTimeoutMillis``."""
    hello_timeout_ms: int = 3_000
    hello_probe_after_ms: int = 200
    """If ``hello`` has no answer after this time, the channel sends a second request that every RocketMQ server
    answers: the name server of 4.9 drops codes that it does not know."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    pending_max: int = PENDING_MAX
    unwritten_bytes_max: int = 64 * 1024 * 1024
    """More outgoing bytes than this are refused with ``RemotingTooMuchRequestError``."""
    write_high_water_bytes: int = 4 * 1024 * 1024
    """Above this ``writable`` is false, until the buffer is down to half of it."""
    expire_interval_ms: int = 50
    """How late a timeout may be noticed."""
    serialize_type: int | None = None
    """The form of headers after the first request, whatever the server announces: ``JSON``, ``BINARY`` or ``MSGPACK``.
    None: msgpack if the server announces it, else JSON."""
    silent_timeouts_max: int = 3
    """The channel closes after this many timeouts without a complete frame between them, once it was silent for
    ``silent_ms_min``."""
    silent_ms_min: int = 5_000
    half_frame_ms_max: int = 30_000
    """How long one frame may take."""
    linger_ms: int = 1_000
    """How long a closed channel may still write the frames added before."""


class ClientChannel(asyncio.BufferedProtocol):
    """One connection to one server. Use from the loop's thread only.

    Life: new, ``open()``, then open until ``closed``; never reopened. Every accepted request's ``done`` is called
    exactly once. ``announcement`` is None until ``hello`` is answered, and if the server is not PocketMQ.
    Limits: ``pending_max`` requests and ``unwritten_bytes_max`` bytes; beyond them ``RemotingTooMuchRequestError``.
    """

    def __init__(
        self,
        address: str,
        *,
        clock: Clock,
        log: EventLog,
        config: ChannelConfig | None = None,
        security: ClientSecurity = NO_SECURITY,
        on_request: Callable[["ClientChannel", Request], None] | None = None,
        on_close: Callable[["ClientChannel", str], None] | None = None,
        scratch: memoryview | None = None,
        budget: FrameBudget | None = None,
    ) -> None:
        self.address = address
        self.config = config = config or ChannelConfig()
        self._security = security
        self._signing = security.credentials
        """Signs each request; None once the server is known to be PocketMQ."""
        self._unproven = False
        """The server wants a proof, and there are no credentials."""
        self._clock = clock
        self._log = log
        self._on_request = on_request
        self._on_close = on_close
        self._budget = budget or FrameBudget(FRAME_BUDGET_BYTES)
        self._decoder = FrameDecoder(
            scratch if scratch is not None else new_scratch(), self._budget, frame_bytes_max=config.frame_bytes_max
        )
        # asyncio calls the decoder itself: one call less for each read
        self.get_buffer = self._decoder.get_buffer  # type: ignore[assignment,method-assign]
        self._pending = PendingTable(config.pending_max)
        self._silence = Silence(config.silent_timeouts_max, config.silent_ms_min, config.half_frame_ms_max)
        self._loop: asyncio.AbstractEventLoop
        self._transport: asyncio.Transport | None = None
        self._output: Output | None = None
        self._expire_timer: asyncio.TimerHandle | None = None
        self._abort_timer: asyncio.TimerHandle | None = None
        self._drained: list[asyncio.Future[None]] = []
        self._lost: asyncio.Future[None] | None = None
        self._reason = ""
        self.closed = True
        self.writable = False
        self.announcement: Announcement | None = None
        self.serialize_type = JSON
        self.local = ""
        self.local_host: tuple[Any, ...] = ()
        self.unmatched_count = 0
        """Answers without a pending request, mostly to requests that had timed out."""

    # ---- life ------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. Raise ``ConnectFailed``."""
        assert self._transport is None
        self._loop = asyncio.get_running_loop()
        await connect(
            self.address,
            lambda: self,
            timeout_ms=self.config.connect_timeout_ms,
            linger_ms=self.config.linger_ms,
            security=self._security,
            clock=self._clock,
        )

    async def hello(self) -> Announcement | None:
        """Return what the server announces; None: it is not PocketMQ.

        A PocketMQ server answers the first request first. If only the second one, the probe, is answered, the server
        has dropped the first: it is not PocketMQ, and speaks JSON. Raise ``ConnectFailed``, or
        ``AuthenticationFailed`` if the server refuses the credentials, wants some, or is not the one that knows them;
        the channel is closed then.
        """
        timeout_ms = self.config.hello_timeout_ms
        answered: asyncio.Future[Response] = self._loop_of().create_future()

        def done(result: Response | PocketMQError) -> None:
            if answered.done():
                return
            if isinstance(result, PocketMQError):
                answered.set_exception(result)
            else:
                answered.set_result(result)

        def probe() -> None:
            try:
                header = GetRouteInfoRequestHeader(topic=AUTO_CREATE_TOPIC)
                self.request_nowait(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout_ms=timeout_ms, done=done)
            except PocketMQError as error:
                done(error)

        timer = self._loop.call_later(self.config.hello_probe_after_ms / 1000, probe)
        try:
            self.request_nowait(
                RequestCode.HELLO, None, timeout_ms=timeout_ms, done=done, extra={ANNOUNCEMENT_FIELD: "1"}
            )
            answer = await answered
            refused = await self._introduce(answer)
        except PocketMQError as error:
            self.close(f"no answer to the first request: {error}")
            hint = "does a RocketMQ or PocketMQ server listen there?"
            if self._security.context is None:
                hint += " if it takes only TLS, give tls= or --tls"
            else:
                hint += " does it want a certificate of the client, TLS(cert=...)?"
            raise ConnectFailed(f"cannot use {self.address}", why=str(error), hint=hint) from error
        finally:
            timer.cancel()
        if refused is not None:
            self.close(str(refused))
            raise refused
        if self.config.serialize_type is not None:
            self.serialize_type = self.config.serialize_type
        return self.announcement

    async def _introduce(self, answer: Response) -> AuthenticationFailed | None:
        """Prove who the client is, if the server wants that. Return why one refuses the other."""
        announcement, credentials = self.announcement, self._security.credentials
        if announcement is None:
            return refusal_of(answer, self.address, credentials)
        if not announcement.nonce:
            return None
        if credentials is None:
            self._unproven = True
            return None
        introduction = Introduction(self.address, credentials, announcement.nonce)
        timeout_ms = self.config.hello_timeout_ms
        return introduction.judge(
            await self.request(RequestCode.AUTHENTICATE, introduction.request, timeout_ms=timeout_ms)
        )

    def close(self, reason: str = "closed by the client") -> None:
        """Close after writing the frames added; pending requests get ``ConnectionLost`` before this returns."""
        if self.closed:
            return
        assert self._transport is not None
        assert self._output is not None
        self._output.flush()
        self._shut(reason)
        self._transport.close()
        if self._transport.get_write_buffer_size():  # a server that does not read must not keep the socket
            self._abort_timer = self._loop.call_later(self.config.linger_ms / 1000, self._transport.abort)

    def abort(self, reason: str) -> None:
        """Close at once, without writing what was added: the server takes nothing."""
        if not self.closed:
            assert self._transport is not None
            self._shut(reason)
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Return once the transport is closed too."""
        if self._lost is not None:
            await asyncio.shield(self._lost)

    # ---- requests --------------------------------------------------------------------------------------------------

    def request_nowait(
        self,
        code: int,
        header: Header | None,
        body: Body = b"",
        *,
        timeout_ms: int,
        done: Done,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        """Send a request at the end of this loop turn; ``done`` gets the answer or the error.

        Raise ``ConnectionLost`` when closed already, ``RemotingTooMuchRequestError`` when full, or ``FrameTooLarge``;
        nothing is sent then and ``done`` is not called. ``done`` gets ``RequestTimeout``, ``ConnectionLost`` or
        ``HeaderIllegal``.
        """
        output = self._checked_output("invokeAsyncImpl")
        pending = self._pending
        if pending.full:
            raise self._too_much("invokeAsyncImpl", f"{len(pending)} requests wait for answers")
        opaque = pending.next_opaque()
        if self._signing is not None:
            header, extra = None, signed_fields(self._signing, header, body, extra)
        buffers = encode_request(code, opaque, header, body, serialize_type=self.serialize_type, extra=extra)
        now_ns = self._clock.monotonic_ns()
        pending.add(opaque, Pending(code, now_ns, now_ns + timeout_ms * 1_000_000, done, output.turn))
        output.add(buffers)
        if self._expire_timer is None:
            self._expire_timer = self._loop.call_later(self.config.expire_interval_ms / 1000, self._expire)

    def reserve(self) -> int | None:
        """Return the opaque for ``request_now``; None if ``request_nowait`` would refuse, or the peer does not read."""
        pending = self._pending
        return pending.next_opaque() if self.writable and len(pending.entries) < pending.count_max else None

    def request_now(self, opaque: int, entry: Waiting, frame: bytes) -> None:
        """Write the whole ``frame`` of a small native append at once; ``entry`` gets its answer, or the error.

        To be called right after ``reserve``. Answers of the layout in ``short_frames`` are read in place. The frame
        counts as sent from here on, so ``entry.turn`` is -1.
        """
        if self._decoder.in_place is None:
            self._decoder.in_place = ShortAnswers(self._pending.entries, self._callback_failed).take
        self.write_request(opaque, entry, frame)

    def write_request(self, opaque: int, entry: Waiting, frame: bytes) -> None:
        """Write the whole ``frame`` of any request at once, as ``request_now``; its answer is decoded as usual.

        For PocketMQ's servers only: the frame is not signed.
        """
        assert self._signing is None
        self._pending.add(opaque, entry)
        assert self._output is not None
        self._output.write_now(frame)
        if self._expire_timer is None:
            self._expire_timer = self._loop.call_later(self.config.expire_interval_ms / 1000, self._expire)

    def withdraw(self, entry: Waiting) -> None:
        """Forget a request: its answer is not wanted any more."""
        for opaque, each in self._pending.entries.items():
            if each is entry:
                del self._pending.entries[opaque]
                return

    def waiting(self) -> list[Waiting]:
        """Return the requests that wait for an answer."""
        return list(self._pending.entries.values())

    async def request(
        self,
        code: int,
        header: Header | None,
        body: Body = b"",
        *,
        timeout_ms: int,
        extra: Mapping[str, str] | None = None,
    ) -> Response:
        """Send a request and return its answer, whatever its code. Raise as ``request_nowait`` raises or hands over."""
        future: asyncio.Future[Response] = self._loop_of().create_future()

        def done(result: Response | PocketMQError) -> None:
            if future.done():  # the caller was cancelled
                return
            if isinstance(result, PocketMQError):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.request_nowait(code, header, body, timeout_ms=timeout_ms, done=done, extra=extra)
        return await future

    def send_oneway(
        self, code: int, header: Header | None, body: Body = b"", *, extra: Mapping[str, str] | None = None
    ) -> None:
        """Send a oneway request. Raise as ``request_nowait``."""
        output = self._checked_output("invokeOnewayImpl")
        opaque = self._pending.next_opaque()
        if self._signing is not None:
            header, extra = None, signed_fields(self._signing, header, body, extra)
        output.add(
            encode_request(code, opaque, header, body, serialize_type=self.serialize_type, oneway=True, extra=extra)
        )

    def respond(self, buffers: Sequence[Buffer]) -> None:
        """Answer a request of the server; a closed connection drops the answer."""
        if not self.closed:
            assert self._output is not None
            self._output.add(buffers)

    async def drain(self) -> None:
        """Return when ``writable`` is true. Raise ``ConnectionLost``."""
        while not self.writable:
            if self.closed:
                raise self._lost_error(Stored.NO, 0)
            future: asyncio.Future[None] = self._loop.create_future()
            self._drained.append(future)
            await future

    @property
    def pending_count(self) -> int:
        """Requests that wait for an answer."""
        return len(self._pending)

    @property
    def unwritten_bytes(self) -> int:
        """Bytes not yet handed to the network."""
        if self._output is None or self._transport is None:
            return 0
        return self._output.waiting_bytes + self._transport.get_write_buffer_size()

    def _checked_output(self, call: str) -> Output:
        output = self._output
        if output is None or self.closed:
            raise self._lost_error(Stored.NO, 0)
        if output.waiting_bytes > self.config.unwritten_bytes_max or not self.writable:
            unwritten_bytes = self.unwritten_bytes
            if unwritten_bytes > self.config.unwritten_bytes_max:
                raise self._too_much(call, f"{unwritten_bytes} bytes wait to be sent")
        return output

    def _too_much(self, call: str, why: str) -> RemotingTooMuchRequestError:
        """Return the error of a full connection, with the text of NettyRemotingAbstract.java."""
        return RemotingTooMuchRequestError(
            f"{call} invoke too fast",
            why=f"{why} (to {self.address})",
            hint="wait for answers, or for channel.drain()",
        )

    def _loop_of(self) -> asyncio.AbstractEventLoop:
        if self.closed:
            raise self._lost_error(Stored.NO, 0)
        return self._loop

    # ---- asyncio's side --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Become open."""
        self._transport = cast(asyncio.Transport, transport)
        self._lost = self._loop.create_future()
        high = self.config.write_high_water_bytes
        self._transport.set_write_buffer_limits(high, high // 2)
        watch_peer(transport)
        self._output = Output(self._loop, self._transport, _nothing)
        self._budget.register(self._decoder, self)
        here = transport.get_extra_info("sockname")
        self.local_host = here
        self.local = address_text(here[0], here[1])
        self.closed = False
        self.writable = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending requests."""
        if self._abort_timer is not None:
            self._abort_timer.cancel()
            self._abort_timer = None
        self._shut(str(exc) if exc else "closed by the server")
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(None)

    def eof_received(self) -> bool:
        """Close: the server has closed its end."""
        return False

    def pause_writing(self) -> None:
        """Note that the server does not keep up."""
        self.writable = False

    def resume_writing(self) -> None:
        """Let ``drain`` return."""
        self.writable = not self.closed
        waiting, self._drained = self._drained, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def buffer_updated(self, nbytes: int) -> None:
        """Match answers with requests."""
        decoder = self._decoder
        for frame in decoder.buffer_updated(nbytes):
            if self.closed:
                return
            self._take(frame)
        if decoder.error is not None and not self.closed:
            self._garbage(decoder.error)

    def _take(self, frame: Frame) -> None:
        pending = self._pending
        try:
            response = decode_response_of(frame, pending.code_of)
        except WrongDirection:
            self._take_request(frame)
            return
        except HeaderIllegal as error:
            entry = None if error.opaque is None else pending.take(error.opaque)
            if entry is None:
                self._garbage(error)
            else:
                error.stored = Stored.UNKNOWN
                self._finish(entry, error)
            return
        if response is None:
            self.unmatched_count += 1
            return
        if response.serialize_type == JSON and ANNOUNCEMENT_FIELD in response.extra and self.announcement is None:
            self._upgrade(response.extra[ANNOUNCEMENT_FIELD])
        if response.code and (self._unproven or self._signing is not None):
            explain_refusal(response, self._unproven)
        entry = pending.take(response.opaque)
        assert entry is not None
        self._finish(entry, response)

    def _upgrade(self, text: str) -> None:
        try:
            announcement = msgspec.json.decode(text, type=Announcement)
        except DECODE_ERRORS as error:
            self._log.warning("announcement_illegal", server=self.address, why=str(error))
            return
        self.announcement = announcement
        self._signing = None
        if MSGPACK in announcement.serialize:
            self.serialize_type = MSGPACK

    def _take_request(self, frame: Frame) -> None:
        try:
            request = decode_request(frame)
        except HeaderIllegal as error:
            self._log.warning("header_illegal", server=self.address, code=error.request_code, why=error.why)
            return
        if self._on_request is None:
            return
        try:
            self._on_request(self, request)
        except Exception as error:  # one caller's bug must not fail the other requests
            self._log.error("request_handler_failed", server=self.address, error=repr(error), exc_info=error)

    def _garbage(self, error: BadFrame | HeaderIllegal) -> None:
        # where it speaks HTTP, the address is wrong, and the error of the request says so
        note = self._log.info if error.why == SPEAKS_HTTP else self._log.warning
        note("bad_frame", server=self.address, why=str(error))
        self.close(f"the server sent no valid frame: {error}")

    # ---- ends ------------------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        self._expire_timer = None
        now_ns = self._clock.monotonic_ns()
        expired = self._pending.expire(now_ns)
        for entry in expired:
            elapsed_ms = (now_ns - entry.started_ns) // 1_000_000
            limit_ms = (entry.deadline_ns - entry.started_ns) // 1_000_000
            self._finish(
                entry,
                RequestTimeout(
                    f"no answer from {self.address} to {request_name(entry.request_code)}",
                    why=f"{elapsed_ms} ms passed, the limit was {limit_ms} ms",
                    hint="the request may have been carried out",
                    stored=Stored.UNKNOWN,
                ),
            )
        silence, decoder = self._silence, self._decoder
        if decoder.frame_count != silence.frame_count:
            silence.heard(now_ns, decoder.frame_count)
        else:
            asked_ns = min((entry.started_ns for entry in expired), default=0)
            reason = silence.judge(now_ns, decoder.half, len(expired), asked_ns)
            if reason and not self.closed:
                self._log.warning("server_silent", server=self.address, why=reason)
                self.abort(reason)
        if len(self._pending) and self._expire_timer is None:
            self._expire_timer = self._loop.call_later(self.config.expire_interval_ms / 1000, self._expire)

    def _finish(self, entry: Waiting, result: Response | PocketMQError) -> None:
        try:
            entry.done(result)
        except Exception as error:  # one caller's bug must not keep others from their answers
            self._callback_failed(error)

    def _callback_failed(self, error: Exception) -> None:
        self._log.error("request_callback_failed", server=self.address, error=repr(error), exc_info=error)

    def _shut(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self.writable = False
        self._reason = reason
        if self._expire_timer is not None:
            self._expire_timer.cancel()
            self._expire_timer = None
        self._budget.unregister(self._decoder)
        self._decoder.close()
        output = self._output
        assert output is not None
        now_ns = self._clock.monotonic_ns()
        for entry in self._pending.take_all():
            stored = Stored.NO if entry.turn == output.turn else Stored.UNKNOWN
            self._finish(entry, self._lost_error(stored, (now_ns - entry.started_ns) // 1_000_000))
        output.clear()
        self.resume_writing()
        if self._on_close is not None:
            self._on_close(self, reason)

    def _lost_error(self, stored: Stored, elapsed_ms: int) -> ConnectionLost:
        return ConnectionLost(
            f"connection to {self.address} lost",
            why=f"{self._reason or 'it is not open'} (after {elapsed_ms} ms)",
            hint="connect again",
            stored=stored,
        )

    # ---- what the frame budget calls -------------------------------------------------------------------------------

    def pause_for_budget(self) -> None:
        """Pause reading: half-received frames use too much memory."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_for_budget(self) -> None:
        """Resume reading."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close_for_budget(self) -> None:
        """Close: this is the largest half-frame, and there are too many."""
        self.close("its half-received frame exceeds the memory for such frames")


def _nothing() -> None:
    pass
