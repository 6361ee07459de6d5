"""The owner of a retry store, and the wait for an owner that may be dead.

Lives here: ``Owner``, the record an owner leaves on a server; ``Tokens``, which tell a store's own records from those
of others; ``StoreWait``, the progress a waiting caller gets; ``Patience``, when to check again and when to give up;
``open_when_free`` for callers that may block.
"""

import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from pocketmq.client.durable.errors import RetryStoreLocked
from pocketmq.client.durable.store import RetryStore, Summary
from pocketmq.common.clock import Clock
from pocketmq.common.errors import DECODE_ERRORS

HOST_CHARS_MAX: Final = 255
LEASE_MS_MAX: Final = 3_600_000
"""Longest lease that can be set; a longer one in an owner's record is not believed."""
PAUSE_MS_FIRST: Final = 50
PAUSE_MS_MAX: Final = 500
"""Between two checks: short at first, since most owners that are leaving are gone soon."""
REPORT_MS: Final = 1_000
MARGIN_MS: Final = 2_000
"""Added to the rest of a lease: a check takes time, and the last one must begin after the end."""
SILENT_SHARE: Final = 2 / 3
"""An owner renews its lease three times in its length. One that was alive and has been silent for this share may be
dead."""
PLACE_CHARS: Final = 13
"""The first characters of a token may hold a seal (``sql_locks``); the rest identifies it."""
_MAKER_CHARS: Final = 13
_NUMBER_CHARS: Final = 6
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Tokens:
    """The tokens of one store object: each opening has a new one, so a write of an earlier opening that is still on its
    way takes no effect. All are recognized as its own, also one whose answer was lost.

    A token has 32 characters: 13 random ones that a seal may replace, 13 random ones of the object, a number of 6.
    """

    def __init__(self) -> None:
        self._maker = os.urandom(8).hex()[:_MAKER_CHARS]
        self._number = 0

    def new(self) -> str:
        """Return the next token."""
        self._number = (self._number + 1) % 16**_NUMBER_CHARS
        return f"{os.urandom(8).hex()[:PLACE_CHARS]}{self._maker}{self._number:0{_NUMBER_CHARS}x}"

    def made(self, token: str) -> bool:
        """Return whether this object made a token."""
        return token[PLACE_CHARS:-_NUMBER_CHARS] == self._maker


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """One ownership of a store on a server. ``token`` identifies it; the rest is for people, 0 or empty if unknown.

    ``since_ms``: wall time of the owner's own machine. ``lease_ms``: after so long a silence it counts as dead.
    """

    token: str
    host: str = ""
    pid: int = 0
    since_ms: int = 0
    lease_ms: int = 0

    @classmethod
    def new(cls, clock: Clock, lease_ms: int, token: str) -> "Owner":
        """Return a new ownership by this process."""
        host = socket.gethostname().encode("ascii", "replace").decode()[:HOST_CHARS_MAX]
        return cls(token=token, host=host, pid=os.getpid(), since_ms=clock.now_ms(), lease_ms=lease_ms)

    @classmethod
    def decode(cls, value: bytes) -> "Owner":
        """Read what ``encode`` wrote; anything else is a bare token from an earlier version."""
        try:
            return msgspec.json.decode(value, type=cls)
        except DECODE_ERRORS:
            return cls(token=value.decode("ascii", "replace"))

    def encode(self) -> bytes:
        """Return it as JSON."""
        return msgspec.json.encode(self)

    def lease_or(self, default_ms: int) -> int:
        """Return its lease, or the default if the record has no possible one."""
        return self.lease_ms if 0 < self.lease_ms <= LEASE_MS_MAX else default_ms

    def __str__(self) -> str:
        if not self.pid:
            return "another process"
        host = "".join(char if char.isprintable() else "?" for char in self.host[:HOST_CHARS_MAX])
        try:
            since = f"{_EPOCH + timedelta(milliseconds=self.since_ms):%Y-%m-%dT%H:%M:%SZ}"
        except OverflowError:
            since = "an unknown time"
        return f"process {self.pid} on {host or 'an unknown host'}, since {since}"


@dataclass(slots=True, frozen=True)
class StoreWait:
    """Progress of a wait for a store's owner. The wait ends within ``at_most_ms`` of its start, and earlier if the
    owner leaves or shows that it lives."""

    store: str
    owner: str
    waited_ms: int
    at_most_ms: int

    def __str__(self) -> str:
        return (
            f"waiting for {self.store}: {self.owner} owns it and may be dead; "
            f"{self.waited_ms / 1000:.1f} s of at most {self.at_most_ms / 1000:.1f} s"
        )


class Patience:
    """One wait for a store that has an owner. ``report`` is called when it begins, when the owner changes, and about
    once a second."""

    def __init__(self, store_name: str, clock: Clock, report: Callable[[StoreWait], None]) -> None:
        self._store_name = store_name
        self._clock = clock
        self._report = report
        self.end()

    def end(self) -> None:
        """Forget the wait: the store is open, or the caller has given up."""
        self._began_ns = self._ends_ns = self._reported_ns = 0
        self._owner: str | None = None
        self._overdue = False
        self._pause_ms = float(PAUSE_MS_FIRST)

    def pause_ms(self, error: RetryStoreLocked) -> float:
        """Return the ms until the next check after one that ended with ``error``; 0: there is nothing to wait for."""
        if error.left_ms <= 0:
            self.end()
            return 0.0
        now_ns = self._clock.monotonic_ns()
        changed = error.owner != self._owner
        if self._owner is None:
            self._began_ns = now_ns
        if changed:
            self._owner, self._overdue = error.owner, False
            self._ends_ns = now_ns + (error.left_ms + MARGIN_MS) * 1_000_000
        elif now_ns >= self._ends_ns:
            if self._overdue:
                self.end()
                return 0.0
            self._overdue = True  # this check may have begun long ago; the next one begins after the end
        if changed or now_ns - self._reported_ns >= REPORT_MS * 1_000_000:
            self._reported_ns = now_ns
            waited_ms, at_most_ms = ((at - self._began_ns) // 1_000_000 for at in (now_ns, self._ends_ns))
            self._report(StoreWait(self._store_name, error.owner, waited_ms, at_most_ms))
        pause_ms = min(self._pause_ms, error.left_ms + 1)
        self._pause_ms = min(self._pause_ms * 2, PAUSE_MS_MAX)
        return pause_ms


def open_when_free(store: RetryStore, clock: Clock, report: Callable[[StoreWait], None]) -> Summary:
    """Open a store; wait for an owner that may be dead. Blocks the caller's thread; an interrupt ends it.

    Raises what ``open`` raises: ``RetryStoreLocked`` as soon as the owner shows that it lives.
    """
    patience = Patience(store.name, clock, report)
    pause = threading.Event()
    while True:
        try:
            return store.open()
        except RetryStoreLocked as error:
            pause_ms = patience.pause_ms(error)
            if not pause_ms:
                raise
        pause.wait(pause_ms / 1000)
