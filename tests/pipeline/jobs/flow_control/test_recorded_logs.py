"""The whole job on logs that real brokers wrote while scenarios ran, with a rotated file and rubbish among them.

``logs/`` holds what brokers and the client wrote in ``pocketmq scenario`` runs (pcbusy, timeout-clean-queue,
slave-readonly; the first broker's part, paths replaced): nothing in it is made up.
"""

import gzip
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pocketmq.cli.pipeline import build_app
from pocketmq.client.trace.trace_format import TraceRecord, TraceType
from pocketmq.common.errors import ConfigError
from pocketmq.pipeline.jobs.flow_control.run import analyze
from tests.pipeline.jobs.flow_control.test_rocketmq_logs import explained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGS = Path(__file__).parent / "logs"
ROCKETMQ_LOGS = Path(__file__).parent / "rocketmq_logs" / "4.9" / "pool-deficient"
EVIL = "<script>alert('log')</script>"


def build_logs(directory: Path) -> None:
    """Lay the recorded logs out as a machine has them: one rotated and packed, one with rubbish, one of a stranger.

    Beside them are those of a RocketMQ 4.9 and its client.
    """
    shutil.copytree(LOGS, directory)
    shutil.copytree(ROCKETMQ_LOGS, directory / "rocketmq")
    recorded = (LOGS / "page-cache" / "broker.log").read_bytes().splitlines(keepends=True)
    (directory / "page-cache" / "broker.log.1.gz").write_bytes(gzip.compress(b"".join(recorded[:30])))
    rest = [*recorded[30:], b"not JSON at all\n", b'{"timestamp":"2026-11-21T17:45', b"\n"]
    (directory / "page-cache" / "broker.log").write_bytes(b"".join(rest))
    stranger = {
        "timestamp": "2026-11-21T17:00:00.000Z",
        "level": "warning",
        "logger": "broker",
        "event": "refused_queue_timeout",
        "code": 2,
        "remark": f"[TIMEOUT_CLEAN_QUEUE]{EVIL}",
        "count": 3,
    }
    (directory / "stranger.log").write_text(json.dumps(stranger) + "\n")


