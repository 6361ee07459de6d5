"""The limits of a store's disk usage, and texts that explain each of them.

Lives here: ``Space``, the room on one file system, and ``DiskLimits``: the limits of the settings, and one text for the
log, ``/health`` and the daemons' warning.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pocketmq.common.units import bytes_text
from pocketmq.store.config import StoreConfig

RATIO_MIN, RATIO_MAX = 10, 95
"""RocketMQ clamps ``disk_max_used_space_ratio`` to these."""
FREE_PART: Final = 4
"""By default a quarter of a segment stays free, for consume queues, index, checkpoint and tables: 40 bytes a message in
queue and index, so this is enough for records of 160 bytes and more."""


@dataclass(frozen=True, slots=True)
class Space:
    """Free and total bytes of one file system."""

    free_bytes: int = -1
    total_bytes: int = 0

    @property
    def is_known(self) -> bool:
        """Whether the file system has answered."""
        return self.total_bytes > 0

    @property
    def ratio(self) -> float:
        """Return the used fraction, 0 to 1; -1 if unknown."""
        return 1 - self.free_bytes / self.total_bytes if self.total_bytes > 0 else -1.0


class DiskLimits:
    """Limits in free bytes, and RocketMQ's in percent where they are set. What is not known passes every limit.

    ``free_bytes_min``: with less nothing is stored. ``next_file_bytes``: what must be free before a segment is made;
    with less, and ``may_force``, the oldest segments go whatever their age. ``expired_below_bytes``: with less, expired
    segments go at any hour.
    """

    def __init__(self, config: StoreConfig) -> None:
        self.segment_bytes = config.mapped_file_size_commit_log
        self.free_bytes_min = config.disk_free_bytes_min or self.segment_bytes // FREE_PART
        self.next_file_bytes = self.segment_bytes + self.free_bytes_min
        self.expired_below_bytes = 2 * self.segment_bytes + self.free_bytes_min
        self.may_force = config.clean_file_forcibly_enable
        self.reserved_hours = config.file_reserved_time
        self._full_ratio = _ratio(config.disk_space_warning_level_ratio)
        self._forced_ratio = _ratio(config.disk_space_clean_forcibly_ratio)
        expired = config.disk_max_used_space_ratio
        self._expired_ratio = _ratio(expired and min(max(expired, RATIO_MIN), RATIO_MAX))
        is_slave = config.broker_role == "SLAVE"
        self._stops = "nothing more is copied from the master" if is_slave else "sends are refused"

    # ---- judgements

    def is_full(self, space: Space) -> bool:
        """Return whether nothing may be stored."""
        return space.is_known and (space.free_bytes < self.free_bytes_min or space.ratio > self._full_ratio)

    def is_short(self, space: Space) -> bool:
        """Return whether the oldest segments may go whatever their age, where that is permitted."""
        return space.is_known and (not self.has_room(space.free_bytes) or space.ratio > self._forced_ratio)

    def is_tight(self, space: Space) -> bool:
        """Return whether expired segments go at any hour."""
        if not space.is_known:
            return False
        return space.free_bytes < self.expired_below_bytes or space.ratio > self._expired_ratio or self.is_short(space)

    def has_room(self, free_bytes: int) -> bool:
        """Return whether the next segment can be made; an unknown number (below 0) counts as enough."""
        return free_bytes < 0 or free_bytes >= self.next_file_bytes

    # ---- texts

    @property
    def advice(self) -> str:
        """The operator's options."""
        if self.may_force:
            return "free space on the disk"
        return (
            "free space on the disk, shorten store.file_reserved_time, or have the oldest messages deleted, read or "
            "not: store.clean_file_forcibly_enable = true"
        )

    def full(self, space: Space) -> str:
        """Return why nothing is stored with this space."""
        if space.free_bytes >= self.free_bytes_min:
            return (
                f"{_percent(space.ratio)} full: above {_percent(self._full_ratio)} {self._stops} "
                "(store.disk_space_warning_level_ratio)"
            )
        return (
            f"nearly full ({bytes_text(space.free_bytes)} are free): below {bytes_text(self.free_bytes_min)} "
            f"{self._stops} (store.disk_free_bytes_min)"
        )

    def filling(self, space: Space) -> str:
        """Return the effects while the disk is short of space and not full."""
        if self.may_force:
            kept = "the oldest messages are deleted, read or not (store.clean_file_forcibly_enable)"
        else:
            kept = f"nothing younger than {self.reserved_hours} hours (store.file_reserved_time) is deleted"
        stop = (
            f"{self._stops} when the present file of the log is full, unless {bytes_text(self.next_file_bytes)} are "
            "free for the next one"
        )
        if self.has_room(space.free_bytes):
            stop = f"above {_percent(self._full_ratio)} {self._stops} (store.disk_space_warning_level_ratio)"
            if self._full_ratio > 1:
                stop = f"{self._stops} when the next file of the log has no room"
        return f"{_percent(space.ratio)} full ({bytes_text(space.free_bytes)} are free): {kept}, and {stop}"

    def no_room(self, free_bytes: int) -> str:
        """Return why the next segment cannot be made."""
        return (
            f"{bytes_text(free_bytes)} are free, a file of the log takes {bytes_text(self.segment_bytes)} "
            f"(store.mapped_file_size_commit_log), and {bytes_text(self.free_bytes_min)} must stay free for queues and "
            "index (store.disk_free_bytes_min)"
        )

    def warning(self, path: str, space: Space) -> str:
        """Return a warning for the operator who starts a store at ``path``, "" below the limits."""
        if self.is_full(space):
            return f"the disk of {path} is {self.full(space)}; {self.advice}"
        if self.is_short(space):
            return f"the disk of {path} is {self.filling(space)}; {self.advice}"
        return ""


def worst(limits: DiskLimits, spaces: Iterable[Space]) -> Space:
    """Return the space of the fullest file system; an unknown one only if none is known."""
    known = [space for space in spaces if space.is_known]
    return min(known, key=lambda space: (not limits.is_full(space), space.free_bytes), default=Space())


def _ratio(percent: int) -> float:
    """Return a limit of the settings as a fraction; 0 (not set) is above every disk's."""
    return percent / 100 if percent else 2.0


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %".replace(".0 %", " %")
