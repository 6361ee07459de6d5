"""RocketMQ's Java consumers read from PocketMQ: push, pull and lite pull, filters, offsets, broadcast."""

import time
import zlib
from typing import Any

from pocketmq.client.blocking import Producer
from pocketmq.common.message import Message
from tests.interop.java_clients import JavaClients
from tests.interop.pocketmq_server import PocketMQServer
from tests.interop.python_side import new_name, push_consumer, read_topic
from tests.interop.toolchain import wait_until

TEXT = "Grüße, 世界 \U0001f680"


def send(pocketmq: PocketMQServer, topic: str, count: int, **fields: Any) -> list[str]:
    """Send from our SDK; return the bodies."""
    bodies = [f"{TEXT}-{number}" for number in range(count)]
    with Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as producer:
        producer.send_batch([Message(topic, body.encode(), **fields) for body in bodies])
    return bodies


def test_a_push_consumer_gets_every_message_whole(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """Concurrent consumption: each message once, with all that our SDK gave it; the group's offsets are committed."""
    topic, group = new_name("Push"), new_name("push")
    with Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as producer:
        given: dict[str, Any] = {"tags": "t", "keys": ["k1", "k2"], "flag": 7, "properties": {"color": "ж"}}
        sent = [producer.send(Message(topic, f"{TEXT}-{number}".encode(), **given)) for number in range(40)]
        receipts = {receipt.msg_id: receipt for receipt in sent}
    with java.started("push", group=group, topic=topic) as consumer:
        rows = java.received(consumer, 40)
        assert sorted(row["msgId"] for row in rows) == sorted(receipts)
        for row in rows:
            receipt = receipts[row["msgId"]]
            assert row["offsetMsgId"] == receipt.offset_msg_id
            assert (row["queueId"], row["queueOffset"]) == (receipt.queue_id, receipt.queue_offset)
            assert (row["tags"], row["keys"], row["flag"]) == ("t", "k1 k2", 7)
            assert row["properties"]["color"] == "ж"
            assert row["body"].startswith(TEXT)
            assert row["broker"] == "broker-a"
            assert row["bornHost"].startswith("/127.0.0.1:")
            assert row["storeHost"] == f"/{pocketmq.broker}"
            assert row["reconsumeTimes"] == 0
    with java.started("push", group=group, topic=topic) as consumer:
        send(pocketmq, topic, 5)
        rows = java.received(consumer, 5)
        assert len(rows) == 5, "the group goes on where it stopped: nothing is read again"


def test_an_orderly_consumer_keeps_the_order_of_each_queue(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """Orderly consumption takes the broker's locks (LOCK_BATCH_MQ) and retries a failed message in its place."""
    topic, group = new_name("Orderly"), new_name("orderly")
    with Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as producer:
        for number in range(60):
            producer.send(Message(topic, str(number).encode(), sharding_key=f"key-{number % 7}"))
    with java.started("push", group=group, topic=topic, orderly=True, laterTimes=1, suspendMs=50) as consumer:
        rows = java.received(consumer, 120, 40)
    assert len(rows) == 120, "each message fails once"
    for queue_id in range(4):
        bodies = [int(row["body"]) for row in rows if row["queueId"] == queue_id]
        assert bodies[::2] == bodies[1::2], "the second try comes before the next message"
        assert bodies[::2] == sorted(bodies[::2])


def test_tag_filter(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """``a || c``: filtered by the broker's consume queues and by the client, with tags whose hash codes collide."""
    topic = new_name("Tags")
    for tag in ("a", "b", "c", "Aa", "BB"):
        send(pocketmq, topic, 3, tags=tag)
    with java.started("push", group=new_name("tags"), topic=topic, expression="a || c") as consumer:
        assert sorted(row["tags"] for row in java.received(consumer, 6)) == ["a"] * 3 + ["c"] * 3
    with java.started("push", group=new_name("tags"), topic=topic, expression="Aa") as consumer:
        java.received(consumer, 3)
        time.sleep(0.5)
        assert [row["tags"] for row in java.received(consumer, 3)] == ["Aa"] * 3, "BB has the same hash code"


def test_sql92_filter(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """MessageSelector.bySql: the broker evaluates it; one that does not parse is refused at the consumer's start."""
    topic = new_name("Sql")
    with Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as producer:
        for price in range(10):
            region = "EU" if price % 2 else "US"
            producer.send(Message(topic, str(price).encode(), properties={"price": str(price), "region": region}))
    with java.started("push", group=new_name("sql"), topic=topic, sql="price > 4 AND region = 'EU'") as consumer:
        assert sorted(row["body"] for row in java.received(consumer, 3)) == ["5", "7", "9"]
    with java.started("liteStart", group=new_name("sql"), topic=topic, sql="price BETWEEN 2 AND 3") as consumer:
        rows = java.call("litePoll", name=consumer, count=2)["messages"]
        assert sorted(row["body"] for row in rows) == ["2", "3"]
    said = java.fails("push", name=new_name("bad"), group=new_name("sql"), topic=topic, sql="price >")
    assert "CODE: 23" in said or "SUBSCRIPTION_PARSE_FAILED" in said or "Parse" in said


def test_broadcast_gives_each_consumer_everything(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """BROADCASTING: two Java consumers and one of ours in one group each get every message."""
    topic, group = new_name("Broadcast"), new_name("broadcast")
    send(pocketmq, topic, 1)
    with (
        java.started("push", group=group, topic=topic, broadcast=True) as first,
        java.started("push", group=group, topic=topic, broadcast=True) as second,
    ):
        java.received(first, 1)
        java.received(second, 1)
        bodies = send(pocketmq, topic, 12)
        for consumer in (first, second):
            rows = java.received(consumer, 13)
            assert sorted(row["body"] for row in rows) == sorted([*bodies, bodies[0]])


def test_pull_consumer_reads_queue_by_queue(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """DefaultMQPullConsumer: pulls, statuses at the ends, min, max, offsets by time, committed offsets."""
    topic, group = new_name("Pull"), new_name("pull")
    with java.started("pullStart", group=group) as consumer:
        java.call("createTopic", name=consumer, topic=topic, queues=2)
        wait_until(lambda: len(read_topic(pocketmq.namesrv, topic)) == 0, 10, "a route")
        with Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as producer:
            for number in range(40):
                producer.send(Message(topic, str(number).encode(), tags="even" if number % 2 == 0 else "odd"),
                              selector=lambda queues, message: 0)  # fmt: skip
        messages = read_topic(pocketmq.namesrv, topic)
        [queue_id] = {message.queue_id for message in messages}
        where: dict[str, Any] = {"name": consumer, "topic": topic, "queueId": queue_id}
        found = java.call("pull", offset=0, max=32, **where)
        assert (found["status"], found["next"], found["min"], found["max"]) == ("FOUND", 32, 0, 40)
        assert [row["body"] for row in found["messages"]] == [str(number) for number in range(32)]
        found = java.call("pull", offset=32, max=32, expression="odd", **where)
        assert [row["body"] for row in found["messages"]] == ["33", "35", "37", "39"]
        assert java.call("pull", offset=32, expression="none", **where)["status"] == "NO_MATCHED_MSG"
        assert java.call("pull", offset=40, **where)["status"] == "NO_NEW_MSG"
        moved = java.call("pull", offset=1000, **where)
        assert (moved["status"], moved["next"]) == ("OFFSET_ILLEGAL", 40)
        time_ms = messages[20].store_timestamp
        first_at = next(message.queue_offset for message in messages if message.store_timestamp >= time_ms)
        offsets = java.call("offsets", time=time_ms, **where)
        assert (offsets["min"], offsets["max"], offsets["atTime"]) == (0, 40, first_at)
        assert offsets["earliestStoreTime"] == messages[0].store_timestamp
        assert offsets["committed"] == 0, "RocketMQ's answer for a group without an offset, while the queue begins at 0"
        assert java.call("offsets", commit=17, **where)["committed"] == 17


def test_pull_consumer_with_a_filter_of_its_own(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """DefaultMQPullConsumer with MessageSelector.bySql: each pull carries the expression."""
    topic = new_name("PullSql")
    with Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as producer:
        for number in range(10):
            producer.send(Message(topic, str(number).encode(), properties={"n": str(number)}), selector=lambda *_: 0)
    with java.started("pullStart", group=new_name("pull"), topic=topic) as consumer:
        time.sleep(1.2)  # its first heartbeat, 1 s after its start: before that Java knows no broker's version
        found = java.call("pull", name=consumer, topic=topic, queueId=0, offset=0, sql="n IN ('3', '8')")
    assert [row["body"] for row in found["messages"]] == ["3", "8"]


def test_a_blocked_pull_is_woken_by_a_send(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """PullBlockIfNotFound: the broker holds the request and answers when a message arrives."""
    topic = new_name("Block")
    send(pocketmq, topic, 1)
    [message] = read_topic(pocketmq.namesrv, topic)
    with java.started("pullStart", group=new_name("pull")) as consumer:
        java.process.send("pull", name=consumer, topic=topic, queueId=message.queue_id, offset=1, block=True)
        time.sleep(0.5)
        with Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as producer:
            began_ms = time.time_ns() // 1_000_000
            producer.send(Message(topic, b"woken"), selector=lambda queues, _: message.queue_id)
        answer = java.process.read(20)
    assert [row["body"] for row in answer["messages"]] == ["woken"]
    assert answer["messages"][0]["seenAt"] - began_ms < 5000


def test_lite_pull_subscribed(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """DefaultLitePullConsumer with subscribe: polls, commits, and a second one of the group continues there."""
    topic, group = new_name("Lite"), new_name("lite")
    bodies = send(pocketmq, topic, 20)
    with java.started("liteStart", group=group, topic=topic) as consumer:
        rows = java.call("litePoll", name=consumer, count=20, commit=True)["messages"]
        assert sorted(row["body"] for row in rows) == sorted(bodies)
        committed = java.call("liteCommitted", name=consumer, topic=topic)["committed"]
        assert sum(offset for offset in committed.values() if offset > 0) == 20
    later = [f"{body} later" for body in bodies]
    with Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as producer:
        producer.send_batch([Message(topic, body.encode()) for body in later])
    with java.started("liteStart", group=group, topic=topic) as consumer:
        rows = java.call("litePoll", name=consumer, count=20)["messages"]
        assert sorted(row["body"] for row in rows) == sorted(later)


def test_lite_pull_assigned_and_sought(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """DefaultLitePullConsumer with assign: every queue, then seek to the start, an offset, the end."""
    topic = new_name("Assigned")
    bodies = send(pocketmq, topic, 10)
    [queue_id] = {message.queue_id for message in read_topic(pocketmq.namesrv, topic)}
    with java.started("liteStart", group=new_name("lite"), topic=topic, assign=True) as consumer:
        where: dict[str, Any] = {"name": consumer, "topic": topic, "queueId": queue_id}
        java.call("liteSeek", offset="begin", **where)
        rows = java.call("litePoll", name=consumer, count=10)["messages"]
        assert [row["body"] for row in rows[-10:]] == bodies
        java.call("liteSeek", offset=7, **where)
        rows = java.call("litePoll", name=consumer, count=3)["messages"]
        assert [row["queueOffset"] for row in rows] == [7, 8, 9]
        java.call("liteSeek", offset="end", **where)
        assert java.call("litePoll", name=consumer, count=1, timeoutMs=700)["messages"] == []


def test_offsets_of_a_group_are_the_same_for_java_and_python(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """A group consumed by Java continues in Python where Java stopped, and the other way round."""
    topic, group = new_name("Shared"), new_name("shared")
    first = send(pocketmq, topic, 30)
    with java.started("push", group=group, topic=topic) as consumer:
        assert sorted(row["body"] for row in java.received(consumer, 30)) == sorted(first)
    with push_consumer(pocketmq.namesrv, group, topic) as (_, collected):
        second = [f"second-{number}" for number in range(30)]
        with Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as producer:
            producer.send_batch([Message(topic, body.encode()) for body in second])
        collected.wait_for(30)
        assert sorted(collected.bodies()) == sorted(second)
    with java.started("push", group=group, topic=topic) as consumer:
        third = send(pocketmq, topic, 3)
        assert sorted(row["body"] for row in java.received(consumer, 3)) == third


def test_java_reads_what_we_compress(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """Java's consumer unpacks our ZLIB, LZ4 and ZSTD bodies."""
    topic = new_name("OurPacked")
    body = ("".join(f"line {number} of the body\n" for number in range(5000))).encode()
    for kind in ("ZLIB", "LZ4", "ZSTD"):
        producer_group = new_name("py")
        with Producer(
            producer_group, pocketmq.namesrv, compress_type=kind, compress_msg_body_over_howmuch=1000
        ) as producer:
            producer.send(Message(topic, body, tags=kind))
    assert all(len(message.raw_body) < len(body) for message in read_topic(pocketmq.namesrv, topic))
    with java.started("push", group=new_name("packed"), topic=topic) as consumer:
        rows = java.received(consumer, 3)
    assert {row["tags"]: row["bodyCrc"] for row in rows} == dict.fromkeys(("ZLIB", "LZ4", "ZSTD"), zlib.crc32(body))
