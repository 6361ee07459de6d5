"""The dispatcher and the table of queues: entries, watermark, overflow, rebuild, callbacks, budget."""

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pocketmq.common.clock import ManualClock, SystemClock
from pocketmq.common.errors import CorruptRecord
from pocketmq.common.logs import CapturedLog
from pocketmq.common.record import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from pocketmq.common.record_group import GroupSection, RecordGroup
from pocketmq.common.runner import SteppedRunner, ThreadRunner
from pocketmq.common.topics import SCHEDULE_TOPIC
from pocketmq.store.commitlog.group_feed import GroupFeed, LogColumns
from pocketmq.store.consumequeue.consume_queue import ENTRY_BYTES, ConsumeQueue
from pocketmq.store.consumequeue.consume_queues import ConsumeQueues
from pocketmq.store.consumequeue.get import GetMessageStatus, get_message
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.dispatch import Dispatcher
from pocketmq.store.index.index import KeyIndex
from tests.store.queue_fakes import MemoryLog, Put, store_config, tags_code, tree

Row = tuple[int, int, int]


class Fixture:
    """Queues, index and dispatcher over a log in memory, stepped by hand."""

    def __init__(self, root: Path, log: MemoryLog | None = None, *, groups_max: int = 4096, **settings: object) -> None:
        self.log = MemoryLog() if log is None else log
        self.clock = ManualClock()
        self.runner = SteppedRunner()
        config = store_config(root, **settings)
        disk = OsFileSystem()
        self.events = CapturedLog()
        self.queues = ConsumeQueues(config, disk, self.clock, self.runner, log=self.events)
        self.index = KeyIndex(config, disk, self.clock, self.runner, self.log, log=self.events)
        self.dispatcher = Dispatcher(
            self.queues,
            self.log,
            self.runner,
            index=self.index,
            groups_max=groups_max,
            log=self.events,
        )
        self.told: list[list[tuple[str, int, int]]] = []
        self.dispatcher.on_dispatched.append(self.told.append)

    def open(self, from_offset: int = 0) -> "Fixture":
        self.queues.load()
        self.queues.start()
        self.index.load(from_offset)
        self.dispatcher.start(from_offset)
        self.index.start()
        return self

    def put(self, *puts: Put) -> RecordGroup:
        group = self.log.append(puts)
        self.dispatcher.feed(group)
        self.dispatcher.committed()
        return group

    def run(self) -> None:
        self.runner.run_until_idle()

    def rows(self, topic: str = "TopicTest", queue_id: int = 0) -> list[Row]:
        queue = self.queues.get(topic, queue_id)
        return [] if queue is None else [tuple(entry) for entry in queue.read(queue.min_offset, 1 << 20).tolist()]

    def close(self) -> None:
        assert self.dispatcher.stop()
        self.index.close()
        self.queues.close()


def test_messages_become_entries_of_their_queue(tmp_path: Path) -> None:
    """Each queue gets offset, size and tags code of its own messages, in order; pulls are notified once per pass."""
    fixture = Fixture(tmp_path).open()
    group = fixture.put(Put(tags="A"), Put(tags="B"), Put(queue_id=1), Put(tags="A"))
    more = fixture.put(Put(queue_id=1, tags="ü"))
    fixture.run()
    at, size = group.physical_offsets, group.sizes
    assert at is not None
    assert more.physical_offsets is not None
    assert fixture.rows() == [(at[n], size[n], tags_code(tags)) for n, tags in ((0, "A"), (1, "B"), (3, "A"))]
    assert fixture.rows(queue_id=1) == [
        (at[2], size[2], 0),
        (more.physical_offsets[0], more.sizes[0], tags_code("ü")),
    ]
    assert [sorted(updates) for updates in fixture.told] == [[("TopicTest", 0, 3), ("TopicTest", 1, 2)]]
    assert fixture.dispatcher.dispatched_offset == fixture.log.committed_offset
    assert fixture.queues.next_offset("TopicTest", 0) == 3
    assert fixture.queues.next_offset("TopicTest", 9) == 0


