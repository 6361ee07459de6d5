"""Mistakes of a program with the SDK: a typed error whose text says what happened, why, and what to do, in one line.

The texts are exact: RocketMQ's words stand where it has words for it.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from pocketmq.client import (
    Admin,
    Later,
    Message,
    NoNameServer,
    PocketMQError,
    Producer,
    PullConsumer,
    PushConsumer,
    reply_to,
)
from pocketmq.testing import PocketBroker

pytestmark = pytest.mark.slow


@dataclass
class Place:
    """What a mistake is made with: a started producer, its broker, and one that creates no topics."""

    producer: Producer
    broker: PocketBroker
    strict: PocketBroker


def send(*arguments: Any, **fields: Any) -> Callable[[Place], Awaitable[object]]:
    """Return the send of a message with these arguments."""
    return lambda place: place.producer.send(Message(*arguments, **fields))


def at_once(make: Callable[[Place], object]) -> Callable[[Place], Awaitable[object]]:
    """Return a mistake that a constructor finds."""

    async def call(place: Place) -> object:
        return make(place)

    return call


async def not_a_message(place: Place) -> None:
    await place.producer.send(b"x")  # type: ignore[arg-type]


async def not_started(place: Place) -> None:
    await Producer("g", place.broker.namesrv).send(Message("T", b"x"))


async def pull_not_started(place: Place) -> None:
    await PullConsumer("g", place.broker.namesrv).poll("T")


async def unknown_topic(place: Place) -> None:
    async with Producer("g", place.strict.namesrv) as producer:
        await producer.send(Message("Nope", b"x"))


async def read_unknown_topic(place: Place) -> None:
    async with PullConsumer("g", place.broker.namesrv) as consumer:
        await consumer.poll("Nope")


async def negative_offset(place: Place) -> None:
    async with PullConsumer("g", place.broker.namesrv) as consumer:
        await consumer.seek_offset((await consumer.queues("T"))[0], -1)


async def reply_to_no_request(place: Place) -> None:
    async with PullConsumer("g", place.broker.namesrv) as consumer:
        await consumer.seek("T", "earliest")
        reply_to((await consumer.poll("T", timeout_ms=60_000))[0], b"x")


async def broker_as_name_server(place: Place) -> None:
    async with Producer("g", place.broker.address) as producer:
        await producer.send(Message("T", b"x"))


async def no_name_server(place: Place) -> None:
    async with Producer("g", "127.0.0.1:1") as producer:
        await producer.send(Message("T", b"x"), timeout_ms=100)


async def unknown_group(place: Place) -> None:
    async with Admin(place.broker.namesrv) as admin:
        await admin.describe_group("nobody")


async def impossible_queues(place: Place) -> None:
    async with Admin(place.broker.namesrv) as admin:
        await admin.create_topic("New", queues=-5)


def java_handler(messages, context) -> None: ...  # type: ignore[no-untyped-def]


def twice(place: Place) -> None:
    consumer = PushConsumer("g", place.broker.namesrv)
    consumer.subscribe("T")(print)
    consumer.subscribe("T")(print)


MISTAKES: Final[dict[str, tuple[Callable[[Place], Awaitable[object]], str]]] = {
    "a body that is text": (
        send("T", "text"),
        "MessageIllegal: message refused, field body: it is str, not bytes (encode text and serialise objects first)",
    ),
    "no body": (
        send("T", b""),
        "MessageIllegal: message refused, field body: the message body length is zero (put the payload into the body)",
    ),
    "a body of 5 MiB": (
        send("T", bytes(5 << 20)),
        "MessageIllegal: message refused, field body: 5242880 bytes, over the limit of 4194304 (split it "
        "or raise max_message_size)",
    ),
    "no message": (
        not_a_message,
        "MessageIllegal: message refused: bytes is no Message (send a Message)",
    ),
    "a topic in bytes": (
        send(b"T", b"x"),
        "TopicIllegal: topic refused: topic is bytes, not str",
    ),
    "a topic with a space": (
        send("a b", b"x"),
        "TopicIllegal: topic refused: The specified topic[a b] contains illegal characters, allowing "
        "only ^[%|a-zA-Z0-9_-]+$",
    ),
    "a topic of the system": (
        send("SCHEDULE_TOPIC_XXXX", b"x"),
        "TopicIllegal: topic refused: Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden.",
    ),
    "a number as keys": (
        send("T", b"x", keys=17),
        "MessageIllegal: message refused, field keys: it is int, neither str nor a list of str",
    ),
    "a key with a space": (
        send("T", b"x", keys=["a b"]),
        "MessageIllegal: message refused, field keys: key 'a b' is empty or holds a space (keys are "
        "separated by spaces)",
    ),
    "a number as tags": (
        send("T", b"x", tags=1),
        "MessageIllegal: message refused, field tags: it is int, not str",
    ),
    "a number as property": (
        send("T", b"x", properties={"a": 1}),
        "MessageIllegal: message refused, field properties['a']: it is int, not str",
    ),
    "a property of the system": (
        send("T", b"x", properties={"KEYS": "1"}),
        "MessageIllegal: message refused, field properties['KEYS']: the name KEYS is used by the system "
        "(choose another, or Message's own field)",
    ),
    "two delays": (
        send("T", b"x", delay_time_ms=1, delay_time_level=1),
        "MessageIllegal: message refused, field delay_time_level, delay_time_ms, deliver_time_ms: more "
        "than one of them is set (set one of them)",
    ),
    "half a millisecond": (
        send("T", b"x", delay_time_ms=1.5),
        "MessageIllegal: message refused, field delay_time_ms: 1.5 is no time in whole ms from 0 to "
        "1000000000000000 (round a float up)",
    ),
    "level 99": (
        send("T", b"x", delay_time_level=99),
        "MessageIllegal: message refused, field delay_time_level: 99 is not from 0 to 18",
    ),
    "a flag of 41 bits": (
        send("T", b"x", flag=1 << 40),
        "MessageIllegal: message refused, field flag: 1099511627776 is no signed 32-bit number",
    ),
    "a producer that is not started": (
        not_started,
        'NotStarted: producer is not running (use "async with Producer(...)", or await start() first)',
    ),
    "a consumer that is not started": (
        pull_not_started,
        'NotStarted: consumer is not running (use "async with PullConsumer(...)", or await start() first)',
    ),
    "an address without a port": (
        at_once(lambda _place: Producer("g", "nonsense")),
        "ConfigError: namesrv refused: 'nonsense' is no host:port (write \"127.0.0.1:9876;10.0.0.2:9876\")",
    ),
    "no address": (
        at_once(lambda _place: Producer("g", "")),
        'NoNameServer: No name server address, please set it. (pass namesrv="127.0.0.1:9876")',
    ),
    "a group with a space": (
        at_once(lambda place: Producer("a b", place.broker.namesrv)),
        "GroupIllegal: group refused: the specified group[a b] contains illegal characters, allowing "
        "only ^[%|a-zA-Z0-9_-]+$",
    ),
    "a negative setting": (
        at_once(lambda place: Producer("g", place.broker.namesrv, retry_times_when_send_failed=-1)),
        "ConfigError: producer refused: retry_times_when_send_failed=-1 is not from 0 to 1000",
    ),
    "a setting in text": (
        at_once(lambda place: PushConsumer("g", place.broker.namesrv, concurrency="3")),  # type: ignore[arg-type]
        "ConfigError: consumer refused: concurrency='3' is not 1 to 10000",
    ),
    "two handlers": (
        at_once(twice),
        "SubscriptionIllegal: subscription refused: T has a handler (one handler a topic)",
    ),
    "a single bar": (
        at_once(lambda place: PushConsumer("g", place.broker.namesrv).subscribe("T", "A|B")),
        "SubscriptionIllegal: tags refused: 'A|B' holds a single | (separate tags by \"||\")",
    ),
    "a decorator without its call": (
        at_once(lambda place: PushConsumer("g", place.broker.namesrv).subscribe(print)),  # type: ignore[arg-type]
        "SubscriptionIllegal: subscription refused: the topic is builtin_function_or_method, not str (write "
        '@consumer.subscribe("Orders"))',
    ),
    "a handler with a context, as in Java": (
        at_once(lambda place: PushConsumer("g", place.broker.namesrv).subscribe("T")(java_handler)),
        "SubscriptionIllegal: handler tests.client.test_mistakes.java_handler refused: it takes (messages, context) -> "
        "None, and is called with one message (a handler takes one message; with a type of bodies, a body and perhaps "
        "its message)",
    ),
    "addresses as for Kafka": (
        at_once(lambda _place: Producer("g", "127.0.0.1:9876,127.0.0.1:9877")),
        "ConfigError: namesrv refused: '127.0.0.1:9876,127.0.0.1' is no host (separate addresses by ;)",
    ),
    "half a filter": (
        at_once(lambda place: PushConsumer("g", place.broker.namesrv).subscribe("T", sql="a >")),
        "SubscriptionIllegal: filter refused: column 4: the end in 'a >' (expected: a number, a property)",
    ),
    "a retry at level 99": (
        at_once(lambda _place: Later(delay_level=99)),
        "ConfigError: Later refused: delay_level=99 (-1 (dead letters), 0 (broker decides) or a level up to 64)",
    ),
    "a topic that does not exist": (
        unknown_topic,
        "NoRoute: No route info of this topic: Nope: it does not exist, and no broker creates topics by "
        "itself (create the topic first)",
    ),
    "a read topic that does not exist": (
        read_unknown_topic,
        "NoRoute: No route info of this topic: Nope: the name server does not know it (create the topic, "
        "or start its broker)",
    ),
    "a negative offset": (
        negative_offset,
        "OffsetIllegal: offset refused: -1 is no queue offset (use a number from 0 on)",
    ),
    "a reply to no request": (
        reply_to_no_request,
        "ReplyIllegal: create reply message fail: requestMessage error, property[REPLY_TO_CLIENT] is "
        "null. (reply only to what Producer.request has sent)",
    ),
    "a broker as name server": (
        broker_as_name_server,
        "NoNameServer: {broker} is a broker, not a name server (give the address of a name server; it "
        "listens on port 9876 by default)",
    ),
    "no name server": (
        no_name_server,
        "NoNameServer: no name server at 127.0.0.1:1: connection refused (waited N ms) (start one: "
        "pocketmq standalone; or give its address: --namesrv, POCKETMQ_NAMESRV, namesrv=)",
    ),
    "a group that does not exist": (
        unknown_group,
        "NotFound: no such group: nobody (a group is known once a consumer has connected or committed)",
    ),
    "minus five queues": (
        impossible_queues,
        "BrokerAnswerError: topic New not created: {broker} answered 1 topic refused: -5 queues, not 0 "
        "to 65536 (fewer queues)",
    ),
}
"""Mistake → how it is made, and the error: its class and its text."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[PocketBroker, PocketBroker]]:
    with PocketBroker() as broker, PocketBroker(broker={"auto_create_topic_enable": False}) as strict:
        yield broker, strict


@pytest.mark.parametrize("name", MISTAKES)
async def test_the_text_of_a_mistake(name: str, brokers: tuple[PocketBroker, PocketBroker]) -> None:
    make, text = MISTAKES[name]
    broker, strict = brokers
    async with Producer("g0", broker.namesrv) as producer:
        await producer.send(Message("T", b"first"))
        with pytest.raises(PocketMQError) as caught:
            await make(Place(producer, broker, strict))
    said = re.sub(r"waited [\d,]+ ms", "waited N ms", f"{type(caught.value).__name__}: {caught.value}")
    said = said.replace(broker.address, "{broker}")
    assert said == text
    assert "\n" not in said


async def test_an_http_port_is_named_at_once() -> None:
    """Such as that of the metrics: no name server comes to be there."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Producer("g", address) as producer:
            with pytest.raises(NoNameServer) as caught:
                await producer.send(Message("T", b"x"), timeout_ms=100_000)
    assert str(caught.value) == (
        f"{address} is a port that speaks HTTP, not a name server (give the address of a name server; it listens on "
        "port 9876 by default)"
    )
