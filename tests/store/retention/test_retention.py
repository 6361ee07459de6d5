"""Retention: when segments are removed, what is removed with them, and the answer to a reader of a removed range."""

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import Cause, ConfigError
from pocketmq.store.append_result import PutStatus
from pocketmq.store.config import StoreConfig
from pocketmq.store.consumequeue.get import GetMessageStatus
from pocketmq.store.errors import DiskError, OffsetOutOfRange, StoreFull
from pocketmq.store.retention.retention import (
    FILES_PER_ROUND,
    MANUAL_ROUNDS,
    NAMES_TOLD_MAX,
    WARN_EVERY_NS,
)
from tests.store.log_fakes import SEGMENT_BYTES, Stepped, bodies, crashed_copy, group_of, put
from tests.store.retention.aging import BODY, HOUR_MS, Kept


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    stepped = Kept(tmp_path / "store")
    yield stepped
    stepped.disk.sick.clear()
    stepped.store.close()


def hour_of(clock: ManualClock) -> int:
    return datetime.datetime.fromtimestamp(clock.now_ms() / 1000).hour


def test_old_segments_go_at_their_hour_only(tmp_path: Path) -> None:
    """Beyond 72 hours they stay until an hour of ``delete_when``, and are removed during that hour."""
    hour = (hour_of(ManualClock()) + 10) % 24
    kept = Kept(tmp_path / "store", delete_when=f"{hour:02d};{(hour + 1) % 24}")
    kept.old(72)
    for _ in range(24):
        before = hour_of(kept.clock)
        kept.round()
        if len(kept.names()) == 1:
            break
        kept.clock.advance_ms(HOUR_MS)
    assert before == hour
    assert kept.names() == [4 * SEGMENT_BYTES]
    assert {(event["reason"], event["level"]) for event in kept.removed()} == {("age", "info")}
    kept.store.close()


def test_young_segments_stay_at_the_hour(tmp_path: Path) -> None:
    """The first one that is too young ends the round, even if it is the first of all."""
    kept = Kept(tmp_path / "store", delete_when=";".join(map(str, range(24))))
    kept.old(71)
    kept.round()
    assert len(kept.names()) == 5
    kept.old(1)
    kept.disk.changed_ms[kept.store.log._segments.all[2].path] = kept.clock.now_ms()
    kept.round()
    assert kept.names() == [2 * SEGMENT_BYTES, 3 * SEGMENT_BYTES, 4 * SEGMENT_BYTES]
    kept.store.close()


@pytest.mark.parametrize(("used", "left"), [(0.75, 5), (0.76, 1), (0.85, 1)])
def test_above_the_ratio_old_segments_go_at_any_hour(kept: Kept, used: float, left: int) -> None:
    """The limit is 75 %; they are removed above it."""
    kept.old()
    kept.disk.used = used
    kept.round()
    assert len(kept.names()) == left
    assert kept.store.retention.spaces[0].ratio == pytest.approx(used)


@pytest.mark.parametrize("used", [0.80, 0.86, 0.95])
@pytest.mark.parametrize("may_force", [True, False])
def test_above_the_forced_ratio_young_segments_go_too(tmp_path: Path, used: float, may_force: bool) -> None:
    """Only with ``clean_file_forcibly_enable``; the last one never."""
    kept = Kept(tmp_path / "store", clean_file_forcibly_enable=may_force)
    kept.disk.used = used
    kept.round()
    assert len(kept.names()) == (1 if may_force and used > 0.85 else 5)
    removed = kept.removed()
    assert {(event["reason"], event["level"]) for event in removed} <= {("forced", "error")}
    assert sum(event["freed_bytes"] for event in removed) == kept.store.retention.freed_bytes
    kept.disk.used = 0.5
    kept.store.close()


def by_default(root: Path, segments: int = 5, **changes: object) -> Kept:
    """Return a store with the default permissions."""
    return Kept(root, segments, clean_file_forcibly_enable=StoreConfig().clean_file_forcibly_enable, **changes)


