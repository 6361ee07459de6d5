"""Requests that wait for their answer. No I/O, no clock of its own.

Lives here: ``PendingTable``: opaque numbers, deadlines, matching.
"""

from collections.abc import Callable
from typing import Any

OPAQUE_MIN = 1 << 16
"""Below it msgpack packs a number into one to three bytes: from here on the header of a request always has the same
length, and a broker's short path finds what follows the opaque at the same place."""
OPAQUE_MAX = 2**31 - 1
PENDING_MAX = 65_535
"""RocketMQ's permits for asynchronous calls of one client (``NettySystemConfig.java``)."""
_NEVER_NS = 2**63


class Pending:
    """One request on its way; ``turn`` is the output's turn in which it was added."""

    __slots__ = ("deadline_ns", "done", "request_code", "started_ns", "turn")

    def __init__(
        self, request_code: int, started_ns: int, deadline_ns: int, done: Callable[[Any], None], turn: int
    ) -> None:
        self.request_code = request_code
        self.started_ns = started_ns
        self.deadline_ns = deadline_ns
        self.done = done
        self.turn = turn


class PendingTable:
    """opaque → ``Pending``, at most ``count_max`` of them; the caller that takes an entry out calls its ``done``,
    once."""

    __slots__ = ("_earliest_ns", "_entries", "_opaque", "count_max")

    def __init__(self, count_max: int = PENDING_MAX) -> None:
        self.count_max = count_max
        self._entries: dict[int, Pending] = {}
        self._opaque = OPAQUE_MIN - 1
        self._earliest_ns = _NEVER_NS

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def full(self) -> bool:
        """Whether no further request may be added."""
        return len(self._entries) >= self.count_max

    def next_opaque(self) -> int:
        """Return a number that no pending request has."""
        opaque = self._opaque
        while True:
            opaque = opaque + 1 if opaque < OPAQUE_MAX else OPAQUE_MIN
            if opaque not in self._entries:
                self._opaque = opaque
                return opaque

    def add(self, opaque: int, entry: Pending) -> None:
        """Enter a request."""
        assert opaque not in self._entries
        self._entries[opaque] = entry
        if entry.deadline_ns < self._earliest_ns:
            self._earliest_ns = entry.deadline_ns

    def code_of(self, opaque: int) -> int | None:
        """Return the request code of a pending request."""
        entry = self._entries.get(opaque)
        return None if entry is None else entry.request_code

    def take(self, opaque: int) -> Pending | None:
        """Remove and return one."""
        return self._entries.pop(opaque, None)

    def expire(self, now_ns: int) -> list[Pending]:
        """Remove and return those whose deadline has passed; scans the entries only when one can be due."""
        if now_ns < self._earliest_ns:
            return []
        due = [opaque for opaque, entry in self._entries.items() if entry.deadline_ns <= now_ns]
        expired = [self._entries.pop(opaque) for opaque in due]
        self._earliest_ns = min((entry.deadline_ns for entry in self._entries.values()), default=_NEVER_NS)
        return expired

    def take_all(self) -> list[Pending]:
        """Remove and return every one, oldest first."""
        entries = list(self._entries.values())
        self._entries.clear()
        self._earliest_ns = _NEVER_NS
        return entries
