"""Names, types, labels and help of every metric, which dashboards and alerts rely on, on brokers of each role."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from pocketmq.broker.app import BrokerApp
from pocketmq.common.errors import Cause
from tests.broker.conftest import Harness
from tests.broker.ha_cluster import HaCluster

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).with_name("exported_metrics.tsv")
"""One line a family: the brokers that have it (master of a pair, its slave, lone master with a write-buffer pool),
name, type, labels, help. A line may be added with a metric; a changed line breaks a user's dashboard."""


def page_of(app: BrokerApp) -> str:
    assert app.observation._metrics is not None
    return b"".join(app.observation._metrics()).decode()


def families_of(app: BrokerApp) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(page_of(app))}


def row(brokers: Sequence[str], family: Metric) -> tuple[str, ...]:
    labels = {name for sample in family.samples for name in sample.labels} - {"le"}
    return (",".join(brokers), family.name, family.type, ",".join(sorted(labels)), family.documentation)


async def three_brokers(stack: contextlib.AsyncExitStack, tmp_path: Path) -> dict[str, BrokerApp]:
    """Return brokers on which every family has a sample."""
    cluster = HaCluster(stack, tmp_path)
    await cluster.start_name_server()
    master, slave = await cluster.pair()
    pool = {"transient_store_pool_enable": True, "transient_store_pool_size": 2}
    lone = await cluster.start("lone", 0, broker_name="broker-b", broker_role="ASYNC_MASTER", **pool)
    brokers = {"master": master, "slave": slave, "lone": lone}
    for app in brokers.values():
        app.refused_requests.note(34, 1, Cause.CODEC, "no", remote="1.2.3.4:5", language=1, version=63)
        app.refusals.note("page_cache_busy", 2, "[REJECTREQUEST]system busy", 5)
        app.supervisor.crashed("test", ValueError("of this test"))
    client = await Harness(stack, tmp_path).client(lone)
    await client.put(b"one")
    for app in brokers.values():
        assert app.observation.figures is not None
        app.observation.figures.step()
    return brokers


async def test_no_metric_is_lost_or_changed(tmp_path: Path) -> None:
    """Every recorded family is there, as it was."""
    recorded = {tuple(line.split("\t")) for line in RECORDED.read_text().splitlines()}
    async with contextlib.AsyncExitStack() as stack:
        brokers = await three_brokers(stack, tmp_path)
        by_broker = {name: families_of(app) for name, app in brokers.items()}
    names = {name for families in by_broker.values() for name in families}
    exported = set()
    for name in names:
        having = [broker for broker, families in by_broker.items() if name in families]
        exported.add(row(having, by_broker[having[0]][name]))
    assert recorded - exported == set()
