"""A producer against a real broker."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pyarrow as pa
import pytest

from pocketmq.client import (
    ForkedClient,
    Message,
    NoRoute,
    NotStarted,
    Producer,
    PullConsumer,
    RemotingTooMuchRequestError,
    SendStatus,
    WrongLoop,
)
from pocketmq.client.admin.admin import Admin
from pocketmq.common.errors import ConfigError, MessageIllegal
from pocketmq.common.hashes import java_string_hash
from pocketmq.testing.broker import PocketBroker


@pytest.fixture
async def producer(broker: PocketBroker, group: str) -> AsyncIterator[Any]:
    async with Producer(group=group, namesrv=broker.namesrv) as running:
        yield running


async def read_all(broker: PocketBroker, topic: str, group: str = "reader") -> Any:
    async with PullConsumer(group=group, namesrv=broker.namesrv) as consumer:
        return [message async for message in consumer.stream(topic, start="earliest", stop_at_end=True)]


async def test_a_sent_message_comes_back_as_it_was(broker: PocketBroker, producer: Producer, topic: str) -> None:
    """Body, tags, keys, properties, flag and ids survive the broker."""
    sent = Message(topic, b"body", tags="A", keys=["k1", "k2"], properties={"x": "y"}, flag=7, sharding_key="s")
    receipt = await producer.send(sent)
    assert receipt.status is SendStatus.SEND_OK
    assert (receipt.topic, receipt.broker, receipt.queue_offset, receipt.attempts) == (topic, "pocket", 0, 1)
    (message,) = await read_all(broker, topic)
    assert (message.body, message.tags, message.keys, message.flag) == (b"body", "A", ["k1", "k2"], 7)
    assert message.properties["x"] == "y"
    assert message.sharding_key == "s"
    assert message.queue_id == receipt.queue_id
    assert message.msg_id == receipt.msg_id
    assert message.offset_msg_id == receipt.offset_msg_id


async def test_sends_of_one_turn_share_a_queue_and_keep_their_order(
    broker: PocketBroker, producer: Producer, topic: str
) -> None:
    """Round robin moves on from frame to frame, not within one."""
    await producer.send(Message(topic, b"first"))
    futures = [producer.send_nowait(Message(topic, b"%d" % number)) for number in range(50)]
    receipts = await asyncio.gather(*futures)
    assert len({receipt.queue_id for receipt in receipts}) == 1
    assert [receipt.queue_offset for receipt in receipts] == list(
        range(receipts[0].queue_offset, receipts[0].queue_offset + 50)
    )
    later = [(await producer.send(Message(topic, b"x"))).queue_id for _ in range(4)]
    assert sorted(later) == [0, 1, 2, 3]


async def test_sends_before_the_route_is_known_keep_their_order(
    broker: PocketBroker, producer: Producer, topic: str
) -> None:
    """The first messages to a topic wait for its route together."""
    futures = [producer.send_nowait(Message(topic, b"%d" % number, sharding_key="k")) for number in range(20)]
    receipts = await asyncio.gather(*futures)
    assert [receipt.queue_offset for receipt in receipts] == list(range(20))
    assert producer.in_flight_bytes == 0


async def test_a_sharding_key_has_its_queue(broker: PocketBroker, producer: Producer, topic: str) -> None:
    """RocketMQ's hash chooses it, for sends and batches alike."""
    keys = [f"key-{number}" for number in range(8)]
    single = [await producer.send(Message(topic, b"x", sharding_key=key)) for key in keys]
    batch = await producer.send_batch([Message(topic, b"x", sharding_key=key) for key in keys])
    expected = [abs(java_string_hash(key)) % 4 for key in keys]
    assert [receipt.queue_id for receipt in single] == [receipt.queue_id for receipt in batch] == expected


async def test_a_selector_chooses(broker: PocketBroker, producer: Producer, topic: str) -> None:
    """The user's function sees queues and message."""
    receipt = await producer.send(Message(topic, b"x"), selector=lambda queues, message: queues[2])
    assert receipt.queue_id == 2


