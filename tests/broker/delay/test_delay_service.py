"""Levels and timers over a real store, under a manual clock."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pocketmq.broker.delay.timer_queue import TimerProgress
from pocketmq.common.clock import ManualClock
from pocketmq.common.record_group import RecordGroup
from pocketmq.common.sealed_json import unseal
from pocketmq.common.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.repair import Repair
from pocketmq.store.offline.verify import verify
from pocketmq.store.retention.retention import Reason
from tests.broker.delay_fixture import DelayFixture
from tests.store.log_fakes import HOST, store_config


def opened(root: Path, clock: ManualClock | None = None, host: bytes = HOST, **changes: object) -> DelayFixture:
    changes = {"mapped_file_size_commit_log": 1 << 20, "message_delay_level": "1s 5s 1m", **changes}
    return DelayFixture(store_config(root, **changes), OsFileSystem(), clock or ManualClock(), host)


def test_a_level_comes_at_its_ms_and_not_before(tmp_path: Path) -> None:
    """Level 1 of a store under a clock that stands still: nothing after 999 ms, everything after 1000."""
    fixture = opened(tmp_path)
    fixture.send(b"a", b"b", DELAY="1")
    assert fixture.run() == 1000.0
    assert fixture.run(999) == 1.0
    assert fixture.bodies() == []
    fixture.run(1)
    assert fixture.bodies() == [b"a", b"b"]
    fixture.stop()


def test_the_due_time_is_the_tags_code(tmp_path: Path) -> None:
    """For levels: store time plus delay; for timers: TIMER_OUT_MS; a rebuild from the log gives the same."""
    fixture = opened(tmp_path)
    fixture.send(b"a", b"b", DELAY="2", TAGS="t")
    fixture.clock.advance_ms(7)
    fixture.send(b"c", DELAY="2")
    fixture.send(b"d", TIMER_DELAY_MS="12345")
    stored_ms = fixture.clock.now_ms() - 7
    levels = fixture.store.read_entries(SCHEDULE_TOPIC, 1, 0, 10)
    timers = fixture.store.read_entries(TIMER_TOPIC, 0, 0, 10)
    assert levels["tags_code"].tolist() == [stored_ms + 5000, stored_ms + 5000, stored_ms + 5007]
    assert timers["tags_code"].tolist() == [stored_ms + 7 + 12345 + 1]
    before = [levels.tobytes(), timers.tobytes()]
    fixture.store.consume_queues.truncate_to_physical(0)
    fixture.store.dispatcher.rebuild(0)
    again = [fixture.store.read_entries(SCHEDULE_TOPIC, 1, 0, 10), fixture.store.read_entries(TIMER_TOPIC, 0, 0, 10)]
    assert [entries.tobytes() for entries in again] == before


def test_a_delivered_message_is_what_was_sent(tmp_path: Path) -> None:
    """Body, tags, keys, unique id, born time and flag stay; topic and queue are its own; REAL_TOPIC stays, too."""
    fixture = opened(tmp_path)
    fixture.send(b"body", topic="Orders", queue_id=3, DELAY="9", TAGS="A", KEYS="k1 k2")
    fixture.run(60_000)
    (record,) = fixture.delivered("Orders", 3)
    assert (record.topic, record.queue_id, record.body, record.born_timestamp) == ("Orders", 3, b"body", 1)
    assert record.property_map() == {
        "UNIQ_KEY": "Ub'body'",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "DELAY": "3",  # the highest
        "REAL_TOPIC": "Orders",
        "REAL_QID": "3",
    }
    assert len(fixture.store.query("Orders", "k2", 0, 1 << 60, 10)) == 1
    fixture.stop()


def test_levels_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """A short level overtakes a long one; within a level the order stays; a timer comes between them."""
    fixture = opened(tmp_path)
    fixture.send(b"5s-a", DELAY="2")
    fixture.send(b"1s-a", DELAY="1")
    fixture.send(b"timer", TIMER_DELAY_SEC="3")
    fixture.send(b"1s-b", DELAY="1")
    fixture.send(b"5s-b", DELAY="2")
    fixture.run(1000)
    assert fixture.bodies() == [b"1s-a", b"1s-b"]
    fixture.run(2001)
    fixture.run(10_000)
    assert fixture.bodies() == [b"1s-a", b"1s-b", b"timer", b"5s-a", b"5s-b"]
    fixture.stop()


def test_timers_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    """In any order of sending; equal times in the order of the log; past times at once."""
    fixture = opened(tmp_path)
    now_ms = fixture.clock.now_ms()
    for body, due_ms in ((b"c", 9000), (b"a", 50), (b"b1", 5000), (b"b2", 5000), (b"d", 200_000_000)):
        fixture.send(body, TIMER_DELIVER_MS=str(now_ms + due_ms))
    fixture.send(b"past", TIMER_DELIVER_MS=str(now_ms - 1))
    assert fixture.bodies() == [b"past"]
    fixture.run(49)
    assert fixture.bodies() == [b"past"]
    fixture.run(1)
    fixture.run(10_000)
    assert fixture.bodies() == [b"past", b"a", b"b1", b"b2", b"c"]
    assert fixture.run() == 1000.0  # the clock is read regularly, whatever waits
    assert fixture.service.timers.pending == 1
    fixture.run(200_000_000)
    assert fixture.bodies()[-1] == b"d"
    fixture.stop()


def test_a_clean_stop_repeats_nothing_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop persists the progress of levels and timers, even in the middle of a millisecond."""
    clock = ManualClock()
    fixture = opened(tmp_path, clock)
    fixture.send(*[b"l%d" % n for n in range(3)], DELAY="1")
    fixture.send(b"later", DELAY="3")
    for n in range(5):
        fixture.send(b"t%d" % n, TIMER_DELIVER_MS=str(clock.now_ms() + 1000))
    fixture.send(b"far", TIMER_DELAY_SEC="1000")
    monkeypatch.setattr(fixture.service.deliverer, "batch_of", lambda sizes: min(2, len(sizes)))
    clock.advance_ms(1000)
    fixture.service._round()
    fixture.send(b"early", TIMER_DELIVER_MS=str(clock.now_ms() + 1))
    arrived = fixture.bodies()
    assert arrived == [b"l0", b"l1", b"t0", b"t1"]
    fixture.stop()
    clock.advance_ms(5)
    for _ in range(3):
        fixture = opened(tmp_path, clock)
        fixture.run()
        fixture.stop()
    fixture = opened(tmp_path, clock)
    assert sorted(fixture.bodies()) == sorted([*arrived, b"l2", b"t2", b"t3", b"t4", b"early"])
    fixture.run(2_000_000)
    assert sorted(fixture.bodies()[9:]) == [b"far", b"later"]
    fixture.stop()


