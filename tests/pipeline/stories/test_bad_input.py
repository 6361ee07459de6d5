"""Failures under a query are errors that name the cause, or counts; never silent loss.

The readers are called as Spark calls them, without a JVM.
"""

import asyncio
import pickle
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from pocketmq.client import Message, Producer
from pocketmq.client.admin.admin import Admin
from pocketmq.common.errors import PocketMQError
from pocketmq.pipeline.errors import BrokerAway, DataLost, OptionIllegal, SchemaIllegal
from pocketmq.pipeline.source.planner import TopicUnknown
from pocketmq.pipeline.source.plans import RangesPartition
from pocketmq.pipeline.source.positions import Positions
from pocketmq.pipeline.source.source import PocketMQSource
from pocketmq.pipeline.source.stream_reader import TopicStreamReader
from pocketmq.store.retention.retention import Reason
from pocketmq.testing import PocketBroker

QUEUES = 2
BODY_BYTES = 1000
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    """A broker with small files, from which only a test removes messages."""
    store = {"mapped_file_size_commit_log": 1 << 20, "file_reserved_time": 0}
    with PocketBroker(store={**store, "clean_resource_interval": DAY_MS, "checkpoint_interval": DAY_MS}) as running:
        yield running


opened: list[TopicStreamReader] = []


@pytest.fixture(autouse=True)
def all_stopped() -> Iterator[None]:
    """Close the connections of a test's readers afterwards."""
    yield
    while opened:
        opened.pop().stop()


def fill(broker: PocketBroker, topic: str, count: int, start: int = 0, *, again: bool = False) -> None:
    """Send numbered messages; with ``again``, into a topic that is deleted first."""

    async def run() -> None:
        async with Admin(broker.namesrv) as admin:
            if again:
                await admin.delete_topic(topic)
            await admin.create_topic(topic, queues=QUEUES)
        async with Producer(group="test", namesrv=broker.namesrv) as producer:
            for at in range(start, start + count, 200):
                numbers = range(at, min(at + 200, start + count))
                batch = [Message(topic, b"%06d" % n + b"x" * (BODY_BYTES - 6)) for n in numbers]
                await producer.send_batch(batch)

    asyncio.run(run())


def stream(broker: PocketBroker, topic: str, **options: str) -> TopicStreamReader:
    """Return the reader of a stream that begins at the first message."""
    given = {"namesrv": broker.namesrv, "subscribe": topic, "startingOffsets": "earliest", "brokerWaitMs": "5000"}
    source = PocketMQSource({name: value for name, value in {**given, **options}.items() if value})
    reader = source.streamReader(PocketMQSource({}).schema())
    assert isinstance(reader, TopicStreamReader)
    opened.append(reader)
    return reader


def batch(reader: Any, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[int]:
    """Return the numbers that one micro-batch reads."""
    return [number for task in reader.partitions(start, end) for number in rows(reader, task)]


def rows(reader: Any, task: Any) -> list[int]:
    """Return the numbers that one task reads; it travels as bytes, as to an executor."""
    reads = reader.read(pickle.loads(pickle.dumps(task)))
    return [int(body.as_py()[:6]) for part in reads for body in part.column("body")]


def lost_by_notes(capfd: pytest.CaptureFixture[str]) -> int:
    """Return the sum of the counts of lost messages that the user saw."""
    return sum(map(int, re.findall(r"(\d+) messages lost: offsets ", capfd.readouterr().err)))


def lose_the_oldest(broker: PocketBroker) -> None:
    """Let retention remove all segments but the last."""
    store = broker.app.store
    store.show_all()
    store.components.checkpointer.checkpoint()  # otherwise retention keeps the log for a recovery
    while store.retention._remove_oldest(Reason.MANUAL):
        pass
    store.retention.clean_up()


@pytest.mark.slow
def test_retention_that_overtakes_a_query_is_reported(broker: PocketBroker, capfd: pytest.CaptureFixture[str]) -> None:
    """An error with topic, queue and lost range; without ``failOnDataLoss`` the rest, and the number lost."""
    fill(broker, "slow", 4000)
    strict, lenient = stream(broker, "slow"), stream(broker, "slow", failOnDataLoss="false")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadAllAvailable())
    tasks = strict.partitions(start, end)
    lose_the_oldest(broker)
    for task in tasks:  # planned before, read after
        with pytest.raises(DataLost, match=r"slow queue \d of pocket: offsets 0 to \d+ were removed by retention"):
            rows(strict, task)
    left = batch(lenient, start, end)
    assert sorted(left) == sorted(set(left))
    lost = lost_by_notes(capfd)
    assert len(left) + lost == 4000
    assert 0 < lost < 4000


