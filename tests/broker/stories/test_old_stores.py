"""Today's broker and clients on stores of earlier versions: tables, and all pending messages."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import ConsumeFromWhere, LocalTransactionState, PushConsumer, ReceivedMessage, TransactionProducer
from pocketmq.client.staged_transaction import StagedTransactions, StagedWrite
from pocketmq.common.clock import SystemClock
from pocketmq.common.record_codec import decode_record
from pocketmq.common.topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.verify import verify
from pocketmq.testing.broker import PocketBroker
from tests.store.old_stores import NAMES, OldStore, unpacked

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
WAIT_S = 30
RETRIED, DEAD = b"order 1 order 1 ", b"order 3 " * 4
LATER_RETRIED = b"order 2 " * 3
PENDING_HALVES = [b"in doubt 0", b"in doubt 1"]
COMMIT, ROLLBACK = LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class ClockOf(SystemClock):
    """The machine's clock, set to the time at which a store was written, or to a later one."""

    __slots__ = ("ahead_ms",)

    def __init__(self, now_ms: int) -> None:
        self.ahead_ms = now_ms - SystemClock().now_ms()

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def elapsed_ns(self) -> int:  # type: ignore[override]
        """The hours that a test adds pass: nobody sets the clock."""
        return SystemClock.elapsed_ns() + self.ahead_ms * 1_000_000


@pytest.fixture(params=NAMES, ids="-".join)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> OldStore:
    """One store of an earlier version, unpacked."""
    commit, name = request.param
    return unpacked(commit, name, tmp_path)


@pytest.fixture
def clock(old: OldStore) -> ClockOf:
    return ClockOf(old.now_ms)


@pytest.fixture
def broker(old: OldStore, clock: ClockOf) -> Iterator[PocketBroker]:
    settings = {"broker_name": "old", "transaction_check_interval": 100, "transaction_time_out": 100}
    store = {**old.settings, "file_reserved_time": 1000, "sync_on_close": True}
    with PocketBroker(broker=settings, store=store, data_dir=old.directory, clock=clock) as running:
        yield running


def bodies(broker: PocketBroker, topic: str, queue_id: int = 0) -> list[bytes]:
    """Return the messages of a queue."""
    store, found = broker.app.store, []
    for at in range(store.max_offset(topic, queue_id)):
        got = store.get(topic, queue_id, at, max_messages=1, max_bytes=1 << 20)
        found.append(decode_record(got.body.tobytes()).body)
    return found


