"""The text that Prometheus scrapes, beside the one that ``prometheus_client`` writes."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from pocketmq.common.exposition import CHUNK_LINES, Family, chunks, page

VALUES = st.floats() | st.integers(-10, 10**18) | st.sampled_from([0.0, 1e6, 123456.0, 1234567.0, 1e21, 0.1])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
LABELS = ("topic", "kind")


class Collected:
    """A registry's collector of some families."""

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics


def theirs(metric: Metric) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collected(metric))
    return bytes(generate_latest(registry))


@given(TEXTS, st.lists(st.tuples(TEXTS, TEXTS, VALUES), max_size=4))
def test_gauges_and_counters(help_text: str, rows: list[tuple[str, str, float]]) -> None:
    for kind, metric_class in (("gauge", GaugeMetricFamily), ("counter", CounterMetricFamily)):
        own = Family("pocketmq_x", help_text, kind, LABELS)
        metric = metric_class("pocketmq_x", help_text, labels=LABELS)
        for first, second, value in rows:
            own.add_value((first, second), value)
            metric.add_metric((first, second), value)
        assert page([own]) == theirs(metric)


@given(VALUES)
def test_a_value_without_labels(value: float) -> None:
    own = Family("pocketmq_x", "help", "gauge")
    own.add_value((), value)
    metric = GaugeMetricFamily("pocketmq_x", "help", labels=())
    metric.add_metric((), value)
    assert page([own]) == theirs(metric)


@given(TEXTS, st.lists(st.integers(0, 10**9), min_size=1, max_size=5), VALUES)
def test_histograms(label: str, counts: list[int], sum_value: float) -> None:
    """Labels that sort before and after ``le``."""
    for name in ("kind", "topic"):
        buckets = [(f"0.{at}", float(count)) for at, count in enumerate(counts[:-1])] + [("+Inf", float(counts[-1]))]
        own = Family("pocketmq_x_seconds", "help", "histogram", (name,))
        own.add_histogram((label,), buckets, sum_value)
        metric = HistogramMetricFamily("pocketmq_x_seconds", "help", labels=(name,))
        metric.add_metric((label,), buckets, sum_value)
        assert page([own]) == theirs(metric)


def test_a_large_page_is_made_in_parts() -> None:
    """Each is short, and together they are the page; samples that are text already are lines as the others are."""
    family, same = Family("x", "help", "counter", ("l",)), Family("x", "help", "counter", ("l",))
    for number in range(2 * CHUNK_LINES):
        family.add_text(f'l="{number}"', number)
        same.add_value((str(number),), number)
    parts = list(chunks([family]))
    assert len(parts) == 3
    assert b"".join(parts).decode().count("\n") == 2 * CHUNK_LINES + 2
    lines, others = (page([each]).decode().splitlines() for each in (family, same))
    assert [line.split(" ")[0] for line in lines] == [line.split(" ")[0] for line in others]
