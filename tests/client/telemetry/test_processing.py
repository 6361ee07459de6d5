"""Spans and metrics of consumers, with OpenTelemetry's SDK in memory and the real broker."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.trace import SpanKind, StatusCode

from pocketmq.client import (
    ConsumeResult,
    DeadLetter,
    Later,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    blocking,
    reply_to,
)
from pocketmq.testing.broker import PocketBroker, consumer_settings
from tests.client.telemetry.recorder import Recorder, context_of, facts, links_of, parent_of
from tests.delays import ALL_ONE_SECOND, short_seconds

Kind = Callable[[Callable[[ReceivedMessage], Any]], Callable[[Any], Any]]


def new_consumer(broker: PocketBroker, group: str, recorder: Recorder, **settings: Any) -> PushConsumer:
    return PushConsumer(group, broker.namesrv, telemetry=recorder.telemetry, **consumer_settings(), **settings)


async def send(broker: PocketBroker, recorder: Recorder, *messages: Message) -> None:
    async with Producer("shop", broker.namesrv, telemetry=recorder.telemetry) as producer:
        for message in messages:
            await producer.send(message)


def as_async(work: Callable[[ReceivedMessage], Any]) -> Callable[[Any], Any]:
    async def handle(message: ReceivedMessage) -> Any:
        await asyncio.sleep(0)
        return work(message)

    return handle


def as_plain(work: Callable[[ReceivedMessage], Any]) -> Callable[[Any], Any]:
    def handle(message: ReceivedMessage) -> Any:
        return work(message)

    return handle


def as_lambda(work: Callable[[ReceivedMessage], Any]) -> Callable[[Any], Any]:
    """Return a plain function that returns a coroutine: it runs in a thread, its coroutine in the loop."""
    return lambda message: as_async(work)(message)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("kind", [as_async, as_plain, as_lambda])
async def test_a_handler_runs_inside_the_span_of_its_message(
    broker: PocketBroker, recorder: Recorder, topic: str, group: str, kind: Kind, ordered: bool
) -> None:
    """The trace of the sender goes on, with its baggage, on whatever thread the handler runs."""
    inside: list[tuple[trace.SpanContext, Any]] = []

    def work(_: ReceivedMessage) -> None:
        inside.append((trace.get_current_span().get_span_context(), baggage.get_baggage("tenant")))
        with recorder.tracer.start_as_current_span("query"):
            pass

    consumer = new_consumer(broker, group, recorder)
    consumer.subscribe(topic, ordered=ordered)(kind(work))
    token = context.attach(baggage.set_baggage("tenant", "blue"))
    try:
        await send(broker, recorder, Message(topic, b"secret", tags="paid", keys=["o-1"], properties={"p": "hidden"}))
    finally:
        context.detach(token)
    with recorder.tracer.start_as_current_span("startup"):
        async with consumer:
            [span] = await recorder.until(f"process {topic}")
    sent = recorder.one(f"send {topic}")
    assert parent_of(span) == context_of(sent)
    assert links_of(span) == [context_of(sent)]
    assert span.kind is SpanKind.CONSUMER
    shown = facts(span)
    offset = shown.pop("pocketmq.message.queue_offset")
    assert offset == 0
    assert shown == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": facts(sent)["messaging.destination.partition.id"],
        "messaging.consumer.group.name": group,
        "messaging.client.id": consumer.instance.client_id,
        "messaging.message.id": facts(sent)["messaging.message.id"],
        "messaging.message.body.size": 6,
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ("o-1",),
        "messaging.rocketmq.consumption_model": "clustering",
    }
    assert [(each.span_id, tenant) for each, tenant in inside] == [(span.context.span_id, "blue")]
    assert parent_of(recorder.one("query")) == context_of(span)
    assert "secret" not in span.to_json()
    assert "hidden" not in span.to_json()
    assert recorder.count("messaging.client.consumed.messages", messaging_consumer_group_name=group) == 1
    assert recorder.count("messaging.process.duration", messaging_destination_name=topic) == 1


async def test_spans_of_many_messages_do_not_mix(
    broker: PocketBroker, recorder: Recorder, topic: str, group: str
) -> None:
    """Each of many concurrent calls sees its own span, before and after it waited."""
    seen: dict[bytes, set[int]] = {}
    consumer = new_consumer(broker, group, recorder)

    @consumer.subscribe(topic)
    async def handle(message: ReceivedMessage) -> None:
        for _ in range(3):
            seen.setdefault(message.body, set()).add(trace.get_current_span().get_span_context().trace_id)
            await asyncio.sleep(0)

    await send(broker, recorder, *(Message(topic, str(number).encode()) for number in range(50)))
    async with consumer:
        spans = await recorder.until(f"process {topic}", 50)
    assert all(len(traces) == 1 for traces in seen.values())
    assert {traces.copy().pop() for traces in seen.values()} == {span.context.trace_id for span in spans}
    assert len({span.context.trace_id for span in spans}) == 50


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_batch_handler_has_one_span_that_links_each_sender(
    broker: PocketBroker, recorder: Recorder, topic: str, group: str, ordered: bool
) -> None:
    """It is a root: no sender is more its parent than another one. What is to be tried again is counted."""
    consumer = new_consumer(broker, group, recorder)
    calls: list[int] = []

    @consumer.subscribe_batch(topic, max_messages=32, ordered=ordered)
    async def handle(messages: list[ReceivedMessage]) -> Any:
        calls.append(len(messages))
        return Later(messages=messages[:1]) if len(calls) == 1 else None

    await send(broker, recorder, *(Message(topic, b"x", sharding_key="k") for _ in range(5)))
    async with consumer:
        spans = await recorder.until(f"process {topic}", 1)
        while recorder.count("messaging.client.consumed.messages") < 5:  # noqa: ASYNC110 - the reader has no events
            await asyncio.sleep(0.001)
    first = spans[0]
    assert first.parent is None
    assert facts(first)["messaging.batch.message_count"] == calls[0]
    links = {link for span in recorder.named(f"process {topic}") for link in links_of(span)}
    assert links == {context_of(span) for span in recorder.named(f"send {topic}")}
    assert facts(first)["error.type"] == "RECONSUME_LATER"
    if calls[0] > 1:
        assert facts(first)["pocketmq.process.later_count"] == 1


async def test_a_failure_is_told_and_the_retry_continues_the_trace(recorder: Recorder, topic: str, group: str) -> None:
    """An exception, Later and DeadLetter: three tries of one trace, and the span of each hand-over below its try."""
    answers = iter([RuntimeError("secret"), Later(delay_level=1, reason="secret"), DeadLetter("secret")])

    async def handle(_: ReceivedMessage) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with short_seconds(), PocketBroker(store=ALL_ONE_SECOND) as broker:
        consumer = new_consumer(broker, group, recorder)
        consumer.subscribe(topic)(handle)
        await send(broker, recorder, Message(topic, b"x"))
        async with consumer:
            [last] = await recorder.until(f"dead_letter {topic}")
    tries, nacks = recorder.named(f"process {topic}"), recorder.named(f"nack {topic}")
    assert [facts(span)["error.type"] for span in tries] == ["RuntimeError", "RECONSUME_LATER", "DEAD_LETTER"]
    assert [span.status.status_code for span in tries] == [StatusCode.ERROR] * 3
    assert [facts(span).get("pocketmq.message.reconsume_times") for span in tries] == [None, 1, 2]
    assert [parent_of(span) for span in (*nacks, last)] == [context_of(span) for span in tries]
    assert {facts(span)["messaging.operation.type"] for span in (*nacks, last)} == {"settle"}
    assert {span.context.trace_id for span in recorder.spans} == {tries[0].context.trace_id}
    [event] = tries[0].events
    assert (event.name, event.attributes) == ("exception", {"exception.type": "RuntimeError"})
    assert all("secret" not in span.to_json() for span in recorder.spans)
    assert recorder.count("messaging.client.operation.duration", messaging_operation_name="nack") == 2


async def test_texts_of_exceptions_are_told_where_the_application_says_so(
    broker: PocketBroker, topic: str, group: str
) -> None:
    recorder = Recorder(exception_texts=True)
    consumer = new_consumer(broker, group, recorder)

    @consumer.subscribe(topic)
    def handle(message: ReceivedMessage) -> Any:
        if message.body == b"raise":
            raise ValueError("no such order")
        return Later(reason="not yet")

    await send(broker, recorder, Message(topic, b"raise"), Message(topic, b"later"))
    async with consumer:
        spans = await recorder.until(f"process {topic}", 2)
    assert {span.status.description for span in spans} == {"no such order", "not yet"}
    [event] = [event for span in spans for event in span.events]
    assert dict(event.attributes or {}) == {"exception.type": "ValueError", "exception.message": "no such order"}


async def test_an_ordered_queue_that_waits_tells_each_try(
    broker: PocketBroker, recorder: Recorder, topic: str, group: str
) -> None:
    """Its message stays at the head of the queue: each try is a span of the same trace."""
    tries: list[int] = []
    consumer = new_consumer(broker, group, recorder, suspend_current_queue_time_millis=10)

    @consumer.subscribe(topic, ordered=True)
    async def handle(message: ReceivedMessage) -> Any:
        tries.append(message.reconsume_times)
        return len(tries) >= 3

    await send(broker, recorder, Message(topic, b"x", sharding_key="k"))
    async with consumer:
        spans = await recorder.until(f"process {topic}", 3)
    assert [facts(span).get("error.type") for span in spans] == ["RECONSUME_LATER", "RECONSUME_LATER", None]
    assert {parent_of(span) for span in spans} == {context_of(recorder.one(f"send {topic}"))}


async def test_the_body_of_an_async_loop_runs_inside_the_span(
    broker: PocketBroker, recorder: Recorder, topic: str, group: str
) -> None:
    """From the message until it is acknowledged; what is given back is told as such."""
    consumer = new_consumer(broker, group, recorder)
    await send(broker, recorder, *(Message(topic, str(number).encode()) for number in range(3)))
    seen: list[int] = []
    async with consumer:
        stream = consumer.messages(topic)
        async for message in stream:
            seen.append(trace.get_current_span().get_span_context().span_id)
            if len(seen) == 2:
                stream.later(message)
            if len(seen) == 3:
                break
    spans = await recorder.until(f"process {topic}", 3)
    assert [span.context.span_id for span in spans] == seen
    assert [facts(span).get("error.type") for span in spans] == [None, "RECONSUME_LATER", "RECONSUME_LATER"]


def test_the_body_of_a_blocking_loop_runs_inside_the_span(
    broker: PocketBroker, recorder: Recorder, topic: str, group: str
) -> None:
    """In the caller's thread, and no longer than the body."""
    asyncio.run(send(broker, recorder, Message(topic, b"1"), Message(topic, b"2")))
    seen: list[int] = []
    consumer = blocking.PushConsumer(group, broker.namesrv, telemetry=recorder.telemetry, **consumer_settings())
    messages = consumer.messages(topic)
    for _ in messages:
        seen.append(trace.get_current_span().get_span_context().span_id)
        if len(seen) == 2:
            break
    messages.close()
    assert not trace.get_current_span().get_span_context().is_valid
    consumer.stop()
    assert sorted(span.context.span_id for span in recorder.named(f"process {topic}")) == sorted(seen)


