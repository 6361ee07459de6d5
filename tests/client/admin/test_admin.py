"""The admin client against a real broker."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.client import ConsumeFromWhere, Message, NoRoute, NotStarted, Producer, PullConsumer, PushConsumer
from pocketmq.client.admin.admin import Admin, NotFound
from pocketmq.client.admin.group_admin import GroupOnline
from pocketmq.client.errors import OffsetIllegal
from pocketmq.common.topics import TopicIllegal
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.topic import TopicConfigBody, TopicConfigSerializeWrapper
from pocketmq.testing.broker import PocketBroker


@pytest.fixture
async def admin(broker: PocketBroker) -> AsyncIterator[Any]:
    async with Admin(namesrv=broker.namesrv) as running:
        yield running


async def test_topics_live_and_die(admin: Admin, topic: str) -> None:
    """Topics are created with the requested queues, listed, changed, described, deleted everywhere."""
    route = await admin.create_topic(topic, queues=3)
    assert len(route.write_queues) == len(route.read_queues) == 3
    assert topic in await admin.topics()
    route = await admin.create_topic(topic, read_queues=5, write_queues=4)
    assert (len(route.read_queues), len(route.write_queues)) == (5, 4)
    description = await admin.describe_topic(topic)
    assert (description.count, description.perms) == (0, {"pocket": 6})
    await admin.delete_topic(topic)
    assert topic not in await admin.topics()
    with pytest.raises(NoRoute):
        await admin.describe_topic(topic)
    with pytest.raises(TopicIllegal):
        await admin.create_topic("no topic")


async def test_settings_are_reported_by_the_brokers_that_have_a_topic(
    admin: Admin, broker: PocketBroker, topic: str
) -> None:
    await admin.create_topic(topic, read_queues=3, write_queues=2, perm=4, topic_filter_type="MULTI_TAG", order=True)
    found = (await admin.topic_settings(topic, await admin.masters()))["pocket"]
    assert (found.read_queue_nums, found.write_queue_nums, found.perm, found.order) == (3, 2, 4, True)
    assert found.topic_filter_type == "MULTI_TAG"
    assert await admin.topic_settings(topic + "-not", await admin.masters()) == {}


async def test_a_broker_that_does_not_tell_one_topics_settings_tells_all(admin: Admin, cluster: Any) -> None:
    """RocketMQ 4.9 has no GET_TOPIC_CONFIG."""
    server = await cluster.add("old")
    unknown = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 351 not supported", None, b"")
    table = TopicConfigSerializeWrapper({"T": TopicConfigBody("T", 4, 4)})
    server.answers[RequestCode.GET_TOPIC_CONFIG] = lambda connection, request: unknown
    server.answers[RequestCode.GET_ALL_TOPIC_CONFIG] = lambda connection, request: (0, "", None, encode_body(table))
    assert (await admin.topic_settings("T", {"old": server.address}))["old"].write_queue_nums == 4
    assert await admin.topic_settings("U", {"old": server.address}) == {}


async def test_the_cluster_is_described(admin: Admin, broker: PocketBroker) -> None:
    """Clusters, brokers, addresses, runtime information."""
    info = await admin.cluster_info()
    assert info.broker_addr_table["pocket"].broker_addrs["0"] == broker.address
    assert await admin.masters() == {"pocket": broker.address}
    assert await admin.masters(cluster=next(iter(info.cluster_addr_table))) == {"pocket": broker.address}
    assert await admin.broker_runtime(broker.address)
    with pytest.raises(NotFound):
        await admin.masters(cluster="no-cluster")
    with pytest.raises(NotFound):
        await admin.masters(broker="no-broker")


async def test_progress_of_a_group(admin: Admin, broker: PocketBroker, topic: str, group: str) -> None:
    """Lag falls with commits; connected members are listed; offsets can be moved when the members have left."""
    async with Producer(group, broker.namesrv) as producer:
        await producer.send_batch([Message(topic, b"%d" % number) for number in range(30)])
    async with PullConsumer(group, broker.namesrv) as consumer:
        await consumer.poll(topic, max_messages=10)
        await consumer.commit()
        description = await admin.describe_group(group)
        assert (len(description.members), description.lag) == (1, 20)
        assert description.subscriptions == {topic: "*"}
        with pytest.raises(GroupOnline):
            await admin.seek_group(group, topic, "earliest")
    assert group in await admin.groups()
    assert sum((await admin.seek_group(group, topic, "latest")).values()) == 30
    assert (await admin.describe_group(group, topic=topic)).lag == 0
    assert set((await admin.seek_group(group, topic, "earliest")).values()) == {0}
    assert set((await admin.seek_group(group, topic, 0)).values()) == {0}
    assert (await admin.describe_group(group)).lag == 30
    with pytest.raises(OffsetIllegal):
        await admin.seek_group(group, topic, "committed")
    with pytest.raises(NotFound):
        await admin.describe_group("nobody-knows-this-group")


async def eventually_indexed(broker: PocketBroker, topic: str, key: str) -> None:
    """Wait until the index, which is built after the answer, has the last message."""
    while not broker.app.store.query(topic, key, 0, 1 << 60, 1):  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_messages_are_found_by_id_and_key(admin: Admin, broker: PocketBroker, topic: str, group: str) -> None:
    """By offset id, by unique id, by key; a missing message raises."""
    async with Producer(group, broker.namesrv) as producer:
        receipt = await producer.send(Message(topic, b"wanted", keys=["needle", "other"]))
        await producer.send(Message(topic, b"else", keys="hay"))
    await eventually_indexed(broker, topic, "hay")
    by_offset = await admin.view_message(receipt.offset_msg_id)
    by_unique = await admin.view_message(receipt.msg_id, topic=topic)
    (by_key,) = await admin.query_messages(topic, "needle")
    assert by_offset.body == by_unique.body == by_key.body == b"wanted"
    assert by_offset.broker_name == "pocket"
    assert await admin.query_messages(topic, "nothing") == []
    beside = f"{int(receipt.offset_msg_id, 16) + 1:0{len(receipt.offset_msg_id)}X}"
    for bad in ("x", receipt.msg_id, beside):
        with pytest.raises(Exception, match="message"):
            await admin.view_message(bad)


async def test_a_push_consumer_shows_its_model(admin: Admin, broker: PocketBroker, topic: str, group: str) -> None:
    """The admin shows the model of the heartbeat."""
    async with Producer(group, broker.namesrv) as producer:
        await producer.send(Message(topic, b"x"))
    consumer = PushConsumer(group, broker.namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe(topic, tags="A || B")(print)
    async with consumer:
        description = None
        while description is None or not description.subscriptions:  # the group is known from its first commit on
            try:
                description = await admin.describe_group(group)
            except NotFound:
                continue
        assert (description.message_model, description.consume_type) == ("CLUSTERING", "CONSUME_PASSIVELY")
        assert description.subscriptions == {topic: "A || B", f"%RETRY%{group}": "*"}


async def test_an_admin_that_does_not_run(broker: PocketBroker) -> None:
    """Its calls raise at once."""
    with pytest.raises(NotStarted):
        await Admin(broker.namesrv).topics()
