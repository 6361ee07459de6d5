"""One trace through Java and Python: OpenTelemetry's context in the properties of messages, in both directions."""

from opentelemetry import trace

from pocketmq.client.blocking import Producer, PushConsumer
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.testing.broker import consumer_settings
from tests.client.telemetry.recorder import Recorder, context_of, facts, links_of, parent_of
from tests.interop.java_clients import JavaClients
from tests.interop.pocketmq_server import PocketMQServer
from tests.interop.python_side import create_topic, new_name
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
