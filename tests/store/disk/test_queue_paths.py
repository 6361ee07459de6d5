"""No topic or queue id leads out of the store: not of a peer, a record, or a name on the disk."""

import ast
import os
import posixpath
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pocketmq.common.topics import SYSTEM_TOPICS, TopicIllegal, dlq_topic, retry_topic
from pocketmq.store.disk import queue_paths
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.disk.queue_paths import QUEUE_ID_MAX, queue_directory, queue_id_of, topic_directory, topic_error
from pocketmq.store.ha.raw_append import RawAppender
from pocketmq.store.offline.copy_store import StoreCopy
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.repair import Repair, plan_repair
from pocketmq.store.offline.verify import verify
from tests.store.log_fakes import Stepped, crashed_copy, group_of, put

ROOT = "/data/store"
ILLEGAL = [
    "",
    ".",
    "..",
    "../../../escaped",
    "/escaped",
    "a/b",
    "x\0y",
    "a\nb",
    "\x1b[2J",
    "\x7f",
    "\x85",
    "\ud800",
    "\ufffd",
    "t" * 128,
    "é" * 128,
    "\N{GRINNING FACE}" * 64,
    retry_topic("g" * 249),
]
LEGAL = [
    *sorted(SYSTEM_TOPICS),
    "T",
    "a|b_c-D9",
    "t" * 127,
    "...",
    "DefaultCluster_REPLY_TOPIC",
    "c" * 200 + "_REPLY_TOPIC",
    "broker-a.example.com",
    "rmq_sys_wheel_timer",
    "rmq_sys_" + "x" * 200,
    "%LMQ%" + "x" * 200,
    retry_topic("g"),
    retry_topic("g" * 248),
    dlq_topic("g" * 250),
]
IDS = [-(1 << 31), -1, QUEUE_ID_MAX + 1, (1 << 31) - 1]
HOSTILE = [("../../../escaped", 0), ("/escaped", 3), ("x\0y", 0), ("..", 1), ("", 0), ("T", -1), ("T", 1 << 30)]
"""(topic, queue id) of records that only a foreign program writes."""


@given(st.one_of(st.text(), st.sampled_from(ILLEGAL), st.sampled_from(LEGAL)), st.integers(-2, QUEUE_ID_MAX + 2))
@example("..", 0)
def test_a_path_lies_two_levels_below_the_queues_or_there_is_none(topic: str, queue_id: int) -> None:
    """For any topic the path converts back to the same topic and queue id, and a disk can have it."""
    try:
        path = queue_directory(ROOT, topic, queue_id)
    except TopicIllegal:
        assert topic_error(topic) is not None or not 0 <= queue_id <= QUEUE_ID_MAX
        return
    assert posixpath.normpath(path) == path
    head, name = posixpath.split(path)
    above, directory = posixpath.split(head)
    assert (above, directory, name) == (f"{ROOT}/consumequeue", topic, str(queue_id))
    assert topic_directory(ROOT, topic) == head
    assert queue_id_of(name) == queue_id
    assert len(os.fsencode(directory)) <= 255
    assert directory.isprintable() or not any(ord(letter) < 32 for letter in directory)


@pytest.mark.parametrize("topic", ILLEGAL)
def test_what_is_no_directory_is_refused(topic: str) -> None:
    """Both functions refuse it with a printable text."""
    with pytest.raises(TopicIllegal) as caught:
        topic_directory(ROOT, topic)
    assert str(caught.value).isprintable()
    with pytest.raises(TopicIllegal) as caught:
        queue_directory(ROOT, topic, 0)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("queue_id", IDS)
def test_a_queue_id_that_no_broker_gives_is_refused(queue_id: int) -> None:
    """Negative ids, and ids above a topic's limit."""
    with pytest.raises(TopicIllegal, match="queue id"):
        queue_directory(ROOT, "T", queue_id)


@pytest.mark.parametrize("topic", LEGAL)
def test_topics_of_real_stores_stay_legal(topic: str, tmp_path: Path) -> None:
    """RocketMQ's own, those of groups, clusters and brokers: the disk accepts each of them."""
    OsFileSystem().make_dirs(queue_directory(str(tmp_path), topic, QUEUE_ID_MAX))


