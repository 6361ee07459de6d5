"""RocketMQ's Java producers send to PocketMQ in every way; our own consumer reads the messages."""

import time
import zlib

import pytest

from pocketmq.client.blocking import Producer
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.recall_handle import RecallHandle
from tests.interop.java_clients import JavaClients, Row
from tests.interop.pocketmq_server import PocketMQServer
from tests.interop.python_side import create_topic, new_name, read_topic, read_when_there

TEXT = "Grüße, 世界 \U0001f680"


def by_offset_id(messages: list[ReceivedMessage]) -> dict[str, ReceivedMessage]:
    return {message.offset_msg_id: message for message in messages}


def check_receipts(receipts: list[Row], messages: list[ReceivedMessage]) -> None:
    """Assert that each receipt names the place of its message, and its ids."""
    assert len(receipts) == len(messages)
    found = by_offset_id(messages)
    for receipt in receipts:
        message = found.pop(receipt["offsetMsgId"])
        assert receipt["status"] == "SEND_OK"
        assert receipt["msgId"] == message.msg_id == message.properties["UNIQ_KEY"]
        assert (receipt["topic"], receipt["broker"]) == (message.topic, message.broker_name)
        assert (receipt["queueId"], receipt["queueOffset"]) == (message.queue_id, message.queue_offset)
        assert receipt["region"] == "DefaultRegion"
        assert receipt["traceOn"] is True
    assert not found


@pytest.mark.parametrize("mode", ["sync", "async", "queue"])
def test_receipts_name_the_place_of_each_message(java: JavaClients, pocketmq: PocketMQServer, mode: str) -> None:
    """Java's receipt names the message that we read back, with all fields from Java."""
    topic, began_ms = new_name(f"Sends-{mode}"), time.time_ns() // 1_000_000
    create_topic(pocketmq.namesrv, topic, 4)
    producer = java.producer
    receipts = java.send(
        producer, mode=mode, topic=topic, body=TEXT, count=7, tags="tag-a", keys="k1 k2", flag=42, queueId=2,
        property__color="blue", property__price="3.5",
    )  # fmt: skip
    messages = read_topic(pocketmq.namesrv, topic)
    check_receipts(receipts, messages)
    assert {message.body.decode() for message in messages} == {f"{TEXT}-{number}" for number in range(7)}
    for message in messages:
        assert (message.tags, message.keys) == ("tag-a", ["k1", "k2"])
        assert message.properties["color"] == "blue"
        assert message.properties["price"] == "3.5"
        assert message.properties["CLUSTER"] == "DefaultCluster"
        assert message.flag == 42
        assert began_ms - 1000 <= message.born_timestamp <= message.store_timestamp <= began_ms + 60_000
        assert message.born_host.startswith("127.0.0.1:")
    if mode == "queue":
        assert {message.queue_id for message in messages} == {2}
        assert [message.body.decode() for message in messages] == [f"{TEXT}-{number}" for number in range(7)]
    elif mode == "async":  # several threads choose, each with an index that starts anywhere (ThreadLocalIndex)
        assert {message.queue_id for message in messages} <= {0, 1, 2, 3}
    else:
        assert {message.queue_id for message in messages} == {0, 1, 2, 3}, "the producer takes turns over the queues"


