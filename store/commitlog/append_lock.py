"""The one lock around every append.

Lives here: ``AppendLock``: its present hold time, the limit above which the page cache counts as busy, the wait that
then gives up, and the longest holds of the last minute.
"""

import threading
from types import TracebackType
from typing import Final

from pocketmq.common.clock import Clock
from pocketmq.store.errors import PageCacheBusy

BUSY_GUARD_MS: Final = 10_000_000
"""A hold above it does not count as busy (RocketMQ DefaultMessageStore.isOSPageCacheBusy, 5.3)."""
WAIT_LIMITS_MAX: Final = 5
"""A waiter gives up after this many times the busy limit, even if each holder before it stayed below the limit."""
_LOOK_NS: Final = 50_000_000
_SLOT_NS: Final = 10_000_000_000
_SLOTS: Final = 6


class AppendLock:
    """A mutex whose marker is set and reset together with it, even after an exception.

    ``with lock`` is for appends: it raises ``PageCacheBusy`` when the present holder has had the lock for more than
    ``busy_limit_ms``, before the wait or during it. ``with lock.patient`` waits as long as it takes.

    ``held_since_ns``: monotonic time at which the present holder entered, 0 when free; for the holder, its own start.
    Totals count finished holds, ``busy_episodes`` those longer than the limit, ``busy_refusals`` the waiters that gave
    up. Only the ways in ever wait. ``enter_at`` and ``leave_at`` are ``with lock`` for a caller that has
    just read the time anyway.
    """

    __slots__ = (
        "_count_lock",
        "_guard_ns",
        "_limit_ns",
        "_lock",
        "_longest_now_ns",
        "_longest_ns",
        "_monotonic_ns",
        "_slot",
        "_slot_end_ns",
        "busy_episodes",
        "busy_refusals",
        "held_ns_total",
        "held_since_ns",
        "holds",
        "patient",
    )

    def __init__(self, clock: Clock, busy_limit_ms: int = 1000) -> None:
        self._lock = threading.Lock()
        self._count_lock = threading.Lock()
        self._monotonic_ns = clock.monotonic_ns
        self.limit_by(busy_limit_ms)
        self._guard_ns = BUSY_GUARD_MS * 1_000_000
        self._longest_ns = [0] * _SLOTS  # of each 10 s before the present ones, a ring
        self._longest_now_ns = 0
        self._slot = 0  # number of the 10 s that the last finished hold ended in
        self._slot_end_ns = 0
        self.held_since_ns = 0
        self.held_ns_total = 0
        self.holds = 0
        self.busy_episodes = 0
        self.busy_refusals = 0
        self.patient = _Patient(self)

    def limit_by(self, busy_limit_ms: int) -> None:
        """Take another time after which the lock counts as busy; a hold under way is measured by it, too."""
        self._limit_ns = busy_limit_ms * 1_000_000

    def __enter__(self) -> "AppendLock":
        if not self._lock.acquire(False):
            self._wait()
        try:
            self.held_since_ns = self._monotonic_ns()
        except BaseException:
            self._lock.release()
            raise
        return self

    def enter_at(self, now_ns: int) -> None:
        """Enter as ``with`` does, at a time just read by the caller; ``leave_at`` must follow in a ``finally``."""
        if not self._lock.acquire(False):
            self._wait()
            now_ns = self._monotonic_ns()
        self.held_since_ns = now_ns

    def try_enter_at(self, now_ns: int) -> bool:
        """Enter as ``enter_at`` does if the lock is free; never wait. Return whether it was."""
        if not self._lock.acquire(False):
            return False
        self.held_since_ns = now_ns
        return True

    def leave_at(self, now_ns: int) -> None:
        """Leave, at a time just read by the caller."""
        since_ns = self.held_since_ns
        self.held_since_ns = 0
        try:
            held_ns = now_ns - since_ns
            self.held_ns_total += held_ns
            self.holds += 1
            if now_ns >= self._slot_end_ns:
                self._turn_to(now_ns // _SLOT_NS)
            if held_ns > self._longest_now_ns:
                self._longest_now_ns = held_ns
            if held_ns > self._limit_ns:
                self.busy_episodes += 1
        finally:
            self._lock.release()

    def enter_patiently(self) -> None:
        """Enter, however long it takes; for ``patient`` only."""
        self._lock.acquire()
        try:
            self.held_since_ns = self._monotonic_ns()
        except BaseException:
            self._lock.release()
            raise

    def _wait(self) -> None:
        """Acquire the lock, or raise ``PageCacheBusy``."""
        asked_ns = self._monotonic_ns()
        limit_ns = self._limit_ns
        while True:
            held_ns = self.held_ns()
            waited_ns = self._monotonic_ns() - asked_ns
            if held_ns > limit_ns or waited_ns > WAIT_LIMITS_MAX * limit_ns:
                with self._count_lock:
                    self.busy_refusals += 1
                raise PageCacheBusy(
                    "page cache busy",
                    why=f"an append has held the lock for {held_ns // 1_000_000} ms, this one has waited for "
                    f"{waited_ns // 1_000_000} ms; the limit is {limit_ns // 1_000_000} ms",
                    hint="the disk is slow or hangs; see store.os_page_cache_busy_timeout_mills",
                )
            # Checked repeatedly: by then another thread may hold the lock, and exceed its limit 1 ms later.
            if self._lock.acquire(timeout=min(_LOOK_NS, limit_ns - held_ns + 1_000_000) / 1e9):
                return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            now_ns = self._monotonic_ns()
        except BaseException:
            self.held_since_ns = 0
            self._lock.release()
            raise
        self.leave_at(now_ns)

    def _turn_to(self, slot: int) -> None:
        self._longest_ns[self._slot % _SLOTS] = self._longest_now_ns
        for passed in range(max(self._slot + 1, slot - _SLOTS + 1), slot + 1):
            self._longest_ns[passed % _SLOTS] = 0
        self._longest_now_ns = 0
        self._slot = slot
        self._slot_end_ns = (slot + 1) * _SLOT_NS

    # ---- statistics, without waiting

    def held_ns(self) -> int:
        """Return how long the lock has been held, 0 when it is free."""
        since_ns = self.held_since_ns
        return self._monotonic_ns() - since_ns if since_ns else 0

    def is_busy(self) -> bool:
        """Return whether the lock has been held for longer than the limit (and below RocketMQ's guard)."""
        return self._limit_ns < self.held_ns() < self._guard_ns

    def longest_hold_ns(self) -> int:
        """Return the longest hold of the last 50 to 60 s, the present one included."""
        now_slot = self._monotonic_ns() // _SLOT_NS
        passed = now_slot - self._slot
        longest_ns = self.held_ns()
        if passed < _SLOTS:
            longest_ns = max(longest_ns, self._longest_now_ns)
        for age in range(1, _SLOTS - passed):
            longest_ns = max(longest_ns, self._longest_ns[(self._slot - age) % _SLOTS])
        return longest_ns


class _Patient:
    """The other way into an ``AppendLock``; the exit is the same."""

    __slots__ = ("_lock",)

    def __init__(self, lock: AppendLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.enter_patiently()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, error, traceback)
