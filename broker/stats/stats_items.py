"""Statistics by name and key, as RocketMQ's BrokerStatsManager keeps them: by topic, and by group in a topic.

Lives here: ``StatsItems``: totals, and their samples of the last minute, hour and day.
"""

import threading
from array import array
from collections.abc import Iterable
from typing import Final

from pocketmq.common.bounds import bounded
from pocketmq.remoting.protocol.broker import BrokerStatsData, BrokerStatsItem

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
"""Names of statistics (RocketMQ Stats). The key is a topic, or ``topic@group``."""

ITEMS_MAX: Final = 20_000
"""About 1 KB each; further items are not counted."""
WINDOWS: Final = ((7, 10_000), (7, 600_000), (25, 3_600_000))
"""(samples, ms between two samples) for the last minute, hour and day (RocketMQ StatsItemSet)."""


class _Window:
    """When the samples of all items were taken."""

    def __init__(self, first_slot: int, count: int, interval_ms: int, now_ms: int) -> None:
        self.first_slot, self.count, self.interval_ms = first_slot, count, interval_ms
        self.taken = 1  # the first sample is that of the start: all zero
        self.times_ms = [now_ms] * count

    @property
    def oldest(self) -> int:
        """The place of the oldest sample within the window."""
        return 0 if self.taken <= self.count else self.taken % self.count

    def take(self, now_ms: int) -> int | None:
        """Return the slot for the sample that is due now, or None."""
        newest = (self.taken - 1) % self.count
        if 0 <= now_ms - self.times_ms[newest] < self.interval_ms:  # after a clock was set back, a sample is due
            return None
        place = self.taken % self.count
        self.times_ms[place] = now_ms
        self.taken += 1
        return self.first_slot + place


class _Item:
    __slots__ = ("calls", "calls_at", "value", "value_at")

    def __init__(self, slots: int) -> None:
        self.value = 0
        self.calls = 0
        self.value_at = array("q", bytes(8 * slots))
        self.calls_at = array("q", bytes(8 * slots))


@bounded("statistics", limit="items_max", size="__len__", entry_bytes=2048)
class StatsItems:
    """(name, key) → total and samples. Thread-safe; at most ``items_max`` items; one unchanged for a day is removed.

    All items share their sample times; an item younger than a sample had the value 0 then.
    """

    def __init__(self, now_ms: int, items_max: int = ITEMS_MAX) -> None:
        self.items_max = items_max
        self._lock = threading.Lock()
        self._items: dict[tuple[str, str], _Item] = {}
        self._windows: list[_Window] = []
        self._slots = 0
        for count, interval_ms in WINDOWS:
            self._windows.append(_Window(self._slots, count, interval_ms, now_ms))
            self._slots += count

    def add(self, name: str, key: str, value: int, calls: int = 1) -> None:
        """Count ``value`` in ``calls`` calls."""
        with self._lock:
            item = self._items.get((name, key))
            if item is None:
                if len(self._items) >= self.items_max:
                    return
                item = self._items[name, key] = _Item(self._slots)
            item.value += value
            item.calls += calls

    def add_all(self, name: str, counts: Iterable[tuple[str, int]]) -> None:
        """Count (key, value), each value in as many calls."""
        items = self._items
        with self._lock:
            for key, value in counts:
                item = items.get((name, key))
                if item is None:
                    if len(items) >= self.items_max:
                        continue
                    item = items[name, key] = _Item(self._slots)
                item.value += value
                item.calls += value

    def sample(self, now_ms: int) -> None:
        """Take the samples that are due; called about once a second."""
        with self._lock:
            for window in self._windows:
                slot = window.take(now_ms)
                if slot is None:
                    continue
                for item in self._items.values():
                    item.value_at[slot] = item.value
                    item.calls_at[slot] = item.calls
                if window is self._windows[-1] and window.taken > window.count:
                    self._forget_idle(window)

    def _forget_idle(self, window: _Window) -> None:
        oldest = window.first_slot + window.oldest
        for key in [key for key, item in self._items.items() if item.value_at[oldest] == item.value]:
            del self._items[key]

    def forget(self, *, topic: str = "", group: str = "") -> None:
        """Remove the items of a deleted topic or group (RocketMQ BrokerStatsManager.onTopicDeleted, onGroupDeleted)."""
        gone = []
        for name, key in list(self._items):
            of_topic, _, of_group = key.partition("@")
            if of_topic == topic or (group and of_group == group):
                gone.append((name, key))
        with self._lock:
            for item in gone:
                self._items.pop(item, None)

    def data(self, name: str, key: str, now_ms: int) -> BrokerStatsData | None:
        """Return sums and rates over the last minute, hour and day, or None if the item does not exist."""
        with self._lock:
            item = self._items.get((name, key))
            if item is None:
                return None
            return BrokerStatsData(*(self._window_data(item, window, now_ms) for window in self._windows))

    @staticmethod
    def _window_data(item: _Item, window: _Window, now_ms: int) -> BrokerStatsItem:
        place = window.oldest
        slot = window.first_slot + place
        value = item.value - item.value_at[slot]
        calls = item.calls - item.calls_at[slot]
        took_ms = now_ms - window.times_ms[place]
        return BrokerStatsItem(
            sum=value,
            tps=value * 1000 / took_ms if took_ms > 0 else 0.0,
            avgpt=value / calls if calls else 0.0,
        )

    def totals(self, name: str) -> dict[str, int]:
        """Return key → sum since the start of every item of a name."""
        with self._lock:
            return {key: item.value for (each, key), item in self._items.items() if each == name}

    def tps(self, name: str, key: str, now_ms: int) -> float:
        """Return the rate over the last minute; 0 if the item does not exist."""
        data = self.data(name, key, now_ms)
        return 0.0 if data is None else data.stats_minute.tps

    def __len__(self) -> int:
        return len(self._items)


def group_key(topic: str, group: str) -> str:
    """Return the key of a group in a topic (RocketMQ BrokerStatsManager.buildStatsKey)."""
    return f"{topic}@{group}"
