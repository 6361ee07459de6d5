"""Staged transactions when runs of one transaction meet, or brokers are away: never rows of two runs, never rows twice;
refusals where the state is unknown.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pocketmq.broker.staged import staged_checks
from pocketmq.broker.staged.staged_service import StagedService
from pocketmq.client.admin.admin import Admin
from pocketmq.client.errors import BrokerAnswerError
from pocketmq.client.staged.chunk_target import BrokersUnreachableError
from pocketmq.client.staged.staged_transaction import (
    COMMIT,
    COMMITTED,
    PREPARE,
    PREPARED,
    InDoubt,
    RowsLost,
    StagedTransactions,
    StagedWrite,
)
from pocketmq.remoting.protocol.staged import StagedEndRequestHeader, StagedResponseHeader
from pocketmq.testing.broker import STORE_SETTINGS
from tests.client import real_cluster
from tests.client.real_cluster import RealCluster
from tests.client.stories.test_staged_transactions import batch, bodies, stage

BOTH = ["a", "b"]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RealCluster]:
    running = RealCluster(tmp_path)
    await running.start("a", "b")
    await running.create_topic("T", 2)
    yield running
    await running.stop_all()


@pytest.fixture
async def transactions(cluster: RealCluster) -> AsyncIterator[StagedTransactions]:
    async with StagedTransactions("etl", cluster.namesrv, wait_ms=5000) as running:
        yield running


def keyed(*numbers: int, key: str) -> pa.RecordBatch:
    """Return rows for one queue."""
    return pa.RecordBatch.from_pydict({"body": [b"%d" % n for n in numbers], "sharding_key": [key] * len(numbers)})


async def stage_at(transactions: StagedTransactions, broker: str, version: int = 0) -> StagedWrite:
    """Stage two rows at one broker."""
    for number in range(50):
        part = await stage(transactions, version, keyed(1, 2, key=f"q{number}"))
        if list(part.chunks) == [broker]:
            return part
        await transactions.abort([part])
    raise AssertionError(f"no key goes to {broker}")


async def add_brokers(transactions: StagedTransactions) -> None:
    await transactions._add_brokers("job", 0, (), staged_checks.ADD_BROKERS)


async def prepare_at(
    transactions: StagedTransactions,
    part: StagedWrite,
    broker: str,
    token: str,
    epoch: int = 0,
    brokers: Sequence[str] = BOTH,
) -> StagedResponseHeader:
    header = transactions._header(
        part.transactional_id, part.version, PREPARE, [(part.attempt, part.chunks[broker])], token=token,
            coordinator="a", participants=BOTH,
        brokers=brokers,
    )  # fmt: skip
    fields = {name: getattr(header, name) for name in StagedEndRequestHeader.__struct_fields__}
    return await transactions._end(broker, StagedEndRequestHeader(**{**fields, "epoch": epoch}))


async def commit_at(transactions: StagedTransactions, part: StagedWrite, broker: str, token: str) -> None:
    header = transactions._header(
        part.transactional_id, part.version, COMMIT, [], token=token, coordinator="a", participants=BOTH, brokers=BOTH
    )
    await transactions._commit_at(broker, header)


async def test_a_late_prepare_of_an_older_run_is_refused(
    cluster: RealCluster, transactions: StagedTransactions
) -> None:
    """Run 1 prepares the coordinator and is delayed; run 2 prepares both brokers; the later prepare of run 1 at the
    other broker is refused. So that broker delivers run 2's rows, as the coordinator does.
    """
    run1 = await stage(transactions, 0, batch(0, 40))
    run2 = await stage(transactions, 0, batch(0, 40, sharding_key=[f"z{n * 7}" for n in range(40)]))
    await add_brokers(transactions)
    old = await prepare_at(transactions, run1, "a", "t1")
    new = await prepare_at(transactions, run2, "a", "t2")
    assert new.epoch > old.epoch
    await prepare_at(transactions, run2, "b", "t2", new.epoch)
    with pytest.raises(BrokerAnswerError, match="another run of the same transaction has taken it over"):
        await prepare_at(transactions, run1, "b", "t1", old.epoch)
    await commit_at(transactions, run2, "a", "t2")
    await commit_at(transactions, run2, "b", "t2")
    run3 = await stage(transactions, 0, batch(0, 40))
    assert not await transactions.commit("job", 0, [run3])
    assert await bodies(cluster) == list(range(40))


async def test_parts_of_two_runs_are_reported(cluster: RealCluster, transactions: StagedTransactions) -> None:
    """A broker with a part of another run than the committed one is not made to deliver it."""
    run1, run2 = await stage(transactions, 0, batch(0, 40)), await stage(transactions, 0, batch(0, 40))
    await add_brokers(transactions)
    new = await prepare_at(transactions, run2, "a", "t2")
    await prepare_at(transactions, run1, "b", "t1", new.epoch)
    await commit_at(transactions, run2, "a", "t2")
    with pytest.raises(InDoubt, match="parts of different runs: a t2, b t1"):
        await transactions.commit("job", 0, [run1])


@pytest.mark.slow
async def test_a_broker_that_the_name_server_forgot_is_waited_for(
    cluster: RealCluster, transactions: StagedTransactions
) -> None:
    """The other broker knows that it belongs to the transactional id: a second run does not commit without it, and once
    it is back changes nothing. A run that declares it permanently gone commits, and from then on only the other broker
    has the id.
    """
    part = await stage_at(transactions, "a")
    assert await transactions.commit("job", 0, [part])
    await cluster.stop("a")
    async with StagedTransactions("etl", cluster.namesrv, wait_ms=300) as replay:
        again = await stage(replay, 0, keyed(1, 2, key="x"))
        assert list(again.chunks) == ["b"]
        with pytest.raises(BrokersUnreachableError, match="one of them may have committed this before"):
            await replay.commit("job", 0, [again])
        with pytest.raises(BrokersUnreachableError):
            await replay.is_committed("job", 0)
    async with StagedTransactions("etl", cluster.namesrv, wait_ms=300, gone=["a"]) as knowing:
        following = await stage(knowing, 1, keyed(3, key="x"))
        assert await knowing.commit("job", 1, [following])
    await cluster.add("a")
    assert not await transactions.commit("job", 0, [again])
    assert await bodies(cluster) == [1, 2, 3]


async def test_runs_with_parts_on_different_brokers_have_one_coordinator(
    cluster: RealCluster, transactions: StagedTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two drivers have one small part each, on different brokers, and both have asked before either commits: the rows
    of one of them become visible."""
    parts = [await stage_at(transactions, broker) for broker in BOTH]
    async with StagedTransactions("etl", cluster.namesrv, wait_ms=5000) as second:
        barrier = asyncio.Barrier(2)

        def held(run: StagedTransactions) -> None:
            ask, asked = run._add_brokers, False

            async def slowly(*args: Any) -> Any:
                nonlocal asked
                states = await ask(*args)
                if not asked:
                    asked = True
                    await barrier.wait()
                return states

            monkeypatch.setattr(run, "_add_brokers", slowly)

        held(transactions)
        held(second)
        async with asyncio.timeout(60):
            done = await asyncio.gather(
                transactions.commit("job", 0, [parts[0]]), second.commit("job", 0, [parts[1]]), return_exceptions=True
            )
        assert sum(each is True for each in done) <= 1
        assert not await transactions.commit("job", 0, parts)
    assert await bodies(cluster) == [1, 2]