@pytest.mark.slow
def test_a_topic_created_again_is_noticed_at_every_step(broker: PocketBroker) -> None:
    """At the next micro-batch, at the repetition of one (a restart plans it without asking how far topics reach), and
    in a task that was planned before; even if the new topic has all the offsets of the old one."""
    fill(broker, "again", 300)
    reader = stream(broker, "again")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(100))
    tasks = reader.partitions(start, end)
    fill(broker, "again", 600, 1000, again=True)
    with pytest.raises(DataLost, match="again on pocket is not the topic of the checkpoint"):
        reader.latestOffset(end, ReadAllAvailable())
    for task in tasks:
        with pytest.raises(DataLost, match="created again"):
            rows(reader, task)
    restarted = stream(broker, "again")
    with pytest.raises(DataLost, match="created again"):
        batch(restarted, start, end)
    table = PocketMQSource({"namesrv": broker.namesrv, "subscribe": "again"})
    one_shot = table.reader(table.schema())
    planned = one_shot.partitions()
    fill(broker, "again", 600, 2000, again=True)
    with pytest.raises(DataLost, match="created again"):
        rows(one_shot, planned[0])


@pytest.mark.slow
def test_a_topic_created_again_while_a_task_reads_is_noticed(broker: PocketBroker) -> None:
    """A task that began before compares again at its end."""
    fill(broker, "during", 1000)
    reader = stream(broker, "during", pullBytes="100000")
    start = reader.initialOffset()
    [task, *_] = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert isinstance(task, RangesPartition)
    reads = reader.read(task)
    first = next(reads)
    assert len(first) < task.ranges[0].count
    fill(broker, "during", 1000, 5000, again=True)
    with pytest.raises(DataLost, match="created again"):
        list(reads)


@pytest.mark.slow
def test_a_broker_that_goes_is_waited_for(
    broker: PocketBroker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task says that it waits and for how long, yields so that it can be cancelled, and continues where it was."""
    fill(broker, "waits", 1000)
    reader = stream(broker, "waits", pullBytes="50000", brokerWaitMs="60000")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    tasks = reader.partitions(start, end)
    parts: list[pa.RecordBatch] = []
    is_down, waits = threading.Event(), threading.Event()
    launch = broker._launch

    def launch_when_it_is_missed(data_dir: Path | None) -> Any:
        is_down.set()
        waits.wait()
        return launch(data_dir)

    monkeypatch.setattr(broker, "_launch", launch_when_it_is_missed)
    again = threading.Thread(target=broker.restart)
    for task in tasks:
        for part in reader.read(task):
            if not parts:
                again.start()
                is_down.wait()
            elif not part.num_rows:  # the task has nothing: it waits
                waits.set()
            parts.append(part)
    again.join()
    numbers = [int(body.as_py()[:6]) for part in parts for body in part.column("body")]
    assert sorted(numbers) == list(range(1000))
    assert reader.latestOffset(start, ReadAllAvailable()) == end  # the driver's own connections, too
    printed = capfd.readouterr().err
    assert "waits queue 0 of pocket: " in printed
    assert "waiting up to 60000 ms (option brokerWaitMs)" in printed
    assert "waits queue 0 of pocket: goes on after" in printed


def test_the_wait_has_an_end(broker: PocketBroker) -> None:
    """In the driver and in a task; both name the option."""
    fill(broker, "bounded", 10)
    reader = stream(broker, "bounded", brokerWaitMs="300")
    start = reader.initialOffset()
    tasks = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    away = stream(broker, "bounded", namesrv="127.0.0.1:1", brokerWaitMs="300")
    with pytest.raises(BrokerAway, match=r"waited 300 ms \(option brokerWaitMs\)"):
        away.initialOffset()
    with pytest.raises(BrokerAway, match=r"waited 300 ms \(option brokerWaitMs\)"):
        rows(away, tasks[0])


@pytest.mark.slow
def test_messages_that_vanish_are_reported(broker: PocketBroker, capfd: pytest.CaptureFixture[str]) -> None:
    """The store was replaced by an older one: the queue ends before the query's range."""
    fill(broker, "older", 10)
    reader = stream(broker, "older", brokerWaitMs="300")
    start = reader.initialOffset()
    end = Positions.from_json(reader.latestOffset(start, ReadAllAvailable()))
    beyond = Positions({key: offset + 7 for key, offset in end.offsets.items()}, end.identities).to_json()
    with pytest.raises(DataLost, match=r"\d+ messages at offsets \d+ to \d+ are not there \(the queue"):
        batch(reader, start, beyond)
    lenient = stream(broker, "older", brokerWaitMs="300", failOnDataLoss="false")
    assert sorted(batch(lenient, start, beyond)) == list(range(10))
    assert lost_by_notes(capfd) == 7 * QUEUES
    with pytest.raises(DataLost, match="was the broker's store replaced"):
        reader.latestOffset(beyond, ReadAllAvailable())
    assert lenient.latestOffset(beyond, ReadAllAvailable()) == beyond  # waits until the queue has grown past this


def test_available_now_ends_where_the_topic_ended(broker: PocketBroker) -> None:
    """Later messages belong to the next run; limits hold on the way."""
    fill(broker, "now", 100)
    reader = stream(broker, "now", maxOffsetsPerTrigger="60")
    reader.prepareForTriggerAvailableNow()
    fill(broker, "now", 50, 100)
    at, numbers, sizes = reader.initialOffset(), list[int](), list[int]()
    while True:
        following = reader.latestOffset(at, reader.getDefaultReadLimit())
        if following == at:
            break
        found = batch(reader, at, following)
        numbers += found
        sizes.append(len(found))
        at = following
    assert sorted(numbers) == list(range(100))
    assert sizes == [60, 40]
    assert reader.reportLatestOffset() == at


def test_bytes_bound_a_micro_batch(broker: PocketBroker) -> None:
    """About as many records as fit, and at least one row, however small the limit."""
    fill(broker, "sized", 400)
    reader = stream(broker, "sized", maxBytesPerTrigger=str(100 * BODY_BYTES))
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxBytes)
    assert 60 <= len(batch(reader, start, reader.latestOffset(start, limit))) <= 100
    assert len(batch(reader, start, reader.latestOffset(start, ReadMaxBytes(1)))) == 1


