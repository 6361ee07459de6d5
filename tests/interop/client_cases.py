"""The cases that every client in another language, or of another version, has to pass; one function each.

A case gets a ``Bench``: the driver of a client and the servers under test. It raises ``AssertionError`` if the client
does not do what its documentation says, and ``NotThere`` if the client lacks the feature. Each case has topics and
groups of its own.

Lives here: the cases, and the run of all of them.
"""

import itertools
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tests.interop.rocketmq_servers import ask_json, ask_offset
from tests.interop.toolchain import JavaProcess, wait_until

QUEUES: Final = 4
SOON_S: Final = 45
"""A consumer of some clients finds its queues with its second rebalance, after 20 s."""
UPDATE_TOPIC, QUERY_OFFSET, TOPIC_STATS, RESET_OFFSET = 17, 14, 202, 222
Row = dict[str, Any]
_numbers = itertools.count(1)


class NotThere(Exception):
    """The client has no such feature."""


class Servers(Protocol):
    """A name server and a broker, PocketMQ's or RocketMQ's."""

    namesrv: str
    broker: str

    def kill_and_restart(self) -> None:
        """End the broker with SIGKILL, and start it on its store."""
        ...


@dataclass
class Bench:
    """One client at one place."""

    process: JavaProcess
    servers: Servers
    client: str
    prefix: str
    lacks: frozenset[str] = frozenset()

    @property
    def broadcast(self) -> Row:
        """The fields of a broadcasting consumer."""
        if self.client.startswith("java"):
            return {"option__setMessageModel": "BROADCASTING"}
        return {"broadcast": "true"}

    def need(self, feature: str) -> None:
        """End the case here if the client lacks a feature."""
        if feature in self.lacks:
            raise NotThere(feature)

    def topic(self, name: str = "t") -> str:
        """Create a topic with four queues."""
        topic = f"{self.prefix}-{name}-{next(_numbers)}"
        self.create_topic(self.servers.broker, topic)
        return topic

    @staticmethod
    def create_topic(broker: str, topic: str, queues: int = QUEUES, perm: int = 6) -> None:
        """Create a topic at a broker, PocketMQ's or RocketMQ's."""
        fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
        fields |= {"perm": str(perm), "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        code, remark, _ = ask_json(broker, UPDATE_TOPIC, fields)
        assert code == 0, remark

    def group(self) -> str:
        """Return the name of a new group."""
        return f"{self.prefix}-g-{next(_numbers)}"

    def call(self, verb: str, /, timeout_s: float = 60, **fields: Any) -> Row:
        """Send one command to the driver and return its answer; fail if it failed."""
        named = {name.replace("__", "."): value for name, value in fields.items() if value is not None}
        return self.process.call(verb, timeout_s=timeout_s, **named)

    @contextmanager
    def started(self, verb: str, /, **fields: Any) -> Iterator[str]:
        """Start a producer or consumer, and shut it down after the block."""
        name = f"{verb}-{next(_numbers)}"
        fields.setdefault("group", self.group())
        self.call(verb, name=name, **fields)
        try:
            yield name
        finally:
            self.call("shutdown", name=name)

    def producer(self, **fields: Any) -> Any:
        """Start a producer for the block."""
        return self.started("producer", **fields)

    def consumer(self, topic: str, **fields: Any) -> Any:
        """Start a push consumer for the block."""
        fields.setdefault("expression", "*")
        return self.started("push", topic=topic, **fields)

    def send(self, name: str, topic: str, *bodies: bytes, **fields: Any) -> list[Row]:
        """Send messages; return what the broker answered."""
        sent: list[Row] = self.call(
            "send", name=name, topic=topic, bodies=",".join(body.hex() for body in bodies), **fields
        )["sent"]
        return sent

    def got(self, name: str, count: int, timeout_s: float = SOON_S) -> list[Row]:
        """Wait until a consumer has ``count`` messages; return all that it has."""
        rows: list[Row] = self.call("await", timeout_s + 30, name=name, count=count, timeoutMs=int(timeout_s * 1000))[
            "messages"
        ]
        return rows

    def count_in(self, topic: str) -> int:
        """Return how many messages the broker has in a topic; 0 if there is no such topic."""
        code, _, body = ask_json(self.servers.broker, TOPIC_STATS, {"topic": topic})
        return sum(map(int, re.findall(rb'"maxOffset":(\d+)', body))) if code == 0 else 0


Case = Callable[[Bench], None]
CASES: Final[dict[str, Case]] = {}
"""Name → case, in the order of the run."""


def case(name: str) -> Callable[[Case], Case]:
    """Enter a case into ``CASES``."""

    def enter(function: Case) -> Case:
        CASES[name] = function
        return function

    return enter


def bodies(rows: list[Row]) -> list[bytes]:
    """Return the bodies of received messages, sorted."""
    return sorted(bytes.fromhex(row["body"]) for row in rows)


def numbered(count: int, what: str = "m") -> list[bytes]:
    """Return different bodies."""
    return [f"{what}-{number:02}".encode() for number in range(count)]


def _sends(bench: Bench, mode: str) -> None:
    topic, wanted = bench.topic(), numbered(5)
    with bench.producer() as producer, bench.consumer(topic) as consumer:
        sent = bench.send(producer, topic, *wanted, mode=mode)
        if mode != "oneway":
            assert len({row["id"] for row in sent}) == 5, sent
        assert bodies(bench.got(consumer, 5)) == wanted


@case("send, synchronous")
def _(bench: Bench) -> None:
    _sends(bench, "sync")


@case("send, asynchronous")
def _(bench: Bench) -> None:
    bench.need("async")
    _sends(bench, "async")


@case("send, oneway")
def _(bench: Bench) -> None:
    bench.need("oneway")
    _sends(bench, "oneway")


@case("batch")
def _(bench: Bench) -> None:
    bench.need("batch")
    topic, wanted = bench.topic(), numbered(10)
    with bench.producer() as producer, bench.consumer(topic) as consumer:
        bench.call("batch", name=producer, topic=topic, bodies=",".join(body.hex() for body in wanted))
        assert bodies(bench.got(consumer, 10)) == wanted


@case("tags, keys and properties arrive")
def _(bench: Bench) -> None:
    topic = bench.topic()
    with bench.producer() as producer, bench.consumer(topic, names="colour,of") as consumer:
        bench.send(producer, topic, b"x", tags="t1", keys="k1 k2", property__colour="grün", property__of="a=b;c d")
        [row] = bench.got(consumer, 1)
        assert (row["tags"], row["keys"].split()) == ("t1", ["k1", "k2"]), row
        assert (row["properties"]["colour"], row["properties"]["of"]) == ("grün", "a=b;c d"), row


@case("a body of odd bytes")
def _(bench: Bench) -> None:
    topic, odd = bench.topic(), bytes(range(256)) + b"\0\0\xff\xfe\x01\x02"
    with bench.producer() as producer, bench.consumer(topic) as consumer:
        bench.send(producer, topic, odd)
        assert bodies(bench.got(consumer, 1)) == [odd]


@case("a body of 1 MiB, which clients compress")
def _(bench: Bench) -> None:
    topic, large = bench.topic(), b"0123456789abcdef" * 65_536
    with bench.producer() as producer, bench.consumer(topic) as consumer:
        bench.send(producer, topic, large)
        assert bodies(bench.got(consumer, 1)) == [large]


@case("delay by level")
def _(bench: Bench) -> None:
    topic = bench.topic()
    with bench.producer() as producer, bench.consumer(topic) as consumer:
        bench.send(producer, topic, b"first")
        bench.got(consumer, 1)
        began_s = time.monotonic()
        bench.send(producer, topic, b"late", delayLevel=3)
        assert bodies(bench.got(consumer, 2)) == [b"first", b"late"]
        assert time.monotonic() - began_s >= 2.9  # level 3 is 3 s


@case("tag filter")
def _(bench: Bench) -> None:
    topic = bench.topic()
    with bench.producer() as producer, bench.consumer(topic, expression="a || c") as consumer:
        for number, tag in enumerate("abcabc"):
            bench.send(producer, topic, f"{tag}{number}".encode(), tags=tag)
        assert bodies(bench.got(consumer, 4)) == [b"a0", b"a3", b"c2", b"c5"]


@case("SQL filter")
def _(bench: Bench) -> None:
    bench.need("sql")
    topic = bench.topic()
    with bench.producer() as producer, bench.consumer(topic, sql="size > 3 AND colour = 'red'") as consumer:
        bench.send(producer, topic, b"no", property__size="2", property__colour="red")
        bench.send(producer, topic, b"no", property__size="9", property__colour="blue")
        bench.send(producer, topic, b"yes", property__size="4", property__colour="red")
        assert bodies(bench.got(consumer, 1)) == [b"yes"]


@case("ordered: one queue, in order")
def _(bench: Bench) -> None:
    bench.need("ordered")
    topic, wanted = bench.topic(), numbered(20)
    with bench.producer(selector="hash") as producer, bench.consumer(topic, orderly="true") as consumer:
        bench.send(producer, topic, *wanted, shard="7")
        rows = bench.got(consumer, 20)
        assert [bytes.fromhex(row["body"]) for row in rows] == wanted
        assert len({row["queue"] for row in rows}) == 1


@case("ordered: a message that is suspended comes again, before the next")
def _(bench: Bench) -> None:
    bench.need("ordered")
    topic = bench.topic()
    with bench.producer(selector="hash") as producer, bench.consumer(topic, orderly="true", later=1) as consumer:
        bench.send(producer, topic, b"1", b"2", shard="7")
        rows = bench.got(consumer, 4)
        assert [bytes.fromhex(row["body"]) for row in rows] == [b"1", b"1", b"2", b"2"]


@case("retry")
def _(bench: Bench) -> None:
    bench.need("retry")
    topic = bench.topic()
    with bench.producer() as producer, bench.consumer(topic, later=1) as consumer:
        bench.send(producer, topic, b"again")
        rows = bench.got(consumer, 2)
        assert bodies(rows) == [b"again"] * 2
        assert [row["tries"] for row in rows] == [0, 1]


@case("dead letter")
def _(bench: Bench) -> None:
    bench.need("dead letter")
    topic, group = bench.topic(), bench.group()
    with bench.producer() as producer, bench.consumer(topic, group=group, maxRetries=1, later=9) as consumer:
        bench.send(producer, topic, b"never")
        bench.got(consumer, 2)
        wait_until(lambda: bench.count_in(f"%DLQ%{group}") == 1, 20, "a dead letter")
        assert len(bench.got(consumer, 2)) == 2


@case("broadcast")
def _(bench: Bench) -> None:
    topic, group, wanted = bench.topic(), bench.group(), numbered(8)
    bench.need("broadcast")
    with (
        bench.producer() as producer,
        bench.consumer(topic, group=group, **bench.broadcast) as one,
        bench.consumer(topic, group=group, **bench.broadcast) as two,
    ):

        def both_have(body: bytes) -> bool:
            bench.send(producer, topic, body)
            return all(body in bodies(bench.got(each, 1, 2)) for each in (one, two))

        wait_until(lambda: both_have(b"warm-up"), SOON_S, "both members consume")
        bench.send(producer, topic, *wanted)
        for each in (one, two):
            wait_until(lambda each=each: set(wanted) <= set(bodies(bench.got(each, 1, 1))), 20, "all messages")


@case("two members share the queues")
def _(bench: Bench) -> None:
    bench.need("two members")
    topic, group = bench.topic(), bench.group()
    with (
        bench.producer() as producer,
        bench.consumer(topic, group=group) as one,
        bench.consumer(topic, group=group) as two,
    ):
        sent: list[bytes] = []

        def both_consume() -> bool:
            more = numbered(8, f"r{len(sent)}")
            sent.extend(more)
            bench.send(producer, topic, *more)
            before = bench.got(two, 1, 1)
            return bool(before) and bool(bench.got(one, 1, 1))

        wait_until(both_consume, SOON_S, "both members consume")
        wait_until(
            lambda: set(bodies(bench.got(one, 1, 1)) + bodies(bench.got(two, 1, 1))) == set(sent), 20, "all messages"
        )


@case("a new member goes on where the last one stopped")
def _(bench: Bench) -> None:
    topic, group = bench.topic(), bench.group()
    with bench.producer() as producer:
        with bench.consumer(topic, group=group) as consumer:
            bench.send(producer, topic, *numbered(6, "old"))
            bench.got(consumer, 6)
            wait_until(lambda: committed(bench, group, topic) == 6, 20, "the group's offsets")
        bench.send(producer, topic, *numbered(6, "new"))
        with bench.consumer(topic, group=group) as consumer:
            assert bodies(bench.got(consumer, 6)) == numbered(6, "new")


@case("reset to the start by an administrator")
def _(bench: Bench) -> None:
    bench.need("reset")
    topic, group = bench.topic(), bench.group()
    with bench.producer() as producer, bench.consumer(topic, group=group) as consumer:
        bench.send(producer, topic, *numbered(6))
        bench.got(consumer, 6)
        wait_until(lambda: committed(bench, group, topic) == 6, 20, "the group's offsets")
        fields = {"topic": topic, "group": group, "timestamp": "0", "isForce": "true"}
        code, remark, _ = ask_json(bench.servers.broker, RESET_OFFSET, fields, 15)
        assert code == 0, remark
        assert sorted(set(bodies(bench.got(consumer, 12, 60)))) == numbered(6)
        assert len(bench.got(consumer, 12)) >= 12


@case("transactions: commit, rollback, check")
def _(bench: Bench) -> None:
    bench.need("transactions")
    topic = bench.topic()
    with bench.producer(transaction="true") as producer, bench.consumer(topic) as consumer:
        for body, decision, checked in (
            (b"committed", "COMMIT", ""),
            (b"rolled back", "ROLLBACK", ""),
            (b"checked", "UNKNOWN", "COMMIT"),
        ):
            bench.call("transaction", name=producer, topic=topic, bodies=body.hex(), decision=decision, checked=checked)
        wait_until(lambda: len(set(bodies(bench.got(consumer, 2, 1)))) == 2, 90, "two transactions")
        assert set(bodies(bench.got(consumer, 2))) == {b"checked", b"committed"}  # a check may come twice


@case("pull")
def _(bench: Bench) -> None:
    bench.need("pull")
    topic, group, wanted = bench.topic(), bench.group(), numbered(12)
    with bench.producer() as producer:
        bench.send(producer, topic, *wanted)
    rows = bench.call("pull", 90, name="puller", group=group, topic=topic, expression="*", count=12)["messages"]
    assert bodies(rows) == wanted


@case("request and reply")
def _(bench: Bench) -> None:
    bench.need("request")
    topic = bench.topic()
    with (
        bench.producer() as replier,
        bench.producer() as producer,
        bench.consumer(topic, replyWith=replier) as consumer,
    ):
        bench.send(replier, topic, b"warm-up")
        bench.send(producer, topic, b"warm-up")
        bench.got(consumer, 2)

        def is_answered() -> bool:
            """A Go producer sends the heartbeat that a reply needs up to 30 s after its first message."""
            try:
                answer = bench.call("request", name=producer, topic=topic, bodies=b"question".hex())
            except AssertionError:
                return False
            return bytes.fromhex(answer["reply"]) == b"re:question"

        wait_until(is_answered, 60, "a reply")


@case("kill -9 of the broker: sends and consumption go on")
def _(bench: Bench) -> None:
    topic = bench.topic()
    with bench.producer() as producer, bench.consumer(topic) as consumer:
        bench.send(producer, topic, *numbered(5, "before"))
        bench.got(consumer, 5)
        bench.servers.kill_and_restart()
        sent = numbered(5, "after")
        for body in sent:
            give_up_s = time.monotonic() + 60
            while True:
                try:
                    bench.send(producer, topic, body)
                    break
                except AssertionError:
                    if time.monotonic() > give_up_s:
                        raise
                    time.sleep(0.5)
        wanted = {*numbered(5, "before"), *sent}
        wait_until(lambda: wanted <= set(bodies(bench.got(consumer, 10, 1))), 90, "all messages")


def committed(bench: Bench, group: str, topic: str) -> int:
    """Return the sum of a group's committed offsets."""
    found = 0
    for queue in range(QUEUES):
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue)}
        found += max(0, ask_offset(bench.servers.broker, QUERY_OFFSET, fields))
    return found