def test_oneway(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """Oneway messages arrive, even the first ones of a topic that does not exist yet."""
    topic = new_name("Oneway")
    producer = java.producer
    assert java.send(producer, mode="oneway", topic=topic, body="o", count=20) == []
    messages = read_when_there(pocketmq.namesrv, topic, 20)
    assert sorted(message.body.decode() for message in messages) == sorted(f"o-{number}" for number in range(20))


def test_batch(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """A batch is one append: adjacent messages in one queue, an id for each; SendResult joins the ids with commas."""
    topic = new_name("Batch")
    producer = java.producer
    receipt = java.call("batch", name=producer, topic=topic, body=TEXT, count=25, tags="b", keys="key", property__p="1")
    receipt = receipt["receipt"]
    messages = read_topic(pocketmq.namesrv, topic)
    assert [message.body.decode() for message in messages] == [f"{TEXT}-{number}" for number in range(25)]
    assert {message.queue_id for message in messages} == {receipt["queueId"]}
    assert [message.queue_offset for message in messages] == list(range(25))
    assert receipt["queueOffset"] == 0
    assert receipt["msgId"].split(",") == [message.msg_id for message in messages]
    assert receipt["offsetMsgId"].split(",") == [message.offset_msg_id for message in messages]
    assert all(message.properties["p"] == "1" and message.tags == "b" for message in messages)


def test_a_selector_keeps_the_order_of_its_key(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """MessageQueueSelector: messages of one key are in one queue, in the order of the sends."""
    topic = new_name("Selected")
    producer = java.producer
    receipts = java.send(producer, mode="hash", topic=topic, body="m", count=50)
    messages = read_topic(pocketmq.namesrv, topic)
    check_receipts(receipts, messages)
    for key in range(5):
        of_key = [message for message in messages if int(message.body.decode()[2:]) % 5 == key]
        assert len({message.queue_id for message in of_key}) == 1
        assert [int(message.body.decode()[2:]) for message in of_key] == list(range(key, 50, 5))


def test_messages_are_found_by_each_of_their_ids(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """ViewMessage by offset id and unique id, QueryMessage by key."""
    topic = new_name("Found")
    producer = java.producer
    receipts = java.send(producer, topic=topic, body=TEXT, keys="order-17 order-18", count=3)
    for receipt in receipts:
        for name in ("offsetMsgId", "msgId"):
            found = java.call("view", name=producer, topic=topic, id=receipt[name])["message"]
            assert found["queueOffset"] == receipt["queueOffset"]
            assert found["msgId"] == receipt["msgId"]
            assert found["body"].startswith(TEXT)
    found = java.call("query", name=producer, topic=topic, key="order-18")["messages"]
    assert sorted(row["msgId"] for row in found) == sorted(receipt["msgId"] for receipt in receipts)
    assert "CODE: 208" in java.fails("query", name=producer, topic=topic, key="no-such")


def test_delay_levels(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """A message of delay level 2 is in its topic after 2 s, not before, unchanged."""
    topic = new_name("Delayed")
    producer = java.producer
    [receipt] = java.send(producer, topic=topic, body=TEXT, delayLevel=2, tags="later", keys="k")
    assert receipt["status"] == "SEND_OK"
    [message] = read_when_there(pocketmq.namesrv, topic, 1)
    waited_ms = message.store_timestamp - message.born_timestamp
    assert 1900 <= waited_ms < 10_000
    assert (message.body.decode(), message.tags, message.keys) == (TEXT, "later", ["k"])
    assert message.msg_id == receipt["msgId"]


def test_timer_messages(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """5.3's delays by time: milliseconds, seconds, and a point in time."""
    if java.version == "4.9":
        producer = java.producer
        assert "delay levels only" in java.fails("send", name=producer, topic="T", body="b", delayMs=1)
        return
    topic, now_ms = new_name("Timed"), time.time_ns() // 1_000_000
    producer = java.producer
    for body, field in (("ms", {"delayMs": 1500}), ("sec", {"delaySec": 2}), ("at", {"deliverAt": now_ms + 3000})):
        [receipt] = java.send(producer, topic=topic, body=body, **field)
        assert receipt["status"] == "SEND_OK"
    messages = {message.body.decode(): message for message in read_when_there(pocketmq.namesrv, topic, 3)}
    waited = {body: message.store_timestamp - message.born_timestamp for body, message in messages.items()}
    assert 1400 <= waited["ms"] < 8000
    assert 1900 <= waited["sec"] < 8000
    assert now_ms + 2900 <= messages["at"].store_timestamp < now_ms + 10_000


@pytest.mark.parametrize("kind", ["ZLIB", "LZ4", "ZSTD"])
def test_what_java_compresses_we_read(java: JavaClients, pocketmq: PocketMQServer, kind: str) -> None:
    """Bodies above the limit arrive compressed, with Java's flag, and our SDK unpacks them."""
    topic, flags = new_name(f"Packed-{kind}"), {"ZLIB": 0x300, "LZ4": 0x100, "ZSTD": 0x200}
    with java.started("producer", group=new_name("pg"), compress=kind, compressOver=1000) as producer:
        [small] = java.send(producer, topic=topic, bodyBytes=500)
        [large] = java.send(producer, topic=topic, bodyBytes=100_000)
        viewed = java.call("view", name=producer, topic=topic, id=large["msgId"])["message"]
    found = by_offset_id(read_topic(pocketmq.namesrv, topic))
    packed, plain = found[large["offsetMsgId"]], found[small["offsetMsgId"]]
    assert packed.sys_flag & 0x701 == flags[kind] | 1
    assert len(packed.raw_body) < 50_000
    assert len(packed.body) == 100_000
    assert packed.body.startswith(plain.body)
    assert plain.sys_flag & 1 == 0
    assert viewed["bodyCrc"] == zlib.crc32(packed.body)


def test_too_large_a_message_is_refused_with_rocketmqs_code(java: JavaClients) -> None:
    """Java gets MESSAGE_ILLEGAL for a body above the broker's limit, and no message is stored."""
    producer = java.producer
    said = java.fails("send", name=producer, topic=new_name("Large"), bodyBytes=(4 << 20) + 1)
    assert "CODE: 13" in said


def test_a_recall_takes_a_delayed_message_back(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """5.3's recallMessage answers the message's id; a handle whose time has passed is refused. 4.9 has none."""
    topic = new_name("Recalled")
    create_topic(pocketmq.namesrv, topic, 4)
    due_ms = time.time_ns() // 1_000_000 + 60_000
    with Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as producer:
        receipt = producer.send(Message(topic, b"b", deliver_time_ms=due_ms))
    handle = RecallHandle(topic, receipt.broker, due_ms, receipt.msg_id)
    if java.version != "5.3":
        assert "4.9 has no recall" in java.fails("recall", name=java.producer, topic=topic, handle=str(handle))
        return
    assert java.call("recall", name=java.producer, topic=topic, handle=str(handle)) == {"recalled": receipt.msg_id}
    late = str(handle._replace(due_ms=1))
    assert "CODE: 604" in java.fails("recall", name=java.producer, topic=topic, handle=late)