def test_a_timer_that_comes_late_with_an_early_time_survives_a_stop(tmp_path: Path) -> None:
    """Its key is below the last delivery, but it is not delivered: so it is persisted separately."""
    clock = ManualClock()
    fixture = opened(tmp_path, clock)
    fixture.send(b"a", TIMER_DELAY_MS="100")
    fixture.run(5000)
    timers = fixture.service.timers
    clock.step_ms(-4_000)
    fixture.send(b"b", TIMER_DELAY_MS="1000")
    fixture.run()
    assert timers.pending == 1
    state = timers.state()
    assert state.due_ms < clock.now_ms() + 5000
    fixture.stop()
    fixture = opened(tmp_path, clock)
    fixture.run(999)
    assert fixture.bodies() == [b"a"]
    fixture.run(2)
    assert fixture.bodies() == [b"a", b"b"]
    fixture.stop()


def test_progress_never_runs_ahead_of_the_disk(tmp_path: Path) -> None:
    """Persisted progress was flushed before; the file has RocketMQ's format."""
    fixture = opened(tmp_path)
    fixture.send(b"a", DELAY="1")
    fixture.run(1000)
    path = tmp_path / "config" / "delayOffset.json"
    assert json.loads(unseal(path.read_bytes())) == {"offsetTable": {}}
    assert fixture.store.flushed_offset < fixture.service.deliverer.end_offset
    fixture.run(10_000)
    assert json.loads(unseal(path.read_bytes())) == {"offsetTable": {"1": 1}}
    assert fixture.store.flushed_offset >= fixture.service.deliverer.end_offset
    assert fixture.service.runtime_info()["scheduleMessageOffset_1"] == "1,1"


