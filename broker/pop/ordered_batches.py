"""Ordered pops: one batch of a queue at a time, and the next only when it is acknowledged or its time is over.

The table is RocketMQ 5.3.3's ``config/consumerOrderInfo.json`` (``ConsumerOrderInfoManager``), so that a broker can
take over the store of the other: topic@group → queue id → batch.

Lives here: ``OrderedBatches``, ``OrderBatch``.
"""

import heapq
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from pocketmq.common.bounds import bounded

SEPARATOR: Final = "@"
BATCH_MAX: Final = 32
"""Messages of a batch: RocketMQ counts its acknowledgements in the bits of a long."""
BATCH_BYTES: Final = 12_000
ATTEMPT_CHARACTERS_MAX: Final = 128
FORGET_AFTER_MS: Final = 86_400_000
"""A batch that nobody has touched for a day is left out of the file (RocketMQ CLEAN_SPAN_FROM_LAST)."""


class OrderBatch(msgspec.Struct, omit_defaults=True):
    """The batch of one queue. Offsets behind the first are distances from it."""

    pop_time: int = msgspec.field(name="popTime", default=0)
    invisible_ms: int | None = msgspec.field(name="i", default=None)
    offset_list: list[int] = msgspec.field(name="o", default_factory=list)
    next_visible: dict[int, int] | None = msgspec.field(name="ot", default=None)
    """Offset → when the message becomes visible, where a consumer has changed it."""
    consumed: dict[int, int] | None = msgspec.field(name="oc", default=None)
    """Offset → earlier deliveries, where there were some."""
    touched_ms: int = msgspec.field(name="l", default=0)
    acked_bits: int = msgspec.field(name="cm", default=0)
    attempt_id: str | None = msgspec.field(name="a", default=None)

    def offsets(self) -> list[int]:
        """Return the offsets of the messages."""
        first, *others = self.offset_list
        return [first, *(first + other for other in others)]

    def visible_ms(self) -> int:
        """Return when the whole batch is visible again; 0 when all of it is acknowledged."""
        latest = 0
        for at, offset in enumerate(self.offsets() if self.offset_list else ()):
            if not self.acked_bits >> at & 1:
                end = self.pop_time + (self.invisible_ms or 0)
                latest = max(latest, (self.next_visible or {}).get(offset, end))
        return latest

    def next_offset(self) -> int:
        """Return the first offset that is not acknowledged, or the one behind the batch."""
        offsets = self.offsets()
        for at, offset in enumerate(offsets):
            if not self.acked_bits >> at & 1:
                return offset
        return offsets[-1] + 1


class _File(msgspec.Struct):
    """``consumerOrderInfo.json``. Its main key is required: a file without it is damaged, not empty."""

    table: dict[str, dict[int, OrderBatch]]