def test_only_committed_bytes_are_dispatched(tmp_path: Path) -> None:
    """A group with uncommitted bytes waits for the next move of the commit."""
    fixture = Fixture(tmp_path, MemoryLog(auto_commit=False)).open()
    fixture.put(Put())
    end = fixture.log.appended_offset
    fixture.put(Put(), Put())
    fixture.run()
    assert fixture.rows() == []
    fixture.log.committed_offset = end
    fixture.dispatcher.committed()
    fixture.run()
    assert len(fixture.rows()) == 1
    assert fixture.dispatcher.dispatched_offset == end
    fixture.log.committed_offset = fixture.log.appended_offset - 10  # in the middle of a record
    fixture.dispatcher.committed()
    fixture.run()
    assert len(fixture.rows()) <= 2
    fixture.log.committed_offset = fixture.log.appended_offset
    fixture.dispatcher.committed()
    fixture.run()
    assert len(fixture.rows()) == 3


def test_half_messages_enter_no_queue(tmp_path: Path) -> None:
    """PREPARED and ROLLBACK records get no entry and cost no queue offset; COMMIT does."""
    fixture = Fixture(tmp_path).open()
    kinds = [0, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, 0]
    group = fixture.put(*(Put(sys_flag=kind) for kind in kinds))
    fixture.run()
    assert group.physical_offsets is not None
    assert [row[0] for row in fixture.rows()] == group.physical_offsets[[0, 2, 4]].tolist()
    fixture.put(Put(sys_flag=TRANSACTION_PREPARED))
    fixture.run()
    assert len(fixture.told) == 1


def test_delayed_messages_have_their_deliver_time_as_tags_code(tmp_path: Path) -> None:
    """The hook is called for sections of the schedule topic only, and its value is stored."""
    fixture = Fixture(tmp_path)

    def deliver_times(section: GroupSection, columns: LogColumns) -> NDArray[np.int64]:
        assert section.topic == SCHEDULE_TOPIC
        return columns.timestamps()[section.first : section.first + section.count] + 1000 * (section.queue_id + 1)

    fixture.queues.tags_code_of = deliver_times
    fixture.open()
    fixture.put(Put(tags="A"), Put(SCHEDULE_TOPIC, 2, tags="A"), Put(SCHEDULE_TOPIC, 2))
    fixture.run()
    assert [row[2] for row in fixture.rows()] == [tags_code("A")]
    assert [row[2] for row in fixture.rows(SCHEDULE_TOPIC, 2)] == [fixture.log.now_ms + 3000] * 2


def fill(fixture: Fixture, groups: int, run_every: int = 0) -> None:
    for number in range(groups):
        fixture.log.now_ms += 13
        fixture.put(
            *(
                Put(
                    f"T{at % 2}",
                    at % 3,
                    b"y" * (number * 37 % 400),
                    "AB"[at % 2],
                    f"k{number}",
                    f"{number:030d}{at:02d}",
                )
                for at in range(number % 7 + 1)
            )
        )
        if run_every and number % run_every == 0:
            fixture.run()


@pytest.mark.parametrize("groups_max", [0, 1, 3, 12])
def test_an_overflow_gives_the_same_files(tmp_path: Path, groups_max: int) -> None:
    """Groups without room in the feed are read from the log: queues and index are equal to the byte."""
    plain = Fixture(tmp_path / "a").open()
    fill(plain, 60, run_every=1)
    plain.close()
    tight = Fixture(tmp_path / "b", groups_max=groups_max).open()
    fill(tight, 60, run_every=17)
    tight.close()
    assert tight.dispatcher.feed_queue.dropped_groups > 0
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    assert plain.dispatcher.feed_queue.reread_groups == 0


