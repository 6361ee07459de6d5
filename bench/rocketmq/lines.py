"""The lines that RocketMQ's benchmark programs print, for tools that parse them.

Lives here: counters, the window of ten snapshots, the lines of 4.9 and of 5.3 (``rocketmq-example``, package
``benchmark``: Producer, BatchProducer, Consumer).
"""

import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

SNAPSHOT_S = 1.0
SNAPSHOTS = 10
"""A line needs so many snapshots, one a second, and says what happened between the first and the last of them."""
FORMATS = ("4.9", "5.3")


def human_time(now_s: float) -> str:
    """Return a time as UtilAll.timeMillisToHumanString2 writes it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_s)) + f",{int(now_s * 1000) % 1000:03d}"


@dataclass(slots=True)
class SendCounts:
    """What a producer has done. ``sends`` are requests that were acknowledged, ``messages`` what they held."""

    at_ms: int = 0
    sends: int = 0
    send_failed: int = 0
    response_failed: int = 0
    messages: int = 0
    messages_failed: int = 0
    time_total_ms: int = 0
    max_ms: int = 0

    def took(self, ms: int, messages: int = 1) -> None:
        """Count an acknowledged send."""
        self.sends += 1
        self.messages += messages
        self.time_total_ms += ms
        self.max_ms = max(self.max_ms, ms)

    def failed(self, *, answered: bool, messages: int = 1) -> None:
        """Count a failed send; ``answered``: a broker refused it (RocketMQ: MQBrokerException)."""
        self.messages_failed += messages
        self.response_failed += answered
        self.send_failed += not answered


@dataclass(slots=True)
class ConsumeCounts:
    """What a consumer has done: calls of its listener, ms from birth and from store to the call."""

    at_ms: int = 0
    received: int = 0
    born_total_ms: int = 0
    stored_total_ms: int = 0
    failed: int = 0
    born_max_ms: int = 0
    stored_max_ms: int = 0

    def took(self, born_ms: int, stored_ms: int) -> None:
        """Count a call."""
        self.received += 1
        self.born_total_ms += born_ms
        self.stored_total_ms += stored_ms
        self.born_max_ms = max(self.born_max_ms, born_ms)
        self.stored_max_ms = max(self.stored_max_ms, stored_ms)


def _per_second(begin: int, end: int, ms: int) -> int:
    """Return what happened a second, whole, as RocketMQ cuts it."""
    return int((end - begin) / ms * 1000) if ms > 0 else 0


def _average(total: int, count: int) -> str:
    """Return ms a piece in RocketMQ's ``%7.3f``; Java prints NaN for none."""
    return f"{total / count:7.3f}" if count else f"{'NaN':>7}"


Counts = TypeVar("Counts", SendCounts, ConsumeCounts)


class Window(Generic[Counts]):
    """The last snapshots of counts."""

    def __init__(self, counts: Counts) -> None:
        self.counts: Counts = counts
        self._snapshots: deque[Counts] = deque(maxlen=SNAPSHOTS)

    def snapshot(self, now_s: float) -> None:
        """Take one; call it each second."""
        self._snapshots.append(replace(self.counts, at_ms=int(now_s * 1000)))

    @property
    def full(self) -> bool:
        """Whether there are enough for a line."""
        return len(self._snapshots) == SNAPSHOTS


class SendWindow(Window[SendCounts]):
    """Snapshots of a producer's counts, and the lines they give."""

    def __init__(self, counts: SendCounts, form: str = "5.3", batch: bool = False) -> None:
        super().__init__(counts)
        self._between = " | " if form == "5.3" or batch else " "
        self._batch = batch

    def line(self, now_s: float) -> str:
        """Return the line of the window: rates and averages over it, the rest since the start."""
        begin, end = self._snapshots[0], self._snapshots[-1]
        ms = end.at_ms - begin.at_ms
        sends, time_ms = end.sends - begin.sends, end.time_total_ms - begin.time_total_ms
        tps = _per_second(begin.sends, end.sends, ms)
        first = f"Current Time: {human_time(now_s)}"
        if self._batch:
            messages = end.messages - begin.messages
            parts = [
                first,
                f"Send TPS: {tps}",
                f"Send MPS: {_per_second(begin.messages, end.messages, ms)}",
                f"Max RT(ms): {self.counts.max_ms}",
                f"Average RT(ms): {_average(time_ms, sends)}",
                f"Average Message RT(ms): {_average(time_ms, messages)}",
                f"Send Failed: {end.send_failed + end.response_failed}",
                f"Send Message Failed: {end.messages_failed}",
            ]
        else:
            parts = [first, *self._parts(tps, time_ms, sends, end)]
        return self._between.join(parts)

    def _parts(self, tps: int, time_ms: int, sends: int, end: SendCounts) -> list[str]:
        return [
            f"Send TPS: {tps}",
            f"Max RT(ms): {self.counts.max_ms}",
            f"Average RT(ms): {_average(time_ms, sends)}",
            f"Send Failed: {end.send_failed}",
            f"Response Failed: {end.response_failed}",
        ]

    def complete(self) -> str:
        """Return the last line of a producer that had a number of messages to send."""
        total = f"Send Total: {self.counts.sends + self.counts.send_failed}"
        if len(self._snapshots) < 2:
            parts = [f"Send Failed: {self.counts.send_failed}", f"Response Failed: {self.counts.response_failed}"]
        else:
            begin, end = self._snapshots[0], self._snapshots[-1]
            tps = _per_second(begin.sends, end.sends, end.at_ms - begin.at_ms)
            parts = self._parts(tps, end.time_total_ms - begin.time_total_ms, end.sends - begin.sends, end)
        return "[Complete] " + self._between.join([total, *parts])


class ConsumeWindow(Window[ConsumeCounts]):
    """Snapshots of a consumer's counts, and the lines they give."""

    def __init__(self, counts: ConsumeCounts, form: str = "5.3") -> None:
        super().__init__(counts)
        self._form = form

    def line(self, now_s: float) -> str:
        """Return the line of the window; the longest times count from the last line on."""
        begin, end = self._snapshots[0], self._snapshots[-1]
        received = end.received - begin.received
        tps = _per_second(begin.received, end.received, end.at_ms - begin.at_ms)
        is_new = self._form == "5.3"
        parts = [
            f"Current Time: {human_time(now_s) if is_new else int(now_s * 1000)}",
            f"{'Consume ' * is_new}TPS: {tps}",
            f"AVG(B2C) RT(ms): {_average(end.born_total_ms - begin.born_total_ms, received)}",
            f"AVG(S2C) RT(ms): {_average(end.stored_total_ms - begin.stored_total_ms, received)}",
            f"MAX(B2C) RT(ms): {self.counts.born_max_ms}",
            f"MAX(S2C) RT(ms): {self.counts.stored_max_ms}",
        ]
        failed = end.failed - begin.failed
        if is_new:
            parts.append(f"Consume Fail: {failed}")
        else:
            parts.insert(2, f"FAIL: {failed}")
        self.counts.born_max_ms = self.counts.stored_max_ms = 0
        return (" | " if is_new else " ").join(parts)
