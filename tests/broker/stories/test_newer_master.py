"""A master that lost power while a slave was promoted in its place."""

import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.ha_admin import HaAdmin
from pocketmq.client.admin.promotion import promote
from pocketmq.store.ha.recover import HaRecoveryNeeded
from pocketmq.store.ha.state import HaState
from tests.broker.conftest import Harness, eventually
from tests.broker.ha_cluster import HaCluster


def lose_power(state: HaState) -> None:
    """Let the state look as after the loss of power of a running master."""
    state._change(state._changed(clean=False, boot_id="an earlier boot"))


async def test_it_starts_fenced_and_follows_when_it_is_told_to(ha: HaCluster, harness: Harness) -> None:
    """It asks no slave for what it lost: none is left that would answer."""
    master, slave = await ha.pair(ha_recover_wait_ms=200)
    client = await harness.client(master)
    await client.put(b"confirmed")
    state = master.replication.node.state
    await ha.stop("m")
    lose_power(state)
    async with Admin(ha.namesrv.address) as admin:
        await promote(HaAdmin(admin), "broker-a")
        old = await ha.start("m")
        fenced_by = old.replication.node.fenced_by
        assert fenced_by is not None
        assert fenced_by.address == slave.address
        events = {event["event"] for event in ha.logs["m"].events}
        assert {"replaced_while_away", "starts_fenced"} <= events
        assert "master_asks_slaves" not in events
        await HaAdmin(admin).demote(old.address, "broker-a", 1)
        await eventually(
            lambda: old._running and old._registration and old.role.is_slave and old.replication.has_master
        )
    assert old.store.committed_offset == slave.store.committed_offset


async def test_one_that_was_not_replaced_waits_for_its_slaves(ha: HaCluster) -> None:
    """Name servers know no newer epoch than its own."""
    master, _ = await ha.pair(ha_recover_wait_ms=100)
    state = master.replication.node.state
    await ha.stop("s")
    await ha.stop("m")
    lose_power(state)
    with pytest.raises(HaRecoveryNeeded):
        await ha.start("m")
    assert state.fenced_by is None
