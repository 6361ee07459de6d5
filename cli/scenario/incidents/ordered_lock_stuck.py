"""An ordered queue stands still: its holder was killed, and the broker keeps the lock.

Lives here: the four runs, side by side, and the checks of each.

RocketMQ's times are 60 s (the broker's lock), 20 s (renewal) and 30 s (the client's trust). All are divided by the same
number unless ``--full`` is given; the report says so.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Final

from pocketmq.cli.scenario.harness.cluster import BrokerProcess, Cluster
from pocketmq.cli.scenario.harness.load import Load
from pocketmq.cli.scenario.harness.ordered_group import PERIOD_S, Moved, consume_until_moved
from pocketmq.cli.scenario.harness.phase import Progress, Settings, Switch, expect
from pocketmq.cli.scenario.knobs import OWN, Knobs
from pocketmq.cli.scenario.report.report import Check, Evidence, Phase, Send, latency, outcomes_of, points_of

CURE: Final = (
    "a graceful stop (SIGTERM and enough time: it finishes, commits and unlocks); locks renewed every 5 s that expire "
    "after 15 s; release_locks_on_disconnect, which notices a killed process at once"
)
PRICE: Final = (
    "shorter locks: three times the renewals, and a pause of 15 s in a consumer or its network moves its queues; the "
    "early release does not see a machine that vanishes silently (power, a network cut): there the expiry counts, and "
    "it applies to RocketMQ's own clients only with ALL"
)
LIFE_MS: Final = 60_000
SCALE: Final = 5
QUICK_SCALE: Final = 10
GRACE_MS: Final = 1_000
SLACK_S: Final = 3.0
"""How late a takeover may come on a loaded machine: a rebalance a second, a pull, a process switch."""
LOCK_LOG_EVENTS: Final = ("queue_lock_refused", "queue_lock_expired", "queue_lock_over", "queue_unlocked")


@dataclass(frozen=True, slots=True)
class OrderedPlan:
    """One run: how the first member ends, and under which settings. Times in ms."""

    name: str
    role: str
    says: str
    load: Load
    life_ms: int
    scale: int
    graceful: bool = False
    early: bool = False
    switches: tuple[Switch, ...] = ()

    @property
    def interval_ms(self) -> int:
        """How often the members renew: a third of the life."""
        return self.life_ms // 3

    @property
    def brokers(self) -> tuple[Settings, ...]:
        """The broker's settings that differ from the defaults."""
        return (
            {
                "broker.lock_max_live_time": str(self.life_ms),
                "broker.release_locks_on_disconnect": "OWN" if self.early else "OFF",
                "broker.lock_release_grace_mills": str(GRACE_MS),
            },
        )

    @property
    def longest_s(self) -> float:
        """Longest time that the queue may stand still."""
        return self.life_ms / 1000 + 3 * SLACK_S


async def run(cluster: Cluster, quick: bool, progress: Progress, knobs: Knobs = OWN) -> list[Phase]:
    """Run all four with times divided by five, or ten."""
    return await _run(cluster, plans(quick, knobs), progress)


async def run_full(cluster: Cluster, quick: bool, progress: Progress, knobs: Knobs = OWN) -> list[Phase]:
    """Run all four with RocketMQ's times: about a minute and a half."""
    return await _run(cluster, plans(quick, knobs, 1), progress)


def plans(quick: bool, knobs: Knobs = OWN, scale: int | None = None) -> list[OrderedPlan]:
    """Return the runs, their times divided by ``scale``."""
    scale = scale or (QUICK_SCALE if quick else SCALE)
    life_ms = knobs.get("lock_ms", LIFE_MS) // scale
    load = Load(rate=round(1 / PERIOD_S), seconds=life_ms / 1000)
    scaled = "" if scale == 1 else f" (lock times divided by {scale}; --full runs them undivided)"
    run = partial(OrderedPlan, load=load, life_ms=life_ms, scale=scale)
    return [
        run(
            "killed, RocketMQ's times",
            "fault",
            f"the lock of a dead member lives on for up to {life_ms / 1000:g} s; no member may consume{scaled}",
        ),
        run(
            "graceful stop",
            "cure",
            f"the member finishes, commits, unlocks; the broker notifies the waiting one{scaled}",
            graceful=True,
        ),
        run(
            "killed, 5 s / 15 s",
            "cure",
            f"renewed every {life_ms / 12000:g} s, expired after {life_ms / 4000:g} s{scaled}",
            life_ms=life_ms // 4,
        ),
        run(
            "killed, early release",
            "cure",
            f"the broker sees the connection end and releases after {GRACE_MS / 1000:g} s (never divided){scaled}",
            early=True,
        ),
    ]


