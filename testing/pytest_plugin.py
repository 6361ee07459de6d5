"""pytest fixtures for a real broker in-process. Loaded by pytest itself wherever PocketMQ is installed.

Lives here: ``pocketmq_broker`` (one broker a test), ``pocketmq_broker_session`` (one for the whole run),
``pocketmq_producer`` and ``pocketmq_consumer`` (clients of the test's broker), the marker that gives settings:
``@pytest.mark.pocketmq(broker={"auto_create_topic_enable": False}, store={...})``. docs/testing.md has examples.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pocketmq.client.blocking import Producer, PushConsumer
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


@pytest.fixture
def pocketmq_producer(pocketmq_broker: "PocketBroker") -> "Iterator[Producer]":
    """A started, blocking producer of ``pocketmq_broker``; for ``async def`` tests there is ``broker.producer()``."""
    from pocketmq.client.blocking import Producer

    with Producer("test", pocketmq_broker.namesrv) as producer:
        yield producer


@pytest.fixture
def pocketmq_consumer(pocketmq_broker: "PocketBroker") -> "Iterator[Callable[..., PushConsumer]]":
    """Makes blocking push consumers of ``pocketmq_broker``, not started: ``pocketmq_consumer("group", **settings)``.

    A new group reads its topics from the beginning. All of them are stopped at the end of the test. For ``async def``
    tests there is ``broker.consumer()``.
    """
    from pocketmq.client.blocking import PushConsumer
    from pocketmq.testing.broker import consumer_settings

    made: list[PushConsumer] = []

    def make(group: str = "test", **settings: Any) -> PushConsumer:
        made.append(PushConsumer(group, pocketmq_broker.namesrv, **{**consumer_settings(), **settings}))
        return made[-1]

    yield make
    for consumer in made:
        consumer.stop()
