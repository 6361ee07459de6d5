"""An incident that stays, for the reader's own client.

Lives here: ``hold``: starts the brokers of one run, brings its incident about, prints where they are and what to try;
the first Ctrl-C repairs it, the second ends.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from pocketmq.cli.scenario.harness.cluster import BrokerProcess, Cluster
from pocketmq.cli.scenario.harness.disk import for_good
from pocketmq.cli.scenario.harness.load import create_topic, warm_up
from pocketmq.cli.scenario.harness.phase import FAULTS_SEEN_S, Plan, Progress
from pocketmq.cli.scenario.harness.replicas import GroupPlan, GroupRun

TOPIC: Final = "Scenario_1"
TRY: Final = (
    "pocketmq produce {topic} --namesrv {namesrv} -m hello",
    "pocketmq bench --namesrv {namesrv} -n 2000",
    "pocketmq doctor --namesrv {namesrv}",
    "pocketmq ha status --namesrv {namesrv}",
    "RocketMQ's load: sh bin/tools.sh org.apache.rocketmq.example.benchmark.Producer -n {namesrv} -t {topic}",
)


async def hold(cluster: Cluster, plan: Plan, say: Callable[[str], None], progress: Progress) -> None:
    """Keep the incident of a run until Ctrl-C, repair it, and return at the next one."""
    presses: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    incident = _group if isinstance(plan, GroupPlan) else _brokers
    async with contextlib.AsyncExitStack() as ends:
        async with incident(cluster, plan, progress, ends) as brokers:
            loop.add_signal_handler(signal.SIGINT, presses.put_nowait, None)
            for line in lines(cluster.namesrv, plan, brokers):
                say(line)
            await presses.get()
            progress("repairing")
        say("repaired: a client goes on by itself. Ctrl-C ends.")
        await presses.get()


def lines(namesrv: str, plan: Plan, brokers: list[BrokerProcess]) -> list[str]:
    """Return what a reader needs: addresses, logs, commands."""
    is_pair = isinstance(plan, GroupPlan)
    found = [f"held: {plan.name}", f"  {plan.says}", f"name server {namesrv}"]
    for number, broker in enumerate(brokers):
        role = ("slave" if number else "master") if is_pair else "broker"
        found.append(f"{role} {broker.name} {broker.address}  log: {broker.log}")
    tries = [each for each in TRY if is_pair or " ha " not in each]
    found += [f"topic {TOPIC}", "try:", *(f"  {each.format(namesrv=namesrv, topic=TOPIC)}" for each in tries)]
    return [*found, "Ctrl-C repairs it; a second one ends."]


@contextlib.asynccontextmanager
async def _group(
    cluster: Cluster, plan: Any, progress: Progress, ends: contextlib.AsyncExitStack
) -> AsyncIterator[list[BrokerProcess]]:
    """``ends`` ends the processes: they outlive the incident."""
    run = GroupRun(cluster, plan, 1, progress)
    ends.push_async_callback(run.end)
    async with run.incident() as brokers:
        yield brokers


@contextlib.asynccontextmanager
async def _brokers(
    cluster: Cluster, plan: Plan, progress: Progress, ends: contextlib.AsyncExitStack
) -> AsyncIterator[list[BrokerProcess]]:
    """The cluster ends the processes."""
    progress(f"starting {len(plan.brokers)} brokers")
    [brokers] = await cluster.start_all([plan.brokers])
    await create_topic(cluster.namesrv, TOPIC, [broker.name for broker in brokers])
    if plan.warm_up:
        async with plan.options.producer(cluster.namesrv, cluster.client_log) as producer:
            await warm_up(producer, TOPIC, len(brokers))
    for broker in brokers:
        await broker.settled()
    for switch in plan.switches:
        if switch.rules:  # those without end the stall
            brokers[switch.broker].faults(*map(for_good, switch.rules))
    await asyncio.sleep(FAULTS_SEEN_S)
    yield brokers
    for broker in brokers:
        broker.faults()
    await asyncio.sleep(FAULTS_SEEN_S)