def test_a_busy_store_is_tried_again_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused append moves no offset; the next try, 100 ms later, delivers once. The failure is logged once."""
    fixture = opened(tmp_path)
    fixture.send(b"a", DELAY="1")
    fixture.send(b"b", TIMER_DELAY_MS="999")
    fixture.run()
    append = fixture.store.append
    busy = AppendResult(PutStatus.OS_PAGE_CACHE_BUSY, error="busy")
    monkeypatch.setattr(fixture.store, "append", lambda group, dispatch_later=False: busy)
    assert fixture.run(1000) == 100.0
    assert fixture.run(100) == 100.0
    monkeypatch.setattr(fixture.store, "append", append)
    fixture.run(99)
    assert fixture.bodies() == []
    fixture.run(1)
    assert fixture.bodies() == [b"a", b"b"]
    assert len(fixture.events("delayed_delivery_waits")) == 1
    assert fixture.service.deliverer.put_failures == 4
    fixture.stop()


def test_what_cannot_be_delivered_is_reported_and_skipped(tmp_path: Path) -> None:
    """A record without a target, or with a forbidden one, blocks no record behind it, and creates no odd directory."""
    fixture = opened(tmp_path)
    for topic in ("../../evil", SCHEDULE_TOPIC, TIMER_TOPIC):
        fixture.send(b"bad", topic=topic, DELAY="1")
        fixture.send(b"bad", topic=topic, TIMER_DELAY_MS="10")
    fixture.send(b"good", DELAY="1")
    fixture.run(2000)
    assert fixture.bodies() == [b"good"]
    assert fixture.service.deliverer.dropped == len(fixture.events("delayed_message_dropped")) == 6
    fixture.stop()


def test_damage_in_the_log_costs_only_its_message(tmp_path: Path) -> None:
    """A missing record is skipped with an error; its neighbors in the batch arrive."""
    fixture = opened(tmp_path)
    fixture.send(b"a", b"b", b"c", DELAY="1")
    offset = int(fixture.store.read_entries(SCHEDULE_TOPIC, 0, 1, 1)["offset"][0])
    segment = fixture.store.components.segments.find(offset)
    assert segment is not None
    segment.store(offset, np.zeros(4, np.uint8))
    fixture.run(1000)
    assert fixture.bodies() == [b"a", b"c"]
    assert fixture.events("delayed_message_dropped")[0]["physical_offset"] == offset


def test_a_clock_set_back_makes_no_message_early_nor_very_late(tmp_path: Path) -> None:
    """Its tags code is then beyond now + level: it waits the level's delay, no longer (RocketMQ delivers at once)."""
    clock = ManualClock()
    fixture = opened(tmp_path, clock)
    fixture.send(b"first")
    clock.step_ms(-3_600_000)
    fixture.send(b"a", DELAY="1")
    fixture.run(0)
    fixture.run(999)
    assert fixture.bodies() == [b"first"]
    fixture.run(1)
    assert fixture.bodies() == [b"first", b"a"]
    fixture.stop()


def test_an_entry_that_lies_about_its_time_is_early_for_nobody(tmp_path: Path) -> None:
    """In a store written by RocketMQ the tags code is a hash: the record's own property counts, even later."""
    clock = ManualClock()
    fixture = opened(tmp_path, clock)
    fixture.send(b"x", TIMER_DELAY_MS="60000")
    queue = fixture.store.consume_queues.get(TIMER_TOPIC, 0)
    assert queue is not None
    queue._tail[1][12:20] = 0
    fixture.run()
    assert fixture.service.timers.pending == 1
    fixture.run(59_000)
    fixture.stop()
    fixture = opened(tmp_path, clock)
    fixture.run(1000)
    assert fixture.bodies() == []
    fixture.run(1)
    assert fixture.bodies() == [b"x"]
    assert fixture.service.timers.pending == 0
    fixture.stop()


