"""Durations counted in a list of integers: cheap enough for the path of every request.

    times = Histogram();  times.record_ns(took_ns);  times.percentile_ns(0.99)

Lives here: ``Histogram`` (log-linear buckets), ``WindowedHistogram`` (the last minute, and all since the start),
``SampledHistogram`` (bounded cost at any rate).
"""

from collections import deque
from typing import Final

UNIT_SHIFT: Final = 7
"""Values are counted in units of 128 ns."""
SUB_BITS: Final = 4
"""16 buckets to a power of two: a bucket is at most 1/16 of its value wide."""
SUB_BUCKETS: Final = 1 << SUB_BITS
VALUE_NS_MAX: Final = 1 << 42
"""73 minutes; longer values count as that."""
BUCKET_COUNT: Final = SUB_BUCKETS * ((VALUE_NS_MAX >> UNIT_SHIFT).bit_length() - SUB_BITS + 1)
_LAST: Final = BUCKET_COUNT - 1
_LOOKS_MAX: Final = 1000
"""The writer disturbs a reader no more often than this: 1,000 moves a second take 1 µs each."""
SLOTS: Final = 6
"""Parts that a window moves on by: with one every 10 s it covers the last 50 to 60 s."""
QUICK_NS: Final = 1_000_000
"""Values below it may be sampled; longer ones are counted one by one, so that tails and maxima are exact."""
SAMPLE_INTERVAL_NS: Final = 1_000_000
"""Between two samples of quick values: at most 1,000 a second, which bounds the cost on a busy machine."""


def bucket_of(value_ns: int) -> int:
    """Return the index of the bucket that counts ``value_ns``."""
    units = value_ns >> UNIT_SHIFT
    if units < SUB_BUCKETS:
        return units if units > 0 else 0
    exponent = units.bit_length() - SUB_BITS - 1
    return min((exponent << SUB_BITS) + (units >> exponent), _LAST)


def bucket_begin_ns(index: int) -> int:
    """Return the smallest value that bucket ``index`` counts."""
    if index < SUB_BUCKETS:
        return index << UNIT_SHIFT
    exponent = (index >> SUB_BITS) - 1
    return (SUB_BUCKETS + (index & (SUB_BUCKETS - 1))) << (exponent + UNIT_SHIFT)


