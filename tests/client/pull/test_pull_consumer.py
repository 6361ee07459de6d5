"""A pull consumer against a real broker."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from pocketmq.client import Admin, ConsumeFromWhere, Message, MessageQueue, NoRoute, NotStarted, Producer, PullConsumer
from pocketmq.client.arrow import arrow
from pocketmq.client.errors import OffsetIllegal
from pocketmq.client.pull import pull_consumer
from pocketmq.common import record_columns
from pocketmq.common.errors import ConfigError
from pocketmq.testing.broker import PocketBroker
from tests.client.conftest import until_known


@pytest.fixture
async def producer(broker: PocketBroker, group: str) -> AsyncIterator[Any]:
    async with Producer(group=group, namesrv=broker.namesrv) as running:
        yield running


@pytest.fixture
async def consumer(broker: PocketBroker, group: str) -> AsyncIterator[Any]:
    async with PullConsumer(group=group, namesrv=broker.namesrv) as running:
        yield running


async def fill(producer: Producer, topic: str, count: Any, **fields: Any) -> Any:
    """Send numbered bodies, a quarter with each sharding key, so that all four queues may get some."""
    messages = [Message(topic, b"%d" % number, sharding_key=f"s{number % 11}", **fields) for number in range(count)]
    receipts = await producer.send_batch(messages)
    await until_known(producer.instance, topic)
    return receipts


def numbers_of(messages: Any) -> Any:
    return sorted(int(message.body) for message in messages)


async def test_poll_reads_on_where_it_stopped(producer: Producer, consumer: PullConsumer, topic: str) -> None:
    """Every message arrives once, whatever the size of the polls; then none."""
    await fill(producer, topic, 100)
    got: list[Any] = []
    while len(got) < 100:
        messages = await consumer.poll(topic, max_messages=7, timeout_ms=30_000)
        assert 0 < len(messages) <= 7
        got += messages
    assert numbers_of(got) == list(range(100))
    assert await consumer.poll(topic, max_messages=7, timeout_ms=50) == []


async def test_poll_waits_for_a_message(producer: Producer, consumer: PullConsumer, topic: str) -> None:
    """A held pull is answered when a message arrives, long before its timeout."""
    await fill(producer, topic, 1)
    assert len(await consumer.poll(topic, timeout_ms=5_000)) == 1
    waiting = asyncio.create_task(consumer.poll(topic, timeout_ms=60_000))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await producer.send(Message(topic, b"7"))
    async with asyncio.timeout(60):
        assert numbers_of(await waiting) == [7]


async def test_commit_and_committed(
    broker: PocketBroker, producer: Producer, consumer: PullConsumer, topic: str, numbers: Iterator[int]
) -> None:
    """The next consumer of the group continues at the committed offsets."""
    await fill(producer, topic, 40)
    queues = await consumer.queues(topic)
    assert [await consumer.committed(queue) for queue in queues] == [None] * 4
    first = await consumer.poll(topic, max_messages=15)
    await consumer.commit()
    async with PullConsumer(group=consumer.group, namesrv=broker.namesrv) as next_one:
        rest: list[Any] = []
        while len(first + rest) < 40 and (messages := await next_one.poll(topic, timeout_ms=30_000)):
            rest += messages
    assert numbers_of(first + rest) == list(range(40))
    await consumer.commit({queues[0]: 1})
    assert await consumer.committed(queues[0]) == 1
    with pytest.raises(OffsetIllegal):
        await consumer.commit({queues[0]: -1})


async def test_seek(producer: Producer, consumer: PullConsumer, topic: str) -> None:
    """It seeks the ends, an offset, a time, and the committed offset."""
    await fill(producer, topic, 20)
    await consumer.seek(topic, "latest")
    assert await consumer.poll(topic, timeout_ms=0) == []
    await consumer.seek(topic, "earliest")
    assert len(await consumer.poll(topic, max_messages=100)) == 20
    queue = max([(await consumer.position(each), each) for each in await consumer.queues(topic)])[1]
    await consumer.seek(queue, 1)
    assert (await consumer.poll(queue))[0].queue_offset == 1
    await consumer.seek_time(topic, 0)
    assert len(await consumer.poll(topic, max_messages=100)) == 20
    await consumer.seek(topic, "committed")
    assert len(await consumer.poll(topic, max_messages=100)) == 20
    with pytest.raises(OffsetIllegal):
        await consumer.seek(topic, "sometime")  # type: ignore[arg-type]
    with pytest.raises(OffsetIllegal):
        await consumer.seek_time(topic, -1)


async def test_an_offset_outside_the_queue_is_corrected(producer: Producer, consumer: PullConsumer, topic: str) -> None:
    """A position beyond the end returns to the end, and no later message is lost."""
    await fill(producer, topic, 3)
    for queue in await consumer.queues(topic):
        await consumer.seek_offset(queue, 1_000_000)
    assert await consumer.poll(topic, timeout_ms=100) == []
    await producer.send(Message(topic, b"99"))
    assert numbers_of(await consumer.poll(topic, timeout_ms=10_000)) == [99]


async def test_consume_from_where_without_a_committed_offset(
    broker: PocketBroker, producer: Producer, topic: str, numbers: Iterator[int]
) -> None:
    """The last offset skips present messages; the first, which is the default, does not."""
    await fill(producer, topic, 5)
    last = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    async with PullConsumer(f"g{next(numbers)}", broker.namesrv, consume_from_where=last) as consumer:
        assert await consumer.poll(topic, timeout_ms=0) == []
    async with PullConsumer(f"g{next(numbers)}", broker.namesrv) as consumer:
        assert len(await consumer.poll(topic, timeout_ms=30_000)) == 5


async def test_tags_filter_polls_streams_and_columns(producer: Producer, consumer: PullConsumer, topic: str) -> None:
    """Only matching tags arrive, compared as text: these two have the same Java hash."""
    await producer.send_batch([Message(topic, b"%d" % n, tags="Aa" if n % 2 else "BB") for n in range(20)])
    await until_known(producer.instance, topic)
    assert numbers_of(await consumer.poll(topic, max_messages=100, tags="Aa")) == list(range(1, 20, 2))
    stream = consumer.stream(topic, start="earliest", stop_at_end=True, tags="BB || other")
    assert numbers_of([message async for message in stream]) == list(range(0, 20, 2))
    await consumer.seek(topic, "earliest")
    batch = await consumer.poll_arrow(topic, tags="Aa", columns=["body"])
    assert sorted(int(body.as_py()) for body in batch.column("body")) == list(range(1, 20, 2))


async def test_stream_to_the_end(producer: Producer, consumer: PullConsumer, topic: str) -> None:
    """Every message once, in order per queue, and then the iteration ends."""
    await fill(producer, topic, 2000)
    got = [message async for message in consumer.stream(topic, start="earliest", stop_at_end=True)]
    assert numbers_of(got) == list(range(2000))
    for queue_id in range(4):
        offsets = [message.queue_offset for message in got if message.queue_id == queue_id]
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("count", [pull_consumer.AHEAD_RECORDS_MIN, 8])
async def test_the_next_pull_leaves_before_the_records_are_unpacked(
    producer: Producer, consumer: PullConsumer, topic: str, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Of a round with many records: the broker works meanwhile. Of few, the next pull may leave later."""
    await producer.send_batch([Message(topic, b"x") for _ in range(count)])
    sent, seen = 0, []
    pull = consumer._wire.pull

    async def counted(*asked: Any, **options: Any) -> Any:
        nonlocal sent
        sent += 1
        return await pull(*asked, **options)

    monkeypatch.setattr(consumer._wire, "pull", counted)
    for owner, name in ((arrow, "records_to_arrow"), (record_columns, "received_messages")):
        unpack = getattr(owner, name)

        def unpacked(*given: Any, unpack: Any = unpack, **options: Any) -> Any:
            seen.append(sent)
            return unpack(*given, **options)

        monkeypatch.setattr(owner, name, unpacked)
    batch = await consumer.poll_arrow(topic, max_messages=10 * count)
    stream = consumer.stream(topic, start="earliest")
    async for _ in stream:
        break
    await stream.aclose()
    assert len(batch) == count
    if count >= pull_consumer.AHEAD_RECORDS_MIN:
        assert seen == [2, sent]
        assert sent >= 4


