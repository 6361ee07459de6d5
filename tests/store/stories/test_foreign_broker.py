"""A store that another broker, RocketMQ's, used between two runs of ours: its additions are no damage."""

import shutil
import struct
from pathlib import Path

from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.verify import verify
from tests.store.log_fakes import Stepped, crashed_copy


def appended_by_rocketmq(tmp_path: Path) -> Path:
    """Return a store that we closed, and RocketMQ opened, extended and closed: our own files are older than it."""
    stepped = Stepped(tmp_path / "s")
    for text in (b"ours-1", b"ours-2"):
        stepped.append(text)
    stepped.store.close()
    shutil.copytree(tmp_path / "s" / "pocketmq", tmp_path / "older")
    shutil.copytree(tmp_path / "s" / "checksums", tmp_path / "older-checksums")
    again = Stepped(tmp_path / "s")
    for text in (b"theirs-1", b"theirs-2"):
        again.append(text)
    again.store.close()
    for name in ("pocketmq", "checksums"):
        shutil.rmtree(tmp_path / "s" / name)
    (tmp_path / "older").rename(tmp_path / "s" / "pocketmq")
    (tmp_path / "older-checksums").rename(tmp_path / "s" / "checksums")
    return tmp_path / "s"


def test_what_rocketmq_appended_is_a_note_and_no_problem(tmp_path: Path) -> None:
    """Our positions know where we closed the log; its continuation is reported, and the store is sound."""
    report = verify(StoreReader.open(str(appended_by_rocketmq(tmp_path))), level="full")
    assert report.ok, report
    assert any("RocketMQ has written since" in note for note in report.notes)


def test_a_start_takes_over_what_rocketmq_appended(tmp_path: Path) -> None:
    """All messages are there, none is cut or called damaged, and new ones follow them."""
    root = appended_by_rocketmq(tmp_path)
    stepped = Stepped(root)
    report = stepped.report
    assert (report.damaged, report.suspect, report.cut_bytes, report.quarantined) == ([], [], 0, [])
    stepped.append(b"ours-3")
    assert stepped.bodies() == [b"ours-1", b"ours-2", b"theirs-1", b"theirs-2", b"ours-3"]
    stepped.store.close()
    assert verify(StoreReader.open(str(root)), level="full").ok


def test_queues_that_were_removed_come_back_whole_after_a_crash_too(tmp_path: Path) -> None:
    """Without positions a recovery begins at RocketMQ's checkpoint, far behind the first message; the queues do not."""
    stepped = Stepped(tmp_path / "live")
    texts = [bytes([65 + number]) * 1000 for number in range(30)]  # several segments
    for text in texts:
        stepped.append(text)
    root = crashed_copy(tmp_path / "live", tmp_path / "crashed")
    stepped.store.close()
    for name in ("pocketmq", "checksums", "consumequeue", "index"):
        shutil.rmtree(root / name, ignore_errors=True)
    safe_ms = 1 << 44  # the whole log
    (root / "checkpoint").write_bytes(struct.pack(">3q", safe_ms, safe_ms, safe_ms).ljust(4096, b"\0"))
    again = Stepped(root)
    assert again.report.kind == "unclean"
    assert again.report.start_offset > 0, "the recovery was to begin at the checkpoint"
    assert again.bodies() == texts
    again.store.close()


def test_topics_with_batch_queues_get_no_queue_here(tmp_path: Path) -> None:
    """RocketMQ 5 keeps them in ``batchconsumequeue/`` and does not start where both folders have a topic."""
    stepped = Stepped(tmp_path / "s")
    stepped.append(b"plain")
    stepped.store.close()
    (tmp_path / "s" / "batchconsumequeue" / "B" / "0").mkdir(parents=True)
    again = Stepped(tmp_path / "s")
    assert [event["topics"] for event in again.log.events if event["event"] == "batch_queues_not_served"] == [["B"]]
    again.append(b"a whole batch", topic="B")
    again.append(b"plain too")
    assert again.bodies() == [b"plain", b"plain too"]
    again.store.close()
    assert not (tmp_path / "s" / "consumequeue" / "B").exists()
    report = verify(StoreReader.open(str(tmp_path / "s")), level="full")
    assert report.ok, report
    assert any("BatchCQ" in note for note in report.notes)
