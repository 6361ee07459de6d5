"""One watch of a cluster for all its viewers: asks every three seconds while somebody looks, and keeps the answers.

    watch = ClusterWatch(options, credentials);  state = await watch.look();  await watch.changed(state.revision)

A look asks each broker two questions (its runtime table, the progress of all groups), and now and then for names and
producers. Topics that no group reads are asked one by one: those on a page first, the others in turn, a few a look. So
the cost for the brokers is that of one viewer, whatever the number of viewers, topics and groups.

Lives here: ``ClusterWatch``.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from pocketmq.client.admin.admin import Admin
from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.errors import BrokerAnswerError
from pocketmq.common.errors import PocketMQError
from pocketmq.dashboard.options import DashboardOptions
from pocketmq.dashboard.show.words import number
from pocketmq.dashboard.watch.consume_stats import GROUPS_MAX, GroupProgress
from pocketmq.dashboard.watch.reading import ClusterReader
from pocketmq.dashboard.watch.state import BrokerState, ClusterState, GroupState, GroupTopic, TopicState
from pocketmq.remoting.codes import ResponseCode, software
from pocketmq.remoting.errors import AuthenticationFailed
from pocketmq.remoting.protocol.group import Connection
from pocketmq.remoting.security.credentials import Credentials
from pocketmq.remoting.telemetry import TELEMETRY_KEY, decode_telemetry

IDLE_S: Final = 30.0
"""A watch that nobody has looked at for this long stops asking."""
FIRST_LOOK_S: Final = 5.0
"""How long a page waits for the first answers."""
NAMES_S: Final = 10.0
"""Time between two questions for names and producers, and visits of the doctor; ``NAMES_LOOKS`` looks if less."""
NAMES_LOOKS: Final = 5
TOPICS_A_LOOK: Final = 20
"""Topics that are asked one by one in a look; groups, while somebody looks at all members."""
FOCUS_MAX: Final = 200
FOCUS_S: Final = 15.0
MEMBERS_MAX: Final = 500
"""Members of one group that a watch keeps."""
AGE_LOOKS: Final = 2
"""A group's lag in time is asked for in every second look."""
LAGGING: Final = 10
"""Groups of the overview, whose lag in time is asked for."""
AT_ONCE: Final = 8
"""Questions under way at the same time."""
BROKERS_MAX: Final = 256
DUTY: Final = 50
"""The bulk answer is asked for so seldom that it takes at most one of so many seconds."""

_NUMBERS: Final = itertools.count(1)
_T = TypeVar("_T")


