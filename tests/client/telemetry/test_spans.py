"""What spans say of messages and errors, with the worst that peers and applications can bring."""

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, NoOpTracer, NoOpTracerProvider

from pocketmq.client import BrokerAnswerError, ConfigError, ConnectionLost, Message, NoRoute, SendFailed
from pocketmq.client.errors import Attempt
from pocketmq.client.telemetry import Telemetry, conventions
from pocketmq.client.telemetry.attributes import (
    KEYS_MAX,
    TEXT_CHARS_MAX,
    error_type,
    of_message,
    of_received,
    of_server,
)
from pocketmq.client.telemetry.spans import ATTEMPTS_MAX, LINKS_MAX, Spans
from pocketmq.common.clock import SystemClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record import encode_host, encode_properties
from pocketmq.common.record_codec import encode_record, received_message
from tests.client.telemetry.recorder import Recorder, facts


def received(**properties: str) -> ReceivedMessage:
    host = encode_host("127.0.0.1", 1)
    record = encode_record(
        "T", b"x", queue_id=3, queue_offset=7, born_host=host, store_host=host, properties=encode_properties(properties)
    )
    return received_message(record, "b")


def spans_of(recorder: Recorder) -> Spans:
    return Spans(recorder.telemetry, "client", SystemClock(), CapturedLog())


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (SendFailed("no", answer_code=2), "SYSTEM_BUSY"),
        (SendFailed("no", answer_code=10002), "ACCESS_BROKER_TIMEOUT"),
        (SendFailed("no", answer_code=4711), "4711"),
        (SendFailed("no"), "pocketmq.client.errors.SendFailed"),
        (BrokerAnswerError("no", answer_code=16, remark="secret", address="a:1"), "NO_PERMISSION"),
        (NoRoute("no"), "NOT_FOUND_TOPIC_EXCEPTION"),
        (ConnectionLost("no"), "pocketmq.remoting.errors.ConnectionLost"),
        (ConfigError("no"), "pocketmq.common.errors.ConfigError"),
        (KeyError("secret"), "KeyError"),
    ],
)
def test_the_type_of_an_error_is_the_name_of_its_code(error: Exception, shown: str) -> None:
    """Or its class, where no code says more than that something failed."""
    assert error_type(error) == shown


def test_a_code_of_an_error_that_is_not_ours_is_not_taken_for_rocketmqs() -> None:
    class NotFound(Exception):
        code = 404
        answer_code = 2

    assert error_type(NotFound()).endswith("NotFound")


def test_texts_and_numbers_are_bounded() -> None:
    """Whatever a peer writes into its message."""
    message = received(
        TAGS="t" * 5_000,
        KEYS=" ".join(["k" * 300] * 60),
        DELAY="9" * 5_000,
        TIMER_OUT_MS="9" * 19,
        CORRELATION_ID="c" * 999,
    )
    found = of_received(message)
    assert conventions.DELAY_LEVEL not in found
    assert conventions.DELIVERY_TIMESTAMP not in found
    assert len(found[conventions.MESSAGE_TAG]) == TEXT_CHARS_MAX
    assert len(found[conventions.CONVERSATION_ID]) == TEXT_CHARS_MAX
    assert [len(key) for key in found[conventions.MESSAGE_KEYS]] == [TEXT_CHARS_MAX] * KEYS_MAX
    assert of_received(received(DELAY="3", TIMER_OUT_MS="5"))[conventions.DELAY_LEVEL] == 3
    assert len(of_message(Message("T", b"x", keys=["k"] * 60))[conventions.MESSAGE_KEYS]) == KEYS_MAX


@pytest.mark.parametrize(
    ("address", "shown"),
    [("", {}), ("host", {}), ("10.0.0.1:10911", ("10.0.0.1", 10911)), ("[::1]:1", ("::1", 1)), ("h:x", ("h", None))],
)
def test_an_address_is_host_and_port(address: str, shown: Any) -> None:
    found = of_server(address)
    assert found == {} if not shown else (found["server.address"], found.get("server.port")) == shown


