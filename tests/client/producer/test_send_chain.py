"""The stages of a producer, sorted by the methods they override."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.client import Message, Producer
from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import NotStarted
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.producer.send_chain import SendChain
from pocketmq.client.producer.send_port import SendPort
from pocketmq.client.producer.stages import SectionSettled, SendStage
from pocketmq.client.sender.section import Section
from pocketmq.common.errors import PocketMQError
from tests.client.producer.producer_fakes import QUEUES, Faults, pending

ERROR = PocketMQError("send failed")


class Noted(SendStage):
    """Records its life in a list shared by several; ``fails``: at its start."""

    def __init__(self, name: str, seen: list[str], *, fails: bool = False) -> None:
        self.name = name
        self.seen = seen
        self.fails = fails

    def attach(self, port: SendPort) -> None:
        self.seen.append(f"attach {self.name}")

    async def start(self) -> None:
        self.seen.append(f"start {self.name}")
        if self.fails:
            raise NotStarted("no")

    async def ending(self, timeout_s: float) -> None:
        self.seen.append(f"ending {self.name}")

    async def stop(self, timeout_s: float) -> None:
        self.seen.append(f"stop {self.name}")


class Keeping(SendStage):
    """Takes over every send that ``wants`` selects; ``offered`` has all sends that it saw."""

    def __init__(self, *, wants: bool = True, keeps_order: bool = True, faulty: bool = False) -> None:
        self.wants = wants
        self.keeps_order = keeps_order
        self.faulty = faulty
        self.offered: list[str] = []

    def _offer(self, hook: str) -> bool:
        self.offered.append(hook)
        if self.faulty:
            raise RuntimeError("a fault of the stage")
        return self.wants

    def take(self, send: PendingSend) -> bool:
        return self._offer("take")

    def place(self, send: PendingSend, queue: MessageQueue) -> bool:
        return self._offer("place")

    def unrouted(self, send: PendingSend, error: PocketMQError, *, early: bool) -> bool:
        return self._offer("unrouted early" if early else "unrouted")

    def failed(self, section: Section, error: Exception, done: SectionSettled) -> bool:
        return self._offer("failed")


class Waiting(SendStage):
    """Lets each message wait for its own future."""

    body_bytes_max = 10

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[None]] = []

    def enter(self, send: PendingSend) -> "asyncio.Future[None]":
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]


def chain_of(*stages: SendStage, log: Any = None) -> SendChain:
    faults: Any = log or Faults()
    return SendChain(stages, faults)


def test_what_no_stage_overrides_is_not_called() -> None:
    """Without stages, or with stages that override no method, there is no hook, and the short path stays as wide."""
    for stages in ((), (SendStage(), SendStage())):
        chain = chain_of(*stages)
        hooks = chain.hooks(100)
        assert (hooks.enter, hooks.take, hooks.place, hooks.unrouted, hooks.body_bytes_max) == (None,) * 4 + (100,)
        assert (chain.entering_batch, chain.cutting, chain.keeping_failed, chain.settling) == ((),) * 4
        assert not chain.keeps_order


def test_a_producer_without_stages_has_no_hook() -> None:
    """Neither its submission nor its sender has a hook to call."""
    producer = Producer("none", instance=ClientInstance("127.0.0.1:1"), stages=[SendStage()])
    hooks = producer._submission._hooks
    assert (hooks.enter, hooks.take, hooks.place, hooks.unrouted) == (None,) * 4
    assert (producer._sender._rescue, producer._sender._cutting, producer._sender._settling) == (None, (), ())


def test_the_short_path_is_as_narrow_as_the_strictest_stage() -> None:
    """It is never wider than the largest message."""
    assert chain_of(SendStage(), Waiting()).hooks(100).body_bytes_max == 10
    assert chain_of(Waiting()).hooks(5).body_bytes_max == 5


async def test_a_send_is_ready_when_all_stages_are() -> None:
    """Each stage may let it wait; it waits for all of them."""
    stages = Waiting(), Waiting()
    enter = chain_of(*stages).hooks(100).enter
    assert enter is not None
    send = pending()
    enter(send)
    assert send.ready is not None
    stages[0].futures[0].set_result(None)
    await asyncio.wait((stages[0].futures[0],))
    assert not send.ready.done()
    stages[1].futures[0].set_result(None)
    await send.ready


async def test_a_single_hook_is_the_stage_s_own_method() -> None:
    """The producer calls the stage's method directly."""
    stage = Keeping()
    hooks = chain_of(SendStage(), stage).hooks(100)
    assert (hooks.take, hooks.place) == (stage.take, stage.place)


