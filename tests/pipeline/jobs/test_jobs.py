"""The jobs on flights: archived, merged, replayed, compared, tampered with, and compared again."""

import asyncio
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pocketmq.client.admin.admin import Admin
from pocketmq.common.errors import ConfigError
from pocketmq.pipeline.jobs.archive import command as archive
from pocketmq.pipeline.jobs.archive.files import LocalFiles
from pocketmq.pipeline.jobs.archive.publishing import Publisher
from pocketmq.pipeline.jobs.common.command import JobFailed
from pocketmq.pipeline.jobs.dedupe import command as dedupe
from pocketmq.pipeline.jobs.reconcile import command as reconcile
from pocketmq.pipeline.jobs.replay import command as replay
from pocketmq.pipeline.jobs.replay import sending
from pocketmq.pipeline.jobs.replay.state import Journal
from pocketmq.testing import PocketBroker
from tests.pipeline.jobs.flights import send_flights

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
COUNT = 1200
Run = Callable[..., Any]


async def create(namesrv: str, *topics: str) -> None:
    async with Admin(namesrv) as admin:
        for topic in topics:
            await admin.create_topic(topic, queues=4)


@pytest.fixture
def run(broker: PocketBroker, spark: SparkSession, capsys: Any, tmp_path: Path, monkeypatch: Any) -> Run:
    """Run a job in this process and return its output, and the exit code as ``exit``."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    capsys.readouterr()

    def call(job: Callable[..., None], *args: Any, **options: Any) -> Any:
        code = 0
        try:
            job(*args, namesrv=broker.namesrv, broker_wait_ms=3000, as_json=True, **options)
        except typer.Exit as end:
            code = end.exit_code
        return json.loads(capsys.readouterr().out) | {"exit": code}

    return call


@pytest.fixture(scope="module")
def archived(broker: PocketBroker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Put flights into the topic ``flights`` and into an archive, written by two runs of several batches."""
    path = tmp_path_factory.mktemp("flights") / "the archive"
    asyncio.run(create(broker.namesrv, "flights", "copy", "cut", "clean"))
    for start, end in ((0, COUNT - 200), (COUNT - 200, COUNT)):
        asyncio.run(send_flights(broker.namesrv, "flights", start, end))
        archive.archive("flights", str(path), namesrv=broker.namesrv, batch_rows=700, compact=False)
    return path


def test_an_archive_holds_each_message_once(run: Run, archived: Path, spark: SparkSession) -> None:
    """The second run adds the new messages; merging changes no row; a run without new messages is no error."""
    before = spark.read.parquet(str(archived))
    assert before.count() == COUNT
    assert {row["keys"] for row in before.select("keys").distinct().collect()} == {f"f{n}" for n in range(COUNT)}
    stamps = before.select(F.date_format("store_timestamp", "yyyy-MM-dd HH").alias("a"), "date", "hour").distinct()
    assert all(row["a"] == f"{row['date']} {row['hour']:02d}" for row in stamps.collect())
    many = len(LocalFiles(archived).sizes(""))
    hours = stamps.count()
    result = run(archive.archive, "flights", str(archived), min_files=2)
    assert result == {
        "rows": 0,
        "directories_merged": hours,
        "files_before": many,
        "files_after": hours,
        "rows_merged": COUNT,
        "exit": 0,
    }
    assert len(LocalFiles(archived).sizes("")) == hours


@pytest.mark.scenario
def test_a_batch_that_was_cut_off_comes_once(
    run: Run, archived: Path, broker: PocketBroker, spark: SparkSession, tmp_path: Path, monkeypatch: Any
) -> None:
    """The job ends after the files are moved and before Spark knows; Spark repeats the batch, and nothing is twice."""
    path = tmp_path / "cut"
    publish = Publisher.publish

    def cut_off(self: Publisher, batch: int, write: Any) -> Any:
        publish(self, batch, write)
        raise RuntimeError("cut off")

    monkeypatch.setattr(Publisher, "publish", cut_off)
    with pytest.raises(JobFailed, match="cut off"):
        run(archive.archive, "flights", str(path))
    monkeypatch.setattr(Publisher, "publish", publish)
    assert spark.read.parquet(str(path)).count() == COUNT
    assert run(archive.archive, "flights", str(path))["rows"] == COUNT
    assert spark.read.parquet(str(path)).count() == COUNT


