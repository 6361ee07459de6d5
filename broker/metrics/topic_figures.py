"""Messages and bytes of each topic, counted from its queues and not from its sends.

A queue's entries say how many messages it got and how long each record is. So a send pays nothing: what a queue has
grown by is read from its end, in memory as a rule, every few seconds and off the loop.

Lives here: ``TopicFigures``; ``sizes`` of all messages, in RocketMQ's buckets.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from pocketmq.broker.metrics.label_text import OTHER, LabelTexts, label_text
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.errors import PocketMQError
from pocketmq.common.topics import SYSTEM_PREFIX, SYSTEM_TOPICS
from pocketmq.store.consumequeue.consume_queue import BLANK_SIZE, ConsumeQueue
from pocketmq.store.message_store import MessageStore

ENTRIES_AT_ONCE: Final = 65_536
"""1.3 MB of a queue."""
SIZE_BOUNDS: Final = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
"""Bytes of a record; the last bucket has no bound (RocketMQ 5.3 BrokerMetricsManager.initMetricsView)."""
MESSAGE_TYPES: Final = frozenset({"normal", "fifo", "delay", "transaction"})
"""RocketMQ's TopicMessageType, as its metrics write it."""


@dataclass(slots=True)
class Traffic:
    """What came since the start; ``size_bytes`` of the records in the log."""

    messages: int = 0
    size_bytes: int = 0


def is_system_topic(topic: str) -> bool:
    """Return what RocketMQ's metrics call a system topic (TopicValidator.isSystemTopic)."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def flag_text(flag: bool) -> str:
    """Return a flag as a label value."""
    return "true" if flag else "false"


class TopicFigures:
    """Folds the growth of all queues. One worker thread."""

    def __init__(self, store: MessageStore, topics: TopicTable, node: dict[str, str], count_max: int) -> None:
        """``node``: the labels that all series have; ``count_max``: topics with series of their own."""
        self._store = store
        self._topics = topics
        self._node = node
        self._ends: dict[tuple[str, int], int] = {}
        other = label_text({**node, "topic": OTHER, "message_type": OTHER, "is_system": OTHER})
        self._texts: LabelTexts[str] = LabelTexts(count_max, self._text, other)
        self._traffic: dict[str, Traffic] = {}
        self._counts = np.zeros(len(SIZE_BOUNDS) + 1, np.int64)
        self.sizes = Traffic()
        """All messages together."""

    def open(self) -> None:
        """Note where the queues end now: what a recovery finds is not counted."""
        for queue in self._store.consume_queues.all():
            self._ends[queue.topic, queue.queue_id] = queue.max_offset

    def fold(self) -> None:
        """Count what the queues have grown by. May read the disk; a queue that cannot be read is counted later."""
        queues = self._store.consume_queues.all()
        for queue in queues:
            key, end = (queue.topic, queue.queue_id), queue.max_offset
            known = self._ends.get(key, 0)
            if end != known:
                # a queue that ends earlier belongs to a topic that was deleted and created again
                begin = max(known if end > known else 0, queue.min_offset)
                self._ends[key] = self._count(queue, begin, end)
        if len(self._ends) > len(queues):
            self._forget({(queue.topic, queue.queue_id) for queue in queues})

    def _count(self, queue: ConsumeQueue, begin: int, end: int) -> int:
        """Count the entries of a queue from ``begin`` on; return how far they could be read."""
        while begin < end:
            try:
                entries = queue.read(begin, min(end - begin, ENTRIES_AT_ONCE))
            except PocketMQError:  # a sick disk, which other metrics show
                break
            if not len(entries):
                break
            begin += len(entries)
            sizes = entries["size"][entries["size"] != BLANK_SIZE]
            size_bytes = int(sizes.sum(dtype=np.int64))
            self._counts += np.bincount(np.searchsorted(SIZE_BOUNDS, sizes, "left"), minlength=len(self._counts))
            for traffic in (self.sizes, self._traffic_of(queue.topic)):
                traffic.messages += len(sizes)
                traffic.size_bytes += size_bytes
        return begin

    def _traffic_of(self, topic: str) -> Traffic:
        text = self._texts.of(topic)
        traffic = self._traffic.get(text)
        if traffic is None:
            traffic = self._traffic[text] = Traffic()
        return traffic

    def _forget(self, present: set[tuple[str, int]]) -> None:
        """Drop the queues that are gone, and the series of topics that are."""
        for key in [key for key in self._ends if key not in present]:
            del self._ends[key]
        topics = {topic for topic, _ in present}
        for topic in [topic for topic in self._texts.texts if topic not in topics]:
            self._traffic.pop(self._texts.texts.pop(topic), None)

    def _text(self, topic: str) -> str:
        config = self._topics.get(topic)
        given = ((config and config.attributes) or {}).get("message.type", "").lower()
        kind = given if given in MESSAGE_TYPES else "normal"
        return label_text(
            {**self._node, "topic": topic, "message_type": kind, "is_system": flag_text(is_system_topic(topic))}
        )

    def lines(self) -> Iterable[tuple[str, Traffic]]:
        """Return (label text, traffic) of each topic that got a message. The thread that folds."""
        return self._traffic.items()

    def size_buckets(self) -> Iterator[tuple[str, float]]:
        """Yield RocketMQ's buckets of record sizes, cumulative up to ``+Inf``."""
        bounds = (*(f"{bound:.1f}" for bound in SIZE_BOUNDS), "+Inf")
        yield from zip(bounds, (float(count) for count in np.cumsum(self._counts)), strict=True)