async def until(condition: Callable[[], bool]) -> None:
    """Wait until another thread has met a condition."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_tables_are_taken_over(old: OldStore, broker: PocketBroker) -> None:
    """Topics with their queues, groups, offsets; the deleted topic stays deleted; half messages stay open."""
    app = broker.app
    topics, _ = app.topics.snapshot()
    found = {name: [each.read_queue_nums, each.write_queue_nums, each.perm] for name, each in topics.items()}
    assert found == old.topics
    assert (old.topics["grown"], old.topics["shrunk"]) == ([4, 4, 6], [4, 2, 6])
    assert "gone" not in topics
    assert app.store.max_offset("gone", 0) == app.store.max_offset("gone", 1) == 0
    assert sorted(app.groups.names()) == old.groups
    for group, offsets in old.offsets.items():
        assert {topic: app.offsets.of(group, topic) for topic in app.offsets.topics_of(group)} == offsets
    assert sum(old.offsets["billing"]["orders"].values()) == 60
    assert app.transactions is not None
    assert [half.queue_offset for half in app.transactions.table.pending()] == old.halves
    assert [old.of(HALF_TOPIC)[at]["body"] for at in old.halves] == PENDING_HALVES


async def test_delays_stay_pending_and_are_delivered_when_due(
    old: OldStore, broker: PocketBroker, clock: ClockOf
) -> None:
    """Each is delivered once and in time: levels of one and two hours, timers of an hour and of two days."""
    delays = broker.app.delays
    assert delays is not None
    waiting = {each["body"] for queue_id in (16, 17) for each in old.of(SCHEDULE_TOPIC, queue_id)}
    assert waiting == {b"level 17", *(b"level 18, %d" % at for at in range(3)), LATER_RETRIED}
    timers = {each["body"] for each in old.of(TIMER_TOPIC)} - {b"in 400 ms"}
    assert timers == {b"in an hour", b"in two days"}
    before = [each["body"] for each in old.of("single")]
    await asyncio.to_thread(delays.step)  # at the time of the recording
    assert bodies(broker, "single") == before
    assert bodies(broker, "%RETRY%billing") == [RETRIED]
    at_three_hours = Counter(before) + Counter(waiting - {LATER_RETRIED}) + Counter([b"in an hour"])

    def pass_hours(hours: int) -> None:
        clock.ahead_ms += hours * HOUR_MS
        delays.notify_dispatched([(TIMER_TOPIC, 0, 0)])  # its thread checks now, not a second later

    pass_hours(3)
    await until(lambda: len(bodies(broker, "single")) >= at_three_hours.total())
    await until(lambda: len(bodies(broker, "%RETRY%billing")) == 2)
    assert Counter(bodies(broker, "single")) == at_three_hours
    assert bodies(broker, "%RETRY%billing") == [RETRIED, LATER_RETRIED]
    pass_hours(46)
    await until(lambda: b"in two days" in bodies(broker, "single"))
    await asyncio.to_thread(broker.restart)
    assert Counter(bodies(broker, "single")) == at_three_hours + Counter([b"in two days"])


async def test_open_halves_are_checked_back_and_decided(old: OldStore, broker: PocketBroker, clock: ClockOf) -> None:
    """A producer of their group is asked; its commits are delivered once, and a restart knows the decision."""
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> LocalTransactionState:
        asked.append(message.body)
        return COMMIT if message.body == b"in doubt 0" else ROLLBACK

    clock.ahead_ms += 60_000
    transactions = broker.app.transactions
    assert transactions is not None
    async with TransactionProducer("payers", broker.namesrv, check=check):
        await until(lambda: not transactions.table.pending())
    assert set(asked) == set(PENDING_HALVES)
    wanted = Counter({b"committed": 1, b"rolled back": 0, b"in doubt 0": 1, b"in doubt 1": 0})
    await until(lambda: b"in doubt 0" in bodies(broker, "single"))
    await asyncio.to_thread(broker.restart)
    found = Counter(bodies(broker, "single"))
    assert {body: found[body] for body in wanted} == wanted
    assert broker.app.transactions is not None
    assert broker.app.transactions.table.pending() == []


async def test_a_consumer_continues_at_its_offsets_and_gets_the_retry(old: OldStore, broker: PocketBroker) -> None:
    """Only unread messages, and the message that it had sent back, with its count of attempts."""
    found: Counter[bytes] = Counter()
    attempts: dict[bytes, int] = {}
    consumer = PushConsumer("billing", broker.namesrv, consume_from_where=FIRST)

    @consumer.subscribe("orders")
    def bill(message: ReceivedMessage) -> None:
        found[message.body] += 1
        attempts[message.body] = message.reconsume_times

    offsets = old.offsets["billing"]["orders"]
    fresh = [each["body"] for each in old.of("orders") if each["queue_offset"] >= offsets[each["queue_id"]]]
    assert len(fresh) == 20
    async with consumer:
        await until(lambda: found.total() >= 21)
    assert found == Counter(fresh) + Counter([RETRIED])
    assert (attempts[RETRIED], attempts[fresh[0]]) == (1, 0)
    assert bodies(broker, "%DLQ%billing") == [DEAD]


async def test_staged_transactions_are_remembered_and_can_be_committed(old: OldStore, broker: PocketBroker) -> None:
    """Committed ones stay so; open ones are committed now, and dropped ones are gone."""

    def rows() -> Counter[bytes]:
        return Counter(body for queue_id in range(2) for body in bodies(broker, "staged", queue_id))

    committed = Counter(b"row %d" % at for at in range(20))
    assert rows() == committed
    async with StagedTransactions("etl", broker.namesrv, wait_ms=5000) as transactions:
        assert await transactions.is_committed("job", 0)
        assert not await transactions.is_committed("job", 1)
        assert not await transactions.commit("job", 0, [])
        assert await transactions.commit("job", 1, [StagedWrite("job", 1, "a1", {"old": 1}, 20)])
        await until(lambda: rows().total() >= 40)  # with a write-buffer pool they are visible after the next commit
        assert rows() == committed + Counter(b"row %d" % at for at in range(20, 40))
        await asyncio.to_thread(broker.restart)
        assert await transactions.is_committed("job", 1)


def test_it_verifies_after_todays_broker(old: OldStore, broker: PocketBroker) -> None:
    """After a start and a clean stop the store is sound; one more start finds it stopped cleanly."""
    broker.restart()
    ends: dict[Any, int] = {(topic, queue_id): end for topic, queue_id, _, end in broker.app.store.queues()}
    broker.stop()
    report = verify(StoreReader.open(str(old.directory)), level="full")
    assert report.ok, report
    assert not report.is_open
    assert sum(ends.values()) >= len(old.messages)
