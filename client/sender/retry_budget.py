"""The limit on retries: a bucket of tokens for each broker.

Lives here: ``RetryBudget``. Pure: it only counts. It is no stage of the producer: it decides
whether a further attempt may go, and a stage sees sections, not attempts.

The rule. A retry *to* a broker takes a token from that broker's bucket. It gets it back when the broker stores the
message, or when the request never left. It loses it when the broker refuses, or does not answer. Every request that
the broker stores earns ``ratio`` of a token. So for each broker:

    retries in vain  <=  floor + ratio * requests it stored

An overloaded cluster is not pushed further: where every broker refuses, nothing is earned, and after ``floor`` retries
in vain to each of them sends fail at their first refusal. A successful retry is free: a healthy broker takes over for
one that is down, refuses or hangs, for as long as that lasts. An attempt that failed before any broker saw it (no
route, no connection) is not charged at all.

Tokens that are out count as spent, so the bound holds with any number of sends in flight. A bucket holds at most
``TOKENS_MAX``: so many retries to one broker run at a time, further ones wait.
"""

import enum

RATIO = 0.1
FLOOR = 10
TOKENS_MAX = 100
BROKERS_MAX = 4_096
"""Buckets kept; beyond, the least informative ones go first."""
_UNIT = 1_000
"""Parts of a token, so that ten tenths are one."""


class Room(enum.Enum):
    """Whether a retry may go to a broker."""

    OPEN = "open"
    """There is a token."""
    WAIT = "wait"
    """All tokens are out with running retries: one may come back."""
    EMPTY = "empty"
    """The tokens are lost."""


class _Bucket:
    __slots__ = ("out", "parts")

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.out = 0


class RetryBudget:
    """Buckets by broker name, each with ``floor`` tokens at first. ``ratio`` None: every retry is free, as in RocketMQ.

    Every ``take`` is followed by one ``give_back`` or ``lose``.
    """

    __slots__ = ("_buckets", "_earned", "_floor_parts", "_max_parts", "free")

    def __init__(self, ratio: float | None = RATIO, floor: int = FLOOR) -> None:
        self.free = ratio is None
        self._earned = round((ratio or 0.0) * _UNIT)
        self._floor_parts = floor * _UNIT
        self._max_parts = max(TOKENS_MAX, floor) * _UNIT
        self._buckets: dict[str, _Bucket] = {}

    def tokens(self, broker: str) -> float:
        """Return how many tokens a broker's bucket holds."""
        bucket = self._buckets.get(broker)
        return (self._floor_parts if bucket is None else bucket.parts) / _UNIT

    def stored(self, broker: str) -> None:
        """Note that ``broker`` stored a request with SEND_OK."""
        bucket = self._buckets.get(broker)
        if bucket is None:
            bucket = self._bucket(broker)
        if bucket.parts < self._max_parts:
            parts = bucket.parts + self._earned
            bucket.parts = parts if parts < self._max_parts else self._max_parts  # min, a call less for each send

    def room(self, broker: str) -> Room:
        """Return whether a retry may go to ``broker`` now."""
        bucket = self._buckets.get(broker)
        if self.free:
            return Room.OPEN
        parts = self._floor_parts if bucket is None else bucket.parts
        if parts >= _UNIT:
            return Room.OPEN
        return Room.WAIT if bucket is not None and bucket.out else Room.EMPTY

    def take(self, broker: str) -> None:
        """Take the token of one retry; below zero if there is none (``room`` is asked before)."""
        if not self.free:
            bucket = self._bucket(broker)
            bucket.parts -= _UNIT
            bucket.out += 1

    def give_back(self, broker: str) -> None:
        """Return the token: the retry was stored, or never left."""
        if not self.free:
            bucket = self._bucket(broker)
            bucket.parts = min(bucket.parts + _UNIT, self._max_parts)
            bucket.out -= 1

    def lose(self, broker: str) -> None:
        """Keep the token: the retry was in vain."""
        if not self.free:
            self._bucket(broker).out -= 1

    def _bucket(self, broker: str) -> _Bucket:
        bucket = self._buckets.get(broker)
        if bucket is None:
            if len(self._buckets) >= BROKERS_MAX:
                self._forget()
            bucket = self._buckets[broker] = _Bucket(self._floor_parts)
        return bucket

    def _forget(self) -> None:
        """Drop the half of the idle buckets with the most tokens: a new one would hold nearly as many."""
        idle = sorted((bucket.parts, name) for name, bucket in self._buckets.items() if not bucket.out)
        for _, name in idle[len(idle) // 2 :]:
            del self._buckets[name]
