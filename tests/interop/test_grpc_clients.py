"""RocketMQ's official gRPC clients at a broker in a process of its own: producers, consumers, kill and reconnect."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.client_cases import UPDATE_TOPIC
from tests.interop.grpc_clients import GRPC_PACKAGES, grpc_client
from tests.interop.pocketmq_server import PocketMQServer, pocketmq_server
from tests.interop.rocketmq_servers import ask_json, free_ports
from tests.interop.toolchain import JavaProcess, wait_until

Row = dict[str, Any]
UPDATE_GROUP = 200
_numbers = itertools.count(1)


class Place:
    """A broker and one client."""

    def __init__(self, server: PocketMQServer, process: JavaProcess) -> None:
        self.server = server
        self.process = process

    def topic(self, queues: int = 4) -> str:
        name = f"grpc-{next(_numbers)}"
        fields = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
        fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        code, remark, _ = ask_json(self.server.broker, UPDATE_TOPIC, fields)
        assert code == 0, remark
        return name

    def ordered_group(self) -> str:
        name = f"ordered-{next(_numbers)}"
        policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1000, "max": 2000, "multiplier": 2}}
        config = {"groupName": name, "consumeMessageOrderly": True, "groupRetryPolicy": policy}
        body = json.dumps(config).encode()  # Node's client knows no other policy
        code, remark, _ = ask_json(self.server.broker, UPDATE_GROUP, body=body)
        assert code == 0, remark
        return name

    def group(self) -> str:
        return f"group-{next(_numbers)}"

    def call(self, verb: str, /, timeout_s: float = 90, **fields: Any) -> Row:
        named = {name.replace("__", "."): value for name, value in fields.items()}
        return self.process.call(verb, timeout_s=timeout_s, **named)

    def send(self, name: str, topic: str, *bodies: bytes, **fields: Any) -> list[Row]:
        sent: list[Row] = self.call("send", name=name, topic=topic, bodies=",".join(map(bytes.hex, bodies)), **fields)[
            "sent"
        ]
        return sent

    def got(self, name: str, count: int, timeout_s: float = 45) -> list[Row]:
        rows: list[Row] = self.call("await", timeout_s + 30, name=name, count=count, timeoutMs=int(timeout_s * 1000))[
            "messages"
        ]
        assert len(rows) >= count, rows
        return rows

    def received(self, name: str, count: int) -> list[Row]:
        """Receive and acknowledge until there are ``count`` messages."""
        rows: list[Row] = []
        for _ in range(40):
            found = self.call("receive", name=name, count=16, invisibleMs=30_000)["messages"]
            for row in found:
                self.call("ack", name=name, at=row["at"])
            rows += found
            if len(rows) >= count:
                break
        assert len(rows) == count, rows
        return rows


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PocketMQServer, int]]:
    port = free_ports(1)[0]
    with pocketmq_server(tmp_path_factory.mktemp("pocketmq"), f"broker.grpc_port={port}") as found:
        yield found, port


@pytest.fixture(scope="module", params=GRPC_PACKAGES)
def place(
    request: pytest.FixtureRequest, server: tuple[PocketMQServer, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    client: str = request.param
    with grpc_client(client, f"127.0.0.1:{server[1]}", tmp_path_factory.mktemp(client)) as process:
        yield Place(server[0], process)


def bodies(rows: list[Row]) -> list[bytes]:
    return sorted(bytes.fromhex(row["body"]) for row in rows)


def numbered(count: int) -> list[bytes]:
    return [f"m-{number:02}".encode() for number in range(count)]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_messages_are_sent_received_and_acknowledged(place: Place, mode: str) -> None:
    topic, wanted = place.topic(), numbered(12)
    name = f"p-{mode}"
    place.call("producer", name=name, topics=topic)
    place.call("simple", name=f"s-{mode}", group=place.group(), topic=topic)
    place.call("receive", name=f"s-{mode}", count=1, invisibleMs=30_000)  # a new group begins at the end
    sent = place.send(name, topic, *wanted, mode=mode, tag="t1", keys="k1", property__colour="grün")
    assert len({row["id"] for row in sent}) == len(wanted)
    rows = place.received(f"s-{mode}", len(wanted))
    assert bodies(rows) == wanted
    for row in rows:
        assert (row["tag"], row["keys"], row["properties"], row["attempt"]) == ("t1", "k1", {"colour": "grün"}, 1)
    assert {row["id"] for row in rows} == {row["id"] for row in sent}
    for each in (name, f"s-{mode}"):
        place.call("shutdown", name=each)


def test_a_failed_message_comes_again_and_a_filter_chooses(place: Place) -> None:
    topic = place.topic()
    place.call("producer", name="p", topics=topic)
    place.call("push", name="c", group=place.group(), topic=topic, expression="a || c", later=1)
    for tag in "abc":
        place.send("p", topic, tag.encode(), tag=tag)
    rows = place.got("c", 4)
    assert bodies(rows) == [b"a", b"a", b"c", b"c"]
    assert sorted(row["attempt"] for row in rows) == [1, 1, 2, 2]
    for each in ("p", "c"):
        place.call("shutdown", name=each)


def test_a_message_group_stays_in_order_even_when_one_of_it_fails(place: Place) -> None:
    topic, wanted = place.topic(), numbered(8)
    place.call("producer", name="p", topics=topic)
    place.call("push", name="c", group=place.ordered_group(), topic=topic, later=1)
    place.send("p", topic, *wanted, group="one")
    rows = place.got("c", 16, timeout_s=90)
    seen = [bytes.fromhex(row["body"]) for row in rows]
    assert seen == [body for body in wanted for _ in range(2)]
    assert {row["group"] for row in rows} == {"one"}
    for each in ("p", "c"):
        place.call("shutdown", name=each)


def test_a_delayed_message_comes_in_time_and_another_is_recalled(place: Place) -> None:
    topic = place.topic()
    place.call("producer", name="p", topics=topic)
    place.call("push", name="c", group=place.group(), topic=topic)
    place.send("p", topic, b"late", delayMs=4_000)
    place.send("p", topic, b"now")
    rows = place.got("c", 2)
    assert [bytes.fromhex(row["body"]) for row in rows] == [b"now", b"late"]
    for each in ("p", "c"):
        place.call("shutdown", name=each)


def test_transactions_are_committed_rolled_back_and_recovered(place: Place) -> None:
    topic = place.topic()
    place.call("producer", name="p", topics=topic, checker="commit")
    place.call("push", name="c", group=place.group(), topic=topic)
    for body, end in ((b"kept", "commit"), (b"dropped", "rollback"), (b"orphan", "none")):
        place.call("transaction", name="p", topic=topic, body=body.hex(), end=end)
    assert bodies(place.got("c", 2)) == [b"kept", b"orphan"]
    assert place.call("asked", name="p")["asked"] == [b"orphan".hex()]
    for each in ("p", "c"):
        place.call("shutdown", name=each)


def test_clients_come_back_when_the_broker_was_killed(place: Place) -> None:
    topic = place.topic()
    place.call("producer", name="p", topics=topic)
    place.call("push", name="c", group=place.group(), topic=topic)
    place.send("p", topic, b"before")
    assert bodies(place.got("c", 1)) == [b"before"]
    place.server.kill_and_restart()

    def is_taken() -> bool:
        try:
            return bool(place.send("p", topic, b"after"))
        except AssertionError:  # a client waits longer and longer before it connects again
            return False

    wait_until(is_taken, 120, "a send that is taken after the restart")

    def has_come() -> bool:  # what was acknowledged a moment before the kill may come again
        return b"after" in bodies(place.call("await", name="c", count=1_000, timeoutMs=200)["messages"])

    wait_until(has_come, 90, "the message that was sent after the restart")
    for each in ("p", "c"):
        place.call("shutdown", name=each)
