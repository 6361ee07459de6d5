"""The slave's disk refuses writes under SYNC_FLUSH and SYNC_MASTER: RocketMQ's serial wait, and ours.

Lives here: the four runs.

A load tool floods the master until it answers no more, then 128 sends follow with a long timeout. One request a drain,
as RocketMQ takes them, so that each send waits by itself; fast failure waits as long as the clients do, so that a slow
disk of the master cannot be mistaken for the fault.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from pocketmq.cli.scenario.harness.cluster import Cluster
from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import Progress, Settings, Switch, expect, none
from pocketmq.cli.scenario.harness.replicas import READ_ONLY, GroupMeasured, GroupPlan, no_send_fails, run_groups
from pocketmq.cli.scenario.knobs import OWN, Knobs
from pocketmq.cli.scenario.report.report import Check, Phase

CURE: Final = (
    "a deadline for each send, and a slave that reports when its disk refuses (both are how PocketMQ works); with "
    "RocketMQ a smaller ha_slave_fallbehind_max: a send that arrives when the slave lacks more does not wait"
)
PRICE: Final = (
    "a message with SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT is on the master only; with a small "
    "ha_slave_fallbehind_max a short pause of the slave causes it, too"
)
PROBES: Final = 128
SMALL_BYTES: Final = 65_536
FALLBEHIND: Final = "store.ha_slave_fallbehind_max"


@dataclass(frozen=True, slots=True)
class Scale:
    """Full length, or --quick: a shorter flood and shorter limits in the same proportions."""

    flood: Load
    serial_ms: int
    """RocketMQ's time for each waiting send: syncFlushTimeout, 5 s."""
    own_ms: int
    """``slave_timeout`` of the runs with a deadline for each send."""
    client_ms: int
    probe_ms: int
    probes: int


def scale(quick: bool, knobs: Knobs = OWN) -> Scale:
    """Return the times: 128 sends of 30 s after a flood of 8,000, or, with --quick, of 5 s after 1,800."""
    rate, seconds = (600, 3) if quick else (1000, 8)
    serial_ms, own_ms, client_ms, probe_ms = (2500, 500, 2000, 5000) if quick else (5000, 1500, 3000, 30_000)
    given = knobs.given.get("slave_timeout_ms")
    return Scale(
        Load.chosen(knobs, rate=rate, seconds=seconds),
        given or serial_ms,
        given or own_ms,
        client_ms,
        knobs.get("timeout_ms", probe_ms),
        knobs.get("probes", PROBES),
    )


async def run(cluster: Cluster, quick: bool, progress: Progress, knobs: Knobs = OWN) -> list[Phase]:
    """Run all four."""
    if quick:
        full, short = scale(False), scale(True)
        progress(
            f"--quick: each of {PROBES} sends has {short.probe_ms / 1000:g} s instead of {full.probe_ms / 1000:g} s, "
            f"{short.serial_ms / 1000:g} s for each waiting send instead of {full.serial_ms / 1000:g} s"
        )
    return await run_groups(cluster, plans(quick, knobs), progress)


def plans(quick: bool, knobs: Knobs = OWN) -> list[GroupPlan]:
    """Return the runs: the same flood and the same disk each time."""
    times = scale(quick, knobs)
    slave: Settings = {"store.flush_disk_type": "SYNC_FLUSH"}

    def master(slave_timeout_ms: int, **more: str) -> dict[str, str]:
        return {
            "store.flush_disk_type": "SYNC_FLUSH",
            "broker.send_drain_max": "1",
            "broker.wait_time_mills_in_send_queue": str(times.client_ms),
            "store.slave_timeout": str(slave_timeout_ms),
            **more,
        }

    run = partial(
        GroupPlan,
        load=times.flood,
        switches=(Switch(0, (READ_ONLY,), 1),),
        brokers=(master(times.own_ms), slave),
        options=Options(timeout_ms=times.client_ms),
        events=("slave_disk_failed", "flush_slave_timeout"),
        probes=times.probes,
        probe_options=Options(timeout_ms=times.probe_ms, retry_times=2),
    )
    return [
        run(
            "RocketMQ's serial wait",
            "fault",
            f"one waiting send after the other, each up to {times.serial_ms / 1000:g} s, behind a slave that is "
            "connected and does not move: later sends never get an answer",
            checks=(_flood_ends, partial(_no_probe_delivered, times.probes)),
            brokers=(master(times.serial_ms), slave),
            originals=(0, 1),
        ),
        run(
            "RocketMQ's, small ha_slave_fallbehind_max",
            "cure",
            "the incident's cure: a send that arrives when the slave lacks more gets SLAVE_NOT_AVAILABLE at once; "
            "earlier ones still wait",
            checks=(partial(_probes_get, times.probes, "SLAVE_NOT_AVAILABLE", 1000),),
            brokers=(master(times.serial_ms, **{FALLBEHIND: str(SMALL_BYTES)}), slave),
            originals=(0, 1),
        ),
        run(
            "a deadline for each send",
            "cure",
            f"the same slave, PocketMQ's group transfer: every send is answered after slave_timeout, {times.own_ms} ms",
            checks=(
                no_send_fails,
                partial(_own_deadline, times),
                partial(_probes_get, times.probes, "FLUSH_SLAVE_TIMEOUT", times.own_ms + 1000),
            ),
            originals=(1,),
        ),
        run(
            "a slave that says so",
            "cure",
            "PocketMQ's slave closes its connection when its disk refuses: no send waits for it",
            checks=(no_send_fails, partial(_probes_get, times.probes, "SLAVE_NOT_AVAILABLE", 1000)),
        ),
    ]


_flood_ends: Final = none(
    "in the last second of the flood no send is answered: its rate is 0",
    lambda measured: measured.answered_in_last_second,
)


def _no_probe_delivered(probes: int, measured: GroupMeasured) -> Check:
    failed = sum(1 for send in measured.probes if not send.delivered)
    return expect(f"all of the {probes} sends fail on the client", failed == probes, f"{failed} of {probes}")


def _probes_get(probes: int, status: str, within_ms: float, measured: GroupMeasured) -> Check:
    sends = [send for send in measured.probes if send.text.startswith(status)]
    took = measured.took(sends)
    return expect(
        f"each of the {probes} sends gets {status} within {within_ms:,.0f} ms",
        len(sends) == probes and took.max_ms <= within_ms,
        f"{len(sends)} of {probes}, p50 {took.p50_ms:,.0f} ms, slowest {took.max_ms:,.0f} ms",
    )


def _own_deadline(times: Scale, measured: GroupMeasured) -> Check:
    sends = [send for send in measured.load if send.text.startswith("FLUSH_SLAVE_TIMEOUT")]
    took = measured.took(sends)
    return expect(
        f"the flood gets FLUSH_SLAVE_TIMEOUT, each send after {times.own_ms} ms",
        len(sends) == len(measured.load) and took.max_ms < times.client_ms,
        f"{len(sends):,} of {len(measured.load):,}, p50 {took.p50_ms:,.0f} ms, slowest {took.max_ms:,.0f} ms",
    )