@pytest.mark.parametrize("used", [0.86, 0.95])
def test_by_default_a_full_disk_forces_nothing_out(tmp_path: Path, used: float) -> None:
    """Messages younger than ``file_reserved_time`` stay, with their queues, index and checksums, however long it
    lasts.
    """
    kept = by_default(tmp_path / "store", mapped_file_size_consume_queue=20 * 4)
    kept.write_checksums()
    files = sorted(path for path in kept.root.rglob("0*") if path.is_file())
    kept.disk.used = used
    for _ in range(20):
        kept.round()
    assert kept.removed() == []
    assert sorted(path for path in kept.root.rglob("0*") if path.is_file()) == files
    assert kept.bodies() == kept.bodies_put
    kept.disk.used = 0.5
    kept.store.close()


def test_the_log_warns_of_what_is_at_stake(tmp_path: Path) -> None:
    """It does so on entering the state and every ten minutes: topics, counts and groups of the messages that RocketMQ
    would remove next, the consequence and the cure.
    """
    kept = by_default(tmp_path / "store", 3)
    kept.fill(5, "Other")
    asked: list[dict[tuple[str, int], int]] = []

    def behind(ends: Any) -> list[str]:
        asked.append(dict(ends))
        return ["slow"]

    kept.store.retention.groups_behind = behind
    kept.disk.used = 0.85
    kept.round()
    assert kept.warnings() == []
    kept.disk.used = 0.86
    kept.round()
    kept.round()
    (warning,) = kept.warnings()
    counts = {topic: kept.below(4 * SEGMENT_BYTES, topic) for topic in ("T", "Other")}
    assert min(counts.values()) > 0
    assert (warning["level"], warning["topics"], warning["messages"]) == ("warning", counts, sum(counts.values()))
    assert (warning["segments_kept"], warning["groups_behind"]) == (4, ["slow"])
    assert asked == [{(topic, 0): count for topic, count in counts.items()}]
    assert warning["why"] == (
        "86 % full (137 KiB are free): nothing younger than 72 hours (store.file_reserved_time) is deleted, and above "
        "90 % sends are refused (store.disk_space_warning_level_ratio)"
    )
    assert "store.clean_file_forcibly_enable = true" in warning["hint"]
    kept.disk.used = 0.5
    kept.round()
    kept.disk.used = 0.91
    kept.clock.advance_ms(WARN_EVERY_NS / 1e6)
    kept.round()
    assert [round(warning["used_ratio"], 2) for warning in kept.warnings()] == [0.86, 0.91]
    assert "above 90 % sends are refused" in kept.warnings()[1]["why"]
    kept.disk.used = 0.5
    kept.store.close()


def test_expired_messages_are_not_at_stake(tmp_path: Path) -> None:
    """They are removed by age: the warning, which comes before the removal, counts from the first young segment on."""
    kept = by_default(tmp_path / "store", disk_max_used_space_ratio=95)
    kept.old()
    young = kept.store.log._segments.all[2]
    kept.disk.changed_ms[young.path] = kept.clock.now_ms()
    expected = kept.below(4 * SEGMENT_BYTES) - kept.below(young.base_offset)
    kept.disk.used = 0.86
    kept.round()
    assert kept.warnings()[0]["topics"] == {"T": expected}
    assert kept.names() == [2 * SEGMENT_BYTES, 3 * SEGMENT_BYTES, 4 * SEGMENT_BYTES]
    assert {(event["reason"], event["level"]) for event in kept.removed()} == {("tight", "info")}
    kept.disk.used = 0.5
    kept.store.close()


def test_with_one_segment_nothing_is_at_stake(tmp_path: Path) -> None:
    """The disk is full nevertheless, and sends are refused before it is wholly full: that needs a warning."""
    kept = by_default(tmp_path / "store", 1)
    kept.disk.used = 0.86
    kept.round()
    (warning,) = kept.warnings()
    assert (warning["segments_kept"], warning["messages"], warning["topics"]) == (0, 0, {})
    kept.disk.used = 0.5
    kept.store.close()


