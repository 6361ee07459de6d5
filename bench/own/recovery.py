"""Recovery of a store in GB/s: by group checksums, record by record, beside a plain read; starts after a clean stop.

Run: ``python -m bench recovery`` (environment ``GIGABYTES``, default 2). A store of 1 KiB messages in groups of 500 is
killed (its process ends without a stop; the page cache stays warm unless the case says *cold*, which drops it with
``posix_fadvise``). ``verify_gb_s``: the log alone (``LogScan``); ``open_s``: the whole start with queues rebuilt.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.own.store import group_of
from pocketmq.store.commitlog.checksums import ChecksumLog
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.message_store import MessageStore
from pocketmq.store.recovery.log_scan import LogScan

SEGMENT_BYTES = 1 << 30
_FILL = "import sys; from bench.own.recovery import fill; fill(sys.argv[1], float(sys.argv[2]))"


def config_of(root: str) -> StoreConfig:
    """Return the settings of the store: no checkpoint while it is filled, so that a recovery reads everything."""
    return StoreConfig(store_path_root_dir=root, checkpoint_interval=86_400_000, message_index_enable=False)


def fill(root: str, gigabytes: float) -> None:
    """Append until the log has this size, then die as by ``kill -9``. Runs in a process of its own."""
    store = MessageStore(config_of(root))
    store.open()
    group = group_of(500, 1024)
    while store.appended_offset < gigabytes * 1e9:
        result = store.append(group)
        assert result.status.is_stored, result
    store.show_all()
    store.components.flush.write_checksums()
    os._exit(0)


def log_files(root: Path) -> list[Path]:
    """Return the segments."""
    return sorted(path for path in (root / "commitlog").iterdir() if path.name.isdecimal())


def drop_cache(root: Path) -> None:
    """Write everything back and drop the log's pages."""
    os.sync()
    for path in log_files(root):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(root: Path, size_bytes: int) -> float:
    """Return the seconds of reading the log in pieces of 4 MiB."""
    piece = np.empty(4 << 20, np.uint8)
    begin = time.perf_counter()
    left = size_bytes
    for path in log_files(root):
        with path.open("rb", buffering=0) as file:
            while left > 0 and (got := file.readinto(piece.data)):
                left -= got
    return time.perf_counter() - begin


def verify(root: Path, *, checksums: bool) -> tuple[float, int]:
    """Return (seconds, bytes) of a scan of the whole log."""
    files = OsFileSystem()
    segments = SegmentQueue(files, str(root / "commitlog"), SEGMENT_BYTES)
    segments.load()
    log = ChecksumLog(files, str(root / "checksums"), SEGMENT_BYTES) if checksums else None
    begin = time.perf_counter()
    result = LogScan(segments, log).run(0)
    seconds = time.perf_counter() - begin
    assert not result.damaged
    assert (result.group_verified_bytes > 0.9 * result.scanned_bytes) == checksums
    segments.close()
    return seconds, result.scanned_bytes


def start(root: Path) -> tuple[MessageStore, float]:
    """Open the store; return it with the seconds it took."""
    store = MessageStore(config_of(str(root)))
    begin = time.perf_counter()
    store.open()
    return store, time.perf_counter() - begin


def run() -> Iterator[dict[str, object]]:
    """Yield a row per case."""
    gigabytes = float(os.environ.get("GIGABYTES", "2"))
    directory = Path(tempfile.mkdtemp(dir="."))
    root = directory / "data"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        subprocess.run([sys.executable, "-c", _FILL, str(root), str(gigabytes)], env=environment, check=True)
        os.sync()
        for name, is_cold in (("warm", False), ("cold", True)):
            for way in ("plain read", "group checksums", "record by record"):
                if is_cold:
                    drop_cache(root)
                if way == "plain read":
                    seconds, size = plain_read(root, int(gigabytes * 1e9)), int(gigabytes * 1e9)
                else:
                    seconds, size = verify(root, checksums=way == "group checksums")
                yield {
                    "case": f"verify, {way}, {name}",
                    "gb_s": round(size / seconds / 1e9, 2),
                    "seconds": round(seconds, 2),
                }
        store, seconds = start(root)
        yield {"case": "start after a kill, queues rebuilt", "gigabytes": gigabytes, "open_s": round(seconds, 2)}
        store.close()
        store, seconds = start(root)
        yield {"case": "start after a clean stop", "gigabytes": gigabytes, "open_s": round(seconds, 4)}
        store.close()
        for path in log_files(root)[:-1]:
            path.unlink()
        store, seconds = start(root)
        left = len(log_files(root))
        yield {"case": f"start after a clean stop, {left} segment left", "open_s": round(seconds, 4)}
        store.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
