"""Where groups start: one argument in words, RocketMQ's as an alias, and a text for what is neither."""

import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.client import ConfigError, ConsumeFromWhere, Message, Producer, PullConsumer, PushConsumer
from pocketmq.client.connection.instance import ClientInstance, ClientOptions
from pocketmq.client.errors import NoRoute
from pocketmq.common.clock import SystemClock
from pocketmq.common.logs import CapturedLog
from pocketmq.testing.broker import PocketBroker
from tests.client.push.test_push_consumer import until

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


@pytest.fixture
async def producer(broker: PocketBroker, group: str) -> AsyncIterator[Producer]:
    async with Producer(group=group, namesrv=broker.namesrv) as running:
        yield running


@pytest.mark.parametrize("face", [PullConsumer, PushConsumer])
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"start": "erliest"}, 'use "earliest", "latest", a datetime'),
        ({"start": "committed"}, 'use "earliest"'),
        ({"start": True}, 'use "earliest"'),
        ({"start": -1}, 'use "earliest"'),
        ({"start": 1.5}, 'use "earliest"'),
        ({"start": datetime.datetime(2026, 1, 1)}, "no time zone"),
        ({"start": "earliest", "consume_from_where": LAST}, "both given"),
        ({"consume_from_where": "earliest"}, "use start='earliest'"),
        ({"consume_from_where": "first"}, 'use start="earliest"'),
    ],
)
def test_what_is_no_start_is_refused_with_a_cure(face: Any, arguments: dict[str, Any], text: str) -> None:
    """At construction, before anything is read."""
    with pytest.raises(ConfigError, match=text):
        face("g", **arguments)


async def started(
    broker: PocketBroker, producer: Producer, topic: str, group: str, *, old: int, **start: Any
) -> tuple[list[bytes], CapturedLog]:
    """Send ``old`` messages, start a consumer, send b"new" when it has its queues; return what it got until then."""
    await producer.send_batch([Message(topic, b"old") for _ in range(old)])
    log = CapturedLog()
    got: list[bytes] = []
    instance = ClientInstance(broker.namesrv, log=log)
    consumer = PushConsumer(group, instance=instance, rebalance_interval_ms=100, **start)
    consumer.subscribe(topic)(lambda message: got.append(message.body))
    async with consumer:
        await until(lambda: consumer.assigned)
        await producer.send(Message(topic, b"new"))
        await until(lambda: b"new" in got)
        await until(lambda: any(event["event"] == "queues_assigned" for event in log.events))
    return got, log


async def test_latest_is_the_end_of_a_young_topic_too(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """RocketMQ's LAST begins at 0 while a topic has its first message in memory; ``start="latest"`` says what it means.

    The log tells where each queue begins, and why.
    """
    got, log = await started(broker, producer, topic, group + "c", old=20, start="latest")
    assert got == [b"new"]
    starts = [
        event["starts"] for event in log.events if event["event"] == "queues_assigned" and event["topic"] == topic
    ]
    assert "CONSUME_FROM_LAST_OFFSET" in starts[0]


async def test_rocketmqs_last_stays_what_it_is(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """By default, and with the enum, a young topic is read from its first message."""
    got, _ = await started(broker, producer, topic, group + "c", old=20)
    assert got.count(b"old") == 20


async def test_a_datetime_and_earliest(broker: PocketBroker, producer: Producer, topic: str, group: str) -> None:
    """A time begins at the message nearest to it (RocketMQ's rule); "earliest" skips nothing."""
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    got, _ = await started(broker, producer, topic, group + "a", old=20, start=later)
    assert got.count(b"old") <= 1
    got, _ = await started(broker, producer, topic, group + "b", old=0, start="earliest")
    assert got.count(b"old") == 20


async def test_a_queue_that_comes_later_is_read_from_its_beginning(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """What was sent to it before the consumer knew it is not skipped, although the group starts at the latest."""
    from pocketmq.client import Admin

    async with Admin(broker.namesrv) as admin:
        await admin.create_topic(topic, queues=1)
        got: list[bytes] = []
        options = ClientOptions(poll_name_server_interval_ms=100)
        instance = ClientInstance(broker.namesrv, options=options)
        consumer = PushConsumer(group + "c", instance=instance, start="latest", rebalance_interval_ms=100)
        consumer.subscribe(topic)(lambda message: got.append(message.body))
        async with consumer:
            await until(lambda: consumer.assigned)
            await admin.create_topic(topic, queues=2)
            async with Producer(group + "p", broker.namesrv) as fresh:  # knows the new route, the consumer does not
                await fresh.send(Message(topic, b"early"), selector=lambda queues, message: queues[1])
            await until(lambda: got)
    assert got == [b"early"]


class AnHourAhead(SystemClock):
    """So all messages of the broker are older than what its client calls now."""

    __slots__ = ()

    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000


async def test_a_topic_that_comes_later_is_read_from_its_beginning(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """The first message makes the topic: a replier that was waiting for it must not skip the request."""
    got: list[bytes] = []
    log = CapturedLog()
    instance = ClientInstance(broker.namesrv, log=log)
    consumer = PushConsumer(group + "c", instance=instance, start="latest")
    consumer.subscribe(topic)(lambda message: got.append(message.body))
    async with consumer:
        await until(lambda: any(event["event"] == "topic_not_consumed_yet" for event in log.events))
        await producer.send(Message(topic, b"first"))
        await until(lambda: got)
    assert got == [b"first"]


async def test_the_latest_of_a_topic_that_was_away_is_not_its_beginning(
    broker: PocketBroker, producer: Producer, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its broker registers after the consumer has started: what is older than that is not the latest."""
    got: list[bytes] = []
    log = CapturedLog()
    await producer.send_batch([Message(topic, b"old") for _ in range(20)])
    instance = ClientInstance(broker.namesrv, log=log, clock=AnHourAhead())
    consumer = PushConsumer(group + "c", instance=instance, start="latest", rebalance_interval_ms=100)
    consumer.subscribe(topic)(lambda message: got.append(message.body))
    route, away = instance.route, [True]

    async def lost_at_first(name: str, **options: Any) -> Any:
        if away:
            raise NoRoute(f"No route info of this topic: {name}")
        return await route(name, **options)

    monkeypatch.setattr(instance, "route", lost_at_first)
    async with consumer:
        await until(lambda: any(event["event"] == "topic_not_consumed_yet" for event in log.events))
        away.clear()
        await until(lambda: consumer.assigned)
        await producer.send(Message(topic, b"new"))
        await until(lambda: b"new" in got)
    assert got.count(b"old") <= 4, "at most the nearest message of each queue: RocketMQ's rule for times"


async def test_a_pull_consumer_starts_there_too(
    broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """Its position in a queue for which the group has no offset."""
    await producer.send_batch([Message(topic, b"old") for _ in range(20)])
    async with PullConsumer(group + "a", broker.namesrv, start="latest") as consumer:
        assert await consumer.poll(topic, timeout_ms=0) == []
        await producer.send(Message(topic, b"new"))
        assert [message.body for message in await consumer.poll(topic, timeout_ms=60_000)] == [b"new"]
    async with PullConsumer(group + "b", broker.namesrv) as consumer:
        assert len(await consumer.poll(topic, timeout_ms=60_000)) == 21