async def test_a_send_of_a_handler_is_a_child_of_its_span(
    broker: PocketBroker, recorder: Recorder, topic: str, group: str
) -> None:
    """So the trace goes on through the consumer."""
    consumer = new_consumer(broker, group, recorder)
    async with Producer("shop", broker.namesrv, telemetry=recorder.telemetry) as producer:

        @consumer.subscribe(topic)
        async def handle(_: ReceivedMessage) -> None:
            await producer.send(Message(f"{topic}-2", b"next"))

        await producer.send(Message(topic, b"x"))
        async with consumer:
            [span] = await recorder.until(f"process {topic}")
    assert parent_of(recorder.one(f"send {topic}-2")) == context_of(span)


async def test_a_request_is_a_send_and_the_reply_is_received(
    broker: PocketBroker, recorder: Recorder, topic: str, group: str
) -> None:
    """One trace: request, the handler, its reply, the reply at the requester."""
    consumer = new_consumer(broker, group, recorder)
    async with Producer("shop", broker.namesrv, telemetry=recorder.telemetry) as producer:
        await producer.send(Message(topic, b"makes the topic"))

        @consumer.subscribe(topic, tags="ask")
        async def answer(message: ReceivedMessage) -> None:
            await producer.send(reply_to(message, b"yes"))

        async with consumer:
            with recorder.tracer.start_as_current_span("ask") as ask:
                await producer.request(Message(topic, b"?", tags="ask"), timeout_ms=30_000)
        [process] = await recorder.until(f"process {topic}")
    own = ask.get_span_context()
    [request] = [span for span in recorder.named(f"send {topic}") if span.context.trace_id == own.trace_id]
    [reply] = [span for span in recorder.spans if span.name.startswith("send ") and "REPLY_TOPIC" in span.name]
    [received] = [span for span in recorder.spans if span.name.startswith("receive ")]
    assert parent_of(process) == context_of(request)
    assert parent_of(reply) == context_of(process)
    assert parent_of(received) == (own.trace_id, own.span_id)
    assert links_of(received) == [context_of(reply)]
    conversations = {facts(span)["messaging.message.conversation_id"] for span in (request, process, reply, received)}
    assert len(conversations) == 1