PRODUCER_OPTIONS: Final = (
    {"setVipChannelEnabled": "true"},
    {"setUnitMode": "true"},
    {"setRetryAnotherBrokerWhenNotStoreOK": "true"},
    {"setAutoBatch": "true"},
    {"setEnableStreamRequestType": "true"},
    {"setUseHeartbeatV2": "true"},
    {"setEnableConcurrentHeartbeat": "true"},
)
CONSUMER_OPTIONS: Final = (
    {"setVipChannelEnabled": "true"},
    {"setUnitMode": "true"},
    {"setPostSubscriptionWhenPull": "true"},
    {"setConsumeMessageBatchMaxSize": "16", "setPullBatchSize": "64"},
    {"setClientRebalance": "false"},
    {"setEnableStreamRequestType": "true"},
    {"setUseHeartbeatV2": "true"},
    {"setEnableConcurrentHeartbeat": "true"},
)


def _option(of: str, setters: dict[str, str]) -> None:
    """Enter a case for settings of Java's clients; a version without them ends it."""
    text = ", ".join(f"{setter}({value})" for setter, value in setters.items())

    @case(f"{of} with {text}")
    def _(bench: Bench) -> None:
        bench.need("java")
        topic, wanted = bench.topic(), numbered(6)
        options = {f"option__{setter}": value for setter, value in setters.items()}
        here, there = (options, {}) if of == "producer" else ({}, options)
        try:
            with bench.producer(**here) as producer, bench.consumer(topic, **there) as consumer:
                bench.send(producer, topic, *wanted)
                assert bodies(bench.got(consumer, 6, 60)) == wanted
        except AssertionError as error:
            if "NoSuchMethodException" in str(error).partition("\n")[0]:
                raise NotThere(text) from error
            raise


for _setters in PRODUCER_OPTIONS:
    _option("producer", _setters)
for _setters in CONSUMER_OPTIONS:
    _option("consumer", _setters)


def run_all(bench: Bench) -> Iterator[tuple[str, str | None]]:
    """Run every case that the client can pass; yield its name and why it failed (None: passed)."""
    for name, run in CASES.items():
        try:
            run(bench)
        except NotThere:
            continue
        except AssertionError as error:
            yield name, str(error).partition("; the end of its output")[0][:500]
        else:
            yield name, None
