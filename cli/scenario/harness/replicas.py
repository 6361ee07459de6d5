"""One phase of a scenario with a master and its slaves: what happens to them under load, and the result.

Lives here: ``GroupPlan`` (what to do), ``GroupMeasured`` (what was found), ``run_groups``.
"""

import asyncio
import contextlib
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

import msgspec

from pocketmq.cli.exit_codes import CannotStart
from pocketmq.cli.scenario.harness.cable import Cable
from pocketmq.cli.scenario.harness.cluster import COMMAND, BrokerProcess, Cluster
from pocketmq.cli.scenario.harness.disk import Rule
from pocketmq.cli.scenario.harness.load import Load, Options, create_topic, read_topic, run_load, warm_up
from pocketmq.cli.scenario.harness.phase import FAULTS_SEEN_S, Measured, Plan, Progress, expect, none, to_phase
from pocketmq.cli.scenario.harness.watch import Watch
from pocketmq.cli.scenario.report.report import Check, Evidence, Latency, Phase, Send, latency
from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.ha_admin import HaAdmin
from pocketmq.client.admin.promotion import promote
from pocketmq.common.errors import PocketMQError

READ_ONLY: Final[Rule] = {
    "operations": ["store", "write_at", "scatter", "resize", "reserve", "zero", "replace", "rename"],
    "error": "EROFS",
}
"""A file system that the kernel remounted read-only after an error."""
ORIGINAL: Final = "pocketmq.cli.scenario.harness.original"
SEND_WAIT_MS: Final = "3000"
"""A client's whole patience: a pause of this machine above 200 ms is no part of these incidents."""
AFTER: Final = 20
"""Sends after the repair."""
PROBES_FROM: Final = 100_000_000
AFTER_FROM: Final = 200_000_000
"""Numbers in the bodies of probes, and of sends after the repair."""
IN_SYNC_S_MAX: Final = 30.0
ASK_S: Final = 0.05

Deed = Literal["kill", "start", "freeze", "thaw", "cut", "heal"]


@dataclass(frozen=True, slots=True)
class Act:
    """Happens to a broker ``at_s`` seconds into the load: broker 0 is the master; ``cut`` and ``heal`` concern its HA
    cable.
    """

    at_s: float
    deed: Deed
    broker: int = 1


def scaled(factor: float, at_s: float, deed: Deed) -> Act:
    """Return an act whose time follows the length of the load."""
    return Act(at_s * factor, deed)


@dataclass(slots=True)
class GroupMeasured(Measured):
    """``sends`` holds those of the load, then the probes."""

    load: list[Send] = field(default_factory=list)
    probes: list[Send] = field(default_factory=list)
    after: list[Send] = field(default_factory=list)
    """Sends after the repair."""
    notes: list[Evidence] = field(default_factory=list)
    load_s: float = 0.0

    @property
    def lost(self) -> int:
        """Messages with SEND_OK that cannot be read: another status warns that the loss of the master may lose it."""
        return sum(1 for send in self.sends if send.text.startswith("SEND_OK") and not self.stored[send.body])

    def said(self, status: str) -> list[Send]:
        """Return the sends with this status."""
        return [send for send in self.sends if send.delivered and send.text.startswith(status)]

    @property
    def answered_in_last_second(self) -> int:
        """How many sends of the load were answered in its last second."""
        begin, end = self.load_s - 1, self.load_s
        return sum(1 for send in self.load if send.answered and begin <= send.at_s + send.took_ms / 1000 <= end)

    def took(self, sends: Sequence[Send]) -> Latency:
        """Return the percentiles of these sends."""
        return latency([send.took_ms for send in sends])


@dataclass(frozen=True, slots=True)
class GroupPlan(Plan):
    """``brokers``: the settings of the master, then of each slave."""

    acts: tuple[Act, ...] = ()
    originals: tuple[int, ...] = ()
    """The brokers that wait or follow as RocketMQ's do (``original``)."""
    probes: int = 0
    probe_options: Options = field(default_factory=Options)
    has_cable: bool = False
    """The slave reaches its master through a cable that can be cut."""
    ends: Literal["repair", "lose_master", "replace_master"] = "repair"
    """``repair``: all brokers return, and sends go on. ``lose_master``: the master is killed, its disk is lost, and a
    slave is promoted. ``replace_master``: it is killed, a slave is promoted, then it returns with its disk.
    """

    def judge(self, measured: Measured) -> list[Check]:
        """Return all checks; after a repair every send must be SEND_OK again."""
        checks = Plan.judge(self, measured)
        if self.ends == "repair":
            assert isinstance(measured, GroupMeasured)
            checks.append(all_safe_after(measured))
        return checks


