"""A slave polls its master for the tables that are not in the log (RocketMQ SlaveSynchronize).

Lives here: ``SlaveSync``: one task that asks, one worker that applies the answers; commits of consumers handed back.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pocketmq.broker.ha.ha_environment import ReplicationEnvironment
from pocketmq.broker.ha.off_loop import run_off_loop
from pocketmq.broker.ha.slave_mirror import Commit, SlaveMirror
from pocketmq.common.errors import DECODE_ERRORS, BytesIllegal, PocketMQError
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
"""Offsets change all the time: fetching them takes at most a tenth of the time, whatever their number."""
PROGRESS_EVERY: Final = 3
"""Rounds between two requests for the progress of delayed messages, which changes with every delivery."""


class MasterRefused(PocketMQError):
    """The master answered a request of its slave with an error."""

    retriable = True


class TableIllegal(BytesIllegal):
    """A table that the master sent cannot be read: damaged on the way or at the master."""

    retriable = True


class TablesFrom(NamedTuple):
    """The master that streams the log: where it serves clients, and the epoch and owner of the stream."""

    address: str
    epoch: int
    owner: str


@dataclass(slots=True)
class _Seen:
    """Versions of the tables that were copied from one master."""

    master: TablesFrom | None = None
    topics: DataVersion = field(default_factory=lambda: DataVersion(-1, -1))
    groups: DataVersion = field(default_factory=lambda: DataVersion(-1, -1))
    offsets: int = -1
    rounds: int = 0


class SlaveSync:
    """Mirrors tables while it runs. Loop thread; answers are applied in a worker, which blocks.

    It asks for versions every ``interval_ms``, and fetches a table when its version differs (topics 21, consumer
    offsets 43, delay progress 45, groups 201, in RocketMQ's order). Before them it fetches users and policies, and a
    failure of one does not hold up the other: who was deleted at the master must not stay because of a damaged table.
    """

    def __init__(
        self,
        mirror: SlaveMirror,
        tables_from: Callable[[], TablesFrom | None],
        interval_ms: int,
        environment: ReplicationEnvironment,
    ) -> None:
        """``tables_from`` returns the node that streams the log now, None while none does."""
        self._mirror = mirror
        self._tables_from = tables_from
        self._interval_ms = interval_ms
        self._environment = environment
        self._clock = environment.clock
        self._log = environment.logger("ha")
        self._offsets_due_ns = 0
        self._pool = ChannelPool(clock=self._clock, log=self._log, security=environment.security)
        self._task: asyncio.Task[None] | None = None
        self._seen = _Seen()
        self._failures = 0
        self.rounds = 0
        """Rounds without an error."""

    def start(self) -> None:
        """Begin to poll."""
        self._task = self._environment.supervisor.keep(self._run, "slave-sync")

    async def stop(self) -> None:
        """Stop; a request under way is abandoned."""
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
        """Copy the tables that have changed at the master. Raises the errors of requests and of the disk."""
        channel = await self._pool.get(master.address)
        seen = self._seen
        if seen.master != master:
            seen = self._seen = _Seen(master)
        status = decode_body(await self._ask(channel, RequestCode.HA_STATUS), HaStatusBody)
        _check_status(status, master)
        failure: PocketMQError | None = None
        try:
            await self._copy_users(channel, master)
        except PocketMQError as error:
            failure = error
        await self._copy_tables(channel, master, status, seen)
        if failure is not None:
            raise failure

    async def _copy_users(self, channel: ClientChannel, master: TablesFrom) -> None:
        mirror_users = self._environment.mirror_users
        if mirror_users is not None:
            users = bytes(await self._ask(channel, RequestCode.AUTH_CONTENTS))
            await self._take(master, "users and policies", lambda: mirror_users(users))

    async def _copy_tables(self, channel: ClientChannel, master: TablesFrom, status: HaStatusBody, seen: _Seen) -> None:
        mirror = self._mirror
        if status.topics_version != seen.topics:
            content = bytes(await self._ask(channel, RequestCode.GET_ALL_TOPIC_CONFIG))
            # the end of its log after the answer: a topic that the answer lacks has no record beyond it
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
        """Apply an answer, unless another node, or none, streams the log by now."""
        if self._tables_from() != master:
            raise MasterRefused("no tables copied", why=f"the log no longer comes from {master.address}")
        await self._take_over(table, call)

    async def _hand_back(self, channel: ClientChannel, commits: list[Commit]) -> None:
        """Send the master the offsets that consumers committed here while it was away."""
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
            await run_off_loop(self._environment.runner, self._environment.mailbox, "SlaveSync", call)
        except DECODE_ERRORS as error:
            raise TableIllegal(
                f"{table} of the master not copied",
                why=f"{type(error).__name__}: {error}",
                hint="the next round asks again; if the error stays, check the master's files in config/",
            ) from error


def _check_status(status: HaStatusBody, master: TablesFrom) -> None:
    """Raise ``MasterRefused`` unless the answering node is the one that streams the log.

    It may be in a later epoch than the stream: it begins one when it counts a slave again, others stay connected.
    """
    if not status.is_master:
        raise MasterRefused("no tables copied", why=f"{master.address} is no master: {status.role}")
    is_same_node = bool(status.node_id) and master.owner.startswith(f"{status.node_id}.")
    if not is_same_node or not any((each.number, each.owner) == master[1:] for each in status.epochs):
        raise MasterRefused(
            "no tables copied",
            why=f"{master.address} is node {status.node_id[:64]!a} in epoch {status.epoch}, and the log comes from "
            f"{master.owner} in epoch {master.epoch}",
            hint="two brokers claim to be the master of this name, or an address is wrong: check both",
        )