async def test_a_callback_gets_the_receipt(broker: PocketBroker, producer: Producer, topic: str) -> None:
    """send_nowait returns a future, and so covers RocketMQ's asynchronous send."""
    seen = asyncio.get_running_loop().create_future()
    producer.send_nowait(Message(topic, b"x")).add_done_callback(lambda done: seen.set_result(done.result().status))
    assert await seen is SendStatus.SEND_OK


async def test_oneway_messages_arrive(broker: PocketBroker, producer: Producer, topic: str) -> None:
    """The broker stores the message without an answer."""
    await producer.send(Message(topic, b"first"))
    for number in range(5):
        producer.send_oneway(Message(topic, b"%d" % number))
    await producer.send(Message(topic, b"last"))
    assert len(await read_all(broker, topic)) == 7


async def test_a_message_that_does_not_wait_is_stored(broker: PocketBroker, producer: Producer, topic: str) -> None:
    """Where the broker flushes later its receipt promises as much as others; ``test_durability`` covers the rest."""
    waited = await producer.send(Message(topic, b"x"))
    not_waited = await producer.send(Message(topic, b"x", wait_store_msg_ok=False))
    assert waited.durability == not_waited.durability
    assert "a power loss may lose it" in waited.durability


async def test_a_batch_comes_back_in_order_over_topics_and_parts(
    broker: PocketBroker, producer: Producer, topic: str
) -> None:
    """Receipts are in the order of the messages; large batches are cut."""
    other = topic + "-b"
    messages = [Message(topic if number % 3 else other, b"%05d" % number * 200) for number in range(3000)]
    receipts = await producer.send_batch(messages)
    assert [receipt.topic for receipt in receipts] == [message.topic for message in messages]
    assert len({receipt.msg_id for receipt in receipts}) == 3000
    by_place = {
        (m.queue_id, m.queue_offset): m.body
        for name in (topic, other)
        for m in await read_all(broker, name)
        if name == topic
    }
    for message, receipt in zip(messages, receipts, strict=True):
        if message.topic == topic:
            assert by_place[receipt.queue_id, receipt.queue_offset] == message.body
    assert len(await producer.send_batch([])) == 0


async def test_arrow_rows_go_in_and_come_out(broker: PocketBroker, producer: Producer, topic: str, group: str) -> None:
    """send_arrow and poll_arrow are inverse over their common columns."""
    table = pa.table(
        {
            "body": pa.array([b"%d" % number for number in range(500)], pa.binary()),
            "tags": [None if number % 2 else "even" for number in range(500)],
            "keys": [f"k{number}" for number in range(500)],
            "sharding_key": [f"s{number % 7}" for number in range(500)],
        }
    )
    receipts = await producer.send_arrow(table, topic=topic)
    assert [receipt.queue_id for receipt in receipts] == [
        abs(java_string_hash(f"s{number % 7}")) % 4 for number in range(500)
    ]
    async with PullConsumer(group=group, namesrv=broker.namesrv) as consumer:
        batch = await consumer.poll_arrow(topic, max_messages=1000)
    got = {row["msg_id"]: row for row in batch.to_pylist()}
    for number, receipt in enumerate(receipts):
        row = got[receipt.msg_id]
        assert (row["body"], row["keys"]) == (b"%d" % number, f"k{number}")
        assert row["tags"] == ("" if number % 2 else "even")
        assert (row["queue_id"], row["queue_offset"]) == (receipt.queue_id, receipt.queue_offset)


@pytest.mark.parametrize(
    "wrong", [{"body": b""}, {"tags": "\x02"}, {"topic": "no topic"}, {"properties": {"KEYS": "a"}}]
)
async def test_a_bad_message_is_refused_and_others_go_on(
    broker: PocketBroker, producer: Producer, topic: str, wrong: Any
) -> None:
    """The error is raised where the message is sent; the producer stays usable."""
    await producer.send(Message(topic, b"x"))
    fields = {"topic": topic, "body": b"x", **wrong}
    with pytest.raises(Exception, match="refused"):
        producer.send_nowait(Message(**fields))
    good = producer.send_nowait(Message(topic, b"x"))
    assert (await good).status is SendStatus.SEND_OK
    assert producer.in_flight_bytes == 0


