"""A stream whose options or topics change under its checkpoint, and when it begins a micro-batch.

The reader is called as Spark calls it, without a JVM.
"""

import asyncio
import itertools
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pocketmq.client import Message, Producer
from pocketmq.client.admin.admin import Admin
from pocketmq.pipeline.errors import DataLost, OptionIllegal
from pocketmq.pipeline.source.positions import Positions, QueueKey
from pocketmq.pipeline.source.source import PocketMQSource
from pocketmq.pipeline.source.stream_reader import TopicStreamReader
from pocketmq.testing import PocketBroker

QUEUES = 2
ALL = ReadAllAvailable()
names = itertools.count()
opened: list[TopicStreamReader] = []


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    """Start one broker for the module."""
    with PocketBroker() as running:
        yield running


@pytest.fixture(autouse=True)
def all_stopped() -> Iterator[None]:
    """Close the connections of a test's readers afterwards."""
    yield
    while opened:
        opened.pop().stop()


def topic_of(broker: PocketBroker, count: int, name: str = "") -> str:
    """Send messages to a topic, a new one without ``name``; return its name."""
    topic = name or f"topic-{next(names)}"

    async def run() -> None:
        async with Admin(broker.namesrv) as admin:
            await admin.create_topic(topic, queues=QUEUES)
        async with Producer(group="test", namesrv=broker.namesrv) as producer:
            for n in range(count):
                await producer.send(Message(topic, b"%d" % n))

    asyncio.run(run())
    return topic


def delete(broker: PocketBroker, topic: str) -> None:
    async def run() -> None:
        async with Admin(broker.namesrv) as admin:
            await admin.delete_topic(topic)

    asyncio.run(run())


def stream(broker: PocketBroker, topic: str = "", **options: str) -> TopicStreamReader:
    """Return the reader of a stream that begins at the first message. A wait would last a minute."""
    given = {"namesrv": broker.namesrv, "subscribe": topic, "startingOffsets": "earliest", "brokerWaitMs": "60000"}
    source = PocketMQSource({name: value for name, value in {**given, **options}.items() if value})
    reader = source.streamReader(PocketMQSource({}).schema())
    assert isinstance(reader, TopicStreamReader)
    opened.append(reader)
    return reader


