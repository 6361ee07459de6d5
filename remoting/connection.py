"""The server's end of one connection.

Lives here: ``Connection``: frames in, typed requests to the handler, answers out, the limits of one peer.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import msgspec

from pocketmq.common.addresses import address_text
from pocketmq.common.errors import Cause, PocketMQError, Stored
from pocketmq.common.record import HOST_V4_BYTES
from pocketmq.remoting.codec import (
    Body,
    Request,
    Response,
    decode_request,
    decode_response_of,
    encode_request,
    encode_response,
    with_extra,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection_owner import ConnectionOwner, Guard
from pocketmq.remoting.direct_writer import DirectWriter
from pocketmq.remoting.errors import (
    ConnectionLost,
    HeaderIllegal,
    RemotingTooMuchRequestError,
    RequestTimeout,
    WrongDirection,
)
from pocketmq.remoting.frame import HEADER_BYTES_MAX, JSON, MSGPACK, NARROW_BYTES, Buffer, Frame, FrameDecoder
from pocketmq.remoting.limits.quota import Quota, QuotaExceeded, TooManyWrong
from pocketmq.remoting.output import Output
from pocketmq.remoting.pending import Pending, PendingTable, Waiting
from pocketmq.remoting.protocol.authenticate import AuthenticateRequestHeader
from pocketmq.remoting.protocol.spec import Header
from pocketmq.remoting.security.certificates import name_of
from pocketmq.remoting.turns import FRAMES_AT_ONCE, Backlog

ANNOUNCEMENT_FIELD = "_pmq"
"""Ext field of a client's first request (``"1"``) and of the answer to it (the ``Announcement`` as JSON)."""

_HELLO = int(RequestCode.HELLO)
_AUTHENTICATE = int(RequestCode.AUTHENTICATE)
_PAUSED_BY_WRITES = 1
_PAUSED_BY_BUDGET = 2
_PAUSED_BY_STOP = 4
_PAUSED_BY_TURN = 8
_PAUSED_BY_QUOTA = 16
OVER_QUOTA_MAX = 100
"""Sends over its quota that a peer may make in ``OVER_QUOTA_MS_MAX``; one that makes more does not listen to what it is
told, and is not read for a while: else refusals would take the time of others."""
OVER_QUOTA_MS_MAX = 1_000
OVER_QUOTA_PAUSE_S = 0.25
"""For so long: a small read holds some hundred frames, so refusals take a few percent of the loop's time."""
SMALL_FRAMES = 64
"""A peer that sends more frames than this in one read is read in small pieces: serving takes longer than reading."""
SMALL_FRAME_BYTES = 1024
"""A peer whose frames are longer on average is read in large pieces."""


CROWDED_FRAME_MS_MAX = 3_000
"""How long a frame may take while half-received frames fill their budget: after RocketMQ's send timeout of 3 s its
sender has given up, and others wait for the memory."""


def host_bytes(address: Any) -> bytes:
    """Return a socket address as the record holds hosts: IP, then port as u32; 8 bytes for IPv4, 20 for IPv6."""
    host, port = address[0], address[1]
    if ":" in host:
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
        if packed[:12] == b"\0" * 10 + b"\xff\xff":  # an IPv4 peer on an IPv6 socket
            packed = packed[12:]
    else:
        packed = socket.inet_pton(socket.AF_INET, host)
    return packed + int(port).to_bytes(4, "big")


def host_text(address: Any) -> str:
    """Return a socket address as ``ip:port``, or ``[ip]:port`` for IPv6."""
    return address_text(address[0], address[1])