async def test_who_knows_too_few_brokers_is_refused(cluster: RealCluster, transactions: StagedTransactions) -> None:
    """A run whose name server lists one broker neither prepares nor commits once another run knows of two."""
    part = await stage_at(transactions, "b")
    await add_brokers(transactions)
    alone = transactions._header("job", 0, COMMIT, [(part.attempt, part.chunks["b"])], brokers=["b"])
    with pytest.raises(BrokerAnswerError, match="the brokers of this transactional id are a, b"):
        await transactions._end("b", alone)
    with pytest.raises(BrokerAnswerError, match="this request names b: add all of them"):
        await prepare_at(transactions, part, "b", "t", brokers=["b"])
    assert await transactions.commit("job", 0, [part])
    assert await bodies(cluster) == [1, 2]


@pytest.mark.slow
async def test_the_brokers_of_a_name_are_remembered_as_long_as_its_commits(
    cluster: RealCluster, transactions: StagedTransactions
) -> None:
    """They are written once, and again for a commit that is to be remembered longer; a restart changes nothing."""
    for version, hours in enumerate((2, 2, 48, 2)):
        part = await stage(transactions, version, keyed(version, key="k"))
        assert await transactions.commit("job", version, [part], keep_hours=hours)
    for name in BOTH:
        (service,) = _services(cluster, name)
        with service.staged_log.lock:
            brokers, until_ms = service.staged_log.table.brokers("job")
        assert brokers == BOTH
        assert 47 < (until_ms - service.staged_log.now_ms()) / 3_600_000 <= 48
    for name in BOTH:
        await cluster.stop(name)
    for name in BOTH:
        await cluster.add(name)
        again, again_until_ms = _services(cluster, name)[0].staged_log.table.brokers("job")
        assert again == BOTH
        assert abs(again_until_ms - until_ms) < 60_000
    assert await transactions.is_committed("job", 3)


