"""The doctor on masters and slaves."""

from typing import Any

import pytest

from pocketmq.cli.doctor.areas import area_lines
from pocketmq.cli.doctor.broker_metrics import BrokerMetrics, BrokerSettings, Peer
from pocketmq.cli.doctor.diagnosis import diagnose
from pocketmq.cli.doctor.finding import Area, Light, Severity
from pocketmq.remoting.protocol.ha import HaSlaveBody, HaStatusBody
from tests.cli.doctor.snapshots import found_by, refusal, settings, snapshot, stage, telemetry, the

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
    assert "300 MiB" in finding.evidence[1]
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


SLAVE: dict[str, Any] = {"haRole": "SLAVE", "haConnected": "false", "haLastError": "append refused: read-only"}
READ_ONLY = "append refused: Read-only file system"


def status(**changes: Any) -> HaStatusBody:
    """Return a slave that lacks 54 KiB of the master's MiB."""
    values: dict[str, Any] = {"broker_name": "a", "role": "SLAVE", "end_offset": (1 << 20) - (54 << 10)}
    return HaStatusBody(**{**values, **changes})


def test_a_stuck_slave_is_an_error_at_the_first_check() -> None:
    """Drains wait, and their stage or the age of the slave's data shows for how long."""
    waits = {**MASTER, "haWaiters": "150", "haSlaveTimeouts": "900"}
    frozen = telemetry(stages=[stage("replica_wait", p50=3000, p99=3003, longest=3003)])
    finding = the(diagnose(snapshot(frozen, **waits), settings()), "slave-timeout")
    assert finding.severity is Severity.ERROR
    assert "150 drains wait for a slave now; 900 such answers since the start" in finding.evidence[0]
    assert any("replica_wait: p50 3.00 s" in line for line in finding.evidence)
    seen = HaStatusBody(role="SYNC_MASTER", slaves=[HaSlaveBody(broker_id=1, behind_bytes=5, behind_ms=2_000)])
    young = diagnose(snapshot(telemetry(), ha=seen, **{**waits, "haSlaveTimeouts": "0"}), settings())
    assert the(young, "slave-timeout").severity is Severity.ERROR, "before the first send has timed out"


def test_a_slave_that_confirms_again_is_a_warning() -> None:
    """The window still shows the waits, and no drain waits now."""
    late = telemetry(stages=[stage("replica_wait", longest=3003)])
    finding = the(diagnose(snapshot(late, **{**MASTER, "haSlaveTimeouts": "7"}), settings()), "slave-timeout")
    assert finding.severity is Severity.WARNING
    busy = {**MASTER, "haWaiters": "3"}
    quick = HaStatusBody(role="SYNC_MASTER", slaves=[HaSlaveBody(behind_bytes=1 << 20, behind_ms=20)])
    again = diagnose(snapshot(late, ha=quick, **busy), settings())
    assert the(again, "slave-timeout").severity is Severity.WARNING, "drains wait under load, and soon end"
    assert found_by(telemetry(), **busy) == found_by(telemetry()), "waits of a quick slave are no finding"


def test_the_disk_of_a_slave_is_named_at_both_ends_and_no_promotion_is_advised() -> None:
    """The slave names its disk; its master names the slave, its disk, and how much it lacks."""
    sick = status(disk_error=READ_ONLY)
    lone = HaStatusBody(broker_name="a", role="SYNC_MASTER", end_offset=1 << 20)
    here = diagnose(snapshot(telemetry(), ha=sick, **SLAVE), settings(), None, [Peer(address="m:1", ha=lone)])
    finding = the(here, "slave-disk-failed")
    assert finding.evidence == (READ_ONLY, "the master at m:1 answers; this slave lacks 54 KiB")
    assert "slave-follows-nobody" not in {each.key for each in here}
    alone = {**MASTER, "haInSyncCopies": "1", "haSlaves": "0"}
    there = diagnose(snapshot(telemetry(), ha=lone, **alone), settings(), None, [Peer(address="s:2", ha=sick)])
    master = the(there, "slave-not-available")
    assert f"s:2 lacks 54 KiB; its disk: {READ_ONLY}" in master.evidence
    assert "The disk of the slave at s:2 refuses its writes." in master.cause
    for each in (finding, master):
        assert "ha promote" not in each.cure


def test_a_slave_that_does_not_answer_is_named_by_its_master() -> None:
    """It stands still, or the network is cut: both are to be looked at there."""
    gone = Peer(address="s:2", error="no answer within 1200 ms")
    waits = {**MASTER, "haWaiters": "150"}
    late = telemetry(stages=[stage("replica_wait", longest=3003)])
    finding = the(diagnose(snapshot(late, **waits), settings(), None, [gone]), "slave-timeout")
    assert "s:2 does not answer: no answer within 1200 ms" in finding.evidence
    assert "whether the process at s:2 runs" in finding.cure


def test_a_slave_without_a_master_promotes_only_if_the_master_is_gone() -> None:
    """While its master answers, the way between them is the fault."""
    lives = Peer(address="m:1", ha=HaStatusBody(role="SYNC_MASTER", end_offset=1 << 20))
    near = the(diagnose(snapshot(telemetry(), **SLAVE), settings(), None, [lives]), "slave-follows-nobody")
    assert "ha promote" not in near.cure
    gone = Peer(address="m:1", error="refused")
    far = the(diagnose(snapshot(telemetry(), **SLAVE), settings(), None, [gone]), "slave-follows-nobody")
    assert "Only if it will not return: pocketmq ha promote" in far.cure


def test_a_master_with_a_new_store_under_its_old_name_is_not_demoted() -> None:
    """Its own address has the newer epoch: a demotion would leave no master."""
    told: dict[str, Any] = {"haRole": "FENCED", "haEpoch": "0", "haFencedBy": "127.0.0.1:10911"}
    found = diagnose(snapshot(telemetry(), **told), settings())
    finding = the(found, "fenced-by-own-epoch")
    assert "pocketmq ha forget BROKER_NAME" in finding.cure
    assert "fenced-by-epoch" not in {each.key for each in found}


def test_a_slave_that_no_send_waits_for_and_that_falls_behind_is_a_warning() -> None:
    """An asynchronous master's slave is frozen, or too slow."""
    for slave in (HaSlaveBody(behind_bytes=1 << 30), HaSlaveBody(behind_bytes=1, behind_ms=6_000)):
        seen = HaStatusBody(role="ASYNC_MASTER", slaves=[slave])
        finding = the(diagnose(snapshot(telemetry(), ha=seen, haSlaves="1"), settings()), "slave-falls-behind")
        assert finding.severity is Severity.WARNING
    quick = HaStatusBody(role="ASYNC_MASTER", slaves=[HaSlaveBody(behind_bytes=1 << 20, behind_ms=20)])
    assert not diagnose(snapshot(telemetry(), ha=quick, haSlaves="1"), settings())
