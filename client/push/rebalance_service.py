"""The queues of this consumer (RocketMQ RebalanceService): shares them in the group, takes them, gives them up.

Lives here: ``RebalanceService``: the rebalance loop, starts and ends of pulls, commits of offsets.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pocketmq.client.connection.instance import BrokerConnection, ClientInstance, TaskSet, check_answer
from pocketmq.client.connection.rebalance import AllocateStrategy, MessageQueue, rebalance
from pocketmq.client.connection.route import MASTER_ID, TopicRoute
from pocketmq.client.handlers.consumer_statistics import ConsumerStatistics
from pocketmq.client.handlers.handler_call import HandlerCall
from pocketmq.client.handlers.process_queue import ProcessLimits, ProcessQueue
from pocketmq.client.handlers.queue_mode import QueueMode
from pocketmq.client.pull.offsets import (
    CLOCKS_DIFFER_MS,
    BroadcastOffsetFile,
    ConsumeFromWhere,
    GroupStart,
    OffsetTable,
)
from pocketmq.client.pull.pull_wire import NO_OFFSET, PullWire
from pocketmq.client.pull.subscription import Subscription
from pocketmq.client.push.consumer_options import BROADCASTING, ConsumerOptions
from pocketmq.client.push.pull_failures import PullFailures
from pocketmq.client.push.queue_pull import PullSettings, QueuePull
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.topics import is_retry_topic
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.client import ConsumerGroupRequestHeader, ConsumerIdList

REBALANCE_RETRY_MS = 1_000
"""After an incomplete round (RocketMQ 5.3: RebalanceService.minInterval)."""
REBALANCE_GAP_MS = 50
"""Ours: the least time between two rounds: otherwise a hundred consumers that join at once would make each member run a
hundred rounds."""
MISSING_SHARE = 10
"""A topic without a route is asked for again after a tenth of the time that it has been missed, at least
``REBALANCE_GAP_MS`` and at most ``REBALANCE_RETRY_MS``: the first request to a new topic makes the topic, and its
requester waits until the replier has found it."""
MISSING_REPORTS_S = (0, 10, 30, 60)
"""When a topic that cannot be consumed is reported, in s since it was first missed."""
RETRY_TOPIC_ROUNDS = 10
"""Rounds after which a missing route of a retry topic is retried a second later; a broker may never create it."""
REVOKED_WAIT_MS = 1_000
"""How long a revoked queue's handlers may end before its offset is committed (RebalancePushImpl: tryLock 1000 ms)."""
STARTS_LOGGED_MAX = 16
CONFLICT_FIELD = "subscription_conflict"
"""Extra field of GET_CONSUMER_LIST_BY_GROUP and HEART_BEAT answers of a PocketMQ broker."""


@dataclass(slots=True, eq=False)
class TopicConsumption:
    """One subscribed topic: its filter, its handler, its mode."""

    subscription: Subscription
    call: HandlerCall
    mode: QueueMode
    ordered: bool


