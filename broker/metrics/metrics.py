"""Every metric of the broker, and the page that Prometheus scrapes.

Lives here: ``GROUPS``, the registry from which ``/metrics``, the telemetry, the runtime table, the ``interval`` event
and docs/metrics.md are made; ``exposition``.

A new metric is one row in the module of its area (``request_metrics``, ``store_metrics``, ``service_metrics``,
``ha_metrics``, ``rocketmq_metrics``); ``make docs-tables`` then updates the document.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from pocketmq.broker.metrics.ha_metrics import REPLICATION
from pocketmq.broker.metrics.registry import Group
from pocketmq.broker.metrics.request_metrics import REQUESTS
from pocketmq.broker.metrics.rocketmq_metrics import ROCKETMQS
from pocketmq.broker.metrics.service_metrics import SERVICES
from pocketmq.broker.metrics.sources import Reading, Sources
from pocketmq.broker.metrics.store_metrics import PROCESS, STORE
from pocketmq.common.clock import Clock
from pocketmq.common.exposition import chunks

GROUPS: Final[tuple[Group[Any], ...]] = (*REQUESTS, *STORE, *PROCESS, *SERVICES, *REPLICATION, *ROCKETMQS)
"""In the order of the documentation."""


def exposition(sources: Sources, clock: Clock) -> Callable[[], list[bytes]]:
    """Return a function that makes the text that Prometheus scrapes, in parts, in the thread of the HTTP server.

    It only reads attributes: it takes no lock that disk work can hold, and nothing on the event loop waits for it.
    """

    def read() -> list[bytes]:
        figures = sources.figures
        return [*_texts(sources, clock, in_rounds=False), *([] if figures is None else figures.texts)]

    return read


def texts_of_figures(sources: Sources, clock: Clock) -> list[bytes]:
    """Return the text of what is computed in rounds."""
    return list(_texts(sources, clock, in_rounds=True))


def _texts(sources: Sources, clock: Clock, *, in_rounds: bool) -> Iterator[bytes]:
    reading = Reading(sources, clock.monotonic_ns())
    groups = (group for group in GROUPS if group.in_rounds is in_rounds)
    return chunks(family for group in groups for family in group.families(reading))
