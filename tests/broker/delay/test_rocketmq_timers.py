"""Timers on a store that changes hands between RocketMQ 5 and our broker."""

import struct
from pathlib import Path

from pocketmq.broker.delay.rocketmq_timers import RocketMQTimers
from pocketmq.common.clock import ManualClock
from pocketmq.common.topics import TIMER_TOPIC
from pocketmq.store.disk.os_file_system import OsFileSystem
from tests.broker.delay_fixture import DelayFixture
from tests.store.log_fakes import store_config

SECONDS = (2, 4, 6, 8)


def opened(root: Path, clock: ManualClock) -> DelayFixture:
    return DelayFixture(store_config(root, mapped_file_size_commit_log=1 << 20), OsFileSystem(), clock)


def written(root: Path, clock: ManualClock) -> int:
    """Store timers that are due 2, 4, 6 and 8 s later and deliver none; return their start time."""
    fixture = opened(root, clock)
    begin_ms = clock.now_ms() - clock.now_ms() % 1000
    for seconds in SECONDS:
        fixture.send(f"{seconds}".encode(), TIMER_DELIVER_MS=str(begin_ms + seconds * 1000))
    fixture.stop()
    return begin_ms


def as_rocketmq_left(root: Path, read_time_ms: int, queue_offset: int) -> None:
    """Leave the files of a RocketMQ 5 broker: its progress, its wheel and log, none of ours."""
    (root / "pocketmq" / "timerProgress.json").unlink(missing_ok=True)
    content = struct.pack(">7q", read_time_ms, 52 * queue_offset, queue_offset, queue_offset, 0, 1, 1)
    (root / "config" / "timercheck").write_bytes(content.ljust(4096, b"\0"))
    (root / "timerwheel").write_bytes(bytes(100))
    (root / "timerlog").mkdir()
    (root / "timerlog" / f"{0:020d}").write_bytes(bytes(52))


def left_for_rocketmq(root: Path) -> tuple[int, int, int, int]:
    found: tuple[int, int, int, int] = struct.unpack_from(">4q", (root / "config" / "timercheck").read_bytes())
    return found


def test_only_what_rocketmq_has_not_delivered_is_delivered(tmp_path: Path) -> None:
    """Its queue offset and its next slot's time decide which timers wait; the last one, not read yet, waits too."""
    clock = ManualClock()
    begin_ms = written(tmp_path, clock)
    as_rocketmq_left(tmp_path, begin_ms + 6000, 3)
    fixture = opened(tmp_path, clock)
    fixture.run(20_000)
    assert sorted(fixture.bodies()) == [b"6", b"8"]
    fixture.stop()
    assert not (tmp_path / "timerwheel").exists()
    assert not (tmp_path / "timerlog").exists()
    again = opened(tmp_path, clock)
    again.run(1000)
    assert sorted(again.bodies()) == [b"6", b"8"]
    again.stop()


def test_entries_with_the_hash_of_the_tags_are_taken_over_too(tmp_path: Path) -> None:
    """RocketMQ's queue has no due times: they come from the records, and survive a restart of our broker."""
    clock = ManualClock()
    begin_ms = written(tmp_path, clock)
    path = tmp_path / "consumequeue" / TIMER_TOPIC / "0" / f"{0:020d}"
    entries = bytearray(path.read_bytes())
    for row, code in enumerate((0, -331_743_911, 110_364_485, 0)):
        struct.pack_into(">q", entries, 20 * row + 12, code)
    path.write_bytes(bytes(entries))
    as_rocketmq_left(tmp_path, begin_ms + 4000, 4)
    fixture = opened(tmp_path, clock)
    fixture.run(5000)
    assert fixture.bodies() == [b"4"]
    fixture.stop()
    again = opened(tmp_path, clock)
    again.run(10_000)
    assert again.bodies() == [b"4", b"6", b"8"]
    again.stop()


def test_rocketmq_is_told_where_to_go_on(tmp_path: Path) -> None:
    """A clean stop writes the queue offset of the first waiting timer, and a valid position in RocketMQ's own log."""
    clock = ManualClock()
    begin_ms = written(tmp_path, clock)
    assert left_for_rocketmq(tmp_path)[2:] == (0, 0)
    fixture = opened(tmp_path, clock)
    fixture.run(begin_ms + 4000 - clock.now_ms())
    assert fixture.bodies() == [b"2", b"4"]
    fixture.stop()
    read_time_ms, log_bytes, *queue_offsets = left_for_rocketmq(tmp_path)
    assert log_bytes == 0
    assert queue_offsets == [2, 2]
    assert begin_ms <= read_time_ms <= begin_ms + 4000
    last = opened(tmp_path, clock)
    last.run(20_000)
    last.stop()
    assert last.bodies() == [b"2", b"4", b"6", b"8"]
    assert left_for_rocketmq(tmp_path)[2:] == (4, 4)


def test_there_and_back_again(tmp_path: Path) -> None:
    """Timers that RocketMQ delivered between two runs of ours are not delivered again; our old progress is ignored."""
    clock = ManualClock()
    begin_ms = written(tmp_path, clock)
    ours = opened(tmp_path, clock)
    ours.run(begin_ms + 2500 - clock.now_ms())
    ours.stop()
    progress = (tmp_path / "pocketmq" / "timerProgress.json").read_bytes()
    as_rocketmq_left(tmp_path, begin_ms + 7000, 4)
    (tmp_path / "pocketmq" / "timerProgress.json").write_bytes(progress)
    again = opened(tmp_path, clock)
    again.run(20_000)
    assert again.bodies() == [b"2", b"8"]
    again.stop()


def test_a_store_without_timers_gets_no_file(tmp_path: Path) -> None:
    """A store without timers gets no timer files."""
    fixture = opened(tmp_path, ManualClock())
    fixture.send(b"a", DELAY="1")
    fixture.run(2000)
    fixture.stop()
    assert not (tmp_path / "config" / "timercheck").exists()


def test_a_short_or_empty_timercheck_means_no_progress(tmp_path: Path) -> None:
    """A torn file may repeat timers, but loses none."""
    clock = ManualClock()
    written(tmp_path, clock)
    (tmp_path / "config" / "timercheck").write_bytes(b"\0" * 7)
    fixture = opened(tmp_path, clock)
    fixture.run(20_000)
    assert sorted(fixture.bodies()) == [b"2", b"4", b"6", b"8"]
    fixture.stop()


def test_a_flipped_bit_of_timercheck_is_not_another_broker(tmp_path: Path) -> None:
    """It would count timers as delivered that are not: our own progress counts, and the damage is logged."""
    clock = ManualClock()
    written(tmp_path, clock)
    fixture = opened(tmp_path, clock)
    check, copy = tmp_path / "config" / "timercheck", tmp_path / "pocketmq" / "timercheck"
    sound = check.read_bytes()
    assert sound == copy.read_bytes()
    timers = RocketMQTimers(fixture.store, OsFileSystem(), fixture.log)
    for path in (check, copy):
        for bit in range(56 * 8):
            flipped = bytearray(sound)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            assert timers.take_over() is None, f"bit {bit}"
        path.write_bytes(sound)
    assert len(fixture.events("config_file_damaged")) == 2 * 56 * 8
    fixture.run(20_000)
    assert sorted(fixture.bodies()) == [b"2", b"4", b"6", b"8"]
    fixture.stop()
