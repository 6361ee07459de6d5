"""The network between master and slave is cut, then the master's machine is lost, too, and the slave is promoted.

Lives here: the four runs.
"""

from functools import partial
from typing import Final

from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import Settings, expect
from pocketmq.cli.scenario.harness.replicas import GroupMeasured, GroupPlan, no_send_fails, scaled
from pocketmq.cli.scenario.knobs import OWN, Knobs
from pocketmq.cli.scenario.report.report import Check

CURE: Final = "broker_role=SYNC_MASTER: SEND_OK means that the slave has the message, so no promotion can lose it"
PRICE: Final = (
    "a send waits for the slave; during the cut senders get FLUSH_SLAVE_TIMEOUT, then SLAVE_NOT_AVAILABLE, and decide "
    "themselves whether one copy is enough"
)
TIMES: Final[Settings] = {
    "store.slave_timeout": "500",
    "store.ha_send_heartbeat_interval": "200",
    "store.ha_housekeeping_interval": "1000",
}
"""Short, so that a cut is noticed within the run."""


def plans(quick: bool, knobs: Knobs = OWN) -> list[GroupPlan]:
    """Return the runs: the same load, the cable is cut in both directions at the same moment."""
    seconds = 2.5 if quick else 6.0
    load = Load.chosen(knobs, rate=100, seconds=seconds)
    at = partial(scaled, load.seconds / seconds)
    cut = (at(0.7 if quick else 1.5, "cut"),)
    run = partial(
        GroupPlan,
        load=load,
        brokers=(TIMES, TIMES),
        options=Options(timeout_ms=knobs.get("timeout_ms", 5000)),
        events=("slave_disconnected",),
        acts=cut,
        has_cable=True,
    )
    return [
        run(
            "ASYNC_MASTER, its machine is lost",
            "fault",
            "SEND_OK goes on during the cut; the messages of the cut are on the lost disk only",
            checks=(no_send_fails, _all_confirmed, _some_lost),
            brokers=(dict(TIMES) | {"store.broker_role": "ASYNC_MASTER"}, TIMES),
            acknowledged_may_be_lost=True,
            ends="lose_master",
        ),
        run(
            "SYNC_MASTER, its machine is lost",
            "cure",
            "a send during the cut learns that there is one copy only; messages with SEND_OK are on the slave",
            checks=(no_send_fails, _one_copy),
            ends="lose_master",
        ),
        run(
            "SYNC_MASTER, it comes back",
            "cure",
            "the slave was promoted meanwhile: the old master finds out, and acknowledges no more sends",
            checks=(no_send_fails, _one_copy, _fenced),
            events=(),
            ends="replace_master",
        ),
        run(
            "SYNC_MASTER, the cable comes back",
            "cure",
            "the slave gets what it missed, and sends are SEND_OK again",
            checks=(no_send_fails, _one_copy),
            events=("slave_disconnected", "slave_connected"),
            acts=(*cut, at(2 if quick else 4.5, "heal")),
        ),
    ]


def _all_confirmed(measured: GroupMeasured) -> Check:
    good = len(measured.said("SEND_OK"))
    return expect("every send is SEND_OK, also during the cut", good == len(measured.sends), good)


def _some_lost(measured: GroupMeasured) -> Check:
    return expect("some of them are gone", measured.lost > 0, f"{measured.lost:,} of {len(measured.sends):,}")


def _one_copy(measured: GroupMeasured) -> Check:
    late, alone = len(measured.said("FLUSH_SLAVE_TIMEOUT")), len(measured.said("SLAVE_NOT_AVAILABLE"))
    what = "during the cut sends get FLUSH_SLAVE_TIMEOUT, then SLAVE_NOT_AVAILABLE"
    return expect(what, late > 0 and alone > 0, f"{late} and {alone}")


def _fenced(measured: GroupMeasured) -> Check:
    found = [note.value for note in measured.notes if "is fenced" in note.what]
    return expect("the old master is fenced when it comes back", bool(found), found[0] if found else "it is not")