def rows(reader: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
    return sum(len(batch) for task in reader.partitions(start, end) for batch in reader.read(task))


def topics(offset: dict[str, Any]) -> set[str]:
    return {key.topic for key in Positions.from_json(offset).offsets}


@pytest.mark.parametrize("option", ["subscribe", "subscribePattern", "assign"])
def test_a_checkpoint_with_more_topics_is_an_error_at_once(
    broker: PocketBroker, capfd: pytest.CaptureFixture[str], option: str
) -> None:
    """A smaller choice on an old checkpoint: the error names what is left out; without failOnDataLoss it is dropped."""
    kept, left = topic_of(broker, 3), topic_of(broker, 5)
    both, one = {
        "subscribe": (f"{kept},{left}", kept),
        "subscribePattern": (f"{kept}|{left}", kept),
        "assign": (f'{{"{kept}": [0, 1], "{left}": [0, 1]}}', f'{{"{kept}": [0, 1]}}'),
    }[option]
    before = stream(broker, **{option: both})
    checkpoint = before.latestOffset(before.initialOffset(), ReadMaxRows(1))
    assert topics(checkpoint) == {kept, left}
    with pytest.raises(OptionIllegal, match=rf"(?s)it has {left} \(2 queues\), which the options leave out.*failOn"):
        stream(broker, **{option: one}).latestOffset(checkpoint, ALL)
    lenient = stream(broker, **{option: one}, failOnDataLoss="false")
    end = lenient.latestOffset(checkpoint, ALL)
    assert topics(end) == {kept}
    assert rows(lenient, checkpoint, end) == 3 - sum(
        offset for key, offset in Positions.from_json(checkpoint).offsets.items() if key.topic == kept
    )
    assert f"dropped: {left} (2 queues)" in capfd.readouterr().err


def test_a_topic_deleted_while_subscribed(broker: PocketBroker, capfd: pytest.CaptureFixture[str]) -> None:
    """``DataLost`` without a wait, since its broker is there; without failOnDataLoss the query goes on with the others,
    also after a restart, and has the topic again when it is there again.
    """
    stays, goes = topic_of(broker, 3), topic_of(broker, 5)
    strict = stream(broker, f"{stays},{goes}")
    lenient = stream(broker, f"{stays},{goes}", failOnDataLoss="false")
    start = strict.initialOffset()
    checkpoint = strict.latestOffset(start, ALL)
    planned: Any = strict.partitions(start, checkpoint)
    delete(broker, goes)
    with pytest.raises(DataLost, match=rf"{goes} \(2 queues\): the broker is there"):
        strict.latestOffset(checkpoint, ALL)
    task, *_ = [task for task in planned if any(each.topic == goes for each in task.ranges)]
    with pytest.raises(DataLost, match=rf"{goes} queue \d of pocket: the broker is there"):
        list(strict.read(task))
    assert sum(len(batch) for task in planned for batch in lenient.read(task)) == 3
    assert "5 messages lost" in merged_losses(capfd.readouterr().err)
    end = lenient.latestOffset(checkpoint, ALL)
    assert topics(end) == {stays}
    again = stream(broker, f"{stays},{goes}", failOnDataLoss="false")
    assert again.latestOffset(end, ALL) == end
    assert f"topic {goes} not found: no rows of it until it exists" in capfd.readouterr().err
    topic_of(broker, 2, goes)
    later = again.latestOffset(end, ALL)
    assert topics(later) == {stays, goes}
    assert rows(again, end, later) == 2


def merged_losses(text: str) -> str:
    """Return the sum of the counts in lines about one deleted topic, as one sentence."""
    return f"{sum(map(int, re.findall(r': ([0-9]+) messages lost: .* the topic is gone', text)))} messages lost"


def test_available_now_after_a_topic_was_deleted(broker: PocketBroker) -> None:
    """The target is chosen before Spark says where the query stands."""
    stays, goes = topic_of(broker, 3), topic_of(broker, 5)
    first = stream(broker, f"{stays},{goes}")
    checkpoint = first.latestOffset(first.initialOffset(), ReadMaxRows(2))
    delete(broker, goes)
    lenient = stream(broker, f"{stays},{goes}", failOnDataLoss="false")
    lenient.prepareForTriggerAvailableNow()
    end = lenient.latestOffset(checkpoint, ALL)
    assert topics(end) == {stays}
    assert lenient.latestOffset(end, ALL) == end


def test_a_start_that_was_removed_is_clamped_on_request(
    broker: PocketBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    """Offsets outside of a queue: an error, or with failOnDataLoss=false the nearest offset that is there."""
    topic = topic_of(broker, 4)
    low, high = f'{{"{topic}": {{"pocket": {{"0": 0}}}}}}', f'{{"{topic}": {{"pocket": {{"0": 900}}}}}}'
    with pytest.raises(OptionIllegal, match=r"offset 900 .*failOnDataLoss=false"):
        stream(broker, topic, startingOffsets=high).initialOffset()
    placed = Positions.from_json(stream(broker, topic, startingOffsets=high, failOnDataLoss="false").initialOffset())
    count = broker.app.store.max_offset(topic, 0)
    assert placed.offsets[QueueKey(topic, "pocket", 0)] == count
    assert f"offset 900 of {topic} queue 0 on pocket: it has 0 to {count}; taken: {count}" in capfd.readouterr().err
    assert (
        Positions.from_json(stream(broker, topic, startingOffsets=low).initialOffset()).offsets[
            QueueKey(topic, "pocket", 0)
        ]
        == 0
    )


def test_a_batch_query_clamps_its_start_too(broker: PocketBroker) -> None:
    topic = topic_of(broker, 6)
    options = {"namesrv": broker.namesrv, "subscribe": topic, "failOnDataLoss": "false"}
    source = PocketMQSource({**options, "endingOffsets": f'{{"{topic}": {{"pocket": {{"0": 99, "1": 99}}}}}}'})
    reader = source.reader(source.schema())
    assert sum(len(batch) for task in reader.partitions() for batch in reader.read(task)) == 6


def test_a_group_has_the_last_micro_batch_of_available_now(broker: PocketBroker) -> None:
    """Spark commits a micro-batch when it plans the one behind it; at the end it only asks once more for the end."""
    topic = topic_of(broker, 30)
    reader = stream(broker, topic, group="ends", maxOffsetsPerTrigger="20")
    reader.prepareForTriggerAvailableNow()

    async def lag() -> int:
        async with Admin(broker.namesrv) as admin:
            return (await admin.describe_group("ends")).lag

    at = reader.initialOffset()
    for _ in range(2):
        at = reader.latestOffset(at, reader.getDefaultReadLimit())
    assert asyncio.run(lag()) == 10
    assert reader.latestOffset(at, reader.getDefaultReadLimit()) == at
    assert asyncio.run(lag()) == 0


def test_a_micro_batch_waits_for_enough_rows_or_for_its_delay(
    broker: PocketBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first begins at once, as Kafka's; later ones with enough rows, or when the delay is over."""
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    topic = topic_of(broker, 3)
    reader = stream(broker, topic, minOffsetsPerTrigger="10", maxTriggerDelay="5m")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    assert sum(Positions.from_json(first).offsets.values()) == 3
    topic_of(broker, 4, topic)
    now_s[0] += 299
    assert reader.latestOffset(first, ALL) == first
    now_s[0] += 2
    second = reader.latestOffset(first, ALL)
    assert sum(Positions.from_json(second).offsets.values()) == 7
    topic_of(broker, 12, topic)
    third = reader.latestOffset(second, ALL)
    assert sum(Positions.from_json(third).offsets.values()) == 19
    topic_of(broker, 1, topic)
    assert reader.latestOffset(third, ALL) == third
    reader.prepareForTriggerAvailableNow()
    assert sum(Positions.from_json(reader.latestOffset(third, ALL)).offsets.values()) == 20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger is above"),
        ({"maxTriggerDelay": "1m"}, "means nothing without minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"}, "no time span .*15m"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "error or latest"),
        ({"namesrv": "a:1,b:2"}, "separate servers by a semicolon"),
        ({"startingOffsets": '{"t": {"0": 5}}'}, r"no broker is named .*\{\"topic\": \{\"broker-a\""),
    ],
)
def test_options_that_mean_nothing_are_refused(broker: PocketBroker, options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionIllegal, match=words):
        stream(broker, "t", **options)


