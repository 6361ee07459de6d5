"""Consumers and slaves: reads continue without the master, commits are not lost, suggestions are followed."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import (
    ClientInstance,
    ClientOptions,
    ConsumeFromWhere,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
)
from pocketmq.client.admin.admin import Admin
from pocketmq.client.connection.route import BrokerAddresses, masters
from pocketmq.client.message.receipts import SendStatus
from pocketmq.remoting.protocol.group import SubscriptionGroupConfigBody
from tests.broker.conftest import eventually
from tests.broker.ha_cluster import HaCluster

pytestmark = pytest.mark.slow

TOPIC = "BenchmarkTest"


@pytest.fixture
async def ha(tmp_path: Path) -> AsyncIterator[HaCluster]:
    """Start a cluster with a name server."""
    async with contextlib.AsyncExitStack() as stack:
        cluster = HaCluster(stack, tmp_path)
        await cluster.start_name_server()
        yield cluster


def instance_of(ha: HaCluster) -> ClientInstance:
    """Return a client that fetches routes every 100 ms."""
    return ClientInstance(ha.namesrv.address, options=ClientOptions(poll_name_server_interval_ms=100))


async def send(ha: HaCluster, count: int) -> set[str]:
    async with Producer("p", instance=instance_of(ha)) as producer:
        receipts = [await producer.send(Message(TOPIC, b"%d" % number)) for number in range(count)]
    assert {receipt.status for receipt in receipts} <= {SendStatus.SEND_OK, SendStatus.SLAVE_NOT_AVAILABLE}
    return {receipt.msg_id for receipt in receipts}


async def test_a_push_consumer_goes_on_from_the_slave_and_back(ha: HaCluster) -> None:
    """No message is missed, what was committed is not read again, and the master later has the progress made without
    it. A message in the handler while the queue changes brokers may come again."""
    master, slave = await ha.pair()
    sent = await send(ha, 50)
    handled: list[str] = []
    consumer = PushConsumer(
        "readers",
        instance=instance_of(ha),
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        rebalance_interval_ms=100,
        persist_interval_ms=50,
    )

    @consumer.subscribe(TOPIC)
    async def handle(message: Any) -> None:
        handled.append(message.msg_id)

    await eventually(lambda: slave.store.dispatched_offset >= master.store.committed_offset)
    await ha.stop("m")
    async with consumer:
        await eventually(lambda: set(handled) == sent)
        committed = await eventually(lambda: sum(slave.offsets.of("readers", TOPIC).values()) == 50)
        assert committed
        committed_before = set(handled)
        master = await ha.start("m")
        await eventually(lambda: sum(master.offsets.of("readers", TOPIC).values()) == 50)
        await eventually(lambda: master.replication.node.status().slaves)
        sent |= await send(ha, 20)
        await eventually(lambda: set(handled) >= sent)
    assert set(handled) == sent
    again = {msg_id for msg_id, times in Counter(handled).items() if times > 1}
    assert not again & committed_before, "committed before the master came back"


async def test_a_pull_consumer_reads_and_commits_without_the_master(ha: HaCluster) -> None:
    """A running consumer whose master goes reads the rest from the slave; the next consumer finds its commit."""
    master, slave = await ha.pair()
    sent = await send(ha, 30)
    await eventually(lambda: slave.store.dispatched_offset >= master.store.committed_offset)
    async with PullConsumer("g", instance=instance_of(ha)) as consumer:
        first = await consumer.poll(TOPIC, max_messages=10)
        assert first
        await ha.stop("m")
        found = {message.msg_id for message in first}
        async with asyncio.timeout(60):
            while found < sent:
                found |= {message.msg_id for message in await consumer.poll(TOPIC, max_messages=10, timeout_ms=200)}
        assert found == sent
        await consumer.commit()
    async with PullConsumer("g", instance=instance_of(ha)) as again:
        assert await again.poll(TOPIC, timeout_ms=100) == []


async def test_producers_leave_a_name_without_a_master(ha: HaCluster) -> None:
    """While a name has only its slave, all sends go to the other master."""
    await ha.pair()
    await ha.start("b", 0, broker_name="broker-b", broker_role="ASYNC_MASTER")
    await eventually(lambda: "broker-b" in ha.namesrv.routes.cluster_info().broker_addr_table)
    async with Admin(ha.namesrv.address) as admin:
        await admin.create_topic("Own", queues=2)
    async with Producer("p", instance=instance_of(ha)) as producer:
        before = {(await producer.send(Message("Own", b"x"))).broker for _ in range(8)}
        assert before == {"broker-a", "broker-b"}
        await ha.stop("m")
        await eventually(lambda: not masters(producer.instance.routes.brokers().values()).get("broker-a"))
        after = [await producer.send(Message("Own", b"x")) for _ in range(8)]
    assert {receipt.broker for receipt in after} == {"broker-b"}


async def test_a_master_far_ahead_sends_its_readers_to_the_slave(ha: HaCluster) -> None:
    """With slave_read_enable the slow broker serves a group that reads messages no longer in memory; the group returns
    when it has caught up.
    """
    master, slave = await ha.pair(slave_read_enable=True)
    await send(ha, 10)
    await eventually(lambda: slave.store.dispatched_offset >= master.store.committed_offset)
    master.groups.put(SubscriptionGroupConfigBody(group_name="slow", which_broker_when_consume_slowly=1))
    async with PullConsumer("slow", instance=instance_of(ha)) as consumer:
        queues = await consumer.queues(TOPIC)
        wire = consumer._wire
        await consumer.poll(queues[0], timeout_ms=10)
        assert wire._suggested == {}
        advice: Any = master.request_table.executor("PullMessageThread").processor
        advice.advice.recent.in_memory_bytes = 1  # bytes that lie one byte behind the end count as on disk

        async def reads_on() -> None:
            await consumer.seek(TOPIC, "earliest")
            await consumer.poll(queues, max_messages=2, timeout_ms=100)

        async def is_sent_away() -> bool:
            await reads_on()
            return set(wire._suggested.values()) == {1}

        async def is_served_by_the_slave() -> bool:
            await reads_on()
            return slave.counters.totals.get_found_requests > served

        await eventually(is_sent_away)
        served = slave.counters.totals.get_found_requests
        await eventually(is_served_by_the_slave)
        advice.advice.recent.in_memory_bytes = 1 << 40

        async def is_back() -> bool:
            await consumer.poll(queues, timeout_ms=10)
            return not wire._suggested

        await eventually(is_back)


def test_readers_are_tried_in_order() -> None:
    """The wanted broker comes first, then the master, then slaves by id."""
    broker = BrokerAddresses("c", "a", {2: "two:1", 0: "zero:1", 1: "one:1"})
    assert [number for number, _ in broker.readers()] == [0, 1, 2]
    assert [number for number, _ in broker.readers(2)] == [2, 0, 1]
    assert BrokerAddresses("c", "a", {1: "one:1"}).readers() == [(1, "one:1")]
    assert broker.readable(7) == "zero:1"
