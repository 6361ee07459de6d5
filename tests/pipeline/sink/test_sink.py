"""``format("pocketmq")`` as a sink: each row is read back once, or a refusal names the column."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pocketmq.client import Message, Producer, PullConsumer, ReceivedMessage
from pocketmq.testing import PocketBroker

pytest.importorskip("pyspark")
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


def read_topic(namesrv: str, topic: str) -> list[ReceivedMessage]:
    """Return all messages of a topic."""

    async def read() -> list[ReceivedMessage]:
        async with PullConsumer("reader", namesrv) as consumer:
            return [message async for message in consumer.stream(topic, start="earliest", stop_at_end=True)]

    return asyncio.run(read())


def numbers(spark: "SparkSession", count: int) -> "DataFrame":
    return spark.range(count, numPartitions=3).selectExpr(
        "cast(id as string) as body",
        "if(id % 2 = 0, 'even', 'odd') as tags",
        "concat('k', id) as keys",
        "concat('s', id % 7) as sharding_key",
        "map('half', cast(id div 2 as string), 'sort', 'number') as properties",
    )


def save(frame: "DataFrame", broker: PocketBroker, topic: str | None, **options: str) -> None:
    writer = frame.write.format("pocketmq").mode("append").option("namesrv", broker.namesrv).options(**options)
    if topic is not None:
        writer = writer.option("topic", topic)
    writer.save()


def refusal(work: Any) -> str:
    with pytest.raises(Exception) as caught:
        work()
    return str(caught.value)


@pytest.mark.parametrize("transactional", ["true", "false"])
def test_every_column_arrives(spark: "SparkSession", broker: PocketBroker, transactional: str) -> None:
    """Body, tags, keys, properties and sharding key equal those of the rows; rows of one key are in one queue, in their
    order.
    """
    topic = f"all-{transactional}"
    save(numbers(spark, 2000), broker, topic, transactional=transactional)
    messages = read_topic(broker.namesrv, topic)
    assert sorted(int(message.body) for message in messages) == list(range(2000))
    by_key: dict[str, list[ReceivedMessage]] = {}
    for message in messages:
        number = int(message.body)
        assert message.tags == ("odd" if number % 2 else "even")
        assert list(message.keys) == [f"k{number}"]
        assert message.properties["half"] == str(number // 2)
        by_key.setdefault(message.properties["__SHARDINGKEY"], []).append(message)
    assert len(by_key) == 7
    for of_key in by_key.values():
        assert len({message.queue_id for message in of_key}) == 1
        for first in range(3):  # of each task
            low, high = first * 2000 // 3, (first + 1) * 2000 // 3
            part = [int(message.body) for message in of_key if low <= int(message.body) < high]
            assert part == sorted(part)


def test_a_column_says_the_topic(spark: "SparkSession", broker: PocketBroker) -> None:
    """A row goes to its own topic; without one, to the option's topic; without both, the error names the row."""
    rows = [("1", "one"), ("2", "two"), ("3", None)]
    frame = spark.createDataFrame(rows, "body string, topic string").coalesce(1)
    save(frame, broker, "rest")
    assert [bytes(m.body) for topic in ("one", "two", "rest") for m in read_topic(broker.namesrv, topic)] == [
        b"1",
        b"2",
        b"3",
    ]
    assert "row 2 refused, column topic" in refusal(lambda: save(frame, broker, None))


def test_what_cannot_be_written_is_named(spark: "SparkSession", broker: PocketBroker) -> None:
    """A column before the job starts, a row by its number in the task; nothing of a refused job is there.

    ``test_sink_writers.py`` has the other refusals, without Spark.
    """
    frame = spark.range(3).selectExpr("cast(id as string) as body", "id as keys")
    text = refusal(lambda: save(frame, broker, "bad"))
    assert "column keys is bigint, not string" in text
    assert "cast it to string" in text
    good = spark.range(3).selectExpr("cast(id as string) as body")
    hole = spark.range(1000, numPartitions=2).selectExpr("if(id = 700, null, cast(id as string)) as body")
    assert "row 200 refused, column body: it is null" in refusal(lambda: save(hole, broker, "bad"))
    overwrite = good.write.format("pocketmq").mode("overwrite").options(namesrv=broker.namesrv, topic="bad")
    assert "cannot be overwritten" in refusal(overwrite.save)
    save(good, broker, "bad")
    assert sorted(int(message.body) for message in read_topic(broker.namesrv, "bad")) == [0, 1, 2]


def test_a_repeated_job_changes_nothing(spark: "SparkSession", broker: PocketBroker) -> None:
    """A batch write with its own identity, as Delta's: the same version again is dropped, the next one is not."""
    frame = spark.range(50).selectExpr("cast(id as string) as body")
    for version in ("0", "0", "1"):
        save(frame, broker, "job", txnAppId="nightly", txnVersion=version)
    assert len(read_topic(broker.namesrv, "job")) == 100


@contextlib.contextmanager
def query(spark: "SparkSession", broker: PocketBroker, source: str, topic: str, directory: Path) -> Iterator[Any]:
    """Copy a topic to another, up to its present end."""
    read = spark.readStream.format("pocketmq").options(
        namesrv=broker.namesrv, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="100"
    )
    frame = read.schema("body binary, tags string, keys string").load()
    write = frame.writeStream.format("pocketmq").options(namesrv=broker.namesrv, topic=topic)
    started = write.option("checkpointLocation", str(directory)).trigger(availableNow=True).start()
    try:
        yield started
    finally:
        started.stop()


def send(namesrv: str, topic: str, first: int, count: int) -> None:
    async def run() -> None:
        async with Producer("source", namesrv) as producer:
            await producer.send_batch([Message(topic, b"%d" % number) for number in range(first, first + count)])

    asyncio.run(run())


def numbers_in(broker: PocketBroker, topic: str) -> list[int]:
    return sorted(int(message.body) for message in read_topic(broker.namesrv, topic))


def test_a_micro_batch_that_comes_again_changes_nothing(
    spark: "SparkSession", broker: PocketBroker, tmp_path: Path
) -> None:
    """The driver is gone between the commit of the sink and that of Spark: Spark writes the last micro-batch again,
    with the same number."""
    send(broker.namesrv, "in", 0, 150)
    checkpoint = tmp_path / "checkpoint"
    with query(spark, broker, "in", "out", checkpoint) as running:
        assert running.awaitTermination(120)
    assert numbers_in(broker, "out") == list(range(150))
    commits = sorted((checkpoint / "commits").glob("[0-9]*"))
    last = commits[-1]
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink()
    send(broker.namesrv, "in", 150, 30)
    with query(spark, broker, "in", "out", checkpoint) as running:
        assert running.awaitTermination(120)
    assert numbers_in(broker, "out") == list(range(180))


@pytest.mark.soak
def test_a_new_checkpoint_is_a_new_query(spark: "SparkSession", broker: PocketBroker, tmp_path: Path) -> None:
    """The sink does not take its micro-batches for the old query's: both write all."""
    send(broker.namesrv, "old", 0, 250)
    for name in ("one", "another"):
        with query(spark, broker, "old", "twice", tmp_path / name) as running:
            assert running.awaitTermination(120)
    assert numbers_in(broker, "twice") == sorted([*range(250), *range(250)])
