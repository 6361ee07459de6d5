"""Removes old segments, and checks whether the disk is too full.

Lives here: ``Retention``: the worker that checks the disk every ``clean_resource_interval``, decides whether and why
segments are removed, removes them one by one, and then everything that refers only to them.

The rules are RocketMQ's (DefaultMessageStore.CleanCommitLogService), with limits in free bytes and not only in percent
(``DiskLimits``): a disk that is shared may be 90 % full for years.

- at the hours ``delete_when``, on a disk that gets tight, or on demand (``delete_soon``, for 20 rounds): segments not
  changed for ``file_reserved_time`` hours;
- on a disk that is short of space, with ``clean_file_forcibly_enable`` (RocketMQ's default, not ours): the oldest,
  regardless of age. Without it they stay, and their content is logged now and then;
- on a disk that is full the flag DISK_FULL is set too, and no message is accepted until it is clear.

Oldest first, at most 10 a round, ``delete_commit_log_files_interval`` apart, never the last one, stopping at the first
that must stay. A kill after any step is safe: a segment's name is durably gone before the next one is touched, so no
gap can be left, and the next start finds files that refer to removed segments again.
"""

import datetime
import enum
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from pocketmq.common.clock import SteadyTime
from pocketmq.common.errors import PocketMQError
from pocketmq.common.runner import Runner, Worker
from pocketmq.store.checkpointer import Checkpointer
from pocketmq.store.commitlog.checksums import ChecksumLog
from pocketmq.store.commitlog.segment import Segment
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.config import StoreConfig
from pocketmq.store.consumequeue.consume_queues import ConsumeQueues
from pocketmq.store.disk.disk_limits import DiskLimits, Space, worst
from pocketmq.store.environment import StoreEnvironment
from pocketmq.store.errors import StoreFull
from pocketmq.store.gate import SendGate
from pocketmq.store.index.index import KeyIndex

FILES_PER_ROUND: Final = 10
"""RocketMQ MappedFileQueue.DELETE_FILES_BATCH_MAX."""
MANUAL_ROUNDS: Final = 20
"""RocketMQ CleanCommitLogService.MAX_MANUAL_DELETE_FILE_TIMES."""
FIRST_CHECK_MS: Final = 1000.0
FIRST_ROUND_MS: Final = 60_000
"""Nothing is removed in the first minute (RocketMQ DefaultMessageStore.addScheduleTask)."""
WARN_EVERY_NS: Final = 600 * 1_000_000_000
"""A filling disk on which nothing may be removed by force is logged at most this often."""
NAMES_TOLD_MAX: Final = 20
"""Maximum number of topics and of groups in one event; the largest first."""
_HOUR_MS: Final = 3_600_000


class Reason(enum.Enum):
    """Why a segment was removed."""

    AGE = "age"
    TIGHT = "tight"
    FORCED = "forced"
    MANUAL = "manual"


DISK_FULL: Final = 16
"""RocketMQ's bit of RunningFlags. Its others are never set: a queue or an index that cannot be written is tried again,
and the log, from which both can be rebuilt, continues."""


