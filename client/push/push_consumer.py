"""The push consumer: handlers get messages; pulling, rebalancing and committing happen by themselves.

Lives here: ``PushConsumer``: subscriptions, start and stop, its parts.
"""

import asyncio
import signal
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, Unpack

from pocketmq.client.connection.instance import ClientInstance, TaskSet
from pocketmq.client.connection.own_instance import instance_for
from pocketmq.client.connection.rebalance import AllocateStrategy, MessageQueue, strategy_of
from pocketmq.client.errors import NotStarted, SubscriptionIllegal
from pocketmq.client.handlers.consume_result import BROKER_DECIDES, DEAD_LETTER, DropFailed, FailurePolicy, Later
from pocketmq.client.handlers.consumer_statistics import ConsumerStatistics
from pocketmq.client.handlers.handler_call import AnyHandler, HandlerCall
from pocketmq.client.handlers.handler_watch import HandlerWatch
from pocketmq.client.handlers.handlers import ConcurrentMode
from pocketmq.client.handlers.ordered import OrderedMode
from pocketmq.client.handlers.process_queue import ProcessLimits
from pocketmq.client.handlers.process_telemetry import ProcessTelemetry
from pocketmq.client.handlers.queue_mode import ConsumeContext
from pocketmq.client.handlers.traced_handler import traced
from pocketmq.client.handlers.typed_handler import typed_handler
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.producer.producer import Producer
from pocketmq.client.pull.offsets import BroadcastOffsetFile, ConsumeFromWhere, FirstStart, group_start
from pocketmq.client.pull.pull_consumer import START_BEFORE_MS
from pocketmq.client.pull.subscription import ALL, Subscription, parse_sql, parse_subscription, subscription_data
from pocketmq.client.push.consume_timeout import ConsumeTimeout
from pocketmq.client.push.consumer_options import BROADCASTING, STOP_TIMEOUT_MS, ConsumerOptions, ConsumerSettings
from pocketmq.client.push.consumer_status import ConsumerStatus
from pocketmq.client.push.loop_watch import LoopWatch
from pocketmq.client.push.message_stream import MessageStream
from pocketmq.client.push.queue_pull import QueuePull
from pocketmq.client.push.rebalance_service import RebalanceService, TopicConsumption
from pocketmq.client.push.send_back import SendBack, show_origin
from pocketmq.client.push.stop_signals import DEFAULT_SIGNALS, StopSignals
from pocketmq.client.push.subscription_check import SubscriptionCheck
from pocketmq.client.telemetry.switch import TelemetryArgument
from pocketmq.client.trace.trace import ConsumeTrace, TraceDispatcher, trace_group
from pocketmq.common.errors import ConfigError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.runner import ThreadRunner
from pocketmq.common.topics import TRACE_TOPIC, check_group_name, check_topic_name
from pocketmq.common.value_codec import JSON, BodyCodec
from pocketmq.remoting.protocol.client import ConsumerData
from pocketmq.remoting.security.client_security import TLSArgument
from pocketmq.remoting.security.credentials import Credentials

if TYPE_CHECKING:
    from pathlib import Path

TOPICS_MAX = 4_000
"""A broker takes 4,096 subscriptions in one heartbeat."""
BATCH_MESSAGES_MAX = 65_536
WATCH_INTERVAL_S = 1.0
IDLE_WARNINGS_S = (1, 9, 20, 30)
"""Pauses before the warnings of a started consumer without subscriptions."""