async def test_the_first_stage_that_takes_a_send_has_it() -> None:
    """The stages behind it are not asked."""
    first, second, third = Keeping(wants=False), Keeping(), Keeping()
    chain = chain_of(first, second, third)
    hooks = chain.hooks(100)
    assert hooks.take is not None
    assert hooks.place is not None
    assert hooks.unrouted is not None
    section: Any = SimpleNamespace()
    assert hooks.take(pending())
    assert hooks.place(pending(), QUEUES[0])
    assert hooks.unrouted(pending(), ERROR, early=True)
    assert chain.keep_failed(section, ERROR, lambda section, result: None)
    assert first.offered == second.offered == ["take", "place", "unrouted early", "failed"]
    assert third.offered == []


def test_only_a_stage_that_keeps_order_is_offered_sends_before_they_fail() -> None:
    """The durable retry without ``order_by_key`` costs a send no call."""
    chain = chain_of(Keeping(keeps_order=False))
    hooks = chain.hooks(100)
    assert (hooks.take, hooks.place, chain.keeps_order) == (None, None, False)
    assert hooks.unrouted is not None
    assert chain.keeping_failed


async def test_a_faulty_stage_takes_nothing_over() -> None:
    """It is logged, and the next stage is asked: no caller may wait for ever."""
    log, next_one = Faults(), Keeping()
    chain = chain_of(Keeping(faulty=True), next_one, log=log)
    section: Any = SimpleNamespace()
    unrouted = chain.hooks(100).unrouted
    assert unrouted is not None
    assert unrouted(pending(), ERROR, early=False)
    assert chain.keep_failed(section, ERROR, lambda section, result: None)
    assert next_one.offered == ["unrouted", "failed"]
    assert log.errors == ["send_stage_failed"] * 2


async def test_stages_begin_in_order_and_end_in_reverse() -> None:
    """Each is attached before any starts; a second stop does nothing."""
    seen: list[str] = []
    producer = Producer(
        "life", instance=ClientInstance("127.0.0.1:1"), stages=[Noted("a", seen)], durable_retry=Noted("b", seen)
    )
    assert seen == ["attach a", "attach b"]
    seen.clear()
    async with producer:
        pass
    await producer.stop()
    assert seen == ["start a", "start b", "ending b", "ending a", "stop b", "stop a"]


async def test_a_stage_that_does_not_start_keeps_the_producer_from_starting() -> None:
    """Started stages are stopped, the failed one included; later ones have not started."""
    seen: list[str] = []
    stages = [Noted("a", seen), Noted("b", seen, fails=True), Noted("c", seen)]
    producer = Producer("life", instance=ClientInstance("127.0.0.1:1"), stages=stages)
    seen.clear()
    with pytest.raises(NotStarted, match="no"):
        await producer.start()
    assert seen == ["start a", "start b", "ending b", "ending a", "stop b", "stop a"]
    with pytest.raises(NotStarted):
        await producer.send(Message("T", b"x"))


async def test_an_order_that_a_stage_keeps_holds_for_batches() -> None:
    """With sharding keys they are sent one by one, and the stage is offered each."""

    class Holding(Keeping):
        def attach(self, port: SendPort) -> None:
            self.port = port
            self.held: list[PendingSend] = []
            self.has_both = asyncio.Event()

        def take(self, send: PendingSend) -> bool:
            self.port.hold(send)
            self.held.append(send)
            if len(self.held) == 2:
                self.has_both.set()
            return True

    stage = Holding()
    async with Producer("batch", instance=ClientInstance("127.0.0.1:1"), stages=[stage]) as producer:
        batch: Sequence[Message] = [Message("T", b"1", sharding_key="k"), Message("T", b"2", sharding_key="k")]
        sending = asyncio.ensure_future(producer.send_batch(batch))
        await stage.has_both.wait()
        assert producer.in_flight.sends == 2
        for send in stage.held:
            stage.port.settle(send, ERROR)
        with pytest.raises(PocketMQError, match="send failed"):
            await sending
        assert producer.in_flight.sends == 0
