"""A pair asked at one end is explained by both."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli.doctor.finding import Diagnosis
from pocketmq.cli.doctor.reader import BrokerReader, Target
from pocketmq.cli.doctor.session import Session
from pocketmq.store.errors import StoreError
from tests.broker.conftest import eventually
from tests.broker.ha_cluster import HaCluster
from tests.cli.doctor.snapshots import the

pytestmark = pytest.mark.slow


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[HaCluster]:
    async with AsyncExitStack() as stack:
        made = HaCluster(stack, tmp_path)
        await made.start_name_server()
        yield made


async def look(address: str) -> Diagnosis:
    """Check one broker, as ``--broker`` does."""
    async with BrokerReader(timeout_ms=30_000) as reader:
        [found] = await Session(reader, [Target("", address)], asks_others=True).check()
    return found.diagnosis


async def test_the_slaves_disk_is_named_by_the_slave_and_by_its_master(cluster: HaCluster) -> None:
    """The other end is found through the broker's own name server."""
    master, slave = await cluster.pair()
    node: Any = slave.replication.node.slave
    node._sick = StoreError("append refused", why="Read-only file system")  # as after a write that failed
    node._try_disk = lambda: node._appender.retry() or (_ for _ in ()).throw(node._sick)
    node._disconnect("append refused: Read-only file system")
    await eventually(lambda: not master.replication.node.status().slaves)
    there = the((await look(slave.address)).findings, "slave-disk-failed")
    assert "Read-only file system" in there.evidence[0]
    assert there.evidence[1].startswith(f"the master at {master.address} answers")
    here = the((await look(master.address)).findings, "slave-not-available")
    assert f"The disk of the slave at {slave.address} refuses its writes." in here.cause
    assert "ha promote" not in here.cure + there.cure


async def test_a_healthy_pair_has_no_finding_at_either_end(cluster: HaCluster) -> None:
    for broker in await cluster.pair():
        assert not [each for each in (await look(broker.address)).findings if each.area.value == "slaves"]
