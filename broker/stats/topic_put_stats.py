"""How many messages each topic gets, read off the growth of its queues.

Lives here: ``TopicPutStats``, which listens to the dispatch.
Nothing is added to the path of a send: the dispatch tells where queues end.
"""

from collections.abc import Sequence
from typing import Final

from pocketmq.broker.stats.stats_items import TOPIC_PUT_NUMS, StatsItems
from pocketmq.common.runner import Runner
from pocketmq.store.message_store import MessageStore

QUEUES_MAX: Final = 65_536
"""Queues whose ends are remembered; what further ones get is not counted."""


class TopicPutStats:
    """A service of a broker: counts what comes into queues from ``open`` on, not what a recovery finds."""

    def __init__(self, store: MessageStore, items: StatsItems, queues_max: int = QUEUES_MAX) -> None:
        self._store = store
        self._items = items
        self._queues_max = queues_max
        self._ends: dict[tuple[str, int], int] = {}

    def open(self) -> None:
        """Note where the queues end now, and listen."""
        for topic, queue_id, _, end in self._store.queues()[: self._queues_max]:
            self._ends[topic, queue_id] = end
        self._store.on_dispatched.append(self.news)

    def start(self, runner: Runner) -> None:
        """Nothing more to do."""

    def stop(self) -> None:
        """Listen no more."""
        if self.news in self._store.on_dispatched:
            self._store.on_dispatched.remove(self.news)

    def news(self, queues: Sequence[tuple[str, int, int]]) -> None:
        """Learn that queues now end at (topic, queue id, end); one pass at a time."""
        for topic, queue_id, end in queues:
            known = self._ends.get((topic, queue_id))
            if known is None and len(self._ends) >= self._queues_max:
                continue
            self._ends[topic, queue_id] = end
            # a queue that ends before where it did belongs to a topic that was deleted and made again
            grown = end - known if known is not None and end >= known else end
            if grown > 0:
                self._items.add(TOPIC_PUT_NUMS, topic, grown, grown)