async def test_a_commit_that_failed_before_its_decision_undoes_its_prepares(
    cluster: RealCluster, transactions: StagedTransactions
) -> None:
    """One broker lacks the part to prepare: the coordinator is free again, and an abort drops its part."""
    part = await stage(transactions, 0, batch(0, 40))
    await transactions.abort([StagedWrite("job", 0, part.attempt, {"b": part.chunks["b"]})])
    with pytest.raises(BrokerAnswerError, match="has 0 chunks here"):
        await transactions.commit("job", 0, [part])
    assert {each.state for each in (await transactions._states("job", 0, BOTH)).values()} <= {0, 1}
    await transactions.abort([part])
    assert {each.state for each in (await transactions._states("job", 0, BOTH)).values()} == {0}


async def test_a_run_without_rows_takes_over_what_is_prepared(
    cluster: RealCluster, transactions: StagedTransactions
) -> None:
    """It is committed empty: the run that had prepared it can no longer commit its rows."""
    part = await stage(transactions, 0, batch(0, 40))
    await add_brokers(transactions)
    epoch = (await prepare_at(transactions, part, "a", "t1")).epoch
    await prepare_at(transactions, part, "b", "t1", epoch)
    assert await transactions.commit("job", 0, [])
    states = await transactions._states("job", 0, BOTH)
    assert {each.state for each in states.values()} == {COMMITTED}
    await commit_at(transactions, part, "a", "t1")  # it learns that this is committed, unlike its own rows
    assert not await transactions.commit("job", 0, [part])
    assert await bodies(cluster) == []


