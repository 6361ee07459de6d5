"""A change of role whose restart fails."""

import asyncio
from typing import Any

import pytest

from pocketmq.broker.assembly.role_changes import RoleNotTaken
from pocketmq.common.epochs import PROMOTION_STEP
from pocketmq.common.errors import PocketMQError
from pocketmq.store.errors import DiskError
from tests.broker.conftest import Harness, eventually
from tests.broker.ha.test_ha_roles import ask_promise, status_of
from tests.broker.ha_cluster import HaCluster

pytestmark = pytest.mark.slow


def refuse_starts(app: Any, count: int) -> None:
    """Let the disk fail in the next ``count`` starts."""
    load_role, left = app._load_role, [count]

    def failing() -> Any:
        if left[0]:
            left[0] -= 1
            raise DiskError("the store does not open", why="the disk says no")
        return load_role()

    app._load_role = failing


async def test_a_promotion_that_cannot_start_goes_on_as_slave(ha: HaCluster, harness: Harness) -> None:
    """Back in the old role: it follows again, remembers no promotion, and logs both."""
    master, slave = await ha.pair()
    refuse_starts(slave, 1)
    with pytest.raises(RoleNotTaken, match="the disk says no"):
        await slave.change_role("SYNC_MASTER", 0)
    await eventually(lambda: slave.replication.has_master)
    assert slave.role.is_slave
    assert slave.replication.node.state.role == ""
    (event,) = [event for event in ha.logs["s"].events if event["event"] == "role_not_taken"]
    assert (event["role"], event["old_role"]) == ("SYNC_MASTER", "that of the settings")
    await eventually(lambda: master.replication.node.status().slaves)
    await (await harness.client(master)).put(b"confirmed")


async def test_a_fenced_master_stays_fenced_when_it_cannot_follow(ha: HaCluster, harness: Harness) -> None:
    """The old role comes back with its fence: it takes no sends."""
    master = await ha.start("m", 0, broker_role="ASYNC_MASTER")
    master.replication.node.state.note_slaves({"bb": 0})
    client = await harness.client(master)
    assert (await ask_promise(client, PROMOTION_STEP, "bb.1", "10.0.0.2:10911")).granted
    refuse_starts(master, 1)
    with pytest.raises(RoleNotTaken):
        await master.change_role("SLAVE", 1, accept_loss=True)
    fenced_by = master.replication.node.fenced_by
    assert fenced_by is not None
    assert fenced_by.epoch == PROMOTION_STEP
    assert not master.replication.node.state.accept_loss
    assert (await status_of(await harness.client(master))).is_fenced


async def test_a_broker_that_starts_in_neither_role_says_so_and_ends(ha: HaCluster) -> None:
    """Its owner is notified, with the last error."""
    _, slave = await ha.pair()
    failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    slave._roles.on_failed = failed.set_result
    refuse_starts(slave, 2)
    with pytest.raises(PocketMQError, match="the disk says no"):
        await slave.change_role("SYNC_MASTER", 0)
    assert "the disk says no" in str(await failed)
    names = [event["event"] for event in ha.logs["s"].events]
    assert names.index("role_not_taken") < names.index("broker_does_not_come_back")
    assert slave.port == 0