class Histogram:
    """Counts durations in ns. One writer at a time; reading while it writes gives counts a few values apart.

    Holds: ``counts`` has ``BUCKET_COUNT`` entries; an answer of ``percentile_ns`` is at most 1/16 above the true value,
    or 128 ns.
    """

    __slots__ = ("counts", "max_ns", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * BUCKET_COUNT
        self.sum_ns = 0
        self.max_ns = 0

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def record_ns(self, value_ns: int, count: int = 1) -> None:
        """Count ``value_ns`` as ``count`` values; negative ones count as 0."""
        units = value_ns >> UNIT_SHIFT
        if units < SUB_BUCKETS:  # bucket_of, written out: a call would cost as much as all the rest
            if units < 0:
                units = value_ns = 0
            self.counts[units] += count
        else:
            exponent = units.bit_length() - SUB_BITS - 1
            index = (exponent << SUB_BITS) + (units >> exponent)
            self.counts[index if index < _LAST else _LAST] += count
        self.sum_ns += value_ns * count
        if value_ns > self.max_ns:
            self.max_ns = value_ns

    def percentile_ns(self, q: float) -> int:
        """Return a value that ``q`` (0 to 1) of all values do not exceed; 0 when there are none."""
        counts = self.counts
        total = sum(counts)
        if not total:
            return 0
        wanted = max(1, min(total, -int(-q * total // 1)))
        seen = 0
        for index, count in enumerate(counts):
            seen += count
            if seen >= wanted:
                return min(bucket_begin_ns(index + 1) - 1, self.max_ns)
        return self.max_ns

    def count_below_ns(self, limit_ns: int) -> int:
        """Return how many values are counted in buckets that begin below ``limit_ns``; exact for a bucket's begin."""
        index = bucket_of(limit_ns)
        return sum(self.counts[: index + (bucket_begin_ns(index) < limit_ns)])

    def add(self, other: "Histogram") -> None:
        """Count everything that ``other`` has counted."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum_ns += other.sum_ns
        self.max_ns = max(self.max_ns, other.max_ns)

    def snapshot(self) -> "Histogram":
        """Return a copy."""
        copy = Histogram()
        copy.counts = self.counts[:]
        copy.sum_ns = self.sum_ns
        copy.max_ns = self.max_ns
        return copy

    def minus(self, other: "Histogram") -> "Histogram":
        """Return the counts since ``other``, an earlier snapshot of this one.

        Its ``max_ns`` is the end of the highest bucket in use, or the largest value ever: the true one is not known.
        """
        rest = Histogram()
        rest.counts = [mine - theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        rest.sum_ns = self.sum_ns - other.sum_ns
        highest = next((index for index in range(_LAST, -1, -1) if rest.counts[index]), -1)
        rest.max_ns = 0 if highest < 0 else min(self.max_ns, bucket_begin_ns(highest + 1) - 1)
        return rest


class WindowedHistogram(Histogram):
    """A histogram of everything since the start that also knows the last ``SLOTS`` slots.

    Its owner calls ``rotate`` at a steady pace, from one thread; ``window`` may be called from any. ``max_ns`` is
    that of the present slot.
    """

    __slots__ = ("_slots", "max_ns_total")

    def __init__(self) -> None:
        super().__init__()
        self.max_ns_total = 0
        self._slots: deque[tuple[list[int], int, int]] = deque([(self.counts[:], 0, 0)], maxlen=SLOTS)

    def rotate(self) -> None:
        """Begin a slot; the oldest one leaves the window."""
        max_ns, self.max_ns = self.max_ns, 0
        self.max_ns_total = max(self.max_ns_total, max_ns)
        self._slots.append((self.counts[:], self.sum_ns, max_ns))

    def window(self) -> Histogram:
        """Return the counts of the window's slots and of the present one, with its true maximum."""
        return self._since_oldest_slot(self)

    def _since_oldest_slot(self, present: Histogram) -> Histogram:
        slots = list(self._slots)
        counts, sum_ns, _ = slots[0]
        recent = Histogram()
        recent.counts = [max(0, now - before) for now, before in zip(present.counts, counts, strict=True)]
        recent.sum_ns = max(0, present.sum_ns - sum_ns)
        recent.max_ns = max([present.max_ns, *(max_ns for _, _, max_ns in slots[1:])])
        return recent


class SampledHistogram(WindowedHistogram):
    """A windowed histogram for very frequent events: all values count, few are measured.

    A quick value less than ``SAMPLE_INTERVAL_NS`` after the last sample is counted with the next sample, as if it had
    been as long. One thread writes; any may read, without a lock: a reader that meets the writer in the middle reads
    again, so that no count ever falls.
    """

    __slots__ = ("_next_ns", "_skipped", "_skipped_ns", "_turn")

    def __init__(self) -> None:
        super().__init__()
        self._next_ns = 0
        self._skipped = 0
        self._skipped_ns = 0
        self._turn = 0  # odd while the writer moves counts from one place to the other

    def sample_ns(self, now_ns: int, value_ns: int, count: int) -> None:
        """Count ``count`` values of ``value_ns``, seen at ``now_ns``."""
        if now_ns < self._next_ns and value_ns < QUICK_NS:
            self._skipped += count
            self._skipped_ns = value_ns
            return
        self._turn += 1
        if value_ns < QUICK_NS:
            self._next_ns = now_ns + SAMPLE_INTERVAL_NS
            count += self._skipped
            self._skipped = 0
        self.record_ns(value_ns, count)
        self._turn += 1

    def snapshot(self) -> Histogram:
        """Return a copy of the counts since the start."""
        for _ in range(_LOOKS_MAX):
            turn = self._turn
            copy = super().snapshot()
            skipped, skipped_ns = self._skipped, self._skipped_ns
            if turn == self._turn and not turn % 2:
                break
        if skipped:
            copy.record_ns(skipped_ns, skipped)
        return copy

    def rotate(self) -> None:
        """Begin a slot; the oldest one leaves the window."""
        max_ns, self.max_ns = self.max_ns, 0
        self.max_ns_total = max(self.max_ns_total, max_ns)
        copy = self.snapshot()
        self._slots.append((copy.counts, copy.sum_ns, max_ns))

    def window(self) -> Histogram:
        """Return the counts of the window."""
        return self._since_oldest_slot(self.snapshot())