async def test_a_message_with_a_delay_level_is_no_batch(broker: PocketBroker, producer: Producer, topic: str) -> None:
    """RocketMQ refuses delayed messages in batches."""
    with pytest.raises(MessageIllegal, match="delay"):
        await producer.send_batch([Message(topic, b"x", delay_time_level=1)])


async def test_back_pressure(broker: PocketBroker, topic: str, group: str) -> None:
    """At the limit send_nowait refuses, send waits for room, and all accepted messages arrive."""
    async with Producer(group=group, namesrv=broker.namesrv, in_flight_bytes_max=20_000) as producer:
        await producer.send(Message(topic, b"first"))
        large = producer.send_nowait(Message(topic, b"x" * 1_100_000))
        with pytest.raises(RemotingTooMuchRequestError, match="20000"):
            producer.send_nowait(Message(topic, b"x"))
        assert (await large).status is SendStatus.SEND_OK
        receipts = await asyncio.gather(*(producer.send(Message(topic, b"y" * 9_000)) for _ in range(30)))
        assert len(receipts) == 30
        assert producer.in_flight_bytes == 0


async def test_linger_keeps_a_frame_open(broker: PocketBroker, topic: str, group: str) -> None:
    """Within the linger time sends of later turns join the frame, and share its queue."""
    async with Producer(group=group, namesrv=broker.namesrv, linger_ms=50) as producer:
        await producer.send(Message(topic, b"first"))
        first = producer.send_nowait(Message(topic, b"a"))
        await asyncio.sleep(0)
        second = producer.send_nowait(Message(topic, b"b"))
        assert (await first).queue_id == (await second).queue_id


async def test_stop_delivers_what_was_sent(broker: PocketBroker, topic: str, group: str) -> None:
    """Leaving the block waits for receipts, of the very first message too."""
    async with Producer(group=group, namesrv=broker.namesrv) as producer:
        futures = [producer.send_nowait(Message(topic, b"x")) for _ in range(10)]
    assert [future.result().status for future in futures] == [SendStatus.SEND_OK] * 10
    with pytest.raises(NotStarted):
        producer.send_nowait(Message(topic, b"x"))
    with pytest.raises(NotStarted):
        await producer.send_batch([Message(topic, b"x")])
    await producer.stop()


async def test_a_cancelled_send_disturbs_nobody(broker: PocketBroker, producer: Producer, topic: str) -> None:
    """The message may arrive; the other sends get their receipts."""
    await producer.send(Message(topic, b"x"))
    futures = [producer.send_nowait(Message(topic, b"x")) for _ in range(3)]
    futures[1].cancel()
    assert (await futures[0]).queue_offset + 2 == (await futures[2]).queue_offset


async def test_two_producers_can_share_an_instance(broker: PocketBroker, topic: str, numbers: Iterator[int]) -> None:
    """The instance closes with its last user."""
    first = Producer(group=f"g-{next(numbers)}", namesrv=broker.namesrv)
    second = Producer(group=f"g-{next(numbers)}", instance=first.instance)
    async with first:
        async with second:
            await second.send(Message(topic, b"x"))
        assert (await first.send(Message(topic, b"x"))).attempts == 1
    assert not first.instance.running


async def test_a_message_over_the_limit_is_refused_before_it_is_sent(
    broker: PocketBroker, topic: str, group: str
) -> None:
    """max_message_size bounds the body."""
    async with Producer(group=group, namesrv=broker.namesrv, max_message_size=10) as producer:
        with pytest.raises(MessageIllegal, match="over the limit of 10"):
            await producer.send(Message(topic, b"x" * 11))


