"""pytest fixtures for a real broker in-process. Loaded by pytest itself wherever PocketMQ is installed.

Lives here: ``pocketmq_broker`` (one broker a test), ``pocketmq_broker_session`` (one for the whole run), the marker
that gives settings: ``@pytest.mark.pocketmq(broker={"auto_create_topic_enable": False}, store={...})``.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pocketmq.testing.broker import PocketBroker


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, for ``--strict-markers``."""
    config.addinivalue_line("markers", "pocketmq(broker={...}, store={...}): settings of the pocketmq_broker fixture")


@pytest.fixture
def pocketmq_broker(request: pytest.FixtureRequest) -> "Iterator[PocketBroker]":
    """A fresh, empty broker on ports of its own; gone, with its data, after the test."""
    from pocketmq.testing.broker import PocketBroker

    marker = request.node.get_closest_marker("pocketmq")
    with PocketBroker(**(marker.kwargs if marker else {})) as broker:
        yield broker


@pytest.fixture(scope="session")
def pocketmq_broker_session() -> "Iterator[PocketBroker]":
    """One broker for the whole test run; use topic names of your own."""
    from pocketmq.testing.broker import PocketBroker

    with PocketBroker() as broker:
        yield broker
