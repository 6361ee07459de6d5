"""The counts of an idempotent handler.

Lives here: ``Counts``, and ``CountsCollector``, which exports them to Prometheus.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


@dataclass(slots=True)
class Counts:
    """Messages since the start, except where a name says otherwise."""

    first: int = 0
    """Claimed for the first time."""
    taken_over: int = 0
    """Claimed after an owner that never finished: their effect was unknown."""
    done: int = 0
    """Handled, and marked as done."""
    skipped: int = 0
    """Arrived again when they were done: the handler was not called."""
    busy: int = 0
    """Arrived while another owner was handling them: put off."""
    failed: int = 0
    """The handler raised or asked for a later try: the claim was given up."""
    lease_lost: int = 0
    """Handled, but another owner had taken over meanwhile: the effect may have happened twice."""
    unmarked: int = 0
    """Handled, but the store did not take the mark: if they arrive again, the effect happens again."""
    store_errors: int = 0
    """Calls of the store that failed."""


class CountsCollector(Collector):
    """``registry.register(CountsCollector("billing", idempotent.counts))``."""

    def __init__(self, scope: str, counts: Counts) -> None:
        self._scope = scope
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """Return one family: ``pocketmq_idempotent_messages_total{scope, outcome}``."""
        family = CounterMetricFamily(
            "pocketmq_idempotent_messages", "What idempotent handlers saw.", labels=["scope", "outcome"]
        )
        for each in fields(self._counts):
            family.add_metric([self._scope, each.name], getattr(self._counts, each.name))
        yield family