def all_safe_after(measured: GroupMeasured) -> Check:
    """After the repair every send is SEND_OK again."""
    good = sum(send.text.startswith("SEND_OK") for send in measured.after)
    return expect("after the repair every send is SEND_OK again", good == AFTER, f"{good} of {AFTER}")


def all_ok(measured: GroupMeasured) -> Check:
    """No sender notices anything."""
    good = len(measured.said("SEND_OK"))
    return expect("every send is SEND_OK", good == len(measured.sends), f"{good:,} of {len(measured.sends):,}")


no_send_fails: Final = none("no send ends with an error", lambda measured: len(measured.failed))
"""Each gets a status, not an exception."""


async def run_groups(cluster: Cluster, plans: Sequence[GroupPlan], progress: Progress) -> list[Phase]:
    """Run phases one after the other, each with its own brokers."""
    phases: list[Phase] = []
    for number, plan in enumerate(plans, 1):
        run = GroupRun(cluster, plan, number, progress)
        try:
            measured = await run.measure()
        finally:
            await run.end()
        phase = to_phase(plan, measured)
        phases.append(msgspec.structs.replace(phase, evidence=[*measured.notes, *phase.evidence]))
    return phases


class GroupRun:
    """One phase while it runs."""

    def __init__(self, cluster: Cluster, plan: GroupPlan, number: int, progress: Progress) -> None:
        self._cluster = cluster
        self._plan = plan
        self._topic = f"Scenario_{number}"
        self._name = f"pair-{number}"
        self._number = number
        self._progress = progress
        self._brokers: list[BrokerProcess] = []
        self._cable: Cable | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters = 0

    async def measure(self) -> GroupMeasured:
        """Start, load, repair, read."""
        plan, namesrv = self._plan, self._cluster.namesrv
        async with contextlib.AsyncExitStack() as stack:
            admin = await stack.enter_async_context(Admin(namesrv=namesrv))
            ha = HaAdmin(admin)
            await self._start(ha)
            watches = [Watch(admin, broker) for broker in self._brokers]
            await create_topic(namesrv, self._topic, [self._name])
            producer = await stack.enter_async_context(plan.options.producer(namesrv, self._cluster.client_log))
            await warm_up(producer, self._topic, 1)
            await self._brokers[0].settled()
            at = [(act.at_s, partial(self._do, act)) for act in plan.acts]
            for switch in plan.switches:
                self._brokers[switch.broker].faults(*switch.rules)
            await asyncio.sleep(FAULTS_SEEN_S)
            self._progress(f"{plan.name}: {plan.load}")
            watcher = asyncio.get_running_loop().create_task(self._watch_waiters(ha))
            try:
                load = await run_load(producer, self._topic, plan.load, at)
                probes: list[Send] = []
                if plan.probes:
                    prober = await stack.enter_async_context(
                        plan.probe_options.producer(namesrv, self._cluster.client_log)
                    )
                    seconds = plan.probe_options.timeout_ms / 1000
                    self._progress(f"{plan.name}: {plan.probes} sends with a timeout of {seconds:g} s")
                    probes = await run_load(prober, self._topic, Load(burst=plan.probes), first_number=PROBES_FROM)
            finally:
                watcher.cancel()
            load_s = plan.load.due_s()[-1]
            shifted = [_later(send, load_s) for send in probes]
            measured = GroupMeasured([*load, *shifted], watches, Counter(), load, probes, load_s=load_s)
            if plan.ends == "repair":
                await self._repair(ha)
                self._progress(f"{plan.name}: repaired and in sync; {AFTER} sends")
                measured.after = await run_load(producer, self._topic, Load(burst=AFTER), first_number=AFTER_FROM)
            else:
                measured.notes += await self._replace_master(ha)
            with contextlib.suppress(PocketMQError):
                for watch in watches:
                    await watch.idle()
            measured.stored = await read_topic(namesrv, self._topic)
            for send in measured.after:
                del measured.stored[send.body]
            if self._waiters:
                measured.notes.append(
                    Evidence(
                        "most sends that waited for slaves", f"{self._waiters:,}", "ha status", self._brokers[0].name
                    )
                )
        return measured

    @contextlib.asynccontextmanager
    async def incident(self) -> AsyncIterator[list[BrokerProcess]]:
        """Start the brokers and bring the incident about, without a load; the end repairs it."""
        plan, namesrv = self._plan, self._cluster.namesrv
        async with Admin(namesrv=namesrv) as admin:
            ha = HaAdmin(admin)
            await self._start(ha)
            await create_topic(namesrv, self._topic, [self._name])
            async with plan.options.producer(namesrv, self._cluster.client_log) as producer:
                await warm_up(producer, self._topic, 1)
            breaks = [act for act in plan.acts if act.deed in ("kill", "freeze", "cut")]
            for act in breaks:
                self._do(act)
            for switch in plan.switches:
                self._brokers[switch.broker].faults(*switch.rules)
            await asyncio.sleep(FAULTS_SEEN_S)
            yield self._brokers
            for act in breaks:
                if act.deed == "kill":
                    self._do(dataclasses.replace(act, deed="start"))
            await self._repair(ha)

    async def end(self) -> None:
        """Kill all brokers of the phase."""
        for task in self._tasks:
            task.cancel()
        await self._cluster.kill(self._brokers)
        if self._cable is not None:
            await self._cable.close()

    async def _start(self, ha: HaAdmin) -> None:
        plan = self._plan
        self._progress(f"{plan.name}: starting a master and its slave{'s' if len(plan.brokers) > 2 else ''}")
        for at, own in enumerate(plan.brokers):
            settings = {
                "broker.broker_name": self._name,
                "broker.broker_id": str(at),
                "broker.register_name_server_period": "1000",
                "broker.slave_sync_interval": "200",
                "broker.wait_time_mills_in_send_queue": SEND_WAIT_MS,
                "store.broker_role": "SLAVE" if at else "SYNC_MASTER",
                **own,
            }
            if at and self._cable is not None:
                settings["store.ha_master_address"] = self._cable.address
            name = f"broker-{self._number}{chr(ord('a') + at)}"
            module = ORIGINAL if at in plan.originals else COMMAND
            self._brokers.append(self._cluster.add(name, settings, module))
            if at == 0:
                await self._brokers[0].start()
                if plan.has_cable:
                    status = await ha.status(self._brokers[0].address)
                    self._cable = Cable(status.ha_address)
                    await self._cable.open()
        await asyncio.gather(*(broker.start() for broker in self._brokers[1:]))
        await self._in_sync(ha)

    async def _in_sync(self, ha: HaAdmin) -> None:
        """Return when all slaves have everything: the master counts a slave as in sync while it lacks up to 256 MiB."""
        slaves = len(self._brokers) - 1
        try:
            async with asyncio.timeout(IN_SYNC_S_MAX):
                while True:
                    with contextlib.suppress(PocketMQError):
                        status = await ha.status(self._brokers[0].address)
                        if sum(each.is_in_sync and not each.behind_bytes for each in status.slaves) == slaves:
                            return
                    await asyncio.sleep(ASK_S)
        except TimeoutError as error:
            why = f"not all slaves are in sync after {IN_SYNC_S_MAX:.0f} s"
            raise CannotStart("the scenario cannot go on", why=why) from error

    async def _watch_waiters(self, ha: HaAdmin) -> None:
        while True:
            with contextlib.suppress(PocketMQError):
                status = await ha.status(self._brokers[0].address)
                self._waiters = max(self._waiters, status.waiters)
            await asyncio.sleep(2 * ASK_S)

    def _do(self, act: Act) -> None:
        broker = self._brokers[act.broker]
        if act.deed == "start":
            self._tasks.add(asyncio.get_running_loop().create_task(self._start_again(broker)))
        elif act.deed in ("cut", "heal"):
            getattr(self._cable, act.deed)()
        else:
            {"kill": broker.kill_now, "freeze": broker.freeze, "thaw": broker.thaw}[act.deed]()

    async def _start_again(self, broker: BrokerProcess) -> None:
        await broker.kill()  # it has ended; this collects its exit status
        await broker.start()

    async def _repair(self, ha: HaAdmin) -> None:
        if self._tasks:
            await asyncio.gather(*self._tasks)
        for broker in self._brokers:
            broker.faults()
            broker.thaw()
        if self._cable is not None:
            self._cable.heal()
        self._progress(f"{self._plan.name}: repaired; waiting for the slave to catch up")
        await self._in_sync(ha)

    async def _replace_master(self, ha: HaAdmin) -> list[Evidence]:
        master, slave = self._brokers[0], self._brokers[1]
        loses_disk = self._plan.ends == "lose_master"
        self._progress(
            f"{self._plan.name}: kill -9 of the master{', its disk is gone' if loses_disk else ''}; promotion"
        )
        await master.kill()
        if loses_disk:
            master.wipe()
        done = await promote(ha, self._name, to=slave.address)
        notes = [Evidence("promoted in epoch", f"{done.master.epoch:,}", "ha promote", slave.name)]
        if not loses_disk:
            await master.start()
            status = await ha.wait_for(master.address, 20_000, lambda each: each.is_fenced, "the fence")
            text = f"replaced in epoch {status.fenced_by_epoch:,} by {status.fenced_by_address}"
            notes.append(Evidence("the old master comes back, and is fenced", text, "ha status", master.name))
        return notes


def _later(send: Send, seconds: float) -> Send:
    """Return a send that was made after the load, on the clock of the load."""
    return dataclasses.replace(send, at_s=send.at_s + seconds)
