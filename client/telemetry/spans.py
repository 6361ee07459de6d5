"""The spans and metrics of one client instance.

Lives here: ``Spans``, and ``Operation``: one span with what its metrics need, from its begin to its end.

An operation that sends many messages, or gets many, is one span with links to the spans in which the messages were
created, 128 at most. Where one message is processed, that span is its parent as well, so the trace goes on.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode

import pocketmq
from pocketmq.client.errors import Attempt
from pocketmq.client.telemetry import conventions as names
from pocketmq.client.telemetry.attributes import (
    TEXT_CHARS_MAX,
    Attributes,
    code_name,
    error_class,
    error_type,
    of_message,
    of_received,
    of_server,
    same,
)
from pocketmq.client.telemetry.context import (
    Carrier,
    carrier_of,
    creator_in,
    creator_of,
    fitting,
    is_carried,
    origin_of,
)
from pocketmq.client.telemetry.switch import Telemetry
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.message import Message, ReceivedMessage

LINKS_MAX: Final = 128
"""OpenTelemetry's default limit of links of a span."""
LOOKED_AT_MAX: Final = 1_024
"""Messages of one operation whose creators are looked for."""
ATTEMPTS_MAX: Final = 32
_SCOPE: Final = "pocketmq"
_RETROSPECT_NS: Final = 1_000_000
"""An operation that began at least so long ago gets that start: the wall clock of a client counts ms."""

Kind = tuple[str, str]


class Operation:
    """One operation under way. ``type``: its type; ``count``: its messages; ``started_ns`` is monotonic."""

    __slots__ = ("attributes", "count", "span", "started_ns", "type")

    def __init__(self, span: Span, operation_type: str, count: int, started_ns: int, attributes: Attributes) -> None:
        self.span = span
        self.type = operation_type
        self.count = count
        self.started_ns = started_ns
        self.attributes = attributes
        """Of its metrics: few values, so that there are few series."""


