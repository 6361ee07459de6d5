"""Runs of one staged transaction that meet in any order, are held up, and die: rows of exactly one become visible."""

import asyncio
import contextlib
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pocketmq.client.staged.staged_transaction import InDoubt, StagedTransactions, StagedWrite
from pocketmq.common.errors import PocketMQError
from tests.client.real_cluster import RealCluster
from tests.client.stories.test_staged_transactions import batch, bodies
from tests.profiles import lives
from tests.sim.seeds import base_seed

RUNS = 3
ROWS = 6


async def stage(transactions: StagedTransactions, transactional_id: str, rows: pa.RecordBatch) -> StagedWrite:
    writer = transactions.writer(transactional_id, 0, topic="T")
    await writer.write(rows)
    return await writer.close()


async def run_once(
    monkeypatch: pytest.MonkeyPatch, namesrv: str, transactional_id: str, number: int, rng: random.Random
) -> None:
    """One driver: stages its rows anywhere, commits; its name server does not list all brokers; each request of it is
    held up, before or after, and it may die."""
    async with StagedTransactions("etl", namesrv, wait_ms=3000) as transactions:
        keys = [f"s{rng.randrange(100)}" if rng.random() < 0.5 else "one"] * ROWS
        if rng.random() < 0.5:
            keys = [f"s{rng.randrange(100)}" for _ in range(ROWS)]
        part = await stage(transactions, transactional_id, batch(100 * number, ROWS, sharding_key=keys))
        end = transactions._end

        async def slowly(*args: Any) -> Any:
            await asyncio.sleep(rng.choice([0, 0, 0.01, 0.05]))
            answer = await end(*args)
            await asyncio.sleep(rng.choice([0, 0, 0.01, 0.05]))
            return answer

        seen_brokers = set(rng.sample(["a", "b", "c"], rng.choice([2, 3])))  # any two share a known broker

        async def some() -> set[str]:
            return seen_brokers

        monkeypatch.setattr(transactions, "_end", slowly)
        monkeypatch.setattr(transactions, "_brokers", some)
        with contextlib.suppress(TimeoutError, InDoubt, PocketMQError):
            async with asyncio.timeout(rng.choice([0.02, 0.05, 0.1, 0.2, 5])):
                await transactions.commit(transactional_id, 0, [part])
                return
        if rng.random() < 0.5:
            await transactions.abort([part])


@pytest.mark.slow
@pytest.mark.scaled
async def test_runs_that_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three drivers of each transaction at once, some of which die anywhere; then one more run ends it."""
    rng = random.Random(base_seed())
    print(f"POCKETMQ_SEED={base_seed()}")
    cluster = RealCluster(tmp_path)
    await cluster.start("a", "b", "c")
    await cluster.create_topic("T", 1)
    seen: Counter[int] = Counter()
    try:
        for number in lives(60):
            transactional_id = f"job{number}"  # a new id: its brokers have to learn of each other
            seeds = [random.Random(rng.random()) for _ in range(RUNS)]
            await asyncio.gather(
                *(run_once(monkeypatch, cluster.namesrv, transactional_id, at, each) for at, each in enumerate(seeds))
            )
            async with StagedTransactions("etl", cluster.namesrv, wait_ms=5000) as last:
                part = await stage(last, transactional_id, batch(100 * RUNS, ROWS))
                await last.commit(transactional_id, 0, [part])
            now = Counter(await bodies(cluster))
            new = now - seen
            seen = now
            first = min(new)
            assert new == Counter(range(first, first + ROWS)), f"{transactional_id}: {sorted(new.elements())}"
    finally:
        await cluster.stop_all()
