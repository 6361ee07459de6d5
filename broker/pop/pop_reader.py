"""From the queues of a topic to the messages of one pop.

Which first, as RocketMQ's PopMessageProcessor: every fifth pop looks into the retry topic first, the others do so when
there is room; the queues take turns. RocketMQ throws dice for both.

Lives here: ``PopReader``, ``PopAsk`` (what a pop wants), ``Popped`` (what it gets).
"""

import itertools
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pocketmq.broker.group.message_filter import EVERYTHING, MessageFilter, get_filtered
from pocketmq.broker.pop.ordered_batches import OrderedBatches
from pocketmq.broker.pop.pop_ledger import PopLedger, Turn
from pocketmq.broker.pull.slave_reads import RecentMessages
from pocketmq.broker.request.budget import Budget
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.events import EventLog
from pocketmq.common.receipt_handle import PoppedQueue, pop_retry_topic, pop_retry_topic_v2
from pocketmq.common.record import QUEUE_OFFSET_AT
from pocketmq.common.topics import Perm
from pocketmq.store.consumequeue.get import GetMessageStatus, GetResult
from pocketmq.store.message_store import MessageStore

RETRY_FIRST_EVERY: Final = 5
ANY_QUEUE: Final = -1
LOOKED_AT_MAX: Final = 2_048
"""Queues that ``is_ready`` looks at: a few ms."""
READ: Final = int(Perm.READ)
_MOVED: Final = (
    GetMessageStatus.OFFSET_TOO_SMALL,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY,
    GetMessageStatus.OFFSET_FOUND_NULL,
)
_NOT_WANTED: Final = (GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.MESSAGE_WAS_REMOVING)


@dataclass(slots=True)
class PopAsk:
    """What a pop wants. ``queue_id`` -1: any queue. ``from_newest``: where a new group begins, with the newest message
    or with the oldest."""

    group: str
    topic: str
    queue_id: int
    count_max: int
    bytes_max: int
    invisible_ms: int
    wanted: MessageFilter = EVERYTHING
    is_ordered: bool = False
    attempt_id: str = ""
    from_newest: bool = False


@dataclass(slots=True)
class Popped:
    """The messages of one pop.

    ``queues`` and ``results`` belong together: the records of a queue, and their place. ``rest``: messages that were
    ready and not given out. ``counts``: (queue index) → offset → earlier deliveries, of ordered pops.
    """

    pop_time: int
    queues: list[PoppedQueue] = field(default_factory=list)
    results: list[GetResult] = field(default_factory=list)
    counts: list[dict[int, int]] = field(default_factory=list)
    rest: int = 0
    count: int = 0
    size_bytes: int = 0

    def add(self, queue: PoppedQueue, result: GetResult) -> None:
        """Add the messages of a queue."""
        self.queues.append(queue)
        self.results.append(result)
        self.count += len(queue.offsets)
        self.size_bytes += len(result.body)
        self.rest += max(0, result.max_offset - result.next_begin_offset)


