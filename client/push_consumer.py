"""The push consumer: handlers get messages; pulling, sharing the queues and committing happen by themselves.

Lives here: ``PushConsumer``: subscriptions, the life of the consumer, sharing of queues with the group, commits.
Not here: running handlers (``handlers``), the pull of one queue (``queue_pull``), allocation (``rebalance``), what may
be committed (``process_queue``).

This is plain consumption. The retry topic and dead letters (a failed message goes back to the broker and returns
later), ordered consumption under the broker's queue locks, batch handlers and SQL92 filters come with the issue on
consumption; until then a failed message is tried again here, after one second, and holds the commit of its queue.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pocketmq.client.errors import NotStarted, SubscriptionIllegal
from pocketmq.client.handlers import Handler, HandlerPool
from pocketmq.client.instance import ClientInstance, TaskSet, check_answer
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.offsets import BroadcastOffsetFile, ConsumeFromWhere, OffsetTable
from pocketmq.client.process_queue import ProcessLimits, ProcessQueue
from pocketmq.client.pull_consumer import subscription_data
from pocketmq.client.pull_wire import NO_OFFSET, PullWire
from pocketmq.client.queue_pull import QueuePull
from pocketmq.client.rebalance import AllocateStrategy, MessageQueue, rebalance, strategy_of
from pocketmq.client.route import TopicRoute
from pocketmq.client.subscription import ALL, Subscription, parse_subscription
from pocketmq.common.errors import ConfigError, PocketMQError
from pocketmq.common.topics import check_group_name, check_topic_name
from pocketmq.remoting.bodies import ConsumerData, ConsumerIdList, decode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import ConsumerGroupRequestHeader

CLUSTERING = "CLUSTERING"
BROADCASTING = "BROADCASTING"
REBALANCE_INTERVAL_MS = 20_000
REBALANCE_RETRY_MS = 1_000
PERSIST_INTERVAL_MS = 5_000
CONCURRENCY = 20
STOP_TIMEOUT_MS = 10_000
TOPICS_MAX = 10_000


class PushConsumer(Lifecycle):
    """Calls handlers with messages.

        consumer = PushConsumer(group="billing", namesrv="127.0.0.1:9876")

        @consumer.subscribe("TopicTest", tags="A || B")
        async def charge(message): ...

        await consumer.run()

    ``message_model`` CLUSTERING: the group shares the queues, offsets live at the brokers. BROADCASTING: every
    consumer gets every message, offsets live in a file below ``offset_store_dir``.

    At least once: an offset is committed when all messages below it are done. A handler that raises is called again
    with the same message after one second, for as long as it takes. Handlers are ``async def``, or plain functions,
    which run in a thread pool; at most ``concurrency`` run at once, in no particular order.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        message_model: str = CLUSTERING,
        consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        consume_timestamp_ms: int | None = None,
        allocate: str | AllocateStrategy = "AVG",
        concurrency: int = CONCURRENCY,
        limits: ProcessLimits | None = None,
        offset_store_dir: str | Path | None = None,
        rebalance_interval_ms: int = REBALANCE_INTERVAL_MS,
        persist_interval_ms: int = PERSIST_INTERVAL_MS,
        retry_delay_ms: int = 1_000,
        instance: ClientInstance | None = None,
    ) -> None:
        check_group_name(group)
        if message_model not in (CLUSTERING, BROADCASTING):
            raise ConfigError(
                "consumer refused", why=f"message_model={message_model!r}", hint=f"{CLUSTERING} or {BROADCASTING}"
            )
        if type(concurrency) is not int or not 1 <= concurrency <= 10_000:
            raise ConfigError("consumer refused", why=f"concurrency={concurrency!r} is not 1 to 10000")
        for name, value in (
            ("rebalance_interval_ms", rebalance_interval_ms),
            ("persist_interval_ms", persist_interval_ms),
            ("retry_delay_ms", retry_delay_ms),
        ):
            if type(value) is not int or not 1 <= value <= 3_600_000:
                raise ConfigError("consumer refused", why=f"{name}={value!r} is not 1 to 3600000")
        self.group = group
        self.message_model = message_model
        self.consume_from_where = consume_from_where
        self.instance = instance if instance is not None else ClientInstance(namesrv)
        self.consume_timestamp_ms = (
            self.instance.clock.now_ms() - 1_800_000 if consume_timestamp_ms is None else consume_timestamp_ms
        )
        self._allocate = strategy_of(allocate)
        self._limits = limits or ProcessLimits()
        self._rebalance_interval_s = rebalance_interval_ms / 1000
        self._persist_interval_s = persist_interval_ms / 1000
        directory = Path(offset_store_dir) if offset_store_dir is not None else Path.home() / ".pocketmq_offsets"
        # a broadcast consumer must find its file again after a restart, so that the client id has no place in the path
        self._file = BroadcastOffsetFile(directory / group)
        self._offsets = OffsetTable()
        self._subscriptions: dict[str, Subscription] = {}
        self._handlers: dict[str, Handler] = {}
        self._pulls: dict[MessageQueue, QueuePull] = {}
        self._pool = HandlerPool(self.instance.log, concurrency, retry_delay_ms, self._drained)
        self._wire = PullWire(self.instance, group)
        self._tasks = TaskSet()
        self._changed: asyncio.Event
        self._stop_asked: asyncio.Event
        self._stop_done: asyncio.Event
        self._running = False
        self._stopped = False

    # -- subscriptions -----------------------------------------------------------------------------------------

    def subscribe(self, topic: str, tags: str = ALL) -> Callable[[Handler], Handler]:
        """Register the decorated function as the handler of a topic. Before ``start``, one handler a topic."""
        check_topic_name(topic)
        if self._running:
            raise SubscriptionIllegal(
                "subscription refused", why="the consumer is running", hint="subscribe before start"
            )
        if topic in self._subscriptions:
            raise SubscriptionIllegal("subscription refused", why=f"{topic} has a handler", hint="one handler a topic")
        if len(self._subscriptions) >= TOPICS_MAX:
            raise SubscriptionIllegal("subscription refused", why=f"{TOPICS_MAX} topics are subscribed")
        subscription = parse_subscription(topic, tags, self.instance.clock.now_ms())

        def register(handler: Handler) -> Handler:
            if not callable(handler):
                raise SubscriptionIllegal("handler refused", why=f"{handler!r} cannot be called")
            self._subscriptions[topic] = subscription
            self._handlers[topic] = handler
            return handler

        return register

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that this consumer reads now."""
        return sorted(self._pulls)

    # -- life --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Start, consume until ``stop`` or cancellation, and stop gracefully."""
        await self.start()
        try:
            await self.wait_stopped()
        finally:
            await self.stop()

    async def wait_stopped(self) -> None:
        """Return once somebody has called ``stop``."""
        await self._stop_asked.wait()

    async def start(self) -> None:
        """Join the group and begin to consume."""
        if self._running:
            return
        if self._stopped:
            raise NotStarted("consumer was stopped", why="it cannot start twice", hint="make a new one")
        if not self._subscriptions:
            raise SubscriptionIllegal(
                "nothing to consume", why="no topic is subscribed", hint="use @consumer.subscribe(topic)"
            )
        self._changed = asyncio.Event()
        self._stop_asked = asyncio.Event()
        self._stop_done = asyncio.Event()
        await self.instance.start()
        self._running = True
        if self.message_model == BROADCASTING:
            for queue, offset in (await asyncio.to_thread(self._file.load)).items():
                self._offsets.loaded(queue, offset)
        self.instance.add_consumer(self.group, self._describe, self._changed.set)
        self.instance.on_route_changed.append(self._route_changed)
        self._pool.start()
        self._tasks.spawn(self._rebalance_loop(), "pocketmq-rebalance")
        self._tasks.spawn(self._persist_loop(), "pocketmq-persist")

    async def stop(self, timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """Stop pulling, let running handlers finish (at most ``timeout_ms``), commit, leave the group."""
        if not self._running:
            if self._stopped and not self._pool.runs_here():  # another caller stops it, and waits for its handlers
                await self._stop_done.wait()
            return
        self._running = False
        self._stopped = True
        self._stop_asked.set()
        try:
            await self._close(timeout_ms)
        finally:
            self._stop_done.set()

    async def _close(self, timeout_ms: int) -> None:
        self._pool.start_no_more()
        await self._tasks.cancel()
        self.instance.on_route_changed.remove(self._route_changed)
        await asyncio.gather(*(pull.stop() for pull in self._pulls.values()))
        await self._pool.stop(timeout_ms / 1000)
        await self._persist()
        for pull in self._pulls.values():
            pull.process_queue.drop()
        self._pulls.clear()
        await self.instance.remove_consumer(self.group)
        await self.instance.stop()

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model=self.message_model,
            consume_from_where=self.consume_from_where.value,
            subscription_data_set=[subscription_data(each) for each in self._subscriptions.values()],
        )

    # -- sharing the queues ------------------------------------------------------------------------------------

    def _route_changed(self, topic: str) -> None:
        if topic in self._subscriptions:
            self._changed.set()

    async def _rebalance_loop(self) -> None:
        known = False
        while True:
            self._changed.clear()
            complete = True
            try:
                routes = await self._routes()
                complete = len(routes) == len(self._subscriptions)
                if routes and not known:
                    await (
                        self.instance.heartbeat()
                    )  # the brokers must know us before they are asked who is in the group
                    known = True
                for topic, route in routes.items():
                    complete &= await self._rebalance_topic(topic, route)
            except PocketMQError as error:
                complete = False
                self.instance.log.warning("rebalance_failed", group=self.group, error=str(error))
            pause_s = (
                self._rebalance_interval_s if complete else min(REBALANCE_RETRY_MS / 1000, self._rebalance_interval_s)
            )
            try:
                async with asyncio.timeout(pause_s):  # not wait_for: before 3.12 it can swallow a cancellation
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _routes(self) -> dict[str, TopicRoute]:
        routes: dict[str, TopicRoute] = {}
        for topic in self._subscriptions:
            try:
                routes[topic] = await self.instance.route(topic, timeout_ms=self.instance.options.api_timeout_ms)
            except PocketMQError as error:
                self.instance.log.info("topic_not_consumed_yet", topic=topic, error=str(error))
        return routes

    async def _rebalance_topic(self, topic: str, route: TopicRoute) -> bool:
        """Give up and take queues of one topic; return False if that should be tried again soon."""
        held = [queue for queue in self._pulls if queue.topic == topic]
        if self.message_model == BROADCASTING:
            members = [self.instance.client_id]
        else:
            members = await self._members(route)
            if self.instance.client_id not in members:
                return False
        change = rebalance(self._allocate, self.group, self.instance.client_id, route.read_queues, members, held)
        for queue in change.revoked:
            await self._give_up(queue)
        started = await asyncio.gather(*(self._take(queue) for queue in change.assigned))
        if change.revoked or change.assigned:
            self.instance.log.info("queues_assigned", group=self.group, queues=len(self._pulls))
        return all(started)

    async def _members(self, route: TopicRoute) -> list[str]:
        """Ask any broker of the topic who is in the group."""
        failure: PocketMQError | None = None
        for broker in route.brokers.values():
            try:
                link = await self.instance.link(broker.broker_name, timeout_ms=self.instance.options.api_timeout_ms)
                response = await link.channel.request(
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                    ConsumerGroupRequestHeader(consumer_group=self.group),
                    timeout_ms=self.instance.options.api_timeout_ms,
                )
                check_answer(response, f"members of {self.group} unknown", link.address, ResponseCode.SYSTEM_ERROR)
                if response.code == ResponseCode.SUCCESS:
                    return decode_body(response.body, ConsumerIdList).consumer_id_list
            except PocketMQError as error:
                failure = error
        if failure is not None:
            raise failure
        return []

    async def _take(self, queue: MessageQueue) -> bool:
        try:
            offset = await self._start_offset(queue)
        except PocketMQError as error:
            self.instance.log.warning("start_offset_unknown", queue=str(queue), error=str(error))
            return False
        process_queue = ProcessQueue(queue, offset, self._limits)
        pull = QueuePull(
            self._wire,
            process_queue,
            self._subscriptions[queue.topic],
            self._pool,
            self._handlers[queue.topic],
            self.instance,
        )
        self._pulls[queue] = pull
        pull.start()
        return True

    async def _start_offset(self, queue: MessageQueue) -> int:
        known = self._offsets.get(queue)
        if self.message_model == BROADCASTING:
            stored = NO_OFFSET if known is None else known
            return await self._wire.start_offset(
                queue, self.consume_from_where, self.consume_timestamp_ms, stored=stored
            )
        return await self._wire.start_offset(queue, self.consume_from_where, self.consume_timestamp_ms)

    async def _give_up(self, queue: MessageQueue) -> None:
        pull = self._pulls.pop(queue)
        await pull.stop()
        pull.process_queue.drop()
        self._offsets.update(queue, pull.process_queue.commit_offset)
        await self._persist_these({queue: pull.process_queue.commit_offset})
        if self.message_model == CLUSTERING:
            self._offsets.forget(queue)

    def _drained(self, process_queue: ProcessQueue) -> None:
        """A queue has room again."""
        pull = self._pulls.get(process_queue.queue)
        if pull is not None:
            pull.wake()

    # -- offsets -----------------------------------------------------------------------------------------------

    async def _persist_loop(self) -> None:
        while True:
            await asyncio.sleep(self._persist_interval_s)
            await self._persist()

    async def _persist(self) -> None:
        for queue, pull in self._pulls.items():
            if pull.offset_known:
                self._offsets.update(queue, pull.process_queue.commit_offset)
        await self._persist_these(self._offsets.dirty())

    async def _persist_these(self, offsets: dict[MessageQueue, int]) -> None:
        if not offsets:
            return
        if self.message_model == BROADCASTING:
            items: Iterable[tuple[MessageQueue, int]] = list(self._offsets.all().items())
            try:
                await asyncio.to_thread(self._file.save, items)
            except OSError as error:
                self.instance.log.error("broadcast_offsets_not_saved", group=self.group, error=str(error))
                return
            self._offsets.persisted(offsets)
            return
        done: list[Any] = await asyncio.gather(
            *(self._wire.store_offset(queue, offset) for queue, offset in offsets.items()), return_exceptions=True
        )
        for (queue, offset), result in zip(offsets.items(), done, strict=True):
            if result is None:
                self._offsets.persisted({queue: offset})
            elif isinstance(result, PocketMQError):
                self.instance.log.warning("commit_failed", queue=str(queue), error=str(result))
            else:
                raise result
