"""The slave of a synchronous master stands still with open connections (SIGSTOP), then resumes.

Lives here: the four runs.
"""

from functools import partial
from typing import Final

from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import expect
from pocketmq.cli.scenario.harness.replicas import GroupMeasured, GroupPlan, all_ok, no_send_fails, scaled
from pocketmq.cli.scenario.incidents.slave_killed import THREE
from pocketmq.cli.scenario.knobs import OWN, Knobs
from pocketmq.cli.scenario.report.report import Check

CURE: Final = (
    "a second slave (total_replicas=3, in_sync_replicas=2); with one slave a smaller ha_slave_fallbehind_max, or "
    "shorter heartbeats and a shorter ha_housekeeping_interval, so that sends wait for it for a shorter time"
)
PRICE: Final = (
    "a third machine; or SLAVE_NOT_AVAILABLE after a short pause of the slave, too: a pause of its disk, or of the "
    "network, that FLUSH_SLAVE_TIMEOUT would have waited for"
)
SLAVE_TIMEOUT_MS: Final = 500
SMALL: Final = {"store.ha_slave_fallbehind_max": "8192"}
SHORT: Final = {"store.ha_send_heartbeat_interval": "100", "store.ha_housekeeping_interval": "500"}


def plans(quick: bool, knobs: Knobs = OWN) -> list[GroupPlan]:
    """Return the runs: the same load, and the slave stands still for the same time."""
    seconds = 2.5 if quick else 6.0
    load = Load.chosen(knobs, rate=100, seconds=seconds)
    at = partial(scaled, load.seconds / seconds)
    slave_timeout_ms = knobs.get("slave_timeout_ms", SLAVE_TIMEOUT_MS)
    timeout = {"store.slave_timeout": str(slave_timeout_ms)}
    run = partial(
        GroupPlan,
        load=load,
        options=Options(timeout_ms=knobs.get("timeout_ms", 5000)),
        acts=(at(0.5, "freeze"), at(2 if quick else 5, "thaw")),
    )
    return [
        run(
            "one slave",
            "fault",
            f"every send waits slave_timeout ({slave_timeout_ms} ms) for a silent slave, and gets FLUSH_SLAVE_TIMEOUT",
            checks=(no_send_fails, partial(_own_deadline, slave_timeout_ms)),
            brokers=(timeout, {}),
            events=("flush_slave_timeout",),
        ),
        run(
            "small ha_slave_fallbehind_max",
            "cure",
            "once the slave lacks 8 KiB no send waits for it",
            checks=(no_send_fails, partial(_fewer_wait, slave_timeout_ms)),
            brokers=(timeout | SMALL, {}),
            events=("slave_fell_behind", "slave_in_sync"),
        ),
        run(
            "short housekeeping",
            "cure",
            "a connection that is silent for 500 ms is closed; no send waits from then on",
            checks=(no_send_fails, partial(_fewer_wait, slave_timeout_ms)),
            brokers=(timeout | SHORT, SHORT),
            events=("slave_disconnected",),
        ),
        run(
            "two slaves, one has to confirm",
            "cure",
            "the other slave confirms; no sender notices anything",
            checks=(all_ok,),
            brokers=({**timeout, **THREE}, THREE, THREE),
        ),
    ]


def _own_deadline(slave_timeout_ms: int, measured: GroupMeasured) -> Check:
    sends = measured.said("FLUSH_SLAVE_TIMEOUT")
    took = measured.took(sends)
    return expect(
        f"sends get FLUSH_SLAVE_TIMEOUT after {slave_timeout_ms} ms, each on its own",
        len(sends) > len(measured.sends) // 4 and took.p50_ms < 3 * slave_timeout_ms,
        f"{len(sends)}, p50 {took.p50_ms:,.0f} ms, slowest {took.max_ms:,.0f} ms",
    )


def _fewer_wait(slave_timeout_ms: int, measured: GroupMeasured) -> Check:
    waited, sends = measured.said("FLUSH_SLAVE_TIMEOUT"), measured.said("SLAVE_NOT_AVAILABLE")
    took = measured.took(sends)
    return expect(
        "after a while sends get SLAVE_NOT_AVAILABLE instead, without a wait",
        len(sends) > len(measured.sends) // 8 and took.p50_ms < slave_timeout_ms,
        f"{len(sends)} after p50 {took.p50_ms:.1f} ms; {len(waited)} had waited",
    )
