"""What follows the log, by itself: dispatch, index, get.

Each time is the median of some rounds in one thread, log read from memory (get: from a file through ``preadv``).
"""

import itertools
import statistics
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.base.harness import scaled, workspace
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
ROUNDS = scaled(200, 30)

Timings = Iterator[tuple[str, float]]
Groups = Iterator[RecordGroup]


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


def median_us(work: Callable[[], object]) -> float:
    """Return the median time of ``work`` in µs, of ``ROUNDS``."""
    return statistics.median(timeit.repeat(work, number=1, repeat=ROUNDS)) * 1e6


def bench_dispatch(root: Path, log: FileLog) -> Timings:
    for count, together in ((1000, 1), (1, 1), (1, 32)):
        runner = SteppedRunner()
        queues = ConsumeQueues(StoreConfig(store_path_root_dir=str(root)), OsFileSystem(), SystemClock(), runner)
        dispatcher = Dispatcher(queues, log, runner)  # type: ignore[arg-type]
        log.committed_offset = 0
        dispatcher.start(0)
        log.committed_offset = 1 << 60
        groups = iter([group_at(n * count, count, n * count) for n in range(ROUNDS * together)])

        def work(together: int = together, groups: Groups = groups, dispatcher: Dispatcher = dispatcher) -> None:
            for group in itertools.islice(groups, together):
                dispatcher.feed(group)
            dispatcher._pass()

        spent = median_us(work)
        assert queues.next_offset("TopicTest", 0) == ROUNDS * together * count
        yield f"feed and dispatch, {together} group(s) of {count}, per message", spent / count / together
        yield f"feed and dispatch, {together} group(s) of {count}, per group", spent / together


def bench_index(root: Path, log: FileLog) -> Timings:
    for count in (1000, 100):
        config = StoreConfig(store_path_root_dir=str(root / f"index{count}"))
        index = KeyIndex(config, OsFileSystem(), SystemClock(), SteppedRunner(), log)  # type: ignore[arg-type]
        index.load()
        groups = iter([group_at(n * count, count, n * count) for n in range(ROUNDS)])

        def work(groups: Groups = groups, index: KeyIndex = index) -> None:
            index.put_group(next(groups))
            index._pass()

        yield f"index, unique keys only, passes of {count}, per key", median_us(work) / count


def bench_get(root: Path, log: FileLog) -> Timings:
    log.committed_offset = 1 << 60
    config = StoreConfig(store_path_root_dir=str(root))
    for name, stride in (("contiguous", 1), ("interleaved over 4 queues", 4), ("interleaved over 16 queues", 16)):
        queues = ConsumeQueues(config, OsFileSystem(), SystemClock(), SteppedRunner())
        queues.put_groups([LogColumns(group_at(0, 1000, 0, stride, stride))])
        queue = queues.get("TopicTest", stride)

        def work(queue: object = queue) -> None:
            result = get_message(queue, log, 0, max_messages=1000, max_bytes=1 << 22)  # type: ignore[arg-type]
            assert result.count == 1000

        yield f"get of 1,000 messages of 100 B, {name}", median_us(work)


def run() -> Iterator[dict[str, object]]:
    """Yield one row a measurement."""
    with workspace() as root:
        log = FileLog(OsFileSystem().open(str(root / "log"), create=True), 16_100)
        for case, us in itertools.chain(bench_dispatch(root, log), bench_index(root, log), bench_get(root, log)):
            yield {"case": case, "us": round(us, 3)}
