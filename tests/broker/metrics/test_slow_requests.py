"""Slow requests: the slowest stage is named, few are logged, all are counted."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.metrics.slow_requests import EVENTS_PER_SECOND_MAX, KEPT_NS, SLOWEST_MAX, SlowRequests, topic_of
from pocketmq.broker.request.request_task import Task
from pocketmq.broker.stats.stage_times import SEND_PAIR, STAGE_COUNT, Stage
from pocketmq.common.clock import ManualClock, SystemClock
from pocketmq.common.logs import CapturedLog
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.pull import NativePullRequestHeader
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader, SendMessageV2RequestHeader
from pocketmq.store.commitlog.append_lock import AppendLock
from tests.broker.conftest import Client, eventually, store_config
from tests.broker.fakes import FakeConnection, make_request

MS = 1_000_000


class World:
    """A clock, a log, and timings made of waits in ms."""

    def __init__(self, threshold_ms: int = 500) -> None:
        self.clock = ManualClock()
        self.log = CapturedLog()
        self.slow = SlowRequests(threshold_ms, self.clock, self.log)
        self.connection: Any = FakeConnection()

    def answer(self, *waits_ms: int, append_ms: int = 0, flush_ms: int = 0, write_ms: int = 0) -> None:
        """Answer requests that waited this long in the queue, oldest first, now."""
        now_ns = self.clock.monotonic_ns()
        started_ns = now_ns - (append_ms + flush_ms + write_ms) * MS
        header = NativeAppendRequestHeader("producers", True, [("Topic", 0, 1)], 3000)
        tasks = [
            Task(self.connection, make_request(RequestCode.NATIVE_APPEND, header), started_ns - wait_ms * MS, 10)
            for wait_ms in waits_ms
        ]
        stages_ns = [0] * STAGE_COUNT
        stages_ns[Stage.APPEND] = append_ms * MS
        stages_ns[Stage.FLUSH_WAIT] = flush_ms * MS
        self.slow.finished((SEND_PAIR, tasks, tasks[0].created_ns, stages_ns, started_ns), write_ms * MS, now_ns)


def test_a_quick_request_is_not_logged() -> None:
    world = World()
    world.answer(300, 200, append_ms=100, write_ms=99)
    assert (world.slow.count, world.log.events, world.slow.slowest()) == (0, [], [])


def test_one_event_names_the_slowest_stage_and_all_stages() -> None:
    """Code, topic, peer, and every stage in ms: enough to find the cause."""
    world = World()
    world.answer(20, append_ms=30, flush_ms=600, write_ms=1)
    [event] = world.log.events
    assert event["event"] == "slow_request_flush_wait"
    assert event["slowest_stage"] == "flush_wait"
    assert event["code"] == RequestCode.NATIVE_APPEND
    assert (event["topic"], event["remote"], event["pair"]) == ("Topic", "127.0.0.1:5000", SEND_PAIR)
    assert {key: value for key, value in event.items() if key.endswith("_ms")} == {
        "total_ms": 651,
        "queue_wait_ms": 20,
        "append_ms": 30,
        "flush_wait_ms": 600,
        "write_ms": 1,
    }
    [slowest] = world.slow.slowest()
    assert (slowest.total_ms, slowest.slowest_stage, slowest.stages["append"]) == (651, "flush_wait", 30)


def test_requests_of_one_drain_have_the_cause_that_is_theirs() -> None:
    """Early requests waited longer than the append took; late ones did not; quick ones are not logged."""
    world = World()
    world.answer(900, 500, 150, 50, append_ms=400)
    assert [event["slowest_stage"] for event in world.log.events] == ["queue_wait", "queue_wait", "append"]
    assert world.slow.count == 3


def test_at_most_ten_a_second_of_one_cause_and_the_rest_is_counted() -> None:
    """A flood of one cause leaves room for another; the number left out is logged later."""
    world = World()
    world.answer(*([700] * 4000))
    world.answer(1, append_ms=800)
    told = [event["event"] for event in world.log.events]
    assert told == ["slow_request_queue_wait"] * EVENTS_PER_SECOND_MAX + ["slow_request_append"]
    assert world.slow.count == 4001
    world.slow.log_left_out()
    assert len(world.log.events) == EVENTS_PER_SECOND_MAX + 1
    world.clock.advance_ms(1000)
    world.slow.log_left_out()
    world.slow.log_left_out()
    assert [event["left_out"] for event in world.log.events[EVENTS_PER_SECOND_MAX + 1 :]] == [3990]
    world.answer(700)
    assert world.log.events[-1]["left_out"] == 0


def test_the_slowest_of_the_last_minute_are_kept() -> None:
    """Bounded, slowest first, requests that were not logged included."""
    world = World()
    world.answer(5000)
    for extra in range(40):
        world.answer(600 + extra)
    slowest = world.slow.slowest()
    assert [slow.total_ms for slow in slowest][:3] == [5000, 639, 638]
    assert len(slowest) == SLOWEST_MAX
    world.clock.advance_ms(KEPT_NS / 1e6)
    world.answer(700)
    assert [slow.total_ms for slow in world.slow.slowest()] == [700]


def test_a_frame_that_arrives_slowly_has_an_event_of_its_own() -> None:
    """It is the client's or the network's time."""
    world = World()
    world.slow.read_slowly("10.0.0.1:1", make_request(RequestCode.HEART_BEAT), 900 * MS)
    [event] = world.log.events
    assert (event["event"], event["read_ms"], event["remote"]) == ("slow_request_read", 900, "10.0.0.1:1")


def test_the_topic_is_found_where_a_header_has_one() -> None:
    send = SendMessageV2RequestHeader("g", "A", "TBW102", 4, 0, 0, 1, 0)
    pull = NativePullRequestHeader("g", [("B", 0, 0)], 1, 1, 0, "*")
    assert [topic_of(make_request(header=header)) for header in (send, pull, None)] == ["A", "B", ""]


@pytest.mark.parametrize("short_path", [False, True])
async def test_a_real_broker_logs_a_send_that_waits_for_the_lock(
    tmp_path: Path, short_path: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through socket, queue, store and back: the event names the wait for the append lock, with the topic."""
    clock, log = ManualClock(), CapturedLog()
    config = BrokerConfig(listen_port=0, short_path_enable=short_path)
    app = BrokerApp(config, store_config(tmp_path / "store"), clock=clock, log=log)
    await app.start()
    pool = ChannelPool(clock=SystemClock(), log=CapturedLog())
    client = await Client(pool, app.address).connect()
    await client.put(b"first")
    waits, wait = threading.Event(), AppendLock._wait

    def waiting(lock: AppendLock) -> None:
        waits.set()
        wait(lock)

    monkeypatch.setattr(AppendLock, "_wait", waiting)
    with app.store.log.lock:
        send = asyncio.create_task(client.put(b"second"))
        await eventually(waits.is_set)
        clock.advance_ms(700)
    await send
    [event] = await eventually(lambda: log.of("slow_request_lock_wait"))
    assert event["topic"] == "T"
    assert event["lock_wait_ms"] >= 500
    await pool.close()
    await app.stop()