@pytest.mark.soak
def test_a_replay_is_equal_and_a_tampered_table_is_not(
    run: Run, archived: Path, broker: PocketBroker, spark: SparkSession, tmp_path: Path
) -> None:
    """After a replay the topics are equal, order included. Then three messages are dropped, two doubled, two swapped,
    three delayed and one is altered: exactly these are found; without the doubled ones no duplicate is reported.
    """
    plan = run(replay.replay, str(archived), "copy", dry_run=True, rate=100)
    assert (plan["rows"], plan["takes_s"], plan["without_body"]) == (COUNT, COUNT / 100, 0)
    assert run(replay.replay, str(archived), "copy")["rows"] == COUNT
    same = run(reconcile.reconcile, str(archived), "topic:copy", delay_ms=60_000, shift="median")
    assert (same["exit"], same["matched"], same["reordered"], same["delayed"]) == (0, COUNT, 0, 0)
    copied = spark.read.format("pocketmq").option("namesrv", broker.namesrv).option("subscribe", "copy")
    one_copy = copied.option("includeProperties", "true").load().where("keys = 'f7'").collect()[0]
    [body] = [row["body"] for row in spark.read.parquet(str(archived)).where("keys = 'f7'").collect()]
    flight = json.loads(bytes(body))
    assert (one_copy["tags"], one_copy["properties"]["dest"]) == (flight["origin"], flight["dest"])
    assert one_copy["properties"]["__SHARDINGKEY"] == flight["carrier"]

    table = spark.read.parquet(str(archived))
    queues: dict[int, list[dict[str, Any]]] = {}
    for each in table.orderBy("queue_id", "queue_offset").collect():
        queues.setdefault(each["queue_id"], []).append(each.asDict())
    longest = max(queues.values(), key=len)
    dropped = [longest.pop(at) for at in (100, 50, 3)]
    one, two = longest[10], longest[40]
    one["queue_offset"], two["queue_offset"] = two["queue_offset"], one["queue_offset"]
    late = longest[60:63]
    for row in late:
        row["store_timestamp"] += datetime.timedelta(seconds=9)
    longest[70]["body"] += b" "
    doubled = [row | {"queue_offset": 10**6 + row["queue_offset"]} for row in longest[20:22]]
    rows_now: Any = [row for queue in queues.values() for row in queue] + doubled
    spark.createDataFrame(rows_now, table.schema).coalesce(1).write.parquet(str(tmp_path / "tampered"))
    output = tmp_path / "check"
    found = run(
        reconcile.reconcile, "topic:flights", str(tmp_path / "tampered"), delay_ms=5000, output=str(output), examples=9
    )
    expected = {
        "lost": {row["keys"] for row in dropped},
        "duplicated": {row["keys"] for row in doubled},
        "reordered": {one["keys"], two["keys"]},
        "delayed": {row["keys"] for row in late},
        "altered": {longest[70]["keys"]},
    }
    assert {kind: {row["id"] for row in each} for kind, each in found["examples"].items()} == expected
    assert {kind: found[kind] for kind in expected} == {kind: len(each) for kind, each in expected.items()}
    assert (found["exit"], found["equal"], found["expected"], found["actual"]) == (1, False, COUNT, COUNT - 1)
    assert json.loads((output / "summary.json").read_text())["lost"] == 3
    assert spark.read.parquet(str(output / "differences")).count() == 11
    with pytest.raises(JobFailed, match="output exists"):
        run(reconcile.reconcile, "topic:flights", "topic:copy", output=str(output))

    once = run(dedupe.dedupe, str(tmp_path / "tampered"), str(tmp_path / "once"))
    assert once == {"rows": COUNT - 1, "kept": COUNT - 3, "duplicates": 2, "without_key": 0, "exit": 0}
    kept = spark.read.parquet(str(tmp_path / "once"))
    assert kept.count() == kept.select("keys").distinct().count() == COUNT - 3
    assert kept.where(F.col("queue_offset") >= 10**6).count() == 0
    with pytest.raises(JobFailed, match="output exists"):
        run(dedupe.dedupe, str(tmp_path / "tampered"), str(tmp_path / "once"))


