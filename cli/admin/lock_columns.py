"""The lock of an ordered queue, in tables about more than locks.

Lives here: ``LOCK`` and ``lock_columns``; ``seconds``, the text of a time in these tables.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketmq.client.admin.lock_admin import QueueLockStatus

LOCK = ("holder", "renewed", "waiting")


def lock_columns(lock: "QueueLockStatus | None") -> tuple[str | None, ...]:
    """Return the cells of ``LOCK`` for a queue in a table about more than locks."""
    if lock is None:
        return (None,) * len(LOCK)
    waiting = ", ".join(f"{each.client_id} ({seconds(each.waiting_ms)})" for each in lock.info.waiting)
    return lock.info.client_id, f"{seconds(lock.info.renewed_ms_ago)} ago", waiting or None


def seconds(time_ms: int) -> str:
    """Return a time in the unit that reads best: ``0.4 s``, ``54 s``, ``12 min``, ``3.5 h``."""
    value = time_ms / 1000
    if value < 10:
        return f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"
