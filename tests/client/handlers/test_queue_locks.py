"""The client's side of queue locks: against scripted brokers, and against a real one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.client import ClientInstance, Message, Producer
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.handlers.queue_locks import QUEUES_A_REQUEST, QueueLocks
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import ConfigError
from pocketmq.common.logs import CapturedLog
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import MessageQueue as QueueBody
from pocketmq.remoting.protocol.body import decode_body, encode_body
from pocketmq.remoting.protocol.lock import (
    LockBatchResponseBody,
    OwnLockBatchRequestBody,
    OwnLockBatchResponseBody,
    RefusedLock,
)
from pocketmq.testing.broker import PocketBroker
from tests.client.conftest import until_known

HEART_BEAT, LOCK, UNLOCK = RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ


class World:
    """Locks of group ``g`` at scripted broker ``b``. ``give`` decides which queue ids are granted, and under which
    token; ``regained`` keeps the reports of the locks. Time stands still.
    """

    def __init__(self, cluster: Any, *, rocketmq: bool = False, live_ms: int = 60_000, **options: Any) -> None:
        self.clock = ManualClock()
        self.log = CapturedLog()
        self.instance = ClientInstance(cluster.namesrv.address, clock=self.clock, log=self.log)
        self.regained: list[tuple[int, bool]] = []
        self.give: dict[int, int] = {}
        self.asked: list[list[int]] = []
        self.unlocked: list[int] = []
        self.down = False
        self.locks = QueueLocks(
            self.instance, "g", regained=lambda queue, same: self.regained.append((queue.queue_id, same)), **options
        )
        self._rocketmq = rocketmq
        self._live_ms = live_ms
        self.server = cluster.brokers["b"]
        self.server.answers[HEART_BEAT] = lambda connection, request: (0, "", None, b"")
        self.server.answers[LOCK] = self._lock
        self.server.answers[UNLOCK] = self._unlock

    def _lock(self, connection: Any, request: Any) -> Any:
        body = decode_body(request.body, OwnLockBatchRequestBody)
        assert (body.consumer_group, body.client_id) == ("g", self.instance.client_id)
        assert body.fencing
        assert body.watches_connection
        self.asked.append([queue.queue_id for queue in body.mq_set])
        if self.down:
            return ResponseCode.SYSTEM_ERROR, "down", None, b""
        ok = [queue for queue in body.mq_set if queue.queue_id in self.give]
        if self._rocketmq:
            return 0, "", None, encode_body(LockBatchResponseBody(ok))
        refused = [
            RefusedLock(each, "held", "other", "1.1.1.1:1", 7000, 53_000) for each in body.mq_set if each not in ok
        ]
        tokens = [self.give[queue.queue_id] for queue in ok]
        return 0, "", None, encode_body(OwnLockBatchResponseBody(ok, tokens, self._live_ms, refused))

    def _unlock(self, connection: Any, request: Any) -> Any:
        self.unlocked += [queue.queue_id for queue in decode_body(request.body, OwnLockBatchRequestBody).mq_set]
        return 0, "", None, b""

    async def tick(self, condition: Any) -> None:
        """Let the renewal check its leases until a condition holds."""
        async with asyncio.timeout(60):
            while not condition():
                self.locks._wake.set()
                await asyncio.sleep(0.002)


def why_waits(locks: QueueLocks, queue: MessageQueue) -> dict[str, Any]:
    """Return the state of a queue that waits."""
    [found] = [wait for wait in locks.all_waits() if wait["queue"] == str(queue)]
    return found


def queue(number: int = 0) -> MessageQueue:
    return MessageQueue("T", "b", number)


@pytest.fixture
async def world_of(cluster: Any) -> AsyncIterator[Any]:
    """Make worlds; stop their locks at the end."""
    await cluster.add("b")
    cluster.topics["T"] = ["b"]
    worlds: list[World] = []

    async def make(**options: Any) -> World:
        world = World(cluster, **options)
        await world.instance.start()
        await world.instance.route("T", timeout_ms=30_000)
        world.locks.start()
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        await world.locks.stop()
        await world.instance.stop()


async def test_what_is_given_is_held_and_what_is_not_waits(world_of: Any) -> None:
    """A granted queue has token and lease; the wait for the other one names its holder."""
    world = await world_of()
    world.give = {0: 41}
    assert await world.locks.acquire([queue(0), queue(1)]) == [queue(0)]
    assert world.locks.is_valid(queue(0))
    assert world.locks.token(queue(0)) == 41
    assert not world.locks.is_valid(queue(1))
    assert why_waits(world.locks, queue(1))["holder"] == "other"
    world.give = {0: 41, 1: 42}
    assert await world.locks.acquire([queue(0), queue(1)]) == [queue(0), queue(1)]
    assert world.asked == [[0, 1], [1]]


@pytest.mark.parametrize(
    ("broker_live_ms", "lease_ms", "interval_ms"),
    [(60_000, 30_000, 20_000), (15_000, 11_250, 5_000), (0, 30_000, 20_000)],
)
async def test_a_lease_ends_before_the_brokers_lock_and_is_renewed_three_times_in_it(
    world_of: Any, broker_live_ms: int, lease_ms: int, interval_ms: int
) -> None:
    """RocketMQ's 30 s and 20 s, less where the broker keeps locks for a shorter time; 0: it did not report the time."""
    world = await world_of(live_ms=broker_live_ms)
    world.give = {0: 1}
    await world.locks.acquire([queue()])
    world.clock.advance_ms(interval_ms - 1)
    world.locks._wake.set()
    await asyncio.sleep(0.05)
    assert len(world.asked) == 1
    lease = world.locks.lease(queue())
    assert lease is not None
    first_end_ns = lease.valid_until_ns
    world.clock.advance_ms(1)
    await world.tick(lambda: lease.valid_until_ns > first_end_ns)
    assert len(world.asked) == 2
    world.down = True
    world.clock.advance_ms(lease_ms - 1)
    assert world.locks.is_valid(queue())
    world.clock.advance_ms(1)
    assert not world.locks.is_valid(queue())
    [event] = world.log.of("queue_lock_lost")
    assert event["why"] == "its time is over"


