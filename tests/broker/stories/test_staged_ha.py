"""Staged transactions when the master is replaced: its slave knows all that its log has."""

import contextlib
from pathlib import Path

import pyarrow as pa
import pytest

from pocketmq.client import PullConsumer
from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.ha_admin import HaAdmin
from pocketmq.client.admin.promotion import promote
from pocketmq.client.staged.staged_transaction import StagedTransactions, StagedWrite
from tests.broker.ha_cluster import HaCluster

pytestmark = pytest.mark.slow


async def stage(transactions: StagedTransactions, version: int, *bodies: bytes) -> StagedWrite:
    writer = transactions.writer("job", version, topic="T")
    await writer.write(pa.RecordBatch.from_pydict({"body": list(bodies)}))
    return await writer.close()


async def test_a_promoted_slave_goes_on_where_its_master_stopped(tmp_path: Path) -> None:
    """A commit stays done, and messages staged at the old master are committed at the new one, which the old one
    follows."""
    async with contextlib.AsyncExitStack() as stack:
        cluster = HaCluster(stack, tmp_path)
        await cluster.start_name_server()
        _, slave = await cluster.pair()
        namesrv = cluster.namesrv.address
        transactions = await stack.enter_async_context(StagedTransactions("etl", namesrv, wait_ms=20_000))
        done = await stage(transactions, 0, b"one")
        assert await transactions.commit("job", 0, [done])
        staged = await stage(transactions, 1, b"two", b"three")
        async with Admin(namesrv) as admin:
            done_by = await promote(HaAdmin(admin), "broker-a")
        assert done_by.master.address == slave.replication.node.address
        assert not await transactions.commit("job", 0, [done])
        assert await transactions.commit("job", 1, [staged])
        async with PullConsumer("reader", namesrv) as consumer:
            found = [m.body async for m in consumer.stream("T", start="earliest", stop_at_end=True)]
        assert sorted(found) == [b"one", b"three", b"two"]
