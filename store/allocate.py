"""Segments made ahead of their use, so that no append waits for the file system.

Lives here: ``SegmentAllocator`` and its worker: reserve, map, write zeros under SYNC_FLUSH.
Pages are not populated ahead: that took 10 to 40 % off the time under the append lock and nothing off an append, for 8
MiB of memory (measured with ``MADV_POPULATE_WRITE``, Linux 6.18, ext4).
Not here: when the next segment is wanted (``commit_log``), what a segment is (``segment``).
"""

import threading
from typing import Final

from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, SteppedRunner, Worker
from pocketmq.store.config import StoreConfig
from pocketmq.store.errors import SegmentNotReady, StoreError, translated
from pocketmq.store.file_system import FileSystem
from pocketmq.store.segment import Segment, segment_name

WAIT_MS_MAX: Final = 5000
"""Longest wait of an append for a segment (RocketMQ AllocateMappedFileService.waitTimeOut)."""
ALLOCATING_SUFFIX: Final = ".allocating"
_ZEROS: Final = bytes(1 << 20)


class SegmentAllocator:
    """Prepares at most one segment ahead. ``take`` hands it over, or waits a bounded time for it.

    A segment gets its name only when it is whole: what a crash leaves half made has the suffix ``.allocating``.
    """

    def __init__(
        self, config: StoreConfig, file_system: FileSystem, directory: str, runner: Runner, log: EventLog
    ) -> None:
        self._directory = directory
        self._segment_bytes = config.mapped_file_size_commit_log
        self._mapped = config.append_mode == "mapped"
        self._write_zeros = config.flush_disk_type == "SYNC_FLUSH"
        self._file_system = file_system
        self._runner = runner
        self._inline = isinstance(runner, SteppedRunner)  # no thread works while the caller waits
        self._log = log
        self._changed = threading.Condition()
        self._wanted: int | None = None
        self._urgent = False
        self._ready: Segment | None = None
        self._failed: StoreError | None = None
        self._worker: Worker | None = None
        self.prepared = 0
        self.waited = 0

    def start(self) -> None:
        """Start the worker."""
        self._worker = self._runner.start("allocate-segment", self.step, first_after_ms=None)

    def stop(self) -> None:
        """End the worker and remove a segment that nobody took."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
        with self._changed:
            ready, self._ready = self._ready, None
        if ready is not None:
            ready.close()
            self._file_system.remove(ready.path)

    def request(self, base_offset: int) -> None:
        """Ask for the segment that starts at ``base_offset``; returns at once."""
        with self._changed:
            ready = self._ready
            if self._wanted == base_offset or (ready is not None and ready.base_offset == base_offset):
                return
            self._wanted = base_offset
            self._failed = None
        self._ring()

    def take(self, base_offset: int) -> Segment:
        """Return the segment, open. Raises ``SegmentNotReady`` after 5 s, or what preparing it raised."""
        with self._changed:
            if not self._is_ready(base_offset):
                self.waited += 1
                self._wanted = base_offset
                self._urgent = True
                self._failed = None
                if not self._inline:
                    self._ring()
                    self._changed.wait_for(
                        lambda: self._is_ready(base_offset) or self._failed is not None, WAIT_MS_MAX / 1000
                    )
        if self._inline:
            self.step()
        with self._changed:
            self._urgent = False
            if self._is_ready(base_offset):
                ready, self._ready = self._ready, None
                assert ready is not None
                return ready
            if self._failed is not None:
                raise self._failed
        self._log.error("create_mapped_file_timeout", base_offset=base_offset, waited_ms=WAIT_MS_MAX)
        raise SegmentNotReady(
            "create mapped file failed",
            why=f"segment {segment_name(base_offset)} was not ready after {WAIT_MS_MAX} ms",
            hint="the disk is slow or hangs",
        )

    def _is_ready(self, base_offset: int) -> bool:
        return self._ready is not None and self._ready.base_offset == base_offset

    def _ring(self) -> None:
        if self._worker is not None:
            self._worker.ring()

    def step(self) -> float | None:
        """Do what was asked for."""
        with self._changed:
            base_offset = self._wanted
            ready = self._ready
        if base_offset is not None:
            if ready is None or ready.base_offset != base_offset:
                self._prepare_wanted(base_offset)
            with self._changed:
                if self._wanted == base_offset:
                    self._wanted = None
        return None

    def _prepare_wanted(self, base_offset: int) -> None:
        segment: Segment | None = None
        failed: StoreError | None = None
        try:
            segment = self._prepare(base_offset)
        except (StoreError, FileNotFoundError) as error:
            failed = error if isinstance(error, StoreError) else translated(error, "no segment", self._directory)
            self._log.error("create_mapped_file_failed", base_offset=base_offset, error=str(error))
        with self._changed:
            unused = self._ready
            self._ready = segment
            self._failed = failed
            self._changed.notify_all()
        if unused is not None:  # another was wanted meanwhile
            unused.close()
            self._file_system.remove(unused.path)

    def _prepare(self, base_offset: int) -> Segment:
        path = f"{self._directory}/{segment_name(base_offset)}"
        temporary = path + ALLOCATING_SUFFIX
        file = self._file_system.open(temporary, create=True)
        try:
            file.resize(0)
            file.reserve(self._segment_bytes)
            if self._write_zeros:
                # Blocks that were written once need no change of metadata at a sync: about half its time. Whoever waits
                # for the segment gets it as far as it is: the rest reads as zeros, too.
                for at in range(0, self._segment_bytes, len(_ZEROS)):
                    if self._urgent:
                        break
                    file.write_at(at, _ZEROS[: min(len(_ZEROS), self._segment_bytes - at)])
                if not self._urgent:
                    file.sync()
        except BaseException:
            file.close()
            self._file_system.remove(temporary)
            raise
        file.close()
        self._file_system.rename(temporary, path)
        segment = Segment(self._file_system, path, base_offset, self._segment_bytes)
        segment.open(self._mapped)
        self.prepared += 1
        return segment
