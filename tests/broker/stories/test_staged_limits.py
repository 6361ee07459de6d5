"""The memory of staged transactions stays readable and bounded; messages missing from the log do not count."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pocketmq.broker.staged import staged_log, staged_records, staged_recovery, staged_service, staged_table
from pocketmq.broker.staged.staged_records import (
    BrokersAdded,
    Committed,
    Delivered,
    Prepared,
    Snapshot,
    Staged,
    encode_event,
)
from pocketmq.broker.staged.staged_service import CROWDED_MS, HOUSEKEEPING_MS, SNAPSHOT_PAUSE_MS
from pocketmq.broker.staged.staged_state import BRIEF_MS, DROPPED_MAX, StagedState
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.topics import STAGED_TOPIC
from pocketmq.store.disk.os_file_system import OsFileSystem
from tests.broker.staged_fixture import StagedFixture
from tests.store.log_fakes import HOST, store_config

HOUR_MS = 3_600_000


def fixture(
    root: Path, clock: ManualClock, settings: dict[str, Any] | None = None, segment: int = 1 << 16, **changes: Any
) -> StagedFixture:
    config = store_config(root, mapped_file_size_commit_log=segment, **changes)
    return StagedFixture(config, OsFileSystem(), clock, **(settings or {}))


def events(broker: StagedFixture) -> str:
    return str([each["event"] for each in broker.log.events])


def remove_segment(broker: StagedFixture) -> None:
    """Remove a segment as retention does on a full disk."""
    retention = broker.store.retention
    retention._checkpointer.positions_changed()
    retention._segments.remove_first()


def test_an_event_that_could_not_be_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of many long attempts is refused before any append, and a prepare a little earlier, so that every
    prepared transaction can be committed.
    """
    monkeypatch.setattr(staged_records, "EVENT_BYTES_MAX", 4000)
    broker = fixture(tmp_path, ManualClock())
    broker.stage("n", 0, "a", 0, [b"1"])
    end = broker.store.appended_offset
    with pytest.raises(MessageIllegal, match="at most 4000"):
        broker.commit("n", 0, [("€" * 64, 1)] * 21)
    with pytest.raises(MessageIllegal, match="at most 2976"):
        broker.prepare("n", 0, "t", [("€" * 64, 1)] * 16)
    assert (broker.store.appended_offset, broker.state("n", 0)) == (end, StagedState.STAGED)
    assert broker.commit("n", 0, [("a", 1)])
    broker.stop()


def test_a_snapshot_of_much_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is split by bytes: each part can be read, however long the names of ids and brokers."""
    monkeypatch.setattr(staged_records, "EVENT_BYTES_MAX", 8000)
    monkeypatch.setattr(staged_log, "SNAPSHOT_BYTES", 4000)
    clock = ManualClock()
    broker = fixture(tmp_path, clock)
    brokers = [f"broker-eu-west-1a-{number:02d}" for number in range(8)]
    for number in range(60):
        for version in range(3):
            broker.staged_log.write(Committed(f"spark-{number:036d}", version, [], brokers, 720, "token"))
    broker.staged_log.write(BrokersAdded("spark-" + "0" * 36, 2, brokers, 720))
    broker.store.dispatcher.catch_up()
    base = broker.staged_log.table.base
    assert broker.staged_log.snapshot()
    assert broker.staged_log.table.base > base
    broker.store.dispatcher.catch_up()
    broker.stop()
    broker = fixture(tmp_path, clock)
    (event,) = (each for each in broker.log.events if each["event"] == "staged_transactions_recovered")
    assert (event["transactional_ids"], event["from_offset"]) == (60, 181)
    done = broker.staged_log.table.get(f"spark-{7:036d}", 2)[2]
    assert done is not None
    assert (done.participants, done.token, done.lost) == (brokers, "token", 0)
    assert broker.staged_log.table.brokers("spark-" + "0" * 36)[0] == brokers
    broker.stop()


def test_older_events_are_kept_until_a_snapshot_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention relies on a snapshot only after it was flushed and read back."""
    broker = fixture(tmp_path, ManualClock())
    broker.stage("n", 0, "a", 0, [b"1"])
    broker.commit("n", 0, [("a", 1)])
    broker.deliver()
    wanted = broker.service.wanted_from()
    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "read_record", lambda *_: None)
        assert not broker.staged_log.snapshot()
    assert broker.service.wanted_from() == wanted
    assert "staged_transaction_snapshot_failed" in events(broker)
    assert broker.staged_log.snapshot()
    assert broker.service.wanted_from() > wanted
    assert broker.store.flushed_offset > broker.service.wanted_from()
    broker.stop()


