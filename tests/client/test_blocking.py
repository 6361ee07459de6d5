"""The SDK from plain threads."""

import asyncio
import concurrent.futures
import threading
from typing import Any

import pyarrow as pa
import pytest

from pocketmq.client import ConsumeFromWhere, Message, NotStarted
from pocketmq.client.blocking import Producer, PullConsumer, PushConsumer
from pocketmq.common.errors import MessageIllegal
from pocketmq.testing.broker import PocketBroker


def test_send_and_read(broker: PocketBroker, topic: str, group: str) -> None:
    """Every way to send, and every way to read."""
    with Producer(group, broker.namesrv) as producer:
        receipt = producer.send(Message(topic, b"0"))
        futures = [producer.send_nowait(Message(topic, b"%d" % number)) for number in range(1, 100)]
        assert {future.result(10).topic for future in futures} == {topic}
        producer.send_batch([Message(topic, b"100")])
        producer.send_arrow(pa.record_batch({"body": [b"101"]}), topic=topic)
        producer.send_oneway(Message(topic, b"102"))
        with pytest.raises(MessageIllegal):
            producer.send(Message(topic, b""))
        assert isinstance(producer.send_nowait(Message(topic, b"")).exception(10), MessageIllegal)
        producer.send(Message(topic, b"103"))
    assert receipt.topic == topic
    with PullConsumer(group, broker.namesrv) as consumer:
        bodies = [int(message.body) for message in consumer.stream(topic, start="earliest", stop_at_end=True)]
        assert sorted(bodies) == list(range(104))
        consumer.commit()
        assert sum(consumer.committed(queue) or 0 for queue in consumer.queues(topic)) == 104
        consumer.seek(topic, "earliest")
        assert len(consumer.poll(topic, max_messages=5)) == 5
        assert len(consumer.poll_arrow(topic)) == 99
        endless = consumer.stream(topic, start="earliest")
        assert next(endless).topic == topic
        endless.close()


def test_many_threads_share_a_producer(broker: PocketBroker, topic: str, group: str) -> None:
    """Sends of several threads do not affect each other."""
    with Producer(group, broker.namesrv) as producer, concurrent.futures.ThreadPoolExecutor(4) as pool:
        receipts = list(pool.map(lambda number: producer.send(Message(topic, b"%d" % number)), range(100)))
    assert len({(receipt.queue_id, receipt.queue_offset) for receipt in receipts}) == 100


def test_push_runs_until_another_thread_stops_it(broker: PocketBroker, topic: str, group: str) -> None:
    """run blocks; a stop from a handler's thread or another thread ends it."""
    with Producer(group, broker.namesrv) as producer:
        producer.send(Message(topic, b"x"))
    consumer = PushConsumer(group, broker.namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    handled = threading.Event()

    @consumer.subscribe(topic)
    def handle(message: Any) -> None:
        handled.set()

    runner = threading.Thread(target=consumer.run)
    runner.start()
    assert handled.wait(60)
    consumer.stop()
    runner.join(60)
    assert not runner.is_alive()


def test_a_closed_client_says_so(broker: PocketBroker, topic: str, group: str) -> None:
    """This holds before the start and after the stop; a second stop does nothing."""
    producer = Producer(group, broker.namesrv)
    with pytest.raises(NotStarted):
        producer.send(Message(topic, b"x"))
    with producer:
        pass
    with pytest.raises(NotStarted):
        producer.send(Message(topic, b"x"))
    producer.stop()


def test_a_plain_loop_over_pushed_messages(broker: PocketBroker, topic: str, group: str) -> None:
    """It starts the consumer; passed messages are acknowledged, the one at which the loop was left is not."""
    with Producer(group, broker.namesrv) as producer:
        for number in range(5):
            producer.send(Message(topic, b"%d" % number, sharding_key="one queue"))
    seen = []
    consumer = PushConsumer(group, broker.namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    for message in consumer.messages(topic, prefetch=1):
        seen.append(message.body)
        if len(seen) == 3:
            break
    consumer.pause()
    consumer.resume()
    consumer.stop()
    again = PushConsumer(group, broker.namesrv)
    rest = []
    for message in again.messages(topic):
        rest.append(message.body)
        if len(rest) == 5 - len(seen) + 1:
            break
    again.stop()
    assert sorted({*seen, *rest}) == [b"0", b"1", b"2", b"3", b"4"]
    assert seen[-1] in rest


async def test_a_blocking_call_inside_a_loop_warns(broker: PocketBroker, topic: str, group: str) -> None:
    """Once for each client, with what to do; ``send_nowait`` and other threads do not block the loop."""
    producer = Producer(group, broker.namesrv)
    await asyncio.to_thread(producer.start)
    await asyncio.wrap_future(producer.send_nowait(Message(topic, b"0")))
    await asyncio.to_thread(producer.send, Message(topic, b"1"))

    def send_two() -> None:
        producer.send(Message(topic, b"2"))
        producer.send(Message(topic, b"3"))

    with pytest.warns(RuntimeWarning, match="await the same call of pocketmq.client, or use asyncio.to_thread") as seen:
        send_two()
    assert len(seen) == 1
    producer.stop()
    with pytest.raises(RuntimeWarning):  # where warnings are errors, as in these tests
        Producer(group, broker.namesrv).start()
