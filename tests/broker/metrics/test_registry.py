"""One row per metric: the texts made from the rows agree, and handwritten ones elsewhere agree with them."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pocketmq.broker.metrics.metrics import GROUPS
from pocketmq.broker.metrics.registry import PREFIX, Counter, Gauge, Group, Row, Unit, interval_values, runtime_text
from pocketmq.broker.metrics.request_metrics import PAIRS
from pocketmq.broker.metrics.sources import Reading
from pocketmq.broker.metrics.store_metrics import LOG, PAGE_CACHE, POOL
from pocketmq.broker.stats.stage_times import SEND_PAIR
from pocketmq.cli.doctor import broker_metrics as doctor
from pocketmq.cli.doctor.broker_metrics import BrokerMetrics, BrokerSettings, Snapshot
from pocketmq.remoting.telemetry import FlushTelemetry, PageCacheTelemetry, PairTelemetry, PoolTelemetry
from tests.broker.metrics.test_telemetry import World

ROOT = Path(__file__).resolve().parents[3]
ROWS: list[tuple[Group[Any], Row[Any]]] = [(group, row) for group in GROUPS for row in group.rows]
NOT_METRICS = {
    *("brokerVersionDesc", "haFencedBy", "haLastError", "haRole"),
    *("getTransferedTps", "getTransferredTps", "putMessageEntireTimeMax", "putTps", "putLatency99"),
}
"""Keys of the runtime table that the doctor reads and that are texts, or rates and percentiles of a minute."""


def test_names_are_unique_and_say_their_unit() -> None:
    """Prometheus' conventions: seconds, bytes and ratios are in the name; one key elsewhere has one row.
    RocketMQ's names are as RocketMQ has them."""
    for shown in ("name", "interval"):
        named = [getattr(row, shown) for _, row in ROWS if getattr(row, shown)]
        assert len(named) == len(set(named)), shown
    keys = [row.runtime for _, row in ROWS if row.runtime]
    assert len(keys) == len(set(keys))
    for _, row in ROWS:
        assert row.help
        if row.name and row.prefix == PREFIX:
            in_seconds = row.unit in (Unit.MS, Unit.SECONDS) or row.kind == "histogram"
            assert row.name.endswith("_seconds") == in_seconds, row
            assert row.name.endswith("_ratio") == (row.unit is Unit.RATIO), row
            assert ("bytes" in row.name or row.name.endswith("_offset")) == (row.unit is Unit.BYTES), row


@pytest.mark.parametrize(
    ("group", "struct", "by_hand"),
    [
        (PAIRS, PairTelemetry, {"name"}),
        (PAGE_CACHE, PageCacheTelemetry, set()),
        (POOL, PoolTelemetry, set()),
        (LOG, FlushTelemetry, {"mode", "count", "p50_us", "p99_us", "max_us", "running_ms"}),
    ],
)
def test_every_field_of_the_telemetry_has_a_row(group: Group[Any], struct: type, by_hand: set[str]) -> None:
    """A field without a row would silently stay at its default; a row without a field would fail at a broker."""
    fields = {field.name for field in msgspec.structs.fields(struct)}
    assert {row.telemetry for row in group.rows if row.telemetry} | by_hand == fields


def test_one_row_is_shown_in_the_unit_of_each_place() -> None:
    """Seconds for Prometheus, the row's own unit elsewhere; -1 stays -1; a flag is a number, a word, a number."""
    wait: Row[int] = Gauge("wait_seconds", "A wait.", lambda ms: ms, Unit.MS, runtime="waitMs", interval="wait_ms")
    assert [sample.value for sample in wait.family((), [((), 1500), ((), -1)]).samples] == [1.5, -1.0]
    assert runtime_text(wait, 1500) == "1500"
    flag: Row[bool] = Gauge("busy", "Busy.", lambda busy: busy, Unit.FLAG, runtime="busy", interval="busy")
    assert [sample.value for sample in flag.family((), [((), True)]).samples] == [1.0]
    assert runtime_text(flag, True) == "true"
    done: Row[int] = Counter("done", "Done.", lambda ms: ms, interval="done_count")
    reading = Reading(SimpleNamespace(), 0)  # type: ignore[arg-type]
    values = interval_values([Group(lambda reading: [((), 1)], (flag, done, wait))], reading)
    assert (values.gauges, values.counters) == ({"busy": 1, "wait_ms": 1}, {"done_count": 1})


def test_labels_of_the_group_come_before_those_of_the_row() -> None:
    """A group's objects carry labels; a row may add its own; an absent group has no families."""
    row: Row[int] = Counter("ended", "Ended.", lambda n: [(("ok",), n), (("lost",), 0)], labels=("outcome",))
    group: Group[int] = Group(lambda reading: [(("one",), 1), (("two",), 2)], (row,), labels=("pair",))
    reading: Any = None
    [family] = group.families(reading)
    assert [(sample.labels, sample.value) for sample in family.samples] == [
        ({"pair": "one", "outcome": "ok"}, 1),
        ({"pair": "one", "outcome": "lost"}, 0),
        ({"pair": "two", "outcome": "ok"}, 2),
        ({"pair": "two", "outcome": "lost"}, 0),
    ]
    absent: Group[int] = Group(lambda reading: [], (row,))
    assert list(absent.families(reading)) == []


def test_the_doctor_reads_keys_that_have_rows_and_in_their_unit() -> None:
    """A misspelled key would be "not known" for ever."""
    rows = {row.runtime: row for _, row in ROWS if row.runtime}
    rows |= {prefix + row.runtime: row for row in PAIRS.rows if row.runtime for prefix in ("send", "pull")}
    units = {
        "number": {Unit.COUNT, Unit.MS},
        "size_bytes": {Unit.BYTES},
        "ratio": {Unit.RATIO},
        "runtime": {Unit.COUNT, Unit.FLAG},
    }
    read = set()
    for path in Path(doctor.__file__).parent.rglob("*.py"):
        for how, key in re.findall(
            r"metrics\.(number|runtime|size_bytes|ratio|rate|grown)\(\s*[\"'](\w+)", path.read_text()
        ):
            read.add(key)
            if key in NOT_METRICS:
                continue
            assert key in rows, f"{path.name} reads {key}, which no row shows"
            if how == "grown":
                assert rows[key].kind == "counter", key
            else:
                assert rows[key].unit in units[how], (key, how)
    assert len(read) > 20
    assert read >= NOT_METRICS


def test_the_doctor_knows_a_pair_by_its_telemetry_or_by_the_runtime_table(tmp_path: Path) -> None:
    """Both come from the same rows, so both agree."""
    world = World(tmp_path)
    world.enqueue()
    world.clock.advance_ms(250)
    [pair] = Reading(world.sources, world.clock.monotonic_ns()).pairs()
    runtime = PAIRS.runtime_of(pair, "send")
    snapshot = Snapshot(broker="b", address="a", at_ms=0, runtime=runtime)
    known = BrokerMetrics(snapshot, BrokerSettings({})).pair(SEND_PAIR)
    assert known is not None
    told = PairTelemetry(name="send", **PAIRS.telemetry_of(pair))
    shown = {row.telemetry for row in PAIRS.rows if row.runtime}
    assert len(shown) == 5
    assert {name: getattr(known, name) for name in shown} == {name: getattr(told, name) for name in shown}
    assert (known.queue_size, known.head_wait_ms) == (1, 250)
