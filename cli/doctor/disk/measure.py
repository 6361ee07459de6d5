"""Measures the disk under a directory with the calls that the store makes.

Lives here: ``DiskProbe``: sequential writes, syncs of small appends (alone and among dirty pages), appends to a map and
by ``pwrite``, random reads. Bounded in bytes and time; its files are removed at the end, also after an error.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.common.clock import Clock
from pocketmq.store.disk.file_system import FileSystem, StoreFile

SMALL_BYTES: Final = 4096
CHUNK_BYTES: Final = 1 << 20
SYNC_EVERY_BYTES: Final = 16 << 20
"""A sequential write is synced this often, so that a slow disk ends a step near its time."""
GROUP_BYTES: Final = 65_536
"""The append group of a drain of 64 sends of 1 KiB."""
OPERATIONS_MAX: Final = 20_000
FRESH_BYTES: Final = 4 << 20
SPARE_BYTES: Final = 256 << 20
"""Space that must stay free beside the measurement."""
READ_OPERATIONS_MIN: Final = 8

Progress = Callable[[str, float], None]
"""Called with the name of the step and how much of it is done, 0 to 1."""


class Times(msgspec.Struct, frozen=True):
    """Times of ``count`` equal operations."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class DiskMeasurements(msgspec.Struct, frozen=True, kw_only=True):
    """The results; None: not measured, and ``skipped`` says why."""

    size_bytes: int
    free_bytes: int
    total_bytes: int
    reserve_ms: float
    blocks_reserved: bool | None
    """Whether ``fallocate`` gave the file its blocks; None where that cannot be seen."""
    write_bytes_per_s: float | None = None
    """Sequential, 1 MiB a call, synced every 16 MiB."""
    sync_alone: Times | None = None
    """Append 4 KiB over zeros, then sync, as SYNC_FLUSH does."""
    sync_reserved: Times | None = None
    """The same in blocks that are only reserved, as ASYNC_FLUSH does."""
    sync_dirty: Times | None = None
    """As ``sync_alone``, with 1 MiB written to another file before each sync."""
    append_mapped: Times | None = None
    """Groups of 64 KiB stored into a map."""
    append_written: Times | None = None
    """The same groups by ``pwrite``."""
    read_random: Times | None = None
    """4 KiB each, after the kernel was asked to drop the file from its cache."""
    skipped: tuple[str, ...] = ()


def times_of(took_ns: Sequence[int]) -> Times | None:
    """Return count and percentiles; None for nothing."""
    if not took_ns:
        return None
    milliseconds = np.array(took_ns, np.int64) / 1e6
    middle, high = (float(each) for each in np.percentile(milliseconds, (50, 99), method="higher"))
    return Times(len(took_ns), middle, high, float(milliseconds.max()))


