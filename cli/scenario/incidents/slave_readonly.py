"""The slave's disk refuses writes under SYNC_FLUSH and SYNC_MASTER: RocketMQ's serial wait, and ours.

Lives here: the four runs.

A load tool floods the master until nothing is answered any more, then 128 sends come with all the time in the world.
One request a drain, as RocketMQ takes them, so that each send is a waiter; fast failure waits as long as the clients
do, so that a slow disk of the master is not what is seen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocketmq.cli.scenario.harness.cluster import Cluster
from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import Measured, Progress, Settings, Switch, expect
from pocketmq.cli.scenario.harness.replicas import (
    READ_ONLY,
    GroupMeasured,
    GroupPlan,
    all_safe_after,
    judged,
    nobody_fails,
    run_groups,
)
from pocketmq.cli.scenario.report.report import Check, Phase, Send

CURE: Final = (
    "a deadline for each send, and a slave that says when its disk refuses (both are how PocketMQ works); with "
    "RocketMQ a smaller ha_slave_fallbehind_max: who is sent when the slave lacks more waits for nobody"
)
PRICE: Final = (
    "what is told SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT is on the master only; a small ha_slave_fallbehind_max "
    "tells so after a short pause of the slave, too"
)
PROBES: Final = 128
Judge = Callable[[GroupMeasured], Check]
SMALL_BYTES: Final = 65_536
FALLBEHIND: Final = "store.ha_slave_fallbehind_max"


@dataclass(frozen=True, slots=True)
class Scale:
    """Full length, or --quick: a shorter flood and shorter limits in the same proportions."""

    flood: Load
    serial_ms: int
    """What RocketMQ gives each waiter: syncFlushTimeout, 5 s."""
    own_ms: int
    """``slave_timeout`` of the runs with a deadline for each send."""
    client_ms: int
    probe_ms: int


def scale(quick: bool) -> Scale:
    """Return how long things take: 128 sends of 30 s after a flood of 8,000, or, with --quick, of 5 s after 1,800."""
    if quick:
        return Scale(Load(rate=600, seconds=3), 2500, 500, 2000, 5000)
    return Scale(Load(rate=1000, seconds=8), 5000, 1500, 3000, 30_000)


async def run(cluster: Cluster, quick: bool, progress: Progress) -> list[Phase]:
    """Run all four."""
    if quick:
        full, short = scale(False), scale(True)
        progress(
            f"--quick: each of {PROBES} sends has {short.probe_ms / 1000:g} s instead of {full.probe_ms / 1000:g} s, "
            f"{short.serial_ms / 1000:g} s for each waiter instead of {full.serial_ms / 1000:g} s"
        )
    return await run_groups(cluster, plans(quick), progress)


def plans(quick: bool) -> list[GroupPlan]:
    """Return the runs: the same flood and the same disk each time."""
    times = scale(quick)
    slave: Settings = {"store.flush_disk_type": "SYNC_FLUSH"}

    def master(slave_timeout_ms: int, **more: str) -> dict[str, str]:
        return {
            "store.flush_disk_type": "SYNC_FLUSH",
            "broker.send_drain_max": "1",
            "broker.wait_time_mills_in_send_queue": str(times.client_ms),
            "store.slave_timeout": str(slave_timeout_ms),
            **more,
        }

    def plan(
        name: str, role: str, says: str, brokers: tuple[Settings, ...], originals: tuple[int, ...], *checks: Judge
    ) -> GroupPlan:
        return GroupPlan(
            name,
            role,
            says,
            times.flood,
            (Switch(0, (READ_ONLY,), 1),),
            judged(
                lambda measured: [_refused(measured), *(check(measured) for check in checks), all_safe_after(measured)]
            ),
            brokers=brokers,
            options=Options(timeout_ms=times.client_ms),
            events=("slave_disk_failed", "flush_slave_timeout"),
            originals=originals,
            probes=PROBES,
            probe_options=Options(timeout_ms=times.probe_ms, retry_times=2),
        )

    return [
        plan(
            "RocketMQ's serial wait",
            "fault",
            f"one waiter after the other, each up to {times.serial_ms / 1000:g} s, behind a slave that is connected "
            "and does not move: who comes later is never told",
            (master(times.serial_ms), slave),
            (0, 1),
            _flood_ends,
            _no_probe_delivered,
        ),
        plan(
            "RocketMQ's, small ha_slave_fallbehind_max",
            "cure",
            "the incident's cure: who is sent when the slave lacks more than that is told SLAVE_NOT_AVAILABLE at once; "
            "who came before still waits",
            (master(times.serial_ms, **{FALLBEHIND: str(SMALL_BYTES)}), slave),
            (0, 1),
            lambda measured: _probes_are(measured, "SLAVE_NOT_AVAILABLE", 1000),
        ),
        plan(
            "a deadline for each send",
            "cure",
            f"the same slave, PocketMQ's group transfer: everybody is told after slave_timeout, {times.own_ms} ms",
            (master(times.own_ms), slave),
            (1,),
            nobody_fails,
            lambda measured: _own_deadline(measured, times),
            lambda measured: _probes_are(measured, "FLUSH_SLAVE_TIMEOUT", times.own_ms + 1000),
        ),
        plan(
            "a slave that says so",
            "cure",
            "PocketMQ's slave gives its connection up when its disk refuses: nobody waits for it",
            (master(times.own_ms), slave),
            (),
            nobody_fails,
            lambda measured: _probes_are(measured, "SLAVE_NOT_AVAILABLE", 1000),
        ),
    ]


def _refused(measured: Measured) -> Check:
    hits = measured.watches[1].fault_hits()
    return expect("the slave's disk refused writes", hits > 0, f"{hits:,} calls refused")


def _flood_ends(measured: GroupMeasured) -> Check:
    count = measured.answered_in_last_second
    return expect("in the last second of the flood nothing is answered: its rate is 0", count == 0, count)


def _no_probe_delivered(measured: GroupMeasured) -> Check:
    failed = sum(1 for send in measured.probes if not send.delivered)
    return expect(f"all of the {PROBES} sends fail on the client", failed == PROBES, f"{failed} of {PROBES}")


def _probes_are(measured: GroupMeasured, status: str, within_ms: float) -> Check:
    told = [send for send in measured.probes if send.text.startswith(status)]
    slowest = measured.took(told).max_ms
    return expect(
        f"each of the {PROBES} sends is told {status} within {within_ms:,.0f} ms",
        len(told) == PROBES and slowest <= within_ms,
        f"{len(told)} of {PROBES}, p50 {measured.took(told).p50_ms:,.0f} ms, slowest {slowest:,.0f} ms",
    )


def _own_deadline(measured: GroupMeasured, times: Scale) -> Check:
    told: list[Send] = [send for send in measured.load if send.text.startswith("FLUSH_SLAVE_TIMEOUT")]
    took = measured.took(told)
    return expect(
        f"the flood is told FLUSH_SLAVE_TIMEOUT, each send after {times.own_ms} ms",
        len(told) == len(measured.load) and took.max_ms < times.client_ms,
        f"{len(told):,} of {len(measured.load):,}, p50 {took.p50_ms:,.0f} ms, slowest {took.max_ms:,.0f} ms",
    )
