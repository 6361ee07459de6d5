"""A consistent copy of a store, live or stopped.

Lives here: ``Backup``: what is copied, in which order; waiting for write buffers; ``BackupResult``.

The order, and why the copy is a store that a killed broker could have left at the end of its log:

1. What was acknowledged when the backup began reaches the files: bytes in surviving write buffers, and those up to an
   offset that a broker named, are waited for.
2. Whole segments below the last checkpoint are copied, again until none is left: nearly all bytes, whatever they take.
3. The small files are read (positions first): topics, groups, offsets, progress, epochs, users.
4. The end of the log is read, and the log is copied up to it: it is ahead of every small file.
5. Consume queues up to the checkpoint of step 3 are copied, index files that were complete by then, group checksums.
6. The small files are written, the positions last, and the abort marker: the next start verifies the log from that
   checkpoint on and makes the missing entries, as after a kill. The copy of a store that was closed is closed.

A second backup into the same directory copies new bytes only. It is a whole store at every moment: until the positions
are replaced they name the former checkpoint, and everything after it is verified.
"""

import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pocketmq.common.clock import Clock, SystemClock
from pocketmq.store.checkpoint import CHECKPOINT_BYTES, Positions, StorePaths, read_positions
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.offline.backup_log import LogCopy, Share, log_end
from pocketmq.store.offline.backup_note import LOCK_NAME, BackupNote, TargetState, read_note, target_state, write_note
from pocketmq.store.offline.backup_parts import (
    SmallSet,
    copy_index,
    copy_queues,
    left_out,
    read_small_set,
    remove_parts,
    write_small_set,
)
from pocketmq.store.offline.buffers import CURE
from pocketmq.store.offline.errors import BackupFailed, BackupRefused, NotAStore
from pocketmq.store.offline.files import data_bytes, require_space
from pocketmq.store.offline.read_only import ReadOnlyFileSystem
from pocketmq.store.recovery.left_buffers import look

WAITS_MAX: Final = 200
"""Looks at the write buffers before a backup gives up: 10 s with pauses of 50 ms."""
_TORN_MAX: Final = 5
"""Looks at a header of the write buffers that is not whole, before it counts as damaged."""
_PASSES_MAX: Final = 20
"""Rounds over closed segments; a log that grows faster than it is copied is copied from there on in one go."""


@dataclass(slots=True)
class BackupResult:
    """``copied_bytes`` of the log were read and written, ``shared_bytes`` are in files that both directories name."""

    source: str = ""
    target: str = ""
    begin_offset: int = 0
    end_offset: int = 0
    copied_bytes: int = 0
    shared_bytes: int = 0
    queue_entries: int = 0
    small_files: int = 0
    is_incremental: bool = False
    is_live: bool = False
    expired_to: int = 0
    """Retention has removed the log up to here from the source while it was copied."""
    left_out: list[str] = field(default_factory=list)
    begun_ms: int = 0
    ended_ms: int = 0


@dataclass(slots=True)
class _State:
    """What the source said of itself at one moment."""

    small: SmallSet
    positions: Positions | None
    checkpoint: bytes
    is_closed: bool


