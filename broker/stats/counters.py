"""Totals of the broker's work.

Lives here: ``BrokerCounters``: totals, rates from samples taken once a second, totals at the last two midnights.
"""

import datetime
import threading
from collections import deque
from collections.abc import Container
from dataclasses import astuple, dataclass
from typing import Final

from pocketmq.broker.stats.stats_items import GROUP_GET_NUMS, GROUP_GET_SIZE, StatsItems, group_key
from pocketmq.common.bounds import bounded

PULLED_MAX: Final = 65_536
"""(topic, group, queue) entries whose last pull is remembered."""
DEAD_MAX: Final = 4_096
"""(group, topic) pairs whose dead letters are counted apart; the rest counts in the total alone."""
SAMPLES_MAX: Final = 601
"""One sample a second: rates over 10, 60 and 600 s (RocketMQ StoreStatsService)."""


@dataclass(slots=True)
class Totals:
    """Counts since the start of the broker: of messages, unless the name says bytes or requests."""

    put: int = 0
    put_bytes: int = 0
    put_failed: int = 0
    get: int = 0
    get_bytes: int = 0
    get_found_requests: int = 0
    get_miss_requests: int = 0
    sent_back: int = 0
    dead_letters: int = 0


@bounded("last pulls", limit=PULLED_MAX, size="pulled", entry_bytes=1_024)
@bounded("groups with dead letters", limit=DEAD_MAX, size="dead_letters", entry_bytes=1_024)
class BrokerCounters:
    """Totals that worker threads add to once per drain or pull. Thread-safe."""

    def __init__(self, items: StatsItems | None = None) -> None:
        self.totals = Totals()
        self.items = StatsItems(0) if items is None else items
        """Statistics by topic and by group."""
        self.pulled: dict[tuple[str, str, int], int] = {}
        """(topic, group, queue id) → the offset after the messages that a pull returned last."""
        self.dead_letters: dict[tuple[str, str], int] = {}
        """(group, topic) → its dead letters."""
        self._lock = threading.Lock()
        self._samples: deque[tuple[int, Totals]] = deque(maxlen=SAMPLES_MAX)
        self._day: datetime.date | None = None
        self.this_morning = Totals()
        """Totals at the last midnight in the machine's time zone; 0 before the first one (RocketMQ BrokerStats)."""
        self.yesterday_morning = Totals()

    def put(self, messages: int, size_bytes: int) -> None:
        """Count an append."""
        with self._lock:
            self.totals.put += messages
            self.totals.put_bytes += size_bytes

    def put_failed(self, messages: int) -> None:
        """Count a failed append."""
        with self._lock:
            self.totals.put_failed += messages

    def sent_back(self, is_dead: bool, group: str, topic: str) -> None:
        """Count a message that a consumer of ``group`` sent back; ``topic``: where it was sent first; ``is_dead``: it
        went to the dead-letter topic."""
        with self._lock:
            self.totals.sent_back += 1
            self.totals.dead_letters += is_dead
            known = self.dead_letters.get((group, topic), 0)
            if is_dead and (known or len(self.dead_letters) < DEAD_MAX):
                self.dead_letters[group, topic] = known + 1

    def got(self, messages: int, size_bytes: int) -> None:
        """Count a pull that returned ``messages`` messages."""
        with self._lock:
            self.totals.get += messages
            self.totals.get_bytes += size_bytes
            if messages:
                self.totals.get_found_requests += 1
            else:
                self.totals.get_miss_requests += 1

    def group_got(
        self, topic: str, group: str, queue_id: int, next_offset: int, messages: int, size_bytes: int
    ) -> None:
        """Count the messages that one pull returned to a group from one queue, up to ``next_offset``."""
        pulled = (topic, group, queue_id)
        if pulled in self.pulled or len(self.pulled) < PULLED_MAX:
            self.pulled[pulled] = next_offset
        key = group_key(topic, group)
        self.items.add(GROUP_GET_NUMS, key, messages)
        self.items.add(GROUP_GET_SIZE, key, size_bytes)

    def forget_pulled(self, pairs: Container[tuple[str, str]]) -> None:
        """Forget the pulls of all groups but these (topic, group) pairs."""
        for topic, group, queue_id in list(self.pulled):
            if (topic, group) not in pairs:
                self.pulled.pop((topic, group, queue_id), None)

    def sample(self, now_ns: int, now_ms: int) -> None:
        """Keep the totals of this second, and those of midnight when a new day has begun."""
        self.items.sample(now_ms)
        day = datetime.datetime.fromtimestamp(now_ms / 1000).date()
        with self._lock:
            totals = Totals(*astuple(self.totals))
            self._samples.append((now_ns, totals))
            if self._day is not None and day > self._day:
                self.yesterday_morning, self.this_morning = self.this_morning, totals
            self._day = day

    def rates(self, name: str, now_ns: int) -> list[float]:
        """Return the rate per second of one total over the last 10, 60 and 600 s."""
        with self._lock:
            samples = list(self._samples)
            now = getattr(self.totals, name)
        rates: list[float] = []
        for seconds in (10, 60, 600):
            oldest = next((each for each in samples if now_ns - each[0] <= seconds * 1_000_000_000), None)
            took_s = 0.0 if oldest is None else (now_ns - oldest[0]) / 1e9
            rates.append(0.0 if oldest is None or took_s <= 0 else (now - getattr(oldest[1], name)) / took_s)
        return rates
