"""The sink's classes as Spark calls them, without a JVM: micro-batches that repeat, fail, or are aborted."""

import asyncio
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark import TaskContext
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType

from pocketmq.client import PullConsumer
from pocketmq.common.errors import PocketMQError
from pocketmq.pipeline.errors import OptionIllegal, SchemaIllegal
from pocketmq.pipeline.options import Options
from pocketmq.pipeline.sink.sink import BATCH_ID, QUERY_ID, TopicStreamWriter, TopicWriter
from pocketmq.pipeline.sink.sink_plan import SINK_OPTIONS, SinkPlan
from pocketmq.testing import PocketBroker

BODY = StructType([StructField("body", BinaryType())])


@pytest.fixture(scope="module")
def pocket() -> Iterator[PocketBroker]:
    """Start one broker for the module."""
    with PocketBroker() as running:
        yield running


class FakeTask:
    """Spark's properties of a task."""

    def __init__(self, batch_id: int, partition: int = 0, query: str = "query-1") -> None:
        self.properties = {QUERY_ID: query, BATCH_ID: str(batch_id)}
        self.partition = partition
        self.attempt = 0

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)

    def partitionId(self) -> int:
        return self.partition

    def taskAttemptId(self) -> int:
        self.attempt += 1
        return self.attempt


def options(broker: PocketBroker, **values: str) -> Options:
    return Options(
        {"namesrv": broker.namesrv, "checkpointlocation": "/x", "brokerWaitMs": "5000", **values}, SINK_OPTIONS
    )


def batches(*numbers: int) -> Iterator[Any]:
    yield pa.RecordBatch.from_pydict({"body": [b"%d" % number for number in numbers]})


def stream_writer(broker: PocketBroker, topic: str, **values: str) -> TopicStreamWriter:
    return TopicStreamWriter(options(broker, topic=topic, **values), BODY, False)


def as_task(monkeypatch: pytest.MonkeyPatch, task: FakeTask | None) -> None:
    monkeypatch.setattr(TaskContext, "get", classmethod(lambda cls: task))


def bodies(broker: PocketBroker, topic: str) -> list[int]:
    async def read() -> list[int]:
        async with PullConsumer("reader", broker.namesrv) as consumer:
            return [int(each.body) async for each in consumer.stream(topic, start="earliest", stop_at_end=True)]

    return sorted(asyncio.run(read()))