@given(before=st.integers(0, 25), between=st.integers(0, 10), after=st.integers(0, 10), written=st.booleans())
def test_a_crash_and_a_rebuild_give_the_files_of_an_undisturbed_run(
    tmp_path_factory: pytest.TempPathFactory, before: int, between: int, after: int, written: bool
) -> None:
    """Cut back to the last sync and dispatched again from the log, the store equals the undisturbed one to the byte."""
    root = tmp_path_factory.mktemp("rebuild")
    plain = Fixture(root / "a").open()
    fill(plain, before)
    fill(plain, between)
    fill(plain, after)
    plain.close()
    crashed = Fixture(root / "b").open()
    fill(crashed, before)
    crashed.run()
    crashed.queues.flush()
    crashed.index._catch_up(1000)
    durable = min(crashed.index.flush(), crashed.dispatcher.dispatched_offset)
    fill(crashed, between)
    if written:
        crashed.run()
        crashed.queues.flush()
    again = Fixture(root / "b", crashed.log)
    again.queues.load()
    again.queues.truncate_to_physical(durable)
    again.index.load(durable)
    again.dispatcher.rebuild(durable)
    again.queues.start()
    again.dispatcher.start(again.dispatcher.dispatched_offset)
    fill(again, after)
    again.close()
    assert tree(root / "a") == tree(root / "b")


def test_the_log_without_its_last_records_is_followed(tmp_path: Path) -> None:
    """Entries that point beyond a log whose tail was lost are dropped, in all queues, and new ones take their place."""
    fixture = Fixture(tmp_path).open()
    fill(fixture, 20)
    fixture.close()
    log = fixture.log
    cut = next(columns.start for columns in map(LogColumns, log.walk(0, log.committed_offset)) if columns.start > 5_000)
    del log.data[cut:]
    log.committed_offset = cut
    again = Fixture(tmp_path, log)
    again.queues.load()
    again.queues.truncate_to_physical(cut)
    assert again.queues.last_physical_end() == cut
    log.next_offsets = {(topic, queue_id): end for topic, queue_id, _, end in again.queues.queues()}
    again.dispatcher.start(cut)
    again.put(Put("T0", 0))
    again.run()
    assert again.rows("T0", 0)[-1][0] >= cut


def test_a_growing_log_without_columns_is_read(tmp_path: Path) -> None:
    """A slave appends raw bytes: announced bytes are read from the log."""
    fixture = Fixture(tmp_path).open()
    fixture.log.append([Put(), Put(queue_id=1)])
    fixture.dispatcher.announce(fixture.log.committed_offset)
    fixture.run()
    assert len(fixture.rows()) == len(fixture.rows(queue_id=1)) == 1


def test_a_store_opened_late_reads_what_is_there(tmp_path: Path) -> None:
    """Starting at an offset dispatches everything committed behind it, including blanks between segments."""
    log = MemoryLog(segment_bytes=1024)
    for _ in range(40):
        log.append([Put(body=b"z" * 150)])
    fixture = Fixture(tmp_path, log).open()
    fixture.put(Put())
    fixture.run()
    assert len(fixture.rows()) == 41
    assert fixture.dispatcher.dispatched_offset == log.committed_offset


def test_queues_are_written_each_second_when_dirty(tmp_path: Path) -> None:
    """No entry is written before the interval, all entries after it, and an idle writer sleeps."""
    fixture = Fixture(tmp_path).open()
    writer = next(worker for worker in fixture.runner.workers if worker.name == "consume-queue-writer")
    assert writer.step() is None
    fixture.put(Put())
    fixture.run()
    assert not (tmp_path / "consumequeue").exists()
    assert fixture.queues.unwritten_bytes == ENTRY_BYTES
    fixture.clock.advance_ms(1000)
    assert writer.step() is None
    assert len(tree(tmp_path / "consumequeue")) == 1
    assert fixture.queues.unwritten_bytes == 0