async def test_stream_stops_at_the_end_that_was_there_at_its_start(
    producer: Producer, consumer: PullConsumer, topic: str
) -> None:
    """Messages sent meanwhile belong to the next stream."""
    await fill(producer, topic, 50)
    got: list[Any] = []
    async for message in consumer.stream(topic, start="earliest", stop_at_end=True):
        if not got:
            await fill(producer, topic, 10)
        got.append(message)
    assert len(got) == 50


async def test_stream_follows_and_commits(
    broker: PocketBroker,
    producer: Producer,
    consumer: PullConsumer,
    topic: str,
) -> None:
    """Without an end it waits for more messages; a commit in the loop includes the present message."""
    await fill(producer, topic, 3)
    stream = consumer.stream(topic, start="earliest")
    got = [await anext(stream) for _ in range(3)]
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.02)
    await producer.send(Message(topic, b"3"))
    async with asyncio.timeout(60):
        got.append(await waiting)
    await consumer.commit()
    await stream.aclose()
    assert numbers_of(got) == [0, 1, 2, 3]
    committed = [await consumer.committed(queue) or 0 for queue in await consumer.queues(topic)]
    assert sum(committed) == 4


async def test_stream_from_a_time(producer: Producer, consumer: PullConsumer, topic: str) -> None:
    """A datetime in the past begins at the first message, the present at the last."""
    await fill(producer, topic, 5)
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    assert len([m async for m in consumer.stream(topic, start=long_ago, stop_at_end=True)]) == 5
    with pytest.raises(OffsetIllegal, match="time zone"):
        await anext(consumer.stream(topic, start=datetime.datetime(2020, 1, 1)))


