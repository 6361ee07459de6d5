"""What a consumer says while its topic has no route."""

import asyncio

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
