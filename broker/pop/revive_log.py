"""Messages that a broker of RocketMQ has left in flight, taken over when a store is first opened here.

RocketMQ 5 commits an offset as soon as its messages are popped. What is in flight is in *check points*: messages with
the tag ``ck`` in the topic ``rmq_sys_REVIVE_LOG_<cluster>``, which a timer delivers when their time is over;
acknowledgements come the same way (``ack``, ``bAck``). So the unread part of that topic and the waiting timers tell
what nobody has acknowledged. It becomes what it is here: messages in flight below the committed offset, which is set
back to the lowest of them. Handles that RocketMQ gave out stay good. A message may come twice, none is lost.

Bodies: RocketMQ 5.3.3 ``PopCheckPoint``, ``AckMsg``, ``BatchAckMsg``. A broker with ``popConsumerKVServiceEnable`` has
them in RocksDB, which is not read.

Lives here: ``take_over``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import numpy as np

from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.pop.pop_ledger import PopLedger
from pocketmq.broker.pop.pop_queue import INVISIBLE_MASK, pack
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.common.events import EventLog
from pocketmq.common.record import REAL_TOPIC, TAGS
from pocketmq.common.record_codec import Record, decode_record
from pocketmq.common.topics import TIMER_TOPIC
from pocketmq.store.consumequeue.get import GetMessageStatus, GetResult
from pocketmq.store.message_store import MessageStore

REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""RocketMQ PopAckConstants."""
BLOCK: Final = 1_000
BLOCK_BYTES: Final = 4 << 20
AGE_MS: Final = 13 * 3_600_000
"""Timers that were stored longer ago are not of check points: an invisible time has 12 h at most."""
OFFSETS_OF_CHECK_POINT_MAX: Final = 64


class _CheckPoint(msgspec.Struct):
    start_offset: int = msgspec.field(name="so", default=0)
    pop_time: int = msgspec.field(name="pt", default=0)
    invisible_ms: int = msgspec.field(name="it", default=0)
    acked_bits: int = msgspec.field(name="bm", default=0)
    count: int = msgspec.field(name="n", default=0)
    queue_id: int = msgspec.field(name="q", default=0)
    topic: str = msgspec.field(name="t", default="")
    group: str = msgspec.field(name="c", default="")
    distances: list[int] | None = msgspec.field(name="d", default=None)


class _Ack(msgspec.Struct):
    start_offset: int = msgspec.field(name="so", default=0)
    pop_time: int = msgspec.field(name="pt", default=0)
    queue_id: int = msgspec.field(name="q", default=0)
    topic: str = msgspec.field(name="t", default="")
    group: str = msgspec.field(name="c", default="")
    offset: int = msgspec.field(name="ao", default=-1)
    offsets: list[int] = msgspec.field(name="aol", default_factory=list)


class _Key(NamedTuple):
    group: str
    topic: str
    queue_id: int
    start_offset: int
    pop_time: int


@dataclass(slots=True)
class _Found:
    points: dict[_Key, _CheckPoint] = field(default_factory=dict)
    acks: dict[_Key, set[int]] = field(default_factory=dict)
    unreadable: int = 0

    def add(self, record: Record, tag: str) -> None:
        """Take over one message, if it is of POP."""
        try:
            if tag == "ck":
                point = msgspec.json.decode(record.body, type=_CheckPoint, strict=False)
                self.points[_key(point)] = point
            elif tag in ("ack", "bAck"):
                ack = msgspec.json.decode(record.body, type=_Ack, strict=False)
                self.acks.setdefault(_key(ack), set()).update([*ack.offsets, ack.offset])
        except DECODE_ERRORS:
            self.unreadable += 1


def _key(each: _CheckPoint | _Ack) -> _Key:
    return _Key(each.group, each.topic, each.queue_id, each.start_offset, each.pop_time)


def take_over(
    store: MessageStore, topics: TopicTable, offsets: ConsumerOffsets, ledger: PopLedger, now_ms: int, log: EventLog
) -> int:
    """Put what is in flight into the ledger; return how many messages. Blocks: before requests are served. Raises
    ``StoreError``."""
    names = [name for name in topics.names() if name.startswith(REVIVE_PREFIX)]
    if not names:
        return 0
    found = _Found()
    for name in names:
        for topic, queue_id, _, end in store.queues():
            if topic == name:
                start = offsets.query(REVIVE_GROUP, name, queue_id) or 0
                for record in _forward(store, name, queue_id, start, end):
                    found.add(record, record.property_map().get(TAGS, ""))
    for record in _waiting_timers(store, now_ms):
        properties = record.property_map()
        if properties.get(REAL_TOPIC, "").startswith(REVIVE_PREFIX):
            found.add(record, properties.get(TAGS, ""))
    count = 0
    for (group, topic, queue_id), in_flight in _in_flight(found).items():
        low, committed = store.min_offset(topic, queue_id), offsets.query(group, topic, queue_id)
        if committed is None:
            continue
        kept = {offset: times for offset, times in in_flight.items() if max(0, low) <= offset < committed}
        if kept and ledger.adopt(group, topic, queue_id, kept, now_ms):
            count += len(kept)
    if count or found.unreadable:
        log.info("pops_of_rocketmq_taken_over", messages=count, unreadable=found.unreadable)
    return count


def _in_flight(found: _Found) -> dict[tuple[str, str, int], dict[int, int]]:
    queues: dict[tuple[str, str, int], dict[int, int]] = {}
    for key, point in sorted(found.points.items(), key=lambda each: each[1].pop_time):
        distances = point.distances or list(range(min(max(point.count, 0), OFFSETS_OF_CHECK_POINT_MAX)))
        acked = found.acks.get(key, set())
        if point.pop_time < 0 or point.invisible_ms < 0 or len(distances) > OFFSETS_OF_CHECK_POINT_MAX:
            continue
        times = pack(point.pop_time, min(point.invisible_ms, INVISIBLE_MASK))
        queue = queues.setdefault((point.group, point.topic, point.queue_id), {})
        for at, distance in enumerate(distances):
            offset = point.start_offset + distance
            if offset in acked or point.acked_bits >> at & 1:
                queue.pop(offset, None)  # where its time was changed, the newer check point comes behind this one
            else:
                queue[offset] = times
    return queues


def _forward(store: MessageStore, topic: str, queue_id: int, start: int, end: int) -> Iterator[Record]:
    """Yield the messages of a queue from ``start`` on."""
    offset = max(start, store.min_offset(topic, queue_id), 0)
    while offset < end:
        result = store.get(topic, queue_id, offset, max_messages=min(BLOCK, end - offset), max_bytes=BLOCK_BYTES)
        if result.status is GetMessageStatus.FOUND:
            yield from _records(result)
        if result.next_begin_offset <= offset:
            return
        offset = result.next_begin_offset


def _waiting_timers(store: MessageStore, now_ms: int) -> Iterator[Record]:
    """Yield the timers that were stored in the last 13 hours, block by block, the newest block first."""
    low, high = max(0, store.min_offset(TIMER_TOPIC, 0)), store.max_offset(TIMER_TOPIC, 0)
    while high > low:
        begin = max(low, high - BLOCK)
        block = list(_forward(store, TIMER_TOPIC, 0, begin, high))
        yield from block
        if block and block[0].store_timestamp < now_ms - AGE_MS:
            return
        high = begin


def _records(result: GetResult) -> Iterator[Record]:
    body = result.body.tobytes()
    ends = np.cumsum(result.sizes.astype(np.int64)).tolist()
    for start in [0, *ends[:-1]]:
        yield decode_record(body, start)
