"""Faults that a retry store did not report, or lost entries: counts, order and callers stay right."""

import asyncio
import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import IdentifiedMessage, Message
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.durable import DurableRetry, GivenUpError, RetryRule, StoredForRetry
from pocketmq.client.durable.entry import Entry, KeptMessage, encode_kept, lane_of
from pocketmq.client.durable.errors import RetryStoreFull, RetryStoreRefused, RetryStoreUnreachable
from pocketmq.client.durable.options import RetryOptions
from pocketmq.client.durable.resender import Resender
from pocketmq.client.durable.rocksdb_store import RocksDBStore
from pocketmq.client.durable.store import Changes
from pocketmq.client.durable.worker import StoreWorker, ToKeep
from pocketmq.client.message.identified_message import uniq_keys_of
from pocketmq.common.clock import SystemClock
from pocketmq.common.message_id import UniqueIdGenerator
from pocketmq.common.runner import LoopMailbox, ThreadRunner
from tests.client.durable.fakes import FaultyStore
from tests.client.durable.test_durable_retry import producer_of, real
from tests.client.durable.test_resender import Owner, Port
from tests.client.durable.test_worker import Bench
from tests.client.real_cluster import RealCluster

__all__ = ["real"]

LANE = lane_of(MessageQueue("T", "a", 0))


