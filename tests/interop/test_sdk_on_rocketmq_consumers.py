"""PocketMQ's consumers on RocketMQ's servers."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from pocketmq.client import (
    ConsumeFromWhere,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from pocketmq.client.admin.admin import Admin
from pocketmq.client.errors import SubscriptionIllegal
from tests.interop.rocketmq_servers import RocketMQServers
from tests.interop.sdk_on_rocketmq import new_name, new_topic, read_all, until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def _fill(servers: RocketMQServers, topic: str, count: int) -> None:
    """Send messages with tags A and B in turn and a property ``price``, spread over the queues."""
    async with Producer(new_name("producer"), servers.namesrv) as producer:
        for number in range(count):
            message = Message(topic, b"%d" % number, tags="AB"[number % 2], properties={"price": str(number)})
            await producer.send(message, selector=_by_number)


def _by_number(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    return queues[int(message.body) % len(queues)]


async def test_pulls_polls_streams_and_arrow_give_the_same_messages(rocketmq: RocketMQServers) -> None:
    """Every way to read a topic gives the same messages; a pull returns 32 at most, which users do not notice."""
    pa = pytest.importorskip("pyarrow")
    topic = await new_topic(rocketmq, 2)
    async with Producer(new_name("producer"), rocketmq.namesrv) as producer:
        await producer.send_batch([Message(topic, b"%d" % n, sharding_key=f"k{n % 5}") for n in range(300)])
    polled = {message.body for message in await read_all(rocketmq, topic, 300)}
    async with PullConsumer(new_name("reader"), rocketmq.namesrv) as consumer:
        streamed = [message.body async for message in consumer.stream(topic, start="earliest", stop_at_end=True)]
        await consumer.seek(topic, "earliest")
        tables = []
        while (batch := await consumer.poll_arrow(topic, max_messages=100, timeout_ms=300)).num_rows:
            tables.append(batch)
    columns = pa.Table.from_batches(tables).column("body").to_pylist()
    assert polled == set(streamed) == set(columns) == {b"%d" % number for number in range(300)}
    assert len(streamed) == len(columns) == 300


async def test_a_poll_of_one_queue_ends_when_its_time_is_over(rocketmq: RocketMQServers) -> None:
    """RocketMQ checks held pulls only every 5 s: a short wait must not become a long one."""
    topic = await new_topic(rocketmq, 1)
    async with PullConsumer(new_name("reader"), rocketmq.namesrv) as consumer:
        await consumer.poll(topic, timeout_ms=0)
        started_s = time.monotonic()
        assert await consumer.poll(topic, timeout_ms=400) == []
        assert time.monotonic() - started_s < 3


async def test_positions_are_kept_sought_and_found_by_time(rocketmq: RocketMQServers) -> None:
    """Committed offsets, ends, seeks by offset and by time, as on a PocketMQ broker."""
    topic, group = await new_topic(rocketmq, 1), new_name("reader")
    queue = MessageQueue(topic, rocketmq.broker_name, 0)
    await _fill(rocketmq, topic, 10)
    await asyncio.sleep(0.05)
    between_ms = int(time.time() * 1000)
    await asyncio.sleep(0.05)
    await _fill(rocketmq, topic, 10)
    async with PullConsumer(group, rocketmq.namesrv) as consumer:
        assert await consumer.queues(topic) == [queue]
        assert [message.queue_offset for message in await consumer.poll(topic, max_messages=7)] == list(range(7))
        await consumer.commit()
        await consumer.seek_time(topic, between_ms)
        # 4.9 takes the message with the nearest time, 5.3 the first at or after it
        assert await consumer.position(queue) in ((9, 10) if rocketmq.version == "4.9" else (10,))
        await consumer.seek(topic, "latest")
        assert await consumer.position(queue) == 20
        await consumer.seek_offset(queue, 18)
        assert [message.queue_offset for message in await consumer.poll(topic)] == [18, 19]
    async with PullConsumer(group, rocketmq.namesrv) as consumer:
        assert await consumer.committed(queue) == 7
        assert (await consumer.poll(topic, max_messages=1))[0].queue_offset == 7


async def test_an_offset_outside_the_queue_is_corrected(rocketmq: RocketMQServers) -> None:
    """PULL_OFFSET_MOVED: the consumer continues within the queue."""
    topic = await new_topic(rocketmq, 1)
    queue = MessageQueue(topic, rocketmq.broker_name, 0)
    await _fill(rocketmq, topic, 3)
    async with PullConsumer(new_name("reader"), rocketmq.namesrv) as consumer:
        consumer._positions[queue] = 1_000_000
        await consumer.poll(topic, timeout_ms=500)
        assert 0 <= await consumer.position(queue) <= 3


async def test_concurrent_batch_tag_and_sql_handlers_get_what_they_asked_for(rocketmq: RocketMQServers) -> None:
    """Four groups, each with its way to consume, over the same topic."""
    topic = await new_topic(rocketmq)
    await _fill(rocketmq, topic, 60)
    every: list[ReceivedMessage] = []
    batches: list[int] = []
    tagged: list[bytes] = []
    priced: list[bytes] = []
    consumers = [PushConsumer(new_name("group"), rocketmq.namesrv, consume_from_where=FIRST) for _ in range(4)]

    @consumers[0].subscribe(topic)
    async def one(message: ReceivedMessage) -> None:
        every.append(message)

    @consumers[1].subscribe_batch(topic, max_messages=8)
    def many(messages: list[ReceivedMessage]) -> None:
        batches.append(len(messages))

    @consumers[2].subscribe(topic, tags="B || C")
    def of_tag(message: ReceivedMessage) -> None:
        tagged.append(message.body)

    @consumers[3].subscribe(topic, sql="price BETWEEN 10 AND 19 AND TAGS = 'A'")
    def of_price(message: ReceivedMessage) -> None:
        priced.append(message.body)

    for consumer in consumers:
        await consumer.start()
    await until(lambda: len(every) == 60 and sum(batches) == 60, 20, "all of them")
    await until(lambda: len(tagged) == 30 and len(priced) == 5, 20, "the chosen ones")
    await asyncio.sleep(0.3)
    for consumer in consumers:
        await consumer.stop()
    assert {message.body for message in every} == {b"%d" % number for number in range(60)}
    assert len(every) == sum(batches) == 60
    assert max(batches) > 1
    assert set(tagged) == {b"%d" % number for number in range(1, 60, 2)}
    assert set(priced) == {b"%d" % number for number in range(10, 20, 2)}
    assert {message.fencing_token for message in every} == {0}


async def test_a_filter_that_does_not_parse_is_refused_at_once(rocketmq: RocketMQServers) -> None:
    """The client checks the text before a broker gets it."""
    consumer = PushConsumer(new_name("group"), rocketmq.namesrv)
    with pytest.raises(SubscriptionIllegal, match="column"):
        consumer.subscribe("topic", sql="price >>")


async def test_ordered_handlers_get_each_queue_in_order_under_rocketmqs_lock_without_tokens(
    rocketmq: RocketMQServers,
) -> None:
    """One member has a queue at a time; RocketMQ has no fencing tokens, so messages carry none."""
    topic, group = await new_topic(rocketmq, 2), new_name("group")
    seen: list[tuple[int, int, int]] = []
    consumers = [PushConsumer(group, rocketmq.namesrv, consume_from_where=FIRST) for _ in range(2)]
    for consumer in consumers:

        @consumer.subscribe(topic, ordered=True)
        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(0)
            seen.append((message.queue_id, message.queue_offset, message.fencing_token))

        await consumer.start()
    await until(lambda: [len(consumer.assigned) for consumer in consumers] == [1, 1], 30, "a queue each")
    async with Producer(new_name("producer"), rocketmq.namesrv) as producer:
        await producer.send_batch([Message(topic, b"x", sharding_key=str(number)) for number in range(200)])
    await until(lambda: len(seen) >= 200, 40, "all of them")
    for consumer in consumers:
        await consumer.stop()
    assert len(seen) == 200
    assert {token for _, _, token in seen} == {0}
    for queue_id in (0, 1):
        offsets = [offset for queue, offset, _ in seen if queue == queue_id]
        assert offsets == list(range(len(offsets)))
        assert offsets


async def test_every_broadcast_member_gets_every_message_and_goes_on_where_it_was(
    rocketmq: RocketMQServers, tmp_path: Path
) -> None:
    """A member keeps its offsets in a file."""
    topic, group = await new_topic(rocketmq, 2), new_name("group")
    await _fill(rocketmq, topic, 10)
    seen: list[list[bytes]] = [[], []]

    def member(number: int) -> PushConsumer:
        consumer = PushConsumer(
            group,
            rocketmq.namesrv,
            consume_from_where=FIRST,
            message_model="BROADCASTING",
            offset_store_dir=tmp_path / str(number),
        )
        consumer.subscribe(topic)(lambda message: seen[number].append(message.body))
        return consumer

    members = [member(0), member(1)]
    for consumer in members:
        await consumer.start()
    await until(lambda: len(seen[0]) == len(seen[1]) == 10, 20, "everything to both")
    await members[0].stop()
    await _fill(rocketmq, topic, 2)
    async with member(0):
        await until(lambda: len(seen[0]) == 12, 20, "what came meanwhile, and nothing twice")
        await asyncio.sleep(0.2)
    await members[1].stop()
    assert len(seen[0]) == 12


async def test_members_share_the_queues_and_hand_them_over(rocketmq: RocketMQServers) -> None:
    """A second member gets half of the queues, the first all of them back; no message is lost or left."""
    topic, group = await new_topic(rocketmq), new_name("group")
    seen: list[bytes] = []
    consumers = [PushConsumer(group, rocketmq.namesrv, consume_from_where=FIRST) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe(topic)(lambda message: seen.append(message.body))
    first, second = consumers
    await first.start()
    await until(lambda: len(first.assigned) == 4, 20, "all queues")
    await second.start()
    await until(lambda: (len(first.assigned), len(second.assigned)) == (2, 2), 30, "half of the queues each")
    await _fill(rocketmq, topic, 20)
    await until(lambda: len(seen) >= 20, 20, "all messages")
    await second.stop()
    await until(lambda: len(first.assigned) == 4, 30, "all queues again")
    await _fill(rocketmq, topic, 20)
    await until(lambda: len(seen) >= 40, 20, "all messages of one member")
    await first.stop()
    assert len(seen) == 40
    async with Admin(rocketmq.namesrv) as admin:
        described = await admin.describe_group(group, topic=topic)
    assert (described.lag, len(described.queues), described.members) == (0, 4, [])


async def test_a_running_group_is_described_and_reset_to_its_start(rocketmq: RocketMQServers) -> None:
    """``force`` moves a group whose members run: 4.9's members are notified, 5.3's learn it with their next pull. 4.9
    does not know the offset of a reset, only its time: without a time it would go to the end, and skip all messages.
    """
    topic, group = await new_topic(rocketmq, 2), new_name("group")
    await _fill(rocketmq, topic, 10)
    seen: list[bytes] = []
    consumer = PushConsumer(group, rocketmq.namesrv, consume_from_where=FIRST)
    consumer.subscribe(topic)(lambda message: seen.append(message.body))
    async with consumer, Admin(rocketmq.namesrv) as admin:
        await until(lambda: len(seen) == 10, 20, "all messages")
        described = await admin.describe_group(group)
        (member,) = described.members
        assert (member.client_id, described.subscriptions[topic]) == (consumer.instance.client_id, "*")
        info = await admin.consumer_running_info(group, member.client_id)
        assert {queue.queue_id for queue in info.mq_table if queue.topic == topic} == {0, 1}
        offsets = await admin.seek_group(group, topic, "earliest", force=True)
        assert set(offsets.values()) == {0}
        await until(lambda: len(seen) >= 20, 40, "all messages once more")
    assert len(seen) == 20


async def test_what_failed_comes_again_and_ends_among_the_dead_letters(rocketmq: RocketMQServers) -> None:
    """CONSUMER_SEND_MSG_BACK with RocketMQ's fields; the retry comes after level 3, 10 s."""
    topic, group = await new_topic(rocketmq, 1), new_name("group")
    tries: list[tuple[str, int]] = []
    consumer = PushConsumer(group, rocketmq.namesrv, consume_from_where=FIRST, max_reconsume_times=1)

    @consumer.subscribe(topic)
    async def fail(message: ReceivedMessage) -> bool:
        tries.append((message.topic, message.reconsume_times))
        return False

    async with consumer:
        async with Producer(new_name("producer"), rocketmq.namesrv) as producer:
            receipt = await producer.send(Message(topic, b"poison", tags="T", keys="key", properties={"own": "1"}))
        await until(lambda: len(tries) == 2, 30, "the second try")
        (dead,) = await read_all(rocketmq, f"%DLQ%{group}", 1)
    assert tries == [(topic, 0), (topic, 1)], "the topic is the one it was sent to"
    assert (dead.body, dead.keys, dead.properties["own"]) == (b"poison", ["key"], "1")
    assert dead.properties["RETRY_TOPIC"] == topic
    assert dead.properties["ORIGIN_MESSAGE_ID"] == receipt.offset_msg_id
    assert "POCKETMQ_LAST_ERROR" not in dead.properties


async def test_an_ordered_message_is_tried_again_in_its_place_and_dies_after_its_tries(
    rocketmq: RocketMQServers,
) -> None:
    """Messages behind it wait meanwhile."""
    topic, group = await new_topic(rocketmq, 1), new_name("group")
    seen: list[tuple[bytes, int]] = []
    consumer = PushConsumer(
        group,
        rocketmq.namesrv,
        consume_from_where=FIRST,
        max_reconsume_times=2,
        suspend_current_queue_time_millis=20,
    )

    @consumer.subscribe(topic, ordered=True)
    async def handle(message: ReceivedMessage) -> bool:
        seen.append((message.body, message.reconsume_times))
        return message.body != b"poison"

    async with Producer(new_name("producer"), rocketmq.namesrv) as producer:
        await producer.send_batch([Message(topic, body) for body in (b"before", b"poison", b"behind")])
    async with consumer:
        await until(lambda: (b"behind", 0) in seen, 30, "the message behind")
        (dead,) = await read_all(rocketmq, f"%DLQ%{group}", 1)
    assert seen == [(b"before", 0), (b"poison", 0), (b"poison", 1), (b"poison", 2), (b"behind", 0)]
    assert dead.body == b"poison"