class Connection(asyncio.BufferedProtocol):
    """One peer. Loop thread only.

    ``remote`` is "ip:port", ``remote_host`` the same as in a record; ``local``, ``local_host`` are this end.
    ``closed`` is true as soon as nothing can be sent any more; later answers are dropped. While ``over_high_water`` is
    true the peer does not read its answers, and its requests are not read either.
    ``user`` belongs to the handler, ``session``, ``nonce`` and ``speaker`` to the
    guard: the user of the proof, what the proof answers, and the user of the last request. ``quota`` and
    ``quota_user`` belong to the server's limits, ``sent_topics`` to the broker's statistics.
    """

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._handler = owner.handler
        self._clock = owner.clock
        self._decoder = FrameDecoder(
            owner.scratch,
            owner.budget,
            frame_bytes_max=owner.config.frame_bytes_max,
            header_bytes_max=HEADER_BYTES_MAX,
        )
        self._decoder.narrow(True)
        self._narrow = True  # until a read shows frames that are not small
        # asyncio calls the decoder itself: one call less for each read
        self.get_buffer = self._decoder.get_buffer  # type: ignore[assignment,method-assign]
        self._transport: asyncio.Transport | None = None
        self._output: Output | None = None
        self._pending: PendingTable | None = None
        self._read_times = owner.read_times
        self._half_began_ns = 0  # when the first byte of the present half-frame arrived
        self._backlog: Backlog | None = None  # frames that wait for a turn; the connection is not read until then
        self._late_ns = 0  # how long the present frame took to arrive, if that was slow
        self._paused = 0
        self._announce_opaque = -1
        self._over_quota = 0  # refusals since then
        self._over_quota_ns = 0
        self._reason = ""
        self._counted = False
        self.remote = self.local = ""
        self.remote_host = self.local_host = b""
        self.is_v6 = False
        """Whether ``remote_host`` has 20 bytes."""
        self.serialize_type = JSON
        self.version = 0
        self.language = 0
        self.closed = True
        self.over_high_water = False
        self.host = ""
        self.is_encrypted = False
        """Whether it is a TLS connection."""
        self.peer_name = ""
        """The name in the peer's certificate, if it showed one that the server's CA has signed; else empty."""
        self.touched = False
        self.was_touched = False
        self.opened_ns = self.active_ns = 0
        self.blocked_since_ns = 0
        self.charged_unwritten_bytes = 0
        self.half_since_ns = 0
        self.half_frame_count = -1
        self.user: Any = None
        self.session: Any = None
        self.nonce = ""
        self.speaker: Any = None
        self.quota: Quota | None = None
        """What the peer may send and get; None: everything."""
        self.quota_user = ""
        self.sent_topics: dict[str, None] = {}
        self.direct: DirectWriter | None = None
        """The way of other threads to the socket; made by ``direct_turn``."""

    # ---- asyncio's side --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start reading, unless the server has enough connections."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        here = transport.get_extra_info("sockname")
        self.host = str(peer[0]) if peer else ""
        self.opened_ns = self.active_ns = self._clock.monotonic_ns()
        if not peer or not here or not self._owner.opened(self):
            self._transport.abort()
            return
        self._counted = True
        self.remote, self.remote_host = host_text(peer), host_bytes(peer)
        self.is_v6 = len(self.remote_host) != HOST_V4_BYTES
        self.local, self.local_host = host_text(here), host_bytes(here)
        if transport.get_extra_info("sslcontext") is not None:
            self.is_encrypted = True
            self.peer_name = name_of(transport.get_extra_info("peercert"))
        config = self._owner.config
        self._transport.set_write_buffer_limits(config.write_high_water_bytes, config.write_low_water_bytes)
        self._output = Output(self._owner.loop, self._transport, self._flushed)
        self._owner.budget.register(self._decoder, self)
        self.closed = False
        self._handler.on_open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending requests and notify the handler."""
        was_open = self._output is not None
        self.closed = True
        self._owner.budget.unregister(self._decoder)
        self._decoder.close()
        if self._output is not None:
            self._output.clear()
            self._output = None
        if self.direct is not None:
            self.direct.close()
            self._owner.direct_writers -= 1
        if self._counted:
            self._counted = False
            self._owner.lost(self)
        if self._pending is not None:
            for entry in self._pending.take_all():
                self._finish(entry, self._lost_error())
        if was_open:
            self._handler.on_close(self, self._reason or (str(exc) if exc else "closed by the peer"))

    def eof_received(self) -> bool:
        """Close: a peer that shuts down its sending side counts as gone, as in RocketMQ."""
        return False

    def buffer_updated(self, nbytes: int) -> None:
        """Cut the received bytes into frames and hand on the requests; small sends first, while the bytes are where the
        socket put them."""
        decoder = self._decoder
        short_path = self._owner.short_path
        if short_path is not None and decoder.large is None and decoder.error is None and not self.closed:
            if not decoder.rest:
                taken = short_path(self, nbytes)
                if taken:
                    self.touched = True
                    if nbytes == NARROW_BYTES and self._narrow:
                        self._widen()
                    if taken == nbytes:
                        return
                    nbytes = decoder.skip(taken, nbytes)
            elif self._clock.monotonic_ns() - self._half_began_ns < self._owner.slow_read_ns:
                taken = short_path(self, len(decoder.rest) + nbytes)
                if taken:
                    self.touched = True
                    self._half_began_ns = 0
                    nbytes = decoder.skip(taken, len(decoder.rest) + nbytes)
                    if not nbytes:
                        return
        begin_ns = self._clock.monotonic_ns()
        frames = decoder.buffer_updated(nbytes)
        self.touched = True
        if frames:
            first_ns = frame_began_ns = self._half_began_ns or begin_ns
            self._half_began_ns = begin_ns if decoder.half else 0
            if begin_ns - first_ns > self._owner.slow_read_ns:
                self._late_ns = begin_ns - first_ns
            if len(frames) > FRAMES_AT_ONCE:
                self._postpone(frames, frame_began_ns, begin_ns)
            else:
                for frame in frames:
                    if self.closed:
                        return
                    self._take(frame, frame_began_ns)
                    frame_began_ns = begin_ns
            if self._read_times is not None:
                now_ns = self._clock.monotonic_ns()
                self._read_times.sample_ns(now_ns, now_ns - first_ns, 1)
                if len(frames) > 1:
                    self._read_times.sample_ns(now_ns, now_ns - begin_ns, len(frames) - 1)
        elif not self._half_began_ns:
            self._half_began_ns = begin_ns
        if nbytes == NARROW_BYTES and self._narrow and len(frames) <= NARROW_BYTES // SMALL_FRAME_BYTES:
            self._widen()
        if decoder.error is not None and not self.closed and self._backlog is None:
            self._refuse(decoder.error)

    def _widen(self) -> None:
        self._narrow = False
        self._decoder.narrow(False)

    def _postpone(self, frames: list[Frame], first_ns: int, rest_ns: int) -> None:
        """Serve these frames in turns, and read on when they are served."""
        if not self._narrow and len(frames) > SMALL_FRAMES:
            self._narrow = True
            self._decoder.narrow(True)
        self._backlog = Backlog(frames, first_ns, rest_ns)
        self._pause(_PAUSED_BY_TURN)
        self._owner.turns.join(self)

    def serve_turn(self, frames_max: int) -> bool:
        """Serve up to so many frames of the backlog; return whether some are left and may be served: ``resume_writing``
        joins the turns again."""
        backlog = self._backlog
        if backlog is None:
            return False
        for frame, began_ns in backlog.take(frames_max):
            self._take(frame, began_ns)
            if self.closed:
                self._backlog = None
                return False
        if backlog:
            return not self.over_high_water
        self._backlog = None
        if self._decoder.error is not None:
            self._refuse(self._decoder.error)
        else:
            self._resume(_PAUSED_BY_TURN)
        return False

    def pause_writing(self) -> None:
        """Stop reading: the peer does not take its answers."""
        self.over_high_water = True
        self.blocked_since_ns = self._clock.monotonic_ns()
        self._pause(_PAUSED_BY_WRITES)

    def resume_writing(self) -> None:
        """Resume reading."""
        self.over_high_water = False
        self._resume(_PAUSED_BY_WRITES)
        if self._backlog is not None:
            self._owner.turns.join(self)

    # ---- requests in -----------------------------------------------------------------------------------------------

    def _take(self, frame: Frame, began_ns: int) -> None:
        """Hand on one frame; ``began_ns``: when its first byte was read."""
        late_ns, self._late_ns = self._late_ns, 0
        try:
            request = decode_request(frame)
        except WrongDirection:
            self._take_response(frame)
            return
        except HeaderIllegal as error:
            self._answer_illegal(frame, error)
            return
        request.received_ns = began_ns
        if late_ns and self._owner.on_slow_read is not None:
            self._owner.on_slow_read(self, request, late_ns)
        self.serialize_type = request.serialize_type
        if request.serialize_type != MSGPACK:
            self.version, self.language = request.version, request.language
            if ANNOUNCEMENT_FIELD in request.extra and request.serialize_type == JSON:
                self._announce_opaque = request.opaque
        self.serve(request)

    def serve(self, request: Request) -> None:
        """Answer a request, or hand it on, if its sender may make it and is within its quota."""
        try:
            if request.code == _HELLO:
                self._hello(request)
                return
            guard = self._owner.guard
            if request.code == _AUTHENTICATE and guard is not None:
                self._authenticate(request, guard)
                return
            if guard is not None:
                refusal = guard.refusal(self, request)
                if refusal is not None:
                    self._answer_error(
                        request.opaque, request.code, request.oneway, request.serialize_type, refusal, refusal.code
                    )
                    if isinstance(refusal, TooManyWrong):
                        self.close_when_written(str(refusal))
                    return
            quota = self.quota
            if quota is not None:
                over = quota.refusal(request, self._clock.monotonic_ns())
                if over is not None:
                    self._answer_over_quota(request, over)
                    return
            self._handler.on_request(self, request)
        except Exception as error:  # a handler's bug must not end the connection or the loop
            self._owner.log.error(
                "request_handler_failed", remote=self.remote, code=request.code, error=repr(error), exc_info=error
            )
            failed = PocketMQError(f"the server failed: {error!r}", cause=Cause.INTERNAL, stored=Stored.UNKNOWN)
            self._answer_error(request.opaque, request.code, request.oneway, request.serialize_type, failed)

    def _answer_over_quota(self, request: Request, over: QuotaExceeded) -> None:
        if self._owner.refused is not None:
            self._owner.refused.note_request(request, self.remote, over.code, over.cause, str(over))
        self._answer_error(request.opaque, request.code, request.oneway, request.serialize_type, over, over.code)
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._over_quota_ns > OVER_QUOTA_MS_MAX * 1_000_000:
            self._over_quota_ns, self._over_quota = now_ns, 0
        self._over_quota += 1
        if self._over_quota >= OVER_QUOTA_MAX and not self._paused & _PAUSED_BY_QUOTA:
            self._narrow = True
            self._decoder.narrow(True)
            self._pause(_PAUSED_BY_QUOTA)
            self._owner.loop.call_later(OVER_QUOTA_PAUSE_S, self._resume, _PAUSED_BY_QUOTA)

    def _hello(self, request: Request) -> None:
        extra = {} if request.serialize_type == JSON else {ANNOUNCEMENT_FIELD: self._announcement()}
        if not request.oneway:
            self.respond(
                encode_response(
                    ResponseCode.SUCCESS, request.opaque, _HELLO, serialize_type=request.serialize_type, extra=extra
                )
            )

    def _announcement(self) -> str:
        announcement, guard = self._owner.announce(self), self._owner.guard
        if guard is not None:
            announcement = msgspec.structs.replace(announcement, nonce=guard.nonce(self))
        return msgspec.json.encode(announcement).decode()

    def _authenticate(self, request: Request, guard: Guard) -> None:
        """Answer a proof; a wrong one also ends the connection, so that each guess costs one."""
        header = cast(AuthenticateRequestHeader, request.header)
        answer = guard.authenticate(self, header)
        kind = request.serialize_type
        if isinstance(answer, PocketMQError):
            self._answer_error(request.opaque, request.code, request.oneway, kind, answer, answer.code)
            self.close_when_written(str(answer))
        elif not request.oneway:
            self.respond(
                encode_response(ResponseCode.SUCCESS, request.opaque, _AUTHENTICATE, header=answer, serialize_type=kind)
            )

    def _answer_illegal(self, frame: Frame, error: HeaderIllegal) -> None:
        if error.opaque is None:
            self._refuse(error)
            return
        code, serves = error.request_code, self._owner.serves
        self._note_illegal(error)
        if code is None or serves is None or serves(code):
            self._answer_error(error.opaque, code or 0, error.oneway, frame.serialize_type, error)
        elif not error.oneway:
            refused, text = ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported"
            self.respond(encode_response(refused, error.opaque, code, remark=text, serialize_type=frame.serialize_type))

    def _note_illegal(self, error: HeaderIllegal) -> None:
        refused = self._owner.refused
        if refused is None:
            self._owner.log.warning(
                "header_illegal", remote=self.remote, code=error.request_code, field=error.field, why=error.why
            )
            return
        known = error.version >= 0
        refused.note(
            -1 if error.request_code is None else error.request_code,
            error.code,
            error.cause,
            str(error),
            remote=self.remote,
            language=error.language if known else self.language,
            version=error.version if known else self.version,
        )

    def _answer_error(
        self,
        opaque: int,
        code: int,
        oneway: bool,
        serialize_type: int,
        error: PocketMQError,
        answer_code: int = ResponseCode.SYSTEM_ERROR,
    ) -> None:
        """Refuse with the fields that every refusal has: without them a client would not know that nothing was
        stored."""
        if not oneway:
            buffers = encode_response(
                answer_code,
                opaque,
                code,
                remark=str(error),
                serialize_type=serialize_type,
                extra={
                    "cause": error.cause.value,
                    "stored": error.stored.value,
                    "retry_after_ms": str(error.retry_after_ms),
                },
            )
            self.respond(buffers)

    def _refuse(self, error: PocketMQError) -> None:
        self._owner.log.warning("bad_frame", remote=self.remote, why=str(error))
        self.close(str(error))

    # ---- answers out -----------------------------------------------------------------------------------------------

    def respond(self, buffers: Sequence[Buffer]) -> None:
        """Send one encoded response; a closed connection drops it."""
        if self.closed:
            return
        if self._announce_opaque >= 0:
            changed = with_extra(buffers, self._announce_opaque, ANNOUNCEMENT_FIELD, self._announcement())
            if changed is not None:
                buffers = changed
                self._announce_opaque = -1
        assert self._output is not None
        self._output.add(buffers)

    def respond_all(self, responses: Iterable[Sequence[Buffer]]) -> None:
        """Write several encoded responses at once, for a caller that has already gathered them."""
        for buffers in responses:
            self.respond(buffers)
        if self._output is not None:
            self._output.flush()

    def send_oneway(self, code: int, header: Header | None = None, body: Body = b"") -> None:
        """Send the client a oneway request; a closed connection drops it."""
        if not self.closed:
            assert self._output is not None
            opaque = self._pending_table().next_opaque()
            self._output.add(
                encode_request(code, opaque, header, body, serialize_type=self.serialize_type, oneway=True)
            )

    def request_nowait(
        self,
        code: int,
        header: Header | None,
        body: Body = b"",
        *,
        timeout_ms: int,
        done: Callable[[Response | PocketMQError], None],
    ) -> None:
        """Send the client a request; ``done`` gets, once, its answer, ``RequestTimeout`` (up to ``expire_interval_ms``
        late) or another error."""
        pending = self._pending_table()
        if self.closed:
            done(self._lost_error())
            return
        if pending.full:
            done(RemotingTooMuchRequestError("request to client refused", why=f"{len(pending)} wait for {self.remote}"))
            return
        assert self._output is not None
        opaque = pending.next_opaque()
        buffers = encode_request(code, opaque, header, body, serialize_type=self.serialize_type)
        now_ns = self._clock.monotonic_ns()
        pending.add(opaque, Pending(code, now_ns, now_ns + timeout_ms * 1_000_000, done, self._output.turn))
        self._output.add(buffers)

    def _pending_table(self) -> PendingTable:
        if self._pending is None:
            self._pending = PendingTable(self._owner.config.client_requests_max)
        return self._pending

    def _take_response(self, frame: Frame) -> None:
        if self._pending is None:
            return
        try:
            response = decode_response_of(frame, self._pending.code_of)
        except HeaderIllegal as error:
            entry = None if error.opaque is None else self._pending.take(error.opaque)
            if entry is not None:
                self._finish(entry, error)
            return
        entry = None if response is None else self._pending.take(response.opaque)
        if entry is not None and response is not None:
            self._finish(entry, response)

    def _finish(self, entry: Waiting, result: Response | PocketMQError) -> None:
        try:
            entry.done(result)
        except Exception as error:
            self._owner.log.error("request_callback_failed", remote=self.remote, error=repr(error), exc_info=error)

    def _lost_error(self) -> ConnectionLost:
        return ConnectionLost(f"connection to client {self.remote} lost", why=self._reason, stored=Stored.UNKNOWN)

    def _flushed(self) -> None:
        self.touched = True
        unwritten_bytes = self.unwritten_bytes
        if self.over_high_water and unwritten_bytes > self._owner.config.write_hard_limit_bytes:
            self.close(f"the peer does not read: {unwritten_bytes} bytes wait for it")
        elif unwritten_bytes or self.charged_unwritten_bytes:
            self._owner.charge_unwritten(self, unwritten_bytes)

    def direct_turn(self) -> int:
        """Return the turn for ``direct.write`` if another thread may write the next answer, -1 if the loop has to."""
        output = self._output
        if output is None or self.closed:
            return -1
        if self.direct is None:  # before the next question: with it the output notes when its bytes have left
            if self.is_encrypted or self._owner.direct_writers >= self._owner.config.direct_writers_max:
                return -1
            assert self._transport is not None
            socket = self._transport.get_extra_info("socket")
            try:
                self.direct = DirectWriter(self._owner.loop, output, -1 if socket is None else socket.fileno())
            except OSError:  # no descriptor is left, or this one has gone
                return -1
            self._owner.direct_writers += 1
        if output.handed_on != output.passed_on:  # as is_clear, which is asked here only to note when they have left
            output.is_clear()
            return -1
        assert self._transport is not None
        return -1 if output.waiting_bytes or self._transport.get_write_buffer_size() else output.turn

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of answers that the peer has not read yet."""
        if self._transport is None or self._output is None:
            return 0
        return self._transport.get_write_buffer_size() + self._output.waiting_bytes

    @property
    def socket(self) -> Any:
        """The transport's view of the socket, for options that are only read; any thread. None: it is closed."""
        transport = self._transport
        return None if transport is None or self.closed else transport.get_extra_info("socket")

    # ---- limits ----------------------------------------------------------------------------------------------------

    def expire(self, now_ns: int) -> None:
        """Close when idle, blocked or slow beyond the limits; expire requests to the client. Called by the server."""
        config = self._owner.config
        if self._pending is not None:
            for entry in self._pending.expire(now_ns):
                elapsed_ms = (now_ns - entry.started_ns) // 1_000_000
                self._finish(
                    entry, RequestTimeout(f"client {self.remote} did not answer", why=f"{elapsed_ms} ms passed")
                )
        if self.touched:
            self.touched = False
            self.was_touched = True
            self.active_ns = now_ns
        elif now_ns - self.active_ns > config.idle_ms_max * 1_000_000:
            self._expel("connection_idle", f"idle for {(now_ns - self.active_ns) // 1_000_000} ms")
            return
        if self.over_high_water and now_ns - self.blocked_since_ns > config.write_blocked_ms_max * 1_000_000:
            self._expel("peer_does_not_read", f"the peer did not read for {config.write_blocked_ms_max} ms")
            return
        if not self._decoder.half:
            self.half_frame_count = -1
        elif self.half_frame_count != self._decoder.frame_count:
            self.half_frame_count = self._decoder.frame_count
            self.half_since_ns = now_ns
        else:
            crowded = self._owner.budget.is_crowded
            limit_ms = min(CROWDED_FRAME_MS_MAX, config.half_frame_ms_max) if crowded else config.half_frame_ms_max
            if now_ns - self.half_since_ns > limit_ms * 1_000_000:
                self._expel("frame_slow", f"one frame took more than {limit_ms} ms")

    def _expel(self, event: str, reason: str) -> None:
        self._owner.log.warning(event, remote=self.remote, why=reason)
        self.close(reason)

    def pause_for_budget(self) -> None:
        """Pause reading: half-received frames use too much memory."""
        self._pause(_PAUSED_BY_BUDGET)

    def resume_for_budget(self) -> None:
        """Resume reading."""
        self._resume(_PAUSED_BY_BUDGET)

    def close_for_budget(self) -> None:
        """Close: this is the largest half-frame, and there are too many."""
        self._expel("frame_budget_exceeded", f"{self._decoder.charged_bytes} bytes of half a frame, and memory is full")

    def close_for_unwritten(self) -> None:
        """Close: this is the largest backlog, and there are too many."""
        self._expel("answers_not_read", f"{self.charged_unwritten_bytes} bytes wait for the peer, and memory is full")

    def close_for_error(self, error: Exception) -> None:
        """Close: serving one of its requests failed outside the handler."""
        self._expel("serving_failed", repr(error))

    def stop_reading(self) -> None:
        """Read no further request; the server is stopping."""
        self._pause(_PAUSED_BY_STOP)

    def _pause(self, why: int) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused |= why

    def _resume(self, why: int) -> None:
        if self._paused & why:
            self._paused &= ~why
            if not self._paused and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def close(self, reason: str) -> None:
        """Drop the connection and its unwritten answers."""
        if self._transport is None or self.closed:
            return
        self._reason = reason
        self.closed = True
        self._decoder.close()
        if self._output is not None:
            self._output.clear()
        if self.direct is not None:
            self.direct.close()
        self._transport.abort()

    def abort(self, reason: str) -> None:
        """Drop the connection, even one that is closing."""
        self.close(reason)
        if self._transport is not None:
            self._transport.abort()

    def close_when_written(self, reason: str) -> None:
        """Close once the waiting answers are written."""
        if self._transport is None or self.closed:
            return
        self._reason = reason
        if self._output is not None:
            self._output.flush()
        self.closed = True
        self._transport.close()
