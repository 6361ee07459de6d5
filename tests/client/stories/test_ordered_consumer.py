"""Ordered push consumers against a real broker: order while members join, leave and die."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.client import ClientInstance, ConsumeFromWhere, Message, Producer, PushConsumer, ReceivedMessage
from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.lock_admin import queue_locks, release_lock
from pocketmq.client.handlers import queue_locks as queue_locks_module
from pocketmq.client.handlers.queue_locks import QueueLocks
from pocketmq.client.producer.selectors import select_by_hash
from pocketmq.common.logs import CapturedLog
from pocketmq.testing.broker import PocketBroker
from tests.client.conftest import until_known

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
KEYS = 12
QUEUES = 4
"""Of a topic that the broker makes for its first message; the keys reach all of them."""


class Group:
    """Members of one ordered group, and their work: ``done[key]`` in the order of completion."""

    def __init__(self, broker: PocketBroker, group: str, topic: str) -> None:
        self.broker = broker
        self.group = group
        self.topic = topic
        self.log = CapturedLog()
        self.done: dict[str, list[int]] = defaultdict(list)
        self.running: set[str] = set()
        self.overlaps: list[str] = []
        self.by_member: dict[int, int] = defaultdict(int)
        self.consumers: list[PushConsumer] = []
        self.pause_s = 0.0

    async def join(self, **options: Any) -> PushConsumer:
        instance = ClientInstance(self.broker.namesrv, log=self.log)
        options = {"consume_from_where": FIRST, "rebalance_interval_ms": 200, **options}
        consumer = PushConsumer(self.group, instance=instance, **options)
        number = len(self.consumers)

        @consumer.subscribe(self.topic, ordered=True)
        async def handle(message: ReceivedMessage) -> None:
            key = message.properties["__SHARDINGKEY"]
            if key in self.running:
                self.overlaps.append(key)
            self.running.add(key)
            try:
                if self.pause_s:
                    await asyncio.sleep(self.pause_s)
                self.done[key].append(int(message.body))
                self.by_member[number] += 1
            finally:
                self.running.discard(key)

        self.consumers.append(consumer)
        await consumer.start()
        return consumer

    @property
    def count(self) -> int:
        return sum(len(numbers) for numbers in self.done.values())

    def in_order(self) -> bool:
        """Return whether the first deliveries are in the order of each key; repeats may appear at a change."""
        for numbers in self.done.values():
            firsts = list(dict.fromkeys(numbers))
            if firsts != sorted(firsts):
                return False
        return not self.overlaps


@pytest.fixture(autouse=True)
def _patient_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not give up an unlock after a second because other tests' work slows the broker down."""
    monkeypatch.setattr(queue_locks_module, "LOCK_TIMEOUT_MS", 30_000)


@pytest.fixture
async def producer(broker: PocketBroker, group: str) -> AsyncIterator[Any]:
    async with Producer(group=group, namesrv=broker.namesrv) as running:
        yield running


@pytest.fixture
async def members(broker: PocketBroker, group: str, topic: str) -> AsyncIterator[Any]:
    made = Group(broker, group + "c", topic)
    yield made
    for consumer in made.consumers:
        await consumer.stop()


async def send(producer: Producer, topic: str, start: int, stop: int) -> None:
    """Send numbers; the key of each is its remainder."""
    await producer.send_batch(
        [Message(topic, b"%d" % number, sharding_key=f"k{number % KEYS}") for number in range(start, stop)]
    )


async def until(condition: Any, timeout_s: float = 60) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class DeadMember:
    """Has locks of a group, and ends like a killed process: its sockets close, and no lock is released."""

    def __init__(self, broker: PocketBroker, group: str) -> None:
        self.instance = ClientInstance(broker.namesrv)
        self.locks = QueueLocks(self.instance, group, regained=lambda queue, same: None)

    async def lock_all(self, topic: str) -> None:
        await self.instance.start()
        queues = (await until_known(self.instance, topic)).read_queues
        self.locks.start()
        assert len(await self.locks.acquire(queues)) == len(queues)

    async def die(self) -> None:
        await self.locks._tasks.cancel()
        await self.instance.stop()


