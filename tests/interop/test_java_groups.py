"""Old and new clients in one group: Java 4.9, Java 5.3 and Python share queues, and lose no message when one leaves."""

from collections import Counter
from collections.abc import Iterator

import pytest

from pocketmq.client.blocking import Producer
from pocketmq.common.message import Message
from tests.interop.java_clients import JavaClients, java_clients
from tests.interop.pocketmq_server import PocketMQServer
from tests.interop.python_side import create_topic, new_name, push_consumer, read_topic
from tests.interop.toolchain import wait_until

QUEUES = 9
SETTLE_S = 60
LONG_NAMES = "-Dorg.apache.rocketmq.client.sendSmartMsg=false"
"""Java sends SEND_MESSAGE (10) and SEND_REPLY_MESSAGE (324) instead of their one-letter forms."""


@pytest.fixture(scope="module")
def both(pocketmq: PocketMQServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[JavaClients]]:
    """4.9 with JSON headers and long field names, 5.3 with binary headers."""
    old, new = tmp_path_factory.mktemp("old"), tmp_path_factory.mktemp("new")
    with (
        java_clients("4.9", "JSON", pocketmq.namesrv, old, LONG_NAMES) as first,
        java_clients("5.3", "ROCKETMQ", pocketmq.namesrv, new) as second,
    ):
        yield [first, second]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "orderly"])
def test_three_kinds_of_members_share_one_group(
    both: list[JavaClients], pocketmq: PocketMQServer, ordered: bool
) -> None:
    """After a while each queue has one member; no message is lost, or read by two; remaining members take over."""
    topic, group = new_name("Mixed"), new_name("mixed")
    create_topic(pocketmq.namesrv, topic, QUEUES)
    old, new = both

    def send(prefix: str, count: int) -> list[str]:
        bodies = [f"{prefix}-{number}" for number in range(count)]
        with Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as producer:
            for number, body in enumerate(bodies):
                producer.send(Message(topic, body.encode(), sharding_key=f"key-{number % 50}"))
        return bodies

    with (
        old.started("push", group=group, topic=topic, orderly=ordered) as in_old,
        push_consumer(pocketmq.namesrv, group, topic, ordered=ordered) as (python, collected),
    ):
        with new.started("push", group=group, topic=topic, orderly=ordered) as in_new:

            def shares() -> list[set[int]]:
                ours = {queue.queue_id for queue in python.assigned if queue.topic == topic}
                return [old.queues_of(in_old, topic), new.queues_of(in_new, topic), ours]

            def is_settled() -> bool:
                found = shares()
                return all(len(share) == QUEUES // 3 for share in found) and set().union(*found) == set(range(QUEUES))

            wait_until(is_settled, SETTLE_S, "three members with three queues each", pause_s=0.5)
            bodies = send("three", 200)

            def seen() -> Counter[str]:
                rows = [*old.received(in_old, 0), *new.received(in_new, 0)]
                return Counter([*(row["body"] for row in rows), *collected.bodies()])

            wait_until(lambda: set(seen()) >= set(bodies), SETTLE_S, "all messages", pause_s=0.5)
            assert seen() == Counter(bodies), "each message once"
            assert is_settled()
            by_new = [row["body"] for row in new.received(in_new, 0)]
            assert by_new, "every member had a share"
        wait_until(
            lambda: (
                old.queues_of(in_old, topic) | {q.queue_id for q in python.assigned if q.topic == topic}
                == set(range(QUEUES))
            ),
            SETTLE_S,
            "the queues of the member that left",
            pause_s=0.5,
        )
        bodies += send("two", 100)

        def seen_by_all() -> Counter[str]:
            return Counter([*by_new, *(row["body"] for row in old.received(in_old, 0)), *collected.bodies()])

        wait_until(lambda: set(seen_by_all()) >= set(bodies), SETTLE_S, "all messages", pause_s=0.5)
        assert seen_by_all() == Counter(bodies)
        if ordered:
            for member in ([row["body"] for row in old.received(in_old, 0)], collected.bodies()):
                for key in range(50):
                    numbers = [int(body[4:]) for body in member if body.startswith("two") and int(body[4:]) % 50 == key]
                    assert numbers == sorted(numbers)


def test_java_of_one_version_reads_what_the_other_sends(both: list[JavaClients], pocketmq: PocketMQServer) -> None:
    """SEND_MESSAGE with long names from 4.9, binary SEND_MESSAGE_V2 and batches from 5.3: each reads the other's."""
    topic = new_name("Crossed")
    create_topic(pocketmq.namesrv, topic, 4)
    for count, (sender, reader) in ((10, both), (20, both[::-1])):
        receipts = sender.send(sender.producer, topic=topic, body="x", count=5, keys="k", tags="t", property__p="ж")
        sender.call("batch", name=sender.producer, topic=topic, body="b", count=5)
        with reader.started("push", group=new_name("crossed"), topic=topic) as consumer:
            rows = reader.received(consumer, count)
            found = {row["msgId"]: row for row in rows}
            for receipt in receipts:
                row = found[receipt["msgId"]]
                assert (row["offsetMsgId"], row["keys"], row["tags"]) == (receipt["offsetMsgId"], "k", "t")
                assert row["properties"]["p"] == "ж"
    assert len(read_topic(pocketmq.namesrv, topic)) == 20


def test_a_reply_with_long_names(both: list[JavaClients], pocketmq: PocketMQServer) -> None:
    """SEND_REPLY_MESSAGE (324): 4.9 answers a request of 5.3."""
    topic = new_name("LongReply")
    create_topic(pocketmq.namesrv, topic, 4)
    old, new = both
    with old.started("push", group=new_name("replier"), topic=topic, replyWith=old.producer) as replier:
        wait_until(lambda: len(old.queues_of(replier, topic)) == 4, 40, "the replier's queues")
        assert new.call("request", name=new.producer, topic=topic, body="?")["reply"]["body"] == "reply to ?"
