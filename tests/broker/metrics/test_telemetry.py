"""Telemetry: counts reach the runtime table, and the lines that operators know are written in time."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.broker.metrics.slow_requests import SlowRequests
from pocketmq.broker.metrics.sources import Sources
from pocketmq.broker.metrics.telemetry import Telemetry
from pocketmq.broker.metrics.watermarks import Watermarks
from pocketmq.broker.request.executor import AdaptiveDrain, DrainExecutor
from pocketmq.broker.request.request_task import AnswerPort, Task
from pocketmq.broker.send.send_times import PutTiming, SendTimes
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.flush_times import FlushTimes
from pocketmq.broker.stats.put_statistics import LABELS, PutStatistics
from pocketmq.broker.stats.stage_times import SEND_PAIR, STAGE_COUNT, Stage, StageTimes
from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import SteppedRunner
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import KVTable, decode_body
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.telemetry import TELEMETRY_KEY, decode_telemetry
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.message_store import MessageStore
from tests.broker.conftest import eventually, store_config
from tests.broker.fakes import DirectMailbox, FakeConnection, make_request

MS = 1_000_000


class World:
    """Telemetry over a store that is not open, with a manual clock; no thread runs."""

    def __init__(self, tmp_path: Path, **settings: Any) -> None:
        self.clock = ManualClock()
        self.logs: dict[str, CapturedLog] = {}
        self.store = MessageStore(
            store_config(tmp_path, **settings), clock=self.clock, runner=SteppedRunner(), log=self.logger("store")
        )
        direct: Any = DirectMailbox()
        nothing: Any = None
        self.executor = DrainExecutor(
            SEND_PAIR,
            nothing,
            count_max=100,
            size_bytes_max=1 << 20,
            threads=1,
            drain=AdaptiveDrain(8, 1 << 20),
            max_wait_ms=200,
            runner=SteppedRunner(),
            answers=AnswerPort(direct),
            clock=self.clock,
            log=self.logger("broker"),
        )
        self.stage_times = StageTimes()
        self.slow = SlowRequests(500, self.clock, self.logger("broker"))
        self.sources = Sources(
            store=self.store,
            counters=BrokerCounters(),
            executors=[self.executor],
            swept={SEND_PAIR: 4},
            refusals=list,
            refused_requests=RefusedRequests(self.clock, self.logger("broker")),
            stage_times=self.stage_times,
            put_times=PutStatistics(),
            flush_times=FlushTimes(self.store),
            slow=self.slow,
        )
        watermarks = Watermarks([self.executor], self.clock.monotonic_ns(), self.logger("watermark"))
        self.telemetry = Telemetry(self.sources, watermarks, None, direct, self.clock, self.logger)

    def logger(self, name: str) -> CapturedLog:
        return self.logs.setdefault(name, CapturedLog())

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.clock.advance_ms(1000)
            self.telemetry.step()

    def enqueue(self) -> None:
        connection: Any = FakeConnection()
        self.executor.offer(Task(connection, make_request(), self.clock.monotonic_ns(), 10))

    def lines(self, logger: str) -> list[str]:
        return [event["event"] for event in self.logs[logger].events]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_watermarks_come_each_second_while_something_waits(world: World) -> None:
    """First after ten seconds; nothing while idle; size and age of the head in RocketMQ's words."""
    world.seconds(9)
    assert world.lines("watermark") == []
    world.seconds(30)
    assert world.lines("watermark") == []
    world.enqueue()
    world.seconds(2)
    assert world.lines("watermark") == [
        "[WATERMARK] Send Queue Size: 1 SlowTimeMills: 1000",
        "[WATERMARK] Send Queue Size: 1 SlowTimeMills: 2000",
    ]
    assert world.logs["watermark"].events[-1]["slow_time_mills"] == 2000
    world.executor.queue.clear()
    world.seconds(59)
    assert world.lines("watermark")[2:] == ["[WATERMARK] Send Queue Size: 0 SlowTimeMills: 0"]
    world.seconds(2)
    assert len(world.lines("watermark")) == 3


def test_put_times_are_printed_each_minute_and_begin_again(world: World) -> None:
    """Two lines a minute to the store logger, one last time with zeros, then none until the next put."""
    world.sources.put_times.record(3 * MS, 7)
    world.sources.counters.put(7, 700)
    world.seconds(59)
    assert world.lines("store") == []
    world.seconds(1)
    [rt, tps] = world.lines("store")
    assert rt.startswith("[PAGECACHERT] TotalPut 7, PutMessageDistributeTime [<=0ms]:0 [0~10ms]:7 [10~50ms]:0 ")
    assert tps.startswith("[STORETPS] put_tps 0.")
    assert all(label in rt for label in LABELS)
    world.seconds(60)
    assert "TotalPut 0," in world.lines("store")[2]
    world.seconds(180)
    assert len(world.lines("store")) == 4


