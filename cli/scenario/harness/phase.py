"""One phase of a scenario: its brokers, faults and load, and the result.

Lives here: ``Plan`` (what to do), ``Measured`` (what was found), the checks of several scenarios, ``run_plans``.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pocketmq.cli.scenario.harness.cluster import BrokerProcess, Cluster
from pocketmq.cli.scenario.harness.disk import Rule
from pocketmq.cli.scenario.harness.load import Load, Options, create_topic, read_topic, run_load, warm_up
from pocketmq.cli.scenario.harness.watch import Watch
from pocketmq.cli.scenario.report.report import Check, Evidence, Latency, Phase, Send, latency, outcomes_of, points_of
from pocketmq.client.admin.admin import Admin

FAULTS_SEEN_S: Final = 0.05
"""The broker reads its rules every 20 ms."""

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
    """The data that the checks of a phase use."""

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

    def failed_with(self, text: str) -> int:
        """Return how many sends failed with this text."""
        return sum(1 for send in self.sends if not send.delivered and text in send.text)

    @property
    def timed_out(self) -> int:
        """Sends that ended without an answer from a broker."""
        return sum(1 for send in self.failed if not send.answered)

    @property
    def without_receipt(self) -> int:
        """Messages in the log although their sender got no receipt."""
        return sum(1 for send in self.failed if self.stored[send.body])

    @property
    def lost(self) -> int:
        """Acknowledged messages that cannot be read."""
        return sum(1 for send in self.delivered if not self.stored[send.body])

    @property
    def retried(self) -> int:
        """Sends that were delivered by a later attempt than the first."""
        return sum(1 for send in self.delivered if send.attempts > 1)

    @property
    def duplicates(self) -> int:
        """Messages that are in the log more than once."""
        return sum(1 for count in self.stored.values() if count > 1)

    def latency(self, *, delivered: bool) -> Latency:
        """Return the percentiles of the sends with, or without, a receipt."""
        return latency([send.took_ms for send in self.sends if send.delivered is delivered])


Judge = Callable[[Any], Check]
"""Checks one expectation on a ``Measured``, or on the subclass that belongs to the plan."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a phase does. ``brokers``: the settings of each broker that differ from the defaults."""

    name: str
    role: str
    says: str
    load: Load
    switches: tuple[Switch, ...] = ()
    checks: tuple[Judge, ...] = ()
    brokers: tuple[Settings, ...] = ({},)
    options: Options = field(default_factory=Options)
    events: tuple[str, ...] = ()
    """Log events worth a line."""
    warm_up: bool = True
    """Send one message to each broker before the load; False where every send would be refused."""
    acknowledged_may_be_lost: bool = False
    """Losing acknowledged messages is what this run shows."""

    def judge(self, measured: Measured) -> list[Check]:
        """Return all checks: that the faults hit, those of this plan, and those of every run."""
        checks = [provoked(measured, broker) for broker in sorted({switch.broker for switch in self.switches})]
        checks += [judge(measured) for judge in self.checks]
        checks.append(nothing_invented(measured))
        if not self.acknowledged_may_be_lost:
            checks.append(nothing_lost(measured))
        return checks


def expect(what: str, ok: bool, found: object) -> Check:
    """Return a check."""
    return Check(what, f"{found:,}" if isinstance(found, int) and not isinstance(found, bool) else str(found), ok)


def some(what: str, count: Callable[[Any], int], at_least: int = 1) -> Judge:
    """Return a check that ``count`` of what was measured reaches ``at_least``."""
    return lambda measured: expect(what, count(measured) >= at_least, count(measured))


def none(what: str, count: Callable[[Any], int]) -> Judge:
    """Return a check that ``count`` of what was measured is 0."""
    return lambda measured: expect(what, count(measured) == 0, count(measured))


def refused_with(text: str, at_least: int = 1) -> Judge:
    """Return a check that the broker refused sends with this text."""
    least = f"at least {at_least} sends" if at_least > 1 else "sends"
    return some(f"{least} are refused with {text}", lambda measured: measured.failed_with(text), at_least)


def never_refused_with(text: str) -> Judge:
    """Return a check that no send was refused with this text."""
    return none(f"no send is refused with {text} any more", lambda measured: measured.failed_with(text))


retried: Final = some("sends are delivered by another attempt", lambda measured: measured.retried)


def nothing_lost(measured: Measured) -> Check:
    """Every message that was acknowledged can be read."""
    return expect("every acknowledged message can be read", measured.lost == 0, f"{measured.lost:,} cannot")


def nothing_invented(measured: Measured) -> Check:
    """Every message that can be read was sent."""
    strange = len(measured.stored.keys() - {send.body for send in measured.sends})
    return expect("nothing can be read that was not sent", strange == 0, strange)


def provoked(measured: Measured, broker: int = 0) -> Check:
    """The fault came from the disk of this broker."""
    hits = measured.watches[broker].fault_hits()
    return expect("the fault hit the disk", hits > 0, f"{hits:,} calls hit")


def all_delivered(measured: Measured) -> Check:
    """No send ended with an error."""
    count = len(measured.delivered)
    return expect("every send is delivered", count == len(measured.sends), f"{count:,} of {len(measured.sends):,}")


async def run_plans(
    cluster: Cluster, plans: Sequence[Plan], progress: Progress, measure: "Measure | None" = None
) -> list[Phase]:
    """Run phases one after the other, each with ``measure``: load under faults unless given.

    All brokers are started at once, before the first load: that takes seconds of both cores, and fast failure needs a
    second after a start. Each broker is idle until its phase, and killed after it.
    """
    count = sum(len(plan.brokers) for plan in plans)
    progress(f"starting {count} broker{'s' if count > 1 else ''}")
    started = await cluster.start_all([plan.brokers for plan in plans])
    phases: list[Phase] = []
    for number, (plan, brokers) in enumerate(zip(plans, started, strict=True), 1):
        measured = await (measure or _measure)(cluster, plan, brokers, f"Scenario_{number}", progress)
        await cluster.kill(brokers)
        phases.append(to_phase(plan, measured))
    return phases


Measure = Callable[[Cluster, Plan, list[BrokerProcess], str, Progress], Awaitable[Measured]]
"""(cluster, plan, its brokers, topic, progress) → what was found."""


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
    """Return the phase of the report."""
    outcomes = outcomes_of(measured.sends)
    several = len(plan.brokers) > 1
    settings = {
        (f"{chr(ord('a') + number)}: {key}" if several else key): value
        for number, each in enumerate(plan.brokers)
        for key, value in each.items()
    }
    evidence = [each for watch in measured.watches for each in watch.evidence(plan.events)]
    if measured.without_receipt:
        evidence.append(Evidence("stored, but the sender got no receipt", f"{measured.without_receipt:,}", "topic"))
    if measured.duplicates:
        evidence.append(Evidence("messages stored more than once", f"{measured.duplicates:,}", "topic"))
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
        checks=plan.judge(measured),
        stored_for_nobody=measured.without_receipt,
        acknowledged_lost=measured.lost,
        says=plan.says,
        points=points_of(measured.sends, outcomes),
    )


def switches(*each: tuple[float, Sequence[Rule]]) -> tuple[Switch, ...]:
    """Return switches of the first broker from (second, rules)."""
    return tuple(Switch(at_s, tuple(rules)) for at_s, rules in each)
