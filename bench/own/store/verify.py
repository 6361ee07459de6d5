"""``pocketmq log verify`` in GB/s, through group checksums and record by record, beside a plain read of the same files.

``GIGABYTES`` (default 1) of log each with 1 KiB and with 100 B bodies, 16 queues, keys and tags. Warm: the files lie in
the page cache; cold: they were dropped from it (``posix_fadvise``), so the disk is in it. On a machine that does other
work compare the rates per second of CPU.
"""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.base.harness import scaled, workspace
from bench.own.store.append import built_group, open_store
from bench.own.store.logs import drop_cache, plain_read
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.verify import Level, verify

GROUP = 200


def fill(directory: Path, size_bytes: int, body_bytes: int) -> None:
    """Store about ``size_bytes`` of records in groups of ``GROUP``, as a busy producer's frames are."""
    store = open_store(directory, mapped_file_size_commit_log=1 << 28, message_index_enable=True, sync_on_close=True)
    next_number = done = 0
    while done < size_bytes:
        rows = []
        for number in range(next_number, next_number + GROUP):
            properties = {"UNIQ_KEY": f"{number:032X}", "TAGS": f"tag{number % 5}", "KEYS": f"k{number}"}
            topic, body = ("Orders", "Payments")[number % 2], bytes([number % 251]) * body_bytes
            rows.append((topic, number // 2 % 8, body, properties))
        next_number += GROUP
        group = built_group(rows)
        if not store.append(group).status.is_stored:
            raise SystemExit("the store refused an append")
        done += group.size_bytes
    store.close()


def check(directory: Path, level: Level, use_checksums: bool) -> int:
    """Verify; return where the log ends."""
    reader = StoreReader.open(str(directory), use_checksums=use_checksums)
    report = verify(reader, level=level)
    reader.close()
    if not report.ok:
        raise SystemExit(f"the store is not sound: {report}")
    return report.end_offset


def run() -> Iterator[dict[str, object]]:
    """Yield GB/s of each way, the best of three warm and one cold."""
    gigabytes = float(os.environ.get("GIGABYTES", scaled("1", "0.1")))
    for body_bytes in (1024, 100):
        with workspace() as directory:
            fill(directory, int(gigabytes * 1e9), body_bytes)
            end = check(directory, "log", True)
            ways: dict[str, Callable[[], object]] = {
                "plain sequential read": partial(plain_read, directory, end),
                "--log-only, group checksums": partial(check, directory, "log", True),
                "--log-only --no-checksums, record walk": partial(check, directory, "log", False),
                "normal, group checksums, all queues": partial(check, directory, "normal", True),
                "normal --no-checksums": partial(check, directory, "normal", False),
                "--full": partial(check, directory, "full", True),
            }
            for name, way in ways.items():
                seconds: list[float] = []
                cpu_s: list[float] = []
                drop_cache(directory)
                for _ in range(4 if name != "--full" else 2):
                    begin, cpu_begin = time.perf_counter(), time.process_time()
                    way()
                    seconds.append(time.perf_counter() - begin)
                    cpu_s.append(time.process_time() - cpu_begin)
                yield {
                    "way": name,
                    "body_bytes": body_bytes,
                    "cold_gb_s": round(end / seconds[0] / 1e9, 2),
                    "warm_gb_s": round(end / min(seconds[1:]) / 1e9, 2),
                    "warm_gb_per_cpu_s": round(end / min(cpu_s[1:]) / 1e9, 2),
                    "load": round(os.getloadavg()[0], 1),
                }
