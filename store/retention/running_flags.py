"""Why a store takes no messages now, as RocketMQ keeps it.

Lives here: ``RunningFlags``: the bits, and whether the store is writable.
"""

from typing import Final

NOT_READABLE: Final = 1
NOT_WRITEABLE: Final = 2
WRITE_LOGICS_QUEUE_ERROR: Final = 4
WRITE_INDEX_FILE_ERROR: Final = 8
DISK_FULL: Final = 16
_UNWRITABLE: Final = NOT_WRITEABLE | WRITE_LOGICS_QUEUE_ERROR | WRITE_INDEX_FILE_ERROR | DISK_FULL


class RunningFlags:
    """RocketMQ's RunningFlags (facts §3.8). Reading never blocks; one thread sets each bit.

    Only DISK_FULL is ever set here: a queue or an index that cannot be written is tried again, and the log, which has
    everything they need, goes on.
    """

    __slots__ = ("bits",)

    def __init__(self) -> None:
        self.bits = 0

    @property
    def is_writable(self) -> bool:
        """Whether messages may be appended."""
        return not self.bits & _UNWRITABLE

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk is above the warning level."""
        return bool(self.bits & DISK_FULL)

    def set_disk_full(self, is_full: bool) -> bool:
        """Set or clear DISK_FULL; return whether that changed it."""
        before = self.bits
        self.bits = before | DISK_FULL if is_full else before & ~DISK_FULL
        return self.bits != before
