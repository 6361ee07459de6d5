"""Staged transactions in the broker's log: remembered, repaired, dropped, forgotten."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketmq.broker.staged.staged_records import (
    Committed,
    Delivered,
    Snapshot,
    Staged,
    delivered_of,
    encode_event,
    read_event,
    staged_messages,
)
from pocketmq.broker.staged.staged_service import HOUSEKEEPING_MS, SNAPSHOT_EVENTS, SNAPSHOT_MS
from pocketmq.broker.staged.staged_state import DONE_MAX, StagedState
from pocketmq.broker.staged.staged_table import StagedTable
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import CorruptRecord
from pocketmq.common.record import TRANSACTION_COMMIT, TRANSACTION_MASK
from pocketmq.common.record_group import RecordGroup
from pocketmq.common.topics import STAGED_TOPIC
from pocketmq.store.commitlog.log_reader import DamagedRange
from pocketmq.store.disk.os_file_system import OsFileSystem
from tests.broker.staged_fixture import KEEP_HOURS, StagedFixture, chunk, plain
from tests.store.log_fakes import HOST, store_config

HOUR_MS = 3_600_000


def fixture(
    root: Path, clock: ManualClock | None = None, settings: dict[str, Any] | None = None, **changes: Any
) -> StagedFixture:
    config = store_config(root, mapped_file_size_commit_log=1 << 16, **changes)
    return StagedFixture(config, OsFileSystem(), clock or ManualClock(), **(settings or {}))


def test_a_commit_delivers_its_attempts_in_order_and_drops_the_others(tmp_path: Path) -> None:
    """Chunks by attempt and index, in any order of arrival; each message knows its chunk."""
    broker = fixture(tmp_path)
    broker.stage("n", 0, "b", 1, [b"b3"])
    broker.stage("n", 0, "a", 0, [b"a1", b"a2"])
    broker.stage("n", 0, "late", 0, [b"x"])
    broker.stage("n", 0, "b", 0, [b"b1", b"b2"])
    assert broker.state("n", 0) is StagedState.STAGED
    assert broker.staged_log.table.chunks == 4
    broker.commit("n", 0, [("a", 1), ("b", 2)])
    assert broker.state("n", 0) is StagedState.COMMITTED
    assert broker.bodies() == []
    broker.deliver()
    assert broker.bodies() == [b"a1", b"a2", b"b1", b"b2", b"b3"]
    assert (broker.staged_log.table.chunks, broker.staged_log.table.staged_bytes, broker.staged_log.table.attempts) == (
        0,
        0,
        0,
    )
    records = broker.delivered()
    assert all(record.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT for record in records)
    assert len({record.prepared_offset for record in records}) == 5
    assert [record.queue_offset for record in records] == list(range(5))
    broker.stop()


def test_a_start_knows_what_the_log_says(tmp_path: Path) -> None:
    """Staged, prepared, committed and half delivered: after a clean stop as after none."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock)
    broker.stage("open", 5, "a", 0, [b"o"])
    broker.stage("prepared", 1, "a", 0, [b"s"])
    broker.prepare("prepared", 1, "token", [("a", 1)])
    broker.stage("done", 0, "a", 0, [b"1", b"2"])
    broker.stage("done", 0, "a", 1, [b"3"])
    broker.commit("done", 0, [("a", 2)])
    broker.staged_log.deliver()
    broker.stop()
    for _ in range(2):
        broker = fixture(tmp_path, clock)
        assert [broker.state(*each) for each in (("open", 5), ("prepared", 1), ("done", 0), ("done", 1))] == [
            StagedState.STAGED,
            StagedState.PREPARED,
            StagedState.COMMITTED,
            StagedState.UNKNOWN,
        ]
        opened = broker.staged_log.table.get("prepared", 1)[1]
        assert opened is not None
        assert opened.prepared is not None
        assert opened.prepared.token == "token"
        (delivery,) = broker.staged_log.table.deliveries
        assert (delivery.at, len(delivery.chunks)) == (1, 2)
        broker.stop()
    broker = fixture(tmp_path, clock)
    broker.deliver()
    assert broker.bodies() == [b"1", b"2", b"3"]
    broker.stop()


