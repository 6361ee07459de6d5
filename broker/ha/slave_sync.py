"""A slave keeps asking its master for what is not in the log (RocketMQ SlaveSynchronize).

Lives here: ``SlaveSync``: one task that asks, one worker that applies; commits of consumers handed back.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pocketmq.broker.ha.off_loop import run_off_loop
from pocketmq.broker.ha.slave_mirror import Commit, SlaveMirror
from pocketmq.common.clock import Clock
from pocketmq.common.errors import DECODE_ERRORS, BytesIllegal, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.runner import LoopMailbox, Runner
from pocketmq.common.supervised import Supervisor
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codes import RequestCode, ResponseCode, request_name
from pocketmq.remoting.frame import Buffer
from pocketmq.remoting.protocol.body import DataVersion, decode_body
from pocketmq.remoting.protocol.ha import HaStatusBody
from pocketmq.remoting.protocol.offset import UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.protocol.spec import Header

TIMEOUT_MS: Final = 3000
"""Of one request (RocketMQ SlaveSynchronize)."""
OFFSETS_PAUSE_FACTOR: Final = 10
"""Offsets change all the time: fetching them takes at most a tenth of the time, however many there are."""
PROGRESS_EVERY: Final = 3
"""Progress of delayed messages is asked for each so many rounds: it changes with every delivery."""


class MasterRefused(PocketMQError):
    """The master answered a request of its slave with an error."""

    retriable = True


class TableIllegal(BytesIllegal):
    """A table that the master sent cannot be read: damaged on its way, or at the master."""

    retriable = True


class TablesFrom(NamedTuple):
    """The master that streams the log: where it serves clients, and the epoch and owner of the stream."""

    address: str
    epoch: int
    owner: str


@dataclass(slots=True)
class _Seen:
    """Versions that were taken over from one master."""

    master: TablesFrom | None = None
    topics: DataVersion = field(default_factory=lambda: DataVersion(-1, -1))
    groups: DataVersion = field(default_factory=lambda: DataVersion(-1, -1))
    offsets: int = -1
    rounds: int = 0


class SlaveSync:
    """Mirrors tables while it runs. Loop thread; what is applied blocks in a worker.

    Versions are asked for each ``interval_ms``; a table is fetched when its version differs (topics 21, consumer
    offsets 43, delay progress 45, groups 201, in RocketMQ's order).
    """

    def __init__(
        self,
        mirror: SlaveMirror,
        tables_from: Callable[[], TablesFrom | None],
        interval_ms: int,
        runner: Runner,
        mailbox: LoopMailbox,
        clock: Clock,
        log: EventLog,
        supervisor: Supervisor,
    ) -> None:
        """``tables_from`` returns the node that streams the log at present, None while none does."""
        self._mirror = mirror
        self._tables_from = tables_from
        self._interval_ms = interval_ms
        self._runner = runner
        self._mailbox = mailbox
        self._clock = clock
        self._log = log
        self._supervisor = supervisor
        self._offsets_due_ns = 0
        self._pool = ChannelPool(clock=clock, log=log)
        self._task: asyncio.Task[None] | None = None
        self._seen = _Seen()
        self._failures = 0
        self.rounds = 0
        """Rounds that ended well."""

    def start(self) -> None:
        """Begin to ask."""
        self._task = self._supervisor.keep(self._run, "slave-sync")

    async def stop(self) -> None:
        """End; a request under way is given up."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._pool.close()

    async def _run(self) -> None:
        while True:
            master = self._tables_from()
            if master is not None:
                try:
                    await self.sync(master)
                except PocketMQError as error:
                    self._failures += 1
                    if self._failures & (self._failures - 1) == 0:  # 1st, 2nd, 4th, 8th …
                        self._log.warning(
                            "slave_sync_failed", master=master.address, error=str(error), failures=self._failures
                        )
                else:
                    self._failures = 0
                    self.rounds += 1
            await asyncio.sleep(self._interval_ms / 1000)

    async def sync(self, master: TablesFrom) -> None:
        """Take over what has changed at the master. Raises what requests and the disk raise."""
        channel = await self._pool.get(master.address)
        seen = self._seen
        if seen.master != master:
            seen = self._seen = _Seen(master)
        status = decode_body(await self._ask(channel, RequestCode.HA_STATUS), HaStatusBody)
        _check_status(status, master)
        mirror = self._mirror
        if status.topics_version != seen.topics:
            content = bytes(await self._ask(channel, RequestCode.GET_ALL_TOPIC_CONFIG))
            # its end of the log after the answer: a topic that is missing in it has no record behind that
            later = decode_body(await self._ask(channel, RequestCode.HA_STATUS), HaStatusBody)
            taken: list[bool] = []
            await self._take(master, "topics", lambda: taken.append(mirror.topics(content, later.end_offset)))
            if all(taken):
                seen.topics = status.topics_version
        begin_ns = self._clock.monotonic_ns()
        if status.offsets_generation != seen.offsets and begin_ns >= self._offsets_due_ns:
            content = bytes(await self._ask(channel, RequestCode.GET_ALL_CONSUMER_OFFSET))
            commits: list[Commit] = []
            await self._take(master, "consumer offsets", lambda: commits.extend(mirror.offsets(content)))
            await self._hand_back(channel, commits)
            seen.offsets = status.offsets_generation
            now_ns = self._clock.monotonic_ns()
            self._offsets_due_ns = now_ns + OFFSETS_PAUSE_FACTOR * (now_ns - begin_ns)
        if seen.rounds % PROGRESS_EVERY == 0:
            progress = bytes(await self._ask(channel, RequestCode.GET_ALL_DELAY_OFFSET))
            await self._take(master, "delay progress", lambda: mirror.progress(progress))
        seen.rounds += 1
        if status.groups_version != seen.groups:
            groups = bytes(await self._ask(channel, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
            await self._take(master, "consumer groups", lambda: mirror.groups(groups))
            seen.groups = status.groups_version
        await self._take_over("delay progress", mirror.settle)

    async def _take(self, master: TablesFrom, table: str, call: Callable[[], None]) -> None:
        """Take over an answer, unless the log has come from elsewhere, or from nowhere, since it was asked for."""
        if self._tables_from() != master:
            raise MasterRefused("no tables taken over", why=f"the log does not come from {master.address} any more")
        await self._take_over(table, call)

    async def _hand_back(self, channel: ClientChannel, commits: list[Commit]) -> None:
        """Give the master what consumers committed here while it was away."""
        for commit in commits:
            group, topic, queue_id, offset = commit
            header = UpdateConsumerOffsetRequestHeader(group, topic, queue_id, offset)
            await self._ask(channel, RequestCode.UPDATE_CONSUMER_OFFSET, header)
            self._mirror.commits.done(commit)
        if commits:
            self._log.info("commits_handed_back", master=channel.address, commits=len(commits))

    async def _ask(self, channel: ClientChannel, code: int, header: Header | None = None) -> Buffer:
        response = await channel.request(code, header, timeout_ms=TIMEOUT_MS)
        if response.code != ResponseCode.SUCCESS:
            raise MasterRefused(f"{request_name(code)} refused", why=f"code {response.code}: {response.remark}")
        return response.body

    async def _take_over(self, table: str, call: Callable[[], None]) -> None:
        try:
            await run_off_loop(self._runner, self._mailbox, "SlaveSync", call)
        except DECODE_ERRORS as error:
            raise TableIllegal(
                f"{table} of the master not taken over",
                why=f"{type(error).__name__}: {error}",
                hint="the next round asks again; if it goes on, look at the master's own files in config/",
            ) from error


def _check_status(status: HaStatusBody, master: TablesFrom) -> None:
    """Raise ``MasterRefused`` unless who answers says that it is the node which streams the log.

    It may be in a later epoch than the stream: a slave that it counts anew begins one, others stay connected.
    """
    if not status.is_master:
        raise MasterRefused("no tables taken over", why=f"{master.address} is no master: {status.role}")
    is_same_node = bool(status.node_id) and master.owner.startswith(f"{status.node_id}.")
    if not is_same_node or not any((each.number, each.owner) == master[1:] for each in status.epochs):
        raise MasterRefused(
            "no tables taken over",
            why=f"{master.address} is node {status.node_id[:64]!a} in epoch {status.epoch}, and the log comes from "
            f"{master.owner} in epoch {master.epoch}",
            hint="two brokers say to be the master of this name, or one is behind a false address: look at both",
        )
