"""One slave's connection on the master.

Lives here: ``SlaveConnection``: the handshake, acknowledgements, the stream, heartbeats, the end.

Two workers. The receiver blocks in the socket and takes acknowledgements. The sender streams to a slave that is far
behind. To a slave that keeps up, the appending thread sends itself (``push``): handing a small group to another thread
cost more than sending it (bench/own/replication.py).
"""

import threading
from typing import Final, Protocol

from pocketmq.common.errors import PocketMQError
from pocketmq.common.hashes import crc32
from pocketmq.common.runner import Worker
from pocketmq.store.ha import rocketmq_protocol, wire
from pocketmq.store.ha.environment import HaEnvironment
from pocketmq.store.ha.status import SlaveStatus
from pocketmq.store.ha.transfer import LogTransfer, Pumped
from pocketmq.store.ha.transport import Transport
from pocketmq.store.ha.wire import Ack, HaProtocolError, Hello, Refused, Welcome

HANDSHAKE_MS: Final = 5000
"""A peer that has not completed its handshake by then is disconnected."""
RECEIVE_WAIT_MS: Final = 1000.0
BLOCKED_WAIT_MS: Final = 100.0
BATCHES_PER_STEP: Final = 8
PUSH_BYTES_MAX: Final = 256 << 10
"""More than this is left to the sender: the appending thread must not copy for long."""
PAUSE_MS_MIN: Final = 2.0
"""Shorter pauses are not worth the wake-up."""
_NS_PER_S: Final = 1_000_000_000
_NS_PER_MS: Final = 1_000_000


class Master(Protocol):
    """The part of the service that a connection calls, from its workers."""

    confirmed_offset: int

    def hello(self, connection: "SlaveConnection", hello: Hello) -> Welcome | Refused:
        """Accept or refuse a slave; a welcome has reserved its place."""
        ...

    def rocketmq_report(self, connection: "SlaveConnection", offset: int) -> int:
        """Return the start offset of a RocketMQ slave. Raises ``HaProtocolError`` when it may not follow."""
        ...

    def joined(self, connection: "SlaveConnection") -> None:
        """Handle the begin of the stream."""
        ...

    def acked(self, connection: "SlaveConnection") -> None:
        """Handle a moved ``ack_offset``."""
        ...

    def ended(self, connection: "SlaveConnection", why: str, refused: bool) -> None:
        """Handle the end of the connection; called once."""
        ...