def test_messages_that_are_there_already_are_not_delivered_again(tmp_path: Path) -> None:
    """A crash may leave part of a group that crossed into the next segment: messages without the event behind them."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock)
    broker.stage("n", 0, "a", 0, [b"1", b"2", b"3", b"4"])
    broker.commit("n", 0, [("a", 1)])
    staged = broker.staged_log.table.deliveries[0].chunks[0]
    assert staged is not None
    record = broker.store.read_record(staged.place.physical_offset, staged.place.size_bytes)
    assert record is not None
    group = staged_messages(record, staged.rows, staged.place.physical_offset, ())
    assert group is not None
    part = RecordGroup.from_log(np.concatenate([group.record(0), group.record(2)]))
    broker.store.append(part)
    broker.stop()
    broker = fixture(tmp_path, clock)
    assert len(broker.staged_log.table.deliveries[0].done) == 2
    broker.deliver()
    assert broker.bodies() == [b"1", b"3", b"2", b"4"]
    broker.stop()


def test_messages_that_damage_took_are_delivered_again(tmp_path: Path) -> None:
    """The event of a delivery exists, some of its messages do not: only those are appended."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock)
    broker.stage("n", 0, "a", 0, [b"1", b"2", b"3"])
    broker.commit("n", 0, [("a", 1)])
    logged_at = broker.staged_log.table.deliveries[0].logged_at
    broker.deliver()
    broker.stop()
    broker = fixture(tmp_path, clock)
    assert not broker.staged_log.repairs
    broker.store.log.damaged.append(DamagedRange(logged_at, logged_at + len(plain(b"1")), "test"))
    broker.staged_log.table = StagedTable()
    broker.service.open()
    ((_, _, done),) = broker.staged_log.repairs
    assert len(done) == 2
    broker.deliver()
    assert broker.bodies() == [b"1", b"2", b"3", b"1"]  # the first is damaged by name only, so its queue still has it
    assert "staged_transaction_repaired" in str(broker.log.events)
    broker.stop()


def test_under_synchronous_flush_a_commit_is_on_the_disk_before_its_messages(tmp_path: Path) -> None:
    """Otherwise a power failure could leave messages of an uncommitted transaction."""
    broker = fixture(tmp_path, flush_disk_type="SYNC_FLUSH")
    broker.stage("n", 0, "a", 0, [b"1"])
    broker.store.log.flush()
    broker.staged_log.write(Committed("n", 0, [("a", 1)], ["a"], 24))
    logged_at = broker.staged_log.table.deliveries[0].logged_at
    assert broker.store.flushed_offset < logged_at
    broker.staged_log.deliver()
    assert broker.store.flushed_offset >= logged_at
    broker.stop()


def test_a_snapshot_spares_the_events_before_it(tmp_path: Path) -> None:
    """A start reads from the oldest open entry; committed ones come from the snapshot."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock)
    for version in range(DONE_MAX + 4):
        broker.stage("n", version, "a", 0, [b"%d" % version])
        broker.commit("n", version, [("a", 1)])
    broker.deliver()
    broker.stage("other", 0, "a", 0, [b"open"])
    oldest = broker.staged_log.table.from_offset(-1)
    assert broker.staged_log.snapshot()
    broker.store.dispatcher.catch_up()
    opened = broker.staged_log.table.get("other", 0)[1]
    assert opened is not None
    assert broker.staged_log.table.wanted_from(1 << 40) == opened.attempts["a"].chunks[0].place.physical_offset
    broker.stage("n", 100, "a", 0, [b"behind"])
    broker.stop()
    broker = fixture(tmp_path, clock)
    (event,) = (each for each in broker.log.events if each["event"] == "staged_transactions_recovered")
    assert event["from_offset"] == oldest == 2 * (DONE_MAX + 4) + DONE_MAX + 4
    assert broker.state("n", DONE_MAX + 3) is StagedState.COMMITTED
    assert broker.state("n", 0) is StagedState.UNKNOWN
    assert broker.staged_log.table.behind("n", 0) == 4
    assert broker.state("other", 0) is StagedState.STAGED
    assert broker.state("n", 100) is StagedState.STAGED
    broker.commit("other", 0, [("a", 1)])
    broker.deliver()
    assert broker.bodies()[-1] == b"open"
    broker.stop()


def test_what_nobody_ends_is_dropped_by_age(tmp_path: Path) -> None:
    """Attempts a day after their last chunk; prepared ones only after the retention time of messages, with an
    error."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock, {"staged_transaction_time_out": HOUR_MS})
    broker.stage("n", 0, "a", 0, [b"1"])
    broker.stage("n", 1, "a", 0, [b"2"])
    broker.stage("n", 1, "b", 0, [b"3"])
    broker.prepare("n", 1, "t", [("a", 1)])
    clock.advance_ms(HOUR_MS + 1)
    broker.service.step()
    assert broker.state("n", 0) is StagedState.UNKNOWN
    assert broker.state("n", 1) is StagedState.PREPARED
    assert broker.service.dropped_attempts == 2
    assert broker.staged_log.table.missing(broker.staged_log.table.get("n", 1)[1], [("a", 1)]) == ""
    clock.advance_ms(80 * HOUR_MS)
    broker.service.step()
    assert broker.state("n", 1) is StagedState.UNKNOWN
    assert len(broker.staged_log.table) == 0
    broker.store.dispatcher.catch_up()
    broker.stop()
    broker = fixture(tmp_path, clock)
    assert len(broker.staged_log.table) == 0
    broker.stop()


