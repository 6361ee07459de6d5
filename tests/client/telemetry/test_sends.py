"""Spans and metrics of sends, with OpenTelemetry's SDK in memory and the real broker."""

import asyncio
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.trace import SpanKind, StatusCode

from pocketmq.client import (
    LocalTransactionState,
    Message,
    NoRoute,
    PocketMQError,
    Producer,
    PullConsumer,
    SelectorFailed,
    SendFailed,
    TransactionProducer,
    blocking,
)
from pocketmq.client.blocking_transaction import TransactionProducer as BlockingTransactionProducer
from pocketmq.client.durable import DurableRetry, RetryRule, StoredForRetry
from pocketmq.client.producer.send_telemetry import SendTelemetry, with_properties
from pocketmq.common.message import ReceivedMessage
from pocketmq.remoting.codes import ResponseCode
from pocketmq.testing.broker import PocketBroker
from tests.client.scripted import NATIVE, silent, store
from tests.client.telemetry.recorder import Recorder, context_of, facts, links_of, parent_of

DURATION = "messaging.client.operation.duration"
SENT = "messaging.client.sent.messages"


async def stored(broker: PocketBroker, topic: str) -> list[ReceivedMessage]:
    """Return all messages of a topic."""
    async with PullConsumer(group="look", namesrv=broker.namesrv) as consumer:
        return [message async for message in consumer.stream(topic, start="earliest", stop_at_end=True)]


def traceparent(span: Any) -> str:
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


async def test_a_send_is_one_span_whose_context_the_message_carries(
    broker: PocketBroker, recorder: Recorder, topic: str
) -> None:
    """A child of the caller's span, with what the conventions ask for; the application's message is not changed."""
    message = Message(topic, b"secret body", tags="paid", keys=["o-1", "o-2"], properties={"token": "hidden"})
    async with Producer("shop", broker.namesrv, telemetry=recorder.telemetry) as producer:
        with recorder.tracer.start_as_current_span("checkout") as checkout:
            receipt = await producer.send(message)
        client_id = producer.instance.client_id
    [span] = await recorder.until(f"send {topic}")
    host, _, port = broker.address.rpartition(":")
    assert facts(span) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": f"{receipt.broker}/{receipt.queue_id}",
        "messaging.client.id": client_id,
        "messaging.message.id": receipt.msg_id,
        "messaging.message.body.size": 11,
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ("o-1", "o-2"),
        "server.address": host,
        "server.port": int(port),
    }
    assert span.kind is SpanKind.PRODUCER
    assert span.status.status_code is StatusCode.UNSET
    assert parent_of(span) == (checkout.get_span_context().trace_id, checkout.get_span_context().span_id)
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"
    [found] = await stored(broker, topic)
    assert found.properties["traceparent"] == traceparent(span)
    assert found.properties["token"] == "hidden"
    assert message.properties == {"token": "hidden"}
    assert "secret" not in span.to_json()
    assert "hidden" not in span.to_json()
    assert recorder.count(SENT, messaging_destination_name=topic, server_address=host) == 1
    assert recorder.count(DURATION, messaging_operation_name="send", messaging_system="rocketmq") == 1


@pytest.mark.parametrize("way", ["send", "send_nowait", "send_oneway"])
async def test_every_way_of_a_single_send(broker: PocketBroker, recorder: Recorder, topic: str, way: str) -> None:
    """Many in one turn of the loop are as many spans, each with its own context in its own message."""
    async with Producer("shop", broker.namesrv, telemetry=recorder.telemetry) as producer:
        await producer.send(Message(topic, b"first"))
        for number in range(5):
            sent = getattr(producer, way)(Message(topic, b"x", keys=[str(number)]))
            if sent is not None and way == "send":
                await sent
    spans = await recorder.until(f"send {topic}", 6)
    async with asyncio.timeout(60):
        while len(messages := await stored(broker, topic)) < 6:  # noqa: ASYNC110 - oneway sends have no end
            await asyncio.sleep(0.01)
    assert sorted(message.properties["traceparent"] for message in messages) == sorted(map(traceparent, spans))


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"delay_time_level": 1}, {"type": "delay", "delay_time_level": 1}),
        ({"deliver_time_ms": 1}, {"type": "delay", "delivery_timestamp": 1}),
        ({"delay_time_ms": 1}, {"type": "delay"}),
        ({"sharding_key": "k"}, {"type": "fifo", "group": "k"}),
    ],
)
async def test_delayed_and_ordered_messages_say_so(
    broker: PocketBroker, recorder: Recorder, topic: str, fields: Any, shown: dict[str, Any]
) -> None:
    async with Producer("shop", broker.namesrv, telemetry=recorder.telemetry) as producer:
        await producer.send(Message(topic, b"x", **fields))
    [span] = await recorder.until(f"send {topic}")
    prefix = "messaging.rocketmq.message."
    assert {name.removeprefix(prefix): value for name, value in facts(span).items() if name.startswith(prefix)} == shown