class SlaveConnection:
    """A peer on the HA port, from its first byte to its end.

    Holds: ``ack_offset <= sent offset``; an acknowledgement that goes beyond, or back, ends the connection. Memory: the
    decoder's buffer and one batch. ``ack_offset`` is -1 until the stream begins.
    """

    def __init__(self, number: int, transport: Transport, master: Master, environment: HaEnvironment) -> None:
        config = environment.store.config
        self.number = number
        self.peer = transport.peer
        self.node_id = ""
        self.broker_id = -1
        self.protocol = ""
        self.ack_policy = ""
        self.ack_offset = -1
        self.flushed_offset = -1
        self.echo_ms = 0
        self.connected_ns = environment.clock.monotonic_ns()
        self.is_ended = False
        self.was_in_sync = False
        """Its last state in the service's log."""
        self.has_said_hello = False
        """Whether it speaks one of the two protocols: others make room when there are too many connections."""
        self.is_admitted = False
        """Whether it may count, and may fence this master (``members.is_admitted``)."""
        self.is_counted = False
        """Whether its acknowledgements count for SEND_OK."""
        self.try_from_ns = 0
        """From when on an uncounted slave may be asked to connect again, to be counted."""
        self._transport = transport
        self._master = master
        self._runner = environment.runner
        self._log = environment.store.log
        self._clock = environment.clock
        self._batch_bytes = min(config.ha_transfer_batch_size, wire.BODY_BYTES_MAX)
        self._bytes_per_s = config.max_ha_transfer_byte_in_second  # 0: no limit
        self._paced_ns = 0  # until then sent bytes stay within the limit
        self._heartbeat_ns = config.ha_send_heartbeat_interval * _NS_PER_MS
        self._housekeeping_ns = config.ha_housekeeping_interval * _NS_PER_MS
        self._received_ns = self._sent_ns = self.connected_ns
        self._first = bytearray()
        self._decoder: wire.FrameDecoder | None = None
        self._reports: rocketmq_protocol.ReportDecoder | None = None
        self._start_offset = -1  # of the welcome, until the slave confirms it
        self._transfer: LogTransfer | None = None
        self._send_lock = threading.Lock()  # held over reads of hot pages and sends that do not wait
        self._is_tail = False
        self._failed = ""
        self._refused = True  # until the stream begins
        self._receiver: Worker | None = None
        self._sender: Worker | None = None

    # ---- life

    def start(self) -> None:
        """Start the receiver."""
        self._receiver = self._runner.start(f"ha-receive-{self.number}", self.receive_step)

    def fail(self, why: str) -> None:
        """End the connection for a reason, from any thread; the receiver does the rest."""
        self._failed = self._failed or why
        self._is_tail = False
        self._transport.cut()
        if self._receiver is not None:
            self._receiver.wake()

    def cut(self, why: str) -> None:
        """Do ``fail``; after it returns, nothing more is sent."""
        self.fail(why)
        with self._send_lock:
            pass

    def stop(self) -> None:
        """Stop the workers; not from one of them."""
        self._transport.cut()
        for worker in (self._sender, self._receiver):
            if worker is not None:
                worker.stop()
        self._sender = self._receiver = None
        self._transport.close()
        self.is_ended = True

    def _end(self, why: str) -> None:
        self._is_tail = False
        if not self.is_ended:
            self.is_ended = True
            self._transport.close()
            self._master.ended(self, self._failed or why, self._refused)

    @property
    def sent_bytes(self) -> int:
        """Sent bytes of the log."""
        return 0 if self._transfer is None else self._transfer.sent_bytes

    @property
    def is_failing(self) -> bool:
        """Whether it is about to end."""
        return bool(self._failed)

    def status(self, end: int, now_ns: int, now_ms: int, is_counted: bool, fallbehind_bytes: int) -> SlaveStatus:
        """Return what the master knows about this slave; ``end``: of the master's log."""
        behind_bytes, behind_ms = max(0, end - self.ack_offset), 0
        if behind_bytes:
            since_ms = self.echo_ms or now_ms - (now_ns - self.connected_ns) // _NS_PER_MS
            behind_ms = -1 if self.protocol == "rocketmq" else max(0, now_ms - since_ms)
        return SlaveStatus(
            node_id=self.node_id,
            broker_id=self.broker_id,
            address=self.peer,
            ack_offset=self.ack_offset,
            flushed_offset=self.flushed_offset,
            behind_bytes=behind_bytes,
            behind_ms=behind_ms,
            is_in_sync=is_counted and behind_bytes < fallbehind_bytes,
            connected_ms=(now_ns - self.connected_ns) // _NS_PER_MS,
            sent_bytes=self.sent_bytes,
            protocol=self.protocol,
            ack_policy=self.ack_policy,
        )

    # ---- receiving

    def receive_step(self) -> float | None:
        """Handle received bytes, or wait a moment for some. The receiver's step."""
        if self.is_ended:
            return None
        try:
            self._receive()
        except PocketMQError as error:
            self._end(error.why or error.what)
            return None
        except OSError as error:
            self._end(str(error))
            return None
        return None if self.is_ended else 0

    def _receive(self) -> None:
        wait_ms = min(RECEIVE_WAIT_MS, self._check_time())
        decoder = self._decoder
        if decoder is not None:
            view = decoder.buffer()
        elif self._reports is not None:
            view = memoryview(bytearray(4096))
        else:
            view = memoryview(bytearray(len(wire.PREAMBLE) - len(self._first)))
        count = self._transport.receive_into(view, wait_ms)
        if self._failed:
            self._end(self._failed)
        elif count == 0:
            self._end("the peer has closed the connection")
        elif count is not None:
            self._received_ns = self._clock.monotonic_ns()
            if decoder is not None:
                decoder.received(count)
                self._take_messages(decoder)
            elif self._reports is not None:
                self._take_report(self._reports.feed(view[:count]))
            else:
                self._first += view[:count]
                if len(self._first) == len(wire.PREAMBLE):
                    self._choose_protocol()

    def _check_time(self) -> float:
        """Return how many ms the peer may stay silent. Raises ``HaProtocolError`` when the time is over."""
        now_ns = self._clock.monotonic_ns()
        if self._transfer is None:
            left_ns = self.connected_ns + HANDSHAKE_MS * _NS_PER_MS - now_ns
            why = f"no handshake within {HANDSHAKE_MS} ms"
        else:
            left_ns = self._received_ns + self._housekeeping_ns - now_ns
            why = f"nothing received for {self._housekeeping_ns // _NS_PER_MS} ms"
        if left_ns <= 0:
            raise HaProtocolError("HA connection closed", why=why)
        return max(1.0, left_ns / _NS_PER_MS)

    def _choose_protocol(self) -> None:
        first = bytes(self._first)
        if first == wire.PREAMBLE:
            self.protocol = "pocketmq"
            self._decoder = wire.FrameDecoder(frozenset({wire.HELLO}))
        elif first[0] < 0x80:
            self.protocol = "rocketmq"
            self._reports = rocketmq_protocol.ReportDecoder()
            self._take_report(self._reports.feed(first))
        else:
            raise HaProtocolError("HA connection closed", why=f"{first!r} begins no known protocol")

    def _take_messages(self, decoder: wire.FrameDecoder) -> None:
        last: Ack | None = None
        while (message := decoder.next()) is not None:
            if isinstance(message, Ack):
                self._check_ack(message)
                last = message
            elif isinstance(message, Hello):
                self._take_hello(decoder, message)
                if self.is_ended:
                    return
        if last is not None:
            self._take_ack(last)

    def _take_hello(self, decoder: wire.FrameDecoder, hello: Hello) -> None:
        self.node_id, self.broker_id, self.ack_policy = hello.node_id, hello.broker_id, hello.ack_policy
        self.has_said_hello = True
        answer = self._master.hello(self, hello)
        if isinstance(answer, Refused):
            self._send_all(wire.encode_refused(answer))
            self._end(f"{answer.code}: {answer.text}")
            return
        self._start_offset = answer.start_offset
        decoder.kinds = frozenset({wire.ACK})
        self._send_all(wire.encode_welcome(answer))

    def _send_all(self, frame: bytes) -> None:
        """Send a frame of the handshake; no other thread sends yet."""
        left = memoryview(frame)
        while left:
            left = left[self._transport.send([left]) :]
            if left and not self._transport.wait_writable(self._check_time()):
                raise HaProtocolError("HA connection closed", why="the peer does not read")

    def _check_ack(self, ack: Ack) -> None:
        transfer = self._transfer
        if transfer is None:
            if ack.offset != self._start_offset:
                raise HaProtocolError(
                    "HA connection closed", why=f"the slave starts at {ack.offset} instead of {self._start_offset}"
                )
            self._begin(ack.offset)
        elif not self.ack_offset <= ack.offset <= transfer.sent_offset:
            raise HaProtocolError(
                "HA connection closed",
                why=f"the slave acknowledges {ack.offset} after {self.ack_offset}, with {transfer.sent_offset} sent",
            )

    def _take_ack(self, ack: Ack) -> None:
        self.ack_offset = ack.offset
        self.flushed_offset = (
            min(ack.flushed_offset, ack.offset) if self.ack_policy == "FLUSHED" else ack.flushed_offset
        )
        self.echo_ms = ack.echo_ms
        self._master.acked(self)

    def _take_report(self, offset: int | None) -> None:
        if offset is None:
            return
        if self._transfer is None:
            start = self._master.rocketmq_report(self, offset)
            self.has_said_hello = True
            self._batch_bytes = min(self._batch_bytes, rocketmq_protocol.BATCH_BYTES_MAX)
            self._begin(start)
        elif offset > self._log.committed_offset:
            raise HaProtocolError(
                "HA connection closed",
                why=f"slave[{self.peer}] request offset={offset} greater than local commitLog "
                f"offset={self._log.committed_offset}. ",
            )
        self.ack_offset = self.flushed_offset = offset
        self._master.acked(self)

    def _begin(self, offset: int) -> None:
        encode = self._data_head if self.protocol == "pocketmq" else self._rocketmq_head
        self.ack_offset = offset
        self._transfer = LogTransfer(self._log, self._transport, self._batch_bytes, encode, offset)
        self._refused = False
        self._sender = self._runner.start(f"ha-send-{self.number}", self.send_step)
        self._master.joined(self)

    # ---- sending

    def _data_head(self, offset: int, body: memoryview) -> bytes:
        end = self._log.committed_offset
        confirmed = min(self._master.confirmed_offset, end)
        return wire.encode_data_head(offset, end, confirmed, self._clock.now_ms(), crc32(body), len(body))

    def _rocketmq_head(self, offset: int, body: memoryview) -> bytes:
        return rocketmq_protocol.encode_head(offset, len(body))

    def push(self) -> None:
        """Send newly committed bytes from the committing thread; at most ``PUSH_BYTES_MAX``, without waiting.

        Does nothing while the sender is at work: it checks again before it sleeps.
        """
        if not self._is_tail:
            return
        transfer, sender = self._transfer, self._sender
        if transfer is None or sender is None:
            return
        if not self._send_lock.acquire(blocking=False):
            sender.wake()
            return
        try:
            pumped = transfer.pump(1) if transfer.lag_bytes <= PUSH_BYTES_MAX else Pumped.MORE
            self._sent_ns = self._clock.monotonic_ns()
            if pumped is not Pumped.DONE:
                self._is_tail = False
                sender.wake()
        except (PocketMQError, OSError) as error:
            self.fail(str(error))
        finally:
            self._send_lock.release()

    def send_step(self) -> float | None:
        """Stream missing bytes to the slave, or send a heartbeat when it is due. The sender's step."""
        transfer = self._transfer
        if transfer is None or self.is_ended:
            return None
        try:
            with self._send_lock:
                self._is_tail = False
                before = transfer.sent_offset
                begin_ns = self._clock.monotonic_ns()
                pumped = transfer.pump(BATCHES_PER_STEP)
                now_ns = self._clock.monotonic_ns()
                if transfer.sent_offset != before:
                    self._sent_ns = now_ns
                if pumped is Pumped.DONE:
                    if now_ns - self._sent_ns >= self._heartbeat_ns:
                        self._heartbeat(transfer)
                        self._sent_ns = now_ns
                    self._is_tail = not self._failed
                    if transfer.lag_bytes > 0:  # committed since, by a thread that may have found this one at work
                        self._is_tail = False
                        return 0
        except (PocketMQError, OSError) as error:
            self.fail(str(error))
            return None
        if pumped is not Pumped.DONE:
            pause_ms = self._pause_ms(transfer.sent_offset - before, begin_ns, now_ns)
            if pumped is Pumped.BLOCKED and not pause_ms:
                self._transport.wait_writable(BLOCKED_WAIT_MS)
            return pause_ms
        return max(1.0, (self._sent_ns + self._heartbeat_ns - now_ns) / _NS_PER_MS)

    def _pause_ms(self, sent_bytes: int, begin_ns: int, now_ns: int) -> float:
        """Return how long to pause, so that a slave that catches up leaves disk and cores to the sends."""
        if not self._bytes_per_s:
            return 0
        self._paced_ns = max(self._paced_ns, begin_ns) + sent_bytes * _NS_PER_S // self._bytes_per_s
        ahead_ms = (self._paced_ns - now_ns) / _NS_PER_MS
        return ahead_ms if ahead_ms >= PAUSE_MS_MIN else 0

    def _heartbeat(self, transfer: LogTransfer) -> None:
        if self.protocol == "rocketmq":
            transfer.send_frame(rocketmq_protocol.encode_head(transfer.sent_offset, 0))
        else:
            end = self._log.committed_offset
            confirmed = min(self._master.confirmed_offset, end)
            transfer.send_frame(wire.encode_heartbeat(wire.Heartbeat(end, confirmed, self._clock.now_ms())))
