"""Prepares segments in advance, so that no append waits for the file system.

Lives here: ``SegmentAllocator`` and its worker: reserve, map or borrow a write buffer, write zeros under SYNC_FLUSH,
warm up.
Without ``warm_maped_file_enable`` pages are not populated in advance: that saved 10 to 40 % of the time under the
append lock but nothing of an append, for 8 MiB of memory (measured with ``MADV_POPULATE_WRITE``, Linux 6.18, ext4).
"""

import threading
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, SteppedRunner, Worker
from pocketmq.store.commitlog.segment import Segment, segment_name
from pocketmq.store.commitlog.windows import Windows
from pocketmq.store.commitlog.write_buffer_pool import WriteBufferPool
from pocketmq.store.config import PAGE_BYTES, StoreConfig
from pocketmq.store.disk.disk_limits import DiskLimits
from pocketmq.store.disk.file_system import FileSystem, StoreFile
from pocketmq.store.disk.memory_lock import Memory
from pocketmq.store.errors import NoWriteBuffer, SegmentNotReady, StoreError, StoreFull, translated

WAIT_MS_MAX: Final = 5000
"""Longest wait of an append for a segment (RocketMQ AllocateMappedFileService.waitTimeOut)."""
ALLOCATING_SUFFIX: Final = ".allocating"
_ZEROS: Final = bytes(1 << 20)
_ZERO_ARRAY: Final = np.zeros(1 << 20, np.uint8)


