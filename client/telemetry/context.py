"""The trace context of a message, in its properties, as OpenTelemetry's propagators write it.

``traceparent``, ``tracestate`` and ``baggage`` are user properties, as OpenTelemetry's instrumentation of RocketMQ's
Java client 4.8 and later has them. That of the 5.0 client puts the ``traceparent`` into ``TRACE_CONTEXT``, which is
read where there is no other. The application's propagator (``OTEL_PROPAGATORS``) decides which properties there are.

Lives here: ``carrier_of`` and ``fitting`` for messages that leave, ``origin_of`` for those that come. A context never
makes a send fail, and what a peer sends costs a bounded time: a property that is too long, not legal or without room is
left out.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from pocketmq.common.errors import MessageIllegal
from pocketmq.common.message_fields import RESERVED
from pocketmq.common.record import PROPERTIES_BYTES_MAX, check_property, encode_text, is_plain_forbidden

TRACEPARENT: Final = "traceparent"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
"""RocketMQ MessageConst.PROPERTY_TRACE_CONTEXT."""
BAGGAGE: Final = "baggage"
VALUE_CHARS_MAX: Final = 8_192
"""The longest value that is written or looked at: a whole W3C baggage."""
ROOM_BYTES: Final = 4_096
"""Left free for what client and broker add to the properties of a message, also when it is retried."""
_FIRST: Final = (TRACEPARENT, "tracestate", BAGGAGE)


Carrier = Sequence[tuple[str, str, int]]
"""Properties that carry one context: name, value and bytes, the ``traceparent`` first."""


def carrier_of(context: Context) -> Carrier:
    """Return the properties that carry ``context``, without those that no message may have."""
    found: dict[str, str] = {}
    try:
        propagate.inject(found, context)
    except Exception:  # a propagator of the application's choice: the message goes without its context
        return ()
    names = sorted(found, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    sizes = [(name, found[name], _size_of(name, found[name])) for name in names]
    return tuple(each for each in sizes if each[2])


def fitting(carrier: Carrier, present: Mapping[str, str], present_bytes: int) -> dict[str, str]:
    """Return those that have room in a message; none where the message has a context of its own.

    ``present``: the user's properties of the message; ``present_bytes``: about what all its properties take.
    """
    if present and is_carried(present):
        return {}
    room = PROPERTIES_BYTES_MAX - ROOM_BYTES - present_bytes
    result: dict[str, str] = {}
    for name, value, size in carrier:
        if size <= room and name not in present:
            result[name] = value
            room -= size
        elif name == TRACEPARENT:  # the rest means nothing without it
            return {}
    return result


def is_carried(properties: Mapping[str, str]) -> bool:
    """Return whether a message has a context already: that of its creator, which nobody may replace."""
    return any(name in properties for name in propagate.get_global_textmap().fields if name != BAGGAGE)


def _size_of(name: object, value: object) -> int:
    """Return the bytes of a property, or 0 for what no message may carry."""
    if not isinstance(name, str) or not isinstance(value, str) or len(value) > VALUE_CHARS_MAX:
        return 0
    if name in RESERVED or is_plain_forbidden(name):
        return 0
    try:
        check_property(name, value)
        return len(encode_text(name)) + len(encode_text(value)) + 2
    except MessageIllegal:
        return 0


def origin_of(properties: Mapping[str, str]) -> Context:
    """Return the context that a message carries, without any other; an empty one where it carries none that is good."""
    fields = propagate.get_global_textmap().fields
    carrier = {
        name: value for name in fields if (value := properties.get(name)) is not None and len(value) <= VALUE_CHARS_MAX
    }
    if TRACEPARENT in fields and TRACEPARENT not in carrier:
        other = properties.get(TRACE_CONTEXT, "")
        if other and len(other) <= VALUE_CHARS_MAX:
            carrier[TRACEPARENT] = other
    if not carrier:
        return Context()
    try:
        return propagate.extract(carrier, Context())
    except Exception:  # a propagator of the application's choice, and a text of a stranger's
        return Context()


def creator_of(properties: Mapping[str, str]) -> trace.SpanContext | None:
    """Return the span in which a message was created, or None."""
    return creator_in(origin_of(properties))


def creator_in(origin: Context) -> trace.SpanContext | None:
    """Return the span of a message's context, or None."""
    span_context = trace.get_current_span(origin).get_span_context()
    return span_context if span_context.is_valid else None
