"""Check half messages that wait for too long with their producers, and give them up at the limit.

Lives here: ``TransactionService``: the check thread, its rounds and limits; the progress on disk; statistics.

Written progress is never ahead of the disk: the ends of all half messages below it are durable. So after a crash a half
message may be checked once more, and none is forgotten.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from pocketmq.auth.guard import AuthGuard
from pocketmq.auth.needed import resource_of
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.persisted_table import PersistedTable
from pocketmq.broker.topic.topic_table import TableFull
from pocketmq.broker.transaction.transaction_records import HalfIllegal, HalfRecords
from pocketmq.broker.transaction.transaction_recovery import NeedTopic, TransactionProgress, recover
from pocketmq.broker.transaction.transaction_table import Half, Outcome, TransactionTable, in_order
from pocketmq.broker.transaction.transaction_writer import TransactionWriter
from pocketmq.common.clock import Clock, SteadyTime
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.message_id import offset_msg_id
from pocketmq.common.record import UNIQ_KEY
from pocketmq.common.record_codec import decode_record
from pocketmq.common.record_group import RecordMeta
from pocketmq.common.runner import LoopMailbox, Runner, Worker
from pocketmq.common.topics import HALF_TOPIC, OP_HALF_TOPIC
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import PUB, Resource
from pocketmq.remoting.protocol.transaction import CheckTransactionStateRequestHeader
from pocketmq.remoting.server import Connection
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.message_store import MessageStore

PROGRESS_FILE: Final = "pocketmq/transactionProgress.json"
TRANS_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group under which RocketMQ keeps its progress (TransactionalMessageUtil.buildConsumerGroup)."""
STEP_MS: Final = 1000.0
CHECKS_MAX: Final = 2000
"""Checks sent to one connection in one round: the capacity of RocketMQ's client (TransactionMQProducer)."""
CHECK_BYTES_MAX: Final = 8 << 20
"""Bytes of the checks sent to one connection in one round."""
READ_HALVES: Final = 64
ROUND_NS_MAX: Final = 60_000_000_000
"""Longest round; the other half messages wait for the next one (RocketMQ: 60 s a queue)."""
HOUR_MS: Final = 3_600_000


class CheckPort(Protocol):
    """Sends checks to producers."""

    def producers(self, group: str) -> list[Connection]:
        """Return the connections of a producer group."""
        ...

    def may_see(self, connection: Connection, topic: str) -> bool:
        """Return whether the user of a connection may see half messages for ``topic``."""
        ...

    def send(self, connection: Connection, header: CheckTransactionStateRequestHeader, body: bytes) -> None:
        """Send CHECK_TRANSACTION_STATE, soon."""
        ...


@dataclass(slots=True, eq=False)
class ProducerPort:
    """The producers that are connected to this broker."""

    clients: ClientTable[Connection]
    mailbox: LoopMailbox
    guard: AuthGuard | None = None

    def producers(self, group: str) -> list[Connection]:
        """Return the open connections of a producer group."""
        return [client.connection for client in self.clients.producers(group) if not client.connection.closed]

    def may_see(self, connection: Connection, topic: str) -> bool:
        """Return whether the connection's user may send to ``topic``. Any user can call itself a producer of any group,
        and a check carries the whole message."""
        if self.guard is None or connection.speaker is None:
            return True
        session = self.guard.present(connection.speaker)
        return session is not None and session.may(*resource_of(Resource.TOPIC, topic, PUB))

    def send(self, connection: Connection, header: CheckTransactionStateRequestHeader, body: bytes) -> None:
        """Send a oneway request in the loop's thread."""
        self.mailbox.post(connection.send_oneway, RequestCode.CHECK_TRANSACTION_STATE, header, body)


@dataclass(slots=True)
class _Snapshot:
    """Progress of one moment, safe to write once the log is durable up to ``end_offset``."""

    half_offset: int
    op_offset: int
    checks: dict[int, int]
    end_offset: int


@dataclass(slots=True)
class _Sent:
    """The checks sent to one connection in this round."""

    count: int = 0
    size_bytes: int = 0


