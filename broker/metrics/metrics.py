"""Every metric of the broker, and the page that Prometheus scrapes.

Lives here: ``GROUPS``, the registry from which ``/metrics``, the telemetry, the runtime table, the ``interval`` event
and docs/metrics.md are made; ``exposition``.

A new metric is one row in the module of its area (``request_metrics``, ``store_metrics``, ``service_metrics``,
``ha_metrics``, ``rocketmq_metrics``); ``make docs-tables`` then updates the document.
"""

from collections.abc import Callable
from typing import Any, Final

from pocketmq.broker.metrics.ha_metrics import REPLICATION
from pocketmq.broker.metrics.registry import Group
from pocketmq.broker.metrics.request_metrics import REQUESTS
from pocketmq.broker.metrics.rocketmq_metrics import ROCKETMQS
from pocketmq.broker.metrics.service_metrics import SERVICES
from pocketmq.broker.metrics.sources import Reading, Sources
from pocketmq.broker.metrics.store_metrics import PROCESS, STORE
from pocketmq.common.clock import Clock
from pocketmq.common.exposition import page

GROUPS: Final[tuple[Group[Any], ...]] = (*REQUESTS, *STORE, *PROCESS, *SERVICES, *REPLICATION, *ROCKETMQS)
"""In the order of the documentation."""


def exposition(sources: Sources, clock: Clock) -> Callable[[], bytes]:
    """Return a function that makes the text that Prometheus scrapes, in the thread of the HTTP server.

    It only reads attributes: it takes no lock that disk work can hold, and nothing on the event loop waits for it.
    """

    def read() -> bytes:
        reading = Reading(sources, clock.monotonic_ns())
        return page(family for group in GROUPS for family in group.families(reading))

    return read
