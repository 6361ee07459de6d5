"""OpenTelemetry's SDK in memory: the spans and metrics that one test's clients have made."""

import asyncio
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from pocketmq.client.telemetry import Telemetry


class Recorder:
    """Providers of a test's own. ``telemetry`` is for ``telemetry=`` of a client."""

    def __init__(self, *, exception_texts: bool = False) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.telemetry = Telemetry(
            tracer_provider=tracers,
            meter_provider=MeterProvider([self._reader], shutdown_on_exit=False),
            exception_texts=exception_texts,
        )
        self.tracer: Tracer = tracers.get_tracer("application")

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended, in the order of their ends."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the spans of this name."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """Return the only span of this name."""
        [span] = self.named(name)
        return span

    async def until(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """Return the spans of this name once there are ``count``."""
        async with asyncio.timeout(60):
            while len(self.named(name)) < count:  # noqa: ASYNC110 - the exporter has no events
                await asyncio.sleep(0.001)
        return self.named(name)

    def points(self, metric: str) -> list[NumberDataPoint | HistogramDataPoint]:
        """Return the data points of a metric."""
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        found: list[Any] = []
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                found += [point for each in scope.metrics if each.name == metric for point in each.data.data_points]
        return found

    def count(self, metric: str, **attributes: str) -> int:
        """Return the sum of a counter, or the count of a histogram, over the points with these attributes; ``_`` in a
        name stands for a dot."""
        total = 0
        for point in self.points(metric):
            known = {name.replace(".", "_"): value for name, value in (point.attributes or {}).items()}
            if all(known.get(name) == value for name, value in attributes.items()):
                total += int(point.count if isinstance(point, HistogramDataPoint) else point.value)
        return total


def facts(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})


def context_of(span: ReadableSpan) -> tuple[int, int]:
    """Return (trace id, span id) of a span."""
    return span.context.trace_id, span.context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    """Return (trace id, span id) of a span's parent, or None for a root."""
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def links_of(span: ReadableSpan) -> list[tuple[int, int]]:
    """Return (trace id, span id) of everything that a span links."""
    return [(link.context.trace_id, link.context.span_id) for link in span.links]