class SegmentAllocator:
    """Prepares at most one segment in advance. ``take`` hands it over, or waits a bounded time for it.

    A segment gets its name only when it is complete: one left unfinished by a crash has the suffix ``.allocating``.
    """

    def __init__(
        self,
        config: StoreConfig,
        file_system: FileSystem,
        directory: str,
        runner: Runner,
        log: EventLog,
        *,
        pool: WriteBufferPool | None = None,
        memory: Memory | None = None,
    ) -> None:
        """``memory``: locks warmed-up segments in RAM; None leaves them unlocked."""
        self._directory = directory
        self._pool = pool
        self._memory = memory
        self._buffer_or_nothing = pool is not None and config.fast_fail_if_no_buffer_in_store_pool
        self._warms = config.warm_maped_file_enable
        self._warm_sync_bytes = config.flush_least_pages_when_warm_maped_file * PAGE_BYTES
        self._segment_bytes = config.mapped_file_size_commit_log
        self.settings_changed(config)
        self._mapped = config.is_mapped
        self._write_zeros = config.flush_disk_type == "SYNC_FLUSH"
        self._durable = config.sync_on_close or self._write_zeros
        self._file_system = file_system
        self._runner = runner
        self._inline = isinstance(runner, SteppedRunner)  # no thread works while the caller waits
        self._log = log
        self._changed = threading.Condition()
        self._wanted: int | None = None
        self._urgent = False
        self._ready: Segment | None = None
        self.failure: StoreError | None = None
        """Why the next segment cannot be made, until it is asked for again. Any thread reads it."""
        self._worker: Worker | None = None
        self._lock_refused = False
        self._preparing = False
        self.prepared = 0
        self.waited = 0

    def settings_changed(self, config: StoreConfig) -> None:
        """Take the limits of the disk for the next segment. Any thread."""
        self._limits = DiskLimits(config)

    def start(self) -> None:
        """Start the worker."""
        self._urgent = False
        self._worker = self._runner.start("allocate-segment", self.step, first_after_ms=None)

    def stop(self) -> None:
        """Stop the worker and remove an unused segment."""
        self._urgent = True  # zeros and warm pages are no longer needed
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
        with self._changed:
            ready, self._ready = self._ready, None
        if ready is not None:
            self._discard(ready)

    def _discard(self, segment: Segment) -> None:
        """Remove an unused segment."""
        segment.release(segment.size_bytes)
        segment.close()
        self._file_system.remove(segment.path)

    def discard_ready(self) -> None:
        """Remove, durably, the prepared segment: another one will be the first of the log.

        Raises ``SegmentNotReady`` when its preparation takes more than 5 s, and disk errors.
        """
        with self._changed:
            self._wanted = None
            if not self._changed.wait_for(lambda: not self._preparing, WAIT_MS_MAX / 1000):
                raise SegmentNotReady(
                    "segment not removed", why="it is being prepared", hint="the disk is slow or hangs"
                )
            ready, self._ready = self._ready, None
        if ready is not None:
            self._discard(ready)
        self._file_system.sync_dir(self._directory)

    def request(self, base_offset: int) -> None:
        """Ask for the segment that starts at ``base_offset``; returns at once."""
        with self._changed:
            ready = self._ready
            if self._wanted == base_offset or (ready is not None and ready.base_offset == base_offset):
                return
            self._wanted = base_offset
            self.failure = None
        self._wake()

    def take(self, base_offset: int) -> Segment:
        """Return the segment, open. Raises ``SegmentNotReady`` after 5 s, or the error of its preparation."""
        with self._changed:
            if not self._is_ready(base_offset):
                self.waited += 1
                self._wanted = base_offset
                self._urgent = True
                self.failure = None
                if not self._inline:
                    self._wake()
                    self._changed.wait_for(
                        lambda: self._is_ready(base_offset) or self.failure is not None, WAIT_MS_MAX / 1000
                    )
        if self._inline:
            self.step()
        with self._changed:
            self._urgent = False
            if self._is_ready(base_offset):
                ready, self._ready = self._ready, None
                assert ready is not None
                return ready
            if self.failure is not None:
                raise self.failure
        self._log.error("create_mapped_file_timeout", base_offset=base_offset, waited_ms=WAIT_MS_MAX)
        raise SegmentNotReady(
            "create mapped file failed",
            why=f"segment {segment_name(base_offset)} was not ready after {WAIT_MS_MAX} ms",
            hint="the disk is slow or hangs",
        )

    def _is_ready(self, base_offset: int) -> bool:
        return self._ready is not None and self._ready.base_offset == base_offset

    def _wake(self) -> None:
        if self._worker is not None:
            self._worker.wake()

    def step(self) -> float | None:
        """Prepare the requested segment."""
        with self._changed:
            base_offset = self._wanted
            ready = self._ready
            self._preparing = base_offset is not None
        if base_offset is not None:
            if ready is None or ready.base_offset != base_offset:
                self._prepare_wanted(base_offset)
            with self._changed:
                if self._wanted == base_offset:
                    self._wanted = None
                self._preparing = False
                self._changed.notify_all()
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
            self.failure = failed
            self._changed.notify_all()
        if unused is not None:  # another was wanted meanwhile
            self._discard(unused)

    def _prepare(self, base_offset: int) -> Segment:
        if self._buffer_or_nothing and self._pool is not None and self._pool.available == 0:
            raise NoWriteBuffer(
                "create mapped file failed",
                why=f"[NOTIFYME]TransientStorePool is not enough, so create mapped file error, "
                f"all {self._pool.size} buffers are in use",
                hint="the commit is behind, or the pool is too small: store.transient_store_pool_size",
            )
        # Checked first: a failing reservation would briefly take all space from consume queues and other files.
        free_bytes, total_bytes = self._file_system.free_bytes(self._directory)
        if total_bytes > 0 and not self._limits.has_room(free_bytes):
            raise StoreFull(
                "create mapped file failed",
                why=f"{self._directory}: {self._limits.no_room(free_bytes)}",
                hint="free space on the store's file system; sends then resume by themselves. A new store can be given "
                "smaller files",
            )
        path = f"{self._directory}/{segment_name(base_offset)}"
        temporary = path + ALLOCATING_SUFFIX
        file = self._file_system.open(temporary, create=True)
        try:
            file.resize(0)
            file.reserve(self._segment_bytes)
            if self._durable:  # else a power cut could leave a segment without its size, or a gap between two
                file.sync()
            if self._write_zeros:
                self._write_zeros_to(file)
        except BaseException:
            file.close()
            self._file_system.remove(temporary)
            raise
        file.close()
        self._file_system.rename(temporary, path)
        if self._durable:
            self._file_system.sync_dir(self._directory)
        segment = Segment(self._file_system, path, base_offset, self._segment_bytes)
        windows = None
        if self._pool is not None:
            buffer = self._pool.borrow()
            windows = None if buffer is None else Windows(self._pool, buffer, self._segment_bytes)
        try:
            segment.open(self._mapped, windows)
        except BaseException:
            if windows is not None:
                windows.discard()
            raise
        if self._warms and segment.map is not None:
            self._warm_up(segment)
        self.prepared += 1
        return segment

    def _write_zeros_to(self, file: StoreFile) -> None:
        """Write every block once and sync: a later sync then changes no metadata, which is about half its time.

        An append that waits for the segment gets it before this is finished: the rest reads as zeros, too.
        """
        for at in range(0, self._segment_bytes, len(_ZEROS)):
            if self._urgent:
                return
            file.write_at(at, _ZEROS[: min(len(_ZEROS), self._segment_bytes - at)])
        if not self._urgent:
            file.sync()

    def _warm_up(self, segment: Segment) -> None:
        """Touch every page of the map (RocketMQ DefaultMappedFile.warmMappedFile), then lock it in RAM.

        In slices, by a copy that releases the GIL, and only until an append waits for the segment. Under SYNC_FLUSH
        dirty pages are synced now and then, so that the first sync of a message does not have to write them all.
        """
        mapped = segment.map
        assert mapped is not None
        unsynced_bytes = 0
        for at in range(0, self._segment_bytes, len(_ZERO_ARRAY)):
            if self._urgent:
                return
            length = min(len(_ZERO_ARRAY), self._segment_bytes - at)
            mapped.store(at, _ZERO_ARRAY[:length])
            unsynced_bytes += length
            if self._write_zeros and (unsynced_bytes >= self._warm_sync_bytes or at + length == self._segment_bytes):
                segment.sync()
                unsynced_bytes = 0
        if self._memory is None or self._urgent:
            return
        view = mapped.view()
        try:
            self._memory.lock(view)
            segment.on_seal = self._unlock
        except OSError as error:
            if not self._lock_refused:
                self._lock_refused = True
                self._log.warning(
                    "warm_segment_not_locked",
                    why=error.strerror or str(error),
                    hint="raise the limit of locked memory (ulimit -l, LimitMEMLOCK) or grant CAP_IPC_LOCK",
                    segment_bytes=self._segment_bytes,
                )
        self._memory.will_need(view)

    def _unlock(self, view: NDArray[np.uint8]) -> None:
        """Let the pages of a full, flushed segment go."""
        if self._memory is not None:
            try:
                self._memory.unlock(view)
            except OSError as error:  # the lock ends with the map, which ends with its last user
                self._log.warning("segment_not_unlocked", why=error.strerror or str(error))
