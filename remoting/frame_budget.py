"""One memory budget for the half-received frames of all connections.

Lives here: the bytes of each holder, the choice of the reader to pause, and of the one to close if pausing is not
enough.
"""

from typing import Protocol

from pocketmq.common.bounds import bounded

FRAME_BUDGET_BYTES = 256 * 1024 * 1024


class BudgetHolder(Protocol):
    """A decoder, as the budget sees it."""

    charged_bytes: int


class Reader(Protocol):
    """A connection, as the budget sees it."""

    def pause_for_budget(self) -> None:
        """Pause reading."""
        ...

    def resume_for_budget(self) -> None:
        """Resume reading."""
        ...

    def close_for_budget(self) -> None:
        """Close this connection; its decoder is closed before this returns or soon after."""
        ...


@bounded(
    "half-received frames",
    limit="closing_at_bytes",
    size="used_bytes",
    unit="bytes",
    when_full="closes",
    setting="remoting.half_frames_bytes_max",
)
class FrameBudget:
    """Bytes of half-received frames, over all connections of a server (or a client).

    Above ``limit_bytes`` the reader with the largest half-frame is paused, and another one at each further charge; the
    last one goes on, so that a frame can complete. Below 7/8 of the limit the paused ones resume, smallest first. Above
    5/4 of the limit (many newcomers, each with its first read) the largest is closed.
    Holds: ``used_bytes`` is the sum of the charges.
    """

    __slots__ = ("_holders", "_paused", "closed_count", "limit_bytes", "paused_count", "used_bytes")

    def __init__(self, limit_bytes: int = FRAME_BUDGET_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.paused_count = 0
        self.closed_count = 0
        self._holders: dict[BudgetHolder, Reader | None] = {}
        self._paused: set[BudgetHolder] = set()

    @property
    def closing_at_bytes(self) -> int:
        """Above this the largest half-frame is closed."""
        return self.limit_bytes // 4 * 5

    @property
    def is_crowded(self) -> bool:
        """Whether any reader is paused for want of memory."""
        return bool(self._paused)

    def register(self, holder: BudgetHolder, reader: Reader) -> None:
        """Register the reader of ``holder``; a holder without a reader is counted but never paused."""
        self._holders[holder] = reader

    def unregister(self, holder: BudgetHolder) -> None:
        """Remove a holder and give its charge back."""
        self.release(holder)
        self._holders.pop(holder, None)

    def charge(self, holder: BudgetHolder, size_bytes: int) -> None:
        """Set the bytes that ``holder`` has received of its unfinished frame."""
        self.used_bytes += size_bytes - holder.charged_bytes
        holder.charged_bytes = size_bytes
        if self.used_bytes > self.limit_bytes:
            self._over()

    def release(self, holder: BudgetHolder) -> None:
        """Set it to nothing."""
        if holder.charged_bytes:
            self.used_bytes -= holder.charged_bytes
            holder.charged_bytes = 0
        if self._paused:
            if holder in self._paused:
                self._resume(holder)
            if self.used_bytes <= self.limit_bytes // 8 * 7:
                for waiting in sorted(self._paused, key=_charged):
                    self._resume(waiting)

    def _resume(self, holder: BudgetHolder) -> None:
        self._paused.discard(holder)
        reader = self._holders.get(holder)
        if reader is not None:
            reader.resume_for_budget()

    def _over(self) -> None:
        if self.used_bytes > self.closing_at_bytes:
            self._close_largest()
            return
        reading = [h for h, r in self._holders.items() if r is not None and h.charged_bytes and h not in self._paused]
        if len(reading) > 1:
            largest = max(reading, key=_charged)
            self._paused.add(largest)
            self.paused_count += 1
            reader = self._holders[largest]
            assert reader is not None
            reader.pause_for_budget()

    def _close_largest(self) -> None:
        largest = max(
            (h for h, r in self._holders.items() if r is not None and h.charged_bytes), key=_charged, default=None
        )
        if largest is not None:
            reader = self._holders[largest]
            assert reader is not None
            self.closed_count += 1
            reader.close_for_budget()


def _charged(holder: BudgetHolder) -> int:
    return holder.charged_bytes