def test_a_group_shows_lag_and_stops_nothing(broker: PocketBroker, capfd: pytest.CaptureFixture[str]) -> None:
    """``commit`` stores the offsets; if it cannot, it prints a line and the query continues."""
    fill(broker, "lagging", 40)
    reader = stream(broker, "lagging", group="screen")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(30))
    reader.commit(end)

    async def lag() -> int:
        async with Admin(broker.namesrv) as admin:
            return (await admin.describe_group("screen")).lag

    assert asyncio.run(lag()) == 10
    away = stream(broker, "lagging", group="screen", namesrv="127.0.0.1:1")
    away.commit(end)
    assert "offsets of group screen not stored" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"subscribe": "missing"}, TopicUnknown, "(?s)topic missing not found.*check the name"),
        ({"startingOffsets": '{"there": {"pocket": {"0": 77}}}'}, OptionIllegal, "it has 0 to "),
        ({"startingOffsets": '{"there": {"pocket": {"9": 0}}}'}, OptionIllegal, "there has no queue 9 on pocket"),
        ({"startingOffsets": '{"there": {"elsewhere": {"0": 0}}}'}, OptionIllegal, "no queue 0 on elsewhere"),
        ({"subscribe": "", "assign": '{"there": [5]}'}, OptionIllegal, "there has no queue 5"),
        ({"subscribe": "", "subscribePattern": "th(ere"}, OptionIllegal, "subscribePattern"),
        ({"startingOfset": "latest"}, OptionIllegal, "did you mean startingOffsets"),
        ({"maxOffsetsPerTriger": "5"}, OptionIllegal, "did you mean maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "0"}, OptionIllegal, "is not 1 to"),
        ({"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "5"}, OptionIllegal, "contradict"),
        ({"failOnDataLoss": "perhaps"}, OptionIllegal, "true or false"),
    ],
)
def test_options_that_fit_nothing_are_refused(
    broker: PocketBroker, options: dict[str, str], error: type[PocketMQError], text: str
) -> None:
    """The error has the mistake and the right form."""
    fill(broker, "there", 2)
    with pytest.raises(error, match=text):
        stream(broker, "there", **options).initialOffset()


def test_starts_by_time_choose_the_first_message_since(broker: PocketBroker) -> None:
    """For all queues, and queue by queue; a time after the last message is the end of the queue."""
    fill(broker, "timed", 20)
    reader = stream(broker, "timed")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    in_first = sum(offset for key, offset in Positions.from_json(end).offsets.items() if key.queue_id == 0)
    for option, wanted in (
        ({"startingTimestamp": "1"}, 20),
        ({"startingTimestamp": str(1 << 45)}, 0),
        ({"startingOffsetsByTimestamp": '{"timed": {"pocket": {"0": 1, "1": 35184372088832}}}'}, in_first),
    ):
        each = stream(broker, "timed", **{"startingOffsets": "", **option})
        assert len(batch(each, each.initialOffset(), end)) == wanted, option


def test_a_task_holds_a_few_pulls_whatever_it_reads(broker: PocketBroker) -> None:
    """8 MB of bodies through pulls of 64 KiB: Arrow never holds more than a few of them at once."""
    fill(broker, "memory", 8000)
    reader = stream(broker, "memory", pullBytes=str(64 << 10), minPartitions="1")
    start = reader.initialOffset()
    [task] = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    before, most, count = pa.total_allocated_bytes(), 0, 0
    for part in reader.read(task):
        most = max(most, pa.total_allocated_bytes() - before)
        assert part.nbytes <= 2 * (64 << 10)
        count += len(part)
    assert count == 8000
    assert most < 8 * (64 << 10)


def test_a_schema_without_sense_is_refused() -> None:
    """No column, an unknown one, another type."""
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    source = PocketMQSource({"namesrv": "127.0.0.1:1", "subscribe": "t"})
    for fields, text in (
        ([], "no columns"),
        ([StructField("bodi", BinaryType())], "did you mean body"),
        ([StructField("body", StringType())], "body is binary, not string"),
    ):
        for make in (source.reader, source.streamReader):
            with pytest.raises(SchemaIllegal, match=text):
                make(StructType(fields))
