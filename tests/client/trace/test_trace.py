"""Message trace from producers and consumers to the trace topic, against the real broker."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq.client import ClientInstance, Later, Message, Producer, PullConsumer, PushConsumer
from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.query import MessageFinder
from pocketmq.client.admin.trace_path import TracePath, find_path
from pocketmq.client.producer.send_trace import SendTrace
from pocketmq.client.pull.offsets import ConsumeFromWhere
from pocketmq.client.trace.trace import BATCH_BYTES, BATCH_RECORDS, TraceDispatcher
from pocketmq.client.trace.trace_format import TracedKind, TraceRecord, TraceType, decode_records
from pocketmq.client.transaction.transaction_producer import TransactionProducer
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.topics import TRACE_TOPIC
from pocketmq.testing.broker import PocketBroker
from tests.delays import short_seconds

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture(scope="module")
def tracing() -> Iterator[PocketBroker]:
    """Start a broker that makes a trace topic; other topics are made by tests only."""
    with short_seconds(), PocketBroker(broker={"trace_topic_enable": True}) as broker:
        yield broker


async def traced(namesrv: str) -> list[TraceRecord]:
    """Return the present records of the trace topic."""
    async with PullConsumer(group="look", namesrv=namesrv) as consumer:
        found = consumer.stream(TRACE_TOPIC, start="earliest", stop_at_end=True)
        return [record async for message in found for record in decode_records(message.body)]


async def path_when(namesrv: str, msg_id: str, consumptions: int) -> TracePath:
    """Return the path of a message once it has so many attempts."""
    async with Admin(namesrv) as admin, asyncio.timeout(60):
        while True:
            path = await find_path(MessageFinder(admin), msg_id)
            if len([each for each in path.consumptions if each.after is not None]) >= consumptions and path.stored:
                return path
            await asyncio.sleep(0.01)


async def test_the_path_of_a_message_is_reported(
    tracing: PocketBroker, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Send, place in the log, a failed and a good attempt, in the order of time, found by the message's id."""
    done = asyncio.Event()
    consumer = PushConsumer(
        group, tracing.namesrv, consume_from_where=FIRST, enable_message_trace=True, retry_delay_ms=5
    )
    tries: list[str] = []

    @consumer.subscribe(topic)
    async def handle(message: Any) -> Later | None:
        tries.append(message.msg_id)
        if len(tries) == 1:
            return Later(delay_level=1)
        done.set()
        return None

    async with Producer("shop", tracing.namesrv, enable_message_trace=True) as producer:
        receipt = await producer.send(Message(topic, b"hello", tags="A", keys=["k1", "k2"]))
    with caplog.at_level(logging.CRITICAL + 1):
        async with consumer, asyncio.timeout(60):
            await done.wait()
    path = await path_when(tracing.namesrv, receipt.msg_id, 2)
    (send,) = path.sends
    assert (send.group, send.topic, send.tags, send.keys) == ("shop", topic, "A", "k1 k2")
    assert (send.body_bytes, send.kind, send.success) == (5, TracedKind.NORMAL, True)
    assert (send.store_host, send.offset_msg_id) == (tracing.address, receipt.offset_msg_id)
    assert send.region == "DefaultRegion"
    assert 0 <= send.cost_ms < 20_000
    (stored,) = path.stored
    assert stored.queue_offset == receipt.queue_offset
    assert [each.after is not None and each.after.success for each in path.consumptions] == [False, True]
    assert {each.group for each in path.consumptions} == {group}
    assert send.timestamp_ms <= path.consumptions[0].began_ms


async def test_every_kind_of_send_is_traced_once(tracing: PocketBroker, topic: str) -> None:
    """Single, batched, delayed, with a selector; a transaction as its half; oneway sends have no answer to trace."""
    async with Producer("kinds", tracing.namesrv, enable_message_trace=True) as producer:
        one = await producer.send_nowait(Message(topic, b"1"))
        batch = await producer.send_batch([Message(topic, b"2"), Message(topic, b"33")])
        late = await producer.send(Message(topic, b"4", delay_time_level=1))
        chosen = await producer.send(Message(topic, b"5"), selector=lambda queues, message: queues[-1])
        producer.send_oneway(Message(topic, b"6"))
    async with TransactionProducer(
        "kinds", tracing.namesrv, check=lambda message: None, enable_message_trace=True
    ) as transactions:
        half = await transactions.send_in_transaction(Message(topic, b"7"), lambda message: True)
    records = [record for record in await traced(tracing.namesrv) if record.topic == topic]
    kinds = {record.msg_id: (record.kind, record.body_bytes) for record in records}
    assert len(records) == len(kinds)
    assert kinds == {
        one.msg_id: (0, 1),
        batch[0].msg_id: (0, 1),
        batch[1].msg_id: (0, 2),
        late.msg_id: (TracedKind.DELAY, 1),
        chosen.msg_id: (0, 1),
        half.msg_id: (TracedKind.TRANSACTION_HALF, 1),
    }