@pytest.mark.soak
def test_a_replay_that_was_cut_off_goes_on(
    run: Run, archived: Path, broker: PocketBroker, spark: SparkSession, monkeypatch: Any
) -> None:
    """A group that was acknowledged and not recorded is sent again; no row is lost, and the others are sent once. A
    topic without the doubled ones equals the archive again, order included.
    """
    monkeypatch.setattr(sending, "GROUP_ROWS", 200)
    reach = Journal.reach

    def cut_off(self: Journal, count: int, key: Any, *, done: bool = False) -> None:
        if count > 600:
            raise JobFailed("cut off")
        reach(self, count, key, done=done)

    monkeypatch.setattr(Journal, "reach", cut_off)
    with pytest.raises(JobFailed, match="cut off"):
        run(replay.replay, str(archived), "cut")
    monkeypatch.setattr(Journal, "reach", reach)
    assert run(replay.replay, str(archived), "cut") == {
        "rows": COUNT - 600,
        "before": 600,
        "repeated": 0,
        "skipped": 0,
        "exit": 0,
    }
    with pytest.raises(JobFailed, match="replayed before"):
        run(replay.replay, str(archived), "cut")

    clean = run(dedupe.dedupe, "topic:cut", "topic:clean")
    assert clean == {"rows": COUNT + 200, "kept": COUNT, "duplicates": 200, "without_key": 0, "exit": 0}
    assert run(reconcile.reconcile, str(archived), "topic:clean")["exit"] == 0


@pytest.mark.scenario
def test_a_growing_topic_is_deduped_run_by_run(
    run: Run, broker: PocketBroker, spark: SparkSession, tmp_path: Path
) -> None:
    """Copies that arrive between two runs are dropped; a new key is kept. An archive that began at the end of the
    topic, without new messages, has all later ones.
    """
    asyncio.run(send_flights(broker.namesrv, "grow", 0, 100))
    places = {"within": "10m", "checkpoint": str(tmp_path / "checkpoint")}
    late = run(archive.archive, "grow", str(tmp_path / "late"), starting="latest")
    assert late["rows"] == 0
    first = run(dedupe.dedupe, "topic:grow", str(tmp_path / "once"), **places)
    assert first == {"rows": 100, "kept": 100, "duplicates": 0, "late": 0, "exit": 0}
    asyncio.run(send_flights(broker.namesrv, "grow", 60, 130))
    second = run(dedupe.dedupe, "topic:grow", str(tmp_path / "once"), **places)
    assert second == {"rows": 70, "kept": 30, "duplicates": 40, "late": 0, "exit": 0}
    keys = [row["keys"] for row in spark.read.parquet(str(tmp_path / "once")).select("keys").collect()]
    assert sorted(keys) == sorted(f"f{n}" for n in range(130))
    assert run(archive.archive, "grow", str(tmp_path / "late"), starting="latest")["rows"] == 70


def test_what_cannot_be_done_is_reported(run: Run, archived: Path, broker: PocketBroker, tmp_path: Path) -> None:
    """Unknown topics and columns, missing paths, existing outputs: an error with its reason, and nothing written."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    cases: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (Exception, "topic none not found", lambda: run(archive.archive, "none", str(tmp_path / "a"))),
        (JobFailed, "not empty and no archive", lambda: run(archive.archive, "flights", str(tmp_path / "full"))),
        (
            JobFailed,
            "not empty and no archive",
            lambda: run(archive.archive, "flights", str(tmp_path / "full"), overwrite=True),
        ),
        (JobFailed, "topic flights, not copy", lambda: run(archive.archive, "copy", str(archived))),
        (JobFailed, "no such path", lambda: run(replay.replay, str(tmp_path / "none"), "copy")),
        (Exception, "topic none not found", lambda: run(replay.replay, str(archived), "none")),
        (ConfigError, "no such column: row", lambda: run(replay.replay, str(archived), "copy", body="row")),
        (ConfigError, "exclude", lambda: run(replay.replay, str(archived), "copy", rate=1, speed=1)),
        (JobFailed, "no such rows", lambda: run(replay.replay, str(archived), "copy", until="2001-01-01")),
        (ConfigError, "no kies", lambda: run(reconcile.reconcile, "topic:flights", str(archived), by=["kies"])),
        (JobFailed, "no such path", lambda: run(reconcile.reconcile, "topic:flights", str(tmp_path / "none"))),
        (ConfigError, "are the same", lambda: run(dedupe.dedupe, str(archived), str(archived))),
        (ConfigError, "bad --within", lambda: run(dedupe.dedupe, str(archived), str(tmp_path / "d"), within="soon")),
    ]
    for kind, text, call in cases:
        with pytest.raises(kind, match=text):
            call()
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "state") == ["full"]