@pytest.mark.parametrize(("reserved_hours", "keeps"), [(0, False), (1, True)])
def test_a_short_retention_is_not_held_up_by_an_old_snapshot(tmp_path: Path, reserved_hours: int, keeps: bool) -> None:
    """The log is needed from the latest snapshot on. Without one for an hour, the log of that hour would stay."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock, file_reserved_time=reserved_hours)
    broker.stage("n", 0, "a", 0, [b"1"])
    broker.commit("n", 0, [("a", 1)])
    broker.deliver()
    wanted = broker.service.wanted_from()
    clock.advance_ms(SNAPSHOT_PAUSE_MS)
    broker.service.housekeep()
    assert broker.service.wanted_from() == wanted
    clock.advance_ms(1)
    broker.service.housekeep()
    assert (broker.service.wanted_from() == wanted) is keeps
    broker.stop()


def test_a_start_falls_back_to_the_snapshot_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable one is logged and skipped."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock)
    for version in range(2):
        broker.stage("n", version, "a", 0, [b"1"])
        broker.commit("n", version, [("a", 1)])
        broker.deliver()
        assert broker.staged_log.snapshot()
        broker.store.dispatcher.catch_up()
    last = broker.store.max_offset(STAGED_TOPIC, 0) - 1
    place = broker.store.physical_offset(STAGED_TOPIC, 0, last)
    broker.stop()
    read = staged_recovery._read

    def damaged(store: Any, queue_offset: int, physical_offset: int, size: int) -> Any:
        return None if physical_offset == place else read(store, queue_offset, physical_offset, size)

    monkeypatch.setattr(staged_recovery, "_read", damaged)
    broker = fixture(tmp_path, clock)
    assert "staged_transaction_snapshot_lost" in events(broker)
    assert [broker.state("n", version) for version in range(2)] == [StagedState.COMMITTED] * 2
    assert not broker.staged_log.table.deliveries
    broker.stop()


def test_what_was_written_before_can_be_read() -> None:
    """Events of the first version have no homes, tokens, epochs."""
    old = [
        (Staged("n", 0, "a", 0, 2, ["T"]), 7),
        (Prepared("n", 0, "t", "a", ["a"], [("x", 1)]), 7),
        (Committed("n", 0, [("x", 1)], ["a"], 24), 6),
        (Delivered("n", 0, 1), 4),
    ]
    for event, fields in old:
        array = msgspec.msgpack.decode(staged_records._encode(event))
        assert staged_records._decode(staged_records._encode(array[:fields])) == event
    parts = ["snapshot", [["n", [[3, 1000, 24, ["a"]]]]], 1, 9]
    snapshot = staged_records._decode(staged_records._encode(parts))
    assert isinstance(snapshot, Snapshot)
    assert (snapshot.ids[0].done[0].version, snapshot.ids[0].done[0].token) == (3, "")


def test_a_chunk_that_retention_took_is_missing_at_the_commit(tmp_path: Path) -> None:
    """The disk was full: a transaction whose chunk is gone cannot be committed and is dropped; a snapshot is written
    at once, since older events are gone, too."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock, segment=1 << 14)
    broker.stage("done", 0, "a", 0, [b"0"])
    broker.commit("done", 0, [("a", 1)])
    broker.deliver()
    broker.stage("n", 0, "a", 0, [b"first"])
    for index in range(12):
        broker.stage("n", 0, "b", index, [b"y" * 3000])
    remove_segment(broker)
    table, min_offset = broker.staged_log.table, broker.staged_log.min_offset
    opened = table.get("n", 0)[1]
    assert "removed from the log" in table.missing(opened, [("a", 1)], min_offset)
    clock.advance_ms(HOUSEKEEPING_MS + 1)
    broker.service.step()
    assert broker.service.dropped_attempts == 2
    assert table.chunks == 0
    assert table.base >= min_offset
    broker.store.dispatcher.catch_up()
    broker.stop()
    broker = fixture(tmp_path, clock, segment=1 << 14)
    assert broker.state("done", 0) is StagedState.COMMITTED
    broker.stop()


