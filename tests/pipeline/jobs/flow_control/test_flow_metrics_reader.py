"""Reading metrics: differences are right whatever restarts, gaps and half lines a file has, and nothing ends it."""

import gzip
import itertools
from pathlib import Path

import pytest

from pocketmq.pipeline.jobs.flow_control.chain import cite
from pocketmq.pipeline.jobs.flow_control.evidence import Evidence
from pocketmq.pipeline.jobs.flow_control.facts import Fact
from pocketmq.pipeline.jobs.flow_control.files import METRICS_NAMES, find_logs, log_of
from pocketmq.pipeline.jobs.flow_control.log_reader import Reading
from pocketmq.pipeline.jobs.flow_control.metrics_facts import percentiles
from pocketmq.pipeline.jobs.flow_control.metrics_reader import LINE_BYTES_MAX, SERIES_MAX, read_metrics

RECORDED = Path(__file__).parent / "metrics" / "broker-m.prom.gz"
T0 = 1_795_286_040_000
"""A full minute; the broker of most tests started an hour before."""
Row = tuple[int, int, Fact]


def page(second: float, *samples: str, start: float = T0 / 1000 - 3600, mark: str = "", broker: str = "b") -> str:
    lines = [f"# scraped {broker} {T0 + int(second * 1000)}{mark}", "# HELP pocketmq_x y", *samples]
    return "\n".join([*lines, f"pocketmq_start_time_seconds {start}"]) + "\n"


def refused(count: float, cause: str = "queue_timeout") -> str:
    return f'pocketmq_refusals_total{{cause="{cause}",code="2"}} {count}'


def read(tmp_path: Path, text: str | bytes) -> tuple[list[Row], Reading]:
    path = tmp_path / "b.prom"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    reading = Reading()
    return list(read_metrics(str(path), reading)), reading