def test_more_timers_than_memory_are_found_again_in_their_queue(tmp_path: Path) -> None:
    """With room for 4,096 timers, 10,000 are delivered, each once, in order, across restarts."""
    clock = ManualClock()
    changes: dict[str, Any] = {
        "timer_memory_bytes_max": 4096 * 20,
        "mapped_file_size_commit_log": 8 << 20,
        "mapped_file_size_consume_queue": 20 * 4096,
        "max_index_num": 100_000,
    }
    fixture = opened(tmp_path, clock, **changes)
    now_ms, rng = clock.now_ms(), np.random.default_rng(1)
    dues = rng.integers(1, 100_000_000, 10_000)
    dues[:6000:2] = 5_000_000  # many at one time
    for start in range(0, 10_000, 1000):
        pairs = [
            fixture.record(b"%d" % (now_ms + due), TIMER_DELIVER_MS=str(now_ms + due))
            for due in dues[start : start + 1000].tolist()
        ]
        records, metas = zip(*pairs, strict=True)
        fixture.store.append(RecordGroup.from_records(list(records), list(metas)))
        fixture.run()
    timers = fixture.service.timers
    assert len(timers.wheel) <= 4096
    assert timers.pending == 10_000
    for _ in range(4):
        fixture.run(26_000_000)
        fixture.stop()
        fixture = opened(tmp_path, clock, **changes)
    fixture.run()
    assert [int(body) - now_ms for body in fixture.bodies()] == sorted(dues.tolist())
    assert fixture.service.timers.pending == 0
    fixture.stop()


def test_a_broker_with_an_address_of_the_other_family_delivers(tmp_path: Path) -> None:
    """Records stored under an IPv4 address are delivered by a broker that now has an IPv6 one."""
    clock = ManualClock()
    fixture = opened(tmp_path, clock)
    fixture.send(b"a", DELAY="1")
    fixture.stop()
    fixture = opened(tmp_path, clock, host=bytes(15) + b"\x01" + bytes([0, 0, 42, 159]))
    fixture.run(1000)
    (record,) = fixture.delivered()
    assert (record.body, len(record.store_host)) == (b"a", 20)
    fixture.stop()


def test_progress_beyond_the_queue_is_corrected(tmp_path: Path) -> None:
    """A file from another store must not hide new messages."""
    (tmp_path / "config").mkdir(parents=True)
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable":{1:77,2:-4,99:1}}')
    fixture = opened(tmp_path)
    assert fixture.events("delay_offset_corrected")[0]["offset"] == 77
    fixture.send(b"a", DELAY="1")
    fixture.run(1000)
    assert fixture.bodies() == [b"a"]
    fixture.stop()