class ClusterWatch:
    """Belongs to one event loop. ``look`` never raises: what could not be read is among the state's problems."""

    def __init__(self, options: DashboardOptions, credentials: Credentials | None) -> None:
        self._options = options
        self.credentials = credentials
        self.admin = Admin(instance=ClientInstance(options.namesrv, credentials=credentials, tls=options.tls))
        self.reader = ClusterReader(self.admin)
        self.state = ClusterState(has_doctor=options.doctor is not None)
        self.number = next(_NUMBERS)
        """No other watch of this process has or had it."""
        self.looks = 0
        """Looks at the cluster since the start."""
        self._task: asyncio.Task[None] | None = None
        self._woken_revision = 0
        self._changed = asyncio.Event()
        self._looked_ns = time.monotonic_ns()
        self._names_ns = 0
        self._stats_not_before_ns: dict[str, int] = {}
        self._no_stats: set[str] = set()
        self._topics_of: dict[str, set[str]] = {}
        self._in_stats: set[str] = set()
        self._progress_parts: dict[tuple[str, str], dict[str, GroupProgress]] = {}
        self._topic_focus: dict[str, int] = {}
        self._group_focus: dict[str, int] = {}
        self._turn = 0
        self._members_until_ns = 0
        self._refuses_strangers = False
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._start_lock = asyncio.Lock()
        self._doctor: asyncio.Task[None] | None = None
        self._doctor_ns = 0

    # ---- for viewers

    async def start(self) -> Admin:
        """Start the client, once; return it. Raises ``NoNameServer`` and connection errors."""
        async with self._start_lock:
            if not self.admin.instance.running:
                await self.admin.start()
        return self.admin

    async def look(self) -> ClusterState:
        """Return what is known; of a watch that nobody looked at for a while, after the next answers."""
        self._looked_ns = time.monotonic_ns()
        if self._task is None or self._task.done():
            self._woken_revision = self.state.revision
            self._task = asyncio.create_task(self._run(), name="dashboard-watch")
        if self.state.revision == self._woken_revision:  # what it knows may be hours old
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), FIRST_LOOK_S)
        return self.state

    async def changed(self, revision: int) -> ClusterState:
        """Return the state once it is newer than ``revision``."""
        while self.state.revision == revision:
            await self.look()
            event = self._changed
            if self.state.revision != revision:
                break
            await event.wait()
        self._looked_ns = time.monotonic_ns()
        return self.state

    def focus_topics(self, names: Iterable[str]) -> None:
        """Note the topics on a page: they are asked in each look."""
        self._note(self._topic_focus, names)

    def focus_groups(self, names: Iterable[str]) -> None:
        """Note the groups on a page: their members and their lag in time are asked in each look."""
        self._note(self._group_focus, names)

    def want_members(self) -> None:
        """Note that somebody looks at the members of all groups: some groups are asked in each look, in turn."""
        self._members_until_ns = time.monotonic_ns() + int(FOCUS_S * 1e9)

    async def stop(self) -> None:
        """End the watch and its client."""
        for task in (self._task, self._doctor):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self._task = self._doctor = None
        if self.admin.instance.running:
            await self.admin.stop()

    @property
    def is_idle(self) -> bool:
        """Whether nobody has looked for a while."""
        return time.monotonic_ns() - self._looked_ns > IDLE_S * 1e9

    # ---- the looks

    async def _run(self) -> None:
        while not self.is_idle:
            began_ns = time.monotonic_ns()
            self._refuses_strangers = False
            try:
                await self._look_once()
            except PocketMQError as error:
                self._problem("cluster", error)
            except Exception as error:  # a fault in one answer must not blind all viewers
                self._options.log.error("dashboard_look_failed", error=repr(error), exc_info=error)
                self.state.problems["cluster"] = f"the dashboard failed: {error!r}"
            self.state.needs_login = self._refuses_strangers
            self.looks += 1
            self.state.revision += 1
            self.state.at_ms = self.admin.instance.clock.now_ms()
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
            took_s = (time.monotonic_ns() - began_ns) / 1e9
            await asyncio.sleep(max(self._options.interval_s, 2 * took_s))

    async def _look_once(self) -> None:
        state, now_ns = self.state, time.monotonic_ns()
        await self.start()
        await self._brokers()
        state.problems.pop("cluster", None)
        masters = [each for each in state.masters if not each.error]
        seldom_ns = min(NAMES_S, NAMES_LOOKS * self._options.interval_s) * 1e9
        if now_ns - self._names_ns > seldom_ns:
            self._names_ns = now_ns
            await asyncio.gather(self._topic_names(), self._group_names(), self._producers(masters))
        await asyncio.gather(*(self._consume_stats(each) for each in masters if each.address not in self._no_stats))
        await self._topic_ends(masters)
        await self._groups_in_focus(masters)
        await self._all_members(masters)
        state.puts.append(sum(each.put_rate for each in state.brokers.values() if each.broker_id == 0))
        state.gets.append(sum(each.get_rate for each in state.brokers.values()))
        state.lags.append(float(sum(each.lag for each in state.groups.values())))
        for group in state.groups.values():
            if group.topics:
                group.lags.append(float(group.lag))
        is_there = self._doctor is not None and not self._doctor.done()
        if self._options.doctor is not None and not is_there and now_ns - self._doctor_ns > seldom_ns:
            self._doctor_ns = now_ns
            self._doctor = asyncio.create_task(self._visit(), name="dashboard-doctor")

    async def _brokers(self) -> None:
        info = await self.admin.cluster_info()
        found: dict[str, BrokerState] = {}
        for name, data in sorted(info.broker_addr_table.items()):
            for broker_id, address in sorted(data.broker_addrs.items(), key=lambda each: str(each[0])):
                known = self.state.brokers.get(address)
                if known is None or known.name != name:
                    known = BrokerState(name, _integer(broker_id), address)
                known.broker_id, known.cluster = _integer(broker_id), data.cluster or ""
                found[address] = known
        self.state.brokers = dict(list(found.items())[:BROKERS_MAX])
        await asyncio.gather(*map(self._runtime, self.state.brokers.values()))

    async def _runtime(self, broker: BrokerState) -> None:
        try:
            async with self._gate:
                table = await self.admin.broker_runtime(broker.address)
                broker.is_pocketmq = await self.reader.is_pocketmq(broker.address)
        except PocketMQError as error:
            broker.error = _text(error)
            self._refuses_strangers |= needs_login(error)
            return
        telemetry = table.pop(TELEMETRY_KEY, "")
        broker.telemetry = None
        if telemetry:
            with contextlib.suppress(PocketMQError):
                broker.telemetry = decode_telemetry(telemetry)
        broker.error = ""
        broker.runtime = table
        version = table.get("brokerVersionDesc", "?")
        broker.version = software(version, is_pocketmq=broker.is_pocketmq)
        now_ns = time.monotonic_ns()
        puts, gets = (number(table.get(f"msg{what}TotalTodayNow", "0")) for what in ("Put", "Get"))
        took_s = (now_ns - broker.read_ns) / 1e9
        if broker.read_ns and took_s > 0:
            broker.puts.append(max(0.0, puts - broker.put_total) / took_s)
            broker.gets.append(max(0.0, gets - broker.get_total) / took_s)
        broker.read_ns, broker.put_total, broker.get_total = now_ns, puts, gets

    async def _topic_names(self) -> None:
        names = await self._or_problem("topics", self.admin.topics)
        if names is None:
            return
        own = {*(each.name for each in self.state.brokers.values()), *(each.cluster for each in self.state.masters)}
        names = [name for name in names if name not in own][:GROUPS_MAX]
        known = self.state.topics
        self.state.topics = {name: known.get(name) or TopicState(name) for name in names}

    async def _group_names(self) -> None:
        names = await self._or_problem("groups", self.admin.groups)
        if names is not None:
            known = self.state.groups
            self.state.groups = {name: known.get(name) or GroupState(name) for name in names[:GROUPS_MAX]}

    async def _producers(self, masters: list[BrokerState]) -> None:
        found: dict[str, list[Any]] = {}
        for broker in masters:
            table = await self._or_problem(
                f"producers of {broker.name}", partial(self.reader.producers, broker.address)
            )
            for group, producers in ({} if table is None else table.data).items():
                found.setdefault(group, []).extend((broker.name, each) for each in producers)
        self.state.producers = found

    async def _consume_stats(self, broker: BrokerState) -> None:
        """Take the bulk answer; where a broker refuses it, its groups are known only on their own pages."""
        began_ns = time.monotonic_ns()
        if began_ns < self._stats_not_before_ns.get(broker.address, 0):
            return
        try:
            async with self._gate:
                progress = await self.reader.consume_stats(broker.address)
        except BrokerAnswerError as error:
            self._no_stats.add(broker.address)
            self.state.problems[f"lag of groups on {broker.name}"] = _text(error)
            return
        except PocketMQError as error:
            self.state.problems[f"lag of groups on {broker.name}"] = _text(error)
            return
        self.state.problems.pop(f"lag of groups on {broker.name}", None)
        now_ns = time.monotonic_ns()
        self._stats_not_before_ns[broker.address] = now_ns + DUTY * (now_ns - began_ns)
        self._take_progress(broker, progress, now_ns)

    def _take_progress(self, broker: BrokerState, progress: list[GroupProgress], now_ns: int) -> None:
        several = len(self.state.masters) > 1
        ends: dict[str, dict[tuple[str, int], int]] = {}
        for each in progress:
            group = self.state.groups.get(each.group)
            if group is None:
                if len(self.state.groups) >= GROUPS_MAX:
                    continue
                group = self.state.groups[each.group] = GroupState(each.group)
            topic = group.topics.get(each.topic)
            if topic is None:
                topic = group.topics[each.topic] = GroupTopic(each.topic)
            if several:  # the sum over brokers: each broker's part is kept beside it
                self._parts(group.name, each.topic)[broker.address] = each
                parts = self._parts(group.name, each.topic).values()
                topic.lag = sum(part.lag for part in parts)
                topic.tps = sum(part.tps for part in parts)
                topic.last_ms = max(part.last_ms for part in parts)
            else:
                topic.lag, topic.tps, topic.last_ms = each.lag, each.tps, each.last_ms
            ends.setdefault(each.topic, {}).update(each.ends)
        self._topics_of[broker.address] = set(ends)
        self._in_stats = set().union(*self._topics_of.values())
        for name, queues in ends.items():
            found = self.state.topics.get(name)
            if found is not None:
                found.take_ends(queues, now_ns)

    def _parts(self, group: str, topic: str) -> dict[str, GroupProgress]:
        return self._progress_parts.setdefault((group, topic), {})

    async def _topic_ends(self, masters: list[BrokerState]) -> None:
        """Ask for the queues of topics: those on a page, then others in turn."""
        names = [name for name in self._in_focus(self._topic_focus) if name in self.state.topics]
        others = [name for name in self.state.topics if name not in self._in_stats and name not in names]
        room = max(0, TOPICS_A_LOOK - len(names))
        if others and room:
            start = self._turn % len(others)
            names += (others[start:] + others[:start])[:room]
            self._turn = (start + room) % len(others)
        await asyncio.gather(*(self._topic_at(name, broker) for name in names for broker in masters))

    async def _topic_at(self, name: str, broker: BrokerState) -> None:
        try:
            async with self._gate:
                queues = await self.admin.topic_queues(name, broker.address)
        except PocketMQError:  # it is not on this broker, or was deleted: the next list of names says so
            return
        topic = self.state.topics.get(name)
        if topic is None:
            return
        topic.begins.update({(each.queue.broker_name, each.queue.queue_id): each.min_offset for each in queues})
        topic.newest_ms = max([topic.newest_ms, *(each.last_update_ms for each in queues)])
        ends = {(each.queue.broker_name, each.queue.queue_id): each.max_offset for each in queues}
        if name not in self._in_stats or not topic.read_ns:
            topic.take_ends(ends, time.monotonic_ns())

    async def _groups_in_focus(self, masters: list[BrokerState]) -> None:
        """Ask how far behind in time the groups on a page and those of the overview are."""
        lagging = sorted((each for each in self.state.groups.values() if each.lag), key=lambda each: -each.lag)
        names = dict.fromkeys([*self._in_focus(self._group_focus), *(each.name for each in lagging[:LAGGING])])
        asked = [self.state.groups[name] for name in names if name in self.state.groups]
        await asyncio.gather(*(self._group_details(group, masters) for group in asked))

    async def _group_details(self, group: GroupState, masters: list[BrokerState]) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - group.aged_ns >= AGE_LOOKS * self._options.interval_s * 1e9:
            group.aged_ns = now_ns
            await self._ages(group, masters)
        if group.name in self._group_focus:
            await self._members_of(group, masters)

    async def _ages(self, group: GroupState, masters: list[BrokerState]) -> None:
        for topic in [each for each in group.topics.values() if each.lag][:LAGGING]:
            ages = await asyncio.gather(*(self._behind(group.name, topic.topic, each.address) for each in masters))
            topic.behind_ms = max(ages, default=0)

    async def _all_members(self, masters: list[BrokerState]) -> None:
        if time.monotonic_ns() < self._members_until_ns:
            groups = sorted(self.state.groups.values(), key=lambda each: each.asked_ns)[:TOPICS_A_LOOK]
            await asyncio.gather(*(self._members_of(each, masters) for each in groups))

    async def _members_of(self, group: GroupState, masters: list[BrokerState]) -> None:
        found = await asyncio.gather(*(self._members(group.name, each) for each in masters))
        group.connections = [each for part in found for each in part][:MEMBERS_MAX]
        group.members = len({member.client_id for _, member in group.connections})
        group.asked_ns = time.monotonic_ns()

    async def _behind(self, group: str, topic: str, address: str) -> int:
        with contextlib.suppress(PocketMQError):
            async with self._gate:
                return await self.reader.behind_ms(address, group, topic)
        return 0

    async def _members(self, group: str, broker: BrokerState) -> list[tuple[str, Connection]]:
        with contextlib.suppress(PocketMQError):
            async with self._gate:
                found = await self.reader.consumers(broker.address, group)
                return [] if found is None else [(broker.name, each) for each in found.connection_set]
        return []

    async def _visit(self) -> None:
        doctor = self._options.doctor
        assert doctor is not None
        try:
            self.state.findings = list(await doctor(self.admin, self.credentials))
            self.state.problems.pop("doctor", None)
        except PocketMQError as error:
            self.state.problems["doctor"] = _text(error)
        except Exception as error:  # the doctor's fault, not the viewers'
            self._options.log.error("dashboard_doctor_failed", error=repr(error), exc_info=error)
            self.state.problems["doctor"] = repr(error)

    # ---- inside

    async def _or_problem(self, what: str, ask: Callable[[], Awaitable[_T]]) -> _T | None:
        try:
            found = await ask()
        except PocketMQError as error:
            self.state.problems[what] = _text(error)
            return None
        self.state.problems.pop(what, None)
        return found

    def _problem(self, what: str, error: PocketMQError) -> None:
        self.state.problems[what] = _text(error)
        self._refuses_strangers |= needs_login(error)
        for broker in self.state.brokers.values():
            broker.error = broker.error or "not asked: the name servers did not say where it is"

    @staticmethod
    def _note(focus: dict[str, int], names: Iterable[str]) -> None:
        until_ns = time.monotonic_ns() + int(FOCUS_S * 1e9)
        for name in names:
            if name in focus or len(focus) < FOCUS_MAX:
                focus[name] = until_ns

    @staticmethod
    def _in_focus(focus: dict[str, int]) -> list[str]:
        now_ns = time.monotonic_ns()
        for name in [name for name, until_ns in focus.items() if until_ns < now_ns]:
            del focus[name]
        return list(focus)


def needs_login(error: BaseException) -> bool:
    """Return whether a server refused because it does not know who asks."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, AuthenticationFailed):
            return True
        if isinstance(seen, BrokerAnswerError) and seen.answer_code == ResponseCode.NO_PERMISSION:
            return True
        seen = seen.__cause__
    return False


def _integer(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _text(error: PocketMQError) -> str:
    return error.what if not error.why else f"{error.what}: {error.why}"
