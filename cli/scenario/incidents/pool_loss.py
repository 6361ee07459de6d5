"""``kill -9`` under load, with the write-buffer pool and without: the price of the pool.

Lives here: the three runs and the kill.
"""

import asyncio
from typing import Final

from pocketmq.cli.scenario.harness.cluster import COMMITS, BrokerProcess, Cluster
from pocketmq.cli.scenario.harness.load import Load, create_topic, read_topic, run_load, warm_up
from pocketmq.cli.scenario.harness.phase import (
    FAULTS_SEEN_S,
    Measured,
    Plan,
    Progress,
    expect,
    provoked,
    switches,
    to_phase,
)
from pocketmq.cli.scenario.harness.watch import Watch
from pocketmq.cli.scenario.incidents.pcbusy import POOL
from pocketmq.cli.scenario.report.report import Check, Phase
from pocketmq.client.admin.admin import Admin

CURE: Final = "no write-buffer pool for what must not be lost with the process: the page cache survives kill -9"
PRICE: Final = (
    "without the pool appends meet the page cache again (see pcbusy); and neither survives a power loss: that takes "
    "SYNC_FLUSH"
)
SLOW_MS: Final = 700
"""What a commit's write takes on the slow disk: so long does an acknowledged message live in memory only."""
INTERVAL_MS: Final = 200
"""``commit_interval_commit_log``."""
SLACK_MS: Final = 300
"""How late a commit may come on a loaded machine."""


async def run(cluster: Cluster, quick: bool, progress: Progress) -> list[Phase]:
    """Run all three."""
    chosen = plans(quick)
    progress(f"starting {len(chosen)} brokers")
    started = await cluster.start_all([plan.brokers for plan in chosen])
    phases: list[Phase] = []
    for number, (plan, (broker,)) in enumerate(zip(chosen, started, strict=True), 1):
        measured = await _killed(cluster, plan, broker, f"Scenario_{number}", progress)
        await cluster.kill([broker])
        phases.append(to_phase(plan, measured))
    return phases


def plans(quick: bool) -> list[Plan]:
    """Return the runs. The load ends with the kill: what comes after it finds no broker and proves nothing."""
    load = Load(rate=500, seconds=1.5 if quick else 4)
    within_ms = 2 * INTERVAL_MS + SLACK_MS
    return [
        Plan(
            "pool, slow commits",
            "fault",
            f"a commit takes {SLOW_MS} ms: what was acknowledged since the last one dies with the process",
            load,
            switches((0, [{**COMMITS, "delay_ms": SLOW_MS}])),
            lambda measured: [
                provoked(measured),
                _lost(measured, at_least=1),
                _lost_within(measured, 2 * SLOW_MS + within_ms),
            ],
            brokers=(POOL,),
            acknowledged_may_be_lost=True,
        ),
        Plan(
            "pool, healthy disk",
            "fault",
            f"commits every {INTERVAL_MS} ms or sooner: little is lost, sometimes nothing, but nothing is promised",
            load,
            (),
            lambda measured: [_lost(measured, at_least=0), _lost_within(measured, within_ms)],
            brokers=(POOL,),
            acknowledged_may_be_lost=True,
        ),
        Plan(
            "no pool",
            "cure",
            "an acknowledged message is in the page cache, which belongs to the system, not to the process",
            load,
            (),
            lambda measured: [expect("no send fails before the kill", not measured.failed, len(measured.failed))],
        ),
    ]


async def _killed(cluster: Cluster, plan: Plan, broker: BrokerProcess, topic: str, progress: Progress) -> Measured:
    """Run the load, kill the broker, start it again, read what is there."""
    await create_topic(cluster.namesrv, topic, [broker.name])
    async with plan.options.producer(cluster.namesrv, cluster.client_log) as producer:
        await warm_up(producer, topic, 1)
        await broker.settled()
        async with Admin(namesrv=cluster.namesrv) as admin:
            watch = Watch(admin, broker)
            for switch in plan.switches:
                broker.faults(*switch.rules)
            await asyncio.sleep(FAULTS_SEEN_S)
            progress(f"{plan.name}: {plan.load}, then kill -9")
            watch.start()
            sends = await run_load(producer, topic, plan.load)
            await broker.kill()
            await watch.stop()
    broker.faults()
    progress(f"{plan.name}: starting it again on what the process left; reading what is there")
    await broker.start()
    async with Admin(namesrv=cluster.namesrv) as admin:
        await Watch(admin, broker).idle()
    stored = await read_topic(cluster.namesrv, topic)
    return Measured(sends, [watch], stored)


def _lost(measured: Measured, *, at_least: int) -> Check:
    lost, acknowledged = measured.lost, len(measured.delivered)
    what = "acknowledged messages are lost" if at_least else "acknowledged messages may be lost"
    return expect(what, lost >= at_least, f"{lost:,} of {acknowledged:,}")


def _lost_within(measured: Measured, ms: int) -> Check:
    """The lost ones are the last ones: nothing older than the last commits."""
    delivered = sorted(measured.delivered, key=lambda send: send.at_s)
    end_s = delivered[-1].at_s if delivered else 0.0
    ages_ms = [(end_s - send.at_s) * 1000 for send in delivered if not measured.stored[send.body]]
    oldest = max(ages_ms, default=0.0)
    return expect(
        f"and they are of the last {ms:,} ms", oldest <= ms, f"the oldest was sent {oldest:,.0f} ms before the end"
    )
