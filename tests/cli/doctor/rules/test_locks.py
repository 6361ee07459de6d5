"""The doctor on queue locks of ordered consumption."""

from typing import Any

from pocketmq.cli.doctor.areas import area_lines
from pocketmq.cli.doctor.broker_metrics import BrokerMetrics, BrokerSettings
from pocketmq.cli.doctor.diagnosis import diagnose
from pocketmq.cli.doctor.finding import Area, Finding, Severity
from pocketmq.remoting.protocol.lock import LockInfo, LockWaiter
from tests.cli.doctor.snapshots import found_by, keys, settings, snapshot, telemetry, the


def lock(queue_id: int = 5, *, waiting_ms: int = 0, **changes: Any) -> LockInfo:
    """Return a lock that was renewed a second ago; ``waiting_ms``: another client waits for it."""
    values: dict[str, Any] = {
        "consumer_group": "G",
        "topic": "T",
        "queue_id": queue_id,
        "client_id": "10.0.0.6@29",
        "address": "10.0.0.6:51000",
        "age_ms": 90_000,
        "renewed_ms_ago": 1_000,
        "expires_in_ms": 59_000,
        "waiting": [LockWaiter("10.0.0.122@29", waiting_ms, 100, 3)] if waiting_ms else [],
    }
    return LockInfo(**{**values, **changes})


def found(*locks: LockInfo) -> list[Finding]:
    return diagnose(snapshot(telemetry(), locks=locks), settings())


def test_a_dead_holder_is_an_error_that_names_queue_holder_and_waiting_client() -> None:
    """It missed a renewal while another client waits: the end and the cure are named."""
    dead = [lock(number, waiting_ms=30_000, renewed_ms_ago=30_000, expires_in_ms=30_000) for number in range(4)]
    finding = the(found(*dead), "ordered-queues-locked")
    assert finding.severity is Severity.ERROR
    assert "4 ordered queues of group G" in finding.title
    assert "T queue 0, group G: held by 10.0.0.6@29" in finding.evidence[0]
    assert "10.0.0.122@29 waits for 30 s" in finding.evidence[0]
    assert finding.evidence[-1] == "and 1 queue more: pocketmq lock list"
    assert "within 30 s" in finding.cure
    assert "pocketmq lock release" in finding.cure


def test_a_lost_connection_proves_the_holder_silent_at_once() -> None:
    """A broker that releases locks of lost connections tells when."""
    finding = the(found(lock(waiting_ms=100, release_in_ms=4_000)), "ordered-queues-locked")
    assert "connection lost, released in 4.00 s" in finding.evidence[0]


def test_a_holder_that_renews_is_a_warning_when_another_waits_for_long() -> None:
    """A short wait belongs to every change of members."""
    finding = the(found(lock(waiting_ms=12_000)), "ordered-queues-contended")
    assert finding.severity is Severity.WARNING
    assert found(lock(waiting_ms=800)) == []


def test_locks_for_which_no_client_waits_are_no_finding() -> None:
    """Also an expired one: its group may have stopped. The line counts them."""
    assert found_by(telemetry()) == keys(found(lock(renewed_ms_ago=70_000, expires_in_ms=-10_000)))
    metrics = BrokerMetrics(snapshot(telemetry(), locks=[lock()]), BrokerSettings({}))
    [line] = [line for line in area_lines(metrics, []) if line.area is Area.LOCKS]
    assert line.text == "1 queue lock held; clients wait for 0 of them"
