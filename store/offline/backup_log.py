"""The commit log of a backup.

Lives here: ``LogCopy``: segments are copied in order, from a store whose broker appends and whose retention removes.

The log is append-only: bytes below an end that was read once never change, so any part of it can be copied at any time.
A segment that retention removes before its turn takes all older ones with it: what was copied of them is removed too,
and the copy begins at the next one.
"""

from collections.abc import Callable
from typing import Final

from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.commitlog.checksums import good_entries
from pocketmq.store.commitlog.segment import NAME_DIGITS, segment_name
from pocketmq.store.disk.file_system import FileSystem, StoreFile
from pocketmq.store.errors import StoreError
from pocketmq.store.offline.errors import BackupFailed, BackupRefused
from pocketmq.store.offline.files import copy_range, data_ranges
from pocketmq.store.offline.log_walk import Checked
from pocketmq.store.offline.reader import LogChunk, StoreReader

Share = Callable[[str, str], bool]
"""Gives a closed file a second name or shares its blocks; False where the file system cannot do that."""
_COMPARED_BYTES: Final = 1 << 20


class LogCopy:
    """The log from ``begin`` to ``done`` is in the target. Touches the disk."""

    def __init__(
        self,
        source: FileSystem,
        source_paths: StorePaths,
        target: FileSystem,
        target_paths: StorePaths,
        *,
        share: Share | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._from = source_paths
        self._to = target_paths
        self._share = share
        self._progress = progress
        self.segment_bytes = 0
        self.begin = 0
        self.done = 0
        self.copied_bytes = 0
        self.shared_bytes = 0
        self.expired_to = 0
        """Where the copy began anew because retention had removed what came before; 0: nowhere."""
        self.keeps_old = False
        """The target held a backup before: its segments are not given up for a gap."""

    # ---- the source

    def look(self) -> list[int]:
        """Return the first offsets of the source's segments. Raises ``BackupRefused`` unless all have one size."""
        sizes: dict[int, int] = {}
        for name in self._source.list(self._from.commit_log):
            if len(name) == NAME_DIGITS and name.isdecimal():
                try:
                    size = self._source.size(f"{self._from.commit_log}/{name}")
                except FileNotFoundError:
                    continue
                if size:
                    sizes[int(name)] = size
        if len(set(sizes.values())) > 1:
            raise BackupRefused(
                "no backup made",
                why=f"the files in {self._from.commit_log} have different sizes",
                hint="`pocketmq log verify` says which one is not whole",
            )
        found = next(iter(sizes.values()), 0)
        if self.segment_bytes and found and found != self.segment_bytes:
            raise BackupRefused(
                "no backup made",
                why=f"files of the log have {found} bytes, in the backup {self.segment_bytes}",
                hint="it is the backup of another store: name a directory that does not exist",
            )
        self.segment_bytes = self.segment_bytes or found
        return sorted(sizes)

    def start(self) -> None:
        """Begin where the source begins, with nothing in the target."""
        bases = self.look()
        self.begin = self.done = bases[0] if bases else 0

    def resume(self, begin: int, end: int) -> None:
        """Go on at the end of an earlier backup. Raises ``BackupRefused`` unless its log is the beginning of the
        source's: a log that was cut differs at the end of the backup at least.
        """
        self.begin, self.done, self.keeps_old = begin, end, True
        bases = self.look()
        if not bases:
            if end == 0:
                return
            raise self._other(f"the source has no log, and the backup reaches to offset {end:,}")
        if bases[0] > end:
            raise self._other(f"the source begins at offset {bases[0]:,}, and the backup ends at {end:,}: a gap")
        at = end
        compare_from = max(begin, bases[0], end - _COMPARED_BYTES)
        while at > compare_from:
            base = (at - 1) - (at - 1) % self.segment_bytes
            start = max(compare_from, base)
            if self._bytes(self._source, self._from, start, at) != self._bytes(self._target, self._to, start, at):
                raise self._other(f"bytes {start:,} to {at:,} of the source's log are others than the backup's")
            at = start

    def _bytes(self, files: FileSystem, paths: StorePaths, start: int, end: int) -> bytes:
        base = start - start % self.segment_bytes
        try:
            file = files.open(f"{paths.commit_log}/{segment_name(base)}", writable=False)
        except FileNotFoundError:
            return b""
        try:
            return file.read(start - base, end - start)
        finally:
            file.close()

    def _other(self, why: str) -> BackupRefused:
        return BackupRefused(
            "no backup made", why=why, hint="name a directory that does not exist; the earlier backup stays as it is"
        )

    # ---- copying

    def copy_to(self, end: int) -> None:
        """Copy the log up to ``end``: every byte below it is in the source's files, or retention has removed it."""
        self._target.make_dirs(self._to.commit_log)
        while self.done < end:
            base = self.done - self.done % self.segment_bytes
            name = segment_name(base)
            try:
                source = self._source.open(f"{self._from.commit_log}/{name}", writable=False)
            except FileNotFoundError:
                self._begin_later()
                continue
            try:
                self._copy_segment(source, name, base, min(end, base + self.segment_bytes))
            finally:
                source.close()

    def _copy_segment(self, source: StoreFile, name: str, base: int, stop: int) -> None:
        path, start = f"{self._to.commit_log}/{name}", self.done
        is_whole = start == base and stop == base + self.segment_bytes
        if is_whole and self._share is not None and self._share(source.path, path):
            self.shared_bytes += stop - start
        else:
            target = self._target.open(path, create=True)
            try:
                if is_whole:
                    target.resize(self.segment_bytes)
                else:
                    target.reserve(self.segment_bytes)  # a broker maps it: a full disk must not be met there
                for first, last in data_ranges(source, stop - base):
                    first = max(first, start - base)
                    if first < last:
                        copy_range(source, target, first, last, first)
                        self.copied_bytes += last - first
                target.sync()
            finally:
                target.close()
        self.done = stop
        if self._progress is not None:
            self._progress(stop - start)

    def _begin_later(self) -> None:
        """Go on at the source's first segment: retention has removed the next one, and so all before it."""
        first = next(iter(self.look()), self.done)
        if first <= self.done:
            base = self.done - self.done % self.segment_bytes
            raise BackupFailed(
                "backup not finished",
                why=f"{self._from.commit_log}/{segment_name(base)} has gone, and older files are there",
                hint="it was not retention that removed it: run `pocketmq log verify`",
            )
        if self.keeps_old:
            raise BackupFailed(
                "backup not finished",
                why=f"retention removed the log up to offset {first:,} before it was copied, and the backup ends at "
                f"{self.done:,}",
                hint="name a directory that does not exist; the earlier backup stays as it is",
            )
        self.expired_to = self.begin = self.done = first
        self._remove_below(first)

    def drop_expired(self) -> None:
        """Remove from the target the segments that retention has removed from the source meanwhile."""
        first = next(iter(self.look()), self.begin)
        if first > self.done:
            raise BackupFailed(
                "backup not finished",
                why=f"retention removed the log up to offset {first:,} before it was copied",
                hint="copy to a faster disk, or raise file_reserved_time",
            )
        if first > self.begin:
            self.begin = self.expired_to = first
            self._remove_below(first)

    def _remove_below(self, first: int) -> None:
        for directory in (self._to.commit_log, self._to.checksums):
            for name in self._target.list(directory):  # oldest first: what is left has no gap
                if name.isdecimal() and int(name) < first:
                    self._target.remove(f"{directory}/{name}")
                    self._target.sync_dir(directory)

    # ---- checksums

    def copy_checksums(self, unchanged_below: int) -> None:
        """Copy the group checksums of copied groups: one of a group that is not there would make the end of the log
        look damaged. ``unchanged_below``: the target has those of segments that end at or before it.
        """
        if not self._source.exists(self._from.checksums):
            return
        self._target.make_dirs(self._to.checksums)
        for name in self._source.list(self._from.checksums):
            if len(name) != NAME_DIGITS or not name.isdecimal() or not self.begin <= int(name) < self.done:
                continue
            base = int(name)
            if base + self.segment_bytes <= unchanged_below and self._target.exists(f"{self._to.checksums}/{name}"):
                continue
            try:
                data = self._source.read_all(f"{self._from.checksums}/{name}")
            except (FileNotFoundError, StoreError):
                continue  # they save time; without them each record is checked
            entries = good_entries(data, base, self.segment_bytes)
            ends = entries["offset"].astype("i8") + entries["length"].astype("i8")
            self._target.replace(f"{self._to.checksums}/{name}", entries[ends <= self.done].tobytes())


def log_end(files: FileSystem, root: str, begin: int, pause: Callable[[], None] | None) -> int:
    """Return the end of the last whole record in the files, at least ``begin``. Records being written are left out."""
    reader = StoreReader.open(root, file_system=files, pause=pause)
    try:
        end = begin
        for item in reader.walk(begin=begin, checksums_only=True):
            if isinstance(item, LogChunk | Checked):
                end = max(end, item.end)
        return end
    finally:
        reader.close()
