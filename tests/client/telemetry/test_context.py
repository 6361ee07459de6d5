"""The trace context in the properties of a message: what fits goes in, and nothing that comes out does harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator

from pocketmq.client.telemetry.context import carrier_of, creator_of, fitting, is_carried, origin_of
from pocketmq.common.record import decode_properties, encode_properties

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
SPAN = 0xB7AD6B7169203331
PARENT = f"00-{TRACE:032x}-{SPAN:016x}-01"


def carried(context: Context, present: dict[str, str], present_bytes: int) -> dict[str, str]:
    return fitting(carrier_of(context), present, present_bytes)


def context(**state: str) -> Context:
    """Return a context with a span and a trace state."""
    span_context = trace.SpanContext(
        TRACE, SPAN, is_remote=False, trace_flags=trace.TraceFlags(1), trace_state=trace.TraceState(list(state.items()))
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(span_context), Context())


def test_what_goes_in_comes_out() -> None:
    """Through the properties of a record, whatever else they hold."""
    put = carried(context(vendor="1"), {"p": "v"}, 4)
    assert put == {"traceparent": PARENT, "tracestate": "vendor=1"}
    read = decode_properties(encode_properties({"p": "v", **put}))
    found = creator_of(read)
    assert found is not None
    assert (found.trace_id, found.span_id, found.is_remote) == (TRACE, SPAN, True)
    assert found.trace_state.to_header() == "vendor=1"
    assert trace.get_current_span(origin_of(read)).get_span_context() == found


@given(present=st.integers(0, 40_000), state=st.text("abc", min_size=1, max_size=240))
def test_a_context_never_takes_more_than_the_room(present: int, state: str) -> None:
    """4 KiB stay free; without its ``traceparent`` nothing else is carried."""
    put = carried(context(vendor=state), {}, present)
    assert not put or "traceparent" in put
    assert present + len(encode_properties(put)) <= 32_767 - 4_096 or not put
    assert put or present > 32_767 - 4_096 - 68


@given(st.dictionaries(st.sampled_from(["traceparent", "tracestate", "baggage", "TRACE_CONTEXT"]), st.text()))
def test_no_text_of_a_peer_does_harm(properties: dict[str, str]) -> None:
    """It is a context or none."""
    assert isinstance(origin_of(properties), Context)
    assert creator_of(properties) is None or len(next(iter(properties.values()))) > 0


@pytest.mark.parametrize("length", [8_192, 8_193, 10_000_000])
def test_huge_values_are_not_looked_at(length: int) -> None:
    """The propagator sees no value of more than 8,192 characters; the parent counts without its huge state."""
    found = creator_of({"traceparent": PARENT, "tracestate": "x" * length, "baggage": "y" * length})
    assert found is not None
    assert len(found.trace_state) == 0
    assert creator_of({"traceparent": PARENT + "-" + "x" * length}) is None


def test_a_context_of_the_creator_is_not_replaced() -> None:
    """Also one that is no context: it is the application's property."""
    assert carried(context(), {"traceparent": "x"}, 12) == {}
    assert carried(context(), {"tracestate": "a=b"}, 12) == {}
    assert is_carried({"traceparent": "x"})
    assert not is_carried({"baggage": "tenant=blue"})
    assert "traceparent" in carried(context(), {"baggage": "tenant=blue"}, 18)


class Odd(TextMapPropagator):
    """A propagator of an application: it writes what no message can carry, and raises when it reads."""

    def __init__(self, written: dict[str, str]) -> None:
        self.written = written

    def extract(self, carrier, context=None, getter=None):  # type: ignore[no-untyped-def]
        raise RuntimeError("odd")

    def inject(self, carrier, context=None, setter=None):  # type: ignore[no-untyped-def]
        carrier.update(self.written)

    @property
    def fields(self) -> set[str]:
        return {"odd"}


@pytest.mark.parametrize(
    "written",
    [
        {"odd": ""},
        {"": "x"},
        {"odd": "a\x01b"},
        {"KEYS": "x"},
        {"TIMER_DELAY_MS": "1"},
        {"odd": "\ud800"},
        {"odd": "x" * 9_000},
    ],
)
def test_what_no_message_can_carry_is_left_out(monkeypatch: pytest.MonkeyPatch, written: dict[str, str]) -> None:
    """Whatever the application's propagator writes or raises."""
    monkeypatch.setattr(propagate, "_HTTP_TEXT_FORMAT", Odd({"odd-2": "fine", **written}))
    assert carried(context(), {}, 0) == {"odd-2": "fine"}
    assert creator_of({"odd": "x"}) is None