class PushConsumer(Lifecycle):
    """Calls handlers with messages.

        consumer = PushConsumer(group="billing", namesrv="127.0.0.1:9876")

        @consumer.subscribe("TopicTest", tags="A || B")
        async def charge(message): ...

        @consumer.subscribe_batch("Clicks", max_messages=500)
        async def count(messages): ...

        await consumer.run()

    ``message_model`` CLUSTERING: the group shares the queues, offsets live at the brokers. BROADCASTING: every
    consumer gets every message, offsets live in a file below ``offset_store_dir``.

    ``start``: where a group begins in a queue for which it has no offset: ``"latest"`` (default), ``"earliest"``, a
    datetime with a time zone or ms since 1970. ``consume_from_where`` says the same in RocketMQ's words.

    At least once: an offset is committed when all messages below it are done. Handlers are ``async def``, or plain
    functions, which run in a thread pool; at most ``concurrency`` calls of one handler run at once, in no particular
    order, or one a queue and in its order with ``ordered=True``. Their possible answers: ``consume_result.outcome_of``.
    A failed message goes back to the broker for a later try (``failure_policy``).

    Further settings: ``consumer_options.ConsumerOptions``.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        start: FirstStart | None = None,
        consume_from_where: ConsumeFromWhere | None = None,
        consume_timestamp_ms: int | None = None,
        allocate: str | AllocateStrategy = "AVG",
        limits: ProcessLimits | None = None,
        offset_store_dir: "str | Path | None" = None,
        failure_policy: FailurePolicy | None = None,
        enable_message_trace: bool = False,
        trace_topic: str = TRACE_TOPIC,
        codec: BodyCodec = JSON,
        credentials: Credentials | None = None,
        tls: TLSArgument = None,
        telemetry: TelemetryArgument = None,
        instance: ClientInstance | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        from pathlib import Path

        check_group_name(group)
        unknown = set(settings) - ConsumerOptions.names()
        if unknown:
            names = ", ".join(sorted(ConsumerOptions.names()))
            raise ConfigError("consumer refused", why=f"no setting {sorted(unknown)[0]!r}", hint=names)
        first = group_start(start, consume_from_where, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, consume_timestamp_ms)
        self.group = group
        self.options = ConsumerOptions(**settings)
        self.instance = instance_for(instance, namesrv, credentials, tls, telemetry)
        self.statistics = ConsumerStatistics(self.instance.clock)
        directory = Path(offset_store_dir) if offset_store_dir is not None else Path.home() / ".pocketmq_offsets"
        self._topics: dict[str, TopicConsumption] = {}
        self._paused = False
        self._check = SubscriptionCheck(self.instance, group)
        self._given_policy = failure_policy
        self._codec = codec
        spans = self.instance.telemetry
        self._telemetry = None if spans is None else ProcessTelemetry(spans, group, self.options.message_model)
        if first.timestamp_ms is None:
            first = first._replace(timestamp_ms=self.instance.clock.now_ms() - START_BEFORE_MS)
        self._first = first
        self._allocate = strategy_of(allocate)
        self._limits = limits or ProcessLimits()
        # a broadcast consumer must find its file again after a restart: the client id has no place in the path
        self._offsets_file = BroadcastOffsetFile(directory / group)
        self._make_parts()
        self._tasks = TaskSet(self.instance.supervisor)
        self._streams: list[MessageStream] = []
        self._trace: TraceDispatcher | None = None
        if enable_message_trace:
            self._trace = TraceDispatcher(Producer(trace_group(group, "CONSUME"), instance=self.instance), trace_topic)
        self._threads: ThreadPoolExecutor | None = None
        self._stop_asked: asyncio.Event
        self._stop_done: asyncio.Event
        self._running = False
        self._stopping = False
        self._stopped = False
        self._idle: asyncio.TimerHandle | None = None
        self._idle_since_s = 0.0

    def _make_parts(self) -> None:
        """Make what one run of the consumer needs; a further start makes it again, perhaps in another event loop."""
        self._rebalance_service = RebalanceService(
            self.group,
            self.instance,
            self.options,
            allocate=self._allocate,
            limits=self._limits,
            first=self._first,
            topics=self._topics,
            statistics=self.statistics,
            offsets_file=self._offsets_file,
            paused=lambda: self._paused,
            on_conflict=self._check.conflict,
        )
        self._watch = HandlerWatch(self.instance.clock)
        self._policy = self._given_policy if self._given_policy is not None else self._make_policy()
        if self._telemetry is not None:
            self._policy = self._telemetry.settling(self._policy)
        context = ConsumeContext(
            group=self.group,
            message_model=self.options.message_model,
            instance=self.instance,
            policy=self._policy,
            watch=self._watch,
            drained=self._rebalance_service.drained,
            rebalance_soon=self._rebalance_soon,
            concurrency=self.options.concurrency,
            consume_retry_ms=self.options.retry_delay_ms,
            max_reconsume_times=self.options.max_reconsume_times,
            suspend_current_queue_time_millis=self.options.suspend_current_queue_time_millis,
            statistics=self.statistics,
        )
        self._concurrent = ConcurrentMode(context)
        self._ordered = OrderedMode(
            context,
            lock_interval_ms=self.options.lock_interval_ms,
            lock_max_live_ms=self.options.lock_max_live_ms,
        )
        self._timeouts = ConsumeTimeout(
            self._watch, self._concurrent, self._policy, self.options, self.instance.clock, self.instance.log
        )
        self._loop_watch = LoopWatch(
            self._watch,
            self.options.loop_block_ms,
            self.instance.clock,
            self.instance.log,
            ThreadRunner(self.instance.supervisor.crashed),
        )
        self._status = ConsumerStatus(self, self._rebalance_service, self.statistics, self._watch)

    def _make_policy(self) -> FailurePolicy:
        if self.options.message_model == BROADCASTING:
            return DropFailed()
        return SendBack(self.instance, self.group, self.options.max_reconsume_times)

    # -- subscriptions -----------------------------------------------------------------------------------------

    def subscribe(
        self, topic: str, tags: str = ALL, *, sql: str | None = None, ordered: bool = False, body: Any = None
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Register the decorated function as the handler of a topic; one handler a topic, before ``start``.

        ``tags``: ``"A || B"``; ``sql``: a filter on properties instead, ``"price > 5 AND region = 'north'"``.
        ``ordered``: one call at a time a queue, in the queue's order, under the broker's lock.

        A function whose first parameter has another type than ``ReceivedMessage`` gets bodies of that type, decoded by
        the consumer's ``codec`` (JSON by default), and the message if it has a second one. ``body`` gives the type
        instead. A body that cannot be decoded counts as a failure of the handler.
        """
        subscription = self._subscription(topic, tags, sql)

        def register(handler: AnyHandler) -> AnyHandler:
            self._register(subscription, self._handler(handler, body, batch=False), 0, ordered)
            return handler

        return register

    def subscribe_batch(
        self,
        topic: str,
        tags: str = ALL,
        *,
        max_messages: int = 32,
        sql: str | None = None,
        ordered: bool = False,
        body: Any = None,
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Register a function that takes a list of 1 to ``max_messages`` messages of one queue.

        It gets the available messages, and never waits for a list to fill. Its answer counts for the whole list;
        ``Later`` can name the messages that failed. ``body``, or a parameter ``list[SomeType]``: as with
        ``subscribe``.
        """
        if type(max_messages) is not int or not 1 <= max_messages <= BATCH_MESSAGES_MAX:
            raise SubscriptionIllegal(
                "subscription refused", why=f"max_messages={max_messages!r}", hint=f"1 to {BATCH_MESSAGES_MAX}"
            )
        subscription = self._subscription(topic, tags, sql)

        def register(handler: AnyHandler) -> AnyHandler:
            self._register(subscription, self._handler(handler, body, batch=True), max_messages, ordered)
            return handler

        return register

    def messages(
        self, topic: str, tags: str = ALL, *, sql: str | None = None, auto_ack: bool = True, prefetch: int = 32
    ) -> MessageStream:
        """Return an iterator over the messages of a topic: ``async for message in consumer.messages("TopicTest")``.

        It starts the consumer if needed, and a running one takes the topic, too. ``auto_ack``: a message counts as done
        when the next one is asked for; else ``stream.ack(message)``. At most ``prefetch`` messages wait for the caller.
        """
        subscription = self._subscription(topic, tags, sql, while_running=True)
        stream = MessageStream(self, topic, auto_ack=auto_ack, prefetch=prefetch, telemetry=self._telemetry)
        self._register(subscription, stream.deliver, 0, False)
        self._streams.append(stream)
        if self._running:
            self._rebalance_service.subscribed()
        return stream

    def _handler(self, handler: Callable[..., Any], body: Any, *, batch: bool) -> Callable[..., Any]:
        """Return a handler that takes messages, inside a span if there is telemetry."""
        typed = typed_handler(handler, self._codec, body, batch=batch)
        return typed if self._telemetry is None else self._telemetry.observed(typed, is_batch=batch)

    def _subscription(self, topic: str, tags: str, sql: str | None, *, while_running: bool = False) -> Subscription:
        if not isinstance(topic, str):
            why = f"the topic is {type(topic).__name__}, not str"
            raise SubscriptionIllegal("subscription refused", why=why, hint='write @consumer.subscribe("Orders")')
        check_topic_name(topic)
        if self._stopping or (self._running and not while_running):
            raise SubscriptionIllegal(
                "subscription refused", why="the consumer is running", hint="subscribe before start, or use messages()"
            )
        if topic in self._topics:
            raise SubscriptionIllegal("subscription refused", why=f"{topic} has a handler", hint="one handler a topic")
        if len(self._topics) >= TOPICS_MAX:
            raise SubscriptionIllegal("subscription refused", why=f"{TOPICS_MAX} topics are subscribed")
        version = self.instance.clock.now_ms()
        if sql is None:
            return parse_subscription(topic, tags, version)
        if tags != ALL:
            raise SubscriptionIllegal("subscription refused", why="tags and sql are both given", hint="give one")
        return parse_sql(topic, sql, version)

    def _register(self, subscription: Subscription, handler: Callable[..., Any], batch_max: int, ordered: bool) -> None:
        topic = subscription.topic
        if topic in self._topics:
            raise SubscriptionIllegal("subscription refused", why=f"{topic} has a handler", hint="one handler a topic")
        call = HandlerCall(handler, batch_max=batch_max, log=self.instance.log, threads=self._thread_pool)
        if self._trace is not None:
            call = HandlerCall(
                traced(call, ConsumeTrace(self.group, self.instance, self._trace)),
                batch_max=batch_max,
                log=self.instance.log,
                threads=self._thread_pool,
            )
        self._topics[topic] = TopicConsumption(
            subscription, call, self._ordered if ordered else self._concurrent, ordered
        )

    def _thread_pool(self) -> Executor:
        if self._threads is None:
            handlers = sum(not consumption.call.is_async for consumption in self._topics.values())
            # twice: a call that hangs past the consume timeout is replaced by another one
            threads = min(2 * self.options.concurrency * max(1, handlers), 10_000)
            self._threads = ThreadPoolExecutor(threads, thread_name_prefix="pocketmq-handler")
        return self._threads

    def _subscribe_to_retries(self) -> None:
        """Add the retry topic: its messages go to the handler of the topic that they come from."""
        topic = self._policy.retry_topic
        if not topic or topic in self._topics:
            return
        calls = {name: consumption.call for name, consumption in self._topics.items()}

        async def dispatch(message: ReceivedMessage) -> Any:
            consumption = self._topics.get(message.topic)
            if consumption is None and len(self._topics) == 2:  # the retry topic, and the only other one
                consumption = next(each for name, each in self._topics.items() if name != topic)
            if consumption is None:
                self.instance.log.warning("retry_of_unknown_topic", message=message, topic=message.topic)
                # not lost: another member may subscribe to it, and in the end it becomes a dead letter
                return Later(delay_level=DEAD_LETTER if ordered else BROKER_DECIDES)
            return await consumption.call.invoke([message])

        ordered = all(consumption.ordered for consumption in self._topics.values())
        self._register(parse_subscription(topic, ALL, self.instance.clock.now_ms()), dispatch, 0, ordered)
        for name, call in calls.items():
            if ordered:
                self._ordered.add_topic(name, call)
            else:
                self._concurrent.add_topic(name, call)

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that this consumer reads now, those of retry topics not counted."""
        return sorted(queue for queue in self._rebalance_service.pulls if queue.topic != self._policy.retry_topic)

    @property
    def message_model(self) -> str:
        """CLUSTERING or BROADCASTING."""
        return self.options.message_model

    @property
    def _pulls(self) -> dict[MessageQueue, QueuePull]:
        return self._rebalance_service.pulls

    # -- life --------------------------------------------------------------------------------------------------

    async def run(
        self, *, stop_on: Collection[signal.Signals] = DEFAULT_SIGNALS, stop_timeout_ms: int = STOP_TIMEOUT_MS
    ) -> None:
        """Start, consume until ``stop``, a signal of ``stop_on`` or cancellation, and stop gracefully.

        Signals count in the main thread only, and where the application does not handle them itself: then ``run``
        returns once running handlers have finished and offsets are committed. ``stop_on=()``: no signal does.
        ``stop_timeout_ms``: as of ``stop``.
        """
        asked = asyncio.Event()
        with StopSignals(stop_on, asked.set):
            await self.start()
            try:
                ends = [asyncio.ensure_future(end) for end in (asked.wait(), self.wait_stopped())]
                try:
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for end in ends:
                        end.cancel()
            finally:
                await self.stop(stop_timeout_ms)

    async def __aenter__(self) -> Self:
        """Start; a consumer without subscriptions starts with the first ``messages()`` in the block."""
        if self._topics or self._running:
            await self.start()
        else:
            self._idle_since_s = asyncio.get_running_loop().time()
            self._warn_idle(0)
        return self

    def _warn_idle(self, count: int) -> None:
        """Say that nothing is consumed: after ``IDLE_WARNINGS_S``, then each minute, until a topic is subscribed."""
        self._idle = None
        if self._topics or self._stopped:
            return
        if count:
            waited_s = int(asyncio.get_running_loop().time() - self._idle_since_s)
            self.instance.log.warning(
                "nothing_subscribed", group=self.group, waited_s=waited_s, hint="use messages(topic) in the block"
            )
        after_s = IDLE_WARNINGS_S[count] if count < len(IDLE_WARNINGS_S) else 60
        self._idle = asyncio.get_running_loop().call_later(after_s, self._warn_idle, count + 1)

    async def __aexit__(self, *error: object) -> None:
        """Stop."""
        if self._idle is not None:
            self._idle.cancel()
        await self.stop()

    async def wait_stopped(self) -> None:
        """Return once ``stop`` was called."""
        await self._stop_asked.wait()

    async def start(self) -> None:
        """Join the group and begin to consume. A stopped consumer can start again, in another event loop too.

        Raises ``SubscriptionIllegal`` when a broker that can be asked refuses a filter.
        """
        if self._running:
            return
        if self._stopping:
            raise NotStarted("consumer is stopping", hint="start it once stop() has returned")
        if not self._topics:
            raise SubscriptionIllegal(
                "nothing to consume",
                why="no topic is subscribed",
                hint="use @consumer.subscribe(topic), or iterate over consumer.messages(topic)",
            )
        import pocketmq.common.record_columns  # noqa: F401 - NumPy: now, not in the first pull, when handlers may run

        if self._stopped:
            self._begin_again()
        self._stop_asked = asyncio.Event()
        self._stop_done = asyncio.Event()
        await self.instance.start()
        try:
            await self._check.filters(self.subscriptions)
            self.instance.add_consumer(self.group, self._describe, self._rebalance_soon, self._status.answer)
        except BaseException:
            await self.instance.stop()
            raise
        self._running = True
        self._concurrent.start()
        self._ordered.start()
        self._subscribe_to_retries()
        if self._trace is not None:
            await self._trace.start()
        await self._rebalance_service.start(self._tasks)
        self.instance.on_route_changed.append(self._route_changed)
        self._tasks.keep(self._watch_loop, "pocketmq-consumer-watch")
        if any(consumption.call.is_async for consumption in self._topics.values()):
            self._loop_watch.start()

    def _begin_again(self) -> None:
        """Forget the run before: its modes, pulls and offsets, but no subscription."""
        self._topics.pop(self._policy.retry_topic, None)
        self._make_parts()
        for consumption in self._topics.values():
            consumption.mode = self._ordered if consumption.ordered else self._concurrent
        for stream in self._streams:
            stream.reopen()
        self._threads = None
        self._tasks = TaskSet(self.instance.supervisor)
        self._stopped = False

    async def stop(self, timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """Stop pulling, let running handlers finish (at most ``timeout_ms``), commit, leave the group.

        Messages that no handler has begun are given back: the offset stays before them.
        """
        if not self._running:
            if self._stopped and not self._concurrent.runs_here():  # another caller stops it; wait for its handlers
                await self._stop_done.wait()
            return
        self._running = False
        self._stopping = self._stopped = True
        self._stop_asked.set()
        try:
            await self._close(timeout_ms / 1000)
        finally:
            self._stopping = False
            self._stop_done.set()

    async def _close(self, timeout_s: float) -> None:
        await self._tasks.cancel()
        await self._status.tasks.cancel()
        self._loop_watch.stop()
        self._concurrent.start_no_more()
        for stream in self._streams:
            stream.give_back()
        self.instance.on_route_changed.remove(self._route_changed)
        await self._rebalance_service.close(timeout_s)
        await self.instance.remove_consumer(self.group)
        await self._concurrent.stop(0)
        await self._ordered.stop(0)
        if self._trace is not None:
            await self._trace.stop()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        await self.instance.stop()

    async def consume_directly(self, message: ReceivedMessage) -> tuple[str, str]:
        """Call the handler with one message that an administrator chose; return RocketMQ's result name and a remark.

        Nothing is committed or sent back, whatever the outcome.
        """
        show_origin([message])
        consumption = self._topics.get(message.topic)
        if consumption is None:
            return "CR_THROW_EXCEPTION", f"the consumer does not subscribe to {message.topic}"
        outcome = await consumption.call.run([message])
        if outcome.error is not None:
            return "CR_THROW_EXCEPTION", outcome.reason
        return ("CR_LATER", outcome.reason) if outcome.later else ("CR_SUCCESS", "")

    def pause(self) -> None:
        """Pull nothing until ``resume``; pulled messages are still handled (DefaultMQPushConsumer.suspend)."""
        self._paused = True

    def resume(self) -> None:
        """Pull again."""
        self._paused = False
        for pull in self._rebalance_service.pulls.values():
            pull.wake()

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._running

    @property
    def ever_started(self) -> bool:
        """Whether it is running or was stopped."""
        return self._running or self._stopped

    @property
    def paused(self) -> bool:
        """Whether ``pause`` holds the pulls."""
        return self._paused

    @property
    def subscriptions(self) -> list[Subscription]:
        """Its subscriptions, the retry topic included."""
        return [consumption.subscription for consumption in self._topics.values()]

    @property
    def ordered(self) -> bool:
        """Whether any topic is consumed in order."""
        return any(consumption.ordered for consumption in self._topics.values())

    @property
    def lock_waits(self) -> list[dict[str, Any]]:
        """Ordered queues of this consumer whose lock another client has, the longest wait first: ``queue``,
        ``waited_ms``, ``why``, and from the broker ``holder``, ``holder_address``, ``holder_age_ms``,
        ``expires_in_ms``."""
        return self._ordered.lock_waits()

    @property
    def consume_from_where(self) -> ConsumeFromWhere:
        """Where a new group starts."""
        return self._first.where

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model=self.options.message_model,
            consume_from_where=self.consume_from_where.value,
            subscription_data_set=[subscription_data(each) for each in self.subscriptions],
        )

    def _rebalance_soon(self) -> None:
        self._rebalance_service.changed.set()

    def _route_changed(self, topic: str) -> None:
        if topic in self._topics:
            self._rebalance_service.changed.set()

    async def _watch_loop(self) -> None:
        while True:
            shortest_ms = min(self.options.slow_handler_ms, self.options.consume_timeout_ms)
            await asyncio.sleep(min(WATCH_INTERVAL_S, shortest_ms / 2000))
            self.statistics.sample()
            try:
                await self._timeouts.check()
            except Exception as error:  # a failure policy of the user's own must not end the watch
                self.instance.log.error("consume_timeout_failed", group=self.group, exc_info=error)