class Spans:
    """Makes the spans and counts the metrics of one client instance. Callable from any thread."""

    attach = staticmethod(attach)
    """Make a context the current one of a task or thread; returns what ``detach`` takes."""
    detach = staticmethod(detach)

    def __init__(self, telemetry: Telemetry, client_id: str, clock: Clock, log: EventLog) -> None:
        version, schema = pocketmq.__version__, names.SCHEMA_URL
        self._tracer = trace.get_tracer(_SCOPE, version, telemetry.tracer_provider, schema)
        meter = metrics.get_meter(_SCOPE, version, telemetry.meter_provider, schema)
        self.exception_texts = telemetry.exception_texts
        self.faults = 0
        """Exceptions of the application's samplers, processors and readers."""
        self._clock = clock
        self._log = log
        self._common: Attributes = {names.SYSTEM: names.SYSTEM_NAME, names.CLIENT_ID: client_id}
        bounds = names.DURATION_BOUNDS_S
        self._duration = meter.create_histogram(
            names.OPERATION_DURATION,
            "s",
            "Duration of messaging operation initiated by a producer or consumer client.",
            explicit_bucket_boundaries_advisory=bounds,
        )
        self._processing = meter.create_histogram(
            names.PROCESS_DURATION, "s", "Duration of processing operation.", explicit_bucket_boundaries_advisory=bounds
        )
        self._sent = meter.create_counter(
            names.SENT_MESSAGES, "{message}", "Number of messages producer attempted to send to the broker."
        )
        self._consumed = meter.create_counter(
            names.CONSUMED_MESSAGES, "{message}", "Number of messages that were delivered to the application."
        )

    # -- begin -------------------------------------------------------------------------------------------------

    def begin(
        self,
        kind: Kind,
        span_kind: SpanKind,
        destination: str,
        *,
        attributes: Mapping[str, Any] | None = None,
        of_metrics: Mapping[str, Any] | None = None,
        context: Context | None = None,
        creators: Iterable[SpanContext | None] = (),
        count: int = 1,
        is_batch: bool = False,
        started_ns: int = 0,
    ) -> Operation:
        """Begin an operation. ``destination``: the topic, empty for several. ``context``: the parent's; None is the
        caller's, an empty one makes a root. ``started_ns``: monotonic, if it began before now.
        """
        name, operation_type = kind
        measured: Attributes = {names.SYSTEM: names.SYSTEM_NAME, names.OPERATION_NAME: name, **(of_metrics or {})}
        if destination:
            measured[names.DESTINATION] = destination
        told = {**self._common, **measured, names.OPERATION_TYPE: operation_type, **(attributes or {})}
        if is_batch:
            told[names.BATCH_COUNT] = count
        now_ns = self._clock.monotonic_ns()
        start_time: int | None = None
        if started_ns and now_ns - started_ns >= _RETROSPECT_NS:
            start_time = self._clock.now_ms() * 1_000_000 - (now_ns - started_ns)
        try:
            span = self._tracer.start_span(
                f"{name} {destination}" if destination else name,
                context=context,
                kind=span_kind,
                attributes=told,
                links=_links(creators),
                start_time=start_time,
                record_exception=False,
                set_status_on_exception=False,
            )
        except Exception as fault:
            self._fault(fault)
            span = trace.INVALID_SPAN
        return Operation(span, operation_type, count, started_ns or now_ns, measured)

    def send(self, message: Message, started_ns: int) -> tuple[Operation, dict[str, str]]:
        """Begin the send of one message; return also the properties that carry its context."""
        properties = message.properties or {}
        creators = (creator_of(properties),) if properties and is_carried(properties) else ()
        operation = self.begin(
            names.SEND,
            SpanKind.PRODUCER,
            message.topic,
            attributes=of_message(message),
            creators=creators,
            started_ns=started_ns,
        )
        return operation, self.carried(self.carrier(operation), message)

    def send_batch(self, messages: Sequence[Message]) -> Operation:
        """Begin the send of several messages in one call."""
        known = (message.properties for message in islice(messages, LOOKED_AT_MAX))
        creators = (creator_of(properties) for properties in known if properties and is_carried(properties))
        return self.begin(
            names.SEND,
            SpanKind.PRODUCER,
            same([message.topic for message in messages]),
            creators=creators,
            count=len(messages),
            is_batch=True,
        )

    def send_section(self, topic: str, messages: Sequence[Message], count: int, *, is_resend: bool) -> Operation:
        """Begin the send of a part of rows, which are no ``messages``, or of messages that are sent once more."""
        return self.begin(
            names.SEND,
            SpanKind.PRODUCER,
            topic,
            attributes={names.RESEND: True} if is_resend else None,
            context=Context() if is_resend else None,  # its task was begun by somebody else's send
            creators=(creator_of(message.properties) for message in messages if message.properties),
            count=count,
            is_batch=True,
        )

    def carrier(self, operation: Operation) -> Carrier:
        """Return the properties that carry the context of ``operation``."""
        return carrier_of(trace.set_span_in_context(operation.span))

    def carried(self, carrier: Carrier, message: Message) -> dict[str, str]:
        """Return those of ``carrier`` that a message has room for."""
        properties = message.properties or {}
        texts = (message.tags, message.keys_text, message.sharding_key or "", *properties, *properties.values())
        used = sum(len(text) if text.isascii() else len(text.encode("utf-8", "replace")) for text in texts)
        return fitting(carrier, properties, used + 2 * len(properties))

    def process(
        self, group: str, messages: Sequence[ReceivedMessage], *, is_batch: bool, model: str = ""
    ) -> tuple[Operation, Context]:
        """Begin a handler's call; return also the context in which it runs. Counts the messages as consumed."""
        attributes: Attributes = {}
        if model:
            attributes[names.CONSUMPTION_MODEL] = model.lower()
        origin, creators = Context(), _creators(messages)
        if not is_batch:
            attributes |= of_received(messages[0])
            origin = origin_of(messages[0].properties)
            creators = (creator_in(origin),)
        operation = self.begin(
            names.PROCESS,
            SpanKind.CONSUMER,
            same([message.topic for message in messages]),
            attributes=attributes,
            of_metrics={names.CONSUMER_GROUP: group},
            context=origin,
            creators=creators,
            count=len(messages),
            is_batch=is_batch,
        )
        self._consumed.add(len(messages), operation.attributes)
        return operation, trace.set_span_in_context(operation.span, origin)

    def received(self, group: str, messages: Sequence[ReceivedMessage], started_ns: int) -> None:
        """Record that the application asked for messages, and got these. The span is over."""
        one = of_received(messages[0]) if len(messages) == 1 else {}
        operation = self.begin(
            names.RECEIVE,
            SpanKind.CLIENT,
            same([message.topic for message in messages]),
            attributes=one,
            of_metrics={names.CONSUMER_GROUP: group} if group else {},
            creators=_creators(messages),
            count=len(messages),
            is_batch=True,
            started_ns=started_ns,
        )
        self._consumed.add(len(messages), operation.attributes)
        self.end(operation)

    def received_rows(self, group: str, topic: str, count: int, started_ns: int) -> None:
        """Record that the application asked for columns, and got ``count`` rows. The span is over, and has no links."""
        operation = self.begin(
            names.RECEIVE,
            SpanKind.CLIENT,
            topic,
            of_metrics={names.CONSUMER_GROUP: group},
            count=count,
            is_batch=True,
            started_ns=started_ns,
        )
        self._consumed.add(count, operation.attributes)
        self.end(operation)

    def not_received(self, group: str, topic: str, error: BaseException, started_ns: int) -> None:
        """Record that the application asked for messages, and got an error."""
        operation = self.begin(
            names.RECEIVE,
            SpanKind.CLIENT,
            topic,
            of_metrics={names.CONSUMER_GROUP: group},
            count=0,
            started_ns=started_ns,
        )
        self.end(operation, error)

    def settle(
        self,
        kind: Kind,
        group: str,
        messages: Sequence[ReceivedMessage] = (),
        *,
        topic: str = "",
        parent: SpanContext | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Operation:
        """Begin to tell a broker what became of messages. ``topic``: theirs, where there are no messages; ``parent``:
        None is the caller's span, an invalid one none."""
        told: Attributes = of_received(messages[0]) if len(messages) == 1 else {}
        told |= attributes or {}
        return self.begin(
            kind,
            SpanKind.CLIENT,
            topic or same([message.topic for message in messages]),
            attributes=told,
            of_metrics={names.CONSUMER_GROUP: group} if group else {},
            context=None if parent is None else trace.set_span_in_context(trace.NonRecordingSpan(parent), Context()),
            creators=_creators(messages),
            count=len(messages),
            is_batch=len(messages) > 1,
        )

    @contextmanager
    def settling(
        self, kind: Kind, group: str, topic: str, attributes: Mapping[str, Any] | None = None
    ) -> Iterator[None]:
        """Tell a broker, in the block, what became of messages: a child of the caller's span."""
        operation = self.settle(kind, group, topic=topic, attributes=attributes)
        try:
            yield
        except BaseException as error:
            self.end(operation, error)
            raise
        self.end(operation)

    @contextmanager
    def checking(self, message: ReceivedMessage) -> Iterator[None]:
        """Run, in the block, what an application says of its own half message: a child of the span that sent it."""
        origin = origin_of(message.properties)
        operation = self.begin(
            names.CHECK,
            SpanKind.CONSUMER,
            message.topic,
            attributes=of_received(message),
            context=origin,
            creators=(creator_in(origin),),
        )
        token = attach(trace.set_span_in_context(operation.span, origin))
        try:
            yield
        except BaseException as error:
            self.end(operation, error)
            raise
        finally:
            detach(token)
        self.end(operation)

    # -- on the way --------------------------------------------------------------------------------------------

    def tell(self, operation: Operation, attributes: Mapping[str, Any]) -> None:
        """Add attributes to the span."""
        try:
            if operation.span.is_recording():
                operation.span.set_attributes(attributes)
        except Exception as fault:
            self._fault(fault)

    def attempts(self, operation: Operation, attempts: Sequence[Attempt]) -> None:
        """Add an event for each failed attempt of a send. A broker's text is not told: its code and cause are."""
        try:
            self._add_attempts(operation.span, attempts)
        except Exception as fault:
            self._fault(fault)

    def _add_attempts(self, span: Span, attempts: Sequence[Attempt]) -> None:
        if not span.is_recording():
            return
        for attempt in attempts[:ATTEMPTS_MAX]:
            told: Attributes = {
                names.ATTEMPT_BROKER: attempt.broker[:TEXT_CHARS_MAX],
                names.ATTEMPT_PHASE: attempt.phase,
                names.ATTEMPT_STORED: attempt.stored.value,
                names.ATTEMPT_MS: round(attempt.elapsed_ms, 3),
                names.ERROR_TYPE: code_name(attempt.answer_code) or attempt.phase,
                **of_server(attempt.address),
            }
            if attempt.cause is not None:
                told[names.ATTEMPT_CAUSE] = attempt.cause.value
            span.add_event(names.ATTEMPT, told)

    def stored(
        self,
        operation: Operation,
        *,
        address: str,
        attempts: int = 0,
        status: str = "",
        msg_id: str = "",
        partition: str = "",
    ) -> None:
        """Note where a send went: ``host:port`` of the broker, and what its receipt says. Empty: nothing to say."""
        server = of_server(address)
        operation.attributes |= server
        told: Attributes = {**server}
        for name, value in ((names.SEND_STATUS, status), (names.MESSAGE_ID, msg_id), (names.PARTITION, partition)):
            if value:
                told[name] = value
        if attempts > 1:
            told[names.SEND_ATTEMPTS] = attempts
        self.tell(operation, told)

    # -- end ---------------------------------------------------------------------------------------------------

    def end(
        self, operation: Operation, error: BaseException | None = None, *, failure: str = "", why: str = ""
    ) -> None:
        """End an operation: with ``error``, with the ``failure`` of this name, or well.

        ``why``: the application's text about a failure, which only ``exception_texts`` lets into the span.
        """
        try:
            try:
                self._end(operation, error, failure if error is None else error_type(error), why)
            finally:
                operation.span.end()
        except Exception as fault:
            self._fault(fault)

    def _end(self, operation: Operation, error: BaseException | None, failure: str, why: str) -> None:
        if failure:
            operation.attributes[names.ERROR_TYPE] = failure
            if operation.span.is_recording():
                self._tell(operation.span, error, failure, why)
        took_s = (self._clock.monotonic_ns() - operation.started_ns) / 1e9
        if operation.type == names.PROCESS[1]:
            self._processing.record(took_s, operation.attributes)
        else:
            self._duration.record(took_s, operation.attributes)
            if operation.type == names.SEND[1]:
                self._sent.add(operation.count, operation.attributes)

    def _fault(self, fault: Exception) -> None:
        """Log the first, second, fourth … exception of a sampler, processor or reader of the application's: none of
        them may cost a message."""
        self.faults += 1
        if self.faults & (self.faults - 1) == 0:
            self._log.error("telemetry_failed", faults=self.faults, error=repr(fault), exc_info=fault)

    def _tell(self, span: Span, error: BaseException | None, failure: str, why: str) -> None:
        text = ""
        if self.exception_texts:
            text = (why or ("" if error is None else _text_of(error)))[:TEXT_CHARS_MAX]
        span.set_attribute(names.ERROR_TYPE, failure)
        span.set_status(Status(StatusCode.ERROR, text or None))
        if error is not None:
            event = {names.EXCEPTION_TYPE: error_class(error)}
            if text:
                event[names.EXCEPTION_MESSAGE] = text
            span.add_event(names.EXCEPTION, event)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as fault:  # of the application's own class
        return f"<its text raises {type(fault).__qualname__}>"


def _creators(messages: Sequence[ReceivedMessage]) -> Iterable[SpanContext | None]:
    return (creator_of(message.properties) for message in islice(messages, LOOKED_AT_MAX))


def _links(creators: Iterable[SpanContext | None]) -> list[Link]:
    links: list[Link] = []
    for creator in creators:
        if creator is not None:
            links.append(Link(creator))
            if len(links) == LINKS_MAX:
                break
    return links