@pytest.mark.parametrize("way", ["poll", "stream", "stream_batches"])
async def test_what_a_pull_consumer_gets_is_received(
    broker: PocketBroker, recorder: Recorder, topic: str, group: str, way: str
) -> None:
    """A span for each answer with messages, below the caller's, that links their senders; a commit settles them."""
    await send(broker, recorder, *(Message(topic, b"x") for _ in range(4)))
    async with PullConsumer(group, broker.namesrv, telemetry=recorder.telemetry) as consumer:
        with recorder.tracer.start_as_current_span("job") as job:
            count = 0
            if way == "poll":
                while count < 4:
                    count += len(await consumer.poll(topic, timeout_ms=10_000))
            elif way == "stream":
                async for _ in consumer.stream(topic, start="earliest", stop_at_end=True):
                    count += 1
            else:
                async for messages in consumer.stream_batches(topic, start="earliest", stop_at_end=True):
                    count += len(messages)
            await consumer.commit()
            if way == "poll":
                assert await consumer.poll(topic, timeout_ms=0) == []
    spans, own = recorder.named(f"receive {topic}"), job.get_span_context()
    assert sum(int(facts(span)["messaging.batch.message_count"]) for span in spans) == 4
    assert {parent_of(span) for span in spans} == {(own.trace_id, own.span_id)}
    assert {link for span in spans for link in links_of(span)} == {
        context_of(span) for span in recorder.named(f"send {topic}")
    }
    assert {span.kind for span in spans} == {SpanKind.CLIENT}
    ack = recorder.one(f"ack {topic}")
    assert (facts(ack)["messaging.operation.type"], parent_of(ack)) == ("settle", (own.trace_id, own.span_id))
    assert recorder.count("messaging.client.consumed.messages", messaging_operation_name="receive") == 4


