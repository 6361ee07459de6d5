"""The slave of a synchronous master stands still with open connections (SIGSTOP), then resumes.

Lives here: the four runs.
"""

from functools import partial
from typing import Final

from pocketmq.cli.scenario.harness.load import Load, Options
from pocketmq.cli.scenario.harness.phase import expect
from pocketmq.cli.scenario.harness.replicas import Act, GroupMeasured, GroupPlan, all_ok, no_send_fails
from pocketmq.cli.scenario.incidents.slave_killed import THREE
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
TIMEOUT: Final = {"store.slave_timeout": str(SLAVE_TIMEOUT_MS)}
SMALL: Final = {"store.ha_slave_fallbehind_max": "8192"}
SHORT: Final = {"store.ha_send_heartbeat_interval": "100", "store.ha_housekeeping_interval": "500"}


def plans(quick: bool) -> list[GroupPlan]:
    """Return the runs: the same load, and the slave stands still for the same time."""
    run = partial(
        GroupPlan,
        load=Load(rate=100, seconds=2.5 if quick else 6),
        options=Options(timeout_ms=5000),
        acts=(Act(0.5, "freeze"), Act(2 if quick else 5, "thaw")),
    )
    return [
        run(
            "one slave",
            "fault",
            f"every send waits slave_timeout ({SLAVE_TIMEOUT_MS} ms) for a silent slave, and gets FLUSH_SLAVE_TIMEOUT",
            checks=(no_send_fails, _own_deadline),
            brokers=(TIMEOUT, {}),
            events=("flush_slave_timeout",),
        ),
        run(
            "small ha_slave_fallbehind_max",
            "cure",
            "once the slave lacks 8 KiB no send waits for it",
            checks=(no_send_fails, _fewer_wait),
            brokers=(TIMEOUT | SMALL, {}),
            events=("slave_fell_behind", "slave_in_sync"),
        ),
        run(
            "short housekeeping",
            "cure",
            "a connection that is silent for 500 ms is closed; no send waits from then on",
            checks=(no_send_fails, _fewer_wait),
            brokers=(TIMEOUT | SHORT, SHORT),
            events=("slave_disconnected",),
        ),
        run(
            "two slaves, one has to confirm",
            "cure",
            "the other slave confirms; no sender notices anything",
            checks=(all_ok,),
            brokers=({**TIMEOUT, **THREE}, THREE, THREE),
        ),
    ]


def _own_deadline(measured: GroupMeasured) -> Check:
    sends = measured.said("FLUSH_SLAVE_TIMEOUT")
    took = measured.took(sends)
    return expect(
        f"sends get FLUSH_SLAVE_TIMEOUT after {SLAVE_TIMEOUT_MS} ms, each on its own",
        len(sends) > len(measured.sends) // 4 and took.p50_ms < 3 * SLAVE_TIMEOUT_MS,
        f"{len(sends)}, p50 {took.p50_ms:,.0f} ms, slowest {took.max_ms:,.0f} ms",
    )


def _fewer_wait(measured: GroupMeasured) -> Check:
    waited, sends = measured.said("FLUSH_SLAVE_TIMEOUT"), measured.said("SLAVE_NOT_AVAILABLE")
    took = measured.took(sends)
    return expect(
        "after a while sends get SLAVE_NOT_AVAILABLE instead, without a wait",
        len(sends) > len(measured.sends) // 8 and took.p50_ms < SLAVE_TIMEOUT_MS,
        f"{len(sends)} after p50 {took.p50_ms:.1f} ms; {len(waited)} had waited",
    )
