"""What spans around handlers remember, and whose current span they are."""

import asyncio
import contextlib
import functools
from typing import Any

import pytest
from opentelemetry import trace

from pocketmq.client import Later
from pocketmq.client.handlers.consume_result import DropFailed, KeepHere
from pocketmq.client.handlers.handler_call import handler_name, is_async_handler
from pocketmq.client.handlers.process_telemetry import FAILED_MAX, ProcessTelemetry
from pocketmq.client.telemetry.spans import Spans
from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record import encode_host
from pocketmq.common.record_codec import encode_record, received_message
from tests.client.telemetry.recorder import Recorder, facts


def message(offset: int) -> ReceivedMessage:
    host = encode_host("127.0.0.1", 1)
    record = encode_record("T", b"x", queue_id=0, queue_offset=offset, born_host=host, store_host=host)
    return received_message(record, "b")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def telemetry(recorder: Recorder) -> ProcessTelemetry:
    return ProcessTelemetry(Spans(recorder.telemetry, "client", SystemClock(), NullLog()), "g", "CLUSTERING")


def test_the_spans_of_failed_messages_are_bounded(telemetry: ProcessTelemetry) -> None:
    """Those of messages that were never handed on are forgotten, the oldest first."""
    messages = [message(offset) for offset in range(FAILED_MAX + 10)]
    for each in messages:
        telemetry.begin((each,)).returned(False)
    assert len(telemetry._failed) == FAILED_MAX
    assert telemetry.failed_in(messages[:1]) is None
    assert telemetry.failed_in(messages[-1:]) is not None
    assert telemetry.failed_in(messages[-1:]) is None
    batch = telemetry.begin(messages + messages, is_batch=True)
    batch.returned(Later())
    assert len(telemetry._failed) == FAILED_MAX


def test_a_call_ends_once(telemetry: ProcessTelemetry, recorder: Recorder) -> None:
    """Whatever comes first: its answer, an exception, or the end of the consumer."""
    processing = telemetry.begin((message(1),))
    processing.returned(None)
    processing.returned(Later())
    processing.failed(RuntimeError())
    [span] = recorder.spans
    assert "error.type" not in facts(span)


async def test_a_span_is_left_only_where_it_was_entered(telemetry: ProcessTelemetry) -> None:
    """A stream may be read by one task and closed by another one, whose current span stays."""
    processing = telemetry.begin((message(1),))
    own = processing.operation.span.get_span_context()

    async def other() -> None:
        processing.leave()

    processing.enter()
    assert trace.get_current_span().get_span_context() == own
    await asyncio.create_task(other())
    assert trace.get_current_span().get_span_context() == own
    processing.enter()
    processing.leave()
    assert trace.get_current_span().get_span_context() == own, "as it was before the second enter"


def test_policies_that_ask_no_broker_have_no_span(telemetry: ProcessTelemetry) -> None:
    for policy in (DropFailed(), KeepHere()):
        assert telemetry.settling(policy) is policy


async def test_a_hand_over_that_fails_has_an_error(telemetry: ProcessTelemetry, recorder: Recorder) -> None:
    """Messages that no broker took, and a policy of the application's own that raises."""

    class Policy:
        retry_topic = "R"

        async def failed(self, messages: Any, reason: str, delay_level: int) -> Any:
            if reason == "raise":
                raise ValueError(reason)
            return messages

    policy = telemetry.settling(Policy())
    assert policy.retry_topic == "R"
    await policy.failed([message(1)], "", 0)
    with contextlib.suppress(ValueError):
        await policy.failed([message(2)], "raise", -1)
    assert [(span.name.split()[0], facts(span)["error.type"]) for span in recorder.spans] == [
        ("nack", "_OTHER"),
        ("dead_letter", "ValueError"),
    ]


def test_what_cannot_be_called_is_left_to_who_registers_it(telemetry: ProcessTelemetry) -> None:
    nothing: Any = None
    assert telemetry.observed(nothing, is_batch=False) is None


class Handler:
    async def __call__(self, message: object) -> None: ...


@pytest.mark.parametrize(
    "handler", [Handler(), functools.partial(print, "x"), functools.partial(Handler()), lambda message: None, print]
)
def test_a_handler_keeps_its_name_and_its_kind(telemetry: ProcessTelemetry, handler: Any) -> None:
    """Events name the application's function, and a plain one still runs in a thread."""
    observed = telemetry.observed(handler, is_batch=False)
    assert handler_name(observed) == handler_name(handler)
    assert is_async_handler(observed) is is_async_handler(handler)
