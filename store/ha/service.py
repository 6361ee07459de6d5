"""The master's side of replication: the HA port, the slaves and their confirmations.

Lives here: ``HaService``: accepts slaves, counts confirmations, records the followers, fences, reports its status.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from pocketmq.common.epochs import highest_allowed
from pocketmq.common.errors import ConfigError, PocketMQError
from pocketmq.common.runner import Worker
from pocketmq.store.config import StoreConfig
from pocketmq.store.ha import rocketmq_protocol
from pocketmq.store.ha.connection import SlaveConnection
from pocketmq.store.ha.crowd import MADE_ROOM, PEERS_MAX, makes_room
from pocketmq.store.ha.environment import HaEnvironment
from pocketmq.store.ha.epochs import Epoch, EpochTable
from pocketmq.store.ha.group_transfer import GroupTransfer
from pocketmq.store.ha.handshake import MasterView, answer_hello
from pocketmq.store.ha.members import COUNT_WITHIN_BYTES, Members
from pocketmq.store.ha.proved_transport import proved
from pocketmq.store.ha.shown import Shown
from pocketmq.store.ha.state import FencedBy
from pocketmq.store.ha.status import HaStatus
from pocketmq.store.ha.tls_transport import with_tls
from pocketmq.store.ha.transport import Listener, Transport, host_of, listen
from pocketmq.store.ha.wire import HaProtocolError, Hello, RefusalCode, Refused, Welcome
from pocketmq.store.waiters import Done

ASYNC_SLAVES_MAX: Final = 16
"""Maximum number of slaves of a master that does not wait for them."""
ACCEPT_WAIT_MS: Final = 500.0
NOTE_EVERY_NS: Final = 1_000_000_000
COUNT_AGAIN_NS: Final = 3_000_000_000
"""How long a slave that could not be counted, because name servers did not answer, receives the log uncounted."""
REPORT_EVERY_NS: Final = 1_000_000_000
"""Refused connections without a hello: at most ``REPORTS_MAX`` are logged in this time, one if they are a crowd."""
REPORTS_MAX: Final = 8
CROWDED: Final = f"more than {PEERS_MAX} connections"
_NS_PER_MS: Final = 1_000_000


class HaService:
    """Serves slaves, from ``start`` to ``stop``. One run is one epoch.

    Thread-safe. ``wait``, ``is_slave_ok``, ``committed`` and ``status`` never block and touch no disk; the rest is for
    workers. ``on_fenced`` is called once, in the thread that detects the fence.
    """

    transfer_class: ClassVar[type[GroupTransfer]] = GroupTransfer
    """How sends wait; ``pocketmq scenario slave-readonly`` sets RocketMQ's way here, in its own processes."""

    def __init__(self, environment: HaEnvironment, *, address: str = "") -> None:
        """``environment.store.config.broker_role`` is the role of this run. ``address``: where this broker serves
        clients, host:port; slaves get it with the welcome."""
        config = environment.store.config
        assert config.broker_role != "SLAVE", "a slave serves no other slave"
        self.is_synchronous = config.broker_role == "SYNC_MASTER"
        self.confirmed_offset = environment.state.confirmed_offset
        """The highest offset that enough slaves have ever confirmed. Never decreases."""
        self.on_fenced: Callable[[FencedBy], None] | None = None
        self.refused = 0
        self._environment = environment
        self._config = config
        self._store = environment.store
        self._state = environment.state
        self._address = address
        self._clock = environment.clock
        self._log = environment.log
        self._fallbehind_bytes = config.ha_slave_fallbehind_max
        self._slaves_needed = config.in_sync_replicas - 1
        self._count_within_bytes = min(self._fallbehind_bytes, COUNT_WITHIN_BYTES)
        self.members = Members(environment)
        self._rocketmq_networks = config.rocketmq_slave_networks()
        self._listener: Listener | None = None
        self._worker: Worker | None = None
        self._lock = threading.Lock()  # never held over I/O
        self._hello_lock = threading.Lock()  # held over I/O: slaves are welcomed one at a time
        self._numbers = 0
        self._peers: set[SlaveConnection] = set()
        self._slaves: dict[str, SlaveConnection] = {}  # by node id, welcomed
        self._streams: tuple[SlaveConnection, ...] = ()  # all that are served
        self._counted: tuple[SlaveConnection, ...] = ()  # those whose acknowledgements count
        self._confirmed_now = -1  # by those connected at present
        self._to_reap: deque[SlaveConnection] = deque()
        self._note_from_ns = 0
        self._report_from_ns = 0
        self._reports_left = 0
        self._beyond = 0
        self._is_note_failing = False
        self._epoch: Epoch | None = None
        self._epochs = EpochTable()
        self._fenced_by: FencedBy | None = None
        self.transfer = self.transfer_class(
            self._clock, config.slave_timeout, lambda: self._confirmed_now, self.is_slave_ok, self._log
        )
        self.shown = Shown(self, self._store, self._clock, self._log, config.slave_timeout)

    # ---- life

    def open_port(self, bind_address: str, port: int, open_listener: Callable[[str, int], Listener] = listen) -> int:
        """Listen, without serving connections yet; return the port. ``port`` -1 lets the system choose. Raises
        ``ConfigError``."""
        assert self._listener is None
        listener = with_tls(open_listener(bind_address, max(0, port)), self._environment.tls)
        self._listener = proved(listener, self._environment.secret)
        return self._listener.port

    @property
    def port(self) -> int:
        """Where slaves connect, 0 before ``open_port``."""
        return 0 if self._listener is None else self._listener.port

    def start(self) -> Epoch:
        """Open this run's epoch at the end of the log, then serve; return the epoch.

        Call it after the store was opened and before it takes messages. Raises ``HaFenced`` and ``StoreError``.
        """
        assert self._listener is not None, "open_port comes first"
        log = self._store.log
        if not len(self._state.epochs) and log.committed_offset > 0:
            # Messages from before this store was replicated: without an epoch for them, a slave that has copied only
            # some would share no epoch with the master and be refused.
            self._state.set_epochs(EpochTable([Epoch(1, self._state.new_owner(), 0)]))
        last = self._state.epochs.last
        was_promoted = last is not None and not self._state.is_own(last.owner)
        if self.is_synchronous:
            rule, count_max = self.members.rule, self.members.count_max
            if self._state.needs_new_members(rule, count_max):
                log.flush()  # slaves that lose their place are no longer asked for it
            self._epoch = self._state.open_epoch(log.committed_offset, rule=rule, count_max=count_max)
        else:
            self._epoch = self._state.open_epoch(log.committed_offset)
        self._epochs = self._state.epochs
        self._store.set_epoch(self._epoch.number)
        self._log.info(
            "epoch_opened",
            epoch=self._epoch.number,
            owner=self._epoch.owner,
            start_offset=self._epoch.start_offset,
            role=self._config.broker_role,
        )
        self.transfer.start(self._environment.runner)
        self._store.replicas = self
        self._store.gate.changed()
        if self.is_synchronous:
            self.shown.start(self._environment.runner, was_promoted=was_promoted)
        self._worker = self._environment.runner.start("ha-service", self.step)
        return self._epoch

    def stop(self) -> None:
        """Close all connections and the port. Waiting sends get FLUSH_SLAVE_TIMEOUT. A second call does nothing."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        listener.close()
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
        log = self._store.log
        if self.committed in log.on_committed:
            log.on_committed.remove(self.committed)
        with self._lock:
            peers = list(self._peers)
        self._note(force=True)
        for connection in peers:
            connection.stop()
        with self._lock:
            self._peers.clear()
            self._slaves.clear()
            self._recount()
        self._reap()
        self.transfer.stop()
        self.shown.stop()

    # ---- called by ``Shown`` (Leader)

    @property
    def is_followed(self) -> bool:
        """Whether as many counted slaves are connected as a send waits for."""
        return len(self._counted) >= self._slaves_needed

    @property
    def epoch(self) -> Epoch | None:
        """The epoch of this run."""
        return self._epoch

    # ---- called by the store (Replicas)

    @property
    def is_fenced(self) -> bool:
        """Whether another node has taken this one's place."""
        return self.transfer.is_fenced

    def wait(self, end_offset: int, done: Done) -> None:
        """See ``Replicas.wait``."""
        self.transfer.wait(end_offset, done)

    def committed(self) -> None:
        """Forward newly committed bytes, in the thread that committed them."""
        for connection in self._streams:
            connection.push()

    def is_slave_ok(self, end_offset: int) -> bool:
        """Return whether enough connected slaves are less than ``ha_slave_fallbehind_max`` behind ``end_offset``
        (RocketMQ HAService.isSlaveOK; here per live connection, and as many as ``in_sync_replicas`` needs).
        """
        needed = self._slaves_needed
        for connection in self._counted:
            if end_offset - connection.ack_offset < self._fallbehind_bytes:
                needed -= 1
                if needed <= 0:
                    return True
        return needed <= 0

    # ---- the worker

    def step(self) -> float | None:
        """Accept a connection, release ended ones, record the followers."""
        listener = self._listener
        if listener is None:
            return None
        self._reap()  # first: accepting needs free descriptors, and this releases some
        self._note()
        try:
            transport = listener.accept(ACCEPT_WAIT_MS)
        except PocketMQError as error:
            if self._listener is None:
                return None
            self._log.error("ha_accept_failed", error=str(error))
            return ACCEPT_WAIT_MS
        if transport is not None:
            self._take(transport)
        return 0

    def _take(self, transport: Transport) -> None:
        """Serve a new connection; another one makes room for it if there are many (``crowd``)."""
        with self._lock:
            peers = [each for each in self._peers if not each.is_failing]
            out = None if self.is_fenced else makes_room(peers, transport.peer)
            is_full = self.is_fenced or (out is None and len(peers) >= PEERS_MAX)
            if not is_full:
                self._numbers += 1
                connection = SlaveConnection(self._numbers, transport, self, self._environment)
                self._peers.add(connection)
        if out is not None:
            out.fail(MADE_ROOM)
        if is_full:
            transport.close()
            self._report_refused(transport.peer, "this master was replaced" if self.is_fenced else CROWDED)
        else:
            connection.start()

    def _reap(self) -> None:
        while self._to_reap:
            self._to_reap.popleft().stop()

    def _report_refused(self, peer: str, why: str, node_id: str = "") -> None:
        """Log a refused connection; of strangers that come in a crowd a few each second, and how many there were."""
        self.refused += 1
        self._beyond += 1
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._report_from_ns:
            self._report_from_ns, self._reports_left = now_ns + REPORT_EVERY_NS, REPORTS_MAX
        is_one_of_many = why == MADE_ROOM or not node_id
        if is_one_of_many and self._reports_left <= 0:
            return
        self._reports_left -= REPORTS_MAX if why in (MADE_ROOM, CROWDED) else 1
        self._log.warning("ha_connection_refused", peer=peer, node_id=node_id[:64], why=why, connections=self._beyond)
        self._beyond = 0

    def _note(self, force: bool = False) -> None:
        """Record the followers and the confirmed offset, about once a second."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._note_from_ns and not force:
            return
        self._note_from_ns = now_ns + NOTE_EVERY_NS
        acks = {connection.node_id: connection.ack_offset for connection in self._counted}
        try:
            if acks:
                self._state.note_acks(acks)
            if self.is_synchronous:
                self._state.note_confirmed(self.confirmed_offset)
            self._is_note_failing = False
        except PocketMQError as error:
            if not self._is_note_failing:
                self._is_note_failing = True
                self._log.error("ha_state_not_written", error=str(error))
        end = self._store.log.committed_offset
        for connection in self._counted:
            in_sync = end - connection.ack_offset < self._fallbehind_bytes
            if in_sync != connection.was_in_sync:
                connection.was_in_sync = in_sync
                report = self._log.info if in_sync else self._log.warning
                report(
                    "slave_in_sync" if in_sync else "slave_fell_behind",
                    node_id=connection.node_id,
                    peer=connection.peer,
                    behind_bytes=end - connection.ack_offset,
                    fallbehind_max_bytes=self._fallbehind_bytes,
                )

    # ---- called by connections (Master)

    def hello(self, connection: SlaveConnection, hello: Hello) -> Welcome | Refused:
        """Accept or refuse a slave; see ``handshake``. May block for some seconds, for this connection only."""
        is_of_group = (hello.cluster, hello.broker_name) == (self._environment.cluster, self._environment.broker_name)
        connection.is_admitted = is_of_group and self.members.is_admitted(hello.node_id, hello.broker_id)
        with self._hello_lock:
            answer = self._answer(connection, hello)
            if not isinstance(answer, Welcome):
                return answer
            if not connection.is_admitted:
                connection.try_from_ns = self._clock.monotonic_ns() + COUNT_AGAIN_NS
                return msgspec.structs.replace(answer, counted=False)
            not_counted = msgspec.structs.replace(answer, counted=False)
            offset = min(answer.common_offset, answer.start_offset)
            if not self.is_synchronous:
                if hello.node_id not in self._state.slaves:
                    self._state.note_slaves({hello.node_id: offset})
                connection.is_counted = True
            elif self.members.add(hello.node_id, offset):
                connection.is_counted = True
            elif answer.cut_to is None and answer.end_offset - answer.start_offset < self._count_within_bytes:
                if not self._change_members(connection, offset):
                    connection.try_from_ns = self._clock.monotonic_ns() + COUNT_AGAIN_NS
                    return not_counted
                connection.is_counted = True
                answer = self._answer(connection, hello)  # with the epoch that was opened
            else:
                return not_counted
            return answer

    def _answer(self, connection: SlaveConnection, hello: Hello) -> Welcome | Refused:
        """Judge a slave; an accepted one has its place reserved."""
        log = self._store.log
        slaves_max = self._config.total_replicas - 1 if self.is_synchronous else ASYNC_SLAVES_MAX
        while True:
            with self._lock:
                if self.is_fenced:
                    return Refused(code=RefusalCode.FENCED, text="this master was replaced; ask the name server")
                before = self._slaves.get(hello.node_id)
                others = {node: other for node, other in self._slaves.items() if node != hello.node_id}
                learners = [other for other in others.values() if not other.is_counted]
                if self.members.has(hello.node_id):  # a counted slave keeps its place, whichever others have joined
                    others = {node: other for node, other in others.items() if other.is_counted}
                elif connection.is_admitted:
                    others = {node: other for node, other in others.items() if other.is_admitted}
                view = MasterView(
                    cluster=self._environment.cluster,
                    broker_name=self._environment.broker_name,
                    node_id=self._state.node_id,
                    role=self._config.broker_role,
                    segment_bytes=log.segment_bytes,
                    epochs=self._epochs,
                    min_offset=log.min_offset,
                    end_offset=log.committed_offset,
                    confirm_offset=self.confirmed_offset,
                    in_sync_replicas=self._config.in_sync_replicas,
                    total_replicas=self._config.total_replicas,
                    slaves_max=slaves_max,
                    address=self._address,
                    other_slaves=frozenset(others),
                )
                answer, higher = answer_hello(hello, view)
                if isinstance(answer, Welcome) and (before is None or before is connection):
                    self._slaves[hello.node_id] = connection
                is_over = len(self._slaves) > slaves_max
            if before is None or before is connection or isinstance(answer, Refused):
                break
            before.fail("the slave has connected again")  # the old connection may not have noticed its end yet
            self._forget(before)
        if higher is not None and connection.is_admitted:
            # Not further than a promotion goes: a false number near the end of the range would leave none.
            self.fence(min(higher.epoch, highest_allowed(self._state.highest_known)), higher.owner, "")
        if isinstance(answer, Welcome) and is_over:
            for learner in [each for each in learners if not each.is_admitted] or learners:
                learner.fail("the slave whose place it was to take is back")
                self._forget(learner)
        return answer

    def _change_members(self, connection: SlaveConnection, offset: int) -> bool:
        """Open an epoch that counts this slave in place of an absent one; return whether that succeeded. See
        ``members``.
        """
        node_id = connection.node_id
        with self._lock:
            others = [other for other in self._slaves.values() if other is not connection]
        kept, gone = self.members.without_gone({other.node_id for other in others}, node_id)
        reserved = self.members.reserve(node_id, gone)
        if reserved is None:
            return False
        # After a power loss, removed slaves are no longer asked for what they confirmed: it must be on this disk.
        self._store.log.flush()
        for other in others:  # they must have the epoch before they receive a byte beyond its start
            other.cut("a new epoch begins, with another slave: connect again")
            self._forget(other)
        epoch = self._state.open_members(*reserved, self._store.log.committed_offset, kept | {node_id: offset})
        self.members.opened()
        with self._lock:
            self._epoch, self._epochs = epoch, self._state.epochs
        self._log.warning(
            "slave_replaced",
            node_id=node_id,
            gone=gone,
            epoch=epoch.number,
            owner=epoch.owner,
            start_offset=epoch.start_offset,
            hint="do not promote a replaced node (it takes --force): it lacks messages confirmed from now on",
        )
        return True

    def rocketmq_report(self, connection: SlaveConnection, offset: int) -> int:
        """Let a RocketMQ slave follow if its address is allowed."""
        host = host_of(connection.peer)
        if host is None or not any(host in network for network in self._rocketmq_networks):
            raise HaProtocolError(
                "HA connection closed",
                why=f"{connection.peer} speaks RocketMQ's HA protocol and is not in ha_rocketmq_allowed_slaves",
            )
        log = self._store.log
        start = rocketmq_protocol.start_offset(offset, log.committed_offset, log.segment_bytes)
        if not log.min_offset <= start <= log.committed_offset:
            raise HaProtocolError(
                "HA connection closed",
                why=f"the slave reports offset {offset}, but the log is [{log.min_offset}, {log.committed_offset})",
            )
        with self._lock:
            count = sum(other.protocol == "rocketmq" for other in self._streams)
        if count >= ASYNC_SLAVES_MAX:
            raise HaProtocolError("HA connection closed", why=f"{count} slaves speak RocketMQ's protocol already")
        return start

    def joined(self, connection: SlaveConnection) -> None:
        """Add a slave whose stream begins."""
        with self._lock:
            if self._slaves.get(connection.node_id) is connection or connection.protocol == "rocketmq":
                self._serve((*self._streams, connection))
                if connection.is_counted:
                    self._counted = (*self._counted, connection)
                self._recount()
        self._log.info(
            "slave_connected",
            peer=connection.peer,
            node_id=connection.node_id,
            broker_id=connection.broker_id,
            protocol=connection.protocol,
            offset=connection.ack_offset,
            behind_bytes=self._store.log.committed_offset - connection.ack_offset,
            is_counted=connection.is_counted,
        )

    def acked(self, connection: SlaveConnection) -> None:
        """Answer the sends that waited for the offset confirmed now."""
        if not connection.is_counted:
            lacks_bytes = self._store.log.committed_offset - connection.ack_offset
            may_try = connection.protocol == "pocketmq" and self._clock.monotonic_ns() >= connection.try_from_ns
            if may_try and 2 * lacks_bytes < self._count_within_bytes:
                connection.fail("the slave has caught up: its next connection is counted")
            return
        with self._lock:
            self._recount()
            confirmed = self._confirmed_now
        if len(self.transfer.waiters):
            self.transfer.release(confirmed)
        if self.is_synchronous:
            self.shown.moved()

    def _recount(self) -> None:
        """Compute the offset that enough connected slaves have. Under the lock."""
        needed = max(1, self._slaves_needed)
        if len(self._counted) < needed:
            self._confirmed_now = -1
            return
        acks = sorted([connection.ack_offset for connection in self._counted], reverse=True)
        self._confirmed_now = acks[needed - 1]
        if self.is_synchronous and self._confirmed_now > self.confirmed_offset:
            self.confirmed_offset = self._confirmed_now

    def ended(self, connection: SlaveConnection, why: str, refused: bool) -> None:
        """Remove a slave; log why it left."""
        self._forget(connection)
        with self._lock:
            self._peers.discard(connection)
        self._to_reap.append(connection)
        if refused:
            self._report_refused(connection.peer, why, connection.node_id)
        else:
            self._log.warning(
                "slave_disconnected",
                peer=connection.peer,
                node_id=connection.node_id,
                ack_offset=connection.ack_offset,
                behind_bytes=self._store.log.committed_offset - connection.ack_offset,
                why=why,
            )

    def _serve(self, streams: tuple[SlaveConnection, ...]) -> None:
        """Serve these slaves from now on; without one an append does not call for them."""
        log = self._store.log
        self._streams = streams
        others = [callback for callback in log.on_committed if callback != self.committed]
        log.on_committed = [*others, self.committed] if streams else others

    def _forget(self, connection: SlaveConnection) -> None:
        with self._lock:
            if self._slaves.get(connection.node_id) is connection:
                del self._slaves[connection.node_id]
            self._serve(tuple(other for other in self._streams if other is not connection))
            self._counted = tuple(other for other in self._counted if other is not connection)
            self._recount()
            is_alone = self._confirmed_now < 0
        if is_alone:
            self.transfer.give_up()
        if self.is_synchronous and not self.is_fenced:
            self.shown.moved()

    # ---- fencing

    def fence(self, epoch: int, owner: str, address: str) -> bool:
        """Promise a higher epoch to another node and acknowledge nothing from now on; return whether the promise was
        made (False: it is not newer than the last one, nothing has changed). Durable before True is returned.

        Writes to disk. Raises ``StoreError`` when the promise could not be written; this node then acknowledges nothing
        until it is restarted.
        """
        try:
            if not self._state.fence(epoch, owner, address):
                return False
        except PocketMQError:
            self._fence_now(FencedBy(epoch, owner, address))
            raise
        self._fence_now(FencedBy(epoch, owner, address))
        return True

    def _fence_now(self, by: FencedBy) -> None:
        with self._lock:
            is_first, self._fenced_by = not self.is_fenced, by
            self.transfer.is_fenced = True
            self._store.gate.changed()
            streams = self._streams
        self.transfer.fence()
        if not is_first:
            return
        self._log.error(
            "master_fenced",
            epoch=by.epoch,
            owner=by.owner,
            address=by.address,
            own_epoch=self._epochs.last_number,
            end_offset=self._store.log.committed_offset,
            confirmed_offset=self.confirmed_offset,
            hint="another node leads now; make this one its slave with: pocketmq ha demote",
        )
        if self.is_synchronous:
            self.shown.fenced()
        for connection in streams:
            connection.fail("this master was replaced")
        if self.on_fenced is not None:
            self.on_fenced(by)

    # ---- status

    def status(self) -> HaStatus:
        """Return what the master knows about its slaves."""
        end = self._store.log.committed_offset
        now_ns, now_ms = self._clock.monotonic_ns(), self._clock.now_ms()
        counted = set(self._counted)
        slaves = [
            connection.status(end, now_ns, now_ms, connection in counted, self._fallbehind_bytes)
            for connection in self._streams
        ]
        epoch = self._epoch
        return HaStatus(
            role=self._config.broker_role,
            epoch=0 if epoch is None else epoch.number,
            owner="" if epoch is None else epoch.owner,
            end_offset=end,
            confirmed_offset=self.confirmed_offset,
            in_sync_count=1 + sum(slave.is_in_sync for slave in slaves),
            in_sync_replicas=self._config.in_sync_replicas,
            total_replicas=self._config.total_replicas,
            slaves=slaves,
            waiters=len(self.transfer.waiters),
            served=self.transfer.served,
            timeouts=self.transfer.timeouts,
            not_available=self.transfer.not_available,
            refused=self.refused,
            fenced_by=self._fenced_by or self._state.fenced_by,
        )


def port_of(config: StoreConfig, broker_port: int) -> int:
    """Return the port for ``open_port``: ``ha_listen_port``, or the broker's + 1 (RocketMQ). Raises ``ConfigError``."""
    port = config.ha_listen_port or broker_port + 1
    if port > 65_535:
        raise ConfigError(
            "HA port not opened",
            why=f"{port} is above 65535",
            hint="set store.ha_listen_port, or a lower broker port",
        )
    return port
