"""Every metric of the broker, and the page that Prometheus scrapes.

Lives here: ``GROUPS``, the registry from which ``/metrics``, the telemetry, the runtime table, the ``interval`` event
and docs/metrics.md are made; ``exposition``.

A new metric is one row in the module of its area (``request_metrics``, ``store_metrics``, ``service_metrics``,
``ha_metrics``); ``make docs-tables`` then updates the document.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pocketmq.broker.metrics.ha_metrics import REPLICATION
from pocketmq.broker.metrics.registry import Group
from pocketmq.broker.metrics.request_metrics import REQUESTS
from pocketmq.broker.metrics.service_metrics import SERVICES
from pocketmq.broker.metrics.sources import Reading, Sources
from pocketmq.broker.metrics.store_metrics import PROCESS, STORE
from pocketmq.common.clock import Clock

GROUPS: Final[tuple[Group[Any], ...]] = (*REQUESTS, *STORE, *PROCESS, *SERVICES, *REPLICATION)
"""In the order of the documentation."""


class _BrokerCollector(Collector):
    """Reads everything on each scrape, in the thread of the HTTP server."""

    def __init__(self, sources: Sources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """Return the families, read now."""
        reading = Reading(self._sources, self._clock.monotonic_ns())
        for group in GROUPS:
            yield from group.families(reading)


def exposition(sources: Sources, clock: Clock) -> Callable[[], bytes]:
    """Return a function that makes the text that Prometheus scrapes, from a registry of its own.

    It only reads attributes: it takes no lock that disk work can hold, and nothing on the event loop waits for it.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_BrokerCollector(sources, clock))
    return lambda: generate_latest(registry)
