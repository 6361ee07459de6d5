"""Who owns a retry store, and the wait for an owner that may be dead.

Lives here: ``Owner``, what an owner on a server says of itself; ``StoreWait``, what a waiting caller is told;
``Patience``, when to look again and when to give up; ``open_when_free`` for callers that may block.
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
"""Longest lease that can be set; what an owner's record says beyond that is not believed."""
PAUSE_MS_FIRST: Final = 50
PAUSE_MS_MAX: Final = 500
"""Between two looks: short at first, since most owners that are leaving are gone soon."""
TELL_MS: Final = 1_000
MARGIN_MS: Final = 2_000
"""Added to what is left of a lease: a look takes its time, and the last one must come after the end."""
SILENT_SHARE: Final = 2 / 3
"""An owner renews its lease three times in it. One known to live that has missed so much of it may have died since."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """One ownership of a store on a server. ``token`` names it alone; the rest is for people, 0 or empty if unknown.

    ``since_ms``: wall time of the owner's own machine. ``lease_ms``: how long it may be silent before it is dead.
    """

    token: str
    host: str = ""
    pid: int = 0
    since_ms: int = 0
    lease_ms: int = 0

    @classmethod
    def new(cls, clock: Clock, lease_ms: int) -> "Owner":
        """Return a new ownership by this process."""
        host = socket.gethostname().encode("ascii", "replace").decode()[:HOST_CHARS_MAX]
        token = os.urandom(16).hex()
        return cls(token=token, host=host, pid=os.getpid(), since_ms=clock.now_ms(), lease_ms=lease_ms)

    @classmethod
    def decode(cls, value: bytes) -> "Owner":
        """Read what ``encode`` wrote; anything else is the bare token of an earlier version."""
        try:
            return msgspec.json.decode(value, type=cls)
        except DECODE_ERRORS:
            return cls(token=value.decode("ascii", "replace"))

    def encode(self) -> bytes:
        """Return it as JSON."""
        return msgspec.json.encode(self)

    def lease_or(self, default_ms: int) -> int:
        """Return its lease, or the default where it says none that could be."""
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
    """How far the wait for a store's owner is. It ends within ``at_most_ms`` of its beginning, and earlier if the owner
    leaves, or shows that it lives."""

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
    """One wait for a store that is owned. ``told`` is called when it begins, when the owner changes, and about each
    second."""

    def __init__(self, store_name: str, clock: Clock, told: Callable[[StoreWait], None]) -> None:
        self._store_name = store_name
        self._clock = clock
        self._told = told
        self.end()

    def end(self) -> None:
        """Forget the wait: the store is open, or the caller has given up."""
        self._began_ns = self._ends_ns = self._told_ns = 0
        self._owner: str | None = None
        self._overdue = False
        self._pause_ms = float(PAUSE_MS_FIRST)

    def pause_ms(self, error: RetryStoreLocked) -> float:
        """Return the ms until the next look after one that ended so; 0: there is nothing to wait for."""
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
            self._overdue = True  # this look may have begun long before; the next one begins after the end
        if changed or now_ns - self._told_ns >= TELL_MS * 1_000_000:
            self._told_ns = now_ns
            waited_ms, at_most_ms = ((at - self._began_ns) // 1_000_000 for at in (now_ns, self._ends_ns))
            self._told(StoreWait(self._store_name, error.owner, waited_ms, at_most_ms))
        pause_ms = min(self._pause_ms, error.left_ms + 1)
        self._pause_ms = min(self._pause_ms * 2, PAUSE_MS_MAX)
        return pause_ms


def open_when_free(store: RetryStore, clock: Clock, told: Callable[[StoreWait], None]) -> Summary:
    """Open a store; wait for an owner that may be dead. Blocks the caller's thread; an interrupt ends it.

    Raises what ``open`` raises: ``RetryStoreLocked`` as soon as the owner shows that it lives.
    """
    patience = Patience(store.name, clock, told)
    pause = threading.Event()
    while True:
        try:
            return store.open()
        except RetryStoreLocked as error:
            pause_ms = patience.pause_ms(error)
            if not pause_ms:
                raise
        pause.wait(pause_ms / 1000)