@pytest.mark.slow
async def test_order_holds_while_members_join_and_leave(producer: Producer, topic: str, members: Group) -> None:
    """No key is handled twice at once or in reverse; every member works; a graceful leave repeats no message."""
    members.pause_s = 0.001
    await send(producer, topic, 0, 600)
    await members.join()
    await until(lambda: members.count > 50)
    second = await members.join()
    await until(lambda: members.by_member[1] > 20)
    await send(producer, topic, 600, 1200)
    third = await members.join()
    await until(lambda: members.by_member[2] > 20)
    await second.stop()
    await third.stop()
    await until(lambda: members.count >= 1200)
    assert members.in_order()
    assert sum(members.by_member.values()) == members.count
    assert {key: sorted(numbers) for key, numbers in members.done.items()} == {
        f"k{key}": list(range(key, 1200, KEYS)) for key in range(KEYS)
    }


async def test_a_graceful_stop_hands_the_queues_over_without_a_wait(
    broker: PocketBroker, producer: Producer, topic: str, members: Group
) -> None:
    """They are unlocked, and the waiting member is notified: no timer is needed (rebalance every 10 minutes here)."""
    await send(producer, topic, 0, 60)
    first = await members.join(rebalance_interval_ms=600_000)
    await until(lambda: members.count == 60)
    await members.join(rebalance_interval_ms=600_000)
    await until(lambda: len(first.assigned) == QUEUES // 2)
    await first.stop()
    async with Admin(broker.namesrv) as admin:
        locks, _ = await queue_locks(admin, group=members.group)
    assert first.instance.client_id not in {lock.info.client_id for lock in locks}
    await send(producer, topic, 60, 120)
    await until(lambda: members.count == 120)
    assert members.in_order()


@pytest.mark.parametrize("early", ["OWN", pytest.param("OFF", marks=pytest.mark.soak)])
async def test_after_a_kill_the_queues_wait_for_the_grace_or_for_the_expiry(group: str, early: str) -> None:
    """A wait longer than a few seconds is logged with the holder's name, age and expiry. With the grace the
    expiry would be later than the end of this test."""
    live_ms = 4_000 if early == "OFF" else 3_600_000
    settings = {"lock_max_live_time": live_ms, "release_locks_on_disconnect": early, "lock_release_grace_mills": 100}
    with PocketBroker(broker=settings) as broker:
        async with Producer(group=group, namesrv=broker.namesrv) as producer:
            await send(producer, "Orders", 0, 24)
        dead = DeadMember(broker, group)
        await dead.lock_all("Orders")
        members = Group(broker, group, "Orders")
        await members.join()
        try:
            await until(lambda: len(members.consumers[0].lock_waits) == QUEUES)
            told = members.consumers[0]._status.running_info().user_consumer_info
            assert f"holder={dead.instance.client_id}" in told["waits_for_lock_1"]
            await asyncio.sleep(0.3)
            assert members.count == 0
            await dead.die()
            await until(lambda: members.count == 24)
        finally:
            await members.consumers[0].stop()
        events = members.log.of("queue_waits_for_lock")
        assert events or early == "OWN"
        for event in events:
            assert event["holder"] == dead.instance.client_id
            assert event["waited_ms"] >= 3000
            assert event["holder_age_ms"] >= event["waited_ms"]
            assert abs(event["holder_age_ms"] + event["expires_in_ms"] - live_ms) <= 10


async def test_a_member_that_lost_its_lock_cannot_commit_and_begins_anew(
    broker: PocketBroker, producer: Producer, topic: str, members: Group
) -> None:
    """An administrator takes the lock away: the broker refuses the next commit, upon which the member stops at once,
    locks and reads again, long before its next renewal."""
    await send(producer, topic, 0, 24)
    consumer = await members.join(persist_interval_ms=100)
    await until(lambda: members.count == 24)
    async with Admin(broker.namesrv) as admin:
        locks, _ = await queue_locks(admin, group=members.group, topic=topic)
        assert {lock.info.client_id for lock in locks} == {consumer.instance.client_id}
        for lock in locks:
            await release_lock(admin, lock)
        await send(producer, topic, 24, 48)
        await until(lambda: len(members.log.of("ordered_queue_restarts")) == QUEUES)
        await until(lambda: len({number for numbers in members.done.values() for number in numbers}) == 48)
        await until(lambda: len(consumer.assigned) == QUEUES)
        why = {event["why"] for event in members.log.of("queue_lock_lost")}
        assert why == {"the broker refused a commit under it"}
        assert all("is over" in event["error"] for event in members.log.of("commit_failed"))
        again: list[Any] = []
        async with asyncio.timeout(60):  # it has them again a moment after the restart, once it has asked for them
            while len(again) < QUEUES:
                again, _ = await queue_locks(admin, group=members.group, topic=topic)
                await asyncio.sleep(0.02)
        assert min(lock.info.fencing_token for lock in again) > max(lock.info.fencing_token for lock in locks)
    assert members.in_order()


async def test_handlers_see_the_token_of_their_queue(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """A plain function sees it, too; it is the token in the broker's list."""
    await send(producer, topic, 0, 24)
    seen: dict[int, int] = {}
    consumer = PushConsumer(group + "c", broker.namesrv, consume_from_where=FIRST)

    @consumer.subscribe(topic, ordered=True)
    def handle(message: ReceivedMessage) -> None:
        seen[message.queue_id] = message.fencing_token

    async with consumer, Admin(broker.namesrv) as admin:
        await until(lambda: len(seen) == QUEUES)
        locks, _ = await queue_locks(admin, group=group + "c", topic=topic)
    tokens = {lock.queue.queue_id: lock.info.fencing_token for lock in locks}
    assert seen.items() <= tokens.items()


async def test_global_order_is_a_topic_with_one_queue(broker: PocketBroker, producer: Producer, members: Group) -> None:
    """Two members, one of them without work."""
    members.topic = members.group + "One"
    async with Admin(broker.namesrv) as admin:
        await admin.create_topic(members.topic, queues=1, order=True)
    for number in range(100):
        await producer.send(Message(members.topic, b"%d" % number, sharding_key="k"))
    await members.join()
    await members.join()
    await until(lambda: members.count == 100)
    assert members.done["k"] == list(range(100))


async def test_the_same_key_goes_to_the_same_queue_as_rocketmq_chooses(
    broker: PocketBroker, producer: Producer, topic: str
) -> None:
    """SelectMessageQueueByHash: |hashCode| of the key, modulo the number of queues."""
    async with Admin(broker.namesrv) as admin:
        await admin.create_topic(topic)
    route = await until_known(producer.instance, topic)
    queues = route.write_queues
    for key, hash_code in {"order-1": -1207111310, "ü": 252, "polygenelubricants": -(1 << 31)}.items():
        expected = queues[abs(hash_code) % len(queues)]
        assert select_by_hash(key, queues) == expected
        receipt = await producer.send(Message(topic, b"x", sharding_key=key))
        assert (receipt.broker, receipt.queue_id) == (expected.broker_name, expected.queue_id)


@pytest.mark.parametrize(
    ("fields", "queues", "warned"),
    [
        ({"keys": ["order-1"]}, 4, True),
        ({"keys": ["order-1"]}, 1, False),
        ({"keys": ["order-1"], "sharding_key": "order-1"}, 4, False),
        ({}, 4, False),
    ],
)
async def test_keys_without_a_sharding_key_are_named(
    broker: PocketBroker, topic: str, group: str, fields: dict[str, Any], queues: int, warned: bool
) -> None:
    """Who expects Kafka's keys would lose the order of a key: one warning a topic, where it has several queues."""
    log = CapturedLog()
    seen: list[bytes] = []
    consumer = PushConsumer(
        group, instance=ClientInstance(broker.namesrv, log=log), start="earliest", rebalance_interval_ms=100
    )
    consumer.subscribe(topic, ordered=True)(lambda message: seen.append(message.body))
    async with Admin(broker.namesrv) as admin, Producer(group + "p", broker.namesrv) as producer:
        await admin.create_topic(topic, queues=queues)
        for number in range(8):
            await producer.send(Message(topic, b"%d" % number, **fields))
        async with consumer, asyncio.timeout(60):
            while len(seen) < 8:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    named = [event["keys"] for event in log.events if event["event"] == "keys_without_sharding_key"]
    assert named == (["order-1"] if warned else [])