async def test_a_batch_is_one_span_whose_context_all_its_messages_carry(
    broker: PocketBroker, recorder: Recorder, topic: str
) -> None:
    """Messages with a context of their creator's keep it, and the span links it."""
    creator = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    batch = [Message(topic, b"x") for _ in range(40)]
    batch.append(Message(topic, b"y", properties={"traceparent": creator}))
    async with Producer("shop", broker.namesrv, telemetry=recorder.telemetry) as producer:
        receipts = await producer.send_batch(batch)
    [span] = await recorder.until(f"send {topic}")
    assert facts(span)["messaging.batch.message_count"] == len(receipts) == 41
    assert "messaging.message.id" not in facts(span)
    assert links_of(span) == [(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)]
    carried = {message.body: message.properties["traceparent"] for message in await stored(broker, topic)}
    assert carried == {b"x": traceparent(span), b"y": creator}
    assert all(message.properties is None for message in batch[:40])
    assert recorder.count(SENT) == 41


async def test_rows_have_a_span_a_part(broker: PocketBroker, recorder: Recorder, topic: str) -> None:
    """They carry no context: their columns are not rewritten."""
    pa = pytest.importorskip("pyarrow")
    async with Producer("shop", broker.namesrv, telemetry=recorder.telemetry) as producer:
        with recorder.tracer.start_as_current_span("load") as load:
            await producer.send_arrow(pa.table({"body": [b"x"] * 30}), topic=topic)
    [span] = await recorder.until(f"send {topic}")
    assert facts(span)["messaging.batch.message_count"] == 30
    assert parent_of(span) == (load.get_span_context().trace_id, load.get_span_context().span_id)


async def test_the_contexts_of_the_application_are_carried_beside(
    broker: PocketBroker, recorder: Recorder, topic: str
) -> None:
    """Baggage and trace state travel as the application's propagator writes them."""
    state = trace.TraceState([("vendor", "1")])
    parent = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=state)
    token = context.attach(
        baggage.set_baggage("tenant", "blue", trace.set_span_in_context(trace.NonRecordingSpan(parent)))
    )
    try:
        async with Producer("shop", broker.namesrv, telemetry=recorder.telemetry) as producer:
            await producer.send(Message(topic, b"x"))
    finally:
        context.detach(token)
    [found] = await stored(broker, topic)
    assert found.properties["tracestate"] == "vendor=1"
    assert found.properties["baggage"] == "tenant=blue"


async def test_properties_without_room_are_sent_without_a_context(
    broker: PocketBroker, recorder: Recorder, topic: str
) -> None:
    """A context never makes a send fail: what has no room is left out, and 4 KiB stay free for retries."""
    state = trace.TraceState([("vendor", "v" * 200)])
    parent = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=state)
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(parent)))
    rooms = {b"none": 67, b"small": 68 + 218, b"all": 68 + 219}
    try:
        async with Producer("shop", broker.namesrv, telemetry=recorder.telemetry) as producer:
            for body, room in rooms.items():
                await producer.send(Message(topic, body, properties={"p": "v" * (32_767 - 4_096 - 3 - room)}))
            await producer.send(Message(topic, b"full", properties={"p": "v" * 32_000}))
    finally:
        context.detach(token)
    found = {
        message.body: sorted(set(message.properties) & {"traceparent", "tracestate"})
        for message in await stored(broker, topic)
    }
    assert found == {b"none": [], b"full": [], b"small": ["traceparent"], b"all": ["traceparent", "tracestate"]}
    assert len(recorder.named(f"send {topic}")) == 4


async def test_a_send_that_fails_says_why(recorder: Recorder, topic: str) -> None:
    """The name of the code; no text of a peer."""
    with PocketBroker(broker={"auto_create_topic_enable": False}) as closed:
        async with Producer("shop", closed.namesrv, telemetry=recorder.telemetry) as producer:
            with pytest.raises(NoRoute):
                await producer.send(Message(topic, b"x"), timeout_ms=200)
    span = recorder.one(f"send {topic}")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description is None
    assert facts(span)["error.type"] == "NOT_FOUND_TOPIC_EXCEPTION"
    [event] = span.events
    assert (event.name, event.attributes) == ("exception", {"exception.type": "pocketmq.client.errors.NoRoute"})
    assert recorder.count(SENT, error_type="NOT_FOUND_TOPIC_EXCEPTION") == 1


