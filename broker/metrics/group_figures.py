"""How far each group is behind in each topic: in messages and in time, and how much of it is under way.

Lives here: ``GroupFigures``, ``Lag``.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.metrics.label_text import OTHER, LabelTexts, label_text
from pocketmq.broker.metrics.topic_figures import flag_text, is_system_topic
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.topics import RETRY_PREFIX
from pocketmq.store.message_store import MessageStore

TIMES_MAX: Final = 10_000
"""Store times that one round reads; a queue beyond has none in this round. One costs about 10 µs, or a disk read."""

Pair = tuple[str, str]
"""(topic, group)"""


@dataclass(slots=True)
class Lag:
    """One group in one topic. Messages: ``behind`` are stored and not committed; ``under_way`` of them were handed out,
    ``ready`` were not. ``behind_ms``, ``queueing_ms``: age of the oldest one that is behind, or ready; 0: there is
    none.
    """

    behind: int = 0
    under_way: int = 0
    ready: int = 0
    behind_ms: int = 0
    queueing_ms: int = 0

    def add(self, other: "Lag") -> None:
        """Add another group's messages, and keep the greater ages."""
        self.behind += other.behind
        self.under_way += other.under_way
        self.ready += other.ready
        self.behind_ms = max(self.behind_ms, other.behind_ms)
        self.queueing_ms = max(self.queueing_ms, other.queueing_ms)


class GroupFigures:
    """Computed in rounds by one worker thread, which may wait for the disk."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        clients: ClientTable[Any],
        counters: BrokerCounters,
        node: Mapping[str, str],
        count_max: int,
        now_ms: Callable[[], int],
    ) -> None:
        """``node``: the labels that all series have; ``count_max``: groups in topics with series of their own."""
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._counters = counters
        self._node = node
        self._now_ms = now_ms
        other = dict.fromkeys(("topic", "consumer_group", "is_system", "is_retry"), OTHER)
        self._texts: LabelTexts[Pair] = LabelTexts(count_max, self._text, label_text({**node, **other}))
        self._times: dict[tuple[str, int, int], int] = {}
        """(topic, queue id, offset) → store time, of the last round: a group that stands still costs no read."""
        self._lines: dict[str, Lag] = {}

    def look(self) -> None:
        """Compute all figures anew. May read the disk."""
        lines: dict[str, Lag] = {}
        known: dict[tuple[str, int, int], int] = {}
        pairs: set[Pair] = set()
        for group, topics in self._offsets.topics_by_group().items():
            for topic in topics:
                config = self._topics.get(topic)
                if config is None or self._has_left(group, topic):
                    continue
                pairs.add((topic, group))
                lag = self._lag(group, topic, config.write_queue_nums, known)
                kept = lines.setdefault(self._texts.of((topic, group)), lag)
                if kept is not lag:
                    kept.add(lag)
        self._times = known
        self._lines = lines
        self._texts.keep_only(pairs)
        self._counters.forget_pulled(pairs)

    def lines(self) -> Iterable[tuple[str, Lag]]:
        """Return (label text, lag) of each group in each topic."""
        return self._lines.items()

    def _lag(self, group: str, topic: str, queue_nums: int, known: dict[tuple[str, int, int], int]) -> Lag:
        committed = self._offsets.of(group, topic)
        pulled_of = self._counters.pulled
        lag, oldest_behind, oldest_ready = Lag(), 0, 0
        for queue_id in range(queue_nums):
            queue = self._store.consume_queues.get(topic, queue_id)
            if queue is None:
                continue
            low, end = queue.min_offset, queue.max_offset
            begin = max(low, committed.get(queue_id, 0))  # what retention has removed is nobody's lag
            if begin >= end:
                continue
            pulled = min(end, max(begin, pulled_of.get((topic, group, queue_id), 0)))
            lag.behind += end - begin
            lag.under_way += pulled - begin
            lag.ready += end - pulled
            oldest_behind = _older(oldest_behind, self._time(topic, queue_id, begin, known))
            if pulled < end:
                oldest_ready = _older(oldest_ready, self._time(topic, queue_id, pulled, known))
        now_ms = self._now_ms()
        lag.behind_ms = max(0, now_ms - oldest_behind) if oldest_behind else 0
        lag.queueing_ms = max(0, now_ms - oldest_ready) if oldest_ready else 0
        return lag

    def _time(self, topic: str, queue_id: int, offset: int, known: dict[tuple[str, int, int], int]) -> int:
        """Return the store time of a message; 0: it is not known."""
        key = topic, queue_id, offset
        time_ms = known.get(key) or self._times.get(key, 0)
        if not time_ms and len(known) < TIMES_MAX:
            time_ms = max(0, self._store.store_time(topic, queue_id, offset))
        if time_ms:
            known[key] = time_ms
        return time_ms

    def _has_left(self, group: str, topic: str) -> bool:
        """Return whether a group that is online no longer subscribes to the topic."""
        model, subscription = self._clients.subscription(group, topic)
        return model is not None and subscription is None

    def _text(self, pair: Pair) -> str:
        topic, group = pair
        return label_text(
            {
                **self._node,
                "topic": topic,
                "consumer_group": group,
                "is_retry": flag_text(topic.startswith(RETRY_PREFIX)),
                "is_system": flag_text(is_system_topic(topic)),
            }
        )


def _older(one_ms: int, other_ms: int) -> int:
    """Return the earlier of two times, of which 0 is none."""
    return min(one_ms, other_ms) if one_ms and other_ms else one_ms or other_ms