async def test_a_commit_of_another_run_is_not_taken_for_the_own(
    cluster: RealCluster, transactions: StagedTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run 1 has prepared the coordinator; run 2 commits a part there; run 1 prepares the other broker, which does not
    know run 2, and commits: the coordinator answers that it has committed another run, and no further row becomes
    visible.
    """
    first, second = await stage_at(transactions, "b"), await stage_at(transactions, "a")
    end = transactions._end

    async def interrupted(broker: str, header: StagedEndRequestHeader) -> StagedResponseHeader:
        answer = await end(broker, header)
        if broker == "a" and header.action == PREPARE:
            monkeypatch.undo()
            async with StagedTransactions("etl", cluster.namesrv, wait_ms=5000) as other:
                assert await other.commit("job", 0, [second])
        return answer

    monkeypatch.setattr(transactions, "_end", interrupted)
    assert not await transactions.commit("job", 0, [first])
    assert (await transactions._states("job", 0, BOTH))["b"].state == 0
    assert await bodies(cluster) == [1, 2]


@pytest.mark.slow
async def test_a_commit_that_is_not_complete_says_how_to_end_it(
    cluster: RealCluster, transactions: StagedTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker goes away between its prepare and its commit: the error names the transaction; a commit without rows
    ends it when the broker is back.
    """
    part = await stage(transactions, 7, batch(0, 40))
    commit = transactions._commit_at

    async def without_b(broker: str, header: StagedEndRequestHeader) -> StagedResponseHeader:
        answer = await commit(broker, header)
        if broker == "a":
            await cluster.stop("b")
            transactions.patience.wait_ms = 300
        return answer

    monkeypatch.setattr(transactions, "_commit_at", without_b)
    with pytest.raises(
        BrokersUnreachableError, match=r"job 7 is committed, but not yet at every broker.*commit 'job' 7 again"
    ):
        await transactions.commit("job", 7, [part], keep_hours=1)
    monkeypatch.undo()
    table = _services(cluster, "a")[0].staged_log.table
    done = table.get("job", 7)[2]
    assert done is not None
    assert done.keep_hours == 72 + 24  # longer than the other may stay prepared
    await cluster.add("b")
    transactions.patience.wait_ms = 5000
    assert not await transactions.commit("job", 7, [])
    assert await bodies(cluster) == list(range(40))


async def test_an_empty_commit_is_no_commit(
    cluster: RealCluster, transactions: StagedTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise any client could fill the table of ids with empty commits."""
    with pytest.raises(BrokerAnswerError, match="no part of it is here"):
        await transactions._end("a", transactions._header("job", 0, COMMIT, []))
    monkeypatch.setattr(staged_checks, "IDS_MAX", 0)
    transactions.patience.wait_ms = 600_000  # it does not wait: the table may be full for hours
    with pytest.raises(BrokerAnswerError, match="0 transactional ids are remembered"):
        await transactions._end("a", transactions._header("job", 0, PREPARE, [], token="t", coordinator="a"))


@pytest.mark.parametrize("queues", [1, 4])
async def test_a_topic_that_was_made_again_stops_the_commit(
    cluster: RealCluster, transactions: StagedTransactions, queues: int
) -> None:
    """It is another topic, with as many queues or fewer: no row is committed."""
    part = await stage(transactions, 0, batch(0, 40))
    async with Admin(cluster.namesrv) as admin:
        await admin.delete_topic("T")
        await admin.create_topic("T", queues=queues)
    with pytest.raises(BrokerAnswerError, match="topic T was deleted and created again"):
        await transactions.commit("job", 0, [part])
    assert await bodies(cluster) == []


async def test_a_commit_that_is_too_late_is_refused(cluster: RealCluster, transactions: StagedTransactions) -> None:
    """It was staged in time, but sixteen later ones were committed since: the broker would forget it at once."""
    slow = await stage(transactions, 0, keyed(0, key="k"))
    for version in range(1, 17):
        assert await transactions.commit("job", version, [await stage(transactions, version, keyed(1, key="k"))])
    with pytest.raises(BrokerAnswerError, match="whether it was committed is unknown"):
        await transactions.commit("job", 0, [slow])
    assert Counter(await bodies(cluster)) == {1: 16}


async def test_lost_rows_are_told_each_time(
    cluster: RealCluster, transactions: StagedTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk is lost from the log between commit and delivery: the program gets an error, then and later, unless it
    chose to go on.
    """
    part = await stage_at(transactions, "a")
    service = next(each for each in _services(cluster, "a"))
    service.is_held = lambda: True
    waits, when_delivered = asyncio.Event(), StagedService.when_delivered
    loop = asyncio.get_running_loop()

    def waiting(*args: Any) -> bool:
        loop.call_soon_threadsafe(waits.set)
        return when_delivered(*args)

    monkeypatch.setattr(StagedService, "when_delivered", waiting)
    commit = asyncio.create_task(transactions.commit("job", 0, [part]))
    async with asyncio.timeout(60):
        await waits.wait()
    service.staged_log.table.deliveries[0].chunks[0] = None
    service.is_held = lambda: False
    service.wake()
    with pytest.raises(RowsLost, match="1 chunks were gone from the log of a"):
        await commit
    await cluster.stop("a")
    await cluster.add("a")
    with pytest.raises(RowsLost):
        await transactions.commit("job", 0, [part])
    async with StagedTransactions("etl", cluster.namesrv, fail_on_data_loss=False) as careless:
        assert not await careless.commit("job", 0, [part])


def _services(cluster: RealCluster, name: str) -> list[StagedService]:
    running: Any = cluster.brokers[name]._running
    return [each for each in running.services if isinstance(each, StagedService)]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1 << 16, 1 << 20])
async def test_chunks_of_small_rows_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """However small a broker's largest message is, the bytes beside the rows count."""
    settings = {**STORE_SETTINGS, "max_message_size": limit}
    monkeypatch.setattr(real_cluster, "STORE_SETTINGS", settings)
    cluster = RealCluster(tmp_path)
    await cluster.start("a")
    await cluster.create_topic("T", 2)
    async with StagedTransactions("etl", cluster.namesrv, wait_ms=2000) as transactions:
        part = await stage(transactions, 0, pa.RecordBatch.from_pydict({"body": [b"1"] * 20_000}))
        assert part.chunks["a"] > 2
        assert (await transactions._states("job", 0, ["a"]))["a"].state not in (PREPARED, COMMITTED)
        assert await transactions.commit("job", 0, [part])
    assert len(await bodies(cluster)) == 20_000
    await cluster.stop_all()
