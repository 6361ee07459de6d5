"""Staged transactions through real brokers: all or nothing, once, over one broker and over several."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pocketmq.client import Message, Producer, PullConsumer
from pocketmq.client.admin.admin import Admin
from pocketmq.client.errors import BrokerAnswerError
from pocketmq.client.staged.chunk_target import BrokersUnreachableError
from pocketmq.client.staged.staged_transaction import (
    COMMIT,
    PREPARE,
    PREPARED,
    InDoubt,
    StagedTransactions,
    StagedWrite,
)
from pocketmq.common.record import TRANSACTION_COMMIT, TRANSACTION_MASK
from pocketmq.remoting.protocol.staged import StagedEndRequestHeader
from tests.client.real_cluster import RealCluster

QUEUES = 2


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RealCluster]:
    running = RealCluster(tmp_path)
    await running.start("a", "b")
    await running.create_topic("T", QUEUES)
    yield running
    await running.stop_all()


@pytest.fixture
async def transactions(cluster: RealCluster) -> AsyncIterator[StagedTransactions]:
    async with StagedTransactions("etl", cluster.namesrv, wait_ms=5000) as running:
        yield running


def batch(first: int, count: int, **columns: Any) -> pa.RecordBatch:
    """Return a batch whose sharding keys spread it over all queues."""
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {
            "body": [b"%d" % number for number in numbers],
            "sharding_key": [f"s{number}" for number in numbers],
            **columns,
        }
    )


async def stage(
    transactions: StagedTransactions, version: int, *batches: pa.RecordBatch, **options: Any
) -> StagedWrite:
    writer = transactions.writer("job", version, topic="T", **options)
    for each in batches:
        await writer.write(each)
    return await writer.close()


async def bodies(cluster: RealCluster, topic: str = "T") -> list[int]:
    async with PullConsumer("reader", cluster.namesrv) as consumer:
        found = [int(message.body) async for message in consumer.stream(topic, start="earliest", stop_at_end=True)]
    return sorted(found)


async def test_nothing_is_seen_before_the_commit_and_all_after_it(
    cluster: RealCluster, transactions: StagedTransactions
) -> None:
    """Over two brokers; the messages are committed transactional ones, with keys, tags and properties; a part that is
    not named in the commit is dropped."""
    rows = batch(0, 100, tags=["t"] * 100, keys=[f"k{n}" for n in range(100)], topic=["T"] * 100)
    part = await stage(transactions, 0, rows, batch(100, 50), chunk_bytes=4096)
    assert set(part.chunks) == {"a", "b"}
    assert part.rows == 150
    other = await stage(transactions, 0, batch(1000, 10))
    assert await bodies(cluster) == []
    assert not await transactions.is_committed("job", 0)
    assert await transactions.commit("job", 0, [part])
    assert await bodies(cluster) == list(range(150))
    assert await transactions.is_committed("job", 0)
    async with PullConsumer("reader", cluster.namesrv) as consumer:
        found = [m async for m in consumer.stream("T", start="earliest", stop_at_end=True) if m.body == b"7"]
    assert (found[0].tags, list(found[0].keys)) == ("t", ["k7"])
    assert found[0].sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT
    with pytest.raises(BrokerAnswerError, match="chunks here"):
        await transactions.commit("job", 1, [other])


async def test_a_second_run_changes_nothing(cluster: RealCluster, transactions: StagedTransactions) -> None:
    """The program died after its commit: rows that it stages again are dropped, whichever brokers get them; an abort
    after the commit changes nothing, and a repeated commit succeeds.
    """
    part = await stage(transactions, 3, batch(0, 20))
    assert await transactions.commit("job", 3, [part])
    await transactions.abort([part])
    assert not await transactions.commit("job", 3, [part])
    again = await stage(transactions, 3, batch(0, 20))
    assert not await transactions.commit("job", 3, [again])
    assert await bodies(cluster) == list(range(20))
    following = await stage(transactions, 4, batch(20, 5))
    assert await transactions.commit("job", 4, [following])
    assert await bodies(cluster) == list(range(25))


async def test_an_abort_drops_what_was_staged(cluster: RealCluster, transactions: StagedTransactions) -> None:
    """Only the named part is dropped; the other one can be committed."""
    bad, good = await stage(transactions, 0, batch(0, 10)), await stage(transactions, 0, batch(50, 10))
    await transactions.abort([bad])
    with pytest.raises(BrokerAnswerError, match="has 0 chunks here"):
        await transactions.commit("job", 0, [bad, good])
    assert await transactions.commit("job", 0, [good])
    assert await bodies(cluster) == list(range(50, 60))


async def prepare_and_commit(transactions: StagedTransactions, part: StagedWrite, token: str, *commits: str) -> None:
    """Prepare and commit as ``commit`` does, at these brokers only."""
    participants = sorted(part.chunks)
    for broker in participants:
        header = transactions._header(
            part.transactional_id, part.version, PREPARE, [(part.attempt, part.chunks[broker])], token=token,
            coordinator="a", participants=participants,
        )  # fmt: skip
        assert (await transactions._end(broker, header)).state == PREPARED
    for broker in commits:
        header = transactions._header(
            part.transactional_id, part.version, COMMIT, [], token=token, coordinator="a", participants=participants
        )
        await transactions._commit_at(broker, header)


async def test_a_run_that_died_between_two_brokers_is_finished(
    cluster: RealCluster, transactions: StagedTransactions
) -> None:
    """The coordinator has committed, the other broker has not: the next run brings the first one to its end, though
    its own rows are spread otherwise."""
    part = await stage(transactions, 0, batch(0, 40))
    assert len(part.chunks) == 2
    await prepare_and_commit(transactions, part, "first", "a")
    seen = await bodies(cluster)
    assert 0 < len(seen) < 40
    await transactions.abort([part])  # Spark aborts what it does not know to be committed: the prepare holds
    again = await stage(transactions, 0, batch(0, 40, sharding_key=["one"] * 40))
    assert not await transactions.commit("job", 0, [again])
    assert await bodies(cluster) == list(range(40))


async def test_a_run_that_died_before_it_decided_is_replaced(
    cluster: RealCluster, transactions: StagedTransactions
) -> None:
    """Both brokers are prepared, none has committed: the next run takes over, and the first cannot commit any more."""
    part = await stage(transactions, 0, batch(0, 40))
    await prepare_and_commit(transactions, part, "first")
    again = await stage(transactions, 0, batch(100, 40))
    assert await transactions.commit("job", 0, [again])
    for broker in ("a", "b"):
        header = transactions._header("job", 0, COMMIT, [], token="first", coordinator="a", participants=["a", "b"])
        await transactions._commit_at(broker, header)  # it learns that this is committed, unlike its own rows
    assert await bodies(cluster) == list(range(100, 140))


async def test_a_lost_prepare_is_reported(cluster: RealCluster, transactions: StagedTransactions) -> None:
    """One broker has committed, the other has lost its part: no run gets a success."""
    part = await stage(transactions, 0, batch(0, 40))
    await prepare_and_commit(transactions, part, "first", "a")
    await cluster.brokers.pop("b").stop()
    for path in sorted(cluster.data_dir("b").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    await cluster.add("b")
    with pytest.raises(InDoubt, match="b no longer has its part"):
        await transactions.commit("job", 0, [part])


async def test_a_broker_that_was_restarted_knows_everything(
    cluster: RealCluster, transactions: StagedTransactions
) -> None:
    """Parts staged before the restart can be committed after it; committed transactions stay committed."""
    done = await stage(transactions, 0, batch(0, 30))
    assert await transactions.commit("job", 0, [done])
    part = await stage(transactions, 1, batch(30, 30))
    for name in ("a", "b"):
        await cluster.brokers.pop(name).stop()
    for name in ("a", "b"):
        await cluster.add(name)
    assert not await transactions.commit("job", 0, [done])
    assert await transactions.commit("job", 1, [part])
    assert await bodies(cluster) == list(range(60))


async def test_a_broker_that_is_away_is_waited_for_and_then_named(
    cluster: RealCluster, transactions: StagedTransactions
) -> None:
    """No commit happens while one of the brokers cannot report whether an earlier run has committed."""
    part = await stage(transactions, 0, batch(0, 40))
    await cluster.brokers.pop("b").stop()
    transactions.patience.wait_ms = 300
    with pytest.raises(BrokersUnreachableError, match="b"):
        await transactions.commit("job", 0, [part])
    await cluster.add("b")
    transactions.patience.wait_ms = 5000
    assert await transactions.commit("job", 0, [part])
    assert await bodies(cluster) == list(range(40))


async def test_a_deleted_topic_stops_the_commit(cluster: RealCluster, transactions: StagedTransactions) -> None:
    """The messages would have no queue: the commit raises before it decides."""
    part = await stage(transactions, 0, batch(0, 10))
    async with Admin(cluster.namesrv) as admin:
        await admin.delete_topic("T")
    with pytest.raises(BrokerAnswerError, match="topic T was deleted"):
        await transactions.commit("job", 0, [part])


async def test_many_commits_beside_plain_sends(cluster: RealCluster, transactions: StagedTransactions) -> None:
    """Versions of several transactional ids at once, while a producer sends: each message arrives once."""

    async def plain() -> None:
        async with Producer("plain", cluster.namesrv) as producer:
            for number in range(10_000, 10_200):
                await producer.send(Message("T", b"%d" % number))

    async def one(transactional_id: str, first: int) -> None:
        for version in range(10):
            writer = transactions.writer(transactional_id, version, topic="T")
            await writer.write(batch(first + 20 * version, 20))
            assert await transactions.commit(transactional_id, version, [await writer.close()])

    await asyncio.gather(plain(), *(one(f"n{index}", 1000 * index) for index in range(3)))
    expected = [1000 * index + number for index in range(3) for number in range(200)] + list(range(10_000, 10_200))
    assert Counter(await bodies(cluster)) == Counter(expected)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"body": [b"x", None]}, "row 1 refused, column body: it is null"),
        ({"body": [b"x", b""]}, "row 1 refused, column body: it is empty"),
        ({"body": [b"x", b"y"], "tags": ["a", "b\x01"]}, "row 1 refused, column tags"),
        ({"body": [1, 2]}, "'body' is int64"),
        ({"body": [b"x", b"y"], "keys": [1, 2]}, "'keys' is int64, not string"),
        ({"body": [b"x", b"y"], "colour": ["r", "g"]}, "'colour'"),
    ],
)
async def test_a_bad_row_is_named(transactions: StagedTransactions, columns: dict[str, list[Any]], words: str) -> None:
    """The error has column, row and mistake; no row of the batch is staged."""
    writer = transactions.writer("job", 0, topic="T")
    with pytest.raises(Exception, match=words):
        await writer.write(pa.RecordBatch.from_pydict(columns))
    assert (await writer.close()).chunks == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"transactional_id": ""}, "printable characters"),
        ({"transactional_id": "a\nb"}, "printable characters"),
        ({"transactional_id": "n" * 256}, "printable characters"),
        ({"version": -1}, "negative"),
        ({"action": 9}, "action 9"),
        ({"attempts": [("a", 1), ("a", 2)]}, "named twice"),
        ({"attempts": [("a", 0)]}, "without chunks"),
        ({"attempts": [("a" * 300, 1)]}, "more than 64 characters"),
        ({"participants": ["b"] * 300}, "300 brokers"),
        ({"action": PREPARE}, "without token"),
        ({"token": "other"}, "not prepared with this token"),
        ({"attempts": [("never", 1)]}, "has 0 chunks here"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(
    transactions: StagedTransactions, changes: dict[str, Any], words: str
) -> None:
    """Whatever a client sends, the broker names the mistake and changes nothing."""
    await stage(transactions, 0, batch(0, 4))
    fields: dict[str, Any] = {"transactional_id": "job", "version": 0, "action": COMMIT, "attempts": [], **changes}
    header = StagedEndRequestHeader(producer_group="g", **fields)
    with pytest.raises(BrokerAnswerError, match=words):
        await transactions._end("a", header)
    assert not await transactions.is_committed("job", 0)


async def test_versions_far_below_the_last_commits_are_refused(transactions: StagedTransactions) -> None:
    """No broker remembers their result, so neither "done" nor "new" would be true."""
    for version in range(10, 30):
        assert await transactions.commit("job", version, [await stage(transactions, version, batch(0, 40))])
    late = batch(0, 40)  # for both brokers
    with pytest.raises(BrokerAnswerError, match="whether it was committed is unknown"):
        await stage(transactions, 3, late)