async def test_a_lock_that_was_lost_and_comes_back_says_whether_it_is_the_same(world_of: Any) -> None:
    """The same token proves that no other client had it."""
    world = await world_of()
    world.give = {0: 5, 1: 6}
    await world.locks.acquire([queue(0), queue(1)])
    world.give = {}
    world.clock.advance_ms(20_000)
    await world.tick(lambda: not world.locks.is_valid(queue(0)) and not world.locks.is_valid(queue(1)))
    assert world.regained == []
    assert {event["holder"] for event in world.log.of("queue_lock_lost")} == {"other"}
    world.give = {0: 5, 1: 9}
    await world.tick(lambda: len(world.regained) == 2)
    assert sorted(world.regained) == [(0, True), (1, False)]
    assert world.locks.token(queue(1)) == 9


async def test_a_broker_that_does_not_answer_takes_nothing_away(world_of: Any) -> None:
    """The lease is trusted until its end, not longer."""
    world = await world_of()
    world.give = {0: 5}
    await world.locks.acquire([queue()])
    world.down = True
    world.clock.advance_ms(20_000)
    await world.tick(lambda: len(world.asked) >= 2)
    assert world.locks.is_valid(queue())
    world.clock.advance_ms(10_000)
    assert not world.locks.is_valid(queue())
    world.down = False
    await world.tick(lambda: world.regained == [(0, True)])


async def test_a_broken_connection_ends_the_lease_until_it_is_locked_again(world_of: Any) -> None:
    """The broker may then give the lock to another client."""
    world = await world_of()
    world.give = {0: 5}
    await world.locks.acquire([queue()])
    world.locks.lease(queue()).channel.close("cut")
    assert not world.locks.is_valid(queue())
    assert "connection" in world.log.of("queue_lock_lost")[0]["why"]
    await world.tick(lambda: world.regained == [(0, True)])
    assert world.locks.is_valid(queue())


async def test_a_queue_that_waits_says_why_and_when_it_is_over(world_of: Any) -> None:
    """The event has holder, age and expiry, and does not come at every check."""
    world = await world_of()
    for _ in range(10):
        await world.locks.acquire([queue()])
        world.clock.advance_ms(1000)
    events = world.log.of("queue_waits_for_lock")
    assert [event["waited_ms"] for event in events] == [3000, 9000]
    assert (events[0]["holder"], events[0]["holder_age_ms"], events[0]["expires_in_ms"]) == ("other", 7000, 53_000)
    world.give = {0: 1}
    await world.locks.acquire([queue()])
    [event] = world.log.of("queue_lock_got")
    assert event["waited_ms"] == 10_000


