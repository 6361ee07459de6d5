"""The job on what a real broker said at /metrics, alone and beside its log.

``metrics/broker-m.prom.gz`` and ``metrics/broker-m.log.gz`` are from one run of 35 s: ``pocketmq standalone`` with
``send_drain_max = 1``, 50 sends a second, appends of 60 ms for 14 s, then one of 2.5 s; recorded by
``pocketmq metrics record --interval 5``.
"""

import gzip
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from pocketmq.pipeline.jobs.flow_control.run import analyze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDED = Path(__file__).parent / "metrics"
REFUSED = 548 + 82


def minutes_of(output: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(output / "minute").to_pylist()
    return rows


@pytest.mark.scenario
def test_metrics_fill_what_the_log_of_a_broker_lacks(spark: "SparkSession", tmp_path: Path) -> None:
    """A log without refusals and intervals: all figures of the minute, and the chain, come from metrics."""
    log = tmp_path / "broker.log"
    lines = gzip.decompress((RECORDED / "broker-m.log.gz").read_bytes()).splitlines(keepends=True)
    told = (b'"event":"refused_', b'"event":"interval', b'"event":"append_lock', b'"watermark"', b"slow_request")
    log.write_bytes(b"".join(line for line in lines if not any(word in line for word in told)))
    output = tmp_path / "out"
    recorded = [str(RECORDED / "broker-m.prom.gz")]
    result = analyze(spark, [str(log)], str(output), metrics=recorded, with_report=False)
    (row,) = (each for each in minutes_of(output) if each["refused"])
    assert (row["broker"], row["refused"], row["refused_from"]) == ("broker-m", REFUSED, "metrics")
    assert dict(row["refused_by"]) == {"queue_timeout": 548, "page_cache_busy": 82}
    assert (row["stages_from"], row["gauges_from"], row["lock_from"]) == ("metrics", "metrics", "metrics")
    assert row["puts"] == 721
    assert 60 <= row["append_p99_ms"] <= 100
    assert row["lock_held_max_ms"] == pytest.approx(2500, rel=0.01)
    ((_, chains),) = result.incidents
    assert chains[0].number in (1, 2)
    assert any("pocketmq_refusals_total at" in text for step in chains[0].steps for text in step.evidence)


@pytest.mark.scenario
def test_logs_come_first_where_both_tell(spark: "SparkSession", tmp_path: Path) -> None:
    """With the whole log beside the metrics each refusal counts once, as the log has it; a queue is looked at twice."""
    shutil.copy(RECORDED / "broker-m.log.gz", tmp_path)
    logs, output = [str(tmp_path / "broker-m.log.gz")], tmp_path / "out"
    alone = analyze(spark, logs, str(tmp_path / "alone"), with_report=False)
    both = analyze(spark, logs, str(output), metrics=[str(RECORDED / "broker-m.prom.gz")], with_report=False)
    assert both.refused == alone.refused == REFUSED
    (row,) = (each for each in minutes_of(output) if each["refused"])
    assert (row["refused_from"], row["stages_from"], row["lock_from"]) == ("logs", "logs", "logs")
    assert row["gauges_from"] == "logs and metrics"
