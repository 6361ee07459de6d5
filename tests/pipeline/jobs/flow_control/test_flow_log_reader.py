"""Reading logs: lines that are no event of PocketMQ are counted and skipped, and nothing stops the reading."""

import gzip
import json
from pathlib import Path

import pytest

from pocketmq.common.errors import ConfigError
from pocketmq.pipeline.jobs.flow_control.facts import Fact, facts_of
from pocketmq.pipeline.jobs.flow_control.files import find_logs, log_of
from pocketmq.pipeline.jobs.flow_control.log_reader import LINE_BYTES_MAX, Reading, read_log

LOGS = Path(__file__).parent / "logs"


def line(at: str, event: str, **fields: object) -> bytes:
    first = {"timestamp": f"2026-05-01T10:{at}Z", "level": "warning", "logger": "broker", "event": event}
    return json.dumps({**first, **fields}).encode() + b"\n"


def refused(at: str, **fields: object) -> bytes:
    return line(at, "refused_queue_timeout", **({"code": 2, "remark": "[TIMEOUT_CLEAN_QUEUE]x", "count": 1} | fields))


def read(path: Path) -> tuple[list[tuple[int, int, Fact]], Reading]:
    reading = Reading()
    return list(read_log(str(path), reading)), reading


def test_every_kind_of_bad_line_is_counted_and_the_good_ones_are_read(tmp_path: Path) -> None:
    """Broken, foreign, enormous lines, absent times and a clock that goes back leave the other lines alone."""
    path = tmp_path / "broker.log"
    path.write_bytes(
        refused("00:00.000")
        + b'{"timestamp":"2026-05-01T10:00:01.000Z","event":"refused_q\n'  # cut off
        + b"\xff\xfe\x00 no text at all\n"
        + b"java.lang.NullPointerException\n\n"
        + b'{"some":"other json"}\n'
        + b"[" * 100_000
        + b"\n"
        + b'{"a":'
        + b"[" * 100_000
        + b"\n"
        + b'{"event":"' + b"x" * (3 * LINE_BYTES_MAX) + b'"}\n'
        + refused("00:30.000", count=2, left_out=5, repeats_left_out=1)
        + refused("00:10.000")  # the clock went back
        + refused("00:11.000")
        + line("99:99", "refused_queue_timeout", count=9)  # no time
        + b'{"timestamp":"9999-01-01T00:00:00Z","event":"refused_queue_timeout","count":9}\n'
        + b'{"timestamp":"2026-05-01T10:02:00.000Z","event":"refus'  # half written
    )  # fmt: skip
    facts, reading = read(path)
    assert [fact.count for _, _, fact in facts] == [1, 8, 1, 1]
    assert [number for number, _, _ in facts] == [1, 10, 11, 12], "line numbers are those of an editor, without skips"
    assert reading.lines == 15
    assert dict(reading.counts()) == {
        "lines": 15,
        "events": 4,
        "broken": 3,
        "foreign": 4,
        "enormous": 1,
        "without_time": 2,
        "clock_back": 1,
    }


def test_a_gzip_that_is_cut_off_gives_what_came_before(tmp_path: Path) -> None:
    """A damaged file is one unreadable file, not the end of the job; the file's name does not decide its format."""
    whole = gzip.compress(b"".join(refused(f"00:{second:02}.000") for second in range(60)) * 50)
    path = tmp_path / "broker.log.1"
    path.write_bytes(whole[:-30])
    facts, reading = read(path)
    assert reading.unreadable == 1
    assert reading.error
    assert 0 < len(facts) == reading.events
    missing = Reading()
    assert list(read_log(str(tmp_path / "none.log"), missing)) == []
    assert missing.unreadable == 1
    empty = tmp_path / "empty.log"
    empty.touch()
    assert read(empty)[1].empty_files == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"count": -5},
        {"count": 1e300},
        {"count": "7"},
        {"count": True},
        {"count": None},
        {"count": [1]},
        {"count": 1 << 60},
        {"left_out": 10**40},
    ],
)
def test_numbers_that_are_none_count_nothing(fields: dict[str, object]) -> None:
    """Logs are untrusted: an impossible number counts as 0."""
    (fact,) = facts_of({"event": "refused_queue_timeout", "remark": "[EVIL]<b>", **fields})
    assert fact.count == 0
    assert fact.tag == "", "tags are a closed list, else a log could make columns without end"


def test_unknown_names_are_dropped() -> None:
    """Causes, phases, broker names and events of another log do not become names of tables or brokers."""
    (other,) = facts_of({"event": "refused_" + "x" * 10_000, "count": 1})
    assert other.cause == "others"
    (attempt,) = facts_of({"event": "send_attempts", "phase": "??", "cause": [], "broker": "a\nb", "count": 3})
    assert (attempt.name, attempt.cause, attempt.target, attempt.count) == ("others", "", "", 3)
    (noise,) = facts_of({"event": "\x1b[31m" + "y" * 10_000, "level": "error"})
    assert (noise.kind, noise.name) == ("other", "warnings and errors")
    assert len(noise.text) <= 400
    assert noise.text.isprintable()
    assert list(facts_of({"event": "whatever", "level": "info"})) == []


def test_an_interval_tells_stages_gauges_and_sums() -> None:
    """The recorded line of a real broker becomes one fact for each number that the tables need."""
    facts = [fact for _, _, fact in read(LOGS / "queue" / "broker.log")[0] if fact.for_ms or fact.kind == "gauge"]
    append = next(fact for fact in facts if (fact.kind, fact.name) == ("stage", "append"))
    assert append.count == 8
    assert 100 <= append.p50 <= append.p99 <= append.value < 110
    assert next(fact.count for fact in facts if fact.name == "put_count") == 8
    assert next(fact.count for fact in facts if (fact.kind, fact.name) == ("refusal", "interval")) == 2003
    assert any(fact.name == "copies_in_sync" and fact.value == 1 for fact in facts)


def test_rotated_files_belong_to_one_log(tmp_path: Path) -> None:
    """Numbers, dates and gz in any order are parts of one log; other names are other logs."""
    names = ["broker.log", "broker.log.1", "broker.log.2.gz", "broker.log-20260501.gz", "broker-2026-05-01.log"]
    assert {log_of(f"/a/{name}") for name in names} == {"/a/broker.log"}
    assert log_of("/a/broker-2.log") == "/a/broker-2.log"
    assert log_of("/b/broker.log") == "/b/broker.log"
    for name in (*names, "notes.txt", "core.1"):
        (tmp_path / name).touch()
    assert [Path(path).name for path in find_logs([str(tmp_path)])] == sorted(names)
    assert len(find_logs([str(tmp_path / "broker.log*"), str(tmp_path / "broker.log"), str(tmp_path)])) == len(names)
    assert find_logs([str(tmp_path / "notes.txt")]) == [str(tmp_path / "notes.txt")], "a file named is a log"
    with pytest.raises(ConfigError, match="no logs"):
        find_logs([str(tmp_path / "*.jsonl")])
