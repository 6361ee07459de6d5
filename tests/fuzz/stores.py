"""Target: the files of a store, changed anywhere: a start, what consumers read, and the offline tools.

Lives here: ``TARGETS``.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from pocketmq.common.errors import PocketMQError
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.repair import plan_repair
from pocketmq.store.offline.verify import verify
from tests.fuzz.target import Target
from tests.sim.bit_flips import small_store
from tests.sim.checkers import ROOT, Ledger, SimStore, close_quietly, fresh_disk, read_all
from tests.sim.crash_file_system import CrashFileSystem
from tests.sim.schedules import SURVIVING

CHANGE_BYTES: Final = 5
"""Of a change: file, place (three bytes, in the used part of the file), length of the bytes that follow."""
POOL: Final[dict[str, Any]] = SURVIVING | {"transient_store_pool_size": 2}


@cache
def _small(clean: bool) -> tuple[CrashFileSystem, list[str]]:
    files = small_store(checksums=True, clean=clean).files
    return files, _changeable(files, ROOT)


@cache
def _pooled() -> tuple[CrashFileSystem, list[str]]:
    sim = SimStore(fresh_disk(), Ledger(), **POOL)
    for size in (9, 300, 5):
        sim.append([size], key=f"key{size}")
    files = sim.files.after_kill()
    return files, _changeable(files, "/dev/shm") + _changeable(files, ROOT)


def _changeable(files: CrashFileSystem, under: str) -> list[str]:
    return [path for path, data in sorted(files.image(under).items()) if data.rstrip(b"\0")]


def changed(files: CrashFileSystem, paths: list[str], data: bytes) -> CrashFileSystem:
    """Return a copy of the disk with the changes that ``data`` describes; a length of 255 cuts the file there."""
    disk = files.after_kill()
    at = 0
    while at + CHANGE_BYTES <= len(data):
        path, place, length = paths[data[at] % len(paths)], int.from_bytes(data[at + 1 : at + 4], "big"), data[at + 4]
        inode = disk.inode(path)
        used = len(inode.data.tobytes().rstrip(b"\0")) or 1
        place %= used + 64
        fresh = data[at + CHANGE_BYTES : at + CHANGE_BYTES + length]
        at += CHANGE_BYTES + length
        if length == 255:
            inode.data[place:] = 0
            continue
        for number, byte in enumerate(fresh):
            if place + number < len(inode.data):
                inode.data[place + number] = byte
    return disk


def opened(make: Callable[[], tuple[CrashFileSystem, list[str]]], **settings: Any) -> Callable[[bytes], None]:
    """Start a store on the changed disk, read all of it, append, and stop; only errors of ours, no message invented."""

    def run(data: bytes) -> None:
        files, paths = make()
        ledger = Ledger()
        ledger.only_kills = False
        sim = SimStore(changed(files, paths, data), ledger, **settings)
        try:
            try:
                read_all(sim.store)
                sim.store.query("A", "key9", 0, 1 << 60, 10)
            except PocketMQError:
                pass
            sim.append([7])
            sim.store.dispatcher.catch_up()
        finally:
            close_quietly(sim)

    return run


def offline(data: bytes) -> None:
    """``pocketmq log verify`` and the plan of ``repair``: findings, never a traceback."""
    files, paths = _small(True)
    reader = StoreReader.open(ROOT, file_system=changed(files, paths, data))
    plan_repair(reader, verify(reader, level="full"))


def _change(path: int, place: int, fresh: bytes) -> bytes:
    return bytes((path, *place.to_bytes(3, "big"), len(fresh))) + fresh


def _changes() -> Iterator[bytes]:
    yield b""
    for path in range(8):
        for place in (0, 4, 30):
            yield _change(path, place, b"\0\0\0\1")
            yield _change(path, place, b"\x7f\xff\xff\xff\xff\xff\xff\xff")
        yield bytes((path, 0, 0, 20, 255))


TARGETS: Final = {
    "store_clean": Target(opened(lambda: _small(True)), _changes, calls_max=2_000_000),
    "store_killed": Target(opened(lambda: _small(False)), _changes, calls_max=2_000_000),
    "store_pool": Target(opened(_pooled, **POOL), _changes, calls_max=2_000_000),
    "store_offline": Target(offline, _changes, calls_max=2_000_000),
}