async def test_a_send_that_ends_with_an_exception_at_once_has_its_span(
    broker: PocketBroker, recorder: Recorder, topic: str
) -> None:
    """A selector that raises, and a caller that does not wait."""

    def raises(*_: object) -> Any:
        raise RuntimeError("secret")

    async with Producer("shop", broker.namesrv, telemetry=recorder.telemetry) as producer:
        await producer.send(Message(topic, b"x"))
        with pytest.raises(SelectorFailed):
            await producer.send(Message(topic, b"x"), selector=raises)
        with pytest.raises(SelectorFailed):
            producer.send_oneway(Message(topic, b"x"), selector=raises)
        sent = producer.send_nowait(Message(topic, b"x"))
        sent.cancel()
        spans = await recorder.until(f"send {topic}", 4)
    assert sorted(str(facts(span).get("error.type", "")) for span in spans) == [
        "",
        "",
        "asyncio.exceptions.CancelledError",
        "pocketmq.client.errors.SelectorFailed",
    ]
    assert all("secret" not in span.to_json() for span in spans)


async def test_a_transaction_is_a_send_and_its_decision(broker: PocketBroker, recorder: Recorder, topic: str) -> None:
    """Both are children of the caller's span; the message of a committed one carries the context of its send."""

    async def check(_: ReceivedMessage) -> bool:
        return True

    local_parents: list[int] = []

    def local(_: object) -> bool:
        local_parents.append(trace.get_current_span().get_span_context().span_id)
        return True

    async with TransactionProducer("bank", broker.namesrv, check=check, telemetry=recorder.telemetry) as producer:
        with recorder.tracer.start_as_current_span("pay") as pay:
            done = await producer.send_in_transaction(Message(topic, b"x"), local)
            async with producer.transaction(Message(topic, b"y")) as transaction:
                transaction.rollback()
    assert done.state is LocalTransactionState.COMMIT_MESSAGE
    sends, own = await recorder.until(f"send {topic}", 2), pay.get_span_context().span_id
    assert [facts(span)["messaging.rocketmq.message.type"] for span in sends] == ["transaction"] * 2
    commit, rollback = recorder.one(f"commit {topic}"), recorder.one(f"rollback {topic}")
    assert facts(commit)["messaging.operation.type"] == facts(rollback)["messaging.operation.type"] == "settle"
    assert facts(commit)["messaging.message.id"] == done.msg_id
    assert {span.parent.span_id for span in (*sends, commit, rollback) if span.parent} == {own}
    assert local_parents == [own]
    [found] = await stored(broker, topic)
    assert found.properties["traceparent"] == traceparent(sends[0])


async def test_a_check_runs_in_the_trace_of_its_half_message(recorder: Recorder, topic: str) -> None:
    """Also a plain function in its thread; an exception is told, and the broker asks again."""
    seen: list[tuple[int, int]] = []
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def check(_: ReceivedMessage) -> bool:
        own = trace.get_current_span().get_span_context()
        seen.append((own.trace_id, own.span_id))
        if len(seen) == 1:
            raise RuntimeError("secret")
        loop.call_soon_threadsafe(asked.set)
        return True

    asking = {"transaction_time_out": 1, "transaction_check_interval": 20, "transaction_check_max": 100_000}
    with PocketBroker(broker=asking) as broker:
        async with TransactionProducer("bank", broker.namesrv, check=check, telemetry=recorder.telemetry) as producer:
            await producer.send_in_transaction(Message(topic, b"x"), lambda _: None)
            async with asyncio.timeout(60):
                await asked.wait()
            spans = await recorder.until(f"check {topic}", 2)
    sent = recorder.one(f"send {topic}")
    assert [context_of(span) for span in spans[:2]] == seen[:2]
    assert {parent_of(span) for span in spans} == {context_of(sent)}
    assert [facts(span).get("error.type") for span in spans[:2]] == ["RuntimeError", None]
    assert facts(spans[0])["messaging.message.id"] == facts(sent)["messaging.message.id"]
    assert facts(spans[0])["messaging.rocketmq.message.type"] == "transaction"
    assert "secret" not in spans[0].to_json()


