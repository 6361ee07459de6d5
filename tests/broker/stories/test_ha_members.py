"""A slave that was replaced, with real brokers and a name server: which nodes count, which may be promoted."""

import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.ha_admin import HaAdmin, HaFailed
from pocketmq.client.admin.promotion import promote
from pocketmq.common.epochs import MEMBERS_STEP, PROMOTION_STEP
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.protocol.ha import HaEpochRequestHeader
from tests.broker.conftest import Harness, eventually
from tests.broker.ha.test_ha_roles import append_code
from tests.broker.ha_cluster import HaCluster

pytestmark = pytest.mark.slow


async def test_a_replaced_slave_is_refused_and_its_replacement_leads(ha: HaCluster, harness: Harness) -> None:
    """The name server knows the epoch before the new slave confirms anything; its own claim is refused, too."""
    master, replaced = await ha.pair()
    client = await harness.client(master)
    await client.put(b"both")
    await ha.stop("s")
    new = await ha.start("new", 2)
    await eventually(lambda: any(each.is_in_sync for each in master.replication.node.status().slaves))
    await client.put(b"new only")
    known = ha.namesrv.epochs.table.get("broker-a")
    assert known is not None
    assert (known.epoch, known.node) == (MEMBERS_STEP, master.replication.node.state.node_id)
    assert master.replication.node.fenced_by is None
    await ha.stop("m")
    await ha.stop("new")
    replaced = await ha.start("s")
    async with Admin(ha.namesrv.address) as admin:
        told = HaAdmin(admin)
        with pytest.raises(HaFailed, match=f"ends in epoch 1, and epoch {MEMBERS_STEP} was opened"):
            await promote(told, "broker-a")
        node_id = replaced.replication.node.state.node_id
        claim = HaEpochRequestHeader(
            "broker-a", PROMOTION_STEP, f"{node_id}.x", replaced.address, "SYNC_MASTER", last_epoch=1
        )
        assert await told.claim(claim) == {ha.namesrv.address: False}
        new = await ha.start("new")
        done = await promote(told, "broker-a")
    assert (done.master.address, done.master.last_epoch) == (new.address, PROMOTION_STEP)
    reader = await harness.client(new)
    assert await reader.pull_bodies(wanted=2) == [b"both", b"new only"]
    await eventually(lambda: any(each.is_in_sync for each in new.replication.node.status().slaves))
    assert await append_code(reader) == ResponseCode.SUCCESS, "the one that was replaced follows and confirms"


async def test_without_a_name_server_a_slave_is_not_counted_in_anothers_place(ha: HaCluster, harness: Harness) -> None:
    """It could be the one whose place it takes that is promoted. It has the log; once the server is back it counts."""
    master, _ = await ha.pair()
    await ha.stop("s")
    master.replication._members_claim.name_servers = None
    new = await ha.start("new", 2)
    await eventually(lambda: new.replication.has_master and master.replication.node.status().slaves)
    assert await append_code(await harness.client(master)) == ResponseCode.SLAVE_NOT_AVAILABLE
    await eventually(lambda: new.store.committed_offset == master.store.committed_offset)
    status = new.replication.node.status()
    assert (status.is_counted, status.last_epoch) == (False, 0)
    assert any(event["event"] == "slave_not_counted" for event in ha.logs["m"].events)
    registration = master._registration
    assert registration is not None
    master.replication.ask(registration)
    await ha.stop("new")
    new = await ha.start("new")
    await eventually(lambda: any(each.is_in_sync for each in master.replication.node.status().slaves))
    assert await append_code(await harness.client(master)) == ResponseCode.SUCCESS
    assert new.replication.node.status().is_counted


async def test_only_a_node_that_the_name_server_knows_is_a_member(ha: HaCluster, harness: Harness) -> None:
    """The name server has the address, and the node there says its id: a stranger has neither."""
    master, slave = await ha.pair()
    registration = master._registration
    assert registration is not None
    node_id = slave.replication.node.state.node_id
    assert await registration.is_member(node_id, 1) == ""
    assert f"is node '{node_id}', not 'ee'" in await registration.is_member("ee", 1)
    assert "no broker 7 of broker-a is registered" in await registration.is_member(node_id, 7)
    address = ha.namesrv.address
    await ha.namesrv.stop()
    assert (await registration.is_member(node_id, 1)).startswith(f"{address}: ")