@pytest.mark.parametrize("name", ["", "00", "01", "-1", "+1", "1 ", "²", "٣", "1_0", "9999999999", "x"])
def test_a_directory_with_another_name_is_no_queue(name: str) -> None:
    """Only this store's own names count: two directories never stand for one queue."""
    assert queue_id_of(name) is None


FOREIGN = {
    "store/disk/queue_paths.py": "the one place",
    "store/consumequeue/consume_queues.py": "RocketMQ 5's batch queues, which are listed, never opened",
    "store/offline/layout.py": "lists what is there, and RocketMQ 5's batch queues",
    "store/offline/verify.py": "a text of a report",
    "store/offline/backup_parts.py": "lists what is in a target, whatever its names, and removes what the source lacks",
    "broker/metrics/observation.py": "asks for the free space of the directory of all queues",
    "cli/doctor/disk/command.py": "asks whether a directory is a store",
}


def test_no_other_code_makes_paths_of_queues() -> None:
    """A text of code that names the directory of the queues is in ``queue_paths``, or is listed with its reason."""
    sources = Path(queue_paths.__file__).resolve().parents[2]
    found: set[str] = set()
    for folder in ("broker", "cli", "store"):
        for path in sorted((sources / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
            docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            if any("consumequeue" in str(node.value) for node in texts if id(node) not in docs):
                found.add(path.relative_to(sources).as_posix())
    assert found == set(FOREIGN), "use topic_directory and queue_directory"


def test_whatever_is_removed_lies_below_the_store() -> None:
    """Each removal of a directory names the store's root: ``remove_tree`` resolves both and refuses others."""
    sources = Path(queue_paths.__file__).resolve().parents[2]
    removals: list[str] = []
    for folder in ("broker", "namesrv", "store"):
        for path in sorted((sources / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                called = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
                if called in ("rmtree", "removedirs", "rmdir"):
                    removals.append(f"{path.relative_to(sources).as_posix()}: {called}")
                if isinstance(node, ast.Call) and called == "remove_tree":
                    assert "below" in {keyword.arg for keyword in node.keywords}, path
    assert removals == ["store/disk/os_file_system.py: rmtree", "store/disk/os_file_system.py: rmdir"]


# ---- a log with such records


def hostile_log(master: Stepped) -> None:
    """Append messages of T with illegal records before, between and behind them, each valid by itself."""
    store = master.store
    for number in range(3):
        store.append(group_of([put(b"%d" % number, "T", key=f"k{number}")]))
        for topic, queue_id in HOSTILE:
            store.append(group_of([put(b"evil", topic, queue_id, key="e"), put(b"evil", topic, queue_id)]))
        store.append(group_of([put(b"last", "T", 1)]))


def place(tmp_path: Path, name: str) -> Path:
    """Return a path for the store so deep that ``../../..`` stays in the test's directory."""
    root = tmp_path / "1" / "2" / name
    root.parent.mkdir(parents=True, exist_ok=True)
    return root


def outside(tmp_path: Path, root: Path) -> list[str]:
    return sorted(str(path) for path in tmp_path.rglob("*") if root not in (path, *path.parents))


def queues_on_disk(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root / "consumequeue")) for path in (root / "consumequeue").glob("*/*"))


def told(stepped: Stepped) -> list[tuple[object, object]]:
    events = [each for each in stepped.log.events if each["event"] == "records_skipped"]
    return sorted((each["topic"], each["queue_id"]) for each in events)


def check(stepped: Stepped, skipped: list[tuple[str, int]]) -> None:
    """Assert that T's messages are readable and on disk, illegal ones skipped and logged once; the store goes on."""
    assert stepped.bodies("T", 0) == [b"0", b"1", b"2"]
    assert stepped.bodies("T", 1) == [b"last"] * 3
    for _ in range(3):  # every worker, including retention and checkpoint
        stepped.clock.advance_ms(120_000)
        stepped.runner.run_until_idle()
    assert queues_on_disk(stepped.root) == ["T/0", "T/1"]
    stepped.store.checkpoint()
    assert [each for each in stepped.log.events if "failed" in str(each["event"])] == []
    assert told(stepped) == sorted((ascii(topic), queue_id) for topic, queue_id in skipped)


@pytest.mark.parametrize("piece_bytes", [100, 1 << 20])
def test_a_slave_skips_illegal_records_of_a_copied_log(tmp_path: Path, piece_bytes: int) -> None:
    """Its threads go on, no file is made outside the store, and the next start finds the same."""
    master = Stepped(place(tmp_path, "master"))
    hostile_log(master)
    root = place(tmp_path, "slave")
    before = outside(tmp_path, root)
    slave = Stepped(root, broker_role="SLAVE")
    appender = RawAppender(slave.store, slave.log)
    log = master.store.log
    while appender.expected_offset < log.committed_offset:
        at = appender.expected_offset
        border = (at // log.segment_bytes + 1) * log.segment_bytes
        appender.take(at, log.read(at, min(piece_bytes, border - at, log.committed_offset - at)).data)
        appender.dispatch()
    slave.dispatch()
    check(slave, HOSTILE)
    slave.store.close()
    again = Stepped(root, broker_role="SLAVE")
    assert again.report.kind == "clean"
    assert again.bodies("T", 0) == [b"0", b"1", b"2"]
    again.store.close()
    assert outside(tmp_path, root) == before


@pytest.mark.parametrize("queue_offset", [-(1 << 63), -1, 1 << 58, 1 << 62, (1 << 63) - 1])
def test_a_queue_offset_that_no_queue_reaches_is_skipped(tmp_path: Path, queue_offset: int) -> None:
    """A file named after it would prevent the store from opening, and old files from removal."""
    master = Stepped(tmp_path / "master")
    for topic in ("T", "E", "Z"):
        master.append(b"x", topic=topic)
    log = master.store.log
    data = bytearray(log.read(0, log.committed_offset))
    size = int.from_bytes(data[:4], "big")
    data[size + 20 : size + 28] = queue_offset.to_bytes(8, "big", signed=True)
    slave = Stepped(tmp_path / "slave", broker_role="SLAVE")
    appender = RawAppender(slave.store, slave.log)
    appender.take(0, memoryview(data))
    appender.dispatch()
    slave.clock.advance_ms(120_000)
    slave.runner.run_until_idle()
    assert [each["event"] for each in slave.log.events if each["level"] == "error"] == ["records_skipped"] * (
        queue_offset > 0
    )
    slave.store.close()
    again = Stepped(tmp_path / "slave", broker_role="SLAVE")
    assert {queue[0]: queue[3] for queue in again.store.queues() if queue[3]} == {"T": 1, "Z": 1}
    again.store.close()


@pytest.mark.parametrize("parts", [("commitlog",), ("commitlog", "checksums")])
def test_a_log_taken_over_is_recovered_without_its_illegal_records(tmp_path: Path, parts: tuple[str, ...]) -> None:
    """A backup without its queues: they are built from legal records, twice with the same result."""
    master = Stepped(place(tmp_path, "master"))
    hostile_log(master)
    master.write_checksums()
    root = place(tmp_path, "taken")
    for part in parts:
        shutil.copytree(master.root / part, root / part)
    before = outside(tmp_path, root)
    taken = Stepped(root)
    # Where no checksum covers a record, recovery takes a zero byte in a topic for a hole in the file.
    damaged = len({part.why for part in taken.report.damaged})
    assert damaged == len(parts) % 2
    check(taken, [each for each in HOSTILE if not damaged or "\0" not in each[0]])
    killed = crashed_copy(root, place(tmp_path, "killed"))
    taken.append(b"new")
    taken.store.close()
    shutil.rmtree(root)
    before += outside(tmp_path, root)
    again = Stepped(killed)
    assert again.bodies("T", 0) == [b"0", b"1", b"2"]
    again.store.close()
    assert not (tmp_path / "escaped").exists()
    assert set(outside(tmp_path, killed)) <= set(before)


def test_the_offline_tools_tell_of_illegal_records_and_write_nowhere_else(tmp_path: Path) -> None:
    """Verify lists them; repair and copy leave them out of the queues and report it."""
    master = Stepped(place(tmp_path, "master"))
    hostile_log(master)
    root = place(tmp_path, "taken")
    shutil.copytree(master.root / "commitlog", root / "commitlog")
    before = outside(tmp_path, root)
    reader = StoreReader.open(str(root))
    report = verify(reader)
    assert not report.ok
    assert len(report.illegal) == len(HOSTILE)
    text = "\n".join(report.illegal)
    for topic, queue_id in HOSTILE:
        assert f"6 records of queue {queue_id} of topic {topic!a} (first at" in text
    assert text.replace("\n", "").isprintable()
    assert report.queues is not None
    assert [(each.topic, each.queue_id) for each in report.queues.problems] == [("T", 0), ("T", 1)]
    plan = plan_repair(reader, report)
    assert [step.queues for step in plan.steps if step.queues] == [[("T", 0), ("T", 1)]]
    assert len(plan.stays) == len(HOSTILE)
    reader.close()

    result = Repair(str(root)).run()
    assert queues_on_disk(root) == ["T/0", "T/1"]
    assert result.after is not None
    assert result.after.illegal == report.illegal
    assert result.after.queues is not None
    assert result.after.queues.problems == []
    target = place(tmp_path, "copy")
    copy = StoreCopy(StoreReader.open(str(root)), str(target), OsFileSystem())
    copy.run()
    assert len(copy.skipped) == len(HOSTILE)
    assert queues_on_disk(target) == ["T/0", "T/1"]
    assert [path for path in outside(tmp_path, root) if not path.startswith(str(target))] == before


def test_directories_that_are_no_queues_are_left_alone(tmp_path: Path) -> None:
    """An earlier version, or an operator, may have created them among the queues."""
    stepped = Stepped(tmp_path)
    stepped.append(b"x")
    stepped.store.close()
    for name in ("T/00", "T/٣", "T/backup", "a\nb/0", "t" * 200 + "/0"):
        (tmp_path / "consumequeue" / name).mkdir(parents=True)
    os.mkdir(os.fsencode(tmp_path / "consumequeue") + b"/\xff")
    again = Stepped(tmp_path)
    assert [queue[:2] for queue in again.store.queues()] == [("T", 0)]
    assert again.bodies() == [b"x"]
    events = [each["topic"] for each in again.log.events if each["event"] == "queue_directory_left_alone"]
    assert sorted(map(str, events)) == sorted([ascii("a\nb"), ascii("t" * 128), ascii("\udcff")])
    again.store.close()
    layout = StoreReader.open(str(tmp_path)).layout
    assert list(layout.queues) == [("T", 0)]
    assert len(layout.strange) == 6


def test_more_illegal_queues_than_anybody_reads_are_told_once_together(tmp_path: Path) -> None:
    """A log full of them must not fill the log file."""
    stepped = Stepped(tmp_path)
    for number in range(300):
        stepped.store.append(group_of([put(b"evil", f"../{number % 150}")]))
    stepped.append(b"good")
    events = [str(each["event"]) for each in stepped.log.events if "skipped" in str(each["event"])]
    assert (events.count("records_skipped"), events.count("records_skipped_left_out")) == (100, 1)
    assert stepped.bodies() == [b"good"]
    stepped.store.close()


def test_no_topic_outside_the_store_is_deleted(tmp_path: Path) -> None:
    """Both ways of deletion refuse before they record the deletion."""
    stepped = Stepped(place(tmp_path, "s"))
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_bytes(b"precious")
    end = stepped.append(b"x")
    for topic in ("../../../../victim", str(victim), "..", ".", "", "T/0", "x\0y"):
        with pytest.raises(TopicIllegal):
            stepped.store.delete_topic(topic)
        with pytest.raises(TopicIllegal):
            stepped.store.delete_topic_below(topic, end)
    assert stepped.store.consume_queues.deleted.table() == {}
    assert (victim / "file").read_bytes() == b"precious"
    assert stepped.bodies() == [b"x"]
    stepped.store.close()