@dataclass(slots=True, eq=False)
class TransactionService:
    """Runs on masters only. ``open``, ``start``, ``stop`` in this order; statistics may be read from any thread."""

    config: BrokerConfig
    store: MessageStore
    table: TransactionTable
    writer: TransactionWriter
    port: CheckPort
    offsets: ConsumerOffsets
    file_system: FileSystem
    clock: Clock
    log: EventLog
    is_held: Callable[[], bool] = lambda: False
    """Returns whether writes are forbidden now, because another master leads or is about to."""
    need: NeedTopic = lambda topic, queue_id, physical_offset: None
    """Called with what the transactions that a start finds open will be delivered to."""
    progress: TransactionProgress = field(default_factory=TransactionProgress)
    checks: int = 0
    """Checks sent to producers."""
    checks_without_producer: int = 0
    """Times that a half message was due for a check and no producer of its group was connected."""
    rounds: int = 0
    _file: PersistedTable = field(init=False)
    _snapshot: _Snapshot | None = None
    _persist_due_ns: int = 0
    _round_due_ns: int = 0
    _turns: dict[str, int] = field(default_factory=dict)
    _records: HalfRecords | None = None
    _worker: Worker | None = None
    _time: SteadyTime = field(init=False)
    _last_round_ms: int = field(init=False)

    def __post_init__(self) -> None:
        path, durable = f"{self.store.config.store_path_root_dir}/{PROGRESS_FILE}", self.store.config.sync_on_close
        self._time = SteadyTime(self.clock)
        self._last_round_ms = self._time.now_ms()
        self._file = PersistedTable(self.progress, path, self.file_system, self.log, durable=durable)

    # ---- life

    def open(self) -> None:
        """Find the open transactions. Blocks. Raises ``CorruptRecord``, ``StoreError``."""
        self._file.load()
        progress = self.progress
        half_offset, op_offset = progress.half_offset, progress.op_offset
        known = self.offsets.query(TRANS_GROUP, HALF_TOPIC, 0), self.offsets.query(TRANS_GROUP, OP_HALF_TOPIC, 0)
        group_half, group_op = (-1 if each is None else each for each in known)
        # Ahead of ours: a RocketMQ broker has used the store since, and has stored some half messages again.
        if half_offset < 0 or op_offset < 0 or (group_op >= 0 and group_half > half_offset):
            half_offset, op_offset = group_half, group_op
        recover(self.store, self.table, half_offset, op_offset, progress.checks, self.log, self.need)

    def start(self, runner: Runner) -> None:
        """Begin to check, one interval from now; keep retention from open half messages."""
        retention = self.store.retention
        retention.wanted_from = _lower(retention.wanted_from, self.wanted_from)
        now_ns = self.clock.monotonic_ns()
        self._round_due_ns = now_ns + self.config.transaction_check_interval * 1_000_000
        self._persist_due_ns = now_ns + self.config.flush_consumer_offset_interval * 1_000_000
        first_ms = min(STEP_MS, float(self.config.transaction_check_interval))
        self._worker = runner.start("TransactionCheck", self.step, first_after_ms=first_ms)

    def stop(self) -> None:
        """Stop the thread, write the progress. Blocks; the store is still open."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        if not worker.stop():
            self.log.error("transaction_check_hangs", what_to_do="check the disk; the next start reads more")
            return
        self.persist()

    def check_now(self) -> None:
        """Begin a round of checks now: the clock was moved. Any thread."""
        self._round_due_ns = 0
        if self._worker is not None:
            self._worker.wake()

    # ---- the thread

    def step(self) -> float:
        """Do what is due; return the ms until the next step."""
        if self.is_held():
            return STEP_MS
        now_ns = self.clock.monotonic_ns()
        interval_ns = self.config.transaction_check_interval * 1_000_000  # it can change while the broker runs
        self._round_due_ns = min(self._round_due_ns, now_ns + interval_ns)
        try:
            if now_ns >= self._round_due_ns:
                self._round_due_ns = now_ns + interval_ns
                self.run_round()
            self._settle()
            if now_ns >= self._persist_due_ns:
                self._persist_due_ns = now_ns + self.config.flush_consumer_offset_interval * 1_000_000
                if self._snapshot is None:
                    self._snapshot = self._take()
        except Exception as error:  # the next round tries again, whatever it was
            self.log.error("transaction_check_failed", error=str(error) or repr(error))
        left_ms = (self._round_due_ns - self.clock.monotonic_ns()) / 1e6
        return min(STEP_MS, max(1.0, left_ms))

    def run_round(self) -> None:
        """Check each half message that is old enough, once; give up those beyond the limits."""
        self.rounds += 1
        now_ms, until_ns = self._time.now_ms(), self.clock.monotonic_ns() + ROUND_NS_MAX
        last_ms, self._last_round_ms = self._last_round_ms, now_ms
        age_max_ms = self.store.config.file_reserved_time * HOUR_MS
        due: list[Half] = []
        beyond: list[Half] = []
        for half in self.table.pending():
            if not half.since_ms:  # it came since the last round; the log's times follow a clock that was set
                first_ms = half.store_ms if half.recovered else max(half.store_ms, last_ms)
                half.since_ms = min(first_ms, now_ms)
            age_ms = now_ms - half.since_ms
            if half.checks >= self.config.transaction_check_max or age_ms > age_max_ms:
                beyond.append(half)
            elif age_ms >= (half.immunity_ms or self.config.transaction_time_out):
                due.append(half)
        for part in self._parts(beyond):
            self._give_up(part)
        sent: dict[Connection, _Sent] = {}
        alone: dict[str, int] = {}
        for part in self._parts(due):
            if self.clock.monotonic_ns() > until_ns:
                self.log.warning("transaction_check_round_cut", open=len(self.table))
                break
            self._check(part, sent, alone)
        for group, count in alone.items():
            self.log.warning(
                "transaction_check_without_producer",
                group=group,
                half_messages=count,
                what_to_do="start a producer of this group; none of them is given up while the table has room",
            )
        self._give_up_orphans(now_ms)

    def _give_up_orphans(self, now_ms: int) -> None:
        """Make room for transactions that can be decided, where too many cannot: nobody knows their decision."""
        orphans = self.table.orphans(now_ms)
        if orphans:
            for part in self._parts(orphans):
                self._give_up(part)
            self.log.error(
                "half_messages_without_producer_given_up",
                half_messages=len(orphans),
                open=len(self.table),
                what_to_do="raise broker.transaction_pending_max, or end them by hand: pocketmq transaction end",
            )

    def _parts(self, halves: list[Half]) -> list[list[Half]]:
        """Return parts of bounded count and size."""
        parts: list[list[Half]] = []
        size_bytes = self.writer.group_bytes_max
        for half in in_order(halves):
            if size_bytes >= self.writer.group_bytes_max or len(parts[-1]) == READ_HALVES:
                parts.append([])
                size_bytes = 0
            parts[-1].append(half)
            size_bytes += half.size_bytes
        return parts

    def _half_records(self) -> HalfRecords:
        if self._records is None:
            self._records = HalfRecords(self.store.store_host)
        return self._records

    def _check(self, halves: list[Half], sent: dict[Connection, _Sent], alone: dict[str, int]) -> None:
        asked: list[tuple[Half, Connection]] = []
        for half in halves:
            connection = self._next_producer(half.producer_group)
            if connection is None:
                self.checks_without_producer += 1
                alone[half.producer_group] = alone.get(half.producer_group, 0) + 1
                continue
            so_far = sent.setdefault(connection, _Sent())
            if so_far.count < CHECKS_MAX and so_far.size_bytes < CHECK_BYTES_MAX:
                so_far.count += 1
                so_far.size_bytes += half.size_bytes
                asked.append((half, connection))
        records = self.writer.read([half for half, _ in asked])
        for (half, connection), record in zip(asked, records, strict=True):
            if record is None:
                self._lost(half)
                continue
            if self._ended_by_crash(half, record):
                continue
            try:
                body = self._half_records().checked(record)
                topic = self._half_records().target(record)[0]
            except (HalfIllegal, PocketMQError) as error:
                self.log.error("half_message_illegal", queue_offset=half.queue_offset, error=str(error))
                half.checks = self.config.transaction_check_max  # given up in the next round
                continue
            if not self.port.may_see(connection, topic):
                others = self.port.producers(half.producer_group)
                permitted = next((each for each in others if self.port.may_see(each, topic)), None)
                if permitted is None:
                    self.checks_without_producer += 1
                    alone[half.producer_group] = alone.get(half.producer_group, 0) + 1
                    continue
                connection = permitted
            uniq_key = decode_record(record, check_crc=False).property_map().get(UNIQ_KEY, "")
            header = CheckTransactionStateRequestHeader(
                tran_state_table_offset=half.queue_offset,
                commit_log_offset=half.physical_offset,
                msg_id=uniq_key,
                transaction_id=uniq_key,
                offset_msg_id=offset_msg_id(self.store.store_host, half.physical_offset),
            )
            half.checks += 1
            self.checks += 1
            self.port.send(connection, header, body)

    def _next_producer(self, group: str) -> Connection | None:
        """Return the group's producers in turn (RocketMQ ProducerManager.getAvailableChannel)."""
        producers = self.port.producers(group)
        if not producers:
            return None
        if len(self._turns) > 10_000:
            self._turns.clear()
        turn = self._turns[group] = self._turns.get(group, -1) + 1
        return producers[turn % len(producers)]

    def _ended_by_crash(self, half: Half, record: bytes) -> bool:
        """Write the op message that a crash has cut off, if one has."""
        if not half.recovered or not self.writer.delivered(half, record):
            return False
        claimed = self.table.claim(half.queue_offset)
        if claimed is not None and self.writer.end([], [(claimed, Outcome.COMMITTED)]).status.is_stored:
            self.log.info("transaction_was_committed", queue_offset=half.queue_offset, group=half.producer_group)
        self.store.dispatch()
        return True

    def _give_up(self, halves: list[Half]) -> None:
        """Move half messages to ``TRANS_CHECK_MAX_TIME_TOPIC`` and end them."""
        claimed = [each for half in halves if (each := self.table.claim(half.queue_offset)) is not None]
        ended: list[tuple[Half, Outcome]] = []
        messages: list[tuple[bytes, RecordMeta]] = []
        try:
            for half, record in zip(claimed, self.writer.read(claimed), strict=True):
                if record is None:
                    self._lost(half)
                elif self.writer.delivered(half, record):
                    ended.append((half, Outcome.COMMITTED))
                else:
                    messages.append(self._half_records().given_up(record, half.physical_offset))
                    ended.append((half, Outcome.GIVEN_UP))
        except BaseException:
            for half in claimed:
                self.table.release(half)
            raise
        if not ended:
            return
        result = self.writer.end(messages, ended)
        if not result.status.is_stored:
            self.log.warning("half_messages_not_given_up", status=result.status.name, error=result.error)
            return
        self.store.dispatch()
        for half, outcome in ended:
            if outcome is Outcome.GIVEN_UP:
                self.log.warning(
                    "half_message_given_up",
                    queue_offset=half.queue_offset,
                    group=half.producer_group,
                    checks=half.checks,
                    offset_msg_id=offset_msg_id(self.store.store_host, half.physical_offset),
                    what_to_do="it is in TRANS_CHECK_MAX_TIME_TOPIC; pocketmq transaction resume checks it again",
                )

    def _lost(self, half: Half) -> None:
        self.writer.forget(half)
        self.log.error("half_message_lost", queue_offset=half.queue_offset, group=half.producer_group)

    # ---- progress on disk

    def _take(self) -> _Snapshot:
        half_offset, op_offset = self.table.low()
        return _Snapshot(half_offset, op_offset, self.table.checks(), self.store.appended_offset)

    def _settle(self) -> None:
        """Write the progress taken before, once the log up to its end is durable."""
        snapshot = self._snapshot
        if snapshot is None or self.store.flushed_offset < snapshot.end_offset:
            return
        self._snapshot = None
        if self._is_untouched(snapshot):
            return
        if self.progress.settle(snapshot.half_offset, snapshot.op_offset, snapshot.checks):
            self._file.persist()
            try:
                self.offsets.commit(TRANS_GROUP, HALF_TOPIC, 0, snapshot.half_offset)
                self.offsets.commit(TRANS_GROUP, OP_HALF_TOPIC, 0, snapshot.op_offset)
            except TableFull:
                pass  # we use the file; these are for RocketMQ's tools

    def _is_untouched(self, snapshot: _Snapshot) -> bool:
        """Return whether this store has never had a transaction: then no progress is written."""
        none = (snapshot.half_offset, snapshot.op_offset, snapshot.checks) == (0, 0, {})
        return none and self.progress.half_offset < 0

    def persist(self) -> None:
        """Write the present progress, if it has changed or its file is gone."""
        snapshot = self._take()
        known = (self.progress.half_offset, self.progress.op_offset, self.progress.checks)
        if self._is_untouched(snapshot):
            return
        try:
            if (snapshot.half_offset, snapshot.op_offset, snapshot.checks) == known:
                self._file.persist()
                return
            if self.store.flushed_offset < snapshot.end_offset:
                self.store.make_durable()
            self._snapshot = snapshot
            self._settle()
        except PocketMQError as error:
            self.log.error("transaction_progress_not_written", error=str(error))

    def wanted_from(self) -> int:
        """Return the physical offset of the oldest open half message: retention keeps it."""
        oldest = self.table.oldest()
        return self.store.committed_offset if oldest is None else oldest.physical_offset

    # ---- statistics

    def oldest_ms(self) -> int:
        """Return the age of the oldest open half message, 0 if there is none."""
        oldest = self.table.oldest()
        return 0 if oldest is None else max(0, self._time.now_ms() - (oldest.since_ms or oldest.store_ms))


def _lower(one: Callable[[], int] | None, other: Callable[[], int]) -> Callable[[], int]:
    if one is None:
        return other
    first = one
    return lambda: min(first(), other())
