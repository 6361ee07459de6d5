"""One delay level: which of its messages are due.

Lives here: ``LevelQueue``: the progress through one queue of ``SCHEDULE_TOPIC``, its entries read ahead, delivery of
due messages in order.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.broker.delay.arrivals import Arrivals
from pocketmq.broker.delay.delay_offsets import DelayOffsets
from pocketmq.broker.delay.delivery import BATCH_MAX, Deliverer
from pocketmq.common.events import EventLog
from pocketmq.common.topics import SCHEDULE_TOPIC
from pocketmq.store.consumequeue.consume_queue import BLANK_SIZE
from pocketmq.store.message_store import MessageStore

READ_ENTRIES: Final = 4096

Int64s = NDArray[np.int64]
_NONE: Int64s = np.empty(0, np.int64)


@dataclass(eq=False)
class LevelQueue:
    """The messages of one level, in the order in which they were stored. Belongs to the delivery thread.

    Holds: every message below ``offset`` was delivered or never can be. Times are those of ``SteadyTime``: ``Arrivals``
    has the rule by which a message is due.
    """

    level: int
    delay_ms: int
    store: MessageStore
    offsets: DelayOffsets
    deliverer: Deliverer
    log: EventLog
    arrivals: Arrivals
    next_due_ms: int = field(init=False, default=0)
    """When the next known message is due; 0: none waits."""
    _not_before_ms: int = field(init=False, default=0)
    _physical: Int64s = field(init=False, default_factory=lambda: _NONE)
    _sizes: Int64s = field(init=False, default_factory=lambda: _NONE)
    _due: Int64s = field(init=False, default_factory=lambda: _NONE)

    @property
    def offset(self) -> int:
        """The next message to deliver."""
        return self.offsets.get(self.level)

    @property
    def max_offset(self) -> int:
        """Offset behind the last waiting message."""
        return self.store.max_offset(SCHEDULE_TOPIC, self.level - 1)

    @property
    def is_empty(self) -> bool:
        """Whether no message is known to wait: then a new one must wake the service."""
        return len(self._due) == 0

    def correct(self) -> None:
        """Move the progress into the bounds of the queue: after a start, or when retention overtook it."""
        low = self.store.min_offset(SCHEDULE_TOPIC, self.level - 1)
        high, at = self.max_offset, self.offset
        if not low <= at <= high:
            self.log.error("delay_offset_corrected", level=self.level, offset=at, min_offset=low, max_offset=high)
            self.offsets.put(self.level, min(max(at, low), high))

    def run(self, now_ms: int, wall_ms: int) -> float | None:
        """Deliver one batch of due messages; return the ms until the next is due, 0 if more may be due now, None if
        none waits."""
        if now_ms < self._not_before_ms:
            return float(min(self._not_before_ms - now_ms, self.delay_ms))
        if self.is_empty:
            self._read(now_ms)
            if self.is_empty:
                self.next_due_ms = 0
                return None
        due_at = self.next_due_ms = int(self._due[0])
        if due_at > now_ms:
            return float(due_at - now_ms)
        # A prefix: messages keep their order whatever their due times are.
        late = np.flatnonzero(self._due[:BATCH_MAX] > now_ms)
        count = int(late[0]) if len(late) else min(len(self._due), BATCH_MAX)
        count = self.deliverer.batch_of(self._sizes[:count])
        wanted = self._sizes[:count] != BLANK_SIZE
        delivery = self.deliverer.deliver(self._physical[:count][wanted], self._sizes[:count][wanted], wall_ms)
        if delivery.retry_ms:
            self._not_before_ms = now_ms + delivery.retry_ms
            return float(delivery.retry_ms)
        self.offsets.put(self.level, self.offset + count)
        self._physical, self._sizes, self._due = self._physical[count:], self._sizes[count:], self._due[count:]
        return 0.0

    def _read(self, now_ms: int) -> None:
        """Read the next entries."""
        if self.offset >= self.max_offset:
            return
        self.correct()
        entries = self.store.read_entries(SCHEDULE_TOPIC, self.level - 1, self.offset, READ_ENTRIES)
        self._physical = entries["offset"].astype(np.int64)
        self._sizes = entries["size"].astype(np.int64)
        self._due = self.arrivals.due(self.offset, entries["tags_code"].astype(np.int64), now_ms)