@bounded(
    "ordered batches",
    limit="count_max",
    size="count",
    entry_bytes=BATCH_BYTES,
    setting="broker.pop_ordered_batches_max",
)
class OrderedBatches:
    """Thread-safe; a persisted table."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self.count = 0
        self.generation = 0
        self._lock = threading.Lock()
        self._table: dict[str, dict[int, OrderBatch]] = {}
        self._heap: list[tuple[int, str, int]] = []
        self._waits: dict[tuple[str, int], int] = {}
        """(topic@group, queue id) → its earliest time in the heap."""

    def is_blocked(self, topic: str, group: str, queue_id: int, attempt_id: str, now_ms: int) -> bool:
        """Return whether the queue must not be read now. An attempt that asks again gets its batch again: its client
        has not seen the answer."""
        batch = self._table.get(_key(topic, group), {}).get(queue_id)
        if batch is None or (attempt_id and batch.attempt_id == attempt_id):
            return False
        return now_ms < batch.visible_ms()

    def has_room(self, topic: str, group: str, queue_id: int) -> bool:
        """Return whether ``begin`` can keep a batch of this queue."""
        return self.count < self.count_max or queue_id in self._table.get(_key(topic, group), {})

    def begin(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offsets: list[int],
        now_ms: int,
        invisible_ms: int,
        attempt_id: str,
    ) -> dict[int, int]:
        """Keep a new batch; return offset → earlier deliveries, where there were some."""
        first, *others = offsets
        batch = OrderBatch(now_ms, invisible_ms, [first, *(offset - first for offset in others)], touched_ms=now_ms)
        batch.attempt_id = attempt_id or None
        with self._lock:
            queues = self._table.setdefault(_key(topic, group), {})
            old = queues.get(queue_id)
            if old is None:
                self.count += 1
            elif old.attempt_id is not None and old.attempt_id == batch.attempt_id:
                batch.consumed = old.consumed
            else:
                before = set(old.offsets())
                counts = old.consumed or {}
                batch.consumed = {offset: counts.get(offset, 0) + 1 for offset in offsets if offset in before}
            queues[queue_id] = batch
            self._wait(_key(topic, group), queue_id, now_ms + invisible_ms)
            self.generation += 1
            return dict(batch.consumed or {})

    def ack(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, now_ms: int) -> int | None:
        """Return the offset to commit, None if no batch with this pop time has the message."""
        with self._lock:
            batch = self._of(topic, group, queue_id, offset, pop_time)
            if batch is None:
                return None
            batch.acked_bits |= 1 << batch.offsets().index(offset)
            batch.touched_ms = now_ms
            self.generation += 1
            return batch.next_offset()

    def change(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, visible_ms: int, now_ms: int
    ) -> bool:
        """Let a message become visible at ``visible_ms``; False if no batch with this pop time has it."""
        with self._lock:
            batch = self._of(topic, group, queue_id, offset, pop_time)
            if batch is None:
                return False
            batch.next_visible = {**(batch.next_visible or {}), offset: visible_ms}
            self._wait(_key(topic, group), queue_id, batch.visible_ms())
            batch.touched_ms = now_ms
            self.generation += 1
            return True

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Forget the batch of a queue: its offset was reset, or the group pops it without order."""
        with self._lock:
            if self._table.get(_key(topic, group), {}).pop(queue_id, None) is not None:
                self.count -= 1
                self.generation += 1

    def forget(self, is_gone: Callable[[str, str], bool]) -> None:
        """Forget the batches of each (group, topic) that is gone."""
        with self._lock:
            for key in list(self._table):
                topic, _, group = key.partition(SEPARATOR)
                if is_gone(group, topic):
                    self.count -= len(self._table.pop(key))
                    self.generation += 1

    def due(self, now_ms: int) -> list[tuple[str, str, int]]:
        """Return (group, topic, queue id) of batches that have become visible since the last call."""
        found: list[tuple[str, str, int]] = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now_ms:
                at, key, queue_id = heapq.heappop(self._heap)
                if self._waits.get((key, queue_id)) != at:
                    continue
                del self._waits[key, queue_id]
                batch = self._table.get(key, {}).get(queue_id)
                visible_ms = 0 if batch is None else batch.visible_ms()
                if visible_ms > now_ms:
                    self._wait(key, queue_id, visible_ms)
                elif visible_ms:
                    topic, _, group = key.partition(SEPARATOR)
                    found.append((group, topic, queue_id))
        return found

    def next_due_ms(self) -> int | None:
        """Return when ``due`` may next find something."""
        return self._heap[0][0] if self._heap else None

    def _wait(self, key: str, queue_id: int, visible_ms: int) -> None:
        known = self._waits.get((key, queue_id))
        if known is None or visible_ms < known:
            self._waits[key, queue_id] = visible_ms
            heapq.heappush(self._heap, (visible_ms, key, queue_id))

    def _of(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int) -> OrderBatch | None:
        batch = self._table.get(_key(topic, group), {}).get(queue_id)
        if batch is None or batch.pop_time != pop_time or offset not in batch.offsets():
            return None
        return batch

    # ---- the file

    def encode(self) -> bytes:
        """Return the content of the file."""
        with self._lock:
            newest = max((each.touched_ms for queues in self._table.values() for each in queues.values()), default=0)
            table = {
                key: {at: each for at, each in queues.items() if each.touched_ms > newest - FORGET_AFTER_MS}
                for key, queues in self._table.items()
                if queues
            }
            return msgspec.json.encode(_File(table))

    def load(self, content: bytes) -> None:
        """Take over the content of a file; raises ``DECODE_ERRORS``. A batch that no pop could have made is left
        out."""
        loaded = msgspec.json.decode(content, type=_File, strict=False)
        with self._lock:
            for key, queues in loaded.table.items():
                good = {at: each for at, each in queues.items() if _is_possible(each)}
                if good:
                    self._table[key] = good
                for at, each in good.items():
                    self._wait(key, at, each.visible_ms())
            self.count = sum(map(len, self._table.values()))


def _is_possible(batch: OrderBatch) -> bool:
    others = batch.offset_list[1:]
    return (
        1 <= len(batch.offset_list) <= 64
        and batch.offset_list[0] >= 0
        and all(low < high for low, high in zip([0, *others], others, strict=False))
    )


def _key(topic: str, group: str) -> str:
    return f"{topic}{SEPARATOR}{group}"