def test_a_levels_fault_keeps_only_that_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails in one level, the others deliver, and it recovers later."""
    fixture = opened(tmp_path)
    fixture.send(b"a", DELAY="1")
    fixture.send(b"b", DELAY="2")
    run = fixture.service.levels[0].run

    def fails(now_ms: int) -> float:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(fixture.service.levels[0], "run", fails)
    fixture.run(6000)
    assert fixture.bodies() == [b"b"]
    monkeypatch.setattr(fixture.service.levels[0], "run", run)
    fixture.run(9_999)
    assert fixture.bodies() == [b"b"]
    fixture.run(1)
    assert fixture.bodies() == [b"b", b"a"]
    fixture.stop()


def test_a_dispatch_rings_only_when_it_may_matter(tmp_path: Path) -> None:
    """An empty level or a timer wakes the thread; a second message of a level, which comes later anyway, does not."""
    fixture = opened(tmp_path)
    fixture.run()
    worker = next(each for each in fixture.runner.workers if each.name == "DelayDelivery")
    for topic, queue_id, wakes in (("T", 0, False), (SCHEDULE_TOPIC, 0, True), (TIMER_TOPIC, 0, True)):
        worker.woken = False
        fixture.service.notify_dispatched([(topic, queue_id, 1)])
        assert worker.woken is wakes
    fixture.send(b"a", DELAY="1")
    fixture.run()
    worker.woken = False
    fixture.service.notify_dispatched([(SCHEDULE_TOPIC, 0, 2)])
    assert not worker.woken
    fixture.stop()


@pytest.mark.parametrize("content", [b'{"rest":"*"}', b'{"rest":"AAAA"}', b"[]", b'{"readOffset":"x"}'])
def test_a_damaged_progress_file_is_noticed(content: bytes) -> None:
    """Then ``json_file`` takes its backup, or stops the start."""
    with pytest.raises(msgspec.MsgspecError):
        TimerProgress().load(content)


def test_verify_and_repair_know_delayed_messages(tmp_path: Path) -> None:
    """A store with levels and timers is sound, and its rebuilt consume queues are the same bytes."""
    levels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    fixture = opened(tmp_path, message_delay_level=levels)
    for number in range(20):
        fixture.send(b"l%d" % number, DELAY=str(number % 4 + 1), TAGS="A")
        fixture.send(b"t%d" % number, TIMER_DELAY_MS=str(1000 * number + 1), TAGS="A")
        fixture.run(700)
    fixture.stop()
    assert verify(StoreReader.open(str(tmp_path), index_numbers=(64, 512))).ok
    queues = tmp_path / "consumequeue"
    before = {path.relative_to(queues): path.read_bytes() for path in queues.rglob("*") if path.is_file()}
    assert {path.parts[0] for path in before} == {"T", SCHEDULE_TOPIC, TIMER_TOPIC}
    shutil.rmtree(queues / SCHEDULE_TOPIC)
    shutil.rmtree(queues / TIMER_TOPIC)
    result = Repair(str(tmp_path), index_numbers=(64, 512)).run()
    assert [step.action for step in result.plan.steps] == ["rebuild_queues"]
    assert {path.relative_to(queues): path.read_bytes() for path in queues.rglob("*") if path.is_file()} == before


def test_retention_leaves_what_waits(tmp_path: Path) -> None:
    """An expired segment stays while a message in it waits, unless the full disk forces its removal."""
    clock = ManualClock(time.time_ns() // 1_000_000 + 60_000)  # later than the times of the files
    fixture = opened(tmp_path, clock, file_reserved_time=0, mapped_file_size_commit_log=8192)
    retention = fixture.store.retention
    fixture.send(b"far", TIMER_DELAY_SEC="1000")
    fixture.send(b"near", DELAY="1")
    for _ in range(4):
        fixture.send(b"x" * 4000)
    fixture.store.checkpoint()
    fixture.clock.advance_ms(1)
    fixture.run(10_000)
    assert not retention._remove_oldest(Reason.AGE)
    fixture.run(1_000_000)
    assert fixture.bodies()[-1] == b"far"
    fixture.store.checkpoint()
    fixture.run(10_000)
    assert retention._remove_oldest(Reason.AGE)
    fixture.stop()


def test_a_disk_that_is_full_forces_waiting_messages_out(tmp_path: Path) -> None:
    """They are lost, as in RocketMQ, and each is logged; the others are delivered."""
    fixture = opened(tmp_path, file_reserved_time=72, mapped_file_size_commit_log=8192)
    fixture.send(b"gone", TIMER_DELAY_SEC="100")
    fixture.send(b"gone", DELAY="3")
    for _ in range(4):
        fixture.send(b"x" * 4000)
    fixture.send(b"here", DELAY="3")
    fixture.store.checkpoint()
    assert fixture.store.retention._remove_oldest(Reason.FORCED)
    fixture.run(200_000)
    assert fixture.bodies()[-1] == b"here"
    assert b"gone" not in fixture.bodies()
    assert all("retention" in event["why"] for event in fixture.events("delayed_message_dropped"))
    assert fixture.service.deliverer.dropped == 2
    fixture.stop()


def test_a_message_that_the_store_never_takes_keeps_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of a refused group are tried one by one; the illegal one is logged with its offset and skipped."""
    fixture = opened(tmp_path)
    fixture.send(b"a", b"poison", b"c", DELAY="1")
    append = fixture.store.append

    def picky(group: RecordGroup, *, dispatch_later: bool = False) -> AppendResult:
        if b"poison" in group.buffer.tobytes():
            return AppendResult(PutStatus.MESSAGE_ILLEGAL, error="never")
        return append(group, dispatch_later=dispatch_later)

    offset = int(fixture.store.read_entries(SCHEDULE_TOPIC, 0, 1, 1)["offset"][0])
    monkeypatch.setattr(fixture.store, "append", picky)
    fixture.run(1000)
    assert fixture.bodies() == [b"a", b"c"]
    (event,) = fixture.events("delayed_message_dropped")
    assert (event["physical_offset"], event["why"]) == (offset, "never")
    fixture.stop()