def refusals(rows: list[Row]) -> list[tuple[int, str, int, int]]:
    return [((at - T0) // 1000, fact.cause, fact.count, fact.for_ms) for _, at, fact in rows if fact.kind == "refusal"]


def test_a_recorded_run_tells_what_the_broker_counted() -> None:
    """Real pages: 548 and 82 refusals, stages of the minute, the lock that was held for 2.5 s, once each."""
    reading = Reading()
    rows = list(read_metrics(str(RECORDED), reading))
    facts = [fact for _, _, fact in rows]
    by_cause = {
        cause: sum(fact.count for fact in facts if fact.kind == "refusal" and fact.cause == cause)
        for cause in ("queue_timeout", "page_cache_busy")
    }
    assert by_cause == {"queue_timeout": 548, "page_cache_busy": 82}
    stages = {fact.name: fact for fact in facts if fact.kind == "stage"}
    assert set(stages) == {"queue_wait", "lock_wait", "append", "process", "whole", "sync"}
    assert stages["append"].count == sum(fact.count for fact in facts if fact.name == "put_count") == 721
    assert stages["append"].p50 < 1 < 60 <= stages["append"].p99 <= 100
    assert stages["append"].value == 1000, "the longest took 2.5 s: in the bucket from 1 s to 5 s"
    assert [fact.value for fact in facts if fact.kind == "hold"] == pytest.approx([2289, 2289, 2500], rel=0.01)
    assert max(fact.value for fact in facts if fact.name == "not_flushed_bytes") == 15_928
    assert {fact.target for fact in facts} == {"broker-m"}
    assert dict(reading.counts()) == {"lines": 5054, "events": 812}
    lines = gzip.decompress(RECORDED.read_bytes()).splitlines()
    for line, _, fact in rows:
        assert lines[line - 1].startswith(fact.text.encode()), "the line that is cited is the metric's own"


def test_refusals_are_differences_and_a_new_cause_counts_from_zero(tmp_path: Path) -> None:
    """What was refused before the recording is nobody's; a series that appears later began at 0."""
    text = page(0, refused(100)) + page(10, refused(130)) + page(20, refused(130), refused(7, "page_cache_busy"))
    rows, reading = read(tmp_path, text)
    assert refusals(rows) == [(10, "queue_timeout", 30, 10_000), (20, "page_cache_busy", 7, 10_000)]
    assert (reading.restarts, reading.gaps) == (0, 0)


def test_a_restart_counts_what_came_since(tmp_path: Path) -> None:
    """A counter that fell, and a new start time even where the counter is higher than before."""
    fell = page(0, refused(100)) + page(10, refused(4))
    rows, reading = read(tmp_path, fell)
    assert refusals(rows) == [(10, "queue_timeout", 4, 10_000)]
    assert reading.restarts == 1
    above = page(0, refused(100)) + page(20, refused(150), start=T0 / 1000 + 15)
    rows, reading = read(tmp_path, above)
    assert refusals(rows) == [(20, "queue_timeout", 150, 5_000)], "150 within the 5 s since it started"
    assert reading.restarts == 1


def test_master_and_slave_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    """Two processes in one file, known by their start times: neither's counter is taken for the other's."""
    other = T0 / 1000 - 7200
    pages = [page(s, refused(100)) + page(s + 1, refused(5 + s), start=other) for s in (0, 10, 20)]
    assert refusals(read(tmp_path, "".join(pages))[0]) == [
        (11, "queue_timeout", 10, 10_000),
        (21, "queue_timeout", 10, 10_000),
    ]


def test_a_long_gap_is_counted_and_belongs_to_no_minute(tmp_path: Path) -> None:
    """A recorder that was off for an hour: what was refused then has no minute."""
    rows, reading = read(tmp_path, page(0, refused(1)) + page(3600, refused(900)) + page(3610, refused(901)))
    assert refusals(rows) == [(3610, "queue_timeout", 1, 10_000)]
    assert reading.gaps == 1


def test_a_rotated_file_begins_with_a_page_that_counts_once(tmp_path: Path) -> None:
    """The page marked again is only what the next one is compared with."""
    start = T0 / 1000 - 5
    text = page(0, refused(100), "pocketmq_write_buffers 5", mark=" again", start=start)
    text += page(10, refused(120), start=start)
    rows, _ = read(tmp_path, text)
    assert refusals(rows) == [(10, "queue_timeout", 20, 10_000)]
    assert not [fact for _, _, fact in rows if fact.kind == "gauge"]


def test_a_page_that_was_cut_off_makes_no_refusals(tmp_path: Path) -> None:
    """A series that one page lacks is compared with the page before; a half number is none."""
    whole = page(0, refused(100))
    cut = f'# scraped b {T0 + 10_000}\npocketmq_refusals_total{{cause="queue_timeout",code="2"}} 10'
    rows, reading = read(tmp_path, whole + cut)
    assert refusals(rows) == []
    assert reading.broken == 1
    rows, _ = read(tmp_path, whole + cut.rsplit("\n", 1)[0] + "\n" + page(20, refused(103)))
    assert refusals(rows) == [(20, "queue_timeout", 3, 20_000)]
    joined = whole + cut + page(20, refused(103))  # appended without a new line: the mark of the page is lost
    rows, reading = read(tmp_path, joined)
    assert refusals(rows) == []
    assert reading.broken == 1


def test_an_export_with_times_is_put_in_order(tmp_path: Path) -> None:
    """Series by series, ms or seconds, label broker or instance: the same differences as of recorded pages."""
    started = T0 / 1000 - 3600
    series = [
        ('pocketmq_refusals_total{cause="queue_timeout",code="2",broker="b",instance="h:5557"}', (100, 130, 131)),
        ('pocketmq_refusals_total{cause="queue_full",code="2",broker="b"}', (None, None, 6)),
        ('pocketmq_queue_size{pair="SendMessageThread",broker="b"}', (1, 2, 3)),
        ('pocketmq_queue_size{pair="PullMessageThread",broker="b"}', (9, 9, 9)),
        ('pocketmq_start_time_seconds{broker="b"}', (started,) * 3),
        ('pocketmq_refusals_total{cause="disk_full",code="1",instance="[::1]:5557"}', (1, 3, 3)),
    ]
    for form, unit in (("{:.0f}", 1), ("{:.3f}", 1000), ("{:.12e}", 1000)):
        lines = [
            f"{name} {value} {form.format((T0 + index * 15_000) / unit)}\n"
            for name, values in series
            for index, value in enumerate(values)
            if value is not None
        ]
        rows, reading = read(tmp_path, "".join([*lines, "# EOF\n"]))
        found = {(fact.target, fact.cause, fact.count) for _, _, fact in rows if fact.kind == "refusal"}
        assert found >= {("b", "queue_timeout", 30), ("b", "queue_timeout", 1), ("b", "queue_full", 6)}
        assert ("[::1]:5557", "disk_full", 2) in found
        assert len(found) == 4
        assert {fact.value for _, _, fact in rows if fact.kind == "gauge"} == {1, 2, 3}
        assert reading.broken == reading.without_time == 0


def test_rubbish_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    """Broken lines, values that are none, names without end: nothing of it is an error or a name of a table."""
    bad = [
        "pocketmq_refusals_total{cause=",
        'pocketmq_refusals_total{cause="queue_timeout",code="2"} NaN',
        'pocketmq_refusals_total{cause="queue_timeout",code="2"} -5',
        'pocketmq_refusals_total{cause="queue_timeout",code="2"} 1e300',
        'pocketmq_stage_seconds_bucket{pair="SendMessageThread",stage="append",le="x"} 1',
        'pocketmq_queue_size{pair="SendMessageThread"} x',
        "pocketmq_queue_size",
    ]
    rubbish = [
        "no metric at all, and long",
        "\x00\x01\x02",
        '{"event":"json"}',
        "# note",
        "go_threads 8",
        "go_x{a=b} 1",
    ]
    long = "pocketmq_queue_size" + "x" * (3 * LINE_BYTES_MAX)
    text = refused(9) + "\n" + "# scraped ? 12\n# scraped b 99999999999999\n"
    text += (
        page(0, refused(1)) + page(10, *bad, *rubbish, long, refused(3), refused(2, "e" * 200)) + page(20, refused(4))
    )
    rows, reading = read(tmp_path, text.encode() + b"\xff\xfe\n")
    assert refusals(rows) == [
        (10, "queue_timeout", 2, 10_000),
        (10, "others", 2, 10_000),
        (20, "queue_timeout", 1, 10_000),
    ]
    counts = dict(reading.counts())
    assert (counts["broken"], counts["enormous"], counts["without_time"]) == (len(bad) + 2, 1, 1)
    assert counts["foreign"] == 5, "words, zero bytes, JSON, a comment of another form, 0xfffe"


def test_series_without_end_are_bounded(tmp_path: Path) -> None:
    """More series than a broker can have are counted and left out."""
    many = [f'pocketmq_refusals_total{{cause="queue_timeout",code="{number}"}} 1' for number in range(SERIES_MAX + 50)]
    rows, reading = read(tmp_path, page(0) + page(10, *many))
    assert len(refusals(rows)) == SERIES_MAX
    assert reading.too_many == 50, "the start time, which comes last, is always taken"


def test_a_damaged_gzip_gives_what_came_before(tmp_path: Path) -> None:
    """A file that is cut off is unreadable from there on only."""
    whole = gzip.compress("".join(page(10 * n, refused(n), f"pocketmq_x {n * 7919}") for n in range(100)).encode())
    rows, reading = read(tmp_path, whole[: len(whole) // 2])
    assert reading.unreadable == 1
    assert len(refusals(rows)) > 10


def test_percentiles_lie_in_their_buckets() -> None:
    """As histogram_quantile has them; beyond the last bound is at least the last bound."""
    assert percentiles({}) == (0, 0, 0, 0)
    assert percentiles({0.1: 0.0, 0.2: 100.0, 0.5: 0.0}) == pytest.approx((150, 199, 100, 100))
    beyond = percentiles({0.001: 98.0, 5.0: 1.0, float("inf"): 1.0})
    assert beyond == pytest.approx((0.5102, 5000, 5000, 100), rel=1e-3)
    for buckets in itertools.product((0.0, 1.0, 50.0), repeat=3):
        low, high, least, count = percentiles(dict(zip((0.1, 1.0, float("inf")), buckets, strict=True)))
        assert low <= high <= max(1000, least)
        assert count == sum(buckets)


def test_a_metric_is_cited_with_its_name_file_and_line() -> None:
    """Evidence of metrics says so: its percentiles are interpolated, its longest is a lower bound."""
    told = Evidence("i", "stage", "append", count=3, p50=1.0, p99=90.0, highest=100.0, file="/m/b.prom", line=9)
    text = cite(Evidence(**{name: getattr(told, name) for name in told.__slots__} | {"text": "pocketmq_stage_seconds"}))
    assert "longest at least 100 ms" in text
    assert "pocketmq_stage_seconds at m/b.prom:9" in text
    assert "at least" not in cite(told)


def test_files_of_metrics_are_found_and_belong_together(tmp_path: Path) -> None:
    """Rotated recordings are one; logs beside them are none."""
    names = ["a.prom", "a.prom.20261121-183000.123", "a.prom.20261120-000003.001.gz"]
    for name in (*names, "a.log", "notes.txt"):
        (tmp_path / name).touch()
    found = find_logs([str(tmp_path)], METRICS_NAMES, "metrics")
    assert sorted(Path(path).name for path in found) == sorted(names)
    assert {log_of(path) for path in found} == {str(tmp_path / "a.prom")}