def test_after_a_long_round_of_writes_the_writer_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tens of thousands of queues a round takes long; the next one begins after nine times as long."""
    fixture = Fixture(tmp_path).open()
    writer = next(worker for worker in fixture.runner.workers if worker.name == "consume-queue-writer")
    write = ConsumeQueue.write

    def slowly(queue: ConsumeQueue) -> int:
        fixture.clock.advance_ms(500)
        return write(queue)

    monkeypatch.setattr(ConsumeQueue, "write", slowly)
    fixture.put(Put())
    fixture.run()
    fixture.clock.advance_ms(1000)
    assert writer.step() is None
    fixture.put(Put())
    fixture.run()
    fixture.clock.advance_ms(1000)
    assert writer.step() == 3500
    assert fixture.queues.unwritten_bytes == ENTRY_BYTES
    fixture.clock.advance_ms(3500)
    assert writer.step() is None
    assert fixture.queues.unwritten_bytes == 0


def test_memory_of_tails_is_bounded(tmp_path: Path) -> None:
    """Above the budget the oldest written tails are dropped; for unwritten ones dispatch waits for the writer."""
    fixture = Fixture(tmp_path)
    fixture.queues._tails_bytes_max = 8 * 64 * ENTRY_BYTES
    fixture.open()
    for queue_id in range(40):
        fixture.put(Put(queue_id=queue_id))
    fixture.run()
    fixture.queues.flush()
    assert fixture.queues.memory.used_bytes <= 8 * 64 * ENTRY_BYTES // 2
    for _ in range(20):
        fixture.put(*(Put(queue_id=3) for _ in range(100)))
    fixture.run()
    assert fixture.queues.over_budget
    assert len(fixture.rows(queue_id=3)) <= 2001
    dispatch = next(worker for worker in fixture.runner.workers if worker.name == "dispatch")
    assert dispatch.step() == 20.0
    fixture.queues.flush()
    while dispatch.step() is not None:
        fixture.queues.flush()
    assert len(fixture.rows(queue_id=3)) == 2001


def test_a_deleted_topic_leaves_nothing_and_can_return(tmp_path: Path) -> None:
    """Files and entries are removed; later messages start a queue at their own offset."""
    fixture = Fixture(tmp_path).open()
    fixture.put(Put("A"), Put("B"))
    fixture.run()
    fixture.queues.flush()
    fixture.put(Put("A"))
    fixture.run()
    fixture.queues.delete_topic("A")
    assert fixture.queues.get("A", 0) is None
    assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["B"]
    fixture.put(Put("A"))
    fixture.run()
    assert fixture.queues.queues() == [("B", 0, 0, 1), ("A", 0, 2, 3)]
    fixture.close()
    again = Fixture(tmp_path, fixture.log).open(fixture.log.committed_offset)
    assert sorted(again.queues.queues()) == [("A", 0, 2, 3), ("B", 0, 0, 1)]


def test_retention_moves_min_offsets_and_removes_files(tmp_path: Path) -> None:
    """Files wholly below the log's start are removed; the min offset is the first readable entry."""
    fixture = Fixture(tmp_path).open()
    for _ in range(25):
        fixture.put(*(Put() for _ in range(10)))
    fixture.run()
    fixture.queues.flush()
    fixture.log.min_offset = fixture.rows()[220][0]
    assert len(fixture.queues.delete_expired(fixture.log.min_offset)) == 2
    assert fixture.queues.queues() == [("TopicTest", 0, 220, 250)]


def test_a_failing_callback_does_not_stop_dispatch(tmp_path: Path) -> None:
    """An error of one callback is logged; the others are called, and the watermark moves."""
    fixture = Fixture(tmp_path)

    def fail(_: object) -> None:
        raise ValueError("no")

    fixture.dispatcher.on_dispatched.insert(0, fail)
    fixture.open()
    fixture.put(Put())
    fixture.run()
    assert [event["event"] for event in fixture.events.events] == ["dispatch_callback_failed"]
    assert len(fixture.told) == 1


def test_damage_in_the_log_is_reported_and_passed(tmp_path: Path) -> None:
    """A range that cannot be read as records is skipped with an event; later records are dispatched."""
    log = MemoryLog()
    log.append([Put()])
    damaged = log.append([Put()])
    fixture = Fixture(tmp_path, log, groups_max=1)
    assert damaged.physical_offsets is not None
    at = int(damaged.physical_offsets[0])

    def walk(from_offset: int, to_offset: int) -> object:
        if from_offset <= at < to_offset:
            raise CorruptRecord("bad")
        return MemoryLog.walk(log, from_offset, to_offset)

    log.walk = walk  # type: ignore[method-assign, assignment]
    fixture.open()
    fixture.put(Put(queue_id=7))
    fixture.run()
    assert "dispatch_skipped_damage" in {event["event"] for event in fixture.events.events}
    assert len(fixture.rows(queue_id=7)) == 1


