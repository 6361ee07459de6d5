"""Java's transactions, retries, dead letters, request-reply and trace on PocketMQ."""

import time

from pocketmq.client import reply_to
from pocketmq.client.blocking import Producer, PushConsumer
from pocketmq.client.trace.trace_format import TraceRecord, TraceType, decode_records
from pocketmq.common.message import Message, ReceivedMessage
from tests.interop.java_clients import JavaClients
from tests.interop.pocketmq_server import PocketMQServer
from tests.interop.python_side import create_topic, new_name, read_topic, read_when_there
from tests.interop.toolchain import wait_until


def test_transactions(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """A commit delivers, a rollback does not; undecided ones are checked at the producer and then decided."""
    topic = new_name("Transaction")
    with java.started("producer", group=new_name("tx"), transaction=True) as producer:
        for body, decision, checked in (
            ("commit", "COMMIT_MESSAGE", "UNKNOW"),
            ("rollback", "ROLLBACK_MESSAGE", "UNKNOW"),
            ("checked-commit", "UNKNOW", "COMMIT_MESSAGE"),
            ("checked-rollback", "UNKNOW", "ROLLBACK_MESSAGE"),
        ):
            answer = java.call(
                "transaction", name=producer, topic=topic, body=body, decision=decision, checked=checked,
                keys=f"k-{body}", tags="tx", property__p="v",
            )  # fmt: skip
            assert answer["receipt"]["status"] == "SEND_OK"
            assert answer["receipt"]["state"] == decision
        messages = read_when_there(pocketmq.namesrv, topic, 2)

        def both_were_checked() -> bool:
            bodies = {row["body"] for row in java.call("checks", name=producer)["checks"]}
            return bodies >= {"checked-commit", "checked-rollback"}

        wait_until(both_were_checked, 20, "checks of both undecided transactions")
        checks = java.call("checks", name=producer)["checks"]
    assert {row["body"] for row in checks} == {"checked-commit", "checked-rollback"}
    assert {row["topic"] for row in checks} == {topic}
    assert {row["tags"] for row in checks} == {"tx"}
    assert {row["properties"]["p"] for row in checks} == {"v"}
    time.sleep(1.5)  # a round of checks: no further message arrives
    messages = read_topic(pocketmq.namesrv, topic)
    assert sorted(message.body.decode() for message in messages) == ["checked-commit", "commit"]
    assert {message.keys[0] for message in messages} == {"k-commit", "k-checked-commit"}
    assert all(message.properties["p"] == "v" and message.tags == "tx" for message in messages)


def test_retries_with_their_delay(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """RECONSUME_LATER: the message returns over %RETRY% after the delay of level 3, with one more attempt."""
    topic, group = new_name("Retry"), new_name("retry")
    create_topic(pocketmq.namesrv, f"%RETRY%{group}", 1)  # otherwise a 5.3 consumer finds it 20 s after its start
    with Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as producer:
        receipt = producer.send(Message(topic, b"again", keys=["k"], tags="t", properties={"p": "v"}))
    with java.started("push", group=group, topic=topic, laterTimes=1) as consumer:
        rows = java.received(consumer, 2, 30)
    assert [row["reconsumeTimes"] for row in rows] == [0, 1]
    assert {(row["topic"], row["msgId"], row["body"], row["keys"], row["tags"]) for row in rows} == {
        (topic, receipt.msg_id, "again", "k", "t")
    }
    assert {row["properties"]["p"] for row in rows} == {"v"}
    assert 2900 <= rows[1]["seenAt"] - rows[0]["seenAt"] < 15_000, "level 3 + 0 tries: 3 s in this broker"
    [retry] = read_topic(pocketmq.namesrv, f"%RETRY%{group}")
    assert retry.properties["RETRY_TOPIC"] == topic
    assert retry.properties["ORIGIN_MESSAGE_ID"] == receipt.offset_msg_id


def test_dead_letters(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """After the last attempt the message is in %DLQ%, and no consumer of the group sees it again."""
    topic, group = new_name("Dead"), new_name("dead")
    create_topic(pocketmq.namesrv, f"%RETRY%{group}", 1)
    with Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as producer:
        receipt = producer.send(Message(topic, b"never", keys=["k"]))
    with java.started("push", group=group, topic=topic, laterTimes=99, delayLevel=1, maxRetries=2) as consumer:
        rows = java.received(consumer, 3, 30)
        assert [row["reconsumeTimes"] for row in rows] == [0, 1, 2]
        [dead] = read_when_there(pocketmq.namesrv, f"%DLQ%{group}", 1)
        assert len(java.received(consumer, 3)) == 3
    assert (dead.body, dead.keys) == (b"never", ["k"])
    assert dead.properties["ORIGIN_MESSAGE_ID"] == receipt.offset_msg_id
    assert dead.properties["RETRY_TOPIC"] == topic


def test_a_failed_orderly_message_becomes_a_dead_letter(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """Orderly consumption sends back with its own producer when the attempts are used up (code 310 to %RETRY%)."""
    topic, group = new_name("OrderlyDead"), new_name("odead")
    with Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as producer:
        for body in (b"first", b"second"):
            producer.send(Message(topic, body, sharding_key="one"))
    with java.started(
        "push", group=group, topic=topic, orderly=True, laterTimes=99, maxRetries=2, suspendMs=50
    ) as consumer:
        dead = read_when_there(pocketmq.namesrv, f"%DLQ%{group}", 2, 40)
        rows = java.received(consumer, 6)
    assert sorted(message.body for message in dead) == [b"first", b"second"]
    assert [row["body"] for row in rows][:1] == ["first"]


def test_request_and_reply(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """Java to Java, Java to Python, Python to Java; without a consumer the request times out."""
    for_java, for_python, for_nobody = new_name("AskJava"), new_name("AskPython"), new_name("AskNobody")
    python = PushConsumer(group=new_name("replier"), namesrv=pocketmq.namesrv)
    with (
        java.started("producer", group=new_name("requester")) as producer,
        Producer(group=new_name("py"), namesrv=pocketmq.namesrv) as our_producer,
    ):
        for topic in (for_java, for_python, for_nobody):
            create_topic(pocketmq.namesrv, topic, 4)

        @python.subscribe(for_python)
        def answer(message: ReceivedMessage) -> None:
            our_producer.send(reply_to(message, b"python says " + message.body))

        with python, java.started("push", group=new_name("replier"), topic=for_java, replyWith=producer,
                                  **{"from": "CONSUME_FROM_LAST_OFFSET"}) as replier:  # fmt: skip
            wait_until(lambda: len(java.queues_of(replier, for_java)) == 4, 20, "the replier's queues")
            # 45 s: at times a 5.3 consumer raises its subscription's version while its own heartbeat is under way, and
            # is refused (SUBSCRIPTION_NOT_LATEST, as by RocketMQ) until the next one, 30 s later
            reply = java.call("request", 60, name=producer, topic=for_java, body="one", timeoutMs=45_000)["reply"]
            assert reply["body"] == "reply to one"
            wait_until(
                lambda: len([queue for queue in python.assigned if queue.topic == for_python]) == 4,
                20,
                "our replier's queues",
            )
            reply = java.call("request", name=producer, topic=for_python, body="two", timeoutMs=30_000)["reply"]
            assert reply["body"] == "python says two"
            assert reply["properties"]["MSG_TYPE"] == "reply"
            ours = our_producer.request(Message(for_java, b"three"), timeout_ms=30_000)
            assert ours.body == b"reply to three"
            said = java.fails("request", name=producer, topic=for_nobody, body="four", timeoutMs=1000)
            assert "RequestTimeoutException" in said


def test_message_trace(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """The rows of Java's trace in RMQ_SYS_TRACE_TOPIC parse, and name the message and its consumption."""
    topic, group = new_name("Traced"), new_name("traced")
    create_topic(pocketmq.namesrv, topic, 4)
    with (
        java.started("producer", group=new_name("tracing"), trace=True) as producer,
        java.started("push", group=group, topic=topic, trace=True) as consumer,
    ):
        [receipt] = java.send(producer, topic=topic, body="seen", keys="key-1", tags="t")
        [row] = java.received(consumer, 1, 30)
        assert row["msgId"] == receipt["msgId"]

        def rows_of_it() -> set[TraceType]:
            return {record.trace_type for record in records() if record.msg_id == receipt["msgId"]}

        def records() -> list[TraceRecord]:
            return [
                record
                for message in read_when_there(pocketmq.namesrv, "RMQ_SYS_TRACE_TOPIC", 1)
                for record in decode_records(message.body)
            ]

        wait_until(lambda: rows_of_it() == set(TraceType), 30, "three rows of trace", pause_s=0.5)
        by_type = {record.trace_type: record for record in records() if record.msg_id == receipt["msgId"]}
    published = by_type[TraceType.PUB]
    assert (published.topic, published.keys, published.tags) == (topic, "key-1", "t")
    assert published.store_host == pocketmq.broker
    assert published.offset_msg_id == receipt["offsetMsgId"]
    assert published.success
    before, after = by_type[TraceType.SUB_BEFORE], by_type[TraceType.SUB_AFTER]
    assert before.group == group
    assert before.request_id == after.request_id != ""
    assert after.success
