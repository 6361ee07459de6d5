"""One trace through Java and Python: OpenTelemetry's context in the properties of messages, in both directions.

And through RocketMQ's own brokers, which our SDK sends to in other ways than to ours.
"""

import asyncio
from typing import Any

from opentelemetry import trace

from pocketmq import client
from pocketmq.client.blocking import Producer, PushConsumer
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.testing.broker import consumer_settings
from tests.client.telemetry.recorder import Recorder, context_of, facts, links_of, parent_of
from tests.interop.java_clients import JavaClients
from tests.interop.pocketmq_server import PocketMQServer
from tests.interop.python_side import create_topic, new_name
from tests.interop.rocketmq_servers import RocketMQServers
from tests.interop.sdk_on_rocketmq import new_topic
from tests.interop.toolchain import wait_until

TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736
SPAN = 0x00F067AA0BA902B7
PARENT = f"00-{TRACE:032x}-{SPAN:016x}-01"


def test_a_trace_of_java_goes_on_in_our_handler_and_back_to_java(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """Java's instrumentation puts ``traceparent`` into the user properties, and reads it there."""
    recorder, topic, onwards = Recorder(), new_name("Java"), new_name("Onwards")
    for name in (topic, onwards):
        create_topic(pocketmq.namesrv, name, 1)
    consumer = PushConsumer(new_name("py"), pocketmq.namesrv, telemetry=recorder.telemetry, **consumer_settings())
    with Producer(new_name("py"), pocketmq.namesrv, telemetry=recorder.telemetry) as producer:

        @consumer.subscribe(topic)
        def handle(message: ReceivedMessage) -> None:
            assert trace.get_current_span().get_span_context().trace_id == TRACE
            producer.send(Message(onwards, message.body))

        [receipt] = java.send(
            java.producer, topic=topic, body="x", count=1, property__traceparent=PARENT, property__tracestate="vendor=1"
        )
        with java.started("push", group=new_name("java"), topic=onwards) as listener, consumer:
            [row] = java.received(listener, 1)
            wait_until(lambda: recorder.named(f"process {topic}"), 20, "the end of the handler's span")
    process, sent = recorder.one(f"process {topic}"), recorder.one(f"send {onwards}")
    assert parent_of(process) == (TRACE, SPAN)
    assert links_of(process) == [(TRACE, SPAN)]
    assert process.context.trace_state.to_header() == "vendor=1"
    assert facts(process)["messaging.message.id"] == receipt["msgId"]
    assert parent_of(sent) == context_of(process)
    flags = sent.context.trace_flags
    assert row["properties"]["traceparent"] == f"00-{TRACE:032x}-{sent.context.span_id:016x}-{flags:02x}"
    assert row["properties"]["tracestate"] == "vendor=1"


def test_a_batch_handler_links_each_sender_of_java(java: JavaClients, pocketmq: PocketMQServer) -> None:
    """Also from RocketMQ's batches, and next to a message whose context is broken."""
    recorder, topic = Recorder(), new_name("JavaBatch")
    create_topic(pocketmq.namesrv, topic, 1)
    producer = java.producer
    java.send(producer, topic=topic, body="one", count=1, property__traceparent=PARENT)
    java.send(producer, topic=topic, body="broken", count=1, property__traceparent="00-" + "x" * 600)
    java.call("batch", name=producer, topic=topic, body="many", count=3, property__traceparent=PARENT)
    consumer = PushConsumer(new_name("py"), pocketmq.namesrv, telemetry=recorder.telemetry, **consumer_settings())
    seen: list[ReceivedMessage] = []
    consumer.subscribe_batch(topic, max_messages=32)(seen.extend)
    with consumer:
        wait_until(lambda: len(seen) >= 5, 20, "five messages")
    spans = recorder.named(f"process {topic}")
    assert [link for span in spans for link in links_of(span)] == [(TRACE, SPAN)] * 4
    assert {span.parent for span in spans} == {None}


async def test_a_trace_goes_through_a_rocketmq_broker(rocketmq: RocketMQServers) -> None:
    """Sends of one turn, a batch, a delay and a transaction; a failed message comes back in its trace."""
    recorder, topic = Recorder(), await new_topic(rocketmq, queues=1)
    telemetry = recorder.telemetry

    async def check(_: object) -> bool:
        return True

    async with client.TransactionProducer(new_name("py"), rocketmq.namesrv, check=check, telemetry=telemetry) as sender:
        await asyncio.gather(*(sender.send(client.Message(topic, b"one")) for _ in range(3)))
        await sender.send_batch([client.Message(topic, b"batch")] * 2)
        await sender.send(client.Message(topic, b"delayed", delay_time_level=1))
        await sender.send_in_transaction(client.Message(topic, b"paid"), lambda _: True)
    sends = recorder.named(f"send {topic}")
    tries: dict[bytes, int] = {}
    consumer = client.PushConsumer(new_name("py"), rocketmq.namesrv, telemetry=telemetry, **consumer_settings())

    @consumer.subscribe(topic)
    async def handle(message: ReceivedMessage) -> Any:
        tries[message.body] = tries.get(message.body, 0) + 1
        return client.Later(delay_level=1) if message.body == b"paid" and tries[b"paid"] == 1 else None

    async with consumer:
        spans = await recorder.until(f"process {topic}", 8)
    assert {parent_of(span) for span in spans} == {context_of(span) for span in sends}
    assert len(sends) == 6
    paid = [span for span in spans if facts(span)["messaging.rocketmq.message.type"] == "transaction"]
    assert [facts(span).get("pocketmq.message.reconsume_times") for span in paid] == [None, 1]
    assert facts(paid[0])["error.type"] == "RECONSUME_LATER"
    assert parent_of(recorder.one(f"nack {topic}")) == context_of(paid[0])
    assert recorder.one(f"commit {topic}").status.is_unset
    assert [facts(span)["server.port"] for span in sends] == [facts(sends[0])["server.port"]] * 6
