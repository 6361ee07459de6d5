"""Rows with a delay, and a topic that is copied with its keys and properties."""

import asyncio
import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pocketmq.client import Message, Producer, PullConsumer
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.pipeline.errors import OptionIllegal, SchemaIllegal
from pocketmq.pipeline.options import Options
from pocketmq.pipeline.sink.sink import TopicWriter
from pocketmq.pipeline.sink.sink_plan import SINK_OPTIONS
from pocketmq.pipeline.source.columns import TYPES
from pocketmq.pipeline.source.source import PocketMQSource
from pocketmq.testing import PocketBroker

TEXTS = MapType(StringType(), StringType())
DELAYS = StructType(
    [
        StructField("body", BinaryType()),
        StructField("delay_level", IntegerType()),
        StructField("deliver_at", TimestampType()),
    ]
)
TIME = pa.timestamp("us", tz="UTC")
WAIT_MS = 60_000


@pytest.fixture(scope="module")
def pocket() -> Iterator[PocketBroker]:
    """Start one broker for the module."""
    with PocketBroker() as running:
        yield running


def writer(broker: PocketBroker, schema: StructType, **values: str) -> TopicWriter:
    return TopicWriter(
        Options({"namesrv": broker.namesrv, "brokerWaitMs": "5000", **values}, SINK_OPTIONS), schema, False
    )


def write(broker: PocketBroker, schema: StructType, batch: pa.RecordBatch, **values: str) -> int:
    """Write rows as a task and commit them; return how many the task counts."""
    sink = writer(broker, schema, **values)
    message = sink.write(iter([batch]))
    sink.commit([message])
    return message.part.rows


def rows(*given: tuple[bytes, int | None, datetime.datetime | None]) -> pa.RecordBatch:
    bodies, levels, times = zip(*given, strict=True)
    return pa.record_batch(
        {"body": pa.array(bodies), "delay_level": pa.array(levels, pa.int32()), "deliver_at": pa.array(times, TIME)}
    )


async def received(broker: PocketBroker, topic: str, count: int) -> list[ReceivedMessage]:
    """Return the first ``count`` messages of a topic; wait for them."""
    found: list[ReceivedMessage] = []
    async with PullConsumer("reader", broker.namesrv) as consumer:
        while len(found) < count:
            part = await consumer.poll(topic, max_messages=count, timeout_ms=WAIT_MS)
            assert part, f"{len(found)} of {count} within {WAIT_MS} ms"
            found += part
    return found


def test_rows_are_delivered_at_their_time(pocket: PocketBroker) -> None:
    """At once, after a level, at a time that has passed, and not before a time that is far."""
    past = datetime.datetime(1969, 1, 1, tzinfo=datetime.UTC)
    far = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=2)
    batch = rows((b"now", None, None), (b"level", 1, None), (b"past", 0, past), (b"far", None, far))
    assert write(pocket, DELAYS, batch, topic="later", transactional="false") == 4
    found = asyncio.run(received(pocket, "later", 3))
    assert sorted(message.body for message in found) == [b"level", b"now", b"past"]
    by_body = {message.body: message for message in found}
    assert by_body[b"level"].store_timestamp - by_body[b"now"].store_timestamp >= 500  # its level is a second


def test_a_transaction_holds_no_delayed_rows(pocket: PocketBroker) -> None:
    """The error comes when the query is planned and says what works."""
    with pytest.raises(OptionIllegal, match=r'column delay_level .*"transactional", "false"'):
        writer(pocket, DELAYS, topic="later")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((b"x", 3, datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)), "row 1 refused: it has delay_level and"),
        ((b"x", -1, None), "row 1 refused: .*delay_time_level"),
        ((b"", 3, None), "row 1 refused, column body: it is empty"),
    ],
)
def test_a_bad_delay_is_named_by_its_row(pocket: PocketBroker, row: Any, words: str) -> None:
    with pytest.raises(PocketMQError, match=words):
        write(pocket, DELAYS, rows((b"good", None, None), row), topic="bad-delays", transactional="false")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("delay_level", StringType(), "delay_level is string, not int .*cast it to int"),
        ("deliver_at", IntegerType(), "deliver_at is int, not timestamp .*cast it to timestamp"),
        ("delay_time_level", IntegerType(), "did you mean delay_level"),
        ("user_properties", StringType(), "user_properties is string, not map"),
    ],
)
def test_a_column_of_another_type_is_refused(pocket: PocketBroker, name: str, kind: Any, words: str) -> None:
    schema = StructType([StructField("body", BinaryType()), StructField(name, kind)])
    with pytest.raises(SchemaIllegal, match=words):
        writer(pocket, schema, topic="t", transactional="false")


def test_two_columns_of_properties_contradict_each_other(pocket: PocketBroker) -> None:
    schema = StructType(
        [StructField("body", BinaryType()), StructField("properties", TEXTS), StructField("user_properties", TEXTS)]
    )
    with pytest.raises(SchemaIllegal, match="mean the same"):
        writer(pocket, schema, topic="t")


@pytest.mark.parametrize("transactional", ["true", "false"])
def test_a_topic_is_copied_with_keys_and_properties(pocket: PocketBroker, transactional: str) -> None:
    """The columns of the source that a copy needs are the sink's."""
    names = ("body", "tags", "keys", "sharding_key", "user_properties")
    source, target = f"from-{transactional}", f"to-{transactional}"
    sent = [
        Message(source, b"plain"),
        Message(
            source, b"full", tags="T", keys=["a", "b"], sharding_key="s", properties={"colour": "red", "size": "ü"}
        ),
        *(Message(source, b"%d" % n, properties={"n": str(n)}, sharding_key=f"k{n % 7}") for n in range(50)),
    ]

    async def send() -> None:
        async with Producer("test", pocket.namesrv) as producer:
            await producer.send_batch(sent)

    asyncio.run(send())
    schema = StructType([StructField(name, TYPES[name]) for name in names])
    reader = PocketMQSource({"namesrv": pocket.namesrv, "subscribe": source}).reader(schema)
    batches: list[Any] = [batch for task in reader.partitions() for batch in reader.read(task)]
    written = [write(pocket, schema, each, topic=target, transactional=transactional) for each in batches]
    assert sum(written) == len(sent)

    def parts(message: ReceivedMessage) -> Any:
        own = {name: message.properties.get(name) for name in ("colour", "size", "n", "__SHARDINGKEY")}
        return message.body, message.tags, message.keys, own

    before, after = (asyncio.run(received(pocket, topic, len(sent))) for topic in (source, target))
    assert sorted(map(repr, map(parts, after))) == sorted(map(repr, map(parts, before)))
