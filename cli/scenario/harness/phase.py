"""One phase of a scenario: brokers, faults, load, what came of it.

Lives here: ``Plan`` (what to do), ``Measured`` (what was found), ``run_phase``.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pocketmq.cli.scenario.harness.cluster import BrokerProcess, Cluster, Rule
from pocketmq.cli.scenario.harness.load import Load, Options, create_topic, read_topic, run_load, warm_up
from pocketmq.cli.scenario.harness.watch import Watch
from pocketmq.cli.scenario.report.report import Check, Evidence, Latency, Phase, Send, latency, outcomes_of, points_of
from pocketmq.client.admin.admin import Admin

FAULTS_SEEN_S: Final = 0.05
"""Rules are looked at every 20 ms."""

Settings = Mapping[str, str]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Switch:
    """``at_s`` seconds into the load a broker's disk gets these rules."""

    at_s: float
    rules: tuple[Rule, ...]
    broker: int = 0


@dataclass(slots=True)
class Measured:
    """All that a phase's checks may look at."""

    sends: list[Send]
    watches: list[Watch]
    stored: Counter[bytes]

    @property
    def delivered(self) -> list[Send]:
        """Sends with a receipt."""
        return [send for send in self.sends if send.delivered]

    @property
    def failed(self) -> list[Send]:
        """Sends that ended with an error."""
        return [send for send in self.sends if not send.delivered]

    def told(self, text: str) -> int:
        """Return how many sends failed with this text."""
        return sum(1 for send in self.sends if not send.delivered and text in send.text)

    @property
    def timed_out(self) -> int:
        """Sends that ended without any answer of a broker."""
        return sum(1 for send in self.failed if not send.answered)

    @property
    def for_nobody(self) -> int:
        """Messages in the log whose sender did not get a receipt."""
        return sum(1 for send in self.failed if self.stored[send.body])

    @property
    def lost(self) -> int:
        """Acknowledged messages that cannot be read."""
        return sum(1 for send in self.delivered if not self.stored[send.body])

    @property
    def duplicates(self) -> int:
        """Messages that are in the log more than once."""
        return sum(1 for count in self.stored.values() if count > 1)

    def latency(self, *, delivered: bool) -> Latency:
        """Return the percentiles of those with, or without, a receipt."""
        return latency([send.took_ms for send in self.sends if send.delivered is delivered])