async def test_stream_batches_hands_out_lists(producer: Producer, consumer: PullConsumer, topic: str) -> None:
    """One list per pull, with the same messages."""
    await fill(producer, topic, 300)
    lists = [batch async for batch in consumer.stream_batches(topic, start="earliest", stop_at_end=True)]
    assert numbers_of([message for batch in lists for message in batch]) == list(range(300))
    assert all(lists)


async def test_poll_arrow_reads_on_and_keeps_to_its_limit(
    producer: Producer,
    consumer: PullConsumer,
    topic: str,
) -> None:
    """Batches follow each other without gap; an empty one has the same schema."""
    await fill(producer, topic, 500)
    first = await consumer.poll_arrow(topic, max_messages=200)
    bodies = first.column("body").to_pylist()
    while len(bodies) < 500:  # the last messages are shown a moment after their receipts
        rest = await consumer.poll_arrow(topic, max_messages=1000, timeout_ms=30_000)
        bodies += rest.column("body").to_pylist()
    none = await consumer.poll_arrow(topic, timeout_ms=0)
    assert len(first) == 200
    assert len(none) == 0
    assert none.schema == first.schema
    assert sorted(int(body or b"") for body in bodies) == list(range(500))


async def test_a_stream_outlives_a_broker_restart(topic: str, group: str) -> None:
    """Temporary errors are waited out."""
    from pocketmq.testing.broker import PocketBroker

    with PocketBroker() as broker:
        async with (
            Producer(group=group, namesrv=broker.namesrv) as producer,
            PullConsumer(group=group + "c", namesrv=broker.namesrv) as consumer,
        ):
            await producer.send(Message(topic, b"0"))
            stream = consumer.stream(topic, start="earliest")
            assert (await anext(stream)).body == b"0"
            await asyncio.to_thread(broker.restart)
            waiting = asyncio.ensure_future(anext(stream))
            async with asyncio.timeout(60):
                while True:
                    try:
                        await producer.send(Message(topic, b"1"))
                        break
                    except Exception:
                        await asyncio.sleep(0.05)
                assert (await waiting).body == b"1"
            await stream.aclose()


async def test_misuse_is_reported(broker: PocketBroker, consumer: PullConsumer, topic: str) -> None:
    """Unknown topics, wrong numbers, a consumer that does not run."""
    with pytest.raises(NoRoute, match=topic):
        await consumer.poll(topic)
    with pytest.raises(NoRoute):
        await consumer.poll(MessageQueue(topic, "pocket", 0))
    with pytest.raises(OffsetIllegal):
        await consumer.poll([])
    with pytest.raises(ConfigError, match="max_messages"):
        await consumer.poll(topic, max_messages=0)
    with pytest.raises(NotStarted):
        await PullConsumer("g", broker.namesrv).poll(topic)


async def test_more_queues_than_fit_one_pull_are_all_asked(
    broker: PocketBroker, producer: Producer, consumer: PullConsumer, topic: str
) -> None:
    """A poll finds a message in whatever queue it is, and does not wait for those of one request alone."""
    async with Admin(broker.namesrv) as admin:
        await admin.create_topic(topic, queues=2_500)
    for queue_id in (0, 1_500, 2_499):
        await producer.send(Message(topic, b"%d" % queue_id), selector=lambda queues, message: int(message.body))
        found = await consumer.poll(topic, timeout_ms=60_000)
        assert [message.queue_id for message in found] == [queue_id]
    await consumer.commit()