def test_a_forced_removal_is_an_error_that_names_what_is_lost(kept: Kept) -> None:
    """For each segment: its messages by topic, and the groups that have not read them."""
    kept.fill(7, "Other")
    ends = [kept.below(number * SEGMENT_BYTES, topic) for topic in ("T", "Other") for number in range(1, 7)]
    kept.store.retention.groups_behind = lambda places: [f"{topic}-{end}" for (topic, _), end in sorted(places.items())]
    total = sum(len(kept.bodies(topic)) for topic in ("T", "Other"))
    kept.disk.used = 0.86
    kept.round()
    removed = kept.removed()
    assert [event["level"] for event in removed] == ["error"] * 6
    assert sum(event["messages"] for event in removed) == total - sum(
        len(kept.bodies(topic)) for topic in ("T", "Other")
    )
    assert removed[0]["topics"] == {"T": ends[0]}
    assert removed[0]["groups_behind"] == [f"T-{ends[0]}"]
    assert removed[5]["topics"] == {"Other": ends[11] - ends[10]}
    assert kept.warnings() == [], "nothing is kept"


def test_an_event_names_few_topics_and_groups(tmp_path: Path) -> None:
    """The largest come first; the others are counted."""
    kept = by_default(tmp_path / "store", 1)
    for number in range(NAMES_TOLD_MAX + 5):
        kept.append(*[b"x" * 20] * (2 if number == 3 else 1), topic=f"T{number}")
    kept.fill(3)
    kept.store.retention.groups_behind = lambda ends: [f"g{number:02d}" for number in range(NAMES_TOLD_MAX + 1)]
    kept.disk.used = 0.86
    kept.round()
    (warning,) = kept.warnings()
    assert len(warning["topics"]) == len(warning["groups_behind"]) == NAMES_TOLD_MAX
    assert list(warning["topics"].items())[:2] == [("T", kept.below(2 * SEGMENT_BYTES)), ("T3", 2)]
    assert (warning["topics_left_out"], warning["groups_left_out"]) == (6, 1)
    kept.disk.used = 0.5
    kept.store.close()


def test_what_cannot_be_counted_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that cannot be read, and a segment of unknown age, suppress no warning."""
    kept = by_default(tmp_path / "store")

    def fail(*arguments: object) -> Any:
        raise DiskError("read failed", why="EIO")

    monkeypatch.setattr(kept.store.consume_queues, "between", fail)
    monkeypatch.setattr(kept.disk, "modified_ms", fail)
    kept.disk.used = 0.86
    kept.round()
    (warning,) = kept.warnings()
    assert (warning["messages"], warning["segments_kept"]) == (-1, 4)
    assert "EIO" in warning["not_counted"]
    kept.disk.used = 0.5
    kept.store.close()


def test_above_the_warning_level_nothing_is_taken(tmp_path: Path) -> None:
    """The answer is 14 with the cause and the retry time; reads continue; at the level itself sends are accepted."""
    kept = Kept(tmp_path / "store", clean_file_forcibly_enable=False)
    kept.disk.used = 0.91
    kept.round()
    result = kept.store.append(bodies(b"refused"))
    assert (result.status, result.status.code, result.cause) == (PutStatus.SERVICE_NOT_AVAILABLE, 14, Cause.DISK_FULL)
    assert "91 % full: above 90 % sends are refused (store.disk_space_warning_level_ratio)" in result.error
    assert result.retry_after_ms == 10_000
    assert kept.bodies() == kept.bodies_put
    assert [event["event"] for event in kept.error_log.events] == ["disk_full", "disk_filling"]
    kept.disk.used = 0.90
    kept.round()
    kept.append(b"taken")
    assert kept.bodies() == [*kept.bodies_put, b"taken"]
    kept.store.close()


def test_a_disk_that_cannot_be_asked_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flag and files stay; the space is then unknown."""
    kept = Kept(tmp_path / "store", clean_file_forcibly_enable=False)
    kept.disk.used = 0.99
    kept.round()

    def fail(path: str) -> tuple[int, int]:
        raise DiskError("statvfs failed", why="EIO")

    monkeypatch.setattr(kept.disk, "free_bytes", fail)
    kept.round()
    assert kept.store.retention.flags.is_disk_full
    assert not kept.store.retention.spaces[0].is_known
    assert len(kept.names()) == 5
    kept.store.close()