Checks = Callable[[Measured], list[Check]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a phase does. ``brokers``: the settings of each that differ from the defaults."""

    name: str
    role: str
    says: str
    load: Load
    switches: tuple[Switch, ...]
    checks: Checks
    brokers: tuple[Settings, ...] = ({},)
    options: Options = field(default_factory=Options)
    events: tuple[str, ...] = ()
    """Log events worth a line."""
    warm_up: bool = True
    """Send one message to each broker before the load; False where none would be taken."""
    acknowledged_may_be_lost: bool = False
    """This run is about losing some."""


def expect(what: str, ok: bool, found: object) -> Check:
    """Return a check."""
    return Check(what, f"{found:,}" if isinstance(found, int) and not isinstance(found, bool) else str(found), ok)


def nothing_lost(measured: Measured) -> Check:
    """Every message that was acknowledged can be read."""
    return expect("every acknowledged message can be read", measured.lost == 0, f"{measured.lost:,} cannot")


def nothing_invented(measured: Measured) -> Check:
    """Every message that can be read was sent."""
    strange = len(measured.stored.keys() - {send.body for send in measured.sends})
    return expect("nothing can be read that was not sent", strange == 0, strange)


def provoked(measured: Measured) -> Check:
    """The fault came from the disk."""
    hits = measured.watches[0].fault_hits()
    return expect("the fault hit the disk", hits > 0, f"{hits:,} calls hit")


def all_delivered(measured: Measured) -> Check:
    """No send ended with an error."""
    count = len(measured.delivered)
    return expect("every send is delivered", count == len(measured.sends), f"{count:,} of {len(measured.sends):,}")


async def run_plans(cluster: Cluster, plans: Sequence[Plan], progress: Progress) -> list[Phase]:
    """Run phases one after the other.

    All brokers are started at once, before the first load: that takes seconds of both cores, and fast failure needs a
    second after a start. Until its phase a broker is idle, after it it is killed.
    """
    count = sum(len(plan.brokers) for plan in plans)
    progress(f"starting {count} broker{'s' if count > 1 else ''}")
    started = await cluster.start_all([plan.brokers for plan in plans])
    phases: list[Phase] = []
    for number, (plan, brokers) in enumerate(zip(plans, started, strict=True), 1):
        measured = await _measure(cluster, plan, brokers, f"Scenario_{number}", progress)
        await cluster.kill(brokers)
        phases.append(to_phase(plan, measured))
    return phases


async def _measure(
    cluster: Cluster, plan: Plan, brokers: list[BrokerProcess], topic: str, progress: Progress
) -> Measured:
    producer = plan.options.producer(cluster.namesrv, cluster.client_log)
    async with Admin(namesrv=cluster.namesrv) as admin:
        watches = [Watch(admin, broker) for broker in brokers]
        await create_topic(cluster.namesrv, topic, [broker.name for broker in brokers])
        async with producer:
            if plan.warm_up:
                await warm_up(producer, topic, len(brokers))
            for broker in brokers:
                await broker.settled()
            at: list[tuple[float, Callable[[], object]]] = []
            for switch in plan.switches:
                if switch.at_s > 0:
                    at.append((switch.at_s, partial(brokers[switch.broker].faults, *switch.rules)))
                else:
                    brokers[switch.broker].faults(*switch.rules)
            await asyncio.sleep(FAULTS_SEEN_S)
            progress(f"{plan.name}: {plan.load}")
            for watch in watches:
                watch.start()
            sends = await run_load(producer, topic, plan.load, at)
            for watch in watches:
                await watch.stop()
        for broker in brokers:
            broker.faults()
        progress(f"{plan.name}: the disk is well again; reading what was stored")
        for watch in watches:
            await watch.idle()
        stored = await read_topic(cluster.namesrv, topic)
        for watch in watches:
            await watch.ask()
    return Measured(sends, watches, stored)


def to_phase(plan: Plan, measured: Measured) -> Phase:
    """Put what was found into the report's form."""
    outcomes = outcomes_of(measured.sends)
    several = len(plan.brokers) > 1
    settings = {
        (f"{chr(ord('a') + number)}: {key}" if several else key): value
        for number, each in enumerate(plan.brokers)
        for key, value in each.items()
    }
    evidence = [each for watch in measured.watches for each in watch.evidence(plan.events)]
    if measured.for_nobody:
        evidence.append(Evidence("stored, but the sender got no receipt", f"{measured.for_nobody:,}", "topic"))
    if measured.duplicates:
        evidence.append(Evidence("messages stored more than once", f"{measured.duplicates:,}", "topic"))
    checks = [*plan.checks(measured), nothing_invented(measured)]
    if not plan.acknowledged_may_be_lost:
        checks.append(nothing_lost(measured))
    return Phase(
        name=plan.name,
        role=plan.role,
        settings=settings | plan.options.words(),
        load=str(plan.load),
        sends=len(measured.sends),
        delivered=len(measured.delivered),
        outcomes=outcomes,
        delivered_latency=measured.latency(delivered=True),
        failed_latency=measured.latency(delivered=False),
        evidence=evidence,
        checks=checks,
        stored_for_nobody=measured.for_nobody,
        acknowledged_lost=measured.lost,
        says=plan.says,
        points=points_of(measured.sends, outcomes),
    )


def switches(*each: tuple[float, Sequence[Rule]]) -> tuple[Switch, ...]:
    """Return switches of the first broker from (second, rules)."""
    return tuple(Switch(at_s, tuple(rules)) for at_s, rules in each)