def test_a_chunk_that_is_lost_after_the_commit_is_remembered(tmp_path: Path) -> None:
    """Across restarts and snapshots: this commit is incomplete."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock)
    for index in range(3):
        broker.stage("n", 0, "a", index, [b"%d" % index])
    broker.commit("n", 0, [("a", 3)])
    broker.staged_log.table.deliveries[0].chunks[1] = None
    broker.deliver()
    assert broker.bodies() == [b"0", b"2"]
    for _ in range(2):
        done = broker.staged_log.table.get("n", 0)[2]
        assert done is not None
        assert done.lost == 1
        broker.staged_log.snapshot()
        broker.store.dispatcher.catch_up()
        broker.stop()
        broker = fixture(tmp_path, clock)
    broker.stop()


def test_many_attempts_expire_in_several_events(tmp_path: Path) -> None:
    """Each of them small enough to be read again."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock, {"staged_transaction_time_out": HOUR_MS}, segment=1 << 20)
    for number in range(DROPPED_MAX + 5):
        broker.staged_log.write(Staged("n", 0, f"{number:064d}", 0, 1, ["T"]))
    broker.staged_log.write(Staged("n", 0, "prepared", 0, 1, ["T"]))
    broker.prepare("n", 0, "t", [("prepared", 1)])
    clock.advance_ms(80 * HOUR_MS)
    drops = broker.staged_log.table.expired(clock.now_ms(), clock.now_ms())
    assert [(len(each.attempts), each.unprepared) for each in drops] == [(DROPPED_MAX, True), (6, False)]
    broker.service.step()
    assert len(broker.staged_log.table) == 0
    broker.store.dispatcher.catch_up()
    broker.stop()
    broker = fixture(tmp_path, clock, segment=1 << 20)
    assert len(broker.staged_log.table) == 0
    broker.stop()


def test_an_attempt_that_goes_on_for_days_expires(tmp_path: Path) -> None:
    """An occasional chunk does not keep the log for ever, only for the time that messages are kept."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock)
    for index in range(8):
        assert broker.state("n", 0) is (StagedState.STAGED if index else StagedState.UNKNOWN)
        broker.stage("n", 0, "a", index, [b"1"])
        clock.advance_ms(10 * HOUR_MS)
        broker.service.step()
    assert broker.state("n", 0) is StagedState.UNKNOWN
    broker.stop()


def test_without_retention_an_open_attempt_has_its_time(tmp_path: Path) -> None:
    """``file_reserved_time`` 0 removes messages at once, not attempts that are under way."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock, {"staged_transaction_time_out": HOUR_MS}, file_reserved_time=0)
    broker.stage("n", 0, "a", 0, [b"1"])
    clock.advance_ms(HOUR_MS - 1)
    broker.service.step()
    assert broker.state("n", 0) is StagedState.STAGED
    clock.advance_ms(HOUSEKEEPING_MS + 1)
    broker.service.step()
    assert broker.state("n", 0) is StagedState.UNKNOWN
    broker.stop()