@pytest.mark.parametrize(
    "wrong",
    [
        {"send_msg_timeout_ms": 0},
        {"retry_times_when_send_failed": -1},
        {"linger_ms": -1},
        {"max_message_size": 0},
        {"in_flight_bytes_max": "many"},
        {"in_flight_sends_max": 0},
        {"in_flight_oneways_max": 0},
        {"retry_times_when_send_async_failed": 1.5},
        {"send_msg_max_timeout_per_request_ms": 0},
        {"send_msg_max_timeout_per_request_ms": -2},
        {"retry_response_codes": ["SYSTEM_BUSY"]},
        {"retry_budget_ratio": -0.1},
        {"retry_budget_floor": None},
        {"send_latency_fault_enable": 1},
        {"retry_another_broker_when_not_store_ok": "yes"},
        {"latency_table": [50, 100]},
    ],
)
def test_impossible_settings_are_refused(wrong: Any) -> None:
    """At construction, with the name of the setting."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Producer("g", "127.0.0.1:9876", **wrong)


async def test_a_topic_without_a_route_is_an_error_when_brokers_create_none(topic: str, group: str) -> None:
    """No TBW102, no topic: 10005 with RocketMQ's text."""
    from pocketmq.testing.broker import PocketBroker

    async with (
        PocketBroker(broker={"auto_create_topic_enable": False}) as broker,
        Producer(group=group, namesrv=broker.namesrv) as producer,
    ):
        with pytest.raises(NoRoute, match=f"No route info of this topic: {topic}") as caught:
            await producer.send(Message(topic, b"x"))
        assert caught.value.code == 10005
        async with Admin(namesrv=broker.namesrv) as admin:
            await admin.create_topic(topic, queues=2)
        assert (await producer.send(Message(topic, b"x"))).queue_offset == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_fork_is_noticed(broker: PocketBroker, producer: Producer, topic: str) -> None:
    """In a child process the client raises instead of using its parent's sockets."""
    await producer.send(Message(topic, b"x"))
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:  # in the child: no code of pytest may run
        try:
            producer.send_nowait(Message(topic, b"x"))
            answer = b"sent"
        except ForkedClient:
            answer = b"ForkedClient"
        except BaseException as error:
            answer = repr(error).encode()
        os.write(write_end, answer)
        os._exit(0)
    await asyncio.to_thread(os.waitpid, child, 0)
    assert os.read(read_end, 1000) == b"ForkedClient"
    os.close(read_end)
    os.close(write_end)
    await producer.send(Message(topic, b"x"))


async def test_another_loop_or_thread_is_refused(producer: Producer, topic: str) -> None:
    """No message is sent; threads have ``pocketmq.client.blocking``."""

    async def elsewhere() -> None:
        with pytest.raises(WrongLoop):
            await producer.send(Message(topic, b"x"))
        with pytest.raises(WrongLoop):
            await producer.send_batch([Message(topic, b"x")])
        with pytest.raises(WrongLoop):
            await producer.stop()

    def plain() -> None:
        with pytest.raises(WrongLoop, match="blocking"):
            producer.send_nowait(Message(topic, b"x"))
        with pytest.raises(WrongLoop):
            producer.send_oneway(Message(topic, b"x"))

    await asyncio.to_thread(asyncio.run, elsewhere())
    await asyncio.to_thread(plain)
    assert (await producer.send(Message(topic, b"y"))).queue_offset == 0  # it goes on in its own loop


async def test_properties_and_keys_count_in_frames(broker: PocketBroker, topic: str, group: str) -> None:
    """A thousand messages with 20 kB of properties fit no frame: they are cut, with and without a known route."""
    messages = [Message(topic, b"x", properties={"p": "v" * 20_000}, keys="k" * 100) for _ in range(1_000)]
    async with Producer(group=group, namesrv=broker.namesrv) as producer:
        before = [producer.send_nowait(message) for message in messages]
        assert len(await asyncio.gather(*before)) == 1_000
        assert len(await producer.send_batch(messages)) == 1_000
        body, properties = [b"x"] * 1_000, [[("p", "v" * 20_000)]] * 1_000
        columns = {"body": pa.array(body), "properties": pa.array(properties, pa.map_(pa.string(), pa.string()))}
        assert len(await producer.send_arrow(pa.RecordBatch.from_pydict(columns), topic=topic)) == 1_000