def test_a_lock_that_is_held_long_is_logged_while_it_is(world: World) -> None:
    """Once, then every ten seconds: not only when it is over and too late."""
    lock = world.store.log.lock
    with lock:
        world.clock.advance_ms(400)
        world.telemetry.step()
        assert world.lines("lock") == []
        world.seconds(11)
        [first, second] = world.logs["lock"].of("append_lock_held")
        assert (first["held_ms"], first["page_cache_busy"]) == (1400, True)
        assert second["held_ms"] == 11_400
        assert world.telemetry.snapshot().page_cache.busy
        assert world.telemetry.snapshot().page_cache.busy_episodes == 1
    world.seconds(1)
    assert len(world.logs["lock"].events) == 2
    cache = world.telemetry.snapshot().page_cache
    assert (cache.busy, cache.lock_held_ms, cache.longest_hold_ms_last_minute) == (False, 0, 11_400)


def test_a_put_counts_lock_append_and_flush(world: World) -> None:
    """The whole put until its acknowledgement; the flush wait only of waiting requests; a long hold is logged once."""
    times = SendTimes(
        world.stage_times.pair(SEND_PAIR),
        world.sources.put_times,
        world.sources.flush_times,
        True,
        world.clock,
        world.logger("lock"),
    )
    result = AppendResult(PutStatus.PUT_OK, lock_wait_ns=1 * MS, append_ns=600 * MS)
    begin_ns = world.clock.monotonic_ns()
    drained_ns = [0] * STAGE_COUNT
    drained_ns[Stage.LOCK_WAIT], drained_ns[Stage.APPEND] = 1 * MS, 600 * MS
    put_timing = PutTiming(begin_ns, begin_ns + 2 * MS, begin_ns + 610 * MS, drained_ns)
    world.clock.advance_ms(612)
    connection: Any = FakeConnection()
    sends: Any = [SimpleNamespace(task=Task(connection, make_request(), begin_ns, 1))]
    times.answering(sends, begin_ns, result, put_timing, waited=False)
    world.clock.advance_ms(30)
    _, _, oldest_ns, stages_ns, _ = times.answering(sends, begin_ns, result, put_timing, waited=True)
    assert oldest_ns == begin_ns
    assert [label for label, count in world.sources.put_times.window() if count] == ["[500ms~1s]"]
    assert world.sources.put_times.max_ms == 640
    assert world.stage_times.pair(SEND_PAIR).window(Stage.FLUSH_WAIT).max_ns == 32 * MS
    assert stages_ns[Stage.FLUSH_WAIT] == 32 * MS
    assert stages_ns[Stage.PROCESS] == 9 * MS
    [event] = world.logs["lock"].of("append_lock_slow")
    assert (event["held_ms"], event["lock_wait_ms"]) == (600, 1)


def test_the_window_is_about_a_minute(world: World) -> None:
    """Times older than six slots of ten seconds are gone from the snapshot, which has the length of its window."""
    world.sources.put_times.record(0, 5)
    world.stage_times.pair(SEND_PAIR).record_ns(Stage.APPEND, 1000, 5)
    world.seconds(45)
    snapshot = world.telemetry.snapshot()
    assert snapshot.window_s == 45
    assert sum(bucket.count for bucket in snapshot.put_times) == 5
    world.seconds(20)
    snapshot = world.telemetry.snapshot()
    assert 50 <= snapshot.window_s <= 60
    assert sum(bucket.count for bucket in snapshot.put_times) == 0
    assert all(stage.count == 0 for stage in snapshot.stages)


def test_flushes_are_counted_each_with_its_time(world: World) -> None:
    """The latest counts as measured, the others since the last reading with their mean."""
    log: Any = world.store.log
    times = world.sources.flush_times
    log.flush_count, log.flush_ns_total, log.last_flush_ns = 1, 5 * MS, 5 * MS
    times.look()
    times.look()
    log.flush_count, log.flush_ns_total, log.last_flush_ns = 4, 5 * MS + 2 * MS + 2 * MS + 9 * MS, 9 * MS
    flush = world.telemetry.snapshot().flush
    assert (flush.count, flush.max_us, flush.mode, flush.fenced) == (4, 9000, "ASYNC_FLUSH", False)
    assert times.totals().sum_ns == 18 * MS


