"""The end of sections whose attempts are over."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.sender.section import Section
from pocketmq.client.sender.sender import SectionSender
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message

ERROR = PocketMQError("send failed")


class World:
    """A sender whose sections fail; a stage keeps them if ``keeps``, and settles them at the test's request."""

    def __init__(self, *, keeps: bool) -> None:
        self.keeps = keeps
        self.offered: list[tuple[Section, Callable[[Section, Any], None]]] = []
        self.settled: list[Sequence[Receipt] | Exception] = []
        plan: Any = SimpleNamespace()
        self.sender = SectionSender(
            ClientInstance("127.0.0.1:1"),
            "g",
            plan,
            lambda section: None,
            self.rescue,
            (),
            (lambda section, result: self.settled.append(result),),
        )

    def rescue(self, section: Section, error: Exception, done: Callable[[Section, Any], None]) -> bool:
        self.offered.append((section, done))
        return self.keeps

    def section(self, **options: Any) -> Section:
        section = Section(
            None,
            MessageQueue("T", "a", 0),
            build=None,
            started_ns=0,
            deadline_ns=0,
            born_ms=0,
            attempts_max=1,
            **options,
        )
        section.messages, section.uniq_keys = [Message("T", b"x")], [b"U" * 32]
        section.futures = [asyncio.get_running_loop().create_future()]
        return section


async def test_a_section_that_no_stage_keeps_fails() -> None:
    """It fails with its own error, which the stages see as well."""
    world = World(keeps=False)
    section = world.section()
    world.sender.finish(section, ERROR)
    assert section.futures[0].exception() is ERROR
    assert world.settled == [ERROR]


async def test_a_section_that_a_stage_keeps_waits_for_it() -> None:
    """It is offered once, although the producer's stop gives it up again; then it has the stage's result."""
    world = World(keeps=True)
    section = world.section()
    world.sender.finish(section, ERROR)
    world.sender.finish(section, PocketMQError("stopped"))
    ((offered, done),) = world.offered
    assert offered is section
    assert not section.futures[0].done()
    worse = PocketMQError("not safe")
    done(section, worse)
    assert section.futures[0].exception() is worse
    assert world.settled == [worse]


async def test_a_stage_may_settle_a_section_at_once() -> None:
    """It may do so within the call that offers it; the sender keeps no trace of it."""
    world = World(keeps=True)
    section = world.section()
    receipt: Any = object()

    def at_once(section: Section, error: Exception, done: Callable[[Section, Any], None]) -> bool:
        done(section, [receipt])
        return True

    world.sender._rescue = at_once
    world.sender.finish(section, ERROR)
    assert section.futures[0].result() is receipt
    assert world.settled == [[receipt]]
    assert not world.sender._rescuing


async def test_oneway_sends_and_resends_are_kept_by_no_stage() -> None:
    """A oneway send has no caller, and the stage of a resend waits for its error."""
    world = World(keeps=True)
    for options in ({"oneway": True}, {"is_resend": True}):
        section = world.section(**options)
        world.sender.finish(section, ERROR)
        assert section.futures[0].exception() is ERROR
    assert not world.offered
