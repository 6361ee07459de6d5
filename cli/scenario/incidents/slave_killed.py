"""The slave of a synchronous master dies and comes back.

Lives here: the two runs.
"""

from typing import Final

from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import Settings, expect
from pocketmq.cli.scenario.harness.replicas import (
    Act,
    GroupMeasured,
    GroupPlan,
    all_ok,
    all_safe_after,
    judged,
    nobody_fails,
)
from pocketmq.cli.scenario.report.report import Check

CURE: Final = "a second slave (total_replicas=3, in_sync_replicas=2): either one's confirmation is enough"
PRICE: Final = "a third machine and disk; and a promotion needs the promises of two nodes"
THREE: Final[Settings] = {"store.total_replicas": "3", "store.in_sync_replicas": "2"}
AT_ONCE_MS: Final = 1000
"""Far below ``slave_timeout`` (3 s), far above what an answer takes on a busy machine."""


def plans(quick: bool) -> list[GroupPlan]:
    """Return the runs: the same load and the same death each time."""
    load = Load(rate=100, seconds=3 if quick else 6)
    acts = (Act(0.5 if quick else 1.5, "kill"), Act(1.5 if quick else 3.5, "start"))
    return [
        GroupPlan(
            "one slave",
            "fault",
            "from the moment it is gone sends are told SLAVE_NOT_AVAILABLE, at once; from its return on SEND_OK again",
            load,
            (),
            judged(lambda measured: [nobody_fails(measured), _told_at_once(measured), all_safe_after(measured)]),
            brokers=({}, {}),
            options=Options(timeout_ms=5000),
            events=("slave_disconnected",),
            acts=acts,
        ),
        GroupPlan(
            "two slaves, one has to confirm",
            "cure",
            "the other slave confirms; nobody notices anything",
            load,
            (),
            judged(lambda measured: [all_ok(measured), all_safe_after(measured)]),
            brokers=(THREE, THREE, THREE),
            options=Options(timeout_ms=5000),
            events=("slave_disconnected",),
            acts=acts,
        ),
    ]


def _told_at_once(measured: GroupMeasured) -> Check:
    told = measured.said("SLAVE_NOT_AVAILABLE")
    took = measured.took(told)
    return expect(
        f"some are told SLAVE_NOT_AVAILABLE, half of them within {AT_ONCE_MS} ms",
        bool(told) and took.p50_ms < AT_ONCE_MS,
        f"{len(told)}, p50 {took.p50_ms:.1f} ms, slowest {took.max_ms:,.0f} ms",
    )
