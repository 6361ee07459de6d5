"""Records real frames of PocketMQ's SDK with RocketMQ's servers, and compares them with the recording.

``RECORD_VECTORS=1 make interop`` writes ``tests/vectors/rocketmq-<version>/frames.jsonl.gz`` again.
"""

import asyncio
import contextlib
import os

from pocketmq.client import (
    ClientInstance,
    ClientOptions,
    ConsumeFromWhere,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
    is_request,
    reply_to,
)
from pocketmq.client.admin.admin import Admin
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import BINARY
from tests.interop.frame_recorder import recorded_frames
from tests.interop.rocketmq_servers import RocketMQServers
from tests.interop.sdk_on_rocketmq import new_name, until
from tests.remoting.recorded_frames import frames_path, read_frames, write_frames

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
BY_CHANCE = {
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.HELLO,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
}
"""Requests and answers that depend on timing; and the list of groups, which exceeds a recorded frame once other tests
have made many.
"""


async def _talk(servers: RocketMQServers, topic: str, serialize_type: str) -> None:
    """Run one of each conversation that the SDK has with RocketMQ."""

    def instance() -> ClientInstance:
        return ClientInstance(servers.namesrv, options=ClientOptions(serialize_type=serialize_type))

    group = new_name("frames-group")
    queue = MessageQueue(topic, servers.broker_name, 0)
    async with Admin(instance=instance()) as admin:
        await admin.create_topic(topic, queues=1)
        await admin.cluster_info()
        async with Producer("frames-producer", instance=instance()) as producer:
            receipt = await producer.send(
                Message(topic, b"frame one", tags="TagA", keys="key1", properties={"own": "ü"}, flag=3)
            )
            await producer.send_batch([Message(topic, b"batched %d" % number) for number in range(2)])
            producer.send_oneway(Message(topic, b"oneway"))
            await producer.send(Message(topic, b"later", delay_time_level=1))
            with contextlib.suppress(PocketMQError):
                await producer.send(Message(new_name("x"), bytes(10), properties={"p": "v" * 32_000}))
            await _consume(instance, producer, admin, topic, group)
            await _transact(instance, topic)
        async with PullConsumer("frames-reader", instance=instance()) as consumer:
            await consumer.poll(topic, max_messages=2)
            await consumer.commit()
            assert await consumer.committed(queue) == 2
            await consumer.poll(topic, tags="nothing-has-it", timeout_ms=0)
            await consumer.seek(topic, "latest")
            await consumer.poll(topic, timeout_ms=0)
            consumer._positions[queue] = 1 << 40
            await consumer.poll(topic, timeout_ms=0)
            await consumer.seek_time(topic, 1)
        await admin.view_message(receipt.offset_msg_id)
        await admin.query_messages(topic, "key1")
        await admin.query_messages(topic, "no-such-key")
        await admin.topics()
        await admin.groups()
        await admin.describe_topic(topic)
        await admin.describe_group("frames-reader", topic=topic)
        with contextlib.suppress(PocketMQError):
            await admin.view_message("7F000001" + "00002A9F" + "7FFFFFFFFFFFFFF0")
        await admin.broker_runtime(servers.broker)
        await admin.delete_topic(topic)


async def _consume(instance: object, producer: Producer, admin: Admin, topic: str, group: str) -> None:
    """Push consumption: ordered, failing, inspected by an administrator; a request and its reply."""
    assert callable(instance)
    seen: list[bytes] = []
    consumer = PushConsumer(group, consume_from_where=FIRST, instance=instance())

    @consumer.subscribe(topic)
    async def handle(message: ReceivedMessage) -> bool:
        seen.append(message.body)
        if is_request(message):
            await producer.send(reply_to(message, b"answer"))
        return message.body != b"frame one"  # sent back

    async with consumer:
        await until(lambda: len(seen) >= 3, 30, "the first messages")
        reply = await producer.request(Message(topic, b"question"), timeout_ms=10_000)
        assert reply.body == b"answer"
        await admin.consumer_running_info(group, consumer.instance.client_id)
        await admin.seek_group(group, topic, "latest", force=True)
        await asyncio.sleep(0.3)
    ordered = PushConsumer(group + "-ordered", consume_from_where=FIRST, instance=instance())
    ordered.subscribe(topic, ordered=True)(lambda message: seen.append(b"ordered"))
    async with ordered:
        await until(lambda: b"ordered" in seen, 30, "an ordered message")


async def _transact(instance: object, topic: str) -> None:
    """A transaction that is committed, and one that is checked."""
    assert callable(instance)
    asked: list[str] = []

    def check(message: ReceivedMessage) -> bool:
        asked.append(message.msg_id)
        return False

    async with TransactionProducer("frames-transactions", check=check, instance=instance()) as producer:
        await producer.send_in_transaction(Message(topic, b"committed"), lambda message: True)
        await producer.send_in_transaction(Message(topic, b"asked"), lambda message: None)
        await until(lambda: bool(asked), 30, "a check")
        await asyncio.sleep(0.2)


async def test_the_frames_of_the_sdks_conversations_are_those_recorded(rocketmq: RocketMQServers) -> None:
    """The same kinds of requests and answers, in JSON and in RocketMQ's binary form."""
    with recorded_frames() as frames:
        await _talk(rocketmq, "FramesOfJson", "")
        await _talk(rocketmq, "FramesOfBinary", "ROCKETMQ")
    path = frames_path(rocketmq.version)
    if os.environ.get("RECORD_VECTORS"):
        write_frames(path, frames.values())
    known = {(frame.name, frame.by) for frame in read_frames(path) if frame.request_code not in BY_CHANCE}
    now = {(frame.name, frame.by) for frame in frames.values() if frame.request_code not in BY_CHANCE}
    assert known == now
    for frame in frames.values():  # the version decides which answers are binary and which JSON
        if frame.by == "server" and frame.serialize_type == BINARY:
            assert rocketmq.version == "4.9", f"5.3 answers in its own type: {frame.name}"