def test_a_transaction_of_the_blocking_face_continues_the_span_of_its_thread(
    broker: PocketBroker, recorder: Recorder, topic: str
) -> None:
    """Its local transaction runs in a thread of the producer's, and sees that span."""
    seen: list[int] = []

    def local(_: object) -> bool:
        seen.append(trace.get_current_span().get_span_context().span_id)
        return True

    with (
        BlockingTransactionProducer("bank", broker.namesrv, check=local, telemetry=recorder.telemetry) as producer,
        recorder.tracer.start_as_current_span("pay") as pay,
    ):
        producer.send_in_transaction(Message(topic, b"x"), local)
    own = pay.get_span_context()
    assert seen == [own.span_id]
    for name in ("send", "commit"):
        assert parent_of(recorder.one(f"{name} {topic}")) == (own.trace_id, own.span_id)


def test_the_blocking_face_continues_the_span_of_its_thread(
    broker: PocketBroker, recorder: Recorder, topic: str
) -> None:
    """Also where a send is only posted to the loop's thread."""
    with (
        blocking.Producer("shop", broker.namesrv, telemetry=recorder.telemetry) as producer,
        recorder.tracer.start_as_current_span("request") as request,
    ):
        producer.send(Message(topic, b"1"))
        producer.send_nowait(Message(topic, b"2")).result(60)
        producer.send_oneway(Message(topic, b"3"))
        producer.send_batch([Message(topic, b"4"), Message(topic, b"5")])
    own = request.get_span_context()
    assert [parent_of(span) for span in recorder.named(f"send {topic}")] == [(own.trace_id, own.span_id)] * 4


async def test_message_trace_and_compression_work_beside(recorder: Recorder, topic: str) -> None:
    """The records of the message trace have no spans; a compressed body counts as it was sent."""
    with PocketBroker(broker={"trace_topic_enable": True}) as broker:
        async with Producer(
            "shop", broker.namesrv, telemetry=recorder.telemetry, enable_message_trace=True, compress_type="ZLIB"
        ) as producer:
            await producer.send(Message(topic, b"x" * 10_000))
        [found] = await stored(broker, topic)
    assert [span.name for span in recorder.spans] == [f"send {topic}"]
    assert facts(recorder.spans[0])["messaging.message.body.size"] == len(found.body) == 10_000
    assert len(found.raw_body) < 1_000
    assert found.properties["traceparent"] == traceparent(recorder.spans[0])


def test_a_copy_with_properties_keeps_the_rest() -> None:
    message = Message("T", b"x", tags="t", keys=["k"], properties={"p": "v"}, flag=3)
    copied = with_properties(message, {"q": "w"})
    assert copied.properties == {"p": "v", "q": "w"}
    assert (copied.tags, copied.keys, copied.flag, copied.body) == ("t", ["k"], 3, b"x")
    assert message.properties == {"p": "v"}


def refuse(connection: Any, request: Any) -> Any:
    return ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]secret", None, b""


async def test_a_retry_is_an_event_of_the_same_span(two: Any, recorder: Recorder) -> None:
    """With where it went and what came back, but for the broker's own text; the attributes are of the last attempt."""
    two.brokers["a"].answers[NATIVE] = refuse
    async with Producer("g", two.namesrv.address, telemetry=recorder.telemetry) as producer:
        receipts = [await producer.send(Message("T", b"x")) for _ in range(4)]
    spans = recorder.named("send T")
    assert len(spans) == 4
    tried = [span for span, receipt in zip(spans, receipts, strict=True) if receipt.attempts == 2]
    assert tried
    for span in tried:
        [event] = span.events
        host, _, port = two.brokers["a"].address.rpartition(":")
        shown: dict[str, Any] = dict(event.attributes or {})
        assert shown.pop("pocketmq.attempt.elapsed_ms") >= 0
        assert event.name == "pocketmq.send.attempt"
        assert shown == {
            "pocketmq.attempt.broker": "a",
            "pocketmq.attempt.phase": "answer",
            "pocketmq.attempt.stored": "no",
            "error.type": "SYSTEM_BUSY",
            "server.address": host,
            "server.port": int(port),
        }
        assert facts(span)["pocketmq.send.attempts"] == 2
        assert facts(span)["server.port"] == int(two.brokers["b"].address.rpartition(":")[2])
        assert span.status.status_code is StatusCode.UNSET


