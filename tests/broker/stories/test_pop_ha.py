"""Pops of a pair: a slave gives out nothing, and a promoted one begins at the lowest message in flight."""

import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.ha_admin import HaAdmin
from pocketmq.client.admin.promotion import promote
from pocketmq.remoting.codes import RequestCode as R
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.protocol.offset import QueryConsumerOffsetRequestHeader
from tests.broker.conftest import Harness, eventually
from tests.broker.ha_cluster import HaCluster
from tests.broker.stories.test_pop import ack, all_popped, change, pop

pytestmark = pytest.mark.slow


async def test_a_slave_gives_out_nothing_and_has_the_committed_offset(ha: HaCluster, harness: Harness) -> None:
    """What is in flight its master knows; the offset comes with the other offsets."""
    master, slave = await ha.pair()
    client, reader = await harness.client(master), await harness.client(slave)
    await client.put(b"0", b"1", b"2")
    popped = dict(await all_popped(client, 3))
    for body in (b"0", b"2"):
        assert (await ack(client, popped[body])).code == 0
    await eventually(lambda: slave.topics.get("T"))
    for answer in (
        await pop(reader),
        await ack(reader, popped[b"1"]),
        await change(reader, popped[b"1"], 1),
    ):
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "no master" in answer.remark

    async def offset() -> int:
        found = await reader.ask(R.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader("g", "T", 0))
        return int(found.header.offset) if found.code == 0 else -1

    async def is_there() -> bool:
        return await offset() == 1

    await eventually(is_there)
    assert slave.pop.ledger.count == 0


async def test_a_promoted_slave_gives_out_what_was_not_committed(ha: HaCluster, harness: Harness) -> None:
    """Some messages twice, none lost."""
    master, slave = await ha.pair()
    client = await harness.client(master)
    await client.put(b"0", b"1", b"2")
    popped = dict(await all_popped(client, 3))
    for body in (b"0", b"2"):
        assert (await ack(client, popped[body])).code == 0
    await eventually(lambda: slave.offsets.query("g", "T", 0) == 1)
    async with Admin(ha.namesrv.address) as admin:
        await promote(HaAdmin(admin), "broker-a")  # the two change places
    await eventually(lambda: slave.pop.revival is not None)
    reader = await harness.client(slave)
    assert sorted(body for body, _ in await all_popped(reader, 2)) == [b"1", b"2"]
