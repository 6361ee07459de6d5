"""A topic as a table, against a real broker and a real Spark."""

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from pocketmq.client import Message, Producer
from pocketmq.client.admin.admin import Admin
from pocketmq.testing import PocketBroker

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
COUNT = 6000


async def send(namesrv: str, topic: str, count: int, start: int = 0) -> None:
    """Send ``count`` numbered messages, with the tag odd or even."""
    async with Producer(group="test", namesrv=namesrv) as producer:
        for at in range(start, start + count, 500):
            numbers = range(at, min(at + 500, start + count))
            await producer.send_batch(
                [Message(topic, b"%d" % n, tags="odd" if n % 2 else "even", keys=[f"k{n}"]) for n in numbers]
            )


@pytest.fixture(scope="module")
def table(broker: PocketBroker, spark: SparkSession) -> DataFrame:
    """Fill a topic with 6,000 messages in four queues."""
    asyncio.run(send(broker.namesrv, "numbers", COUNT))
    return read(spark, broker).load()


def read(spark: SparkSession, broker: PocketBroker, topic: str = "numbers") -> DataFrameReader:
    """Return a reader of one topic."""
    return (
        spark.read.format("pocketmq")
        .option("namesrv", broker.namesrv)
        .option("subscribe", topic)
        .option("brokerWaitMs", 3000)
    )


def error_of(run: Any) -> str:
    """Return the text of the error that Spark raises."""
    with pytest.raises(PySparkException) as caught:
        run()
    return str(caught.value)


