"""Token buckets: so many a second, some of them at once, and debt for what is larger.

    bucket = TokenBucket(limit, now_ns)
    if take_all((bucket,), messages, size_bytes, now_ns) is None: ...   # it was let through, and is paid

A bucket fills with ``rate`` tokens a second up to ``burst``. It is open while it holds more than nothing; then anything
passes, however large, and is paid in full: what is larger than the bucket leaves a debt, and the bucket opens when that
is paid. So over any time ``t`` at most ``burst + rate * t`` tokens and one request more pass, and no request is too
large to pass ever.

Pure: the time is an argument. Not thread-safe.

Lives here: ``Limit``, ``TokenBucket``, ``take_all``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limit:
    """What a bucket limits, and the words for it."""

    kind: str
    """For metrics: ``bytes_in``, ``messages_out`` and so on."""
    counts_bytes: bool
    """Tokens are bytes, else messages."""
    rate: int
    """Tokens a second, more than 0."""
    burst: int
    """Tokens that a bucket holds when it is full, more than 0."""
    whose: str = ""
    """Such as ``user app``."""
    setting: str = ""
    """Where an operator changes it."""


class TokenBucket:
    """One bucket. Times are monotonic ns.

    Holds: ``level <= limit.burst``; below 0 it is a debt.
    """

    __slots__ = ("at_ns", "burst", "counts_bytes", "level", "limit", "per_ns")

    def __init__(self, limit: Limit, now_ns: int) -> None:
        """Begin full."""
        self.limit = limit
        self.counts_bytes = limit.counts_bytes
        self.burst = float(limit.burst)
        self.per_ns = limit.rate / NS_PER_S
        self.level = self.burst
        self.at_ns = now_ns

    def wait_ns(self, now_ns: int) -> int:
        """Return how long until the bucket is open; 0: it is."""
        level = self.level + max(now_ns - self.at_ns, 0) * self.per_ns
        return 0 if level > 0 else int(-level / self.per_ns) + 1

    def take(self, tokens: int, now_ns: int) -> None:
        """Pay, open or not; fewer than no tokens give some back."""
        if now_ns > self.at_ns:
            self.level += (now_ns - self.at_ns) * self.per_ns
            self.at_ns = now_ns
        self.level = min(self.level, self.burst) - tokens
        if tokens < 0:
            self.level = min(self.level, self.burst)

    def is_full(self, now_ns: int) -> bool:
        """Return whether forgetting the bucket would forget nothing."""
        return self.level + max(now_ns - self.at_ns, 0) * self.per_ns >= self.burst


def take_all(buckets: Sequence[TokenBucket], messages: int, size_bytes: int, now_ns: int) -> TokenBucket | None:
    """Pay from all buckets if all are open, and return None; else take nothing and return one that is not.

    One call for all of them, because it is made for each frame.
    """
    for bucket in buckets:
        if now_ns > bucket.at_ns:
            level = bucket.level + (now_ns - bucket.at_ns) * bucket.per_ns
            bucket.level = level if level < bucket.burst else bucket.burst
            bucket.at_ns = now_ns
        if bucket.level <= 0:
            return bucket
    for bucket in buckets:
        bucket.level -= size_bytes if bucket.counts_bytes else messages
    return None
