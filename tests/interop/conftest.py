"""Interop tests: RocketMQ's programs together with ours. All are marked ``interop`` and skipped without Java."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.java_clients import JAVA_CLIENTS, JavaClients, java_clients
from tests.interop.mqadmin_site import Site, site
from tests.interop.pocketmq_server import PocketMQServer, pocketmq_server
from tests.interop.rocketmq_servers import RocketMQServers, rocketmq_servers
from tests.interop.toolchain import require_java

HERE = Path(__file__).parent
TIMEOUT_S = 300
"""With an empty cache the first test waits for Maven."""


def pytest_configure() -> None:
    """Let the cases, which are no test module, say what they compared."""
    if "tests.interop.client_cases" not in sys.modules:
        pytest.register_assert_rewrite("tests.interop.client_cases")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, so that no module can forget it."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.interop)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session", autouse=True)
def _java() -> None:
    require_java()


@pytest.fixture(scope="session")
def pocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketMQServer]:
    """Start one PocketMQ for all tests that only add topics and groups."""
    with pocketmq_server(tmp_path_factory.mktemp("pocketmq")) as server:
        yield server


@pytest.fixture(scope="session", params=JAVA_CLIENTS)
def java(
    request: pytest.FixtureRequest, pocketmq: PocketMQServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaClients]:
    """Start RocketMQ's clients of one version and header form in a JVM, connected to ``pocketmq``."""
    version, serialize = request.param.split("-")
    with java_clients(version, serialize, pocketmq.namesrv, tmp_path_factory.mktemp("java")) as clients:
        yield clients


@pytest.fixture(scope="session", params=["4.9", "5.3"])
def rocketmq(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQServers]:
    """One name server and broker of each version for all tests of our SDK; the tests of one version run together. The
    broker checks undecided transactions after 3 s, and syncs before it answers: acknowledged messages must be there
    after a kill. It never refuses, or answers with another status, because a machine is slow.
    """
    with rocketmq_servers(
        request.param,
        tmp_path_factory.mktemp(f"rocketmq-{request.param}"),
        flushDiskType="SYNC_FLUSH",
        transactionTimeOut=3000,
        transactionCheckInterval=3000,
        transactionOpBatchInterval=200,
        brokerFastFailureEnable="false",
        osPageCacheBusyTimeOutMills=60_000,
        syncFlushTimeout=60_000,
    ) as servers:
        yield servers


@pytest.fixture(scope="session", params=["client-4.9", "client-5.3"])
def mq(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Start RocketMQ's admin tools of one version, and the PocketMQ that they administer."""
    with site(request.param, tmp_path_factory.mktemp("mqadmin")) as made:
        yield made
