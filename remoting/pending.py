"""Requests that wait for their answer. No I/O, no clock of its own.

Lives here: ``PendingTable``: opaque numbers, deadlines, matching; ``Waiting``, what it holds.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pocketmq.common.bounds import bounded

OPAQUE_MIN = 1 << 16
"""Below it msgpack packs a number into one to three bytes: from here on the header of a request always has the same
length, and a broker's short path finds what follows the opaque at the same place."""
OPAQUE_MAX = 2**31 - 1
PENDING_MAX = 65_535
"""RocketMQ's permits for asynchronous calls of one client (``NettySystemConfig.java``)."""
_NEVER_NS = 2**63


class Waiting(Protocol):
    """A request that waits for its answer; times are monotonic ns.

    ``turn``: the output's turn in which it was added, -1 for a request that was written at once. ``counts``: of a small
    native append, the records of each section; empty for every other request.
    """

    request_code: int
    started_ns: int
    deadline_ns: int
    turn: int
    counts: tuple[int, ...]

    def done(self, result: Any, /) -> None:
        """Take the answer or the error; called once, unless ``stored`` is."""
        ...

    def stored(self, places: Sequence[tuple[int, int]], /) -> None:
        """Take an answer that was read in place: (first queue offset, physical offset) of each section."""
        ...


class Pending:
    """One request on its way, of any kind; ``turn`` is the output's turn in which it was added."""

    __slots__ = ("counts", "deadline_ns", "done", "request_code", "started_ns", "turn")

    def __init__(
        self, request_code: int, started_ns: int, deadline_ns: int, done: Callable[[Any], None], turn: int
    ) -> None:
        self.request_code = request_code
        self.started_ns = started_ns
        self.deadline_ns = deadline_ns
        self.done = done
        self.turn = turn
        self.counts: tuple[int, ...] = ()

    def stored(self, places: Sequence[tuple[int, int]], /) -> None:
        """Never called: ``counts`` is empty."""
        raise AssertionError(places)


@bounded("requests to one peer", limit="count_max", size="entries", entry_bytes=512)
class PendingTable:
    """opaque → ``Waiting``, at most ``count_max`` of them; the caller that takes an entry out calls its ``done``,
    once."""

    __slots__ = ("_earliest_ns", "_opaque", "count_max", "entries")

    def __init__(self, count_max: int = PENDING_MAX) -> None:
        self.count_max = count_max
        self.entries: dict[int, Waiting] = {}
        """``short_answers`` takes from it what it can settle."""
        self._opaque = OPAQUE_MIN - 1
        self._earliest_ns = _NEVER_NS

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def full(self) -> bool:
        """Whether no further request may be added."""
        return len(self.entries) >= self.count_max

    def next_opaque(self) -> int:
        """Return a number that no pending request has."""
        opaque = self._opaque
        while True:
            opaque = opaque + 1 if opaque < OPAQUE_MAX else OPAQUE_MIN
            if opaque not in self.entries:
                self._opaque = opaque
                return opaque

    def add(self, opaque: int, entry: Waiting) -> None:
        """Enter a request."""
        assert opaque not in self.entries
        self.entries[opaque] = entry
        if entry.deadline_ns < self._earliest_ns:
            self._earliest_ns = entry.deadline_ns

    def code_of(self, opaque: int) -> int | None:
        """Return the request code of a pending request."""
        entry = self.entries.get(opaque)
        return None if entry is None else entry.request_code

    def take(self, opaque: int) -> Waiting | None:
        """Remove and return one."""
        return self.entries.pop(opaque, None)

    def expire(self, now_ns: int) -> list[Waiting]:
        """Remove and return those whose deadline has passed; scans the entries only when one can be due."""
        if now_ns < self._earliest_ns:
            return []
        due = [opaque for opaque, entry in self.entries.items() if entry.deadline_ns <= now_ns]
        expired = [self.entries.pop(opaque) for opaque in due]
        self._earliest_ns = min((entry.deadline_ns for entry in self.entries.values()), default=_NEVER_NS)
        return expired

    def take_all(self) -> list[Waiting]:
        """Remove and return every one, oldest first."""
        entries = list(self.entries.values())
        self.entries.clear()
        self._earliest_ns = _NEVER_NS
        return entries
