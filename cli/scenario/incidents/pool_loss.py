"""``kill -9`` under load, with both kinds of the write-buffer pool and without: the price of RocketMQ's kind.

Lives here: the four runs and the kill.
"""

import asyncio
from functools import partial
from typing import Final

from pocketmq.cli.scenario.harness.cluster import BrokerProcess, Cluster
from pocketmq.cli.scenario.harness.disk import COMMITS, slow
from pocketmq.cli.scenario.harness.load import Load, Options, create_topic, read_topic, run_load, warm_up
from pocketmq.cli.scenario.harness.phase import (
    FAULTS_SEEN_S,
    Measured,
    Plan,
    Progress,
    Settings,
    expect,
    none,
    run_plans,
    switches,
)
from pocketmq.cli.scenario.harness.watch import Watch
from pocketmq.cli.scenario.incidents.pcbusy import POOL
from pocketmq.cli.scenario.knobs import OWN, Knobs
from pocketmq.cli.scenario.report.report import Check, Phase
from pocketmq.client.admin.admin import Admin

CURE: Final = (
    "buffers that survive the process (store.transient_store_pool_path, the default): the next start writes them to "
    "the log; or no pool: the page cache survives kill -9"
)
PRICE: Final = (
    "the buffers are in shared memory, which a new container does not have; without the pool appends meet the page "
    "cache again (see pcbusy); and none survives a power loss: that takes SYNC_FLUSH"
)
ANONYMOUS: Final[Settings] = {**POOL, "store.transient_store_pool_path": "anonymous"}
SLOW_MS: Final = 700
"""How long a commit writes on the slow disk: until then an acknowledged message is in memory only."""
INTERVAL_MS: Final = 200
"""``commit_interval_commit_log``."""
SLACK_MS: Final = 300
"""How late a commit may come on a loaded machine."""


async def run(cluster: Cluster, quick: bool, progress: Progress, knobs: Knobs = OWN) -> list[Phase]:
    """Run all four."""
    return await run_plans(cluster, plans(quick, knobs), progress, _killed)


def plans(quick: bool, knobs: Knobs = OWN) -> list[Plan]:
    """Return the runs. The load ends with the kill: later sends would find no broker and prove nothing."""
    within_ms = 2 * INTERVAL_MS + SLACK_MS
    slow_ms = knobs.get("append_ms", SLOW_MS)
    run = partial(
        Plan,
        load=Load.chosen(knobs, rate=500, seconds=1.5 if quick else 4),
        options=Options(timeout_ms=knobs.get("timeout_ms", 3000)),
    )
    return [
        run(
            "anonymous pool, slow commits",
            "fault",
            f"a commit takes {slow_ms} ms: messages acknowledged since the last one die with the process",
            switches=switches((0, slow(knobs, SLOW_MS, COMMITS))),
            checks=(partial(_lost, 1), partial(_lost_within, 2 * slow_ms + within_ms)),
            brokers=(ANONYMOUS,),
            acknowledged_may_be_lost=True,
        ),
        run(
            "anonymous pool, healthy disk",
            "fault",
            f"commits every {INTERVAL_MS} ms or sooner: little is lost, sometimes nothing, but there is no guarantee",
            checks=(partial(_lost, 0), partial(_lost_within, within_ms)),
            brokers=(ANONYMOUS,),
            acknowledged_may_be_lost=True,
        ),
        run(
            "surviving pool, slow commits",
            "cure",
            "the same kill: the next start finds the buffers in shared memory and writes them to the log",
            switches=switches((0, slow(knobs, SLOW_MS, COMMITS))),
            checks=(none("no send fails before the kill", lambda measured: len(measured.failed)),),
            brokers=(POOL,),
        ),
        run(
            "no pool",
            "cure",
            "an acknowledged message is in the page cache, which belongs to the system, not to the process",
            checks=(none("no send fails before the kill", lambda measured: len(measured.failed)),),
        ),
    ]


async def _killed(
    cluster: Cluster, plan: Plan, brokers: list[BrokerProcess], topic: str, progress: Progress
) -> Measured:
    """Run the load, kill the broker, start it again, and read the topic."""
    [broker] = brokers
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
    progress(f"{plan.name}: restarted on the store that the process left; reading the topic")
    await broker.start()
    async with Admin(namesrv=cluster.namesrv) as admin:
        await Watch(admin, broker).idle()
    stored = await read_topic(cluster.namesrv, topic)
    return Measured(sends, [watch], stored)


def _lost(at_least: int, measured: Measured) -> Check:
    lost, acknowledged = measured.lost, len(measured.delivered)
    what = "acknowledged messages are lost" if at_least else "acknowledged messages may be lost"
    return expect(what, lost >= at_least, f"{lost:,} of {acknowledged:,}")


def _lost_within(ms: int, measured: Measured) -> Check:
    """The lost messages are the last ones, not older than the last commits."""
    delivered = sorted(measured.delivered, key=lambda send: send.at_s)
    end_s = delivered[-1].at_s if delivered else 0.0
    ages_ms = [(end_s - send.at_s) * 1000 for send in delivered if not measured.stored[send.body]]
    oldest = max(ages_ms, default=0.0)
    return expect(
        f"and they were sent in the last {ms:,} ms",
        oldest <= ms,
        f"the oldest was sent {oldest:,.0f} ms before the end",
    )
