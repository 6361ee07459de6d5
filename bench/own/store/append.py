"""Append and flush of the commit log, beside the machine's floors; group commit beside what the disk syncs.

Every append row: a new store on the current directory's file system, segments of 1 GiB that are reserved but not
touched before, one appending thread, no dispatch, no index, no flush meanwhile. Groups are of one queue; their buffers
are used again, so they are warm in the cache. ``µs`` are per record. Floors do nothing but move the same bytes.
"""

import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.base.harness import scaled, workspace
from bench.comparison.floors import sync_row
from pocketmq.common.hashes import crc32
from pocketmq.common.record import encode_properties
from pocketmq.common.record_codec import encode_record
from pocketmq.common.record_group import RecordGroup, record_meta
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.message_store import MessageStore

SHAPES = ((1000, 1024), (1000, 100), (64, 1024), (1, 1024))
BYTES_MAX = 256 << 20
SECONDS_MAX = scaled(0.35, 0.05)
HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])


def built_group(rows: Iterable[tuple[str, int, bytes, dict[str, str]]]) -> RecordGroup:
    """Return a group as a native append brings it, from (topic, queue, body, properties) of each record."""
    built, metas = [], []
    for topic, queue_id, body, properties in rows:
        encoded = encode_properties(properties)
        built.append(encode_record(topic, body, queue_id=queue_id, properties=encoded, born_host=HOST, store_host=HOST))
        metas.append(record_meta(topic, queue_id, 0, properties))
    return RecordGroup.from_records(built, metas)


def group_of(records: int, body_bytes: int) -> RecordGroup:
    """Return a group of one queue."""
    return built_group(
        ("TopicTest", 0, bytes(body_bytes), {"UNIQ_KEY": f"{number:032X}", "CLUSTER": "DefaultCluster"})
        for number in range(records)
    )


def rate(call: Callable[[], object], bytes_each: int) -> tuple[int, float]:
    """Call until a byte or time limit; return (calls, seconds)."""
    calls_max = BYTES_MAX // bytes_each
    calls = 0
    begin = time.perf_counter()
    while calls < calls_max:
        for _ in range(min(32, calls_max - calls)):
            call()
            calls += 1
        if time.perf_counter() - begin > SECONDS_MAX:
            break
    return calls, time.perf_counter() - begin


def open_store(root: Path, **settings: Any) -> MessageStore:
    """Open a store without an index that does not sync when it is closed."""
    config = {"message_index_enable": False, "sync_on_close": False, **settings}
    store = MessageStore(StoreConfig(store_path_root_dir=str(root), **config))
    store.store_host = HOST
    store.open()
    return store


def append_row(root: Path, records: int, body_bytes: int, **settings: object) -> dict[str, object]:
    """Append groups of one shape to a new store."""
    group = group_of(records, body_bytes)
    store = open_store(root, flush_interval_commit_log=3_600_000, checkpoint_interval=3_600_000, **settings)
    store.log.on_appended, store.log.on_committed = None, []
    store.log.append(group)  # the segment is taken, the queue known
    held = store.log.lock.held_ns_total
    calls, seconds = rate(lambda: store.log.append(group), len(group.buffer))
    held = store.log.lock.held_ns_total - held
    store.log.fenced_by = None
    store._is_open = False  # nothing is to be written or kept
    store.components.allocator.stop()
    store.log.close()
    shutil.rmtree(root)
    total = calls * records
    return {
        "case": f"append {records} x {body_bytes} B",
        "us_per_record": round(seconds / total * 1e6, 3),
        "records_per_s": round(total / seconds),
        "mb_per_s": round(calls * len(group.buffer) / seconds / 1e6),
        "lock_us_per_group": round(held / calls / 1e3, 1),
        "group_bytes": len(group.buffer),
        **settings,
    }


def floor_rows(base: Path) -> Iterator[dict[str, object]]:
    """Move bytes of the same sizes without a store."""
    for records, body_bytes in SHAPES:
        data = group_of(records, body_bytes).buffer
        for kind in ("numpy copy into map", "pwrite", "crc32"):
            path = str(base / "floor")
            calls, seconds = rate(mover(kind, path, data), len(data))
            OsFileSystem().remove(path)
            yield {
                "case": f"floor {kind} {records} x {body_bytes} B",
                "us_per_record": round(seconds / calls / records * 1e6, 3),
                "mb_per_s": round(calls * len(data) / seconds / 1e6),
            }


def mover(kind: str, path: str, data: NDArray[np.uint8]) -> Callable[[], object]:
    """Return what moves ``data`` once, each time to the next place of a reserved file."""
    file = OsFileSystem().open(path, create=True)
    file.reserve(BYTES_MAX + len(data))
    mapped = file.map()
    places = itertools.count(0, len(data))
    if kind == "pwrite":
        return lambda: file.write_at(next(places), data)
    if kind == "crc32":
        return lambda: crc32(data.data)
    return lambda: mapped.store(next(places), data)


def group_commit_row(root: Path, in_flight: int) -> dict[str, object]:
    """Keep ``in_flight`` groups of one record waiting for their sync."""
    store = open_store(root, mapped_file_size_commit_log=64 << 20, flush_disk_type="SYNC_FLUSH")
    group = group_of(1, 1024)
    store.log.append(group)
    time.sleep(0.1)  # the first segment's zeros
    begin = time.perf_counter()
    done = 0
    first_flush = store.log.flush_count
    finished = threading.Semaphore(0)
    for _ in range(in_flight):  # each answer lets one more group in
        finished.release()
    while time.perf_counter() - begin < SECONDS_MAX:
        finished.acquire()
        end = store.log.append(group_of_cached(group)).end_offset
        store.acknowledge(end, True, lambda _: finished.release())
        done += 1
    for _ in range(in_flight):
        finished.acquire()
    seconds = time.perf_counter() - begin
    flushes = store.log.flush_count - first_flush
    store.close()
    shutil.rmtree(root)
    return {
        "case": f"group commit 1 KiB, {in_flight} in flight",
        "records_per_s": round(done / seconds),
        "us_per_record": round(seconds / done * 1e6, 1),
        "syncs": flushes,
    }


def group_of_cached(group: RecordGroup) -> RecordGroup:
    """Return a group of its own over a copy of the bytes: the store keeps columns of what it was given."""
    return RecordGroup(
        group.buffer.copy(), group.starts, group.sizes, group.tags_codes, group.sections, group.uniq_keys
    )


def run() -> Iterator[dict[str, object]]:
    """Yield one row a case."""
    with workspace() as base:
        yield from floor_rows(base)
        for records, body_bytes in SHAPES:
            for mode in ("mapped", "written"):
                for checksums in (True, False):
                    yield append_row(base / "store", records, body_bytes, append_mode=mode, group_checksums=checksums)
        yield sync_row(base / "synced", 1024, scaled(1.5, 0.3))
        for in_flight in (1, 64, 1024):
            yield group_commit_row(base / "store", in_flight)