def test_a_task_has_at_most_so_many_rows(broker: PocketBroker) -> None:
    """``maxRecordsPerPartition``, whatever minPartitions says."""
    topic = topic_of(broker, 25)
    reader = stream(broker, topic, maxRecordsPerPartition="4", minPartitions="1")
    start = reader.initialOffset()
    tasks: Any = reader.partitions(start, reader.latestOffset(start, ALL))
    counts = [sum(each.count for each in task.ranges) for task in tasks]
    assert max(counts) <= 4
    assert sum(counts) == 25


@pytest.mark.parametrize("option", ["startingTimestamp", "startingOffsetsByTimestamp"])
def test_a_time_behind_the_last_message(broker: PocketBroker, option: str) -> None:
    """The end of the queue, or an error if the strategy says so, as Kafka's does by default."""
    topic = topic_of(broker, 4)
    far = str(1 << 45)
    value = far if option == "startingTimestamp" else f'{{"{topic}": {{"pocket": {{"0": {far}}}}}}}'
    given = {"startingOffsets": "", option: value}
    placed = Positions.from_json(stream(broker, topic, **given).initialOffset()).offsets
    assert placed[QueueKey(topic, "pocket", 0)] == broker.app.store.max_offset(topic, 0)
    strict = stream(broker, topic, **given, startingOffsetsByTimestampStrategy="error")
    with pytest.raises(OptionIllegal, match=rf"{topic} queue 0 of pocket has none that was stored at {far} or later"):
        strict.initialOffset()


def test_a_start_behind_the_end_is_an_error(broker: PocketBroker) -> None:
    """A batch query would silently have no rows."""
    topic = topic_of(broker, 20)
    options = {"namesrv": broker.namesrv, "subscribe": topic}
    source = PocketMQSource(
        {
            **options,
            "startingOffsets": f'{{"{topic}": {{"pocket": {{"0": 5}}}}}}',
            "endingOffsets": f'{{"{topic}": {{"pocket": {{"0": 2}}}}}}',
        }
    )
    with pytest.raises(OptionIllegal, match=rf"{topic} queue 0 of pocket: the start, offset 5, lies behind the end"):
        source.reader(source.schema()).partitions()