async def test_columns_that_a_pull_consumer_gets_are_received(
    broker: PocketBroker, recorder: Recorder, topic: str, group: str
) -> None:
    pytest.importorskip("pyarrow")
    await send(broker, recorder, *(Message(topic, b"x") for _ in range(4)))
    async with PullConsumer(group, broker.namesrv, telemetry=recorder.telemetry) as consumer:
        while len(await consumer.poll_arrow(topic, max_messages=4)) == 0:
            pass
    spans = recorder.named(f"receive {topic}")
    assert sum(int(facts(span)["messaging.batch.message_count"]) for span in spans) == 4


async def test_a_poll_that_ends_with_an_error_says_why(
    broker: PocketBroker, recorder: Recorder, topic: str, group: str
) -> None:
    """Here it is cancelled while the broker holds it."""
    await send(broker, recorder, Message(topic, b"x"))
    async with PullConsumer(group, broker.namesrv, telemetry=recorder.telemetry) as consumer:
        assert len(await consumer.poll(topic, timeout_ms=60_000)) == 1
        waiting = asyncio.ensure_future(consumer.poll(topic, timeout_ms=60_000))
        while not waiting.done():
            await asyncio.sleep(0.001)
            waiting.cancel()
    [_, span] = recorder.named(f"receive {topic}")
    assert facts(span)["error.type"] == "asyncio.exceptions.CancelledError"
    assert recorder.count("messaging.client.operation.duration", messaging_operation_name="receive") == 2


BROKEN = [
    "",
    "x",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
    "00-00000000000000000000000000000000-b7ad6b7169203331-01",
    "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-" + "x" * 9_000,
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
]


async def test_a_broken_context_of_a_peer_is_no_context(
    broker: PocketBroker, recorder: Recorder, topic: str, group: str
) -> None:
    """Its message is handled in a trace of its own."""
    handled: set[bytes] = set()
    done = threading.Event()
    consumer = new_consumer(broker, group, recorder)

    @consumer.subscribe(topic)
    def handle(message: ReceivedMessage) -> ConsumeResult:
        handled.add(message.body)
        if len(handled) == len([each for each in BROKEN if each]):
            done.set()
        return ConsumeResult.SUCCESS

    async with Producer("java", broker.namesrv) as producer:
        for number, text in enumerate(BROKEN):
            if text:
                carrier = {"traceparent": text, "tracestate": "=,=;x" * 1_000, "baggage": "%" * 9_000}
                await producer.send(Message(topic, str(number).encode(), properties=carrier))
    async with consumer:
        assert await asyncio.to_thread(done.wait, 60)
        spans = await recorder.until(f"process {topic}", len(handled))
    assert {span.parent for span in spans} == {None}
    assert all(links_of(span) == [] for span in spans)


async def test_the_property_of_javas_newer_client_is_read(
    broker: PocketBroker, recorder: Recorder, topic: str, group: str
) -> None:
    """TRACE_CONTEXT counts where there is no ``traceparent``."""
    consumer = new_consumer(broker, group, recorder)

    @consumer.subscribe(topic)
    async def handle(_: ReceivedMessage) -> None: ...

    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with Producer("java", broker.namesrv) as producer:
        await producer.send(Message(topic, b"x", properties={"TRACE_CONTEXT": parent}))
    async with consumer:
        [span] = await recorder.until(f"process {topic}")
    assert parent_of(span) == (0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)