def test_the_driver_dies_between_commit_and_checkpoint(pocket: PocketBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark writes the same micro-batch again, to new processes: it changes nothing; nor does the abort of a commit
    that timed out. The next micro-batch works.
    """
    for _ in range(3):
        writer = stream_writer(pocket, "replayed")
        messages = []
        for partition in range(2):
            as_task(monkeypatch, FakeTask(7, partition))
            messages.append(pickle.loads(pickle.dumps(writer.write(batches(partition, 10 + partition)))))
        as_task(monkeypatch, None)
        stream_writer(pocket, "replayed").commit(messages, 7)
        stream_writer(pocket, "replayed").abort(messages, 7)
        assert bodies(pocket, "replayed") == [0, 1, 10, 11]
    as_task(monkeypatch, FakeTask(8))
    messages = [stream_writer(pocket, "replayed").write(batches(20))]
    stream_writer(pocket, "replayed").commit(messages, 8)
    assert bodies(pocket, "replayed") == [0, 1, 10, 11, 20]


def test_a_retried_task_and_a_failed_one(pocket: PocketBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt of a task had ended, but Spark did not learn of it: only the second counts. A micro-batch with
    a failed task leaves no rows, and its repetition all rows once.
    """
    as_task(monkeypatch, FakeTask(0))
    writer = stream_writer(pocket, "tasks")
    writer.write(batches(1, 2))
    good = writer.write(batches(1, 2))

    def failing() -> Iterator[Any]:
        yield from batches(3)
        raise RuntimeError("the query's own fault")

    with pytest.raises(RuntimeError, match="own fault"):
        writer.write(failing())
    stream_writer(pocket, "tasks").abort([good, None], 0)
    assert bodies_or_none(pocket, "tasks") == []
    again = [writer.write(batches(1, 2)), writer.write(batches(3))]
    stream_writer(pocket, "tasks").commit(again, 0)
    assert bodies(pocket, "tasks") == [1, 2, 3]


def bodies_or_none(broker: PocketBroker, topic: str) -> list[int]:
    """Return the bodies; the route may lack a topic that only failed writes used."""
    try:
        return bodies(broker, topic)
    except Exception as error:
        text = str(error)
        assert any(words in text for words in ("No route", "not exist"))
        return []


def test_another_query_is_not_taken_for_this_one(pocket: PocketBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new checkpoint begins with micro-batch 0 again; with the same ``txnAppId`` both count as one query."""
    for query in ("one", "two"):
        as_task(monkeypatch, FakeTask(0, query=query))
        stream_writer(pocket, "queries").commit([stream_writer(pocket, "queries").write(batches(1))], 0)
    assert bodies(pocket, "queries") == [1, 1]
    for query in ("three", "four"):
        as_task(monkeypatch, FakeTask(0, query=query))
        writer = stream_writer(pocket, "queries", txnAppId="app")
        writer.commit([writer.write(batches(2))], 0)
    assert bodies(pocket, "queries") == [1, 1, 2]


def test_a_micro_batch_that_was_committed_is_reported(
    pocket: PocketBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A copied checkpoint looks like a repetition: the log names the dropped rows. One without tasks is checked, too,
    where its id is known.
    """
    for _ in range(2):
        caplog.clear()
        as_task(monkeypatch, FakeTask(0, query="copied"))
        writer = stream_writer(pocket, "copies", txnAppId="copied")
        writer.commit([writer.write(batches(1, 2, 3))], 0)
    assert "staged_transaction_was_committed" in caplog.text
    assert "rows_dropped=3" in caplog.text
    caplog.clear()
    stream_writer(pocket, "copies", txnAppId="copied").commit([], 0)
    assert "staged_transaction_was_committed" in caplog.text
    assert bodies(pocket, "copies") == [1, 2, 3]


def test_the_broker_is_away_for_a_moment(pocket: PocketBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes between the tasks and the commit: the staged messages are found after a restart."""
    as_task(monkeypatch, FakeTask(0, query="restarted"))
    message = stream_writer(pocket, "restarted").write(batches(*range(500)))
    pocket.restart()
    stream_writer(pocket, "restarted").commit([message], 0)
    assert bodies(pocket, "restarted") == list(range(500))


def test_an_empty_micro_batch_writes_nothing(pocket: PocketBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tasks there is no message; with tasks without rows no chunk."""
    as_task(monkeypatch, FakeTask(0, query="empty"))
    writer = stream_writer(pocket, "replayed")
    before = pocket.app.store.appended_offset
    writer.commit([], 0)
    writer.commit([writer.write(iter(()))], 0)
    assert pocket.app.store.appended_offset == before


def test_a_stream_without_its_identity_is_refused(pocket: PocketBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without query and micro-batch nothing could be written once; a commit for another micro-batch is a bug."""
    as_task(monkeypatch, None)
    with pytest.raises(OptionIllegal, match="did not say which query"):
        stream_writer(pocket, "x").write(batches(1))
    as_task(monkeypatch, FakeTask(3))
    message = stream_writer(pocket, "x").write(batches(1))
    with pytest.raises(OptionIllegal, match="Spark commits micro-batch 4"):
        stream_writer(pocket, "x").commit([message], 4)


def test_a_batch_job_has_an_identity_of_its_own(pocket: PocketBroker) -> None:
    """Two jobs without ``txnAppId`` are two, and so much is remembered for an hour only; a copy of the writer in a task
    has that of the driver."""
    writers = [TopicWriter(options(pocket, topic="jobs"), BODY, False) for _ in range(2)]
    assert writers[0]._plan.transactional_id != writers[1]._plan.transactional_id
    assert writers[0]._plan.keep_hours == 1
    for writer in writers:
        in_task: TopicWriter = pickle.loads(pickle.dumps(writer))
        writer.commit([in_task.write(batches(1, 2))])
    assert bodies(pocket, "jobs") == [1, 1, 2, 2]
    aborted = TopicWriter(options(pocket, topic="jobs"), BODY, False)
    aborted.abort([aborted.write(batches(3)), None])
    assert bodies(pocket, "jobs") == [1, 1, 2, 2]
    with pytest.raises(OptionIllegal, match="cannot be overwritten"):
        TopicWriter(options(pocket, topic="jobs"), BODY, True)


@pytest.mark.parametrize(
    ("values", "streaming", "words"),
    [
        ({"topik": "t"}, True, "did you mean topic"),
        ({}, True, "no topic is named"),
        ({"topic": "a b"}, True, "illegal characters"),
        ({"topic": "t", "txnVersion": "1"}, True, "txnVersion in a stream"),
        ({"topic": "t", "txnVersion": "1"}, False, "together"),
        ({"topic": "t", "txnAppId": "a"}, False, "together"),
        ({"topic": "t", "txnAppId": "a\nb"}, True, "printable"),
        ({"topic": "t", "transactional": "maybe"}, True, "true or false"),
        ({"topic": "t", "transactional": "false", "txnAppId": "a"}, True, "means nothing"),
        ({"topic": "t", "transactional": "false", "brokersGone": "a"}, True, "means nothing"),
        ({"topic": "t", "failOnDataLoss": "perhaps"}, True, "true or false"),
        ({"topic": "t", "group": "no group!"}, True, "group"),
        ({"topic": "t", "chunkBytes": "1"}, True, "4096 to"),
    ],
)
def test_a_bad_option_is_named(values: dict[str, str], streaming: bool, words: str) -> None:
    """The error comes when the query is planned, not in its tasks."""
    with pytest.raises((OptionIllegal, SchemaIllegal), match=words):
        SinkPlan.of(Options({"namesrv": "x:1", **values}, SINK_OPTIONS), BODY, streaming=streaming)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("body", LongType(), "column body is bigint, not binary or string .*to_json"),
        ("keys", LongType(), "column keys is bigint, not string .*array_join"),
        ("properties", MapType(StringType(), LongType()), "is map<string,bigint>, not map<string,string>"),
        ("properties", StringType(), "properties is string, not map"),
        ("tag", StringType(), "did you mean tags"),
        ("value", BinaryType(), "did you mean body"),
        ("headers", StringType(), "did you mean properties"),
        ("queue_offset", LongType(), "no column queue_offset .*select or drop"),
    ],
)
def test_a_bad_column_is_named(name: str, kind: Any, words: str) -> None:
    """The text has the type found, the type expected and the cure."""
    schema = StructType([*(BODY.fields if name != "body" else []), StructField(name, kind)])
    with pytest.raises(SchemaIllegal, match=words):
        SinkPlan.of(Options({"namesrv": "x:1", "topic": "t"}, SINK_OPTIONS), schema, streaming=True)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([b"1", None], "row 1 refused, column body: it is null"),
        ([*[b"x"] * 7, b"x" * 5_000_000], "row 7 refused, column body: 5000000 bytes"),
    ],
)
def test_a_bad_row_is_named_by_its_number(pocket: PocketBroker, rows: list[bytes | None], words: str) -> None:
    """The text has its column and its mistake; none of the task's rows is stored."""
    writer = TopicWriter(options(pocket, topic="rows"), BODY, False)
    with pytest.raises(PocketMQError, match=words):
        writer.write(iter([pa.RecordBatch.from_pydict({"body": rows})]))
    writer.abort([None])
    assert bodies_or_none(pocket, "rows") == []
