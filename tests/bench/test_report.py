"""The report from recorded lines: medians, spreads, ratios, goals, missing peers."""

from pathlib import Path
from typing import Any

import pytest

from bench.base.histogram import Latencies
from bench.base.results import Line
from bench.report.report import Report, number_text, ratio_text

ECHO_MS = 0.05


def run(case: str, variant: str, peer: str, number: int, **metrics: Any) -> Line:
    return {
        "kind": "run",
        "case": case,
        "variant": variant,
        "peer": peer,
        "round": number,
        "x": None,
        "figures": metrics,
    }


def lines() -> list[Line]:
    """A run of three rounds in which PocketMQ is three times as fast as Redis."""
    made: list[Line] = [
        {
            "kind": "environment",
            "cores": 2,
            "servers": {"redis": "7"},
            "libraries": {"redis": "8"},
            "scale": {"quick": False, "repeats": 3, "seconds": 1.5},
            "acknowledged": {"redis": {"async": "in | memory"}},
            "one_topic_is": {"redis": "one stream"},
        },
        {"kind": "floor", "floor": "uvloop echo, 1024 B, 1 in flight", "messages_per_s": 20_000, "p50_ms": ECHO_MS},
        {"kind": "skip", "peer": "nats", "why": "no Go toolchain"},
        {"kind": "failed", "peer": "redis", "case": "batches", "variant": "v", "why": "it broke"},
        {"kind": "row", "bench": "store", "figures": {"case": "append", "us": 3}},
    ]
    for number, rate in enumerate((90_000, 30_000, 60_000)):
        made.append(run("one_by_one", "64 in flight", "pocketmq", number, messages_per_s=rate, other_cores=1.5))
        made.append(run("one_by_one", "64 in flight", "redis", number, messages_per_s=rate / 3, failed=1))
    made.append(run("one_by_one", "1 in flight", "pocketmq", 0, messages_per_s=5_000, p50_ms=0.1))
    text = Latencies.of_ns([1_000_000] * 99 + [50_000_000]).encode()
    made.append(run("latency", "50% of peak", "pocketmq", 0, delivered_p99_ms=10.0, delivered_hdr=text))
    made.append(run("latency", "50% of peak", "rocketmq", 0, delivered_p99_ms=5.0, delivered_hdr=text))
    return made


def test_medians_and_spreads_are_those_of_the_rounds() -> None:
    """The report shows the median of the rounds, neither the mean nor the best."""
    group = Report(lines()).group("one_by_one", "64 in flight", "pocketmq")
    assert group is not None
    assert group.bar("messages_per_s") == (60_000, 30_000, 90_000)


def test_histograms_of_rounds_are_merged() -> None:
    """The report shows the percentile of all rounds, not the median of their percentiles."""
    text = Latencies.of_ns([1_000_000] * 10).encode()
    slow = Latencies.of_ns([9_000_000] * 90).encode()
    report = Report(
        [run("latency", "v", "redis", 0, delivered_hdr=text), run("latency", "v", "redis", 1, delivered_hdr=slow)]
    )
    latencies = report.groups["latency", "v", "redis"].latencies("delivered_hdr")
    assert latencies is not None
    assert latencies.count == 100
    assert latencies.percentile_ms(50) == pytest.approx(9, rel=0.01)


@pytest.mark.slow
def test_the_whole_report(tmp_path: Path) -> None:
    """Tables, goals, plots, noise and omissions all come from the recorded lines."""
    text = Report(lines()).text("run", tmp_path)
    assert "| Redis Streams, redis-py | 20,000 [10,000–30,000] | 3.00 × | 3 |" in text
    assert (
        "| one by one, 64 in flight, 1 KiB | 3 × the best Python client | 3.00 × (Redis Streams, redis-py) | holds |"
        in text
    )
    assert "| one in flight, p50 | 1.6 × the echo floor | 2.00 × (0.100 ms) | missed: 1.25 × of it |" in text
    assert "| p99 end to end at 50 % load, beside RocketMQ | ahead | 0.50 × better | missed: 0.50 of it |" in text
    assert "batches of 1 KiB" not in text  # a goal that was not measured has no row
    assert "**Not quiet:** other processes used 1.50 of the 2 cores" in text
    assert "| nats | left out | all | no Go toolchain |" in text
    assert "| redis | FAILED | batches v | it broke |" in text
    assert "| Redis Streams, redis-py | one stream | async | in / memory |" in text
    assert "## PocketMQ alone: store" in text
    for name in ("run-one_by_one.svg", "run-latency.svg"):
        assert f"({name})" in text
        assert (tmp_path / name).read_text().count("<path") > 5


def test_an_empty_run_has_an_empty_report(tmp_path: Path) -> None:
    """A run that stopped at once gives an empty report, not an error."""
    assert Report([]).text("run", tmp_path) == "# Benchmarks side by side\n\n"


@pytest.mark.parametrize(
    ("ours", "theirs", "metric", "text"),
    [
        (30.0, 10.0, "messages_per_s", "3.00 ×"),
        (30.0, 10.0, "p99_ms", "0.33 ×"),
        (1.0, 5.0, "after_kill_s", "5.00 ×"),
        (None, 5.0, "p99_ms", ""),
        (5.0, 0.0, "messages_per_s", ""),
    ],
)
def test_a_ratio_above_one_is_better_for_every_metric(
    ours: float | None, theirs: float, metric: str, text: str
) -> None:
    """For times, less is better; for rates, more."""
    assert ratio_text(ours, theirs, metric) == text


def test_numbers_have_the_digits_they_deserve() -> None:
    """Thousands have no fraction; fractions have three digits."""
    assert [number_text(value) for value in (None, 123456.7, 12.345, 1.2345, 0.01234)] == [
        "",
        "123,457",
        "12.3",
        "1.23",
        "0.0123",
    ]