class RebalanceService:
    """The queues of one consumer. Belongs to the event loop's thread."""

    def __init__(
        self,
        group: str,
        instance: ClientInstance,
        options: ConsumerOptions,
        *,
        allocate: AllocateStrategy,
        limits: ProcessLimits,
        first: GroupStart,
        topics: Mapping[str, TopicConsumption],
        statistics: ConsumerStatistics,
        offsets_file: BroadcastOffsetFile,
        paused: Callable[[], bool],
        on_conflict: Callable[[str], None],
    ) -> None:
        self.pulls: dict[MessageQueue, QueuePull] = {}
        self._group = group
        self._instance = instance
        self._options = options
        self._allocate = allocate
        self._limits = limits
        self._first = first
        self._first_queues: dict[str, frozenset[MessageQueue]] = {}
        """By topic, its queues when it was first seen: a queue that comes later is read from its beginning."""
        self._topics = topics
        self._statistics = statistics
        self._file = offsets_file
        self._on_conflict = on_conflict
        self._offsets = OffsetTable()
        self._wire = PullWire(instance, group)
        self._pull_settings = PullSettings(
            options.pull_batch_size,
            options.pull_interval_ms,
            paused,
            PullFailures(instance.clock, instance.log),
        )
        self._shared_out: dict[str, int] = {}
        self._starts: list[str] = []
        """Where the queues taken last begin, and why: for the log, at most ``STARTS_LOGGED_MAX``."""
        self._known = False
        self._rounds = 0
        self._missing: dict[str, tuple[int, int]] = {}
        """Topics without a route: since when (monotonic ns), and how often that was reported."""
        self._came: dict[str, int] = {}
        """Topics that had no route at first → when that was found (ms since 1970). Topics of handlers, so few."""
        self._lock = asyncio.Lock()
        """Held while queues are taken and given up: by rounds, and by resets of an administrator."""
        self.changed = asyncio.Event()

    async def start(self, tasks: TaskSet) -> None:
        """Start rebalancing and committing, with loops that ``tasks`` keeps."""
        if self._options.message_model == BROADCASTING:
            for queue, offset in (await asyncio.to_thread(self._file.load)).items():
                self._offsets.loaded(queue, offset)
        tasks.keep(self._rebalance_loop, "pocketmq-rebalance")
        tasks.keep(self._persist_loop, "pocketmq-persist")

    # -- rebalance ---------------------------------------------------------------------------------------------

    async def _rebalance_loop(self) -> None:
        loop = asyncio.get_running_loop()
        not_before_s = 0.0
        while True:
            if loop.time() < not_before_s:
                await asyncio.sleep(not_before_s - loop.time())
            self.changed.clear()
            not_before_s = loop.time() + REBALANCE_GAP_MS / 1000
            complete = False
            try:
                async with self._lock:
                    complete = await self._rebalance()
            except PocketMQError as error:
                self._instance.log.warning("rebalance_failed", group=self._group, error=str(error))
            except Exception as error:
                self._instance.log.error("rebalance_failed", group=self._group, error=repr(error), exc_info=error)
            try:
                async with asyncio.timeout(
                    self.pause_ms(complete) / 1000
                ):  # not wait_for: before 3.12 it can swallow a cancellation
                    await self.changed.wait()
            except TimeoutError:
                pass

    def pause_ms(self, complete: bool) -> int:
        """Return the time until the next round, if nothing changes; ``complete``: whether this round was."""
        pause_ms = REBALANCE_RETRY_MS
        if self._missing:
            newest_ns = max(since_ns for since_ns, _ in self._missing.values())
            missed_ms = (self._instance.clock.monotonic_ns() - newest_ns) // 1_000_000
            pause_ms = min(max(missed_ms // MISSING_SHARE, REBALANCE_GAP_MS), REBALANCE_RETRY_MS)
        interval_ms = self._options.rebalance_interval_ms
        return interval_ms if complete else min(pause_ms, interval_ms)

    async def _rebalance(self) -> bool:
        """Do one round; return False to try again soon."""
        for topic in {queue.topic for queue in self.pulls} - set(self._topics):
            await self._give_up([queue for queue in self.pulls if queue.topic == topic])
        topics = list(self._topics)
        self._missing = {topic: since for topic, since in self._missing.items() if topic in self._topics}
        routes = await self._routes([topic for topic in topics if not is_retry_topic(topic)])
        if routes and not self._known:
            await self._instance.heartbeat()  # the brokers must know us before we request the members
            self._known = True
        if self._known:  # a broker creates the retry topic at the first heartbeat
            routes.update(await self._routes([topic for topic in topics if is_retry_topic(topic)]))
        missing = [topic for topic in topics if topic not in routes]
        self._rounds += 1
        complete = all(is_retry_topic(topic) for topic in missing) and not (
            missing and self._rounds < RETRY_TOPIC_ROUNDS
        )
        members: dict[str, list[str]] = {}
        for topic, route in routes.items():
            complete &= await self._rebalance_topic(topic, route, members)
        return complete

    async def _routes(self, topics: Iterable[str]) -> dict[str, TopicRoute]:
        routes: dict[str, TopicRoute] = {}
        for topic in topics:
            try:
                timeout_ms = self._instance.options.api_timeout_ms
                routes[topic] = await self._instance.route(topic, timeout_ms=timeout_ms)
            except PocketMQError as error:
                if topic not in self._first_queues:
                    self._came.setdefault(topic, self._instance.clock.now_ms())
                self._report_missing(topic, error)
            else:
                self._missing.pop(topic, None)
        return routes

    def _report_missing(self, topic: str, error: PocketMQError) -> None:
        """Log a topic without a route: a warning at once, then after 10, 30 and 60 s, and each minute from there."""
        log = self._instance.log
        if is_retry_topic(topic):  # the broker creates it with the first heartbeat, or never
            log.info("topic_not_consumed_yet", topic=topic, error=str(error))
            return
        now_ns = self._instance.clock.monotonic_ns()
        since_ns, reports = self._missing.setdefault(topic, (now_ns, 0))
        waited_s = (now_ns - since_ns) // 1_000_000_000
        due_s = MISSING_REPORTS_S[reports] if reports < len(MISSING_REPORTS_S) else 60 * (reports - 2)
        if waited_s >= due_s:
            self._missing[topic] = since_ns, reports + 1
            log.warning("topic_not_consumed_yet", topic=topic, waited_s=waited_s, error=str(error))

    async def _rebalance_topic(self, topic: str, route: TopicRoute, known: dict[str, list[str]]) -> bool:
        """Give up and take queues of one topic; return False to try again soon."""
        still_busy = [
            queue
            for queue, pull in self.pulls.items()
            if queue.topic == topic and (pull.leaving or pull.process_queue.dropped)  # dropped: its lock was lost
        ]
        if still_busy:
            await self._give_up(still_busy)
        held = [queue for queue, pull in self.pulls.items() if queue.topic == topic and not pull.leaving]
        client_id = self._instance.client_id
        if self._options.message_model == BROADCASTING:
            members = [client_id]
        else:
            brokers = ",".join(sorted(broker.broker_name for broker in route.brokers.values()))
            if brokers not in known:  # the same brokers have the same members: one request for all their topics
                known[brokers] = await self._members(route)
            members = known[brokers]
            if client_id not in members:
                return False
        change = rebalance(self._allocate, self._group, client_id, route.read_queues, members, held)
        self._first_queues.setdefault(topic, frozenset(route.read_queues))
        if change.revoked:
            await self._give_up(change.revoked)
        wanted = [queue for queue in change.assigned if queue not in self.pulls]
        taken = await self._take(topic, wanted) if wanted else 0
        queues = [pull for queue, pull in self.pulls.items() if queue.topic == topic]
        if change.revoked or taken:
            starts = ", ".join(self._starts)
            self._starts.clear()
            self._instance.log.info(
                "queues_assigned", group=self._group, topic=topic, queues=len(queues), starts=starts
            )
        if self._shared_out.get(topic) != len(queues):
            self._shared_out[topic] = len(queues)
            limits = self._limits.shared_by(len(queues), ordered=self._topics[topic].ordered)
            for pull in queues:
                pull.process_queue.limits = limits
        return taken == len(change.assigned) and not any(pull.leaving for pull in queues)

    async def _members(self, route: TopicRoute) -> list[str]:
        """Return the members of the group from any broker of the topic."""
        failure: PocketMQError | None = None

        async def ask(broker_id: int, connection: BrokerConnection) -> list[str]:
            response = await connection.channel.request(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                ConsumerGroupRequestHeader(consumer_group=self._group),
                timeout_ms=self._instance.options.api_timeout_ms,
            )
            check_answer(response, f"members of {self._group} unknown", connection.address, ResponseCode.SYSTEM_ERROR)
            if response.code != ResponseCode.SUCCESS:
                return []
            self._on_conflict(response.extra.get(CONFLICT_FIELD, ""))
            return decode_body(response.body, ConsumerIdList).consumer_id_list

        for broker in route.brokers.values():
            try:
                members = await self._wire.connections.ask(broker.broker_name, ask)
                if members:
                    return members
            except PocketMQError as error:
                failure = error
        if failure is not None:
            raise failure
        return []

    # -- queues ------------------------------------------------------------------------------------------------

    async def _take(self, topic: str, queues: Sequence[MessageQueue]) -> int:
        """Start reading queues; return their number."""
        consumption = self._topics[topic]
        acquired = await consumption.mode.acquire(queues)
        taken = await asyncio.gather(*(self._take_one(consumption, queue) for queue in acquired))
        refused = [queue for queue, done in zip(acquired, taken, strict=True) if not done]
        if refused:
            await consumption.mode.release(refused)
        return sum(taken)

    async def _take_one(self, consumption: TopicConsumption, queue: MessageQueue) -> bool:
        try:
            stored = await self._stored_offset(queue)
            offset = await self._start_offset(queue, stored)
        except PocketMQError as error:
            self._instance.log.warning("start_offset_unknown", queue=str(queue), error=str(error))
            return False
        process_queue = ProcessQueue(queue, offset, self._limits.shared_by(1, ordered=consumption.ordered))
        pull = QueuePull(
            self._wire,
            consumption.mode,
            consumption.mode.runner(process_queue, consumption.call),
            consumption.subscription,
            self._instance,
            self._pull_settings,
            self._statistics.counts(queue.topic),
        )
        self._shared_out.pop(queue.topic, None)
        self.pulls[queue] = pull
        pull.start()
        if stored == NO_OFFSET:  # at once: killed before its first commit, the group would start behind what comes now
            await self._commit({queue: pull})
        return True

    async def _stored_offset(self, queue: MessageQueue) -> int:
        """Return where the group goes on, or ``NO_OFFSET``."""
        if self._options.message_model == BROADCASTING:
            known = self._offsets.get(queue)
            return NO_OFFSET if known is None else known
        return await self._wire.stored_offset(queue, zero_if_young=not self._first.exact)

    async def _start_offset(self, queue: MessageQueue, stored: int) -> int:
        where = self._first.where
        is_late = self._first.exact and queue not in self._first_queues[queue.topic]
        if is_retry_topic(queue.topic) or is_late:  # retries, and what came before we knew a queue, are never skipped
            where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        timestamp_ms = self._first.timestamp_ms
        assert timestamp_ms is not None
        came_ms = self._came.get(queue.topic)
        if self._first.exact and where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET and came_ms is not None:
            # the latest is what there was when we began to wait: its first message may be the one that made the topic
            where, timestamp_ms = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, came_ms - CLOCKS_DIFFER_MS
        offset = await self._wire.start_offset(queue, where, timestamp_ms, stored=stored)
        if len(self._starts) < STARTS_LOGGED_MAX:
            why = "offset of the group" if stored >= 0 else where.value
            self._starts.append(f"{queue.broker_name}/{queue.queue_id} at {offset} ({why})")
        return offset

    async def _give_up(self, queues: Iterable[MessageQueue], *, commit: bool = True) -> None:
        """Stop reading queues, let their handlers finish, commit, and release them.

        A busy queue that its mode keeps stays, unread, until a later round.
        """
        leaving = {queue: self.pulls[queue] for queue in queues}
        for pull in leaving.values():
            pull.leaving = True
        await asyncio.gather(*(pull.stop() for pull in leaving.values()))
        for mode in {id(pull.mode): pull.mode for pull in leaving.values()}.values():
            mine = {queue: pull for queue, pull in leaving.items() if pull.mode is mode}
            busy = await mode.finish([pull.runner for pull in mine.values()], REVOKED_WAIT_MS / 1000)
            ended = {queue: pull for queue, pull in mine.items() if not any(pull.runner is each for each in busy)}
            await self._commit({queue: pull for queue, pull in ended.items() if not pull.process_queue.dropped})
            for queue, pull in ended.items():
                pull.process_queue.drop()
                self.pulls.pop(queue, None)
                if self._options.message_model != BROADCASTING:
                    self._offsets.forget(queue)
            await mode.release(list(ended))

    def subscribed(self) -> None:
        """Consume a topic that was subscribed to while the consumer runs; brokers learn of it first."""
        self._known = False
        self._rounds = 0
        self.changed.set()

    async def stop_pulls(self) -> None:
        """Stop all pulls."""
        await asyncio.gather(*(pull.stop() for pull in self.pulls.values()))

    async def close(self, timeout_s: float) -> None:
        """Give all queues up: stop pulls, let handlers finish (at most ``timeout_s``), commit, release."""
        await self.stop_pulls()
        for mode in {id(pull.mode): pull.mode for pull in self.pulls.values()}.values():
            mine = {queue: pull for queue, pull in self.pulls.items() if pull.mode is mode}
            # in the caller's task: the handler that stops its consumer is not waited for
            await mode.finish([pull.runner for pull in mine.values()], timeout_s)
            await self._commit(mine)
            for pull in mine.values():
                pull.process_queue.drop()
            await mode.release(list(mine))
        self.pulls.clear()

    def drained(self, process_queue: ProcessQueue) -> None:
        """Wake the pull of a queue that has room again."""
        pull = self.pulls.get(process_queue.queue)
        if pull is not None:
            pull.wake()

    async def reset(self, topic: str, offsets: Mapping[MessageQueue, int]) -> int:
        """Move queues to an administrator's offsets; return how many moved. Their pulled messages are given up, as when
        a queue is revoked (RocketMQ resetOffset); the queues are taken again.
        """
        async with self._lock:
            mine = [queue for queue in self.pulls if queue.topic == topic and queue in offsets]
            await self._give_up(mine, commit=False)
            moved = {queue: offsets[queue] for queue in mine if queue not in self.pulls}
            for queue, offset in moved.items():
                self._offsets.update(queue, offset)
            await self._persist_these(moved, {})
            if self._options.message_model != BROADCASTING:
                for queue in moved:
                    self._offsets.forget(queue)
        self.changed.set()
        return len(moved)

    # -- offsets -----------------------------------------------------------------------------------------------

    async def _persist_loop(self) -> None:
        while True:
            await asyncio.sleep(self._options.persist_interval_ms / 1000)
            try:
                await self._commit(
                    {queue: pull for queue, pull in self.pulls.items() if not pull.process_queue.dropped}
                )
            except Exception as error:  # a fault of ours must not silently end a consumer's commits
                self._instance.log.error("commit_failed", group=self._group, error=repr(error), exc_info=error)

    async def _commit(self, pulls: Mapping[MessageQueue, QueuePull]) -> None:
        """Commit the progress of these queues."""
        for queue, pull in pulls.items():
            self._offsets.update(queue, pull.process_queue.commit_offset)
        tokens = {queue: pull.runner.fencing_token for queue, pull in pulls.items()}
        dirty = self._offsets.dirty()
        await self._persist_these({queue: offset for queue, offset in dirty.items() if queue in pulls}, tokens)

    async def _persist_these(self, offsets: Mapping[MessageQueue, int], tokens: Mapping[MessageQueue, int]) -> None:
        if not offsets:
            return
        if self._options.message_model == BROADCASTING:
            try:
                await asyncio.to_thread(self._file.save, list(self._offsets.all().items()))
            except OSError as error:
                self._instance.log.error("broadcast_offsets_not_saved", group=self._group, error=str(error))
                return
            self._offsets.persisted(offsets)
            return
        done: list[Any] = await asyncio.gather(
            *(
                self._wire.store_offset(queue, offset, fencing_token=tokens.get(queue, 0))
                for queue, offset in offsets.items()
            ),
            return_exceptions=True,
        )
        for (queue, offset), result in zip(offsets.items(), done, strict=True):
            if isinstance(result, int):
                if result == MASTER_ID:  # a slave's copy does not count: commit again until the master has it
                    self._offsets.persisted({queue: offset})
            elif isinstance(result, PocketMQError):
                self._instance.log.warning("commit_failed", queue=str(queue), error=str(result))
                pull = self.pulls.get(queue)
                if result.cause is Cause.FENCED and pull is not None:
                    pull.mode.fenced(pull.runner)
            else:
                raise result