def test_at_most_ten_go_in_a_round(tmp_path: Path) -> None:
    """They go one at a time, 100 ms apart, the rest in the next round."""
    kept = Kept(tmp_path / "store", 15)
    kept.disk.used = 0.86
    waits = kept.round()
    assert waits == [100.0] * (FILES_PER_ROUND - 1)
    assert len(kept.names()) == 15 - FILES_PER_ROUND
    kept.round()
    assert kept.names() == [14 * SEGMENT_BYTES]
    kept.store.close()


def test_nothing_goes_in_the_first_minute(tmp_path: Path) -> None:
    """The flag is set after a second; files are removed after a minute."""
    kept = Kept(tmp_path / "store")
    kept.store.close()
    again = Stepped(
        tmp_path / "store",
        kept.disk,
        disk_space_clean_forcibly_ratio=85,
        disk_space_warning_level_ratio=90,
        clean_file_forcibly_enable=True,
    )
    kept.disk.clock, kept.disk.used = again.clock, 0.95
    for _ in range(6):
        again.clock.advance_ms(again.store.retention.step())
        assert again.store.retention.flags.is_disk_full
        assert again.store.log.min_offset == 0
    again.store.retention.step()
    assert again.store.log.min_offset == SEGMENT_BYTES
    kept.disk.used = 0.5
    again.store.close()


def test_on_demand_old_segments_go_now(kept: Kept) -> None:
    """At any hour, in the next 20 rounds; younger ones stay."""
    kept.old(71)
    kept.store.retention.delete_soon()
    kept.round()
    assert len(kept.names()) == 5
    kept.old(1)
    kept.round()
    assert len(kept.names()) == 1
    assert {event["reason"] for event in kept.log.events if event["event"] == "segment_removed"} == {"manual"}
    kept.fill(3)
    for _ in range(MANUAL_ROUNDS):
        kept.round()
    kept.old()
    kept.round()
    assert len(kept.names()) == 3


def test_what_a_recovery_would_read_stays(tmp_path: Path) -> None:
    """Without a later checkpoint no segment is removed, even on a full disk: it must be flushed and dispatched."""
    kept = Kept(tmp_path / "store", 2)
    kept.disk.used = 0.86
    while len(kept.names()) < 6:
        kept.append(BODY)
    kept.round()
    assert kept.names()[0] == SEGMENT_BYTES
    kept.store.log.flush()
    kept.round()
    assert kept.names()[0] == SEGMENT_BYTES
    kept.store.checkpoint()
    kept.round()
    assert len(kept.names()) == 1
    kept.store.close()


@pytest.mark.parametrize("operation", ["remove", "sync_dir"])
def test_the_first_refusal_ends_a_round(kept: Kept, operation: str) -> None:
    """A segment that cannot be removed is there as before, those behind it are not touched, the next round tries
    again.
    """
    kept.disk.used = 0.86
    kept.disk.sick[operation] = DiskError("failed", why="EIO")
    kept.round()
    gone = 1 if operation == "sync_dir" else 0
    assert kept.names() == [number * SEGMENT_BYTES for number in range(gone, 5)]
    assert kept.store.log.min_offset == gone * SEGMENT_BYTES
    assert [event["event"] for event in kept.error_log.events] == ["segment_not_removed"]
    kept.round()
    assert len(kept.names()) == 5 - gone, "a name more would be gone while an earlier one may come back"
    if not gone:
        assert kept.bodies() == kept.bodies_put
    kept.disk.sick.clear()
    kept.round()
    assert len(kept.names()) == 1