def test_the_feed_is_bounded_in_bytes() -> None:
    """Columns above the limit are dropped and counted; the feed knows the end of the log."""
    log = MemoryLog()
    feed = GroupFeed(log, bytes_max=2_000)
    for _ in range(20):
        feed.offer(LogColumns(log.append([Put(keys="k")])))
    assert 0 < 20 - feed.dropped_groups < 5
    assert feed.known_end == log.committed_offset
    groups, end = feed.take(0, log.committed_offset, 1 << 20)
    assert sum(columns.count for columns in groups) == 20
    assert end == log.committed_offset


def test_the_appending_thread_may_dispatch_itself(tmp_path: Path) -> None:
    """``dispatch_here`` makes a group visible without the worker, and leaves the rest to the worker."""
    fixture = Fixture(tmp_path).open()
    fixture.run()
    fixture.dispatcher.feed(fixture.log.append([Put(tags="A"), Put()]))
    fixture.dispatcher.dispatch_here()
    assert [row[2] for row in fixture.rows()] == [tags_code("A"), 0]
    assert fixture.told == [[("TopicTest", 0, 2)]]
    worker = next(worker for worker in fixture.runner.workers if worker.name == "dispatch")
    assert not worker.woken
    with fixture.dispatcher._pass_lock:  # the worker is at work
        fixture.dispatcher.feed(fixture.log.append([Put()]))
        fixture.dispatcher.dispatch_here()
    assert len(fixture.rows()) == 2
    assert worker.woken
    fixture.run()
    assert len(fixture.rows()) == 3
    fixture.close()


def test_readers_and_writers_share_queues_safely(tmp_path: Path) -> None:
    """While threads dispatch, write and release memory, every get is whole and in order, and at last complete."""
    log = MemoryLog(segment_bytes=1 << 24)
    config = store_config(tmp_path, flush_interval_consume_queue=1, max_index_num=700)
    runner, disk = ThreadRunner(), OsFileSystem()
    queues = ConsumeQueues(config, disk, SystemClock(), runner, files_open_max=3)
    index = KeyIndex(config, disk, SystemClock(), runner, log)
    dispatcher = Dispatcher(queues, log, runner, index=index, groups_max=20)
    queues.start()
    index.load()
    dispatcher.start(0)
    index.start()
    total, problems = 3_000, list[str]()

    def consume(queue_id: int) -> None:
        offset = 0
        while offset < total // 3 and not problems:
            queue = queues.get("TopicTest", queue_id)
            if queue is None:
                continue
            got = get_message(queue, log, offset, max_messages=40, max_bytes=1 << 20)
            if got.status is GetMessageStatus.FOUND:
                offsets = RecordGroup.from_log(got.body).queue_offsets
                if offsets is None or offsets.tolist() != list(range(offset, offset + got.count)):
                    problems.append(f"queue {queue_id} at {offset}")
                offset = got.next_begin_offset
                index.query("TopicTest", f"k{offset}", 0, 1 << 60, 64)

    readers = [threading.Thread(target=consume, args=(queue_id,)) for queue_id in range(3)]
    for reader in readers:
        reader.start()
    for number in range(0, total, 6):
        dispatcher.feed(log.append([Put(queue_id=at % 3, keys=f"k{number + at}") for at in range(6)]))
        if number % 4:
            dispatcher.committed()
        else:
            dispatcher.dispatch_here()
        if number % 60 == 0:
            for queue in queues.all():
                queue.trim()
    for reader in readers:
        reader.join()
    assert dispatcher.stop()
    assert problems == []
    assert sorted(queues.queues()) == [("TopicTest", queue_id, 0, total // 3) for queue_id in range(3)]
    found = [len(index.query("TopicTest", f"k{number}", 0, 1 << 60, 64).offsets) for number in range(0, total, 50)]
    assert found == [1] * len(found)
    index.close()
    queues.close()
