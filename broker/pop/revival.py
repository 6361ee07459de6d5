"""Messages that were not acknowledged in time: copied to the retry topic of their group, or dead.

RocketMQ's PopReviveService copies to the retry topic for ever, and lets clients count; a message that nobody
acknowledges circulates. Here the group's ``retry_max_times`` counts, as for consumers that pull: after that many
repetitions the copy goes to the dead-letter topic.

An original counts as acknowledged once its copy is on disk; so a crash in between repeats it.

Lives here: ``Revival``, a service with one thread.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.pop.ordered_batches import OrderedBatches
from pocketmq.broker.pop.pop_ledger import Due, PopLedger
from pocketmq.broker.pop.pop_service import PopService
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.topic.registered_topics import RegisteredTopics
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import SteadyTime
from pocketmq.common.errors import CorruptRecord, MessageIllegal, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.message_id import offset_msg_id
from pocketmq.common.receipt_handle import first_topic, pop_retry_topic
from pocketmq.common.record import HOSTS_V6_MASK, decode_properties, encode_properties
from pocketmq.common.record_codec import Record, decode_record, encode_record
from pocketmq.common.record_group import RecordGroup
from pocketmq.common.redelivery import MAX_RECONSUME_TIMES_DEFAULT, forget_delay, prepare_copy
from pocketmq.common.runner import Runner, Worker
from pocketmq.common.topics import RETRY_PREFIX, Perm, dlq_topic
from pocketmq.store.errors import OffsetOutOfRange
from pocketmq.store.message_store import MessageStore

FIRST_POP_TIME: Final = "1ST_POP_TIME"
"""When a message was popped for the first time (RocketMQ MessageConst.PROPERTY_FIRST_POP_TIME)."""
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
"""Where a dead letter comes from (RocketMQ MessageConst)."""
BATCH_MAX: Final = 256
STEP_MS: Final = 100.0
FLUSH_LOOK_MS: Final = 20.0
DURABLE_AFTER_MS: Final = 1_000
"""How long copies wait for the log's own flush, which may leave a few for 10 s."""
RETRY_MS: Final = 1_000
"""After a failed put."""
WAITING_MAX: Final = 65_536
"""Copies that may wait for the disk at once."""
READ_AND_WRITE: Final = int(Perm.READ | Perm.WRITE)


