"""Stage times: the cost of a drain is counted for each of its requests."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.broker.stats.stage_times import SAMPLES_MAX, SEND_PAIR, STAGE_COUNT, PairStages, Stage, StageTimes
from pocketmq.remoting.telemetry import ALL_PAIRS

US = 1_000


def tasks(*created_ns: int) -> list[Any]:
    return [SimpleNamespace(created_ns=each) for each in created_ns]


def test_a_drain_counts_for_each_of_its_requests() -> None:
    """Ten requests of one drain: ten waits, and ten times the drain's time in a stage."""
    pair = PairStages(SEND_PAIR)
    stages_ns = [0] * STAGE_COUNT
    stages_ns[Stage.APPEND] = 50 * US
    stages_ns[Stage.PROCESS] = 7 * US
    pair.drained(tasks(*range(0, 1000, 100)), 100_000, stages_ns, 57 * US)
    counts = {stage: histogram.count for stage, histogram in pair.totals()}
    assert counts == {
        Stage.QUEUE_WAIT: 10,
        Stage.LOCK_WAIT: 0,
        Stage.APPEND: 10,
        Stage.FLUSH_WAIT: 0,
        Stage.REPLICA_WAIT: 0,
        Stage.PROCESS: 10,
    }
    assert pair.window(Stage.APPEND).sum_ns == 500 * US


@pytest.mark.parametrize("count", [1, 2, 4, 5, 8, 63, 64, 65, 1000, 4096])
def test_waits_of_a_large_drain_are_sampled_with_weights(count: int) -> None:
    """Every request counts; a percentile is never too low, and too high by less than one sample's step."""
    pair = PairStages("TestThread")
    created = sorted(random.Random(count).randrange(0, 1_000_000_000) for _ in range(count))
    pair.drained(tasks(*created), 1_000_000_000, [0] * STAGE_COUNT, 0)
    waits = sorted(1_000_000_000 - each for each in created)
    histogram = pair.window(Stage.QUEUE_WAIT)
    assert histogram.count == count
    assert sum(1 for each in histogram.counts if each) <= max(4, SAMPLES_MAX)
    step = max(1, -(-count // 4 if count <= 16 else count // SAMPLES_MAX + 1))
    for q in (0.5, 0.99):
        rank = min(count, max(1, int(q * count + 0.999999)))
        assert waits[rank - 1] <= histogram.percentile_ns(q) <= waits[min(count, rank + step) - 1] * 17 / 16 + 128


def test_quick_drains_are_sampled_when_they_are_many() -> None:
    """All their requests count; a drain that took or waited a millisecond is always recorded."""
    pair = PairStages(SEND_PAIR)
    stages_ns = [0] * STAGE_COUNT
    for number in range(100):
        stages_ns = [0] * STAGE_COUNT
        stages_ns[Stage.APPEND] = 10 * US
        pair.drained(tasks(number), number + 5 * US, stages_ns, 20 * US)
    slow_ns = [0] * STAGE_COUNT
    slow_ns[Stage.APPEND] = 2_000 * US
    pair.drained(tasks(0), 200, slow_ns, 2_000 * US)
    pair.drained(tasks(0), 3_000 * US, stages_ns, 20 * US)
    assert pair.window(Stage.APPEND).count == 102
    assert pair.window(Stage.APPEND).max_ns == 2_000 * US
    assert pair.window(Stage.QUEUE_WAIT).count == 102
    assert pair.window(Stage.QUEUE_WAIT).max_ns == 3_000 * US
    pair.rotate()
    assert {stage: histogram.count for stage, histogram in pair.totals()}[Stage.APPEND] == 102


def test_swept_requests_have_waited_too() -> None:
    """The waits include requests that fast failure answered."""
    pair = PairStages(SEND_PAIR)
    pair.swept(tasks(0, 0, 0), 200_000_000)
    pair.swept([], 1)
    assert pair.window(Stage.QUEUE_WAIT).count == 3
    assert pair.window(Stage.QUEUE_WAIT).max_ns == 200_000_000


def test_rows_name_every_stage_also_those_without_data() -> None:
    """A reader can distinguish "nothing counted" from "unknown": the replica wait exists before any replica does."""
    times = StageTimes()
    times.pair(SEND_PAIR)
    times.pair("PullMessageThread").record_ns(Stage.PROCESS, 2_000_000, 3)
    times.read.record_ns(1_000)
    rows = {(row.pair, row.stage): row for row in times.rows()}
    assert set(rows) == {
        (ALL_PAIRS, "read"),
        (ALL_PAIRS, "write"),
        *(
            (SEND_PAIR, stage)
            for stage in ("queue_wait", "lock_wait", "append", "flush_wait", "replica_wait", "process")
        ),
        ("PullMessageThread", "queue_wait"),
        ("PullMessageThread", "process"),
    }
    assert rows[SEND_PAIR, "replica_wait"].count == 0
    process = rows["PullMessageThread", "process"]
    assert (process.count, process.max_us, process.sum_us) == (3, 2000, 6000)
    assert process.p50_us == process.p999_us == 2000
    for _ in range(6):
        times.rotate()
    assert all(row.count == 0 for row in times.rows())
    assert sum(histogram.count for _, _, histogram in times.totals()) == 4