class Backup:
    """One backup of ``source`` into ``target``, both absolute. Touches the disk; not for an event loop.

    ``wanted_end``: an offset of the log that a running broker has acknowledged: the copy reaches it. ``pause`` waits a
    moment before the source is looked at again. ``share`` may give closed segments a second name instead of a copy.
    """

    def __init__(
        self,
        source: str,
        target: str,
        source_files: FileSystem,
        target_files: FileSystem,
        *,
        wanted_end: int = 0,
        share: Share | None = None,
        pause: Callable[[], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """``progress(bytes, total)`` is called for each copied piece of the log."""
        self._source = ReadOnlyFileSystem(source_files)
        self._target = target_files
        root = source.rstrip("/") or "/"
        self._from = StorePaths(posixpath.dirname(root) if posixpath.basename(root) == "commitlog" else root)
        self._to = StorePaths(target.rstrip("/") or "/")
        self._wanted_end = wanted_end
        self._pause = pause
        self._clock: Clock = SystemClock() if clock is None else clock
        self._total = 0
        self._report = progress
        self._log = LogCopy(self._source, self._from, self._target, self._to, share=share, progress=self._progress)
        self._is_sharing = share is not None
        self._safe = 0

    def run(self) -> BackupResult:
        """Make the backup. Raises ``NotAStore``, ``BackupRefused``, ``StoreFull`` before anything is changed,
        ``BackupFailed`` and disk errors later: then the target is the former backup, or marked as unfinished.
        """
        begun_ms = self._clock.now_ms()
        self._check_source()
        made = not self._target.exists(self._to.root)
        state: TargetState = "new" if made else target_state(self._target, self._to)
        note = read_note(self._target, self._to) if state == "backup" else None
        self._wait_for_buffers()
        if note is None:
            self._log.start()
        else:
            self._log.segment_bytes = note.segment_bytes
            self._log.resume(note.begin_offset, note.end_offset)
        self._require_space()
        self._target.make_dirs(self._to.root)
        lock_path = f"{self._to.root}/{LOCK_NAME}"
        lock = self._target.lock_file(lock_path, "backup\n")
        try:
            if note is None:
                self._target.open(self._to.backup_unfinished, create=True).close()
                self._target.sync_dir(self._to.root)
                remove_parts(self._target, self._to)
            result = self._run(note)
            result.begun_ms, result.ended_ms = begun_ms, self._clock.now_ms()
            self._target.sync_all(self._to.root)
            write_note(
                self._target,
                self._to,
                BackupNote(
                    source=self._from.root,
                    segment_bytes=self._log.segment_bytes,
                    begin_offset=result.begin_offset,
                    end_offset=result.end_offset,
                    safe_offset=self._safe,
                    begun_ms=begun_ms,
                    ended_ms=result.ended_ms,
                ),
            )
            self._target.remove(self._to.backup_unfinished)
            self._target.remove(lock_path)
            self._target.sync_dir(self._to.root)
        finally:
            lock.release()
        return result

    # ---- before anything is written

    def _check_source(self) -> None:
        names = set(self._source.list(self._from.root))
        if not names & {"commitlog", "config"}:
            raise NotAStore(
                "no store",
                why=f"{self._from.root} holds neither commitlog/ nor config/",
                hint="name the directory that holds commitlog/",
            )
        one, other = self._from.root + "/", self._to.root + "/"
        if one.startswith(other) or other.startswith(one):
            raise BackupRefused(
                "no backup made",
                why=f"{self._to.root} and {self._from.root} lie within each other",
                hint="name a target outside of the store, best on another disk",
            )

    def _wait_for_buffers(self) -> None:
        """Return when the files have what surviving write buffers held at the call."""
        wanted = torn = 0
        for _ in range(WAITS_MAX):
            left = look(self._source, self._from)
            begin, end = left.uncommitted
            if torn < _TORN_MAX and any(kind == "torn" for kind, _ in left.refused):
                torn += 1  # perhaps read while the broker wrote it
                self._wait()
                continue
            if end > begin and not left.is_alive:
                raise BackupRefused(
                    "no backup made",
                    why=f"{end - begin:,} acknowledged bytes are in write buffers of a broker that died",
                    hint=CURE,
                )
            wanted = wanted or end
            if left.record is None or not left.is_alive or begin == end or left.committed_offset >= wanted:
                return
            self._wait()
        raise BackupFailed(
            "backup not begun",
            why=f"the broker has not written its write buffers up to offset {wanted:,} to the log",
            hint="look at its log: a disk that stands still or fails",
        )

    def _wait(self) -> None:
        if self._pause is not None:
            self._pause()

    def _require_space(self) -> None:
        bases = self._log.look()
        log_bytes = 0
        if bases:
            log_bytes = max(0, bases[-1] + self._log.segment_bytes - max(self._log.done, bases[0]))
        self._total = log_bytes
        if self._is_sharing:
            log_bytes = min(log_bytes, 2 * self._log.segment_bytes)
        positions = read_positions(self._source, self._from)
        others = 0 if positions is None else positions.queue_entries * 20
        for name in self._source.list(f"{self._from.root}/index"):
            try:
                others += data_bytes(self._source, f"{self._from.root}/index/{name}")
            except FileNotFoundError:
                continue
        parent = self._to.root
        while not self._target.exists(parent):
            parent = posixpath.dirname(parent) or "/"
        require_space(self._target, parent, log_bytes + others, "backup not begun")

    def _progress(self, count: int) -> None:
        if self._report is not None:
            self._report(count, self._total)

    # ---- the copy

    def _run(self, note: BackupNote | None) -> BackupResult:
        log = self._log
        for _ in range(_PASSES_MAX):
            if not self._copy_closed_segments():
                break
        state = self._read_state()
        end = self._end(state)
        log.copy_to(end)
        positions = state.positions
        self._safe = end if state.is_closed or positions is None else min(end, positions.recover_offset)
        entries = copy_queues(self._source, self._from.root, self._target, self._to.root, self._safe)
        indexed_to = None if state.is_closed else 0 if positions is None else positions.indexed_offset
        indexed = copy_index(self._source, self._from.root, self._target, self._to.root, indexed_to)
        log.copy_checksums(0 if note is None else min(note.safe_offset, self._safe))
        log.drop_expired()
        if state.is_closed and not self._read_state().is_closed:
            raise BackupFailed(
                "backup not finished",
                why="a broker opened the store while it was copied",
                hint="run it again: a live store can be copied too",
            )
        self._finish(state, indexed)
        return BackupResult(
            source=self._from.root,
            target=self._to.root,
            begin_offset=log.begin,
            end_offset=end,
            copied_bytes=log.copied_bytes,
            shared_bytes=log.shared_bytes,
            queue_entries=entries,
            small_files=len(state.small),
            is_incremental=note is not None,
            is_live=not state.is_closed,
            expired_to=log.expired_to,
            left_out=left_out(self._source, self._from),
        )

    def _copy_closed_segments(self) -> bool:
        """Copy the segments below the last checkpoint, else all but the last two; return whether there were any."""
        log, positions = self._log, read_positions(self._source, self._from)
        bases = log.look()
        safe = positions.recover_offset if positions is not None else bases[-2] if len(bases) > 2 else 0
        if not log.segment_bytes:
            return False
        safe -= safe % log.segment_bytes
        if safe <= log.done:
            return False
        log.copy_to(safe)
        return True

    def _read_state(self) -> _State:
        """Read the small files, positions first: what they promise is in the log and the queues already."""
        positions = read_positions(self._source, self._from)
        try:
            checkpoint = self._source.read_all(self._from.checkpoint)[:CHECKPOINT_BYTES]
        except FileNotFoundError:
            checkpoint = b""
        small = read_small_set(self._source, self._from.root)
        is_closed = not self._source.exists(self._from.abort) and (positions is None or positions.clean)
        return _State(small, positions, checkpoint, is_closed)

    def _end(self, state: _State) -> int:
        """Return the end of the log, once the files reach what the broker has acknowledged."""
        bases = self._log.look()
        if not bases:
            return 0
        positions = state.positions
        begin = max(bases[0], self._log.done, positions.recover_offset if positions is not None else 0)
        if state.is_closed and positions is not None:
            begin = max(begin, positions.end_offset)
        for _ in range(WAITS_MAX):
            end = log_end(self._source, self._from.root, begin, self._pause)
            if end >= self._wanted_end:
                return end
            self._wait()
        raise BackupFailed(
            "backup not finished",
            why=f"the broker has acknowledged the log up to offset {self._wanted_end:,}, its files end at {end:,}",
            hint="is this the directory of that broker? Else look at its log: a disk that stands still or fails",
        )

    def _finish(self, state: _State, indexed: int | None) -> None:
        """Write the small files; positions last."""
        files, paths, positions = self._target, self._to, state.positions
        write_small_set(files, paths.root, state.small)
        if state.is_closed:
            files.remove(paths.abort)
        else:
            files.open(paths.abort, create=True).close()
        if state.checkpoint:
            files.replace(paths.checkpoint, state.checkpoint)
        else:
            files.remove(paths.checkpoint)
        files.sync_all(paths.root)
        if positions is None:
            files.remove(paths.positions)
            return
        copied = msgspec.structs.replace(positions, clean=state.is_closed)
        if not state.is_closed:
            copied.indexed_offset = self._log.begin if indexed is None else indexed
        files.replace(paths.positions, copied.encode())
