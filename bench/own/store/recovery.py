"""Recovery of a store in GB/s: by group checksums, record by record, beside a plain read; starts after a clean stop.

A store of ``GIGABYTES`` (default 2) in messages of 1 KiB and groups of 500 is killed: its process ends without a stop.
The page cache stays warm unless the case says *cold*, which drops it with ``posix_fadvise``. ``verify``: the log alone
(``LogScan``); ``open_s``: the whole start, queues rebuilt after a kill.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.base.harness import scaled, workspace
from bench.own.store.append import group_of
from bench.own.store.logs import drop_cache, log_files, plain_read
from pocketmq.store.commitlog.checksums import ChecksumLog
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.message_store import MessageStore
from pocketmq.store.recovery.log_scan import LogScan

SEGMENT_BYTES = 1 << 30


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


def start(root: Path) -> float:
    """Open the store and close it; return the seconds that opening took."""
    store = MessageStore(config_of(str(root)))
    begin = time.perf_counter()
    store.open()
    seconds = time.perf_counter() - begin
    store.close()
    return seconds


def run() -> Iterator[dict[str, object]]:
    """Yield a row per case."""
    gigabytes = float(os.environ.get("GIGABYTES", scaled("2", "0.2")))
    with workspace() as directory:
        root = directory / "data"
        subprocess.run([sys.executable, "-m", __name__, str(root), str(gigabytes)], check=True)
        os.sync()
        for name, is_cold in (("warm", False), ("cold", True)):
            for way in ("plain read", "group checksums", "record by record"):
                if is_cold:
                    drop_cache(root)
                if way == "plain read":
                    begin, size = time.perf_counter(), int(gigabytes * 1e9)
                    plain_read(root, size)
                    seconds = time.perf_counter() - begin
                else:
                    seconds, size = verify(root, checksums=way == "group checksums")
                gb_s = round(size / seconds / 1e9, 2)
                yield {"case": f"verify, {way}, {name}", "gb_s": gb_s, "seconds": round(seconds, 2)}
        yield {"case": "start after a kill, queues rebuilt", "gigabytes": gigabytes, "open_s": round(start(root), 2)}
        yield {"case": "start after a clean stop", "gigabytes": gigabytes, "open_s": round(start(root), 4)}
        for path in log_files(root)[:-1]:
            path.unlink()
        seconds, left = start(root), len(log_files(root))
        yield {"case": f"start after a clean stop, {left} segments left", "open_s": round(seconds, 4)}


if __name__ == "__main__":
    fill(sys.argv[1], float(sys.argv[2]))
