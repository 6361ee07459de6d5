"""The slave of a synchronous master dies and returns.

Lives here: the two runs.
"""

from functools import partial
from typing import Final

from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import Settings, expect
from pocketmq.cli.scenario.harness.replicas import GroupMeasured, GroupPlan, all_ok, no_send_fails, scaled
from pocketmq.cli.scenario.knobs import OWN, Knobs
from pocketmq.cli.scenario.report.report import Check

CURE: Final = "a second slave (total_replicas=3, in_sync_replicas=2): either one's confirmation is enough"
PRICE: Final = "a third machine and disk; and a promotion needs the promises of two nodes"
THREE: Final[Settings] = {"store.total_replicas": "3", "store.in_sync_replicas": "2"}
AT_ONCE_MS: Final = 1000
"""Far below ``slave_timeout`` (3 s), far above the time of an answer on a busy machine."""


def plans(quick: bool, knobs: Knobs = OWN) -> list[GroupPlan]:
    """Return the runs: the same load and the same death each time."""
    seconds = 3.0 if quick else 6.0
    load = Load.chosen(knobs, rate=100, seconds=seconds)
    at = partial(scaled, load.seconds / seconds)
    run = partial(
        GroupPlan,
        load=load,
        options=Options(timeout_ms=knobs.get("timeout_ms", 5000)),
        events=("slave_disconnected",),
        acts=(at(0.5 if quick else 1.5, "kill"), at(1.5 if quick else 3.5, "start")),
    )
    return [
        run(
            "one slave",
            "fault",
            "from its death on sends get SLAVE_NOT_AVAILABLE, at once; from its return on SEND_OK again",
            checks=(no_send_fails, _at_once),
            brokers=({}, {}),
        ),
        run(
            "two slaves, one has to confirm",
            "cure",
            "the other slave confirms; no sender notices anything",
            checks=(all_ok,),
            brokers=(THREE, THREE, THREE),
        ),
    ]


def _at_once(measured: GroupMeasured) -> Check:
    sends = measured.said("SLAVE_NOT_AVAILABLE")
    took = measured.took(sends)
    return expect(
        f"some sends get SLAVE_NOT_AVAILABLE, half of them within {AT_ONCE_MS} ms",
        bool(sends) and took.p50_ms < AT_ONCE_MS,
        f"{len(sends)}, p50 {took.p50_ms:.1f} ms, slowest {took.max_ms:,.0f} ms",
    )
