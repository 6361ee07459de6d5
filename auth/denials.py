"""The last refusals of access control, for an administrator to look at.

Lives here: ``Denial``, ``Denials``.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from pocketmq.common.bounds import bounded

DENIALS_MAX: Final = 1_000
"""Denials kept; the oldest go first."""


class Denial(msgspec.Struct, rename="camel"):
    """One refusal, or several equal ones in a row. Times: wall clock in ms."""

    time_ms: int
    user: str
    """Empty: none was given."""
    address: str
    code: int
    resource: str
    """Such as ``Topic:orders``; empty where the user was refused, not the resource."""
    action: str
    why: str
    count: int = 1
    last_ms: int = 0


@bounded("denials", limit=DENIALS_MAX, size="entries", entry_bytes=2_048, when_full="evicts")
class Denials:
    """Notes denials; any thread."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._lock = threading.Lock()
        self.entries: deque[Denial] = deque(maxlen=DENIALS_MAX)
        self.counts = {"user": 0, "policy": 0, "flood": 0}
        """Why, in one word → how often since the start. Any thread."""

    def copy(self) -> list[Denial]:
        """Return the denials, the oldest first; any thread."""
        while True:
            try:
                return [msgspec.structs.replace(each) for each in self.entries]
            except RuntimeError:  # one was added meanwhile
                continue

    def note(self, kind: str, user: str, host: str, code: int, resource: str, action: str, why: str) -> None:
        """Note one; ``kind`` is one of few words, for metrics."""
        with self._lock:  # held for a moment: the loop is one of those who note
            self._note(kind, user, host, code, resource, action, why)

    def _note(self, kind: str, user: str, host: str, code: int, resource: str, action: str, why: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        now_ms = self._wall_ms()
        if self.entries:
            last = self.entries[-1]
            if (last.user, last.address, last.code, last.resource, last.why) == (user, host, code, resource, why):
                last.count += 1
                last.last_ms = now_ms
                return
        self.entries.append(Denial(now_ms, user[:64], host, code, resource[:300], action, why[:400], 1, now_ms))