@pytest.fixture(scope="module")
def output(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One run of the command over all recorded logs, with traces: the directory and the summary."""
    base = tmp_path_factory.mktemp("flow-control")
    bodies = []
    for second in range(20):
        record = TraceRecord(
            trace_type=TraceType.PUB,
            msg_id=f"{second}",
            timestamp_ms=1_795_283_100_000 + second * 100,
            topic="orders",
            group="g",
            cost_ms=10 * second,
            success=second % 10 != 0,
        )
        bodies.append(record.encode().encode())
    pq.write_table(pa.table({"body": pa.array([*bodies, b"\x00\xff rubbish", None])}), base / "traces.parquet")
    build_logs(base / "logs")
    words = ["flow-control", "--logs", str(base / "logs"), "--traces", str(base / "traces.parquet"), "--json"]
    words += ["--client-zone", "UTC"]
    answer = CliRunner().invoke(build_app(), [*words, "--output", str(base / "out")])
    assert answer.exit_code == 0, answer.output
    return base / "out", json.loads(answer.stdout)


def table(output: tuple[Path, dict[str, Any]], name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(output[0] / name).to_pylist()
    return rows


@pytest.mark.slow
def test_each_incident_has_its_chain_of_causes(output: tuple[Path, dict[str, Any]]) -> None:
    """The classes, the order from cause to effect, and numbers that are those of the scenarios' clients."""
    found = {row["broker"]: row for row in table(output, "incidents")}
    busy = found["broker-1a"]
    texts = [step["step"] for step in busy["chain"]]
    assert (busy["class"], busy["complete"], busy["scenario"]) == (2, True, "pcbusy")
    assert {step["class"] for step in busy["chain"]} == {2}
    assert "fault.enable" in texts[0]
    assert "3,501 ms" in next(text for text in texts if "An append took" in text)
    assert "page cache counts as busy" in texts[-3]
    assert (busy["refused"], busy["sends_ended"]) == (350, 351), "one send ended in the stuck append: it had no answer"
    queue = found["broker-2a"]
    assert (queue["class"], queue["refused"], queue["sends_ended"]) == (1, 2038, 2038)
    assert "because appends were slow" in queue["summary"]
    slave = found["pair-1"]
    assert (slave["class"], slave["refused"], slave["sends_ended"]) == (4, 0, 8128)
    assert "slave's disk failed" in slave["chain"][0]["step"]
    assert "slave/slave.log" in slave["chain"][0]["evidence"][0], "a slave's log and its master's are one incident"
    stranger = next(row for broker, row in found.items() if broker.endswith("stranger.log"))
    assert "do not show" in stranger["summary"]
    assert not stranger["complete"]
    assert stranger["missing"]
    assert len(found) == output[1]["incidents"] == 5


@pytest.mark.slow
def test_one_process_finds_what_spark_finds(output: tuple[Path, dict[str, Any]]) -> None:
    """The incidents of the job are those of ``pocketmq explain --log``: numbers, chains, evidence."""
    of_spark = {
        (row["id"], row["minutes"], row["refused"], row["sends_ended"], row["summary"]): {
            (step["step"], *step["evidence"]) for step in row["chain"]
        }
        for row in table(output, "incidents")
    }
    of_tally = {
        (incident.id, incident.minutes, incident.refused, incident.sends_ended, chains[0].summary): {
            (step.text, *step.evidence) for chain in chains for step in chain.steps
        }
        for incident, chains in explained(output[0].parent / "logs")
    }
    assert of_spark == of_tally
    assert "rocketmq-a" in {name.partition("@")[0] for name, *_ in of_spark}


@pytest.mark.slow
def test_the_tables_hold_what_the_logs_say(output: tuple[Path, dict[str, Any]]) -> None:
    """Minutes, evidence and traces as Parquet."""
    minutes = table(output, "minute")
    assert sum(row["refused"] for row in minutes) == output[1]["refused"] == 350 + 2038 + 3 + 11
    worst = next(row for row in minutes if row["broker"] == "broker-2a" and row["refused"])
    assert dict(worst["refused_by"]) == {"[TIMEOUT_CLEAN_QUEUE] queue_timeout": 2037, "queue_timeout": 1}
    assert 100 <= worst["append_p50_ms"] <= worst["append_p99_ms"] < 110
    assert worst["send_head_wait_max_ms"] >= 200
    assert max(row["slave_behind_max_ms"] or 0 for row in minutes) > 30_000
    assert max(row["lock_held_max_ms"] or 0 for row in minutes if row["broker"] == "broker-1a") >= 3500
    assert all(row["file"] and row["line"] >= 1 for row in table(output, "evidence"))
    (traced,) = table(output, "traces")
    assert (traced["topic"], traced["sends"], traced["failed"], traced["max_ms"]) == ("orders", 20, 2, 190.0)


@pytest.mark.slow
def test_the_report_is_one_safe_page(output: tuple[Path, dict[str, Any]]) -> None:
    """It contains its pictures and loads nothing; the text of a log stays text."""
    text = (output[0] / "report.html").read_text()
    assert text.count("<svg") == 5
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert 'src="http' not in text
    assert "pocketmq scenario slave-readonly" in text


@pytest.mark.slow
def test_what_was_passed_over_is_counted(output: tuple[Path, dict[str, Any]]) -> None:
    """The counts include the rubbish, and no line is lost or counted twice over a rotation."""
    lines = sum(len(path.read_bytes().splitlines()) for path in LOGS.rglob("*.log"))
    of_rocketmq = [path.read_bytes().splitlines() for path in ROCKETMQ_LOGS.rglob("*.log")]
    counts = output[1]["counts"]
    assert counts["events"] + counts["continued"] == lines + 1 + sum(map(len, of_rocketmq))
    assert (counts["broken"], counts["foreign"], counts["files"]) == (1, 1, 9 + len(of_rocketmq))


@pytest.mark.slow
def test_nothing_is_replaced_unasked(
    spark: "SparkSession", output: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """An earlier report stays without --overwrite; a directory with other content always stays."""
    logs = [str(LOGS / "queue" / "broker.log")]
    with pytest.raises(ConfigError, match="the output exists"):
        analyze(spark, logs, str(output[0]))
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ConfigError, match="not a report"):
        analyze(spark, logs, str(tmp_path), overwrite=True)


@pytest.mark.scenario
def test_logs_without_an_event_make_an_empty_report(spark: "SparkSession", tmp_path: Path) -> None:
    """Plain text and empty files: no incident, a hint, exit code 0, and tables with the same columns; in two runs."""
    (tmp_path / "app.log").write_text("plain text\n")
    (tmp_path / "empty.log").touch()
    words = ["flow-control", "--logs", str(tmp_path), "--output", str(tmp_path / "out"), "--overwrite"]
    for _ in range(2):
        answer = CliRunner().invoke(build_app(), words)
        assert answer.exit_code == 0, answer.output
        assert "no event of PocketMQ" in answer.stderr
        assert "foreign 1" in answer.stderr
        assert "empty_files 1" in answer.stderr
    assert pq.read_table(tmp_path / "out" / "minute").num_rows == 0
    assert "append_p99_ms" in pq.read_schema(next((tmp_path / "out" / "minute").glob("*.parquet"))).names
    assert "None: no request was refused" in (tmp_path / "out" / "report.html").read_text()