DAY_MS = 86_400_000
STEPS = [DAY_MS, -DAY_MS, 100 * DAY_MS, -100 * DAY_MS, 20 * 365 * DAY_MS]


@pytest.mark.parametrize("step_ms", STEPS)
def test_a_level_keeps_its_delay_whatever_the_clock_does(tmp_path: Path, step_ms: int) -> None:
    """Messages from before a step, from after it, and from after a step back: each comes after its 5 s, to the ms."""
    clock = ManualClock()
    fixture = opened(tmp_path, clock)

    def passes(delay_ms: int) -> None:
        """Let time pass in steps of at most a second, as the service looks at the clock."""
        while delay_ms:
            part = min(delay_ms, 1_000)
            fixture.run(part)
            delay_ms -= part

    fixture.send(b"before", DELAY="2")
    passes(2_000)
    clock.step_ms(step_ms)
    passes(500)
    fixture.send(b"after", DELAY="2")
    passes(500)
    clock.step_ms(-step_ms)
    passes(500)
    fixture.send(b"back", DELAY="2")
    passes(1_499)
    assert fixture.bodies() == []
    passes(1)
    assert fixture.bodies() == [b"before"]
    passes(2_499)
    assert fixture.bodies() == [b"before"]
    passes(1)
    assert fixture.bodies() == [b"before", b"after"]
    passes(999)
    assert fixture.bodies() == [b"before", b"after"]
    passes(1)
    assert fixture.bodies() == [b"before", b"after", b"back"]
    assert [event["step_ms"] for event in fixture.events("clock_stepped")] == [step_ms, -step_ms]
    fixture.stop()


@pytest.mark.parametrize("step_ms", STEPS)
def test_a_step_while_the_broker_is_down(tmp_path: Path, step_ms: int) -> None:
    """What is left of a delay is counted by the wall clock, and is never more than the level."""
    clock = ManualClock()
    fixture = opened(tmp_path, clock)
    fixture.send(b"x", DELAY="2")
    fixture.run(2_000)
    fixture.stop()
    clock.step_ms(step_ms)
    fixture = opened(tmp_path, clock)
    if step_ms > 0:
        fixture.run(0)
    else:
        fixture.run(4_999)
        assert fixture.bodies() == []
        fixture.run(1)
    assert fixture.bodies() == [b"x"]
    fixture.stop()


@pytest.mark.parametrize("step_ms", STEPS)
def test_a_given_time_follows_the_clock(tmp_path: Path, step_ms: int) -> None:
    """A timer is for a date: it comes when the clock shows it."""
    clock = ManualClock()
    fixture = opened(tmp_path, clock)
    fixture.send(b"x", TIMER_DELIVER_MS=str(clock.now_ms() + 10_000))
    fixture.run(1_000)
    clock.step_ms(step_ms)
    fixture.run(0)
    assert fixture.bodies() == ([b"x"] if step_ms > 0 else [])
    clock.step_ms(-step_ms)
    fixture.run(8_999)
    fixture.run(1)
    assert fixture.bodies() == [b"x"]
    fixture.stop()


def test_a_message_that_comes_before_the_step_is_noticed_is_not_early(tmp_path: Path) -> None:
    """Forth and noticed, a message, ten minutes, back, and a message at once: its record has the time of the first."""
    clock = ManualClock()
    fixture = opened(tmp_path, clock)
    clock.step_ms(DAY_MS)
    fixture.run(1_000)
    fixture.send(b"first", DELAY="2")
    for _ in range(600):
        fixture.run(1_000)
    clock.step_ms(-DAY_MS)
    fixture.send(b"second", DELAY="2")
    fixture.run(4_999)
    assert fixture.bodies() == [b"first"]
    fixture.run(1)
    assert fixture.bodies() == [b"first", b"second"]
    fixture.stop()
