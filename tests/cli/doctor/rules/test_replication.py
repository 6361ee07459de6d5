"""The doctor on masters and slaves."""

from typing import Any

import pytest

from pocketmq.cli.doctor.areas import area_lines
from pocketmq.cli.doctor.broker_metrics import BrokerMetrics, BrokerSettings
from pocketmq.cli.doctor.diagnosis import diagnose
from pocketmq.cli.doctor.finding import Area, Light, Severity
from tests.cli.doctor.snapshots import found_by, refusal, settings, snapshot, telemetry, the

MASTER: dict[str, Any] = {
    "haRole": "SYNC_MASTER",
    "haEpoch": "3",
    "haInSyncCopies": "2",
    "haInSyncCopiesNeeded": "2",
    "haSlaves": "1",
    "haSlaveBehindBytesMax": "0",
    "haSlaveTimeouts": "0",
    "haSlaveNotAvailable": "0",
    "haWaiters": "0",
}


def test_a_healthy_pair_is_green() -> None:
    """No finding, and a line with role, epoch and copies."""
    assert found_by(telemetry(), **MASTER) == found_by(telemetry())
    metrics = BrokerMetrics(snapshot(telemetry(), **MASTER), BrokerSettings({}))
    line = next(line for line in area_lines(metrics, []) if line.area is Area.REPLICATION)
    assert line.light is Light.GREEN
    assert line.text.startswith("SYNC_MASTER, epoch 3; 2 copies in sync, SEND_OK needs 2")


def test_too_few_copies_explain_slave_not_available() -> None:
    """With the copies, the lag and the count as evidence."""
    told: dict[str, Any] = {
        **MASTER,
        "haInSyncCopies": "1",
        "haSlaveNotAvailable": "12",
        "haSlaveBehindBytesMax": str(300 << 20),
    }
    finding = the(diagnose(snapshot(telemetry(), **told), settings()), "slave-not-available")
    assert finding.severity is Severity.ERROR
    assert "1 of 2 copies in sync" in finding.evidence[0]
    assert "300 MiB" in finding.evidence[0]
    assert "12 such answers" in finding.evidence[0]


def test_timeouts_that_grow_explain_flush_slave_timeout() -> None:
    """A growing count is an error, an old one a note."""
    before = snapshot(telemetry(), at_ms=90_000, **MASTER)
    now = snapshot(telemetry(), **{**MASTER, "haSlaveTimeouts": "7", "haWaiters": "3"})
    finding = the(diagnose(now, settings(), before), "slave-timeout")
    assert "FLUSH_SLAVE_TIMEOUT" in finding.title
    assert "7 since the previous check" in finding.evidence[0]
    assert "slave-timeouts-before" in {each.key for each in diagnose(now, settings())}


@pytest.mark.parametrize(
    ("told", "key"),
    [
        ({"haRole": "FENCED", "haEpoch": "3", "haFencedBy": "10.0.0.2:10911"}, "fenced-by-epoch"),
        (
            {"haRole": "SLAVE", "haEpoch": "3", "haConnected": "false", "haLastError": "refused: other cluster"},
            "slave-follows-nobody",
        ),
        ({"haRole": "SLAVE", "haConnected": "true", "haBehindBytes": str(1 << 30)}, "slave-behind"),
    ],
)
def test_other_states_have_their_finding(told: dict[str, Any], key: str) -> None:
    """A replaced master, a slave alone, a slave far behind."""
    assert key in found_by(telemetry(), **told)


def test_refusals_of_a_replaced_master_are_explained() -> None:
    """The finding has their cause and the cure."""
    told = telemetry(refusals=[refusal("fenced_by_epoch", "service not available now", code=14)])
    texts = [finding.cure for finding in diagnose(snapshot(told), settings())]
    assert any("pocketmq ha demote" in text for text in texts)