@pytest.mark.parametrize("step_ms", [86_400_000, -86_400_000, 20 * 365 * 86_400_000])
def test_a_wall_clock_that_is_set_ends_no_attempt(tmp_path: Path, step_ms: int) -> None:
    """An attempt has its time, whatever the clock is set to while it waits, and no more than that."""
    clock = ManualClock()
    broker = fixture(tmp_path, clock, {"staged_transaction_time_out": HOUR_MS}, file_reserved_time=0)
    broker.stage("before", 0, "a", 0, [b"1"])
    clock.advance_ms(HOUR_MS // 2)
    clock.step_ms(step_ms)
    broker.stage("after", 0, "a", 0, [b"1"])
    clock.advance_ms(HOUR_MS // 2 - 1)
    broker.service.step()
    assert [broker.state(name, 0) for name in ("before", "after")] == [StagedState.STAGED] * 2
    clock.advance_ms(HOUSEKEEPING_MS + 2_000)
    broker.service.step()
    assert [broker.state(name, 0) for name in ("before", "after")] == [StagedState.UNKNOWN, StagedState.STAGED]
    clock.advance_ms(HOUR_MS // 2 + HOUSEKEEPING_MS)
    broker.service.step()
    assert broker.state("after", 0) is StagedState.UNKNOWN
    broker.stop()


def test_brief_names_make_room_for_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of those with a memory of an hour, and not at once; others never."""
    monkeypatch.setattr(staged_table, "IDS_MAX", 32)
    clock = ManualClock()
    broker = fixture(tmp_path, clock)
    table = broker.staged_log.table
    broker.staged_log.write(Committed("long", 0, [], ["a"], 24))
    for number in range(5):
        broker.staged_log.write(Committed(f"brief{number}", 0, [], ["a"], 1))
        clock.advance_ms(1000)
    assert not table.make_room(clock.now_ms())
    clock.advance_ms(BRIEF_MS)
    assert table.make_room(clock.now_ms())
    known = [each for each in ("long", *(f"brief{number}" for number in range(5))) if table.has(each)]
    assert known == ["long", "brief2", "brief3", "brief4"]
    broker.stop()


def test_attempts_that_stand_still_make_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While four fifths of the ids are taken, ten minutes without a chunk end an attempt; otherwise a day."""
    monkeypatch.setattr(staged_service, "IDS_MAX", 5)
    clock = ManualClock()
    broker = fixture(tmp_path, clock)
    for number in range(4):
        broker.stage(f"id{number}", 0, "a", 0, [b"1"])
    clock.advance_ms(CROWDED_MS + 1)
    broker.service.housekeep()
    assert len(broker.staged_log.table) == 4
    broker.stage("id4", 0, "a", 0, [b"1"])
    broker.service.housekeep()
    assert (len(broker.staged_log.table), broker.staged_log.table.has("id4")) == (1, True)
    broker.stop()


def test_who_waits_for_a_delivery_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each callback, not each transaction; one too many is answered that it is not delivered yet."""
    monkeypatch.setattr(staged_service, "WAITERS_MAX", 3)
    broker = fixture(tmp_path, ManualClock())
    broker.stage("n", 0, "a", 0, [b"1"])
    broker.commit("n", 0, [("a", 1)])
    ends: list[int] = []
    assert [broker.service.when_delivered("n", 0, ends.append) for _ in range(5)] == [True] * 3 + [False] * 2
    broker.deliver()
    assert len(ends) == 3
    broker.stage("n", 1, "a", 0, [b"1"])
    broker.commit("n", 1, [("a", 1)])
    assert broker.service.when_delivered("n", 1, ends.append)
    broker.deliver()
    broker.stop()


def test_a_large_chunk_is_refused_as_it_is_written(tmp_path: Path) -> None:
    """The record counts, not the request."""
    broker = fixture(tmp_path, ManualClock(), max_message_size=4096)
    with pytest.raises(MessageIllegal, match="this broker takes 4096"):
        broker.stage("n", 0, "a", 0, [b"x" * 4000])
    record, _ = encode_event(Staged("n", 0, "a", 0, 1, ["T"]), b"", 1, HOST)
    assert broker.staged_log.record_bytes_max == 4096 > len(record)
    assert broker.stage("n", 0, "a", 0, [b"x" * 3000])
    broker.stop()
