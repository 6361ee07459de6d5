"""How far each group is behind in each topic: in messages and in time, and how much of it is under way.

A round makes hardly an object that the garbage collector has to look at: with 10,000 groups, new ones in each round let
it walk the whole heap in every second round, 70 ms in which no other thread runs.

Lives here: ``GroupFigures``, ``Lag``.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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
    offsets: dict[int, int] = field(default_factory=dict)
    """Of the messages whose store times are known, by queue: ``2 * queue_id`` is behind, one more is ready."""
    times: dict[int, int] = field(default_factory=dict)
    """Their store times."""
    round: int = 0
    """When it was last computed."""

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
        popped: Callable[[str, str, int], tuple[int, int] | None] = lambda group, topic, queue_id: None,
    ) -> None:
        """``node``: the labels that all series have; ``count_max``: groups in topics with series of their own;
        ``popped`` returns (next offset, messages in flight) of a queue that a group pops."""
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._counters = counters
        self._node = node
        self._now_ms = now_ms
        self._popped = popped
        other = dict.fromkeys(("topic", "consumer_group", "is_system", "is_retry"), OTHER)
        self._texts: LabelTexts[Pair] = LabelTexts(count_max, self._text, label_text({**node, **other}))
        self._lags: dict[Pair, Lag] = {}
        self._lines: dict[str, Lag] = {}
        self._round = 0
        self._times_left = 0

    def look(self) -> None:
        """Compute all figures anew. May read the disk."""
        lines: dict[str, Lag] = {}
        self._round += 1
        self._times_left = TIMES_MAX
        for pair in self._offsets.pairs():
            topic, group = pair
            config = self._topics.get(topic)
            if config is None or self._has_left(group, topic):
                continue
            lag = self._lags.get(pair)
            if lag is None:
                lag = self._lags[pair] = Lag()
            lag.round = self._round
            self._compute(lag, group, topic, config.write_queue_nums)
            text = self._texts.of(pair)
            if text is not self._texts.other:
                lines[text] = lag
            else:
                lines.setdefault(text, Lag()).add(lag)
        self._lines = lines
        for pair in [pair for pair, lag in self._lags.items() if lag.round != self._round]:
            del self._lags[pair]
        self._texts.keep_only(self._lags)
        self._counters.forget_pulled(self._lags)

    def lines(self) -> Iterable[tuple[str, Lag]]:
        """Return (label text, lag) of each group in each topic."""
        return self._lines.items()

    def _compute(self, lag: Lag, group: str, topic: str, queue_nums: int) -> None:
        committed = self._offsets.of(group, topic)
        pulled_of = self._counters.pulled
        behind = under_way = ready = oldest_behind = oldest_ready = 0
        for queue_id in range(queue_nums):
            queue = self._store.consume_queues.get(topic, queue_id)
            if queue is None:
                continue
            low, end = queue.min_offset, queue.max_offset
            begin = max(low, committed.get(queue_id, 0))  # what retention has removed is nobody's lag
            if begin >= end:
                continue
            popped = self._popped(group, topic, queue_id)
            reached = pulled_of.get((topic, group, queue_id), 0) if popped is None else popped[0]
            pulled = min(end, max(begin, reached))
            out = pulled - begin if popped is None else min(popped[1], pulled - begin)
            behind += end - pulled + out  # of popped messages, those between them that are acknowledged are not
            under_way += out
            ready += end - pulled
            oldest_behind = _older(oldest_behind, self._time(lag, 2 * queue_id, topic, begin))
            if pulled < end:
                oldest_ready = _older(oldest_ready, self._time(lag, 2 * queue_id + 1, topic, pulled))
        now_ms = self._now_ms()
        lag.behind, lag.under_way, lag.ready = behind, under_way, ready
        lag.behind_ms = max(0, now_ms - oldest_behind) if oldest_behind else 0
        lag.queueing_ms = max(0, now_ms - oldest_ready) if oldest_ready else 0

    def _time(self, lag: Lag, place: int, topic: str, offset: int) -> int:
        """Return the store time of a message; 0: it is not known. One that is known already costs no read."""
        if lag.offsets.get(place) == offset:
            return lag.times[place]
        known = lag.times.get(place & ~1, 0) if lag.offsets.get(place & ~1) == offset else 0
        if not known:
            if not self._times_left:
                return 0
            self._times_left -= 1
            known = max(0, self._store.store_time(topic, place // 2, offset))
        if known:
            lag.offsets[place], lag.times[place] = offset, known
        return known

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
