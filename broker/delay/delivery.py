"""From waiting records to delivered messages.

Lives here: ``Deliverer``: reads due records, restores their real topic and queue, appends them as one group.

A delivered record is the waiting one with another topic and queue: flag, body, CRC, born time and all properties stay,
REAL_TOPIC, REAL_QID and DELAY among them, as in RocketMQ's ScheduleMessageService. So the unique id stays, too.
"""

import struct
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.broker.delay.target_topics import TargetTopics
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.common.errors import CorruptRecord, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.record import (
    HOST_V6_BYTES,
    MAGIC_V1,
    REAL_QID,
    REAL_TOPIC,
    STORE_HOST_V6_FLAG,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    UNIQ_KEY,
    decode_properties,
)
from pocketmq.common.record_codec import RecordSpans, decode_record, encode_record, record_spans
from pocketmq.common.record_group import RecordGroup, timer_code_of
from pocketmq.common.topics import TIMER_TOPIC, TopicIllegal, check_topic_name, is_send_forbidden
from pocketmq.store.append_result import PutStatus
from pocketmq.store.errors import OffsetOutOfRange, StoreError
from pocketmq.store.message_store import MessageStore

BATCH_MAX: Final = 1024
BATCH_BYTES_MAX: Final = 1 << 20
RETRY_MS: Final = 100
"""After a failed put (RocketMQ ScheduleMessageService.DELAY_FOR_A_WHILE)."""
TARGETS_MAX: Final = 4096

Int64s = NDArray[np.int64]
_QUEUE_ID = struct.Struct(">i")
_SIZE_MAGIC = struct.Struct(">II")


@dataclass(slots=True)
class Delivery:
    """The result of one batch. ``retry_ms`` above 0: nothing was stored; try again after that many ms.

    ``later``: (index in the batch, due ms) of timers that are not due yet, whatever their queue entry says.
    """

    retry_ms: int = 0
    later: list[tuple[int, int]] = field(default_factory=list)


RECALLED_MAX: Final = 100_000
RECALLED_MS: Final = 60_000
"""How long after its time a recall is remembered: its message is due within a ms, but may be in a later batch."""


class _Undeliverable(Exception):
    """A record that no retry can deliver."""