async def test_tracing_traces_nothing_of_itself(tracing: PocketBroker, topic: str) -> None:
    """Neither the internal producer's messages nor a user's messages to the trace topic leave a record."""
    async with Producer("self", tracing.namesrv, enable_message_trace=True) as producer:
        await producer.send(Message(topic, b"x"))
        await producer.send(Message(TRACE_TOPIC, b"by hand"))
    records = await traced(tracing.namesrv)
    assert TRACE_TOPIC not in {record.topic for record in records}
    assert len([record for record in records if record.topic == topic]) == 1


async def test_a_broker_that_wants_no_trace_gets_none(topic: str) -> None:
    """TRACE_ON is false in answers and announcement: no record is written, sends work as usual."""
    with PocketBroker(broker={"trace_on": False, "trace_topic_enable": True}) as broker:
        async with Producer("quiet", broker.namesrv, enable_message_trace=True) as producer:
            receipt = await producer.send(Message(topic, b"native"))
            assert not receipt.trace_on
            assert not (await producer.send(Message(topic, b"typed", delay_time_level=1))).trace_on
            dispatcher = dispatcher_of(producer)
        assert (dispatcher.sent, dispatcher.dropped) == (0, 0)


def dispatcher_of(producer: Producer) -> TraceDispatcher:
    trace = producer._chain.stages[-1]
    assert isinstance(trace, SendTrace)
    return trace.dispatcher


def record(number: int, size: int = 1) -> TraceRecord:
    return TraceRecord(trace_type=TraceType.PUB, msg_id=f"{number:032X}", topic="T", keys="k" * size)


async def test_a_full_queue_drops_and_counts(tracing: PocketBroker) -> None:
    """The producer never waits for trace: records without room are counted, the others arrive in batches."""
    inner = Producer("inner", tracing.namesrv)
    dispatcher = TraceDispatcher(inner, TRACE_TOPIC, queue_max=250)
    dispatcher.put(record(0))
    assert dispatcher.dropped == 1  # not started
    await dispatcher.start()
    for number in range(1, 301):
        dispatcher.put(record(number))
    assert (dispatcher.waiting, dispatcher.dropped) == (250, 51)
    await dispatcher.stop()
    assert (dispatcher.sent, dispatcher.lost, dispatcher.waiting) == (250, 0, 0)
    ids = {each.msg_id for each in await traced(tracing.namesrv)}
    assert {f"{number:032X}" for number in range(1, 251)} <= ids


async def test_batches_keep_their_limits(tracing: PocketBroker) -> None:
    """A message has at most 100 records and 128,000 bytes, and keys that fit a property string."""
    inner = Producer("inner", tracing.namesrv)
    dispatcher = TraceDispatcher(inner, TRACE_TOPIC)
    dispatcher._queue.extend(record(number) for number in range(BATCH_RECORDS + 1))
    message, count = dispatcher._take()
    assert count == BATCH_RECORDS
    assert dispatcher.waiting == 1
    dispatcher._queue.clear()
    dispatcher._queue.extend(record(number, 12_000) for number in range(20))
    while dispatcher.waiting:
        message, count = dispatcher._take()
        assert len(message.body) <= BATCH_BYTES
        assert len(message.keys_text) <= 32_000
        assert count >= 1


async def test_trace_that_cannot_be_sent_is_counted_and_harms_nobody(topic: str) -> None:
    """Without a trace topic, and without automatic creation, sends succeed and the loss is counted."""
    with PocketBroker(broker={"auto_create_topic_enable": False}) as broker:
        async with Admin(broker.namesrv) as admin:
            await admin.create_topic(topic)
        async with Producer("lossy", broker.namesrv, enable_message_trace=True) as producer:
            assert (await producer.send(Message(topic, b"x"))).status.value == "SEND_OK"
            dispatcher = dispatcher_of(producer)
        assert (dispatcher.sent, dispatcher.lost) == (0, 1)


async def test_a_send_that_failed_leaves_no_record(tracing: PocketBroker, topic: str) -> None:
    """RocketMQ's rule: a send without a broker's answer is not traced."""
    async with Producer("fails", tracing.namesrv, enable_message_trace=True) as producer:
        with pytest.raises(MessageIllegal):
            await producer.send(Message(topic, b""))
        dispatcher = dispatcher_of(producer)
    assert dispatcher.sent == 0


async def test_a_shared_instance_stays_open_for_its_other_users(tracing: PocketBroker, topic: str) -> None:
    """Stopping a traced producer stops its internal one, and nothing else."""
    instance = ClientInstance(tracing.namesrv)
    async with Producer("other", instance=instance) as other:
        async with Producer("traced", instance=instance, enable_message_trace=True) as producer:
            await producer.send(Message(topic, b"x"))
        await other.send(Message(topic, b"y"))
        assert instance.running
    assert not instance.running


async def test_a_bad_trace_topic_is_refused(tracing: PocketBroker) -> None:
    """It is refused before a message is sent."""
    with pytest.raises(Exception, match="illegal characters"):
        Producer("p", tracing.namesrv, enable_message_trace=True, trace_topic="no topic")