class RunningFlags:
    """Why the store accepts no messages, in RocketMQ's bits. Reading never blocks; one thread sets each bit."""

    __slots__ = ("_gate", "bits")

    def __init__(self, gate: SendGate) -> None:
        self._gate = gate
        self.bits = 0

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk is above the warning level."""
        return bool(self.bits & DISK_FULL)

    def set_disk_full(self, is_full: bool) -> bool:
        """Set or clear DISK_FULL; return whether that changed it."""
        before = self.bits
        self.bits = before | DISK_FULL if is_full else before & ~DISK_FULL
        if self.bits == before:
            return False
        self._gate.changed()
        return True


class Retention:
    """One worker. ``spaces``: the disks of the log and of the consume queues at the last check.

    Since the start: ``removed_segments`` and their ``freed_bytes``.
    """

    def __init__(
        self,
        environment: StoreEnvironment,
        segments: SegmentQueue,
        queues: ConsumeQueues,
        index: KeyIndex,
        checksums: ChecksumLog | None,
        checkpointer: Checkpointer,
    ) -> None:
        """``checkpointer`` returns the physical offset below which no byte of the log is needed to serve, to catch up
        or to recover, and is notified of every segment before its removal.
        """
        config = environment.config
        self.flags = RunningFlags(environment.gate)
        self.wanted_from: Callable[[], int] | None = None
        """Returns the first physical offset of messages that wait for their delivery. Their segments stay regardless of
        age, unless a full disk forces them out. May read files.
        """
        self.groups_behind: Callable[[Mapping[tuple[str, int], int]], list[str]] | None = None
        """Given (topic, queue id) → queue offset, returns the consumer groups of these topics that have not read that
        far.
        """
        self._worker: Worker | None = None
        self._clock = environment.clock
        self.settings_changed(config)
        self.spaces = (Space(), Space())
        self.removed_segments = 0
        self.freed_bytes = 0
        self._file_system = environment.file_system
        self._paths = environment.paths
        self._segments = segments
        self._queues = queues
        self._index = index
        self._checksums = checksums
        self._checkpointer = checkpointer
        self._log = environment.log
        self._error_log = environment.error_log
        self._steady = SteadyTime(environment.clock)
        self._round_from_ns = 0
        self._reason: Reason | None = None
        self._left = 0
        self._manual_rounds = 0
        self._warn_from_ns = 0
        self._cleaned_offset = -1  # files that referred only to the log below it are gone
        self._clean_lock = threading.Lock()  # held over I/O; never taken by appends, reads or the event loop

    def settings_changed(self, config: StoreConfig) -> None:
        """Take ages, hours, intervals and limits, and check the disk at once. Any thread."""
        self.limits = DiskLimits(config)
        self._reserved_ms = config.file_reserved_time * _HOUR_MS
        self._hours = config.delete_hours()
        self._interval_ms = config.clean_resource_interval
        self._pause_ms = float(config.delete_commit_log_files_interval)
        self._disk_check_due_ns = self._clock.monotonic_ns()
        if self._worker is not None:
            self._worker.wake()

    # ---- life

    def start(self, runner: Runner) -> None:
        """Check the disk after a second, remove nothing for a minute."""
        now_ns = self._clock.monotonic_ns()
        self._disk_check_due_ns = now_ns
        self._round_from_ns = now_ns + FIRST_ROUND_MS * 1_000_000
        self._reason, self._left, self._manual_rounds = None, 0, 0
        self._warn_from_ns = now_ns
        self._cleaned_offset = -1
        self._worker = runner.start("retention", self.step, first_after_ms=FIRST_CHECK_MS)

    def stop(self) -> None:
        """End the worker after its present step."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def delete_soon(self) -> None:
        """Remove segments beyond ``file_reserved_time`` now and in the next rounds, at any hour (RocketMQ
        DELETE_EXPIRED_COMMITLOG). Returns at once.
        """
        self._manual_rounds = MANUAL_ROUNDS
        self._disk_check_due_ns = self._round_from_ns = self._clock.monotonic_ns()
        if self._worker is not None:
            self._worker.wake()

    def refusal(self) -> StoreFull:
        """Return why nothing is stored while DISK_FULL is set."""
        return StoreFull(
            "no message is accepted",
            why=f"the disk of the store is {self.limits.full(self._worst())}",
            hint=f"{self.limits.advice}; consumers continue, and sends resume when it is below the limit",
            retry_after_ms=self._interval_ms,
        )

    # ---- the worker

    def step(self) -> float:
        """Check the disk and remove one segment if due; return the ms until the next step."""
        if self._left == 0:
            now_ns = self._clock.monotonic_ns()
            if now_ns < self._disk_check_due_ns:
                return (self._disk_check_due_ns - now_ns) / 1_000_000
            self._disk_check_due_ns = now_ns + self._interval_ms * 1_000_000
            self.check_disk()
            self._reason = self._decide() if now_ns >= self._round_from_ns else None
            if self._manual_rounds:
                self._manual_rounds -= 1
            self._left = 0 if self._reason is None else FILES_PER_ROUND
        if self._left:
            assert self._reason is not None
            self._left = self._left - 1 if self._remove_oldest(self._reason) else 0
            if self._left:
                return self._pause_ms
        if self._cleaned_offset != self._segments.first_offset:
            self.clean_up()
        return max(1.0, (self._disk_check_due_ns - self._clock.monotonic_ns()) / 1_000_000)

    def check_disk(self) -> None:
        """Check how full the disks are; set or clear DISK_FULL; warn. A failed check changes nothing."""
        self.spaces = self._space(self._paths.commit_log), self._space(self._queues.directory)
        limits, space = self.limits, self._worst()
        if not space.is_known:
            return
        is_full = limits.is_full(space)
        if self.flags.set_disk_full(is_full):
            fields = {**self._usage(), "path": self._paths.root}
            if is_full:
                self._error_log.error("disk_full", **fields, why=limits.full(space), hint=limits.advice)
            else:
                self._log.info("disk_has_space_again", **fields)
        if limits.is_short(space) and not limits.may_force:
            self._warn(space)

    def _worst(self) -> Space:
        return worst(self.limits, self.spaces)

    def _usage(self) -> dict[str, Any]:
        space = self._worst()
        return {"used_ratio": round(space.ratio, 4), "free_bytes": space.free_bytes}

    def _warn(self, space: Space) -> None:
        """Log the segments that a round of forced removal would remove, where that is not permitted."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._warn_from_ns:
            return
        self._warn_from_ns = now_ns + WARN_EVERY_NS
        kept = self._kept_by_age()
        self._error_log.warning(
            "disk_filling",
            path=self._paths.root,
            **self._usage(),
            why=self.limits.full(space) if self.limits.is_full(space) else self.limits.filling(space),
            hint=self.limits.advice,
            segments_kept=len(kept),
            **(self._content(kept[0].base_offset, kept[-1].end_offset) if kept else {"messages": 0, "topics": {}}),
        )

    def _kept_by_age(self) -> list[Segment]:
        """Return the segments that a round would remove regardless of age, from the first that is too young on."""
        kept: list[Segment] = []
        unneeded_below = self._checkpointer.unneeded_below()
        for segment in self._segments.all[:-1]:
            if segment.end_offset > unneeded_below or len(kept) == FILES_PER_ROUND:
                break
            try:
                if kept or self._age_ms(segment) < self._reserved_ms:
                    kept.append(segment)
            except PocketMQError:  # the removal will report it
                kept.append(segment)
        return kept

    def _content(self, start_offset: int, end_offset: int) -> dict[str, Any]:
        """Return, for an event, the number of messages by topic in a part of the log, and the groups that have not read
        them.
        """
        try:
            places = self._queues.between(start_offset, end_offset)
        except (PocketMQError, FileNotFoundError) as error:
            return {"messages": -1, "topics": {}, "not_counted": str(error)}
        counts: Counter[str] = Counter()
        for (topic, _), (first, end) in places.items():
            counts[topic] += end - first
        fields: dict[str, Any] = {"messages": counts.total(), "topics": dict(counts.most_common(NAMES_TOLD_MAX))}
        if len(counts) > NAMES_TOLD_MAX:
            fields["topics_left_out"] = len(counts) - NAMES_TOLD_MAX
        if self.groups_behind is not None:
            groups = self.groups_behind({place: end for place, (_, end) in places.items()})
            fields["groups_behind"] = groups[:NAMES_TOLD_MAX]
            if len(groups) > NAMES_TOLD_MAX:
                fields["groups_left_out"] = len(groups) - NAMES_TOLD_MAX
        return fields

    def _space(self, path: str) -> Space:
        try:
            if not self._file_system.exists(path):  # consume queues come with the first message
                path = self._paths.root
            return Space(*self._file_system.free_bytes(path))
        except (PocketMQError, FileNotFoundError) as error:
            self._error_log.warning("disk_space_unknown", path=path, error=str(error))
            return Space()

    def _decide(self) -> Reason | None:
        space = self._worst()
        if self.limits.may_force and self.limits.is_short(space):
            return Reason.FORCED
        if self.limits.is_tight(space):
            return Reason.TIGHT
        if self._manual_rounds:
            return Reason.MANUAL
        hour = datetime.datetime.fromtimestamp(self._clock.now_ms() / 1000).hour
        return Reason.AGE if hour in self._hours else None

    def _remove_oldest(self, reason: Reason) -> bool:
        """Remove the oldest segment if it may go; return whether it is gone."""
        segments = self._segments.all
        if len(segments) < 2:
            return False
        oldest = segments[0]
        if oldest.end_offset > self._checkpointer.unneeded_below():
            return False
        if reason is not Reason.FORCED and self._is_wanted(oldest.end_offset):
            return False
        try:
            age_ms = self._age_ms(oldest)
        except PocketMQError as error:
            self._tell_failure("segment_not_removed", oldest.path, error)
            return False
        if reason is not Reason.FORCED and age_ms < self._reserved_ms:
            return False
        content = self._content(oldest.base_offset, oldest.end_offset) if reason is Reason.FORCED else {}
        self._checkpointer.positions_changed()
        try:
            self._segments.remove_first()
        except (PocketMQError, FileNotFoundError) as error:
            self._tell_failure("segment_not_removed", oldest.path, error)
            return False
        self.removed_segments += 1
        self.freed_bytes += oldest.size_bytes
        note = self._error_log.error if reason is Reason.FORCED else self._log.info
        note(
            "segment_removed",
            path=oldest.path,
            reason=reason.value,
            freed_bytes=oldest.size_bytes,
            age_hours=round(age_ms / _HOUR_MS, 1),
            **self._usage(),
            min_offset=self._segments.first_offset,
            **content,
        )
        return True

    def _age_ms(self, segment: Segment) -> int:
        """Return for how long a segment has not changed. Raises ``StoreError``.

        By the clock, or by the clock of the start and the time since, whichever is less: a clock that is set forth
        makes no message older. A file from the future of one of them was changed under the other.
        """
        try:
            changed_ms = self._file_system.modified_ms(segment.path)
        except FileNotFoundError:  # removed from outside
            return self._reserved_ms
        ages = (self._clock.now_ms() - changed_ms, self._steady.now_ms() - changed_ms)
        return min((age for age in ages if age >= 0), default=0)

    def _is_wanted(self, end_offset: int) -> bool:
        """Return whether a waiting message lies, or may lie, below ``end_offset``."""
        if self.wanted_from is None:
            return False
        try:
            return end_offset > self.wanted_from()
        except (PocketMQError, FileNotFoundError) as error:
            self._tell_failure("segment_not_removed", self._queues.directory, error)
            return True

    def clean_up(self) -> list[str]:
        """Raise the queues' min offsets to the start of the log; remove files of queues, index and checksums that refer
        only to removed parts. Return their paths. Failures are logged and tried again.
        """
        removed: list[str] = []
        with self._clean_lock:
            first_offset = self._segments.first_offset
            parts: list[Callable[[int], list[str]]] = [self._queues.delete_expired, self._index.delete_expired]
            if self._checksums is not None:
                parts.append(self._checksums.delete_expired)
            failed = False
            for part in parts:
                try:
                    removed += part(first_offset)
                except (PocketMQError, FileNotFoundError) as error:
                    failed = True
                    self._tell_failure("expired_files_not_removed", self._paths.root, error)
            if not failed:
                self._cleaned_offset = first_offset
        for path in removed:
            self._log.info("expired_file_removed", path=path, reason="below the log", min_offset=first_offset)
        return removed

    def _tell_failure(self, event: str, path: str, error: Exception) -> None:
        self._error_log.error(event, path=path, error=str(error))