class Deliverer:
    """Belongs to the delivery thread. ``delivered``, ``dropped``: messages since the start; ``put_failures``: refused
    appends; ``end_offset``: end of the last delivery in the log: progress is safe once the log is durable up to it.
    """

    def __init__(self, store: MessageStore, counters: BrokerCounters, log: EventLog) -> None:
        self.delivered = 0
        self.dropped = 0
        self.put_failures = 0
        self.recalled = 0
        """Messages that were taken back."""
        self._recalls: dict[str, int] = {}
        self.end_offset = 0
        self.bytes_max = max(1, min(BATCH_BYTES_MAX, store.group_bytes_max // 2))
        self._store = store
        self._counters = counters
        self._log = log
        self.targets: TargetTopics | None = None
        """Sees that consumers find the topics; None: not here."""
        self._failing = ""
        self._targets: dict[str, bytes] = {}
        self._host_v6 = len(store.store_host) == HOST_V6_BYTES

    def batch_of(self, sizes: Int64s) -> int:
        """Return how many of the next records, of these sizes, fit into one batch: at least one."""
        if len(sizes) == 0:
            return 0
        within = int(np.searchsorted(np.cumsum(sizes), self.bytes_max, side="right"))
        return min(max(1, within), BATCH_MAX)

    def deliver(self, offsets: Int64s, sizes: Int64s, now_ms: int) -> Delivery:
        """Deliver the records at these physical offsets, in this order within each target queue, all or nothing.

        Records that can never be delivered (removed from the log, damaged, without a target) are logged and skipped.
        """
        delivery = Delivery()
        try:
            records = self._read(offsets, sizes)
        except StoreError as error:
            self._log_failure(str(error))
            delivery.retry_ms = RETRY_MS
            return delivery
        queues: dict[tuple[str, int], list[bytes]] = {}
        last_offsets: dict[tuple[str, int], int] = {}
        self._note_recalls(records, now_ms)
        for index, record in enumerate(records):
            if record is None or ((self._recalls or _RECALL in record) and self._is_recalled(record)):
                continue
            try:
                due_ms, topic, queue_id, delivered = self._rewrite(record)
            except (_Undeliverable, PocketMQError) as error:
                self._drop(int(offsets[index]), str(error))
                continue
            if due_ms > now_ms:
                delivery.later.append((index, due_ms))
                continue
            queues.setdefault((topic, queue_id), []).append(delivered)
            last_offsets[topic, queue_id] = int(offsets[index])
        if queues:
            if self.targets is not None:
                for (topic, queue_id), offset in last_offsets.items():
                    self.targets.need(topic, queue_id, offset)
            delivery.retry_ms = self._append([record for part in queues.values() for record in part])
            if delivery.retry_ms:
                delivery.later.clear()
        return delivery

    # ---- reading

    def _read(self, offsets: Int64s, sizes: Int64s) -> list[bytes | None]:
        """Return the records in the requested order, None for missing ones; raises errors that may be temporary."""
        order = np.argsort(offsets, kind="stable")
        try:
            body = self._store.read_records(offsets[order], sizes[order]).data
        except (CorruptRecord, OffsetOutOfRange):
            return [self._read_one(int(offset), int(size)) for offset, size in zip(offsets, sizes, strict=True)]
        records: list[bytes | None] = [None] * len(order)
        at = 0
        for index, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
            records[index] = body[at : at + size].tobytes()
            at += size
        return records

    def _read_one(self, offset: int, size: int) -> bytes | None:
        record = self._store.read_record(offset, size)
        if record is None:
            gone = offset < self._store.log.min_offset
            self._drop(offset, "retention has removed it from the log" if gone else "no record is there")
        return record

    def _drop(self, offset: int, why: str) -> None:
        self.dropped += 1
        self._log.error(
            "delayed_message_dropped",
            physical_offset=offset,
            why=why,
            what_to_do="check the log with pocketmq log verify; keep it for longer than the longest delay",
        )

    # ---- recalls

    def _note_recalls(self, records: list[bytes | None], now_ms: int) -> None:
        """Remember what the recalls among these records take back."""
        for record in records:
            if record is not None and _RECALL in record:
                properties = decode_record(record, check_crc=False).property_map()
                key = properties.get(TIMER_DEL_UNIQKEY, "")
                if key.startswith(f"{properties.get(REAL_TOPIC, '')}+") and len(self._recalls) < RECALLED_MAX:
                    self._recalls[key] = now_ms + RECALLED_MS
        if self._recalls:
            for key in [key for key, until_ms in self._recalls.items() if until_ms < now_ms]:
                del self._recalls[key]

    def _is_recalled(self, record: bytes) -> bool:
        """Return whether a record is not to be delivered: it is a recall, or has been recalled."""
        try:
            properties = decode_record(record, check_crc=False).property_map()
        except CorruptRecord:
            return False
        if TIMER_DEL_UNIQKEY in properties:
            return True
        key = f"{properties.get(REAL_TOPIC, '')}+{properties.get(UNIQ_KEY, '')}"
        if self._recalls.pop(key, None) is None:
            return False
        self.recalled += 1
        return True

    # ---- rewriting

    def _rewrite(self, record: bytes) -> tuple[int, str, int, bytes]:
        """Return (due ms or 0, target topic, target queue, delivered record)."""
        spans = record_spans(record)
        properties = decode_properties(record[spans.property_start : spans.property_start + spans.property_length])
        topic = properties.get(REAL_TOPIC, "")
        queue_text = properties.get(REAL_QID, "")
        if not (queue_text.isascii() and queue_text.isdecimal() and len(queue_text) <= 9):
            raise _Undeliverable(f"property {REAL_QID} is {queue_text[:40]!r}")
        queue_id = int(queue_text)
        tail = self._targets.get(topic)
        if tail is None:
            tail = self._new_target(topic)
        due_ms = 0
        if TIMER_OUT_MS in properties and record[spans.topic_start :].startswith(_TIMER_TOPIC):
            due_ms = timer_code_of(properties[TIMER_OUT_MS])
        if bool(record[39] & STORE_HOST_V6_FLAG) != self._host_v6:
            return due_ms, topic, queue_id, self._other_family(record, topic, queue_id)
        return due_ms, topic, queue_id, _readdressed(record, spans, tail, queue_id)

    def _new_target(self, topic: str) -> bytes:
        """Return the topic as in a record, with its length. Checks the name: a log may hold anything."""
        try:
            check_topic_name(topic)
        except TopicIllegal as error:
            raise _Undeliverable(f"property {REAL_TOPIC}: {error.why}") from error
        if is_send_forbidden(topic):
            raise _Undeliverable(f"property {REAL_TOPIC} is {topic}, to which no client may send")
        if len(self._targets) >= TARGETS_MAX:
            self._targets.clear()
        encoded = topic.encode()
        tail = self._targets[topic] = len(encoded).to_bytes(1, "big") + encoded
        return tail

    def _other_family(self, record: bytes, topic: str, queue_id: int) -> bytes:
        """Rebuild a record that was stored when this broker had an address of the other family."""
        old = decode_record(record)
        return encode_record(
            topic,
            old.body,
            queue_id=queue_id,
            properties=old.properties,
            flag=old.flag,
            sys_flag=old.sys_flag,
            born_timestamp=old.born_timestamp,
            born_host=old.born_host,
            store_host=self._store.store_host,
            reconsume_times=old.reconsume_times,
        )

    # ---- appending

    def _append(self, records: list[bytes]) -> int:
        """Append the records as one group; return 0, or the ms until the next try."""
        store = self._store
        try:
            group = RecordGroup.from_log(np.frombuffer(bytearray(b"".join(records)), np.uint8))
        except CorruptRecord as error:
            return self._append_each(records, str(error))
        group.store_timestamps = None
        try:
            result = store.append(group, dispatch_later=True)
            status, why, retry_ms = result.status, result.error, result.retry_after_ms
        except PocketMQError as error:
            status, why, retry_ms = PutStatus.UNKNOWN_ERROR, str(error), error.retry_after_ms
        if status.is_stored:
            self.delivered += len(records)
            self.end_offset = result.end_offset
            self._counters.put(len(records), group.size_bytes)
            if self._failing:
                self._failing = ""
                self._log.info("delayed_delivery_works_again")
            store.dispatch()
            return 0
        if status is PutStatus.MESSAGE_ILLEGAL:
            return self._append_each(records, why)
        self.put_failures += 1
        self._counters.put_failed(len(records))
        self._log_failure(f"{status.name}: {why}")
        return max(RETRY_MS, retry_ms)

    def _append_each(self, records: list[bytes], why: str) -> int:
        """Append each record by itself, to find and drop the one that the store will never take.

        No longer all or nothing: if the store becomes busy meanwhile, the records before are delivered twice.
        """
        if len(records) > 1:
            return max([self._append([record]) for record in records])
        self._drop(int.from_bytes(records[0][28:36], "big"), why)
        return 0

    def _log_failure(self, why: str) -> None:
        if why != self._failing:  # once, not ten times a second
            self._failing = why
            self._log.warning("delayed_delivery_waits", why=why, retry_ms=RETRY_MS)


_TIMER_TOPIC: Final = TIMER_TOPIC.encode()
_RECALL: Final = f"{TIMER_DEL_UNIQKEY}\x01".encode()


def _readdressed(record: bytes, spans: RecordSpans, tail: bytes, queue_id: int) -> bytes:
    """Return ``record`` with another topic (``tail``: its length and itself) and queue."""
    body_end = spans.body_start + spans.body_length
    topic_end = spans.topic_start + spans.topic_length
    size = body_end + len(tail) + len(record) - topic_end
    return b"".join(
        (
            _SIZE_MAGIC.pack(size, MAGIC_V1),
            record[8:12],
            _QUEUE_ID.pack(queue_id),
            record[16:body_end],
            tail,
            record[topic_end:],
        )
    )