def test_every_message_is_one_row(table: DataFrame) -> None:
    """Bodies, tags and keys equal the sent ones; offsets are unique by queue."""
    rows = table.select("body", "tags", "keys", "queue_id", "queue_offset", "msg_id", "store_timestamp").collect()
    assert sorted(int(bytes(row.body)) for row in rows) == list(range(COUNT))
    assert all(row.tags == ("odd" if int(bytes(row.body)) % 2 else "even") for row in rows)
    assert all(row["keys"] == f"k{int(bytes(row.body))}" for row in rows)
    assert len({(row.queue_id, row.queue_offset) for row in rows}) == len({row.msg_id for row in rows}) == COUNT


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    """Allow sources that take filters, which Spark refuses by default."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


@pytest.mark.usefixtures("pushing")
def test_pushed_filters_change_no_result(broker: PocketBroker, table: DataFrame, spark: SparkSession) -> None:
    """Pushed filters only save reading. Each query loads again: otherwise Spark mixes up their filters."""
    rows = table.select("tags", "queue_offset", "queue_id", "store_timestamp").collect()
    times = sorted({row.store_timestamp for row in rows})
    middle = times[len(times) // 2]
    conditions: list[tuple[Any, Any]] = [
        (F.col("tags") == "odd", lambda row: row.tags == "odd"),
        (
            (F.col("queue_offset") >= 100) & (F.col("queue_offset") < 200) & F.col("queue_id").isin(0, 3),
            lambda row: 100 <= row.queue_offset < 200 and row.queue_id in (0, 3),
        ),
        (F.col("store_timestamp") >= middle, lambda row: row.store_timestamp >= middle),
        (
            (F.col("store_timestamp") == middle) & (F.col("tags") == "even"),
            lambda row: row.store_timestamp == middle and row.tags == "even",
        ),
        (F.col("topic").startswith("other"), lambda row: False),
    ]
    expected = [sum(wanted(row) for row in rows) for _, wanted in conditions]
    pushing = [read(spark, broker).option("pushFilters", "true").load().where(each).count() for each, _ in conditions]
    assert pushing == expected
    log = spark.read.format("pocketmq-log").option("topics", "numbers").option("pushFilters", "true")
    assert [log.load(str(broker.data_dir)).where(each).count() for each, _ in conditions[1:4]] == expected[1:4]
    assert expected[0] == COUNT // 2
    assert 0 < expected[2] < COUNT


def test_a_narrow_schema_is_served_in_its_order(broker: PocketBroker, spark: SparkSession, table: DataFrame) -> None:
    """Any subset and order of columns; other names and types are refused with the right ones."""
    narrow = read(spark, broker).schema("tags string, queue_offset long").load()
    assert narrow.columns == ["tags", "queue_offset"]
    assert narrow.where("tags = 'even'").count() == COUNT // 2
    with_map = read(spark, broker).option("includeProperties", "true").load()
    assert with_map.select("properties").first()[0]["KEYS"].startswith("k")  # type: ignore[index]
    wrong = read(spark, broker).schema("bodi binary").load()
    assert "did you mean body" in error_of(wrong.count)
    wrong = read(spark, broker).schema("body string").load()
    assert "body is binary, not string" in error_of(wrong.count)


def test_bounds_choose_a_part(broker: PocketBroker, spark: SparkSession, table: DataFrame) -> None:
    """Offsets queue by queue, and times."""
    name = table.select("broker").first()[0]  # type: ignore[index]
    part = read(spark, broker).option("startingOffsets", f'{{"numbers": {{"{name}": {{"0": 10, "1": -1}}}}}}').load()
    counts = {row.queue_id: row["count"] for row in part.groupBy("queue_id").count().collect()}
    whole = {row.queue_id: row["count"] for row in table.groupBy("queue_id").count().collect()}
    assert counts.get(0, 0) == whole[0] - 10
    assert 1 not in counts
    times = sorted(row[0] for row in table.select("store_timestamp").distinct().collect())
    middle = times[len(times) // 2].astimezone(UTC)
    later = read(spark, broker).option("startingTimestamp", int(middle.timestamp() * 1000)).load().count()
    assert later == table.where(F.col("store_timestamp") >= middle).count()


def test_reading_errors_name_their_cause(broker: PocketBroker, spark: SparkSession) -> None:
    """Unknown topic, unreachable name server, offset outside the queue."""
    assert "topic missing not found" in error_of(read(spark, broker, "missing").load().count)
    away = spark.read.format("pocketmq").option("namesrv", "127.0.0.1:1").option("subscribe", "numbers")
    assert "waited 100 ms" in error_of(away.option("brokerWaitMs", 100).load().count)
    outside = read(spark, broker).option("startingOffsets", '{"numbers": {"pocket": {"0": 999999}}}').load()
    assert "999999" in error_of(outside.count)


def stream(spark: SparkSession, broker: PocketBroker, topic: str, directory: Path, **options: str) -> Any:
    """Run a query up to the present end of a topic; return it."""
    source = spark.readStream.format("pocketmq").option("namesrv", broker.namesrv).option("subscribe", topic)
    query = (
        source.options(startingOffsets="earliest", brokerWaitMs="3000", **options)
        .load()
        .writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with contextlib.suppress(StreamingQueryException):
        query.awaitTermination(60)
    return query


def test_a_stream_reads_everything_once(broker: PocketBroker, spark: SparkSession, tmp_path: Path) -> None:
    """Micro-batches keep to their limit; a restart continues at the checkpoint."""
    asyncio.run(send(broker.namesrv, "flow", 3000))
    query = stream(spark, broker, "flow", tmp_path, maxOffsetsPerTrigger="1200", group="lag")
    assert query.exception() is None
    assert [progress["numInputRows"] for progress in query.recentProgress] == [1200, 1200, 600]
    asyncio.run(send(broker.namesrv, "flow", 500, 3000))
    assert stream(spark, broker, "flow", tmp_path).exception() is None
    bodies = [int(bytes(row.body)) for row in spark.read.parquet(str(tmp_path / "out")).select("body").collect()]
    assert sorted(bodies) == list(range(3500))

    async def lag() -> int:
        async with Admin(broker.namesrv) as admin:
            return (await admin.describe_group("lag")).lag

    assert asyncio.run(lag()) == 500  # the second run has no group


@pytest.mark.soak
def test_a_topic_created_again_stops_the_stream(broker: PocketBroker, spark: SparkSession, tmp_path: Path) -> None:
    """The checkpoint belongs to the deleted topic, even if the new one has grown past it."""

    async def again() -> None:
        async with Admin(broker.namesrv) as admin:
            await admin.delete_topic("renewed")
        await send(broker.namesrv, "renewed", 2000)

    asyncio.run(send(broker.namesrv, "renewed", 500))
    assert stream(spark, broker, "renewed", tmp_path).exception() is None
    asyncio.run(again())
    query = stream(spark, broker, "renewed", tmp_path)
    assert "created again" in str(query.exception())


def test_a_store_is_a_table_without_its_broker(broker: PocketBroker, spark: SparkSession, table: DataFrame) -> None:
    """The directory of the running broker holds the same messages."""
    log = spark.read.format("pocketmq-log").load(str(broker.data_dir))
    numbers = log.where("topic = 'numbers'")
    assert numbers.count() == COUNT
    columns = ["queue_id", "queue_offset", "msg_id", "tags", "keys", "body", "store_timestamp"]
    assert numbers.select(columns).exceptAll(table.select(columns)).count() == 0
    assert "no store" in error_of(spark.read.format("pocketmq-log").load(str(broker.data_dir / "none")).count).lower()
