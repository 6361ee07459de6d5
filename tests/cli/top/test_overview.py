"""The rows and lines of ``pocketmq top``."""

import pytest

from pocketmq.cli.top.drawing import KEYS, age, rate, screen
from pocketmq.cli.top.overview import Sort, overview_of
from pocketmq.dashboard.options import DoctorFinding
from pocketmq.dashboard.watch.state import BrokerState, ClusterState, GroupState, GroupTopic, TopicState
from pocketmq.remoting.telemetry import RefusalCount, TelemetrySnapshot


def cluster() -> ClusterState:
    """Two masters, a RocketMQ slave, three topics, three groups, refusals of two causes."""
    state = ClusterState(revision=2, at_ms=1_700_000_000_000)
    for number, (name, broker_id, put, refused) in enumerate(
        [("a", 0, 50.0, 3), ("b", 0, 200.0, 0), ("b", 1, 0.0, -1)]
    ):
        broker = BrokerState(name, broker_id, f"10.0.0.{number}:10911", version="PocketMQ")
        broker.puts.append(put)
        broker.gets.append(10.0 * number)
        if refused >= 0:
            counts = [RefusalCount(cause="disk_full", remark="full", total=refused, last_minute=refused)]
            counts.append(RefusalCount(cause="page_cache_busy", remark="busy", total=9, last_minute=0))
            broker.telemetry = TelemetrySnapshot(refusals=counts)
        state.brokers[broker.address] = broker
    for name, each in (("fast", 200.0), ("slow", 1.0), ("idle", 0.0)):
        state.topics[name] = TopicState(name)
        state.topics[name].rates.append(each)
    state.groups["far"] = GroupState("far", {"slow": GroupTopic("slow", lag=1000, tps=1.0, behind_ms=61_000)})
    state.groups["near"] = GroupState("near", {"fast": GroupTopic("fast", lag=5, tps=190.0)})
    state.groups["silent"] = GroupState("silent", {"idle": GroupTopic("idle")})
    return state


def test_each_order_puts_its_worst_first() -> None:
    state = cluster()
    by_lag = overview_of(state, Sort.LAG)
    assert [row.group for row in by_lag.groups] == ["far", "near"], "a group without lag or rate is left out"
    assert [row.topic for row in by_lag.topics] == ["slow", "fast"]
    assert by_lag.groups[0].lag_s == 61.0
    assert by_lag.groups[1].lag_s is None
    by_rate = overview_of(state, Sort.RATE)
    assert [row.group for row in by_rate.groups] == ["near", "far"]
    assert [row.topic for row in by_rate.topics] == ["fast", "slow"]
    assert [row.broker for row in by_rate.brokers] == ["b", "a", "b#1"]
    by_refusals = overview_of(state, Sort.REFUSALS)
    assert [(row.broker, row.refused) for row in by_refusals.brokers] == [("a", 3), ("b", 0), ("b#1", None)]


def test_totals_are_of_the_whole_cluster() -> None:
    """What masters store, what all brokers give, all lag; refusals of one cause are one row."""
    view = overview_of(cluster(), Sort.LAG)
    assert (view.in_rate, view.out_rate, view.lag, view.refused) == (250.0, 30.0, 1005, 3)
    assert [(row.cause, row.last_minute, row.total) for row in view.refusals] == [
        ("disk_full", 3, 3),
        ("page_cache_busy", 0, 18),
    ]
    assert view.health == "ok"


def test_health_has_its_reasons() -> None:
    """A broker that does not answer and what the doctor found are shown, at most four reasons at once."""
    state = cluster()
    state.brokers["10.0.0.0:10911"].error = "connection refused"
    state.findings = [DoctorFinding("b", "warning", f"pool-{number}", (), "", "") for number in range(5)]
    view = overview_of(state, Sort.LAG)
    assert view.health == "failing"
    assert [row.health for row in view.brokers] == ["does not answer", "pool-0; pool-1", "pool-0; pool-1"]
    lines = screen(view, Sort.LAG, 10)
    assert "health failing" in lines[0]
    assert "connection refused" in lines[1]
    assert "  ... 2 more reasons" in lines


def test_names_of_brokers_cannot_write_to_the_terminal() -> None:
    """Control characters in names, texts and reasons are replaced; long ones are cut; no line is too wide."""
    state = cluster()
    evil = "\x1b[2J\x9b31m\r\nname\u202e"
    state.groups[evil] = GroupState(evil, {"slow": GroupTopic("slow", lag=7)})
    state.topics[evil] = TopicState(evil)
    state.topics[evil].rates.append(5.0)
    state.problems[evil] = evil * 50
    lines = screen(overview_of(state, Sort.LAG), Sort.LAG, 10, width=100, height=30, keys=KEYS)
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 30


def test_a_large_cluster_fits_a_screen() -> None:
    """2,300 groups and 900 topics give their first rows, and how many more there are."""
    state = cluster()
    for number in range(2300):
        state.groups[f"g{number}"] = GroupState(f"g{number}", {"slow": GroupTopic("slow", lag=number)})
    lines = screen(overview_of(state, Sort.LAG), Sort.LAG, 3)
    begin = next(number for number, line in enumerate(lines) if line.startswith("group "))
    assert [line.split()[0] for line in lines[begin + 1 : begin + 4]] == ["g2299", "g2298", "g2297"]
    assert lines[begin + 4] == "... 2,298 more"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.44, "0.4 s"), (17, "17 s"), (720, "12 min"), (18_000, "5.0 h"), (270_000, "3.1 d")]
)
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_rates() -> None:
    assert [rate(each) for each in (0, 0.04, 7.25, 12_345.6)] == ["0", "0.0", "7.2", "12,346"]
