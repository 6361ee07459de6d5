"""The recent figures of a consumer, for each topic.

Lives here: ``TopicCounts`` (plain counters) and ``ConsumerStatistics`` (rates over the last minute,
RocketMQ's ConsumerStatsManager).
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from pocketmq.common.clock import Clock

WINDOW_NS = 60_000_000_000
"""RocketMQ shows the last minute."""
SAMPLE_NS = 1_000_000_000


@dataclass(slots=True)
class TopicCounts:
    """Since the start: messages done, messages that failed, messages pulled, pulls; times in ns."""

    ok: int = 0
    failed: int = 0
    handler_ns: int = 0
    pulled: int = 0
    pulls: int = 0
    pull_ns: int = 0


class Rates(NamedTuple):
    """Times in ms, rates in messages a second, over the last minute; ``failed_count`` since the start."""

    pull_rt_ms: float = 0.0
    pull_tps: float = 0.0
    consume_rt_ms: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    failed_count: int = 0


_Sample = tuple[int, int, int, int, int, int, int]


class ConsumerStatistics:
    """The counts of each topic, with samples of the last minute. ``sample`` is called about once a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: dict[str, TopicCounts] = {}
        self._samples: dict[str, deque[_Sample]] = {}

    def counts(self, topic: str) -> TopicCounts:
        """Return the counters of a topic."""
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = TopicCounts()
            self._samples[topic] = deque([_sample(self._clock.monotonic_ns(), counts)])
        return counts

    def sample(self) -> None:
        """Sample the counters, at most once a second."""
        now_ns = self._clock.monotonic_ns()
        for topic, counts in self._topics.items():
            samples = self._samples[topic]
            if now_ns - samples[-1][0] < SAMPLE_NS:
                continue
            samples.append(_sample(now_ns, counts))
            while len(samples) > 1 and samples[1][0] <= now_ns - WINDOW_NS:
                samples.popleft()

    def rates(self, topic: str) -> Rates:
        """Return the rates of a topic in the last minute."""
        counts = self._topics.get(topic)
        if counts is None:
            return Rates()
        now = _sample(self._clock.monotonic_ns(), counts)
        before = self._samples[topic][0]
        ns, ok, failed, handler_ns, pulled, pulls, pull_ns = (new - old for new, old in zip(now, before, strict=True))
        seconds = max(ns, 1) / 1e9
        return Rates(
            pull_ns / 1e6 / pulls if pulls else 0.0,
            pulled / seconds,
            handler_ns / 1e6 / (ok + failed) if ok + failed else 0.0,
            ok / seconds,
            failed / seconds,
            counts.failed,
        )


def _sample(now_ns: int, counts: TopicCounts) -> _Sample:
    return now_ns, counts.ok, counts.failed, counts.handler_ns, counts.pulled, counts.pulls, counts.pull_ns