class DiskProbe:
    """One measurement. ``size_bytes`` bounds all writes; ``seconds`` is divided among the steps.

    Raises ``CommandFailed`` without the directory or the space, and ``StoreError`` for calls that the disk refuses.
    """

    def __init__(
        self,
        directory: str,
        file_system: FileSystem,
        clock: Clock,
        *,
        size_bytes: int,
        seconds: float,
        on_progress: Progress,
    ) -> None:
        self._directory = directory
        self._files = file_system
        self._clock = clock
        self._size_bytes = size_bytes - size_bytes % (8 * CHUNK_BYTES)
        self._seconds = seconds
        self._on_progress = on_progress
        self._place = f"{directory}/.pocketmq-doctor-{os.getpid()}"
        self._skipped: list[str] = []
        self._chunk = np.random.default_rng(1).integers(0, 256, CHUNK_BYTES, np.uint8)  # no file system can compress it

    def measure(self) -> DiskMeasurements:
        """Measure; remove the files, also when interrupted."""
        free_bytes, total_bytes = self._check_room()
        self._files.make_dirs(self._place)
        try:
            return self._measure(free_bytes, total_bytes)
        finally:
            self._files.remove_tree(self._place, below=self._directory)

    def _check_room(self) -> tuple[int, int]:
        if not self._files.exists(self._directory):
            raise CommandFailed("nothing measured", why=f"there is no directory {self._directory}")
        free_bytes, total_bytes = self._files.free_bytes(self._directory)
        if free_bytes < self._size_bytes + SPARE_BYTES:
            mib = 1 << 20
            raise CommandFailed(
                "nothing measured: space is short",
                why=f"{free_bytes // mib} MiB are free; the measurement takes up to {self._size_bytes // mib} MiB and "
                f"leaves {SPARE_BYTES // mib} MiB alone",
                hint="measure less (--size MIB), or free space first",
            )
        return free_bytes, total_bytes

    def _measure(self, free_bytes: int, total_bytes: int) -> DiskMeasurements:
        half, eighth = self._size_bytes // 2, self._size_bytes // 8
        main = self._files.open(f"{self._place}/main", create=True)
        reserve_ns = self._took_ns(lambda: main.reserve(half))
        blocks = self._blocks_reserved(main.path, half)
        rate, written = self._sequential(main, half)
        zeroed = min(written, half)
        alone = self._syncs("syncs alone", main, zeroed, share=0.2)
        fresh = self._files.open(f"{self._place}/fresh", create=True)
        fresh_bytes = min(FRESH_BYTES, eighth)
        fresh.reserve(fresh_bytes)
        reserved = self._syncs("syncs in reserved blocks", fresh, fresh_bytes, share=0.1)
        beside = self._files.open(f"{self._place}/beside", create=True)
        dirty = self._syncs("syncs among dirty pages", main, zeroed, share=0.2, beside=beside, beside_bytes=eighth)
        mapped = self._appends("appends to a map", "mapped", eighth, mapped=True)
        by_write = self._appends("appends by pwrite", "written", eighth, mapped=False)
        reads = self._reads(main, written)
        return DiskMeasurements(
            size_bytes=self._size_bytes,
            free_bytes=free_bytes,
            total_bytes=total_bytes,
            reserve_ms=reserve_ns / 1e6,
            blocks_reserved=blocks,
            write_bytes_per_s=rate,
            sync_alone=alone,
            sync_reserved=reserved,
            sync_dirty=dirty,
            append_mapped=mapped,
            append_written=by_write,
            read_random=reads,
            skipped=tuple(self._skipped),
        )

    # ---- steps -----------------------------------------------------------------------------------------------------

    def _sequential(self, file: StoreFile, limit_bytes: int) -> tuple[float | None, int]:
        """Write from the start, sync every 16 MiB; return the rate and the bytes written."""
        begin_ns = self._clock.monotonic_ns()
        written = synced = 0
        for _ in self._turns("sequential writes", 0.25, limit_bytes // CHUNK_BYTES):
            file.write_at(written, self._chunk)
            written += CHUNK_BYTES
            if written - synced >= SYNC_EVERY_BYTES:
                file.sync()
                synced = written
        if synced < written:
            file.sync()
        took_s = (self._clock.monotonic_ns() - begin_ns) / 1e9
        return (written / took_s if took_s > 0 and written else None), written

    def _syncs(
        self,
        name: str,
        file: StoreFile,
        room_bytes: int,
        *,
        share: float,
        beside: StoreFile | None = None,
        beside_bytes: int = 0,
    ) -> Times | None:
        """Append 4 KiB and sync, repeatedly within the room; with ``beside`` make 1 MiB dirty before each."""
        took_ns: list[int] = []
        count = min(room_bytes // SMALL_BYTES, OPERATIONS_MAX)
        if beside is not None:
            count = min(count, beside_bytes // CHUNK_BYTES)
        for turn in self._turns(name, share, count):
            if beside is not None:
                beside.write_at(turn * CHUNK_BYTES, self._chunk)
            begin_ns = self._clock.monotonic_ns()
            file.write_at(turn * SMALL_BYTES, self._chunk[:SMALL_BYTES])
            file.sync()
            took_ns.append(self._clock.monotonic_ns() - begin_ns)
        return times_of(took_ns)

    def _appends(self, step: str, name: str, limit_bytes: int, *, mapped: bool) -> Times | None:
        """Append groups to a fresh reserved file, as the store does; no sync."""
        file = self._files.open(f"{self._place}/{name}", create=True)
        file.reserve(limit_bytes)
        store = file.map().store if mapped else file.write_at
        group = self._chunk[:GROUP_BYTES]
        took_ns: list[int] = []
        for turn in self._turns(step, 0.1, limit_bytes // GROUP_BYTES):
            begin_ns = self._clock.monotonic_ns()
            store(turn * GROUP_BYTES, group)
            took_ns.append(self._clock.monotonic_ns() - begin_ns)
        return times_of(took_ns)

    def _reads(self, file: StoreFile, written_bytes: int) -> Times | None:
        """Read 4 KiB at random places of the file, each place once, after the cache dropped it."""
        pages = written_bytes // SMALL_BYTES
        if pages < READ_OPERATIONS_MIN:
            self._skipped.append("random reads: too few bytes were written")
            return None
        if not _forget_cached(file.path):
            self._skipped.append("random reads: this system offers no way to read from the disk instead of memory")
            return None
        places = np.random.default_rng(2).permutation(pages)[:OPERATIONS_MAX]
        out = np.empty(SMALL_BYTES, np.uint8)
        took_ns: list[int] = []
        for turn in self._turns("random reads", 0.15, len(places)):
            begin_ns = self._clock.monotonic_ns()
            file.read_into(int(places[turn]) * SMALL_BYTES, out)
            took_ns.append(self._clock.monotonic_ns() - begin_ns)
        return times_of(took_ns)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _turns(self, name: str, share: float, count: int) -> Iterator[int]:
        """Yield 0, 1, … up to ``count``, at most for this step's share of the time; always at least one."""
        begin_ns = self._clock.monotonic_ns()
        limit_ns = max(1, int(self._seconds * share * 1e9))
        for turn in range(count):
            passed_ns = self._clock.monotonic_ns() - begin_ns
            if turn and passed_ns >= limit_ns:
                break
            self._on_progress(name, min(1.0, max(turn / count, passed_ns / limit_ns)))
            yield turn
        self._on_progress(name, 1.0)

    def _took_ns(self, call: Callable[[], None]) -> int:
        begin_ns = self._clock.monotonic_ns()
        call()
        return self._clock.monotonic_ns() - begin_ns

    @staticmethod
    def _blocks_reserved(path: str, size_bytes: int) -> bool | None:
        with contextlib.suppress(OSError, AttributeError):
            return os.stat(path).st_blocks * 512 >= size_bytes
        return None


def _forget_cached(path: str) -> bool:
    """Ask the kernel to drop a synced file from its cache; return whether it accepted."""
    if not hasattr(os, "posix_fadvise"):
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