async def test_a_rocketmq_broker_gives_locks_without_tokens(world_of: Any) -> None:
    """It does not name the holders of other queues either."""
    world = await world_of(rocketmq=True)
    world.give = {0: 0}
    assert await world.locks.acquire([queue(0), queue(1)]) == [queue(0)]
    assert world.locks.token(queue(0)) == 0
    assert world.locks.is_valid(queue(0))
    assert "holder" not in why_waits(world.locks, queue(1))
    lease = world.locks.lease(queue(0))
    assert lease is not None
    first_end_ns = lease.valid_until_ns
    world.clock.advance_ms(20_000)
    await world.tick(lambda: lease.valid_until_ns > first_end_ns)
    assert world.regained == []


async def test_the_end_gives_everything_back(world_of: Any) -> None:
    """This includes locks whose request was cancelled under way."""
    world = await world_of()
    world.give = {0: 1, 1: 2}
    await world.locks.acquire([queue(0)])
    asked = asyncio.Event()
    world.server.answers[LOCK] = lambda connection, request: asked.set()
    asking = asyncio.create_task(world.locks.acquire([queue(1)]))
    await asked.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await world.locks.stop()
    assert sorted(world.unlocked) == [0, 1]
    assert world.locks.lease(queue(0)) is None


async def test_the_end_gives_back_what_a_cancelled_round_was_about_to_give_back(world_of: Any) -> None:
    """A consumer that stops cancels its rebalance, perhaps before the unlock request has left."""
    world = await world_of()
    world.give = {0: 7}
    await world.locks.acquire([queue(0)])
    giving = asyncio.ensure_future(world.locks.release([queue(0)]))
    asyncio.get_running_loop().call_soon(giving.cancel)  # after its first step: the request is about to be made
    await asyncio.gather(giving, return_exceptions=True)
    assert (giving.cancelled(), world.unlocked) == (True, [])
    await world.locks.stop()
    assert world.unlocked == [0]


async def test_thousands_of_queues_go_in_several_requests(world_of: Any) -> None:
    """A broker accepts a limited number at once."""
    world = await world_of()
    count = 2 * QUEUES_A_REQUEST + 1
    world.give = dict.fromkeys(range(count), 1)
    got = await world.locks.acquire([queue(number) for number in range(count)])
    assert len(got) == count
    assert [len(part) for part in world.asked] == [QUEUES_A_REQUEST, QUEUES_A_REQUEST, 1]


@pytest.mark.parametrize("options", [{"lock_interval_ms": 0}, {"lock_interval_ms": 30_000}, {"lock_max_live_ms": "30"}])
async def test_settings_that_cannot_hold_a_lock_are_refused(cluster: Any, options: Any) -> None:
    """Such as a renewal after the end of its lease."""
    instance = ClientInstance(cluster.namesrv.address)
    with pytest.raises(ConfigError, match="lock_"):
        QueueLocks(instance, "g", regained=lambda queue, same: None, **options)


async def test_two_clients_of_a_real_broker(broker: PocketBroker, topic: str, group: str) -> None:
    """One has the queue, the other waits; the token grows with each new holder; a stranger's queue is answered, too."""
    async with Producer(group=group, namesrv=broker.namesrv) as producer:
        receipt = await producer.send(Message(topic, b"x"))
    name = receipt.broker
    both = []
    for _ in range(2):
        instance = ClientInstance(broker.namesrv)
        await instance.start()
        await until_known(instance, topic)
        locks = QueueLocks(instance, group, regained=lambda queue, same: None)
        locks.start()
        both.append((instance, locks))
    (one_instance, one), (_, two) = both
    first, nowhere = MessageQueue(topic, name, 0), MessageQueue(topic, name, 999)
    assert await one.acquire([first, nowhere]) == [first]
    assert why_waits(one, nowhere)["why"] == "the broker has no such queue"
    assert await two.acquire([first]) == []
    assert why_waits(two, first)["holder"] == one_instance.client_id
    token = one.token(first)
    await one.release([first])
    assert await two.acquire([first]) == [first]
    assert two.token(first) > token
    for instance, locks in both:
        await locks.stop()
        await instance.stop()


def test_bodies_understand_each_other() -> None:
    """RocketMQ's answer is ours without PocketMQ's fields."""
    plain = encode_body(LockBatchResponseBody([QueueBody("T", "b", 0)]))
    own = decode_body(plain, OwnLockBatchResponseBody)
    assert (own.lock_ok_mq_set, own.fencing_tokens, own.lock_max_live_time, own.refused) == (
        [QueueBody("T", "b", 0)],
        [],
        0,
        [],
    )