def test_everything_that_refers_to_it_goes_too(tmp_path: Path) -> None:
    """Files of queues, index and checksums wholly below the log; deleted topics; the min offsets follow."""
    kept = Kept(tmp_path / "store", 1, mapped_file_size_consume_queue=20 * 4, max_index_num=8)
    store = kept.store
    for number in range(12):
        store.append(group_of([put(BODY, "Deleted", key=f"d{number}")]))
    kept.dispatch()
    store.delete_topic("Deleted")
    for number in range(40):
        store.append(group_of([put(b"%03d" % number + BODY, "Kept", number % 2, key=f"k{number}")]))
        kept.dispatch()
    store.find("Kept", "k39", 0, 1 << 60, 1)  # all keys are in the index
    kept.write_checksums()
    store.checkpoint()

    def count(kind: str) -> int:
        return sum(path.is_file() for path in (kept.root / kind).rglob("*"))

    before = {kind: count(kind) for kind in ("consumequeue", "index", "checksums")}
    assert len(store.consume_queues.deleted) == 1
    kept.disk.used = 0.86
    kept.round()
    min_offset = store.log.min_offset
    assert min_offset == kept.names()[0] > 0
    for queue_id in (0, 1):
        first = store.physical_offset("Kept", queue_id, store.min_offset("Kept", queue_id))
        assert first is not None
        assert first >= min_offset
        assert store.physical_offset("Kept", queue_id, store.min_offset("Kept", queue_id) - 1) is None
    for kind, files in before.items():
        assert 0 < count(kind) < files, kind
    assert [int(path.name) for path in (kept.root / "checksums").iterdir()] == kept.names()
    assert len(store.consume_queues.deleted) == 0
    assert [len(store.query("Kept", f"k{number}", 0, 1 << 60, 9)) for number in (0, 39)] == [0, 1]
    removed = [event["path"] for event in kept.log.events if event["event"] == "expired_file_removed"]
    assert len(removed) == sum(before.values()) - sum(count(kind) for kind in before)
    bounds = sorted(store.queues())
    store.close()
    again = Stepped(kept.root, mapped_file_size_consume_queue=20 * 4, max_index_num=8)
    assert again.report.kind == "clean"
    assert sorted(again.store.queues()) == bounds
    again.store.close()


def test_a_reader_of_a_removed_range_is_told(kept: Kept) -> None:
    """By queue: the offset is too small, and the queue's present start. By physical offset: it is below the log. A
    reader that has the file open goes on.
    """
    store = kept.store
    segment = store.log._segments.all[0]
    store.log.read(0, 100)
    handle = segment.open_for_read()
    before = handle.read(0, SEGMENT_BYTES)
    kept.disk.used = 0.86
    kept.round()
    assert handle.read(0, SEGMENT_BYTES) == before
    found = store.get("T", 0, 0, max_messages=1, max_bytes=1000)
    assert (found.status, found.next_begin_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, store.min_offset("T", 0))
    assert kept.bodies() == kept.bodies_put[store.min_offset("T", 0) :]
    with pytest.raises(OffsetOutOfRange, match="below the log's start"):
        store.log.read(0, 100)
    assert store.read_record(0) is None


def test_a_reader_that_looked_before_the_removal_finds_out(kept: Kept) -> None:
    """It has the segment, but its file is gone when it opens it: the same answer, and no handle stays behind."""
    segments = kept.store.log._segments
    oldest = segments.all[0]
    oldest.close_read()
    segments._reading.clear()
    real_find = segments.find
    found = iter([oldest])
    segments.find = lambda offset: next(found, None) or real_find(offset)  # type: ignore[method-assign]
    kept.disk.used = 0.86
    segments.remove_first()
    with pytest.raises(OffsetOutOfRange):
        kept.store.log.read_into(0, np.empty(10, np.uint8))
    assert oldest not in segments._reading