def test_a_sync_under_way_shows_how_long_it_runs(world: World) -> None:
    """A disk that stands still ends no sync, so that only this shows it."""
    assert world.telemetry.snapshot().flush.running_ms == 0
    world.store.log.flush_began_ns = world.clock.monotonic_ns()
    world.clock.advance_ms(3_500)
    assert world.telemetry.snapshot().flush.running_ms == 3_500


def test_midnight_is_remembered_twice() -> None:
    """This morning's and yesterday morning's totals, as RocketMQ's BrokerStats keeps them."""
    counters = BrokerCounters()
    day_ms = 86_400_000
    counters.put(10, 1)
    counters.sample(0, 1_700_000_000_000)
    assert (counters.this_morning.put, counters.yesterday_morning.put) == (0, 0)
    counters.sample(1, 1_700_000_000_000 + day_ms)
    counters.put(5, 1)
    counters.sample(2, 1_700_000_000_000 + day_ms + 1000)
    assert (counters.this_morning.put, counters.yesterday_morning.put) == (10, 0)
    counters.sample(3, 1_700_000_000_000 + 2 * day_ms)
    assert (counters.this_morning.put, counters.yesterday_morning.put) == (15, 10)
    assert counters.totals.put == 15


async def test_the_runtime_table_has_rocketmqs_keys_and_ours(broker: Any, client: Any) -> None:
    """A real send through a real connection shows in put times, in every stage it passed, and in the pair's counts."""
    await client.put(b"one", b"two")

    async def counted() -> dict[str, str] | None:  # a drain is counted a moment after its answers have left
        response = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        table: dict[str, str] = decode_body(response.body, KVTable).table
        rows = decode_telemetry(table[TELEMETRY_KEY]).stages
        return table if any(row.pair == SEND_PAIR and row.count for row in rows) else None

    table = await eventually(counted)
    assert {
        "putMessageEntireTimeMax",
        "putMessageDistributeTime",
        "putLatency99",
        "putLatency999",
        "pageCacheLockTimeMills",
        "remainTransientStoreBufferNumbs",
        "remainHowManyDataToCommit",
        "remainHowManyDataToFlush",
        "commitLogDiskRatio",
        "consumeQueueDiskRatio",
        "commitLogMinOffset",
        "msgPutTotalTodayMorning",
        "msgPutTotalYesterdayMorning",
        "msgGetTotalTodayMorning",
        "EndTransactionQueueSize",
        "EndTransactionThreadPoolQueueCapacity",
        "sendThreadPoolQueueHeadWaitTimeMills",
    } <= set(table)
    assert table["putMessageTimesTotal"] == "1"
    assert table["remainTransientStoreBufferNumbs"] == "2147483647"  # RocketMQ's value without a pool; 0 is an alarm
    assert 0 < float(table["commitLogDiskRatio"]) < 1
    assert 0 < float(table["consumeQueueDiskRatio"]) < 1
    snapshot = decode_telemetry(table[TELEMETRY_KEY])
    stages = {(stage.pair, stage.stage): stage for stage in snapshot.stages}
    for stage in ("queue_wait", "lock_wait", "append", "process"):
        assert stages[SEND_PAIR, stage].count == 1, stage
        assert stages[SEND_PAIR, stage].max_us > 0 or stage == "lock_wait"
    assert stages[SEND_PAIR, "flush_wait"].count == 0
    assert stages["all", "read"].count >= 2
    assert stages["all", "write"].count >= 1
    assert sum(bucket.count for bucket in snapshot.put_times) == 1
    send = next(pair for pair in snapshot.pairs if pair.name == SEND_PAIR)
    assert (send.served, send.drains, send.max_wait_ms, send.queue_capacity) == (1, 1, 60_000, 10_000)
    assert snapshot.pool is None
    assert snapshot.page_cache.timeout_ms == 1000


async def test_sync_flush_counts_the_wait_for_the_flush(harness: Any) -> None:
    """Append end → acknowledged, once for each request that waited; and each sync is counted."""
    app = await harness.broker(store_settings={"flush_disk_type": "SYNC_FLUSH"})
    client = await harness.client(app)
    for _ in range(3):
        await client.put(b"x")

    def flush_waits() -> int:
        stages = app.observation.telemetry.snapshot().stages
        return sum(stage.count for stage in stages if (stage.pair, stage.stage) == (SEND_PAIR, "flush_wait"))

    await eventually(lambda: flush_waits() == 3)  # sends that their own thread has synced are counted a moment later
    snapshot = app.observation.telemetry.snapshot()
    assert snapshot.flush.mode == "SYNC_FLUSH"
    assert snapshot.flush.count == 3
    assert snapshot.flush.max_us > 0