@pytest.mark.parametrize("lane", ["", LANE])
@pytest.mark.parametrize("given_up", [False, True])
def test_a_removal_whose_answer_was_lost_is_counted_once(
    lane: str, given_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store removed it without a confirmation, and was reopened; counted wrongly, a waiting key would look free."""
    bench = Bench()
    bench.step()
    bench.add("one", lane=lane, key="k" if lane else "")
    bench.add("two", lane=lane, key="k" if lane else "")
    bench.step()
    one = bench.answers[0][1][0]
    write = bench.store.write

    def in_doubt(changes: Changes) -> None:
        write(changes)
        raise RetryStoreUnreachable("answer lost")

    removal = Changes(given_up=[(one, "why")]) if given_up else Changes(removed=[one])
    monkeypatch.setattr(bench.store, "write", in_doubt)
    bench.change("gone", removal)
    bench.step()
    monkeypatch.setattr(bench.store, "write", write)
    bench.clock.advance_ms(600)
    bench.change("gone", removal)
    bench.step()
    assert bench.openings[-1][0] == 2, "it waits until its removal is confirmed"
    summary = bench.worker.summary
    assert (summary.count, summary.given_up_count) == (1, int(given_up))
    assert summary.lanes == ({LANE: {"k": 1}} if lane else {})


def test_what_is_removed_does_not_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full store accepts removals, though additions in the same write are refused."""
    bench = Bench()
    bench.step()
    bench.add("a")
    bench.step()
    [entry] = bench.answers[-1][1]
    write = bench.store.write

    def full(changes: Changes) -> None:
        if changes.added:
            raise RetryStoreFull("full")
        write(changes)

    monkeypatch.setattr(bench.store, "write", full)
    bench.add("more")
    bench.change("gone", Changes(removed=[entry]))
    bench.step()
    errors = {name: error for name, _, error in bench.answers}
    assert isinstance(errors["more"], RetryStoreFull)
    assert errors["gone"] is None
    assert bench.worker.summary.count == 0


def test_a_message_that_cannot_be_written_is_reported_and_harms_no_other() -> None:
    """A text that is no Unicode once ended the step, and with it the answers of the whole write."""
    bench = Bench()
    bench.step()
    kept = KeptMessage(topic="T", body=b"x", uniq_key=b"", keys="\udc80")
    bench.add("before")
    bench.worker.add([ToKeep(kept, "", 1)], lambda result, error: bench.answers.append(("bad", result, error)))
    bench.add("behind")
    bench.step()
    errors = {name: error for name, _, error in bench.answers}
    assert isinstance(errors["bad"], RetryStoreRefused)
    assert errors["before"] is errors["behind"] is None
    assert bench.worker.summary.count == 2


def test_payloads_without_a_place_get_one_at_a_repair(tmp_path: Path) -> None:
    """A repair that loses the file with the index would leave messages that are neither sent nor counted."""
    store = RocksDBStore(str(tmp_path / "r"), sync=False, clock=SystemClock())
    store.open()
    plain = encode_kept(KeptMessage(topic="T", body=b"plain", uniq_key=b"id"))
    keyed = encode_kept(
        KeptMessage(topic="T", body=b"keyed", uniq_key=b"id", order_key="k", sharding_key="k", broker="a", queue_id=0)
    )
    store.write(
        Changes(added=[Entry(1, 5, 0, "", "", plain), Entry(2, 0, 0, LANE, "k", keyed), Entry(3, 5, 2, "", "", plain)])
    )
    assert store._db is not None
    for key in [key for key, _ in store._range(b"d", b"p") if key[:1] in b"do"][1:]:
        del store._db[key]
    store.close()
    assert "2 messages" in store.repair()
    summary = store.open()
    assert (summary.count, summary.lanes) == (3, {LANE: {"k": 1}})
    assert [entry.seq for entry in store.due((0, 0), 1 << 50, 10, 1 << 20)] == [1, 3]
    assert [entry.order_key for entry in store.lane(LANE, 0, 10, 1 << 20)] == ["k"]
    store.close()


async def test_who_waits_for_a_message_that_a_store_lost_is_told(real: RealCluster) -> None:
    """After a store comes back empty, ``delivered`` raises instead of waiting for ever."""
    real.refuse("a")
    store = FaultyStore()
    retry = DurableRetry(store, reopen_ms=50, rules=(RetryRule(backoff_ms_first=60_000, backoff_ms_max=60_000),))
    async with producer_of(real.namesrv, retry) as producer:
        receipt = await producer.send(Message("Orders", b"one"))
        assert isinstance(receipt, StoredForRetry)
        store.write(Changes(removed=store.due((0, 0), 1 << 60, 10, 1 << 20)))
        store.write_error = RetryStoreUnreachable("away")
        with pytest.raises(Exception, match="NOT safe"):
            await producer.send(Message("Orders", b"two"))
        store.write_error = None
        async with asyncio.timeout(60):
            with pytest.raises(GivenUpError, match="lost it"):
                await receipt.delivered()


class ShiftedClock(SystemClock):
    shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms


async def test_a_clock_that_is_put_back_delays_nothing_for_as_long() -> None:
    """Due times suddenly lie an hour ahead: waiting messages are sent now, not in an hour."""
    port, owner, store = Port(random.Random(1)), Owner(), FaultyStore()
    port.failing = 0.0
    port.clock = clock = ShiftedClock()
    opened: asyncio.Event = asyncio.Event()
    worker = StoreWorker(
        store,
        ThreadRunner(),
        LoopMailbox(asyncio.get_running_loop()),
        clock,
        port.log,
        RetryOptions(count_max=100, size_bytes_max=1 << 20, keys_max=100, lease_ms=3_000, reopen_ms=100),
        opened=lambda summary, note: opened.set(),
        failed=lambda error: None,
    )
    worker.start()
    await opened.wait()
    typed: Any = port
    resender = Resender(typed, worker, RetryOptions(), owner)
    resender.opened([])
    resender.start()
    await asyncio.sleep(0.05)
    done: asyncio.Event = asyncio.Event()

    def added(entries: Any, error: Any) -> None:
        resender.added(entries)
        done.set()

    worker.add([ToKeep(KeptMessage(topic="T", body=b"x", uniq_key=b"id"), "", 3_600_000)], added)
    await done.wait()
    await asyncio.sleep(0.05)
    assert owner.results == []
    clock.shift_ms = -3_600_000
    resender._wake.set()  # as any later event does, or the check once a minute
    async with asyncio.timeout(60):
        while not owner.results:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await resender.stop(5)
    worker.stop(lambda: None)
    worker.join()


def test_a_kind_of_identified_message_keeps_its_id() -> None:
    """This holds for an application's own subclass, too."""

    class Order(IdentifiedMessage):
        pass

    msg_id = uuid.uuid5(uuid.NAMESPACE_URL, "orders/1").hex.upper()
    message = Order("T", b"x", msg_id=msg_id)
    assert uniq_keys_of([message], UniqueIdGenerator(SystemClock())) == [msg_id.encode()]
