"""The limits of a store's disk usage, and texts that explain each of them.

Lives here: ``DiskLimits``: the limits of the settings, and one text for the log, ``/health`` and the daemons' warning.
"""

from typing import Final

from pocketmq.store.config import StoreConfig

EXPIRED_MIN, EXPIRED_MAX = 10, 95
"""RocketMQ clamps ``disk_max_used_space_ratio`` to these."""
SPARE_PART: Final = 8
"""A segment is made only if an eighth of its size is left besides it, for consume queues, index, checkpoint and tables:
40 bytes a message in queue and index, so an eighth is enough for records of 320 bytes and more."""


class DiskLimits:
    """Limits as used parts of a disk, 0 to 1. Above ``expired_from`` expired segments go at any hour; above
    ``forced_from``, with ``may_force``, the oldest go whatever their age; above ``full_from`` nothing is stored.
    ``next_file_bytes``: what must be free before a segment is made.
    """

    def __init__(self, config: StoreConfig) -> None:
        self.forced_from = config.disk_space_clean_forcibly_ratio / 100
        self.full_from = config.disk_space_warning_level_ratio / 100
        self.may_force = config.clean_file_forcibly_enable
        expired_from = min(max(config.disk_max_used_space_ratio, EXPIRED_MIN), EXPIRED_MAX) / 100
        self.expired_from = min(expired_from, self.forced_from)
        self.segment_bytes = config.mapped_file_size_commit_log
        self.next_file_bytes = self.segment_bytes + self.segment_bytes // SPARE_PART
        self.reserved_hours = config.file_reserved_time
        is_slave = config.broker_role == "SLAVE"
        self._stops = "nothing more is copied from the master" if is_slave else "sends are refused"

    @property
    def advice(self) -> str:
        """The operator's options."""
        if self.may_force:
            return "free space on the disk"
        return (
            "free space on the disk, shorten store.file_reserved_time, or have the oldest messages deleted, read or "
            "not: store.clean_file_forcibly_enable = true"
        )

    def full(self, used: float) -> str:
        """Return why nothing is stored at this use."""
        return (
            f"{100 * used:.1f} % full, above {100 * self.full_from:.0f} % {self._stops} "
            "(store.disk_space_warning_level_ratio)"
        )

    def filling(self, used: float) -> str:
        """Return the effects between ``forced_from`` and ``full_from``."""
        if self.may_force:
            kept = "the oldest messages are deleted, read or not (store.clean_file_forcibly_enable)"
        else:
            kept = f"nothing younger than {self.reserved_hours} hours (store.file_reserved_time) is deleted"
        if self.full_from < 1:
            stop = f"above {100 * self.full_from:.0f} % {self._stops} (store.disk_space_warning_level_ratio)"
        else:
            stop = f"when the next file of the log has no room {self._stops}"
        return f"{100 * used:.1f} % full: {kept}, and {stop}"

    def no_room(self, free_bytes: int) -> str:
        """Return why the next segment cannot be made."""
        return (
            f"{free_bytes} bytes are free, a file of the log takes {self.segment_bytes} "
            f"(store.mapped_file_size_commit_log), and {self.next_file_bytes - self.segment_bytes} must stay free for "
            "queues and index"
        )

    def has_room(self, free_bytes: int) -> bool:
        """Return whether the next segment can be made; an unknown number (below 0) counts as enough."""
        return free_bytes < 0 or free_bytes >= self.next_file_bytes

    def warning(self, path: str, used: float, free_bytes: int) -> str:
        """Return a warning for the operator who starts a store at ``path``, "" below the limits."""
        if used > self.full_from:
            return f"disk of {path} is {self.full(used)}; {self.advice}"
        if not self.has_room(free_bytes):
            return (
                f"disk of {path} has no room for the next file of the log, without which {self._stops}: "
                f"{self.no_room(free_bytes)}; free space on the disk, or give a new store smaller files"
            )
        if used > self.forced_from:
            return f"disk of {path} is {self.filling(used)}; {self.advice}"
        return ""
