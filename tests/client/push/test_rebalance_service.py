"""What a consumer says while its topic has no route."""

import asyncio

import pytest

from pocketmq.client import ClientInstance, PushConsumer
from pocketmq.client.errors import NoRoute
from pocketmq.common.clock import ManualClock
from tests.client.consume_fakes import Events

NOWHERE = "127.0.0.1:1"


def test_a_missing_topic_is_reported_again_and_again_but_seldom() -> None:
    """At once, after 10, 30 and 60 s, then each minute; retry topics are no warning. A round comes each second."""
    clock, log = ManualClock(), Events()
    consumer = PushConsumer("g", instance=ClientInstance(NOWHERE, clock=clock, log=log))
    for _ in range(181):
        consumer._rebalance_service._report_missing("Mistyped", NoRoute("no route"))
        consumer._rebalance_service._report_missing("%RETRY%g", NoRoute("no route"))
        clock.advance_ms(1_000)
    warnings = [fields for level, event, fields in log.events if level == "warning"]
    assert [fields["waited_s"] for fields in warnings] == [0, 10, 30, 60, 120, 180]
    assert {fields["topic"] for fields in warnings} == {"Mistyped"}


async def test_a_consumer_without_a_name_server_says_so_at_its_first_round() -> None:
    """Python shows warnings where nobody has configured a log."""
    log = Events()
    consumer = PushConsumer("g", instance=ClientInstance(NOWHERE, log=log))
    consumer.subscribe("Orders")(lambda message: None)
    async with consumer, asyncio.timeout(60):
        while not any(event == "topic_not_consumed_yet" for _, event, _ in log.events):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    fields = next(fields for _, event, fields in log.events if event == "topic_not_consumed_yet")
    assert fields["topic"] == "Orders"
    assert fields["waited_s"] == 0
    assert NOWHERE in fields["error"]


def test_a_topic_that_has_just_been_missed_is_asked_for_again_soon() -> None:
    """The first request to a new topic makes the topic: its requester must not wait for the replier's next second."""
    clock = ManualClock()
    consumer = PushConsumer("g", instance=ClientInstance(NOWHERE, clock=clock, log=Events()))
    service = consumer._rebalance_service
    began_ns = clock.monotonic_ns()
    rounds_ms, pauses_ms = [], []
    while clock.monotonic_ns() - began_ns < 60_000_000_000:
        service._report_missing("prices", NoRoute("no route"))
        rounds_ms.append((clock.monotonic_ns() - began_ns) // 1_000_000)
        pauses_ms.append(service.pause_ms(False))
        clock.advance_ms(pauses_ms[-1])
    for missed_ms, pause_ms in zip(rounds_ms, pauses_ms, strict=True):
        assert pause_ms <= max(50, missed_ms / 10)
    assert pauses_ms[0] == 50
    assert pauses_ms[-1] == 1_000
    assert len(rounds_ms) < 60 + 45  # no flood: each round is one question to the name server


def test_only_a_missing_topic_makes_rounds_quick() -> None:
    """A member that the broker does not list, or a queue still busy, is looked at after RocketMQ's second."""
    consumer = PushConsumer("g", instance=ClientInstance(NOWHERE, clock=ManualClock(), log=Events()))
    service = consumer._rebalance_service
    assert service.pause_ms(True) == 20_000
    service._report_missing("%RETRY%g", NoRoute("no route"))
    assert service.pause_ms(False) == 1_000


async def test_the_next_round_comes_after_that_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop takes its pause from the same function after each round."""
    asked: list[bool] = []
    third = asyncio.Event()

    def pause_ms(complete: bool) -> int:
        asked.append(complete)
        if len(asked) == 3:
            third.set()
        return 1

    consumer = PushConsumer("g", instance=ClientInstance(NOWHERE, log=Events()))
    consumer.subscribe("Orders")(lambda message: None)
    monkeypatch.setattr(consumer._rebalance_service, "pause_ms", pause_ms)
    async with consumer, asyncio.timeout(60):
        await third.wait()
    assert not any(asked)
