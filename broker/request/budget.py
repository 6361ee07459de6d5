"""The time that one request may take from a thread.

A pull may name a thousand queues and filter every message of them: without a limit its work goes on for minutes, even
after its connection has closed. So it ends when its time is over, its connection has closed, or the broker stops; the
answer leaves what it did not reach for the next request.

Lives here: ``Budgets``, which begins a ``Budget`` for each request that may be long.
"""

from collections.abc import Callable
from typing import Final, Protocol

from pocketmq.common.clock import Clock

BUDGET_NS: Final = 20_000_000
EVALUATIONS: Final = 4_096
"""Comparisons of a SQL92 filter between two looks at the budget: about 1 ms."""
QUEUES: Final = 8
"""Queues between two looks of a pull at its budget."""


class Peer(Protocol):
    """A connection, as far as a budget needs it."""

    closed: bool


class Budget:
    """The time of one request. ``is_over`` costs one look at the clock."""

    __slots__ = ("_monotonic_ns", "_owner", "_peer", "_until_ns")

    def __init__(self, owner: "Budgets", peer: Peer, monotonic_ns: Callable[[], int]) -> None:
        self._owner = owner
        self._peer = peer
        self._monotonic_ns = monotonic_ns
        self._until_ns = monotonic_ns() + BUDGET_NS

    def is_over(self) -> bool:
        """Return whether the request must end here."""
        return self._peer.closed or self._owner.closing or self._monotonic_ns() >= self._until_ns


class Budgets:
    """The budgets of one broker's requests. Thread-safe: ``closing`` only ever becomes true."""

    __slots__ = ("_monotonic_ns", "closing")

    def __init__(self, clock: Clock) -> None:
        self._monotonic_ns = clock.monotonic_ns
        self.closing = False

    def close(self) -> None:
        """End every long request at its next look: the broker stops."""
        self.closing = True

    def begin(self, peer: Peer) -> Budget:
        """Start the time of one request."""
        return Budget(self, peer, self._monotonic_ns)
