"""Resending: each waiting message is delivered once, in its lane's order, whatever fails in between."""

import asyncio
import random
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.durable.entry import Entry, KeptMessage, encode_kept, lane_of
from pocketmq.client.durable.memory_store import MemoryStore
from pocketmq.client.durable.options import RetryOptions
from pocketmq.client.durable.policy import RetryRule
from pocketmq.client.durable.resender import Resender, ask
from pocketmq.client.durable.store import Changes
from pocketmq.client.durable.worker import StoreWorker, ToKeep
from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.common.runner import LoopMailbox, Supervisor, ThreadRunner
from pocketmq.remoting.errors import ConnectFailed

QUEUES = [MessageQueue("T", "a", number) for number in range(3)]


class Port:
    """A producer whose brokers fail at random; ``log`` has the messages they stored."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.clock, self.log = SystemClock(), NullLog()
        self.supervisor = Supervisor(self.log, self.clock)
        self.instance = SimpleNamespace(invalidate_route=lambda topic: None)
        self.retry_response_codes: set[int] = set()
        self.failing = 0.4
        self.taken: list[tuple[MessageQueue, bytes]] = []
        self.flying: dict[MessageQueue, int] = {}

    async def route(self, topic: str) -> Any:
        return SimpleNamespace(topic=topic, write_queues=tuple(QUEUES))

    def any_queue(self, route: Any) -> MessageQueue:
        return self.random.choice(QUEUES)

    def send(self, messages: Any, queue: MessageQueue, **options: Any) -> Any:
        if not options["may_move"]:
            assert not self.flying.get(queue), "two sections of a lane are in flight"
            self.flying[queue] = 1
        return asyncio.ensure_future(self._sent(messages, queue))

    async def _sent(self, messages: Any, queue: MessageQueue) -> Any:
        await asyncio.sleep(self.random.uniform(0, 0.002))
        self.flying[queue] = 0
        if self.random.random() < self.failing:
            raise ConnectFailed("down")
        self.taken += [(queue, message.body) for message in messages.messages()]
        return ["receipt"] * len(messages)


class Owner:
    def __init__(self) -> None:
        self.results: list[Any] = []

    def key_queue(self, entry: Any, topic: str, choose: Any) -> MessageQueue:
        return QUEUES[int(entry.lane.rpartition("\x1f")[2])]

    def left(self, entry: Any, message: Any, result: Any) -> None:
        self.results.append((entry.seq, result))


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [False, True])
async def test_everything_is_delivered_once(ordered: bool) -> None:
    """Messages arrive while others are resent, fail and are delayed; at last each was delivered exactly once."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    port, owner, store = Port(rng), Owner(), MemoryStore()
    rules = (RetryRule(backoff_ms_first=1, backoff_ms_max=8),)
    options = RetryOptions(rules=rules, resend_bytes_max=2_000, resend_sections_max=3)
    opened, closed = asyncio.Event(), asyncio.Event()
    worker = StoreWorker(
        store,
        ThreadRunner(),
        LoopMailbox(asyncio.get_running_loop()),
        port.clock,
        port.log,
        RetryOptions(count_max=10_000, size_bytes_max=1 << 30, keys_max=100, lease_ms=3_000, reopen_ms=100),
        opened=lambda summary, note: opened.set(),
        failed=lambda error: None,
    )
    worker.start()
    await opened.wait()
    typed: Any = port
    resender = Resender(typed, worker, options, owner)
    resender.opened([])
    resender.start()
    number = 0
    for _ in range(60):
        items = []
        for _ in range(rng.randrange(1, 8)):
            number += 1
            queue = rng.choice(QUEUES)
            key = f"k{queue.queue_id}" if ordered else ""
            kept = KeptMessage(topic="T", body=b"%d" % number, uniq_key=b"id", sharding_key=key or None, order_key=key)
            items.append(ToKeep(kept, lane_of(queue) if ordered else "", rng.randrange(1, 30)))
        resender.added(await ask(partial(worker.add, items)))
        await asyncio.sleep(rng.uniform(0, 0.004))
    async with asyncio.timeout(60):
        while len(owner.results) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await resender.stop(5)
    assert resender.taken == 0
    assert worker.summary.count == 0
    assert store.open().count == 0
    bodies = [int(body) for _, body in port.taken]
    assert sorted(bodies) == list(range(1, number + 1))
    assert len({seq for seq, _ in owner.results}) == number
    if ordered:
        for queue in QUEUES:
            here = [int(body) for where, body in port.taken if where == queue]
            assert here == sorted(here)
    worker.stop(closed.set)
    await closed.wait()
    worker.join()


async def test_what_comes_during_a_read_is_not_read_past() -> None:
    """An entry with an earlier due time, written behind a read and announced before the reader goes on, comes next."""
    port, owner, store = Port(random.Random(1)), Owner(), MemoryStore()
    port.failing = 0.0
    payload = encode_kept(KeptMessage(topic="T", body=b"1", uniq_key=b"id"))
    late, early = Entry(1, 20, 0, "", "", payload), Entry(2, 10, 0, "", "", payload)
    store.write(Changes(added=[late]))
    reads = 0

    def read(work: Any, answer: Any) -> None:
        nonlocal reads
        reads += 1
        answer(work(store), None)
        if reads == 1:
            store.write(Changes(added=[early]))
            resender.added([early])

    def change(changes: Changes, answer: Any) -> None:
        store.write(changes)
        answer([], None)

    worker: Any = SimpleNamespace(read=read, change=change, ended=False)
    typed: Any = port
    resender = Resender(typed, worker, RetryOptions(), owner)
    resender.start()
    async with asyncio.timeout(60):
        while len(owner.results) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await resender.stop(1)
    assert sorted(seq for seq, _ in owner.results) == [1, 2]


async def test_a_round_that_is_asked_for_during_a_look_is_not_lost() -> None:
    """The look finds nothing that is due; the next one tries everything all the same."""
    port, owner, store = Port(random.Random(1)), Owner(), MemoryStore()
    port.failing = 0.0
    payload = encode_kept(KeptMessage(topic="T", body=b"1", uniq_key=b"id"))
    store.write(Changes(added=[Entry(1, 1 << 50, 0, "", "", payload)]))
    reads = 0

    def read(work: Any, answer: Any) -> None:
        nonlocal reads
        reads += 1
        if reads == 1:
            resender.resend_now()
        answer(work(store), None)

    def change(changes: Changes, answer: Any) -> None:
        store.write(changes)
        answer([], None)

    worker: Any = SimpleNamespace(read=read, change=change, ended=False)
    typed: Any = port
    resender = Resender(typed, worker, RetryOptions(), owner)
    resender.start()
    async with asyncio.timeout(60):
        while not owner.results:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await resender.stop(1)
    assert [seq for seq, _ in owner.results] == [1]
