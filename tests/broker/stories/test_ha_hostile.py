"""Promotions that fail half way, and groups with different settings: mistakes of a careless operator."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import Message, Producer, SendStatus
from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.ha_admin import HaAdmin, HaFailed
from pocketmq.client.admin.promotion import promote
from pocketmq.namesrv.epoch_store import EpochFile
from pocketmq.remoting.protocol.ha import HaPromiseRequestHeader
from pocketmq.store.ha.epochs import Epoch
from tests.broker.conftest import eventually
from tests.broker.ha_cluster import HaCluster

pytestmark = pytest.mark.slow
TWO_OF_THREE: dict[str, Any] = {"in_sync_replicas": 2, "total_replicas": 3}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[HaCluster]:
    """A name server; brokers are stopped with it."""
    async with contextlib.AsyncExitStack() as stack:
        it = HaCluster(stack, tmp_path)
        await it.start_name_server()
        yield it


async def _three(cluster: HaCluster, slave_settings: dict[str, Any]) -> None:
    master = await cluster.start("m", 0, **TWO_OF_THREE)
    for number in (1, 2):
        await cluster.start(f"s{number}", number, **slave_settings)
    await eventually(lambda: len(master.replication.node.status().slaves) == 2)


async def test_the_masters_count_of_copies_holds_not_the_slaves_own(cluster: HaCluster) -> None:
    """Slaves with the setting two copies of two do not promote a lagging one alone, when their master had two of
    three: messages confirmed by the other slave would be lost."""
    await _three(cluster, {})
    assert "replication_settings_differ" in [event["event"] for event in cluster.logs["s1"].events]
    async with Producer("g", cluster.namesrv.address) as producer:
        await producer.send(Message("T", b"first"))
        await cluster.stop("s2")
        assert (await producer.send(Message("T", b"only s1 has it"))).status is SendStatus.SEND_OK
    await cluster.stop("m")
    await cluster.stop("s1")
    lagging = await cluster.start("s2")
    async with Admin(cluster.namesrv.address) as admin:
        with pytest.raises(HaFailed, match="2 nodes beside the old master must promise, 1 answered"):
            await promote(HaAdmin(admin), "broker-a", to=lagging.replication.node.address)
        await cluster.start("s1")
        done = await promote(HaAdmin(admin), "broker-a")
    assert done.master.address == cluster.brokers["s1"].replication.node.address


async def test_a_promotion_that_was_refused_does_not_come_true_at_the_next_start(cluster: HaCluster) -> None:
    """A fenced master that promised itself an epoch, and got no other promise, restarts: it stays fenced, and
    the current master continues."""
    await _three(cluster, TWO_OF_THREE)
    await cluster.stop("m")
    async with Admin(cluster.namesrv.address) as admin:
        ha = HaAdmin(admin)
        leader = (await promote(ha, "broker-a")).master
        old = await cluster.start("m")
        await eventually(lambda: old.replication.node.fenced_by is not None)
        node = await ha.status(old.replication.node.address)
        answer = await ha.promise(node, 2_000_000, f"{node.node_id}.x", node.address)
        assert answer is not None
        assert answer.granted
        await cluster.stop("m")
        old = await cluster.start("m")
        assert old.replication.node.service is None
        assert old.replication.node.fenced_by is not None
        assert (await ha.status(leader.address)).is_master
        record = await ha.epoch_at(cluster.namesrv.address, "broker-a")
        assert record is not None
        assert record.epoch == leader.epoch


async def test_a_promotion_can_be_forced_after_many_that_came_to_no_end(cluster: HaCluster) -> None:
    """Each attempt leaves a promise behind. Nodes and name servers without these promises get over the gap."""
    await _three(cluster, TWO_OF_THREE)
    await cluster.stop("m")
    node = cluster.brokers["s1"].replication.node
    assert node.promise(HaPromiseRequestHeader("broker-a", 1_000_000, f"{node.state.node_id}.x", "")).granted
    for epoch in range(2_000_000, 9_000_000, 1_000_000):
        assert node.promise(HaPromiseRequestHeader("broker-a", epoch, f"{node.state.node_id}.x", "")).granted
    other = cluster.brokers["s2"].replication.node
    assert other.state.promised_epoch < 1_000_000
    async with Admin(cluster.namesrv.address) as admin:
        done = await promote(HaAdmin(admin), "broker-a", to=other.address, force=True)
    assert (done.master.address, done.master.epoch) == (other.address, 9_000_000)
    known = cluster.namesrv.epochs.table.get("broker-a")
    assert known is not None
    assert (known.epoch, known.address) == (9_000_000, other.address)


async def test_a_switch_that_no_name_server_takes_leaves_the_old_master(
    cluster: HaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name server's disk is full when a healthy pair is to switch: the master, already stopped, leads
    again with its slave, instead of a group without a master."""
    master, slave = await cluster.pair()

    def refuse(file: EpochFile, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    async with Admin(cluster.namesrv.address) as admin:
        with monkeypatch.context() as patch:
            patch.setattr(EpochFile, "save", refuse)
            with pytest.raises(HaFailed, match="0 of 1 name servers took epoch"):
                await promote(HaAdmin(admin), "broker-a")
        assert master.replication.node.status().is_master
        assert slave.replication.node.role.is_slave
        await eventually(lambda: cluster.route().get("0") == master.replication.node.address)
        await eventually(lambda: slave.replication.has_master)
    async with Producer("g", cluster.namesrv.address) as producer:
        assert (await producer.send(Message("T", b"goes on"))).status is SendStatus.SEND_OK


async def test_an_epoch_whose_bytes_the_disk_refused_makes_no_log_newer(cluster: HaCluster) -> None:
    """A slave notes the epochs of a frame before its bytes are appended. If the disk then refuses them, the slave must
    not count as more advanced than one that has more of the epoch before."""
    _, slave = await cluster.pair()
    async with Producer("g", cluster.namesrv.address) as producer:
        assert (await producer.send(Message("T", b"first"))).status is SendStatus.SEND_OK
    await cluster.stop("m")
    node = slave.replication.node
    before = node.status()
    noted = Epoch(before.last_epoch + 1, "n9.1", before.end_offset + 1)
    node.state.set_epochs(node.state.epochs.opened(noted))
    assert node.status().last_epoch == before.last_epoch
    answer = node.promise(HaPromiseRequestHeader("broker-a", 1_000_000, "n9.2", ""))
    assert answer.granted
    assert answer.last_epoch == before.last_epoch