def test_links_and_events_are_bounded() -> None:
    """A poll may have a million messages, and a producer a thousand attempts."""
    recorder = Recorder()
    spans = spans_of(recorder)
    messages = [received(traceparent=f"00-{number:032x}-{number:016x}-01") for number in range(1, LINKS_MAX + 50)]
    spans.received("g", messages, 0)
    [span] = recorder.spans
    assert len(span.links) == LINKS_MAX
    assert facts(span)["messaging.batch.message_count"] == len(messages)
    operation, _ = spans.send(Message("T", b"x"), 0)
    spans.attempts(operation, [Attempt("b", "a:1", "answer", 1.0, 2, "secret")] * 1_000)
    spans.end(operation)
    assert len(recorder.spans[-1].events) == ATTEMPTS_MAX


def test_an_operation_may_have_no_parent_and_many_topics() -> None:
    """Then its name is that of the operation alone."""
    recorder = Recorder()
    spans = spans_of(recorder)
    batch = spans.send_batch([Message("A", b"x"), Message("B", b"x")])
    spans.end(batch)
    spans.end(spans.settle(conventions.NACK, "g", [received()], parent=INVALID_SPAN_CONTEXT))
    assert [span.name for span in recorder.spans] == ["send", "nack T"]
    assert "messaging.destination.name" not in facts(recorder.spans[0])


def test_an_operation_begins_when_its_caller_began_to_wait() -> None:
    """For instance for room in flight, or for an answer; what began just now has the time of the SDK."""
    recorder, clock = Recorder(), SystemClock()
    spans = spans_of(recorder)
    before_ns = clock.now_ms() * 1_000_000
    waiting, _ = spans.send(Message("T", b"x"), clock.monotonic_ns() - 5_000_000_000)
    spans.end(waiting)
    now, _ = spans.send(Message("T", b"x"), clock.monotonic_ns())
    spans.end(now)
    waited, at_once = (span.end_time - span.start_time for span in recorder.spans if span.end_time and span.start_time)
    assert waited >= 5_000_000_000
    assert at_once < waited
    assert (recorder.spans[0].start_time or 0) < before_ns
    [point] = recorder.points("messaging.client.operation.duration")
    assert isinstance(point, HistogramDataPoint)
    assert point.sum >= 5


class Broken(SpanProcessor):
    """A processor of an application that raises."""

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        if span.name == "process T":
            raise RuntimeError("start")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("end")


def test_a_fault_of_the_applications_processors_costs_no_message() -> None:
    """It is logged, less and less often."""
    tracers, log = TracerProvider(shutdown_on_exit=False), CapturedLog()
    tracers.add_span_processor(Broken())
    telemetry = Telemetry(tracer_provider=tracers, meter_provider=MeterProvider(shutdown_on_exit=False))
    spans = Spans(telemetry, "client", SystemClock(), log)
    for _ in range(5):
        operation, _ = spans.process("g", [received()], is_batch=False)
        spans.end(operation)
        operation, _ = spans.send(Message("T", b"x"), 0)
        spans.end(operation, KeyError())
    assert spans.faults == 10
    assert [event["faults"] for event in log.events] == [1, 2, 4, 8]


class BrokenSpan(NonRecordingSpan):
    """A span of an application that raises whatever it is told, and ends."""

    ended = 0

    def is_recording(self) -> bool:
        return True

    def _raise(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("told")

    set_attribute = set_attributes = set_status = add_event = _raise

    def end(self, end_time: int | None = None) -> None:
        type(self).ended += 1


class BrokenTracer(NoOpTracer):
    def start_span(self, *_: Any, **__: Any) -> BrokenSpan:
        return BrokenSpan(INVALID_SPAN_CONTEXT)


class BrokenTracers(NoOpTracerProvider):
    def get_tracer(self, *_: Any, **__: Any) -> BrokenTracer:
        return BrokenTracer()


def test_a_span_that_takes_nothing_costs_no_message_and_ends() -> None:
    """What a send tells on its way is told where the futures of other sends are still waiting."""
    spans = Spans(Telemetry(tracer_provider=BrokenTracers()), "client", SystemClock(), CapturedLog())
    operation, _ = spans.send(Message("T", b"x"), 0)
    spans.attempts(operation, [Attempt("b", "h:1", "answer", 1.0, 2, "busy")])
    spans.stored(operation, address="h:1", attempts=2)
    spans.tell(operation, {"a": 1})
    spans.end(operation, KeyError())
    assert BrokenSpan.ended == 1
    assert spans.faults == 4
