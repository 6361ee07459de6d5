"""The broker's log reports on each interval: refusals by kind, stages, replicas; none while it is idle."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.metrics.interval_log import KINDS_MAX, IntervalLog
from pocketmq.broker.metrics.slow_requests import SlowRequests
from pocketmq.broker.metrics.sources import Sources
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.flush_times import FlushTimes
from pocketmq.broker.stats.put_statistics import PutStatistics
from pocketmq.broker.stats.stage_times import SEND_PAIR, Stage, StageTimes
from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import SteppedRunner
from pocketmq.remoting.protocol.ha import HaSlaveBody
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.store.message_store import MessageStore
from tests.broker.conftest import store_config

MS = 1_000_000


class Node:
    """A synchronous master with one slave in sync, and its counters."""

    def __init__(self) -> None:
        self.timeouts = 0
        self.service = self

    def status(self) -> Any:
        slaves = [HaSlaveBody(is_in_sync=True)]
        counts = {"served": 0, "timeouts": self.timeouts, "not_available": 0, "refused": 0}
        return SimpleNamespace(role="SYNC_MASTER", in_sync_replicas=2, slaves=slaves, **counts)


class World:
    """An interval log over counters that a test moves, with a manual clock; no thread runs."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock = ManualClock()
        self.log = CapturedLog()
        self.store = MessageStore(store_config(tmp_path), clock=self.clock, runner=SteppedRunner(), log=CapturedLog())
        self.counters = BrokerCounters()
        self.refusal_stats = RefusalStats(self.clock, CapturedLog())
        self.stages = StageTimes()
        self.puts = PutStatistics()
        self.node = Node()
        node: Any = self.node
        sources = Sources(
            store=self.store,
            counters=self.counters,
            executors=[],
            swept={},
            refusals=self.refusal_stats.snapshot,
            refused_requests=RefusedRequests(self.clock, CapturedLog()),
            stage_times=self.stages,
            put_times=self.puts,
            flush_times=FlushTimes(self.store),
            slow=SlowRequests(500, self.clock, CapturedLog()),
            node=node,
        )
        self.intervals = IntervalLog("broker-a", sources, self.clock, self.log)

    def slot(self, *, end: bool = False) -> list[dict[str, Any]]:
        """Let ten seconds pass; return their events."""
        before = len(self.log.events)
        self.clock.advance_ms(10_000)
        self.intervals.step(self.clock.monotonic_ns(), end=end)
        return self.log.events[before:]

    def put(self, append_ms: int, count: int = 1) -> None:
        self.counters.put(count, 100 * count)
        self.stages.pair(SEND_PAIR).record_ns(Stage.APPEND, append_ms * MS, count)
        self.puts.record(append_ms * MS, count)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_quiet_minute_is_one_event_and_an_idle_one_is_none(world: World) -> None:
    """Without trouble a report covers a minute; an idle broker writes none."""
    for _ in range(12):
        assert world.slot() == []
    world.put(1, 50)
    told = [event for _ in range(6) for event in world.slot()]
    assert [event["event"] for event in told] == ["interval"]
    (event,) = told
    assert (event["broker"], event["for_ms"], event["put_count"], event["append_count"]) == ("broker-a", 60_000, 50, 50)
    assert 1.0 <= event["append_p99_ms"] <= 1.07
    assert event["whole_count"] == 50
    assert event["copies_in_sync"] == 2


def test_refusals_are_logged_at_once_by_kind_and_once(world: World) -> None:
    """Ten seconds with refusals make a report; the next one counts only later refusals."""
    world.put(1)
    world.refusal_stats.note("page_cache_busy", 2, "[REJECTREQUEST]system busy", 5)
    world.refusal_stats.note("page_cache_busy", 2, "[PCBUSY_CLEAN_QUEUE]broker busy", 2)
    interval, first, second = world.slot()
    assert (interval["event"], interval["refused_count"], interval["for_ms"]) == ("interval", 7, 10_000)
    assert [(event["tag"], event["count"]) for event in (first, second)] == [
        ("REJECTREQUEST", 5),
        ("PCBUSY_CLEAN_QUEUE", 2),
    ]
    world.refusal_stats.note("page_cache_busy", 2, "[REJECTREQUEST]system busy", 1)
    assert [event["count"] for event in world.slot() if event["event"] == "interval_refusals"] == [1]
    assert world.slot() == []


def test_stages_of_an_interval_are_its_own(world: World) -> None:
    """A slow minute does not affect the numbers of the next one, whatever the windows of the telemetry."""
    world.put(900)
    world.refusal_stats.note("queue_timeout", 2, "[TIMEOUT_CLEAN_QUEUE]x")
    world.stages.rotate()
    slow = world.slot()[0]
    assert 900 <= slow["append_max_ms"] <= 960
    world.put(1)
    world.refusal_stats.note("queue_timeout", 2, "[TIMEOUT_CLEAN_QUEUE]x")
    quick = world.slot()[0]
    assert (quick["append_count"], quick["whole_count"]) == (1, 1)
    assert quick["append_max_ms"] < 2


def test_slaves_that_time_out_are_trouble(world: World) -> None:
    """No send is refused, but some waited in vain: logged within ten seconds, as a difference."""
    world.node.timeouts = 3
    (event,) = world.slot()
    assert event["slave_timeouts"] == 3
    world.node.timeouts = 5
    (event,) = world.slot()
    assert event["slave_timeouts"] == 2
    assert world.slot() == []


def test_many_kinds_stay_below_the_limit_of_the_log(world: World) -> None:
    """The most frequent kinds have lines of their own, the others share one, within the log's limit for repeats."""
    for code in range(30):
        world.refusal_stats.note("bad_request", code, "x", code + 1)
    told = [event for event in world.slot() if event["event"] == "interval_refusals"]
    assert len(told) == KINDS_MAX + 1
    assert sum(event["count"] for event in told) == sum(range(1, 31))
    assert told[-1]["cause"] == "others"


def test_the_stop_of_a_broker_writes_the_last_report(world: World) -> None:
    """Changes since the last report are written when the broker stops."""
    world.put(1, 7)
    assert [event["put_count"] for event in world.slot(end=True)] == [7]