@dataclass(slots=True, eq=False)
class Revival:
    """Runs on masters only. The counts may be read from any thread."""

    store: MessageStore
    ledger: PopLedger
    ordered: OrderedBatches
    topics: TopicTable
    groups: SubscriptionGroups
    registered: RegisteredTopics
    service: PopService
    counters: BrokerCounters
    time: SteadyTime
    log: EventLog
    must_not_write: Callable[[], bool]
    revived: int = 0
    """Copies in retry topics."""
    dead: int = 0
    """Copies in dead-letter topics."""
    lost: int = 0
    """Messages that the log no longer has, or that are damaged."""
    _waiting: list[tuple[int, Due]] = field(default_factory=list)
    """(end of the copies in the log, originals)"""
    _waiting_since_ms: int = 0
    _worker: Worker | None = None
    _failing: str = ""

    def open(self) -> None:
        """Load nothing: the ledger has a file of its own."""

    def start(self, runner: Runner) -> None:
        """Begin."""
        self._worker = runner.start("PopRevival", self.step, first_after_ms=STEP_MS)

    def stop(self) -> None:
        """Stop. Copies that are not on disk yet are made again after the start."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def step(self) -> float:
        """Copy what is due; return the ms until the next step."""
        now_ms = self.time.now_ms()
        self._confirm(now_ms)
        for group, topic, _ in self.ordered.due(now_ms):
            self.service.freed(group, topic)
        if self.must_not_write() or sum(len(due.messages) for _, due in self._waiting) > WAITING_MAX:
            return STEP_MS
        found = self.ledger.due(now_ms, BATCH_MAX)
        for due in found:
            try:
                self._revive(due, now_ms)
            except Exception as error:
                self.ledger.put_back(due, now_ms + RETRY_MS)
                self._complain(error)
            else:
                self._failing = ""
        if found:
            self.store.dispatch()
            return 0.0
        return FLUSH_LOOK_MS if self._waiting else STEP_MS

    def lag_ms(self) -> int:
        """Return how long the next message has been due for its copy; 0 if none is. Any thread."""
        due_ms = self.ledger.next_due_ms()
        return 0 if due_ms is None else max(0, self.time.now_ms() - due_ms)

    def _confirm(self, now_ms: int) -> None:
        """Forget the originals whose copies are on disk."""
        if not self._waiting:
            return
        flushed = self.store.flushed_offset
        if flushed < self._waiting[0][0] and now_ms - self._waiting_since_ms >= DURABLE_AFTER_MS:
            try:
                flushed = self.store.make_durable()
            except PocketMQError as error:
                self._complain(error)
        still: list[tuple[int, Due]] = []
        for end_offset, due in self._waiting:
            if end_offset <= flushed:
                self.ledger.copied(due)
                self.service.freed(due.queue.group, first_topic(due.queue.topic, due.queue.group))
            else:
                still.append((end_offset, due))
        if len(still) < len(self._waiting):
            self._waiting_since_ms = now_ms
        self._waiting = still

    def _complain(self, error: Exception) -> None:
        """Log an error once, not ten times a second."""
        text = str(error) or repr(error)
        if text != self._failing:
            self._failing = text
            self.log.error("pop_revival_waits", error=text, retry_ms=RETRY_MS)

    def _revive(self, due: Due, now_ms: int) -> None:
        """Copy messages of one queue; raises what the store raises."""
        queue = due.queue
        topic = first_topic(queue.topic, queue.group)
        copies: list[bytes] = []
        for record, pop_time in self._read(due):
            copies.append(self._copy(record, queue.group, topic, queue.topic, pop_time))
        if not copies:
            self.ledger.copied(due)
            return
        self.registered.publish()
        end_offset = 0
        for part in self._parts(copies):
            result = self.store.append(RecordGroup.from_log(np.frombuffer(bytearray(b"".join(part)), np.uint8)))
            if not result.status.is_stored:
                raise PocketMQError("not copied", why=f"{result.status.name}: {result.error}")
            end_offset = result.end_offset
            self.counters.put(len(part), sum(map(len, part)))
        if not self._waiting:
            self._waiting_since_ms = now_ms
        self._waiting.append((end_offset, due))

    def _parts(self, copies: list[bytes]) -> Iterator[list[bytes]]:
        """Yield the copies in parts that the store takes."""
        part: list[bytes] = []
        size_bytes = 0
        for copy in copies:
            if part and size_bytes + len(copy) > self.store.group_bytes_max // 2:
                yield part
                part, size_bytes = [], 0
            part.append(copy)
            size_bytes += len(copy)
        if part:
            yield part

    def _read(self, due: Due) -> Iterator[tuple[Record, int]]:
        """Yield each message with the time of its pop; what is gone for good is counted and left out."""
        queue = due.queue
        for offset, pop_time in sorted(due.messages):
            entries = self.store.read_entries(queue.topic, queue.queue_id, offset, 1)
            record: bytes | None = None
            try:
                if len(entries) and offset >= self.store.min_offset(queue.topic, queue.queue_id):
                    record = self.store.read_record(int(entries[0]["offset"]), int(entries[0]["size"]))
                if record is not None:
                    yield decode_record(record), pop_time
                    continue
                why = "retention has removed it"
            except (CorruptRecord, OffsetOutOfRange) as error:
                why = str(error)
            self.lost += 1
            self.log.error(
                "popped_message_lost",
                group=queue.group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                offset=offset,
                why=why,
                what_to_do="keep messages for longer than consumers may take; check the log with pocketmq log verify",
            )

    def _copy(self, record: Record, group: str, topic: str, own_topic: str, pop_time: int) -> bytes:
        config = self.groups.get(group)
        times_max = MAX_RECONSUME_TIMES_DEFAULT if config is None else config.retry_max_times
        is_dead = record.reconsume_times >= times_max or (config is not None and config.retry_queue_nums <= 0)
        properties = decode_properties(record.properties)
        if is_dead:
            own_id = offset_msg_id(record.store_host, record.physical_offset)
            prepare_copy(properties, topic, own_id)
            properties.setdefault(DLQ_ORIGIN_TOPIC, topic)
            properties.setdefault(DLQ_ORIGIN_MESSAGE_ID, own_id)
            target = dlq_topic(group)
        else:
            target = own_topic if own_topic.startswith(RETRY_PREFIX) else pop_retry_topic(group, topic)
            forget_delay(properties)
            if record.reconsume_times == 0 or FIRST_POP_TIME not in properties:
                properties[FIRST_POP_TIME] = str(pop_time)
        self.topics.create(target, 1, READ_AND_WRITE, 0)
        try:
            encoded = encode_properties(properties)
        except MessageIllegal:  # the message matters more than what we add
            encoded = record.properties
        if is_dead:
            self.dead += 1
            self.counters.sent_back(True, group, topic)
        else:
            self.revived += 1
        return encode_record(
            target,
            record.body,
            queue_id=0,
            properties=encoded,
            flag=record.flag,
            sys_flag=record.sys_flag & ~HOSTS_V6_MASK,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_host=self.store.store_host,
            reconsume_times=min(record.reconsume_times + 1, 0x7FFF_FFFF),
        )
