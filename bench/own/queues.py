"""What follows the log, by itself: dispatch, index, get, load. Run: ``python -m bench.own.queues``.

Each figure is the median of some rounds in one thread, files on the temporary directory's file system, log read from
memory (get: from a file through ``preadv``).
"""

import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.clock import SystemClock
from pocketmq.common.record_group import GroupSection, RecordGroup
from pocketmq.common.runner import SteppedRunner
from pocketmq.store.commitlog.group_feed import LogColumns
from pocketmq.store.config import StoreConfig
from pocketmq.store.consumequeue.consume_queues import ConsumeQueues
from pocketmq.store.consumequeue.get import get_message
from pocketmq.store.disk.file_system import StoreFile
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.dispatch import Dispatcher
from pocketmq.store.index.index import KeyIndex

RECORD_BYTES = 241  # 100 B body, topic, unique key, cluster
ROUNDS = 200


class FileLog:
    """A log that is one file of records of one size; only what reads need."""

    min_offset = 0

    def __init__(self, file: StoreFile, records: int) -> None:
        self.file = file
        self.committed_offset = records * RECORD_BYTES
        block = np.zeros((records, RECORD_BYTES), np.uint8)
        block[:, 3] = RECORD_BYTES
        file.write_at(0, block.reshape(-1))

    def read_into(self, offset: int, out: NDArray[np.uint8]) -> None:
        self.file.read_into(offset, out)

    def walk(self, from_offset: int, to_offset: int) -> "list[RecordGroup]":
        return []


def group_at(first: int, count: int, queue_offset: int, queue_id: int = 0, stride: int = 1) -> RecordGroup:
    """Return an appended group of ``count`` records whose log positions are ``stride`` records apart."""
    rows = np.arange(first, first + count * stride, stride, dtype=np.int64)
    group = RecordGroup(
        np.empty(0, np.uint8),
        rows * RECORD_BYTES,
        np.full(count, RECORD_BYTES, np.int64),
        np.zeros(count, np.int64),
        [GroupSection("TopicTest", queue_id, 0, count)],
        uniq_keys=np.random.default_rng(first).integers(48, 70, (count, 32), dtype=np.uint8),
    )
    group.physical_offsets = rows * RECORD_BYTES
    group.queue_offsets = np.arange(queue_offset, queue_offset + count, dtype=np.int64)
    group.store_timestamp = 1_700_000_000_000
    return group


def median_us(work: Callable[[int], object], rounds: int = ROUNDS) -> float:
    """Return the median time of ``work`` in µs."""
    times = []
    for number in range(rounds):
        start = time.perf_counter_ns()
        work(number)
        times.append(time.perf_counter_ns() - start)
    return float(np.median(times)) / 1000


def show(what: str, value: float, unit: str) -> None:
    print(f"{what:<64}{value:>10.3f} {unit}")


def bench_dispatch(root: Path, log: FileLog) -> None:
    for count, together in ((1000, 1), (1, 1), (1, 32)):
        runner = SteppedRunner()
        queues = ConsumeQueues(StoreConfig(store_path_root_dir=str(root)), OsFileSystem(), SystemClock(), runner)
        dispatcher = Dispatcher(queues, log, runner, SystemClock())  # type: ignore[arg-type]
        log.committed_offset = 0
        dispatcher.start(0)
        log.committed_offset = 1 << 60
        groups = [group_at(n * count, count, n * count) for n in range(ROUNDS * together)]

        def work(
            number: int, groups: list[RecordGroup] = groups, together: int = together, worker: Dispatcher = dispatcher
        ) -> None:
            for group in groups[number * together : (number + 1) * together]:
                worker.feed(group)
            worker._pass()

        spent = median_us(work)
        assert queues.next_offset("TopicTest", 0) == ROUNDS * together * count
        show(f"feed and dispatch, {together} group(s) of {count}, per message", spent / count / together, "µs")
        show(f"feed and dispatch, {together} group(s) of {count}, per group", spent / together, "µs")


def bench_index(root: Path, log: FileLog) -> None:
    for count in (1000, 100):
        index = KeyIndex(
            StoreConfig(store_path_root_dir=str(root / f"index{count}")),
            OsFileSystem(),
            SystemClock(),
            SteppedRunner(),
            log,  # type: ignore[arg-type]
        )
        index.load()
        groups = [group_at(n * count, count, n * count) for n in range(ROUNDS)]

        def work(number: int, groups: list[RecordGroup] = groups, index: KeyIndex = index) -> None:
            index.put_group(groups[number])
            index._pass()

        show(f"index, unique keys only, passes of {count}, per key", median_us(work) / count, "µs")
        start = time.perf_counter_ns()
        index.flush()
        show(
            f"index, writing slots and header after {ROUNDS * count} keys", (time.perf_counter_ns() - start) / 1e6, "ms"
        )


def bench_get(root: Path, log: FileLog) -> None:
    log.committed_offset = 1 << 60
    for name, stride in (("contiguous", 1), ("interleaved over 4 queues", 4), ("interleaved over 16 queues", 16)):
        queues = ConsumeQueues(
            StoreConfig(store_path_root_dir=str(root)), OsFileSystem(), SystemClock(), SteppedRunner()
        )
        queues.put_groups([LogColumns(group_at(0, 1000, 0, stride, stride))])
        queue = queues.get("TopicTest", stride)

        def work(_: int, queue: object = queue) -> None:
            result = get_message(queue, log, 0, max_messages=1000, max_bytes=1 << 22)  # type: ignore[arg-type]
            assert result.count == 1000

        show(f"get of 1,000 messages of 100 B, {name}", median_us(work), "µs")


def bench_load(root: Path, count: int = 2000) -> None:
    config = StoreConfig(store_path_root_dir=str(root / "load"))
    queues = ConsumeQueues(config, OsFileSystem(), SystemClock(), SteppedRunner())
    for queue_id in range(count):
        queues.put_groups([LogColumns(group_at(queue_id * 100, 1 + queue_id % 50, 0, queue_id))])
    start = time.perf_counter_ns()
    queues.flush()
    show(f"first write of {count} queues", (time.perf_counter_ns() - start) / 1e6, "ms")
    queues.close()
    again = ConsumeQueues(config, OsFileSystem(), SystemClock(), SteppedRunner())
    start = time.perf_counter_ns()
    again.load()
    show(f"load of {count} queues", (time.perf_counter_ns() - start) / 1e6, "ms")
    start = time.perf_counter_ns()
    again.correct_min(0)
    show(f"correcting the min offsets of {count} queues", (time.perf_counter_ns() - start) / 1e6, "ms")
    assert len(again.queues()) == count


def main() -> None:
    print(f"Python {platform.python_version()}, NumPy {np.__version__}; median of {ROUNDS} rounds")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        log = FileLog(OsFileSystem().open(str(root / "log"), create=True), 16_100)
        bench_dispatch(root, log)
        bench_index(root, log)
        bench_get(root, log)
        bench_load(root)


if __name__ == "__main__":
    main()
