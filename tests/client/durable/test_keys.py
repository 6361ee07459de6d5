"""The order of keys: whatever brokers and store do, the accepted messages of a key arrive in the order of its sends."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.durable.keys import KeyedSends
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message
from pocketmq.common.message_id import UniqueIdGenerator
from pocketmq.remoting.errors import ConnectFailed

QUEUES = [MessageQueue("T", "a", number) for number in range(2)]


class World:
    """Brokers and a store in memory; a seed decides their answers and the order of these."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.clock = ManualClock()
        self.instance = SimpleNamespace(ids=UniqueIdGenerator(self.clock))
        self.log: list[Message] = []
        self.flying: list[Any] = []
        self.asked: list[Any] = []
        self.store: list[Any] = []
        self.ended: dict[int, Any] = {}
        self.held = 0
        port: Any = self
        self.keyed = KeyedSends(port, self.keep, lambda error: isinstance(error, ConnectFailed))

    def hold(self, send: Any) -> None:
        self.held += 1

    def settle(self, send: Any, result: Any) -> None:
        self.held -= 1
        assert send.number not in self.ended
        self.ended[send.number] = result

    def send(self, messages: Any, queue: Any, **options: Any) -> Any:
        future = asyncio.get_running_loop().create_future()
        assert all(flight[1] != queue for flight in self.flying), "two sections of a queue are in flight"
        self.flying.append((future, queue, messages))
        return future

    def keep(self, items: Any, states: Any, error: Any) -> None:
        lanes = [KeyedSends.lane_for("T", state) for state in states]
        self.asked.append((items, lanes, error))

    def step(self) -> None:
        """Make one event happen: a section answered, a write of the store done, a resend delivered."""
        kind = self.rng.randrange(3)
        if kind == 0 and self.flying:
            future, _, messages = self.flying.pop(self.rng.randrange(len(self.flying)))
            if self.rng.random() < 0.6:
                self.log += messages
                future.set_result(["stored"] * len(messages))
            else:
                if self.rng.random() < 0.3:  # its answer was lost
                    self.log += messages
                future.set_exception(ConnectFailed("down"))
        elif kind == 1 and self.asked:  # the store works in the order of the requests
            items, lanes, _ = self.asked.pop(0)
            kept = self.rng.random() < 0.9
            for item, lane in zip(items, lanes, strict=True):
                self.settle(item.send, "kept" if kept else PocketMQError("not safe"))
                if kept:
                    self.store.append((lane, item))
                self.keyed.confirmed("T", item.key, kept=kept)
        elif kind == 2 and self.store:
            lane = self.rng.choice(sorted({lane for lane, _ in self.store}))
            at = next(index for index, (each, _) in enumerate(self.store) if each == lane)
            _, item = self.store.pop(at)
            self.log.append(item.send.message)
            self.keyed.delivered("T", item.key)


@pytest.mark.parametrize("round_number", range(20))
async def test_any_answers_in_any_order_keep_the_order_of_each_key(round_number: int) -> None:
    """Of the messages with a receipt, none overtakes another of its key."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    world = World(rng)
    sends: list[Any] = []
    for number in range(200):
        message = Message("T", b"%d" % number, sharding_key=f"k{rng.randrange(4)}")
        send: Any = SimpleNamespace(
            message=message,
            plain=True,
            selector=None,
            started_ns=0,
            deadline_ns=1 << 62,
            attempts_max=1,
            number=number,
        )
        sends.append(send)
        if not world.keyed.behind(send):
            # the route may change while keys are in flight: a key still stays at its queue
            if rng.random() < 0.1:
                world.hold(send)
                world.keyed.keep_unrouted(send, ConnectFailed("no route"))
            else:
                world.keyed.send(send, rng.choice(QUEUES))
        while rng.random() < 0.6:
            await asyncio.sleep(0)
            world.step()
    for _ in range(100_000):
        if len(world.ended) == len(sends) and not world.store:
            break
        await asyncio.sleep(0)
        world.step()
    assert len(world.ended) == len(sends)
    assert world.held == 0
    await asyncio.sleep(0)
    assert len(world.keyed) == 0
    await world.keyed.wait_idle(1)
    taken = {number for number, result in world.ended.items() if not isinstance(result, PocketMQError)}
    last: dict[str, int] = {}
    seen: set[int] = set()
    for message in world.log:
        number = int(message.body)
        if number in seen or number not in taken:  # a copy, or a message whose caller knows that it is not safe
            continue
        seen.add(number)
        assert number > last.get(message.sharding_key or "", -1), f"seed {seed}: {number} after {last}"
        last[message.sharding_key or ""] = number
    assert seen == taken