def test_a_file_that_someone_else_removed_is_told_apart(kept: Kept) -> None:
    """Its reader gets a disk error that names it; retention continues with the next."""
    oldest = kept.store.log._segments.all[0]
    oldest.close_read()
    kept.store.log._segments._reading.clear()
    (kept.root / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(DiskError, match="a segment is gone"):
        kept.store.log.read(0, 10)
    del kept.disk.changed_ms[oldest.path]
    kept.disk.used = 0.86
    kept.round()
    assert kept.names() == [4 * SEGMENT_BYTES]


def test_messages_between_log_and_queue_are_skipped(kept: Kept) -> None:
    """A segment is gone and the queue does not know it yet: MESSAGE_WAS_REMOVING, and the reader continues."""
    kept.store.log._segments.remove_first()
    removing = kept.store.get("T", 0, 0, max_messages=2, max_bytes=10_000)
    assert removing.status is GetMessageStatus.MESSAGE_WAS_REMOVING
    assert removing.next_begin_offset > 0


@pytest.mark.parametrize("step", range(4))
def test_a_round_that_was_killed_is_finished_by_the_next_start(tmp_path: Path, step: int) -> None:
    """Between any two removals: the store opens, and the remaining files are removed in its first round."""
    kept = Kept(tmp_path / "store", mapped_file_size_consume_queue=20 * 4)
    kept.disk.used = 0.86
    for _ in range(step):
        kept.clock.advance_ms(kept.store.retention.step())
    again = Stepped(
        crashed_copy(kept.root, tmp_path / "copy"), kept.disk, mapped_file_size_consume_queue=20 * 4, delete_when=""
    )
    kept.disk.used = 0.5
    assert again.store.log.min_offset == step * SEGMENT_BYTES
    assert again.bodies() == kept.bodies_put[again.store.min_offset("T", 0) :]
    again.store.retention.step()
    names = sorted(int(path.name) for path in (again.root / "consumequeue/T/0").iterdir())
    assert (names[0] // 20 + 4 > again.store.min_offset("T", 0)) or step == 0
    again.store.close()
    kept.store.close()


def test_what_interrupted_removals_left_of_a_queue_is_no_part_of_it(tmp_path: Path) -> None:
    """A power cut may keep the first file and lose the second: the queue starts behind the gap."""
    kept = Kept(tmp_path / "store", mapped_file_size_consume_queue=20 * 4)
    kept.disk.used = 0.86
    kept.clock.advance_ms(kept.store.retention.step())
    copy = crashed_copy(kept.root, tmp_path / "copy")
    (copy / "consumequeue/T/0" / f"{80:020d}").unlink()
    again = Stepped(copy, kept.disk, mapped_file_size_consume_queue=20 * 4)
    assert again.store.min_offset("T", 0) == 8
    assert again.bodies() == kept.bodies_put[8:]
    again.store.retention.step()
    assert not (copy / "consumequeue/T/0" / f"{0:020d}").exists()
    again.store.close()
    kept.store.close()


def test_settings_are_checked() -> None:
    """A bad hour or ratio stops the start and names the key."""
    assert StoreConfig(delete_when="04; 16;").delete_hours() == {4, 16}
    for changes in (
        {"delete_when": "24"},
        {"delete_when": "4am"},
        {"disk_max_used_space_ratio": -1},
        {"disk_free_bytes_min": -1},
        {"disk_space_warning_level_ratio": 101},
        {"file_reserved_time": -1},
        {"clean_resource_interval": 0},
    ):
        with pytest.raises(ConfigError, match=next(iter(changes))):
            StoreConfig(**changes)


def test_the_refusal_says_how_full(kept: Kept) -> None:
    """The text has the ratio and the limit."""
    kept.disk.used = 0.934
    kept.store.retention.check_disk()
    error = kept.store.retention.refusal()
    assert isinstance(error, StoreFull)
    assert "93.4 % full: above 90 % sends are refused (store.disk_space_warning_level_ratio)" in str(error)
    assert "store.clean_file_forcibly_enable" not in str(error), "it is on already"


@pytest.mark.parametrize("step_ms", [10 * 24 * HOUR_MS, -10 * 24 * HOUR_MS])
def test_a_clock_that_is_set_makes_no_message_older(tmp_path: Path, step_ms: int) -> None:
    """Segments from before and after a step stay for their 72 hours; forth, and back again."""
    kept = Kept(tmp_path / "store", delete_when=";".join(map(str, range(24))))
    for step in (step_ms, -step_ms):
        kept.clock.step_ms(step)
        kept.round()
        assert len(kept.names()) >= 5
        kept.fill(len(kept.names()) + 2)
        kept.old(1)
        kept.round()
        assert len(kept.names()) >= 7
    kept.old(80 + 240)  # what was stored under a clock set forth stays until the clock has caught up
    kept.round()
    assert len(kept.names()) == 1
    kept.store.close()


class OnSharedDisk(Kept):
    """A store with the default limits, on a disk with as many free bytes as a test says."""

    def __init__(self, root: Path, **changes: object) -> None:
        defaults = {
            "disk_max_used_space_ratio": 0,
            "disk_space_clean_forcibly_ratio": 0,
            "disk_space_warning_level_ratio": 0,
            "clean_file_forcibly_enable": False,
        }
        super().__init__(root, 5, **{**defaults, **changes})
        self.disk.total_bytes = 1000 * SEGMENT_BYTES
        self.limits = self.store.retention.limits

    def leave(self, free_bytes: int) -> None:
        """Let others fill the disk, and run a round."""
        self.disk.used = 1 - free_bytes / self.disk.total_bytes
        self.round()

    def is_refused(self) -> bool:
        return self.store.append(bodies(b"x")).cause is Cause.DISK_FULL


def test_by_default_free_bytes_count_and_not_percent(tmp_path: Path) -> None:
    """A disk that is 99 % full has room for ten more files: nothing is removed, refused or logged."""
    kept = OnSharedDisk(tmp_path / "store")
    kept.leave(10 * SEGMENT_BYTES)
    assert (len(kept.names()), kept.is_refused(), kept.warnings()) == (5, False, [])
    kept.disk.used = 0
    kept.store.close()


@pytest.mark.parametrize("chosen", [0, 3 * SEGMENT_BYTES])
def test_below_the_bytes_that_stay_free_sends_are_refused(tmp_path: Path, chosen: int) -> None:
    """Before the disk is full, until there is space again; nothing is removed. By default a quarter of a file."""
    kept = OnSharedDisk(tmp_path / "store", disk_free_bytes_min=chosen)
    least = chosen or SEGMENT_BYTES // 4
    kept.leave(least)
    assert not kept.is_refused()
    kept.leave(least - 1)
    assert kept.is_refused()
    assert "sends are refused (store.disk_free_bytes_min)" in str(kept.store.retention.refusal())
    for _ in range(20):
        kept.round()
    assert len(kept.names()) == 5
    kept.leave(least)
    assert not kept.is_refused()
    kept.disk.used = 0
    kept.store.close()


@pytest.mark.parametrize(("free_segments", "left"), [(2.25, 5), (2.24, 1)])
def test_expired_segments_go_at_any_hour_when_two_files_have_no_room(
    tmp_path: Path, free_segments: float, left: int
) -> None:
    """They are removed before sends have to be refused."""
    kept = OnSharedDisk(tmp_path / "store")
    kept.old()
    kept.leave(int(free_segments * SEGMENT_BYTES))
    assert len(kept.names()) == left
    kept.disk.used = 0
    kept.store.close()


@pytest.mark.parametrize("may_force", [True, False])
@pytest.mark.parametrize(("free_segments", "short"), [(1.25, False), (1.24, True)])
def test_young_segments_go_only_by_force_and_when_the_next_file_has_no_room(
    tmp_path: Path, may_force: bool, free_segments: float, short: bool
) -> None:
    """Forced removals are errors with their topics; without permission the log warns."""
    kept = OnSharedDisk(tmp_path / "store", clean_file_forcibly_enable=may_force)
    kept.leave(int(free_segments * SEGMENT_BYTES))
    assert len(kept.names()) == (1 if may_force and short else 5)
    assert {(event["level"], tuple(event["topics"])) for event in kept.removed()} <= {("error", ("T",))}
    assert len(kept.warnings()) == (1 if short and not may_force else 0)
    kept.disk.used = 0
    kept.store.close()


def test_a_change_of_the_limits_is_looked_at_at_once(tmp_path: Path) -> None:
    """A lower limit ends the refusals of a full disk, however long the interval is."""
    kept = Kept(tmp_path / "store", clean_file_forcibly_enable=False, clean_resource_interval=24 * HOUR_MS)
    worker = next(worker for worker in kept.runner.workers if worker.name == "retention")
    kept.disk.used = 0.95
    kept.clock.advance_ms(24 * HOUR_MS)
    worker.step()
    assert kept.store.retention.flags.is_disk_full
    worker.woken = False
    config = msgspec.structs.replace(
        kept.store.config, disk_space_warning_level_ratio=99, clean_resource_interval=10_000
    )
    kept.store.components.settings_changed(config)
    assert worker.woken
    next_ms = worker.step()
    assert next_ms is not None
    assert next_ms <= 10_000
    assert not kept.store.retention.flags.is_disk_full
    kept.store.close()
