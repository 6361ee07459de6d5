"""A slave: follows its master's log.

Lives here: ``HaSlave``: connecting, the handshake, taking the stream, acknowledging, promises, the reaction to a
failing disk or master.

One worker, which blocks in the socket: it appends a received group, acknowledges it, then dispatches it, in one thread
and without a hop. A slave whose disk refuses bytes closes its connection, so that the master notices at once, and
connects again only after the disk has taken the refused bytes.
"""

import threading
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np

from pocketmq.common.errors import PocketMQError
from pocketmq.common.hashes import crc32
from pocketmq.common.runner import Worker
from pocketmq.store.errors import OffsetOutOfRange, StoreError
from pocketmq.store.ha import wire
from pocketmq.store.ha.environment import HaEnvironment
from pocketmq.store.ha.epochs import BadEpochs, EpochTable
from pocketmq.store.ha.following import (
    Decision,
    SlaveView,
    Step,
    WelcomeRefused,
    check_number,
    judge_welcome,
)
from pocketmq.store.ha.proved_transport import ProvedTransport
from pocketmq.store.ha.raw_append import RawAppender
from pocketmq.store.ha.state import GroupRule
from pocketmq.store.ha.tls_transport import connect_tls
from pocketmq.store.ha.transport import Transport, TransportError, connect
from pocketmq.store.ha.wire import Ack, Data, Fetch, HaProtocolError, Heartbeat, Message, Refused, Welcome

CONNECT_MS: Final = 3000
HANDSHAKE_MS: Final = 5000
RECEIVE_WAIT_MS: Final = 500.0
"""Longest wait in the socket before the clock is checked."""
RETRY_MS_MIN: Final = 100
RETRY_MS_MAX: Final = 5000
"""Longest pause between two connection attempts (RocketMQ HAClient waits 5 s)."""
SICK_RETRY_MS: Final = 1000
NOTE_CONFIRMED_NS: Final = 1_000_000_000
FETCHED_BYTES: Final = 1 << 20
_NS_PER_MS: Final = 1_000_000


class Connect(Protocol):
    """Makes connections; ``transport.connect`` is one."""

    def __call__(self, address: str, timeout_ms: float) -> Transport:
        """Connect to host:port. Raises ``TransportError``."""
        ...


class FollowedMaster(NamedTuple):
    """The node whose log a slave follows: ``epoch`` and ``owner`` of the stream, and the ``address`` at which it serves
    clients, empty if unknown."""

    epoch: int
    owner: str
    address: str


class SlaveSideStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A slave's own status. Offsets and sizes are bytes.

    ``connected``: it follows, its acknowledgements may count. ``behind_ms``: the age of its newest message at the
    master's last heartbeat or data, by the master's clock; 0 when it has everything, -1 while unknown.
    ``waits_for_restart``: its log must be cut, for which the store is opened again.
    """

    master_address: str
    connected: bool
    end_offset: int
    flushed_offset: int
    master_end: int
    confirmed_offset: int
    behind_bytes: int
    behind_ms: int
    epoch: int
    last_error: str
    disk_error: str
    """Why its own disk takes no bytes; it follows nobody meanwhile. Empty: it takes them."""
    received_bytes: int
    connects: int
    waits_for_restart: bool


class HaSlave:
    """Follows one master at a time, from ``start`` to ``stop``.

    ``promise``, ``status`` and ``confirmed_offset`` are for any thread; ``promise`` writes to disk. ``on_reopen`` is
    called once, in the worker, when the store must be closed and opened again (``opening.open_store``) before this
    slave can follow; the worker does nothing from then on.
    """

    def __init__(
        self,
        environment: HaEnvironment,
        master_address: Callable[[], str],
        *,
        broker_id: int,
        on_reopen: Callable[[], None],
        connect: Connect = connect,
    ) -> None:
        """``master_address()`` is the master's HA address, host:port, or empty while it is not known; must be quick."""
        config = environment.store.config
        self._environment = environment
        self._store = environment.store
        self._state = environment.state
        self._clock = environment.clock
        self._log = environment.log
        self._master_address = master_address
        self._broker_id = broker_id
        self._on_reopen = on_reopen
        self._connect_to = connect
        self._accept_loss = config.accept_loss
        self._ack_policy = config.slave_ack_policy
        self._heartbeat_ns = config.ha_send_heartbeat_interval * _NS_PER_MS
        self._housekeeping_ns = config.ha_housekeeping_interval * _NS_PER_MS
        self._appender = RawAppender(self._store, self._log)
        self._worker: Worker | None = None
        self._stopping = False
        self._take_lock = threading.Lock()  # held over appends and promises, which exclude each other
        self._transport: Transport | None = None
        self._decoder = wire.FrameDecoder(wire.FROM_MASTER)
        self._address = ""
        self._epoch = (0, "")
        self._followed: FollowedMaster | None = None
        self._master_epochs = EpochTable()
        self._is_synchronous = False
        self._following = False
        self._waits_for_restart = False
        self._sick: StoreError | None = None
        self._last_error = ""
        self._reported = ""
        self._differs_from: GroupRule | None = None
        self._retry_ms = RETRY_MS_MIN
        self._received_ns = self._sent_ns = self._connected_ns = 0
        self._ack: Ack | None = None
        self._master_end = 0
        self._master_now_ms = 0
        self._announced = 0
        self._noted_ns = 0
        self._received_bytes = 0
        self._connects = 0

    # ---- life

    def start(self) -> None:
        """Start following."""
        self._worker = self._environment.runner.start("ha-slave", self.step)

    def stop(self) -> None:
        """End the connection and the worker. A second call does nothing."""
        self._stopping = True
        transport, worker = self._transport, self._worker
        if transport is not None:
            transport.cut()
        if worker is not None:
            self._worker = None
            worker.stop()
        self._disconnect("stopped")

    # ---- promises and status

    @property
    def confirmed_offset(self) -> int:
        """Bytes below it are never cut without an operator's consent: a producer may have received SEND_OK for them."""
        end = self._store.log.appended_offset
        return end if self._state.acks_confirm else max(self._state.confirmed_offset, self._announced)

    def promise(self, epoch: int, owner: str) -> bool:
        """Promise an epoch; return whether the promise was made. Durable before True is returned.

        From then on nothing of an older epoch enters the log or is acknowledged: only the epoch's owner can extend the
        log. Waits for an append under way; not for the event loop. Raises ``StoreError``.
        """
        with self._take_lock:
            if not self._state.promise(epoch, owner):
                return False
            transport = self._transport
            if transport is not None and self._epoch != (epoch, owner):
                self._following = False
                transport.cut()
            return True

    @property
    def followed(self) -> FollowedMaster | None:
        """The master that this slave follows now, or None. Never blocks."""
        followed = self._followed
        return followed if self._following else None

    def status(self) -> SlaveSideStatus:
        """Return the slave's status. Never blocks."""
        log = self._store.log
        end, master_end = log.committed_offset, self._master_end
        behind = max(0, master_end - end)
        behind_ms = 0
        if self._connects == 0:
            behind_ms = -1
        elif behind:
            is_known = self._master_now_ms and log.last_store_timestamp
            behind_ms = max(0, self._master_now_ms - log.last_store_timestamp) if is_known else -1
        return SlaveSideStatus(
            master_address=self._address or self._master_address(),
            connected=self._following,
            end_offset=end,
            flushed_offset=log.flushed_offset,
            master_end=master_end,
            confirmed_offset=self.confirmed_offset,
            behind_bytes=behind,
            behind_ms=behind_ms,
            epoch=self._epoch[0] if self._following else self._state.epochs.cut(end).last_number,
            last_error=self._last_error,
            disk_error="" if (sick := self._sick) is None else str(sick),
            received_bytes=self._received_bytes,
            connects=self._connects,
            waits_for_restart=self._waits_for_restart,
        )

    # ---- the worker

    def step(self) -> float | None:
        """Connect, or handle received bytes, or wait a moment for some."""
        if self._stopping or self._waits_for_restart:
            return None
        try:
            if self._transport is None:
                return self._connect()
            self._receive(self._transport)
        except StoreError as error:
            self._failed(error)
            return self._retry_ms
        except (PocketMQError, OSError) as error:
            self._disconnect(str(error))
            return self._retry_ms
        return None if self._waits_for_restart else 0

    def _connect(self) -> float:
        if self._sick is not None:
            self._try_disk()
        address = self._master_address()
        if not address:
            self._last_error = "the master's HA address is not known"
            return RETRY_MS_MAX / 5
        self._appender.forget_waiting()
        self._retry_ms = min(RETRY_MS_MAX, self._retry_ms * 2)
        connected = self._connect_to(address, CONNECT_MS)
        transport = connect_tls(connected, address, self._environment.tls, CONNECT_MS, self._clock)
        if self._environment.secret is not None:
            transport = ProvedTransport(transport, self._environment.secret, is_slave=True)
        log, state = self._store.log, self._state
        end = log.appended_offset
        hello = wire.Hello(
            cluster=self._environment.cluster,
            broker_name=self._environment.broker_name,
            broker_id=self._broker_id,
            node_id=state.node_id,
            epochs=state.epochs.cut(end).to_rows(),
            end_offset=end,
            min_offset=self._min_offset(),
            segment_bytes=log.segment_bytes,
            promised=(state.promised_epoch, state.promised_owner),
            ack_policy=self._ack_policy,
        )
        now_ns = self._clock.monotonic_ns()
        self._transport, self._address = transport, address
        self._connected_ns = self._received_ns = self._sent_ns = now_ns
        self._ack = None
        self._decoder = wire.FrameDecoder(frozenset({wire.WELCOME, wire.REFUSED}))
        if self._stopping:
            transport.cut()
        self._send(wire.PREAMBLE + wire.encode_hello(hello))
        return 0

    def _min_offset(self) -> int:
        """Return the log's first offset; its end, if it has no segment yet."""
        log = self._store.log
        return log.appended_offset if log.has_no_segment else log.min_offset

    def _receive(self, transport: Transport) -> None:
        address = self._master_address()
        if address and address != self._address:
            raise TransportError("HA connection closed", why=f"the master is {address} now, not {self._address}")
        count = transport.receive_into(self._decoder.buffer(), RECEIVE_WAIT_MS)
        now_ns = self._clock.monotonic_ns()
        if count == 0:
            raise TransportError("HA connection closed", why=f"by the master {self._address}")
        if count is None:
            self._check_time(now_ns)
            return
        self._received_ns = now_ns
        self._decoder.received(count)
        appended = False
        try:
            while (message := self._decoder.next()) is not None:
                appended = self._take(message) or appended
                if self._transport is None or self._waits_for_restart:
                    return
            if self._following:
                self._acknowledge()
        finally:
            if appended:
                self._appender.dispatch()
        if self._following and now_ns - self._noted_ns >= NOTE_CONFIRMED_NS:
            self._note_confirmed(now_ns)
            if now_ns - self._connected_ns >= RETRY_MS_MAX * _NS_PER_MS:  # stable: the next break starts afresh
                self._retry_ms = RETRY_MS_MIN

    def _check_time(self, now_ns: int) -> None:
        if not self._following and self._decoder.kinds != _SERVING:
            if now_ns - self._connected_ns >= HANDSHAKE_MS * _NS_PER_MS:
                raise TransportError("HA connection closed", why=f"no handshake within {HANDSHAKE_MS} ms")
            return
        if now_ns - self._received_ns >= self._housekeeping_ns:
            raise TransportError(
                "HA connection closed", why=f"the master has sent nothing for {self._housekeeping_ns // _NS_PER_MS} ms"
            )
        if self._following and now_ns - self._sent_ns >= self._heartbeat_ns:
            self._acknowledge(always=True)

    def _take(self, message: Message) -> bool:
        """Handle a message; return whether it appended something."""
        if isinstance(message, Data):
            self._take_data(message)
            return True
        if isinstance(message, Heartbeat):
            self._heard(message.master_end, message.confirm_offset, message.now_ms)
            self._acknowledge(always=True)
        elif isinstance(message, Welcome):
            self._take_welcome(message)
        elif isinstance(message, Refused):
            self._report("slave_refused_by_master", f"{message.code}: {message.text}")
            raise TransportError("HA connection closed", why=f"the master refuses: {message.code}: {message.text}")
        elif isinstance(message, Fetch):
            self._serve_fetch(message)
        return False

    # ---- the handshake

    def _take_welcome(self, welcome: Welcome) -> None:
        log, state = self._store.log, self._state
        end = log.appended_offset
        view = SlaveView(
            epochs=state.epochs.cut(end),
            min_offset=self._min_offset(),
            end_offset=end,
            segment_bytes=log.segment_bytes,
            confirmed_offset=self.confirmed_offset,
            accept_loss=self._accept_loss or state.accept_loss,
        )
        try:
            decision = judge_welcome(welcome, view)
            check_number(max(welcome.epoch, decision.epochs.last_number), state.highest_known, state.known_elsewhere)
        except WelcomeRefused as error:
            self._report("slave_refuses_master", str(error))
            raise
        if decision.step is Step.SERVE:
            if not state.may_follow(welcome.epoch, welcome.owner):
                why = f"the master recovers in epoch {welcome.epoch}, but epoch {state.promised_epoch} was promised"
                raise TransportError("HA connection closed", why=why)
            self._decoder.kinds = _SERVING
            self._log.info("master_recovers", master=self._address, end_offset=end, master_end=welcome.end_offset)
            return
        confirms = welcome.role == "SYNC_MASTER" and welcome.in_sync_replicas == 2
        confirms = confirms and (welcome.counted or state.acks_confirm)
        with self._take_lock:
            # A cut still depends on what this slave's acknowledgements meant to its former master.
            confirms_now = confirms if decision.step in (Step.FOLLOW, Step.START_AT) else state.acks_confirm
            group = GroupRule(welcome.role, welcome.in_sync_replicas, welcome.total_replicas)
            if not state.follow(
                welcome.epoch, welcome.owner, acks_confirm=confirms_now, group=group, counted=welcome.counted
            ):
                why = f"epoch {state.promised_epoch} was promised to {state.promised_owner}"
                self._report("slave_refuses_master", f"{self._address} has epoch {welcome.epoch}: {why}")
                raise TransportError("HA connection closed", why=f"the master has epoch {welcome.epoch}, but {why}")
            if decision.step in (Step.CUT, Step.DROP):
                self._order(decision, view)
                return
            if decision.step is Step.START_AT:
                self._store.start_at(decision.offset)
                self._log.warning("slave_restarts_from_oldest", start_offset=decision.offset, why=decision.why)
            state.set_epochs(decision.epochs.cut(decision.offset))
            self._epoch = (welcome.epoch, welcome.owner)
            self._followed = FollowedMaster(welcome.epoch, welcome.owner, welcome.address)
            self._master_epochs = decision.epochs
            self._is_synchronous = welcome.role == "SYNC_MASTER"
            self._following = True
        self._decoder.kinds = frozenset({wire.DATA, wire.HEARTBEAT})
        self._last_error = self._reported = ""
        self._connects += 1
        self._heard(welcome.end_offset, welcome.confirm_offset, 0)
        self._log.info(
            "slave_follows",
            master=self._address,
            epoch=welcome.epoch,
            start_offset=decision.offset,
            behind_bytes=welcome.end_offset - decision.offset,
        )
        if self._ack_policy == "FLUSHED":
            log.flush()
        self._acknowledge(always=True)
        self._check_settings(group)

    def _check_settings(self, group: GroupRule) -> None:
        config = self._store.config
        own = (config.in_sync_replicas, config.total_replicas)
        if own != group[1:] and group != self._differs_from:
            self._differs_from = group
            self._log.warning(
                "replication_settings_differ",
                in_sync_replicas=own[0],
                total_replicas=own[1],
                master_in_sync_replicas=group.in_sync_replicas,
                master_total_replicas=group.total_replicas,
                what_to_do="set them as on the master: after a promotion this node's own settings apply",
            )

    def _order(self, decision: Decision, view: SlaveView) -> None:
        """Order the next start of the store to cut or drop the log."""
        if decision.step is Step.CUT:
            self._state.order_cut(decision.offset)
            self._log.warning(
                "slave_log_cut",
                from_offset=decision.offset,
                to_offset=view.end_offset,
                cut_bytes=view.end_offset - decision.offset,
                epoch=view.epochs.last_number,
                master_epoch=decision.epochs.last_number,
                confirmed_offset=view.confirmed_offset,
                why=decision.why,
            )
        else:
            self._state.order_drop()
            self._log.warning(
                "slave_restarts_from_oldest",
                from_offset=view.min_offset,
                to_offset=view.end_offset,
                start_offset=decision.offset,
                why=decision.why,
            )
        self._waits_for_restart = True
        self._disconnect(f"the log must be cut to {decision.offset}: {decision.why}")
        self._on_reopen()

    # ---- the stream

    def _take_data(self, data: Data) -> None:
        end = data.offset + len(data.body)
        segment_bytes = self._store.log.segment_bytes
        if crc32(data.body) != data.crc:
            raise HaProtocolError(
                "HA connection closed", why=f"[{data.offset}, {end}) was corrupted in transit: its CRC differs"
            )
        if data.offset // segment_bytes != (end - 1) // segment_bytes:
            raise HaProtocolError("HA connection closed", why=f"[{data.offset}, {end}) crosses the end of a segment")
        with self._take_lock:
            if not self._following:
                raise TransportError("HA connection closed", why=f"a newer epoch was promised than {self._epoch[0]}")
            if data.offset != self._appender.expected_offset:
                raise HaProtocolError(
                    "HA connection closed",
                    why=f"the master sends {data.offset}, but the slave expects {self._appender.expected_offset}",
                )
            self._adopt_epochs(end)
            self._appender.take(data.offset, data.body)
        self._received_bytes += len(data.body)
        self._heard(data.master_end, data.confirm_offset, data.now_ms)

    def _adopt_epochs(self, end: int) -> None:
        """Adopt, durably, the epochs that begin before ``end``, before their bytes are appended: a log must never hold
        bytes of an epoch that its table does not name.
        """
        epochs = self._master_epochs
        if self._state.epochs.last_number < epochs.last_number:
            self._state.set_epochs(epochs.cut(end))

    def _heard(self, master_end: int, confirm_offset: int, now_ms: int) -> None:
        self._master_end, self._master_now_ms = master_end, now_ms
        if self._is_synchronous and self._following:
            self._announced = max(self._announced, min(confirm_offset, self._store.log.appended_offset))

    def _acknowledge(self, *, always: bool = False) -> None:
        """Acknowledge what this slave holds according to its policy, if the master does not know it yet."""
        log = self._store.log
        if self._ack_policy == "FLUSHED":
            if log.flushed_offset < log.committed_offset:
                log.flush()
            flushed = log.flushed_offset
            offset = flushed
        else:
            flushed, offset = log.flushed_offset, log.committed_offset
        ack = Ack(offset, flushed, self._master_now_ms)
        if always or self._ack is None or ack.offset != self._ack.offset:
            self._send(wire.encode_ack(ack))
            self._ack = ack

    def _send(self, frame: bytes) -> None:
        transport = self._transport
        assert transport is not None
        left = memoryview(frame)
        deadline_ns = self._clock.monotonic_ns() + self._housekeeping_ns
        while left:
            left = left[transport.send([left]) :]
            if left:
                wait_ns = deadline_ns - self._clock.monotonic_ns()
                if self._stopping or wait_ns <= 0:
                    raise TransportError("HA connection closed", why="the master does not read")
                transport.wait_writable(min(RECEIVE_WAIT_MS, wait_ns / _NS_PER_MS))
        self._sent_ns = self._clock.monotonic_ns()

    def _note_confirmed(self, now_ns: int) -> None:
        self._noted_ns = now_ns
        if self._announced > self._state.confirmed_offset:
            self._state.note_confirmed(self._announced)

    # ---- a master that recovers

    def _serve_fetch(self, fetch: Fetch) -> None:
        """Send the requested range, as far as this log has it."""
        log = self._store.log
        at, end = max(fetch.from_offset, 0), min(fetch.to_offset, log.committed_offset)
        if at < log.min_offset:
            end = at
        try:
            while at < end:
                border = (at // log.segment_bytes + 1) * log.segment_bytes
                body = np.empty(min(FETCHED_BYTES, end - at, border - at), np.uint8)
                log.read_into(at, body)
                self._send(wire.encode_fetched_head(at, crc32(body.data), len(body)) + body.tobytes())
                at += len(body)
        except OffsetOutOfRange:  # retention has removed it
            pass
        if at < fetch.to_offset:
            self._send(wire.encode_fetched_head(at, 0, 0))

    # ---- failures

    def _report(self, event: str, why: str) -> None:
        """Log it once, not at each attempt."""
        if why != self._reported:
            self._reported = why
            self._log.error(event, master=self._address, why=why)

    def _failed(self, error: StoreError) -> None:
        if isinstance(error, (WelcomeRefused, BadEpochs)):
            self._retry_ms = RETRY_MS_MAX
            self._disconnect(str(error))
            return
        if self._sick is None:
            self._log.error(
                "slave_disk_failed",
                error=str(error),
                end_offset=self._store.log.appended_offset,
                what_to_do="the master no longer waits for this slave; it follows again by itself when its disk works, "
                "but after a failed sync only after a restart",
            )
        self._sick = error
        self._retry_ms = SICK_RETRY_MS
        self._disconnect(str(error))
        self._appender.dispatch()  # bytes appended before the disk failed

    def _try_disk(self) -> None:
        """Append the bytes that the disk refused, or raise again."""
        self._appender.retry()
        self._state.check_writable()
        self._appender.dispatch()
        self._sick = None
        self._retry_ms = RETRY_MS_MIN
        self._log.info("slave_disk_works_again", end_offset=self._store.log.appended_offset)

    def _disconnect(self, why: str) -> None:
        transport, self._transport = self._transport, None
        was_following, self._following = self._following, False
        self._last_error = why
        if transport is not None:
            transport.close()
        if was_following and not self._stopping:
            self._log.warning(
                "slave_lost_master", master=self._address, why=why, end_offset=self._store.log.appended_offset
            )


_SERVING: Final = frozenset({wire.FETCH})
