"""Master and slave lose each other, then the master's machine is lost, too, and the slave is promoted.

Lives here: the four runs.
"""

from typing import Final

from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import Settings, expect
from pocketmq.cli.scenario.harness.replicas import (
    Act,
    GroupMeasured,
    GroupPlan,
    all_safe_after,
    judged,
    nobody_fails,
)
from pocketmq.cli.scenario.report.report import Check

CURE: Final = "broker_role=SYNC_MASTER: SEND_OK means that the slave has it, so no promotion can lose it"
PRICE: Final = (
    "a send waits for the slave; while the two have lost each other senders are told FLUSH_SLAVE_TIMEOUT, then "
    "SLAVE_NOT_AVAILABLE, and decide themselves whether one copy is enough"
)
TIMES: Final[Settings] = {
    "store.slave_timeout": "500",
    "store.ha_send_heartbeat_interval": "200",
    "store.ha_housekeeping_interval": "1000",
}
"""Short, so that a cut is noticed within the run."""


def plans(quick: bool) -> list[GroupPlan]:
    """Return the runs: the same load, the cable is cut in both directions at the same moment."""
    load = Load(rate=100, seconds=2.5 if quick else 6)
    cut = (Act(0.7 if quick else 1.5, "cut"),)
    asynchronous = dict(TIMES) | {"store.broker_role": "ASYNC_MASTER"}
    options = Options(timeout_ms=5000)
    return [
        GroupPlan(
            "ASYNC_MASTER, its machine is lost",
            "fault",
            "SEND_OK goes on during the cut; what came after it is on the lost disk only",
            load,
            (),
            judged(lambda measured: [nobody_fails(measured), _all_confirmed(measured), _some_lost(measured)]),
            brokers=(asynchronous, TIMES),
            options=options,
            events=("slave_disconnected",),
            acknowledged_may_be_lost=True,
            acts=cut,
            has_cable=True,
            ends="lose_master",
        ),
        GroupPlan(
            "SYNC_MASTER, its machine is lost",
            "cure",
            "whoever sends during the cut is told that there is one copy only; what was SEND_OK is on the slave",
            load,
            (),
            judged(lambda measured: [nobody_fails(measured), _told(measured)]),
            brokers=(TIMES, TIMES),
            options=options,
            events=("slave_disconnected",),
            acts=cut,
            has_cable=True,
            ends="lose_master",
        ),
        GroupPlan(
            "SYNC_MASTER, it comes back",
            "cure",
            "a slave was promoted meanwhile: the old master finds out, and acknowledges nothing any more",
            load,
            (),
            judged(lambda measured: [nobody_fails(measured), _told(measured), _fenced(measured)]),
            brokers=(TIMES, TIMES),
            options=options,
            acts=cut,
            has_cable=True,
            ends="replace_master",
        ),
        GroupPlan(
            "SYNC_MASTER, the cable comes back",
            "cure",
            "the slave gets what it missed, and sends are SEND_OK again",
            load,
            (),
            judged(lambda measured: [nobody_fails(measured), _told(measured), all_safe_after(measured)]),
            brokers=(TIMES, TIMES),
            options=options,
            events=("slave_disconnected", "slave_connected"),
            acts=(*cut, Act(2 if quick else 4.5, "heal")),
            has_cable=True,
        ),
    ]


def _all_confirmed(measured: GroupMeasured) -> Check:
    good = len(measured.said("SEND_OK"))
    return expect("every send is SEND_OK, also during the cut", good == len(measured.sends), good)


def _some_lost(measured: GroupMeasured) -> Check:
    return expect("some of them are gone", measured.lost > 0, f"{measured.lost:,} of {len(measured.sends):,}")


def _told(measured: GroupMeasured) -> Check:
    late, alone = len(measured.said("FLUSH_SLAVE_TIMEOUT")), len(measured.said("SLAVE_NOT_AVAILABLE"))
    return expect(
        "during the cut sends are told FLUSH_SLAVE_TIMEOUT, then SLAVE_NOT_AVAILABLE",
        late > 0 and alone > 0,
        f"{late} and {alone}",
    )


def _fenced(measured: GroupMeasured) -> Check:
    found = [note.value for note in measured.notes if "is fenced" in note.what]
    return expect("the old master is fenced when it comes back", bool(found), found[0] if found else "it is not")