@dataclass(slots=True, eq=False)
class PopReader:
    """Reads the store: worker threads. Keeps nothing but the turns."""

    store: MessageStore
    ledger: PopLedger
    ordered: OrderedBatches
    topics: TopicTable
    recent: RecentMessages
    log: EventLog
    _turns: "itertools.count[int]" = field(default_factory=itertools.count)

    def read(self, ask: PopAsk, now_ms: int, budget: Budget) -> Popped:
        """Give out messages. Raises disk errors, and ``TableFull``, only while none was found."""
        popped = Popped(now_ms)
        turn = next(self._turns)
        retry_first = turn % RETRY_FIRST_EVERY == 0 and not ask.is_ordered
        if retry_first:
            self._read_retries(ask, popped, turn, budget)
        queues = self._queues(ask.topic, turn) if ask.queue_id == ANY_QUEUE else [ask.queue_id]
        for queue_id in queues:
            self._read_queue(ask, ask.topic, queue_id, popped, budget)
        if not retry_first and not ask.is_ordered:
            self._read_retries(ask, popped, turn, budget)
        return popped

    def peek(self, ask: PopAsk, now_ms: int) -> Popped:
        """Return what a pop would get; nothing is given out."""
        popped = Popped(now_ms)
        for queue_id in self._queues(ask.topic, next(self._turns)) if ask.queue_id == ANY_QUEUE else [ask.queue_id]:
            room = ask.count_max - popped.count
            offset = self.ledger.next_offset(ask.group, ask.topic, queue_id)
            if offset is None:
                offset = max(0, self.store.min_offset(ask.topic, queue_id))
            if room <= 0 or popped.size_bytes >= ask.bytes_max:
                popped.rest += max(0, self.store.max_offset(ask.topic, queue_id) - offset)
                continue
            result = self.store.get(
                ask.topic, queue_id, offset, max_messages=room, max_bytes=ask.bytes_max - popped.size_bytes
            )
            if result.status is GetMessageStatus.FOUND:
                popped.add(PoppedQueue(ask.topic, queue_id, offset, queue_offsets(result)), result)
        return popped

    def _queues(self, topic: str, turn: int) -> list[int]:
        config = self.topics.get(topic)
        if config is None or not config.perm & READ or config.read_queue_nums <= 0:
            return []
        first = turn % config.read_queue_nums
        return [*range(first, config.read_queue_nums), *range(first)]

    def _read_retries(self, ask: PopAsk, popped: Popped, turn: int, budget: Budget) -> None:
        for topic in (pop_retry_topic(ask.group, ask.topic), pop_retry_topic_v2(ask.group, ask.topic)):
            for queue_id in self._queues(topic, turn):
                self._read_queue(ask, topic, queue_id, popped, budget)

    def is_ready(self, group: str, topic: str, queue_id: int, is_ordered: bool, now_ms: int) -> bool:
        """Return whether a pop would find messages. Any thread, memory only: of a topic with very many queues the first
        ones alone are looked at, since the loop asks, right after a pop that has read them all."""
        for queue in self._queues(topic, 0)[:LOOKED_AT_MAX] if queue_id == ANY_QUEUE else [queue_id]:
            if self.ready(group, topic, queue, is_ordered, now_ms):
                return True
        return not is_ordered and any(
            self.ready(group, retry, queue, False, now_ms)
            for retry in (pop_retry_topic(group, topic), pop_retry_topic_v2(group, topic))
            for queue in self._queues(retry, 0)
        )

    def ready(self, group: str, topic: str, queue_id: int, is_ordered: bool, now_ms: int) -> int:
        """Return how many messages of one queue a pop could give out now."""
        next_offset = self.ledger.next_offset(group, topic, queue_id)
        end = self.store.max_offset(topic, queue_id)
        ready = end - (self.store.min_offset(topic, queue_id) if next_offset is None else next_offset)
        if ready <= 0 or not self.ledger.has_room(group, topic, queue_id):
            return 0
        if self.ordered.count and self.ordered.is_blocked(topic, group, queue_id, "", now_ms):
            return 0
        return 0 if is_ordered and self.ledger.in_flight(group, topic, queue_id) else ready

    def _read_queue(self, ask: PopAsk, topic: str, queue_id: int, popped: Popped, budget: Budget) -> None:
        known = self.ledger.next_offset(ask.group, topic, queue_id)
        end = self.store.max_offset(topic, queue_id)
        if end <= 0 or known == end:
            return
        room = ask.count_max - popped.count
        if room <= 0 or (popped.count and popped.size_bytes >= ask.bytes_max):
            popped.rest += self.ready(ask.group, topic, queue_id, ask.is_ordered, popped.pop_time)
            return
        if self.ordered.is_blocked(topic, ask.group, queue_id, ask.attempt_id, popped.pop_time):
            return
        if ask.is_ordered and not self.ordered.has_room(topic, ask.group, queue_id):
            return
        turn = self.ledger.begin(ask.group, topic, queue_id, lambda: self._first(ask, topic, queue_id))
        if turn is None:
            return
        if ask.is_ordered and turn.queue.unacked:
            self.ledger.leave(turn)
            return
        try:
            result = self._get(ask, topic, queue_id, turn, min(room, turn.room), popped, budget)
        except Exception:
            self.ledger.leave(turn)
            if popped.count:  # one queue on a bad part of the disk must not cost what others have
                return
            raise
        if result is not None:
            self._note(ask, topic, queue_id, turn, result, popped)

    def _get(
        self, ask: PopAsk, topic: str, queue_id: int, turn: Turn, room: int, popped: Popped, budget: Budget
    ) -> GetResult | None:
        """Return the messages to give out; None: there are none, and the turn is over."""
        offset = turn.offset
        wanted = ask.wanted if topic == ask.topic else EVERYTHING  # retried messages have passed the filter
        while True:
            result = get_filtered(
                self.store,
                topic,
                queue_id,
                offset,
                wanted,
                max_messages=room,
                max_bytes=max(1, ask.bytes_max - popped.size_bytes),
                budget=budget if wanted.sql is not None else None,
            )
            if result.status is GetMessageStatus.FOUND:
                return result
            if result.status in _MOVED:
                if result.next_begin_offset < offset:
                    self.log.error(
                        "pop_offset_moved",
                        group=ask.group,
                        topic=topic,
                        queue_id=queue_id,
                        offset=offset,
                        to=result.next_begin_offset,
                    )
                    self.ledger.step_back(turn, result.next_begin_offset)
                    return None
            elif result.status not in _NOT_WANTED:
                break
            if result.next_begin_offset <= offset:
                break
            offset = result.next_begin_offset
            if budget.is_over():
                break
        if offset > turn.offset:
            self.ledger.take(turn, [], offset, popped.pop_time, ask.invisible_ms)
            popped.rest += max(0, result.max_offset - offset)
        else:
            self.ledger.leave(turn)
        return None

    def _note(self, ask: PopAsk, topic: str, queue_id: int, turn: Turn, result: GetResult, popped: Popped) -> None:
        offsets = queue_offsets(result)
        if ask.is_ordered:
            if not self.ledger.hold(turn, offsets[0]):
                return
            counts = self.ordered.begin(
                topic, ask.group, queue_id, offsets, popped.pop_time, ask.invisible_ms, ask.attempt_id
            )
            popped.counts.append(counts)
        else:
            if not self.ledger.take(turn, offsets, result.next_begin_offset, popped.pop_time, ask.invisible_ms):
                return
            self.ordered.clear(topic, ask.group, queue_id)
        popped.add(PoppedQueue(topic, queue_id, turn.offset, offsets), result)

    def _first(self, ask: PopAsk, topic: str, queue_id: int) -> int:
        """Return where a group without an offset begins (RocketMQ PopMessageProcessor.getInitOffset)."""
        low = max(0, self.store.min_offset(topic, queue_id))
        if not ask.from_newest or topic != ask.topic:
            return low
        if low <= 0 and not self.recent.is_on_disk(topic, queue_id, 0):
            return 0
        return max(low, self.store.max_offset(topic, queue_id) - 1)


def queue_offsets(result: GetResult) -> list[int]:
    """Return the queue offset of each record."""
    body = result.body.data
    starts = np.cumsum(result.sizes.astype(np.int64)) - result.sizes.astype(np.int64)
    return [int.from_bytes(body[at + QUEUE_OFFSET_AT : at + QUEUE_OFFSET_AT + 8], "big") for at in starts.tolist()]