async def _run(cluster: Cluster, chosen: list[OrderedPlan], progress: Progress) -> list[Phase]:
    """Run all at the same time, each with its own broker and two members: they mostly wait."""
    progress(f"starting {len(chosen)} brokers and {2 * len(chosen)} consumers")
    started = await cluster.start_all([plan.brokers for plan in chosen])
    progress(f"four groups consume; their holders end; locks live {chosen[0].life_ms / 1000:g} s")

    async def one(plan: OrderedPlan, broker: BrokerProcess) -> Phase:
        moved = await consume_until_moved(
            cluster.namesrv,
            broker,
            cluster.directory,
            graceful=plan.graceful,
            lock_interval_ms=plan.interval_ms,
            lock_max_live_ms=plan.life_ms // 2,
            longest_s=plan.longest_s,
        )
        progress(f"{plan.name}: stood still for {moved.standstill_s:.1f} s")
        return to_phase(plan, broker, moved)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(plan, broker)) for plan, (broker,) in zip(chosen, started, strict=True)]
    return [task.result() for task in tasks]


def to_phase(plan: OrderedPlan, broker: BrokerProcess, moved: Moved) -> Phase:
    """Return the phase of the report: a send is a message, from its send to its first handler call."""
    handled: dict[int, tuple[int, str]] = {}
    for member, text in ((moved.first, "handled by the first"), (moved.second, "handled by the second")):
        for number, at_ns in member.handled:
            if number not in handled or at_ns < handled[number][0]:
                handled[number] = (at_ns, text)
    sends: list[Send] = []
    for number, sent_ns in enumerate(moved.sent):
        at_s = (sent_ns - moved.began_ns) / 1e9
        if number not in handled:
            sends.append(Send(at_s, 0.0, False, "never handled"))
            continue
        at_ns, text = handled[number]
        if text.endswith("second") and sent_ns < moved.ended_ns + moved.standstill_s * 1e9 and at_ns > moved.ended_ns:
            text = "waited for the lock, then handled by the second"
        sends.append(Send(at_s, (at_ns - sent_ns) / 1e6, True, text))
    outcomes = outcomes_of(sends)
    return Phase(
        name=plan.name,
        role=plan.role,
        settings={
            **plan.brokers[0],
            "consumer.lock_interval_ms": str(plan.interval_ms),
            "consumer.lock_max_live_ms": str(plan.life_ms // 2),
        },
        load=f"{plan.load.rate} messages a second under one key; the holder ends after a while",
        sends=len(sends),
        delivered=sum(send.delivered for send in sends),
        outcomes=outcomes,
        delivered_latency=latency([send.took_ms for send in sends if send.delivered]),
        failed_latency=latency([]),
        evidence=_evidence(broker, moved),
        checks=_checks(plan, moved),
        says=plan.says,
        points=points_of(sends, outcomes),
        spans=moved.spans(),
        ended_s=round((moved.ended_ns - moved.began_ns) / 1e9, 3),
    )


def _evidence(broker: BrokerProcess, moved: Moved) -> list[Evidence]:
    name = broker.name
    found = [Evidence("the queue stood still, s", f"{moved.standstill_s:.2f}", "consumers", name)]
    if moved.repeated:
        found.append(Evidence("handled again, not committed before", f"{moved.repeated:,}", "consumers", name))
    for wait in moved.waits()[:1]:
        said = (
            f"waited {wait['waited_ms']} ms for {wait.get('holder', 'no holder')}, which has it for "
            f"{wait.get('holder_age_ms')} ms; expires in {wait.get('expires_in_ms')} ms"
        )
        found.append(Evidence("queue_waits_for_lock", said, "second consumer", name))
    since_end: dict[str, list[str]] = {}
    for line in broker.log_lines():
        if line.get("event") in LOCK_LOG_EVENTS and str(line.get("topic", "")).startswith("Orders"):
            since_end.setdefault(line["event"], []).append(str(line.get("text", line.get("why", ""))))
    for event, texts in since_end.items():
        found.append(Evidence(f"lock log, {len(texts)} × {event}", texts[-1], "log", name))
    return found


def _checks(plan: OrderedPlan, moved: Moved) -> list[Check]:
    still_s = moved.standstill_s
    life_s, interval_s = plan.life_ms / 1000, plan.interval_ms / 1000
    firsts = moved.firsts
    checks = [
        expect("every message is handled", len(firsts) == len(moved.sent), f"{len(firsts):,} of {len(moved.sent):,}"),
        expect("in the order of the key", firsts == sorted(firsts), "in order" if firsts == sorted(firsts) else "not"),
    ]
    if plan.graceful:
        checks.append(expect(f"the queue moves within {SLACK_S:g} s", still_s <= SLACK_S, f"{still_s:.2f} s"))
        checks.append(expect("nothing is handled twice", moved.repeated == 0, moved.repeated))
        return checks
    if plan.early:
        low_s, high_s = 0.0, GRACE_MS / 1000 + SLACK_S
        checks.append(expect("the broker saw the connection end", still_s < life_s - interval_s, f"{still_s:.2f} s"))
    else:
        low_s, high_s = life_s - interval_s - 1, life_s + SLACK_S
    what = f"the queue stands still for {max(low_s, 0):g} to {high_s:g} s"
    checks.append(expect(what, low_s <= still_s <= high_s, f"{still_s:.2f} s"))
    if still_s > 2 * SLACK_S:
        waits = [wait for wait in moved.waits() if wait.get("holder") == moved.first.client_id]
        checks.append(expect("the second names the holder that it waits for", bool(waits), f"{len(waits)} events"))
    return checks
