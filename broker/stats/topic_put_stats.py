"""How many messages each topic receives, derived from the growth of its queues.

Lives here: ``TopicPutStats``, which listens to the dispatch, so that a send pays nothing for it.
"""

from collections.abc import Sequence
from typing import Final

from pocketmq.broker.stats.stats_items import TOPIC_PUT_NUMS, StatsItems
from pocketmq.common.runner import Runner
from pocketmq.store.message_store import MessageStore

QUEUES_MAX: Final = 65_536
"""Queues whose ends are remembered; messages of further queues are not counted."""


class TopicPutStats:
    """A service of a broker: counts messages dispatched after ``open``, not those that a recovery finds."""

    def __init__(self, store: MessageStore, items: StatsItems, queues_max: int = QUEUES_MAX) -> None:
        self._store = store
        self._items = items
        self._queues_max = queues_max
        self._ends: dict[tuple[str, int], int] = {}

    def open(self) -> None:
        """Note where the queues end now, and start listening."""
        for topic, queue_id, _, end in self._store.queues()[: self._queues_max]:
            self._ends[topic, queue_id] = end
        self._store.on_dispatched.append(self.notify_dispatched)

    def start(self, runner: Runner) -> None:
        """Do nothing: it has no thread."""

    def stop(self) -> None:
        """Stop listening."""
        if self.notify_dispatched in self._store.on_dispatched:
            self._store.on_dispatched.remove(self.notify_dispatched)

    def notify_dispatched(self, queues: Sequence[tuple[str, int, int]]) -> None:
        """Count the growth of queues that now end at (topic, queue id, end); called by one dispatch pass at a time."""
        counts: list[tuple[str, int]] = []
        for topic, queue_id, end in queues:
            known = self._ends.get((topic, queue_id))
            if known is None and len(self._ends) >= self._queues_max:
                continue
            self._ends[topic, queue_id] = end
            # a queue that ends earlier than before belongs to a topic that was deleted and created again
            grown = end - known if known is not None and end >= known else end
            if grown > 0:
                counts += ((topic, grown),)
        self._items.add_all(TOPIC_PUT_NUMS, counts)