async def test_the_name_of_the_last_answer_is_the_type_of_the_error(two: Any, recorder: Recorder) -> None:
    """All attempts are events, also of a batch."""
    for server in two.brokers.values():
        server.answers[NATIVE] = refuse
    async with Producer("g", two.namesrv.address, telemetry=recorder.telemetry) as producer:
        with pytest.raises(SendFailed):
            await producer.send(Message("T", b"x"))
        with pytest.raises(SendFailed):
            await producer.send_batch([Message("T", b"x"), Message("T", b"y")])
    for span in recorder.named("send T"):
        assert facts(span)["error.type"] == "SYSTEM_BUSY"
        assert [event.name for event in span.events] == ["pocketmq.send.attempt"] * 3 + ["exception"]
        assert "secret" not in span.to_json()
    assert recorder.count(SENT, error_type="SYSTEM_BUSY") == 3
    assert recorder.count(DURATION, error_type="SYSTEM_BUSY") == 2


async def test_a_kept_message_is_sent_once_more_in_a_span_that_links_the_first(two: Any, recorder: Recorder) -> None:
    """Its trace survives the retry store; a resend is a root, for it belongs to no caller."""
    for server in two.brokers.values():
        server.answers[NATIVE] = refuse
    retry = DurableRetry("memory:", rules=(RetryRule(backoff_ms_first=20, backoff_ms_max=40),))
    async with Producer("g", two.namesrv.address, durable_retry=retry, telemetry=recorder.telemetry) as producer:
        receipt = await producer.send(Message("T", b"x"))
        assert isinstance(receipt, StoredForRetry)
        for server in two.brokers.values():
            server.answers[NATIVE] = store
        async with asyncio.timeout(60):
            delivered = await receipt.delivered()
    first, *again = recorder.named("send T")
    assert facts(first)["pocketmq.send.status"] == "STORED_FOR_RETRY"
    assert facts(first)["messaging.message.id"] == delivered.msg_id
    assert [event.name for event in first.events] == ["pocketmq.send.attempt"] * 3
    assert facts(again[-1])["pocketmq.send.resend"] is True
    assert facts(again[-1])["messaging.message.id"] == delivered.msg_id
    assert {parent_of(span) for span in again} == {None}
    assert links_of(again[-1]) == [context_of(first)]


async def test_messages_that_wait_behind_a_kept_one_keep_their_traces(two: Any, recorder: Recorder) -> None:
    """With ``order_by_key`` the durable retry sends them later, each in its own trace."""
    for server in two.brokers.values():
        server.answers[NATIVE] = refuse
    rules = (RetryRule(backoff_ms_first=20, backoff_ms_max=40),)
    retry = DurableRetry("memory:", rules=rules, order_by_key=True)
    async with Producer("g", two.namesrv.address, durable_retry=retry, telemetry=recorder.telemetry) as producer:
        receipts = [await producer.send(Message("T", b"x", sharding_key="k")) for _ in range(3)]
        kept = [receipt for receipt in receipts if isinstance(receipt, StoredForRetry)]
        assert len(kept) == 3
        for server in two.brokers.values():
            server.answers[NATIVE] = store
        async with asyncio.timeout(60):
            for receipt in kept:
                await receipt.delivered()
    first = [span for span in recorder.named("send T") if "pocketmq.send.resend" not in facts(span)]
    again = [span for span in recorder.named("send T") if "pocketmq.send.resend" in facts(span)]
    assert [facts(span)["pocketmq.send.status"] for span in first] == ["STORED_FOR_RETRY"] * 3
    assert {link for span in again for link in links_of(span)} == {context_of(span) for span in first}


async def test_a_send_that_the_stop_gives_up_has_its_span(two: Any, recorder: Recorder) -> None:
    """Nothing stays open: neither a span nor its entry."""
    for server in two.brokers.values():
        server.answers[NATIVE] = silent
    producer = Producer("g", two.namesrv.address, telemetry=recorder.telemetry, send_msg_timeout_ms=300)
    async with producer:
        waiting = [producer.send_nowait(Message("T", b"x")) for _ in range(3)]
        batch = asyncio.ensure_future(producer.send_batch([Message("T", b"x")] * 2))
        await asyncio.sleep(0)
    done = await asyncio.gather(*waiting, batch, return_exceptions=True)
    assert all(isinstance(each, PocketMQError) for each in done)
    spans = await recorder.until("send T", 4)
    assert all(facts(span)["error.type"] for span in spans)
    [stage] = [stage for stage in producer._chain.stages if isinstance(stage, SendTelemetry)]
    assert not stage._sends
    assert not stage._sections