def test_commits_are_forgotten_after_their_time(tmp_path: Path) -> None:
    """So a transactional id that is no longer used costs nothing, and retention may take its events."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock)
    broker.stage("n", 0, "a", 0, [b"1"])
    broker.commit("n", 0, [("a", 1)])
    broker.deliver()
    clock.advance_ms(KEEP_HOURS * HOUR_MS // 2)
    broker.service.step()
    assert broker.state("n", 0) is StagedState.COMMITTED
    assert broker.service.wanted_from() < broker.store.committed_offset
    clock.advance_ms(KEEP_HOURS * HOUR_MS)
    broker.service.step()
    assert broker.state("n", 0) is StagedState.UNKNOWN
    assert broker.service.wanted_from() == broker.store.committed_offset
    broker.stop()


def test_snapshots_are_written_when_due(tmp_path: Path) -> None:
    """After an hour with an event, or after many events; never without one."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock)

    def snapshots() -> int:
        broker.store.dispatcher.catch_up()
        entries = broker.store.read_entries(STAGED_TOPIC, 0, 0, 100_000)
        return int((entries["tags_code"] != 0).sum())

    broker.service.step()
    broker.stage("n", 0, "a", 0, [b"1"])
    broker.commit("n", 0, [("a", 1)])
    broker.deliver()
    assert snapshots() == 0
    clock.advance_ms(SNAPSHOT_MS + 1)
    broker.service.step()
    assert snapshots() == 1
    clock.advance_ms(SNAPSHOT_MS + 1)
    broker.service.step()
    assert snapshots() == 1
    for version in range(SNAPSHOT_EVENTS // 2 + 1):
        broker.staged_log.write(Delivered("none", version, 1))
        broker.staged_log.write(Delivered("none", version, 1))
    clock.advance_ms(HOUSEKEEPING_MS + 1)
    broker.service.step()
    assert snapshots() == 2
    broker.stop()


def test_messages_of_a_deleted_topic_are_left_out_and_reported(tmp_path: Path) -> None:
    """The others are delivered."""
    broker = fixture(tmp_path)
    broker.stage("n", 0, "a", 0, [b"1"])
    broker.stage("n", 0, "a", 1, [b"2"], topic="U")
    broker.commit("n", 0, [("a", 2)])
    broker.deleted.add("T")
    broker.deliver()
    assert (broker.bodies(), broker.bodies("U")) == ([], [b"2"])
    assert "staged_transaction_topic_gone" in str(broker.log.events)
    broker.stop()


def test_an_event_is_checked_before_it_is_believed() -> None:
    """A flipped bit anywhere in the event is found by its checksum."""
    record, _ = encode_event(Delivered("name", 7, 2), b"", 1, HOST)
    assert read_event(record) == Delivered("name", 7, 2)
    record, _ = encode_event(Snapshot([], 1, 5), b"", 1, HOST)
    body = bytearray(record)
    at = body.index(b"snapshot")
    body[at] ^= 1
    with pytest.raises(CorruptRecord):
        read_event(bytes(body))
    with pytest.raises(CorruptRecord):
        read_event(record[:60])


def test_only_messages_of_the_chunk_are_counted() -> None:
    """Other committed transactional messages lie beside them in the log."""
    payload = chunk([b"1", b"2"])
    record, _ = encode_event(Staged("n", 0, "a", 0, 2, ["T"]), payload, 1, HOST)
    group, other = staged_messages(record, 2, 5000, ()), staged_messages(record, 2, 9000, ())
    assert group is not None
    assert other is not None
    both = RecordGroup.from_log(np.concatenate([group.buffer, other.buffer]))
    assert len(delivered_of(both, 5000, len(record))) == 2
    assert staged_messages(record, 2, 5000, delivered_of(both, 5000, len(record))) is None


def test_the_runtime_info_has_both_names_of_each_key(tmp_path: Path) -> None:
    """Tools that use its former names find it for one more version."""
    broker = fixture(tmp_path)
    broker.stage("n", 0, "a", 0, [b"1", b"2"])
    told = broker.service.runtime_info()
    assert (told["stagedTransactionIds"], told["stagedTransactionChunksStaged"]) == ("1", "1")
    for former, key in (
        ("namedTransactionNames", "stagedTransactionIds"),
        ("namedTransactionChunksStaged", "stagedTransactionChunksStaged"),
        ("namedTransactionBytesStaged", "stagedTransactionBytesStaged"),
        ("namedTransactionMessagesDelivered", "stagedTransactionMessagesDelivered"),
    ):
        assert told[former] == told[key]
    broker.stop()
