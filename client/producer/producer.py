"""The producer: messages in, receipts out.

Lives here: ``Producer``: the four ways to send, checks, choice of queue, start and stop.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pocketmq.client.arrow.packed import PackedIds
from pocketmq.client.connection.instance import ClientInstance, TaskSet
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.errors import NotStarted, WrongLoop
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.message.identified_message import uniq_keys_of
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.message.request_message import ReplyMessage
from pocketmq.client.message.transaction_message import HalfMessage
from pocketmq.client.message.validation import MAX_MESSAGE_SIZE, check_message
from pocketmq.client.producer.accumulator import Accumulator
from pocketmq.client.producer.batches import Places, collect, cut_into_parts, sort_by_queue
from pocketmq.client.producer.compression import OVER_HOWMUCH_BYTES, Compression
from pocketmq.client.producer.failed_sends import FailedSends
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.producer.producer_options import SEND_TIMEOUT_MS_MAX, ProducerOptions, check_range
from pocketmq.client.producer.request_reply import ReplyDone, Requests
from pocketmq.client.producer.section_port import SendPort
from pocketmq.client.producer.sections import Sections
from pocketmq.client.producer.selectors import QueueSelector, select_by_hash, select_by_user, select_for_reply
from pocketmq.client.sender.attempt_plan import AttemptPlan
from pocketmq.client.sender.fault_items import LATENCY_TABLE_5_3, FaultItems, LatencyTable
from pocketmq.client.sender.in_flight import ASYNC_PERMITS, IN_FLIGHT_BYTES_MAX, ONEWAY_PERMITS, InFlight
from pocketmq.client.sender.queue_choice import QueueChooser
from pocketmq.client.sender.retry import DEFAULT_RETRY_RESPONSE_CODES, RetryPolicy
from pocketmq.client.sender.retry_budget import FLOOR, RATIO, RetryBudget
from pocketmq.client.sender.retry_gate import RetryGate
from pocketmq.client.sender.section import FRAME_BYTES_TARGET, Frame, Section
from pocketmq.client.sender.sender import SectionSender
from pocketmq.client.trace.trace import SendTrace, TraceDispatcher, trace_group
from pocketmq.common.body_codec import LEVEL_DEFAULT, CompressionType
from pocketmq.common.errors import MessageIllegal, PocketMQError
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.message_id import UNIQ_KEY_V4_CHARS
from pocketmq.common.topics import TRACE_TOPIC, check_group_name, is_plain_topic
from pocketmq.remoting.errors import RemotingTooMuchRequestError

if TYPE_CHECKING:
    import pyarrow as pa

STOP_SLACK_S = 0.25
"""How much longer than the send timeout a stop waits: timeouts are noticed a little late."""
IDS_AT_ONCE = 256
ALIKE_MIN = 16
"""From here on messages that are alike are cheaper to build together."""
_DEADLINE_STEP_NS = 10_000_000
"""Sends whose own deadlines are no further apart than this may share a frame, which ends at the earliest."""


class Producer(Lifecycle):
    """Sends messages. ``async with Producer(group=..., namesrv=...) as producer: await producer.send(Message(...))``

    Belongs to one event loop; threads use ``pocketmq.client.blocking``. What is sent in one turn of the loop to one
    broker travels in one frame; ``linger_ms`` widens that turn. Messages without a sharding key take turns over the
    queues frame by frame. A message object must not be changed before its receipt is there.

    Every send ends within its timeout (``send_msg_timeout_ms``: waiting for room, route, connections, all attempts and
    pauses together) with a ``Receipt`` or a ``SendFailed`` that lists the attempts. At most ``in_flight_bytes_max`` and
    ``in_flight_sends_max`` are held: then ``send`` waits and ``send_nowait`` raises ``RemotingTooMuchRequestError``.
    ``docs/sending.md`` explains how a send ends, and every option.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        send_msg_timeout_ms: int = 3000,
        retry_times_when_send_failed: int = 2,
        retry_times_when_send_async_failed: int = 2,
        send_msg_max_timeout_per_request_ms: int | None = None,
        retry_response_codes: Collection[int] | None = None,
        retry_another_broker_when_not_store_ok: bool = False,
        send_latency_fault_enable: bool = False,
        latency_table: LatencyTable = LATENCY_TABLE_5_3,
        retry_budget_ratio: float | None = RATIO,
        retry_budget_floor: int = FLOOR,
        linger_ms: float = 0,
        max_message_size: int = MAX_MESSAGE_SIZE,
        in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX,
        in_flight_sends_max: int = ASYNC_PERMITS,
        in_flight_oneways_max: int = ONEWAY_PERMITS,
        durable_retry: FailedSends | None = None,
        compress_type: CompressionType | str | None = None,
        compress_level: int = LEVEL_DEFAULT,
        compress_msg_body_over_howmuch: int = OVER_HOWMUCH_BYTES,
        enable_message_trace: bool = False,
        trace_topic: str = TRACE_TOPIC,
        instance: ClientInstance | None = None,
    ) -> None:
        check_group_name(group)
        self.options = options = ProducerOptions(
            send_msg_timeout_ms=send_msg_timeout_ms,
            retry_times_when_send_failed=retry_times_when_send_failed,
            retry_times_when_send_async_failed=retry_times_when_send_async_failed,
            send_msg_max_timeout_per_request_ms=send_msg_max_timeout_per_request_ms,
            retry_response_codes=retry_response_codes,
            retry_another_broker_when_not_store_ok=retry_another_broker_when_not_store_ok,
            send_latency_fault_enable=send_latency_fault_enable,
            latency_table=latency_table,
            retry_budget_ratio=retry_budget_ratio,
            retry_budget_floor=retry_budget_floor,
            linger_ms=linger_ms,
            max_message_size=max_message_size,
            in_flight_bytes_max=in_flight_bytes_max,
            in_flight_sends_max=in_flight_sends_max,
            in_flight_oneways_max=in_flight_oneways_max,
        )
        self.group = group
        self.send_msg_timeout_ms = send_msg_timeout_ms
        self.linger_ms = linger_ms
        self.max_message_size = max_message_size
        self.instance = instance if instance is not None else ClientInstance(namesrv)
        self.in_flight = InFlight(in_flight_bytes_max, in_flight_sends_max, in_flight_oneways_max)
        codes = DEFAULT_RETRY_RESPONSE_CODES if retry_response_codes is None else retry_response_codes
        self.retry = RetryPolicy(set(map(int, codes)), send_msg_max_timeout_per_request_ms)
        self.retry_budget = RetryBudget(retry_budget_ratio, retry_budget_floor)
        self.fault_items = FaultItems(latency_table) if send_latency_fault_enable else None
        self._sync_attempts = 1 + options.retry_times_when_send_failed
        self._async_attempts = 1 + options.retry_times_when_send_async_failed
        self._clock = self.instance.clock
        self._accumulator = Accumulator(FRAME_BYTES_TARGET)
        self._open = self._accumulator.open
        self._chooser = QueueChooser(self._clock, self.instance.random, self.fault_items)
        plan = AttemptPlan(
            self.retry,
            RetryGate(self.retry_budget),
            self._chooser,
            self.instance.routes,
            self._clock,
            self.instance.random,
            retry_another_broker_when_not_store_ok=retry_another_broker_when_not_store_ok,
        )
        self._compression: Compression | None = None
        if compress_type is not None:
            self._compression = Compression(compress_type, compress_level, compress_msg_body_over_howmuch)
        self._trace: SendTrace | None = None
        if enable_message_trace:
            inner = Producer(trace_group(group, "PRODUCE"), instance=self.instance)
            self._trace = SendTrace(group, self.instance, TraceDispatcher(inner, trace_topic))
        self._simple_bytes_max = self._simple_bytes()
        self._requests = Requests(self)
        self.durable_retry = durable_retry
        rescue = durable_retry.take_section if durable_retry is not None else None
        self._sender = SectionSender(self.instance, group, plan, self._settled, rescue)
        self._sections = Sections(self.instance, self._sender, self.in_flight, self._check_running)
        self._ids: list[bytes] = []
        self._parked: dict[str, list[PendingSend]] = {}
        self._tasks = TaskSet(self.instance.supervisor)
        self._flush_handle: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop
        self._running = False
        if durable_retry is not None:
            durable_retry.attach(
                SendPort(
                    self._sections,
                    self._chooser,
                    self.in_flight,
                    options,
                    self.retry.retry_response_codes,
                    self._settle_pending,
                )
            )

    # -- life --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the client; routes and connections are made with the first message to a topic."""
        if self._running:
            return
        await self.instance.start()
        self.instance.add_producer(self.group)
        self._loop = asyncio.get_running_loop()
        self._running = True
        if self._trace is not None:
            await self._trace.dispatcher.start()
        if self.durable_retry is not None:
            try:
                await self.durable_retry.start()
            except BaseException:
                await self.stop()
                raise

    async def stop(self) -> None:
        """Deliver what was sent, within ``send_msg_timeout_ms``; fail the rest with ``NotStarted``; close."""
        if not self._running:
            return
        self._flush()
        self._requests.close()
        await self._requests.wait_closed()
        timeout_s = self.send_msg_timeout_ms / 1000
        durable_retry = self.durable_retry
        if durable_retry is not None:
            await durable_retry.stop_resending(timeout_s)
            await self._tasks.wait(timeout_s)
            await durable_retry.quiesce(timeout_s)
        self._running = False
        await self._tasks.wait(timeout_s)
        self._flush()
        await self._sender.drain(timeout_s + STOP_SLACK_S)
        await self._tasks.cancel()
        await self._sender.close()
        self.in_flight.fail_waiting(_stopped())
        if durable_retry is not None:
            await durable_retry.stop()
        if self._trace is not None:
            await self._trace.dispatcher.stop(timeout_s)
        await self.instance.remove_producer(self.group)
        await self.instance.stop()

    def add_retry_response_code(self, code: int) -> None:
        """Count answers with this response code as worth another attempt."""
        self.retry.retry_response_codes.add(int(code))

    @property
    def in_flight_bytes(self) -> int:
        """What is held without a receipt, the open frame not counted."""
        return self.in_flight.bytes_held

    @property
    def oneway_lost(self) -> int:
        """Oneway messages that this producer could not send."""
        return self._sender.oneway_lost

    # -- sending -----------------------------------------------------------------------------------------------

    async def send(
        self, message: Message, *, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> Receipt:
        """Send and wait for the receipt. Raises ``SendFailed``, ``MessageIllegal``, ``TopicIllegal``, ``NoRoute``.

        ``selector(queues, message)`` chooses the queue; a message with a sharding key otherwise goes to that key's
        queue. Both are tried again on that queue only, and only where the broker said that nothing was stored and no
        later message for the queue has been sent: a retry never breaks their order.
        """
        if self.in_flight.full:
            self._check_running()
            started_ns = self._clock.monotonic_ns()
            await self._wait_for_room(timeout_ms)
        elif self._sync_attempts == self._async_attempts:
            return await self.send_nowait(message, selector=selector, timeout_ms=timeout_ms)
        else:
            started_ns = 0
        future = self._loop_future()
        self._submit(message, selector, timeout_ms, False, future, self._sync_attempts, started_ns)
        return await future

    def send_nowait(
        self, message: Message, *, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> "asyncio.Future[Receipt]":
        """Send and return the receipt's future; errors of the message itself are raised here.

        Raises ``RemotingTooMuchRequestError`` when a limit of what may be in flight is reached. Tried again
        ``retry_times_when_send_async_failed`` times, otherwise as ``send``.
        """
        if selector is None and timeout_ms is None and type(message) is Message:
            try:
                section = self._open.get(message.topic)
            except TypeError:  # a topic that cannot be hashed; the check below names it
                section = None
            if section is not None and self._is_simple(message):
                # the hot path: a section for this topic is open, and nothing about the message is special
                ids = self._ids
                if not ids:
                    ids.extend(self.instance.ids.next_bytes(IDS_AT_ONCE))
                future: asyncio.Future[Receipt] = self._loop.create_future()
                if self._accumulator.add(section, message, ids.pop(), future):
                    self._cut(section)
                return future
        future = self._loop_future()
        self._submit(message, selector, timeout_ms, False, future, self._async_attempts)
        return future

    def send_oneway(self, message: Message, *, selector: QueueSelector | None = None) -> None:
        """Send without an answer: one attempt, and nobody learns whether it arrived.

        Raises ``RemotingTooMuchRequestError`` when ``in_flight_oneways_max`` messages have not left yet.
        """
        self._submit(message, selector, None, True, None, 1)

    async def request(
        self, message: Message, *, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> ReceivedMessage:
        """Send a request and return the reply that a consumer sends with ``reply_to``.

        ``timeout_ms`` (``send_msg_timeout_ms`` if not given) is for everything. Raises ``NoReply`` when it is over,
        what ``send_nowait`` raises, and ``RemotingTooMuchRequestError`` when 10,000 requests wait. A request is never
        kept by the durable retry: nobody would wait for its reply.
        """
        self._check_running()
        return await self._requests.request(message, selector, timeout_ms)

    def request_nowait(
        self,
        message: Message,
        done: ReplyDone | None = None,
        *,
        selector: QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> "asyncio.Task[ReceivedMessage]":
        """Send a request in the background; ``done`` is called with the reply, or with the error."""
        self._check_running()
        return self._requests.request_nowait(message, selector, timeout_ms, done)

    async def send_batch(self, messages: Iterable[Message], *, timeout_ms: int | None = None) -> Sequence[Receipt]:
        """Send many and return their receipts in the same order.

        Messages of one topic and one sharding key (or none) go to one queue, in order, in parts of up to 1 MiB; each
        part is stored as a whole or not at all. Raises the first part's error; the other parts may have been stored.
        The timeout counts for each part, from the moment its turn comes.
        Parts of calls that overlap in time may come between each other: where order across calls matters, await one
        before the next.
        """
        batch = list(messages)
        groups: dict[tuple[str, bool, bool], list[int]] = {}
        judged: dict[tuple[str, str], list[int]] = {}
        alike: dict[tuple[str, bool, bool], str | None] = {}
        # The group of a simple message with this topic and these tags: one like it was checked.
        for index, message in enumerate(batch):
            is_simple = type(message) is Message and type(message.topic) is str and self._is_simple(message)
            if is_simple:
                group = judged.get((message.topic, message.tags))
                if group is not None:
                    group.append(index)
                    continue
            plain = check_message(message, self.max_message_size)
            if not message.is_plain_kind:
                raise MessageIllegal(
                    "batch refused",
                    why=f"message {index} is a {type(message).__name__}",
                    hint="send requests and replies by themselves",
                )
            if message.delay_time_level or message.is_timed:
                raise MessageIllegal(
                    "batch refused",
                    why=f"message {index} is delayed",
                    hint="send delayed messages by themselves",
                )
            kind = message.topic, message.wait_store_msg_ok, plain
            tags = message.tags if is_simple and plain else None
            if alike.setdefault(kind, tags) != tags:
                alike[kind] = None
            group = groups.setdefault(kind, [])
            group.append(index)
            if is_simple:
                judged[message.topic, message.tags] = group
        if self._in_order and any(message.sharding_key for message in batch):
            return await self._send_each(batch, timeout_ms)
        begun_ms, begun_ns = self._clock.now_ms(), self._clock.monotonic_ns()
        waits: list[tuple[Places, asyncio.Future[Sequence[Receipt]]]] = []
        for kind, indexes in groups.items():
            topic, wait, plain = kind
            tags = alike[kind] if len(indexes) >= ALIKE_MIN else None
            route = await self._route(topic, timeout_ms)
            keys = [batch[index].sharding_key or "" for index in indexes] if tags is None else None
            for queue, chosen in sort_by_queue(route, indexes, keys):
                for part in cut_into_parts(batch, chosen):
                    started_ns = self._clock.monotonic_ns()
                    await self._wait_for_room(timeout_ms)
                    section = self._sections.new(
                        None,
                        queue or self._chooser.first(route),
                        started_ns=started_ns,
                        deadline_ns=started_ns + self._timeout_ms(timeout_ms) * 1_000_000,
                        attempts_max=self._sync_attempts,
                        plain=plain,
                        wait=wait,
                        may_move=queue is None,
                    )
                    section.messages = [batch[index] for index in part]
                    if tags is not None:
                        section.ids = ids = PackedIds.new(self.instance.ids, len(part))
                        section.alike = tags if ids.width == UNIQ_KEY_V4_CHARS else None
                    else:
                        section.uniq_keys = uniq_keys_of(section.messages, self.instance.ids)
                    waits.append((part, self._sections.send(section)))
                    await asyncio.sleep(0)  # this part leaves while the next is built
        stored = await collect(waits)
        if self._trace is not None:
            self._trace.batch(batch, stored, begun_ms, begun_ns)
        return stored

    async def send_arrow(
        self,
        data: "pa.RecordBatch | pa.Table",
        *,
        topic: str | None = None,
        timeout_ms: int | None = None,
    ) -> Sequence[Receipt]:
        """Send a record batch or table: one message a row, built by columns. Returns the receipts in row order.

        Columns: ``body`` (binary or string, required), ``topic`` unless given as argument, and optionally ``tags``,
        ``keys`` (a string, keys separated by spaces), ``sharding_key``, ``properties`` (a map of strings), ``flag``.
        Other columns are refused
        (``ColumnUnknown``).
        """
        from pocketmq.client.arrow.arrow_records import ArrowRows, by_topic, cut, read_rows

        rows = read_rows(data, topic, self.max_message_size)
        if self._in_order and rows.sharding_keys is not None and any(rows.sharding_keys):
            batch: list[Message | None] = [None] * len(rows)
            for name, chosen in by_topic(rows).items():
                for index, message in zip(chosen.tolist(), ArrowRows(rows, name, chosen, ()).messages(), strict=True):
                    batch[index] = message
            return await self._send_each([message for message in batch if message is not None], timeout_ms)
        waits: list[tuple[Places, asyncio.Future[Sequence[Receipt]]]] = []
        for name, of_topic in by_topic(rows).items():
            route = await self._route(name, timeout_ms)
            shards = rows.sharding_keys
            keys = None if shards is None else [shards[index] for index in of_topic.tolist()]
            for queue, of_queue in sort_by_queue(route, of_topic, keys):
                for part in cut(rows, of_queue, FRAME_BYTES_TARGET):
                    started_ns = self._clock.monotonic_ns()
                    await self._wait_for_room(timeout_ms)
                    section = self._sections.new(
                        None,
                        queue or self._chooser.first(route),
                        started_ns=started_ns,
                        deadline_ns=started_ns + self._timeout_ms(timeout_ms) * 1_000_000,
                        attempts_max=self._sync_attempts,
                        plain=is_plain_topic(name),
                        wait=True,
                        may_move=queue is None,
                    )
                    section.ids = ids = PackedIds.new(self.instance.ids, len(part))
                    section.rows = ArrowRows(rows, name, part, ids)
                    waits.append((part, self._sections.send(section)))
                    await asyncio.sleep(0)  # this part leaves while the next is built
        return await collect(waits)

    @property
    def _in_order(self) -> bool:
        """Whether the durable retry keeps the order of keys: then no batch may go past what waits."""
        return self.durable_retry is not None and self.durable_retry.keeps_order

    async def _send_each(self, batch: list[Message], timeout_ms: int | None) -> list[Receipt]:
        """Send messages in order, each by itself as far as its fate goes; those for a queue still travel together."""
        futures: list[asyncio.Future[Receipt]] = []
        error: PocketMQError | None = None
        for message in batch:
            try:
                await self._wait_for_room(timeout_ms)
                future = self._loop_future()
                self._submit(message, None, timeout_ms, False, future, self._sync_attempts)
            except PocketMQError as refused:  # those before it are under way: their errors are taken, this one raised
                error = refused
                break
            futures.append(future)
        done = await asyncio.gather(*futures, return_exceptions=True)
        for result in done:
            if isinstance(result, BaseException):
                raise result
        if error is not None:
            raise error
        return [future.result() for future in futures]

    # -- the way in --------------------------------------------------------------------------------------------

    def _simple_bytes(self) -> int:
        """Return up to which size a body needs nothing but a record: none does while sends are traced."""
        if self._trace is not None:
            return 0
        if self._compression is not None:
            return min(self.max_message_size, self._compression.over_howmuch_bytes - 1)
        return self.max_message_size

    def _is_simple(self, message: Message) -> bool:
        """Tell whether the hot path may take ``message``: nothing to check that the record builder does not check."""
        body = message.body
        return (
            type(body) is bytes
            and 0 < len(body) <= self._simple_bytes_max
            and not (
                message.keys != ()
                or message.properties
                or message.sharding_key
                or message.delay_time_level
                or message.is_timed
                or message.flag
            )
            and message.wait_store_msg_ok is True
            and type(message.tags) is str
        )

    def _check_running(self) -> None:
        if not self._running:
            raise _stopped()
        loop: asyncio.AbstractEventLoop | None
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None  # a plain thread
        if loop is not self._loop:
            self.instance.check_process()
            raise WrongLoop(
                "producer used outside its event loop",
                why="it was started in another one, or this is a plain thread",
                hint="threads use pocketmq.client.blocking; another loop needs a producer of its own",
            )

    def _loop_future(self) -> "asyncio.Future[Receipt]":
        self._check_running()
        return self._loop.create_future()

    def _submit(
        self,
        message: Message,
        selector: QueueSelector | None,
        timeout_ms: int | None,
        oneway: bool,
        future: "asyncio.Future[Receipt] | None",
        attempts_max: int,
        started_ns: int = 0,
    ) -> None:
        """Check a message and put it where it belongs: an open section, a new one, or the waiting room of its topic.

        ``started_ns``: since when its timeout counts, if not from now.
        """
        self._check_running()
        self.instance.check_process()
        plain = check_message(message, self.max_message_size)
        if isinstance(message, HalfMessage):
            plain = plain and message.check_immunity_sec is None
        own_time = timeout_ms is not None
        if started_ns:  # it has waited for room, and has it now
            own_time = True
        else:
            if self.in_flight.full or oneway:
                self.in_flight.check(oneway)
            started_ns = self._clock.monotonic_ns()
        deadline_ns = started_ns + self._timeout_ms(timeout_ms) * 1_000_000
        parked = PendingSend(message, plain, selector, oneway, future, started_ns, deadline_ns, own_time, attempts_max)
        if self._compression is not None:
            parked.ready = self._compression.pack(message, self._loop)
        if self._trace is not None and future is not None:
            self._trace.watch(message, future)
        topic = message.topic
        waiting = self._parked.get(topic)
        if waiting is None and parked.ready is not None:
            waiting = self._parked[topic] = []
            self._tasks.spawn(self._unpark(topic), f"pocketmq-unpark-{topic}")
        if waiting is None:
            if self.durable_retry is not None and self.durable_retry.take_behind(parked):
                return
            route = self.instance.routes.get(topic)
            if route is not None and route.write_queues:
                self._put(parked, route)
                return
            waiting = self._parked[topic] = []
            self._tasks.spawn(self._unpark(topic), f"pocketmq-unpark-{topic}")
        waiting.append(parked)  # behind the others: sends to a topic keep their order
        self.in_flight.add(parked.size_bytes, 1, oneway)
        if own_time and future is not None:
            left_s = (deadline_ns - self._clock.monotonic_ns()) / 1e9
            timer = self._loop.call_later(max(left_s, 0), self._expire_parked, parked)
            future.add_done_callback(lambda _: timer.cancel())

    def _expire_parked(self, parked: PendingSend) -> None:
        """End a send whose own time is over while the route of its topic is awaited."""
        waiting = self._parked.get(parked.message.topic)
        if waiting is None or parked not in waiting:
            return
        waiting.remove(parked)
        elapsed_ms = (self._clock.monotonic_ns() - parked.started_ns) / 1e6
        error = RemotingTooMuchRequestError(
            "sendDefaultImpl call timeout",
            why=f"no route of {parked.message.topic} after {elapsed_ms:.0f} ms",
            hint="it was not sent; check the name server",
        )
        self._unparked(parked, error, early=True)

    def _unparked(self, parked: PendingSend, error: PocketMQError, *, early: bool = False) -> None:
        """End a send that found no route; or let the durable retry keep it. ``early``: those before it still wait."""
        retry = self.durable_retry
        if retry is None or not retry.take_parked(parked, error, self._settle_pending, early=early):
            self._settle_pending(parked, error)

    def _settle_pending(self, parked: PendingSend, result: Receipt | PocketMQError) -> None:
        """End a send that was held in memory by itself."""
        self.in_flight.remove(parked.size_bytes, 1, parked.oneway)
        if parked.future is not None and not parked.future.done():
            if isinstance(result, Receipt):
                parked.future.set_result(result)
            else:
                parked.future.set_exception(result)

    async def _unpark(self, topic: str) -> None:
        """Wait for a topic's route, then let its messages in."""
        try:
            route = await self.instance.route(topic, timeout_ms=self.send_msg_timeout_ms, for_send=True)
            await self._packed(topic, route)
        except (PocketMQError, asyncio.CancelledError) as error:
            refusal = error if isinstance(error, PocketMQError) else _stopped()
            for parked in self._parked.pop(topic, []):
                self._unparked(parked, refusal)
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        for parked in self._parked.pop(topic, []):
            self._enter(parked, route)

    async def _packed(self, topic: str, route: TopicRoute) -> None:
        """Let in what waits, in order, as long as a thread compresses some of it."""
        waiting = self._parked.get(topic, [])
        while any(parked.ready is not None and not parked.ready.done() for parked in waiting):
            first = waiting[0]
            if first.ready is not None and not first.ready.done():
                await asyncio.wait((first.ready,))
            else:
                waiting.pop(0)
                self._enter(first, route)

    def _enter(self, parked: PendingSend, route: TopicRoute) -> None:
        """Let in a send that was held in memory by itself."""
        self.in_flight.remove(parked.size_bytes, 1, parked.oneway)
        if parked.ready is not None and parked.ready.exception() is not None:
            error = parked.ready.exception()
            self.instance.log.error("compression_failed", topic=parked.message.topic, error=repr(error))
        try:
            self._put(parked, route)
        except PocketMQError as error:
            if parked.future is not None and not parked.future.done():
                parked.future.set_exception(error)

    def _put(self, parked: PendingSend, route: TopicRoute) -> None:
        """Choose the queue of a checked message and add it to the section for that."""
        message = parked.message
        wait, oneway, plain = bool(message.wait_store_msg_ok), parked.oneway, parked.plain
        attempts_max, half = parked.attempts_max, type(message) is HalfMessage
        key: Any
        queue: MessageQueue | None = None
        if parked.selector is not None:
            queue = select_by_user(parked.selector, route.write_queues, message)
        elif isinstance(message, ReplyMessage):
            queue = select_for_reply(message.broker_name, route.write_queues)
        elif message.sharding_key:
            queue = select_by_hash(message.sharding_key, route.write_queues)
        if queue is not None:
            retry = self.durable_retry
            if retry is not None and not oneway and retry.send_in_order(parked, queue):
                return
            key = (queue, wait, oneway, plain, attempts_max, half)
        elif wait and not oneway and plain and not half and attempts_max == self._async_attempts:
            key = message.topic  # the key of the hot path
        else:
            key = (message.topic, wait, oneway, plain, attempts_max, half)
        if parked.own_time:
            key = (key, parked.deadline_ns // _DEADLINE_STEP_NS)
        section = self._open.get(key)
        if section is None:
            chosen = queue if queue is not None else self._chooser.first(route)
            section = self._sections.new(
                key,
                chosen,
                started_ns=parked.started_ns,
                deadline_ns=parked.deadline_ns,
                attempts_max=attempts_max,
                plain=plain,
                wait=wait,
                may_move=queue is None,
                oneway=oneway,
                half=half,
            )
            if self._accumulator.begin(section):
                self._schedule_flush()
        elif parked.own_time and parked.deadline_ns < section.deadline_ns:
            section.deadline_ns = parked.deadline_ns
        uniq_key = uniq_keys_of((message,), self.instance.ids)[0]
        if self._accumulator.add(section, message, uniq_key, parked.future):
            self._cut(section)

    async def _route(self, topic: str, timeout_ms: int | None) -> TopicRoute:
        self._check_running()
        return await self.instance.route(topic, timeout_ms=self._timeout_ms(timeout_ms), for_send=True)

    def _timeout_ms(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self.send_msg_timeout_ms
        check_range("timeout_ms", timeout_ms, 1, SEND_TIMEOUT_MS_MAX)
        return int(timeout_ms)

    # -- the way out -------------------------------------------------------------------------------------------

    def _schedule_flush(self) -> None:
        if self.linger_ms:
            self._flush_handle = self._loop.call_later(self.linger_ms / 1000, self._flush)
        else:
            self._flush_handle = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send every open frame: the end of the turn."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        for frame in self._accumulator.flush():
            self._send(frame)

    def _cut(self, section: Section) -> None:
        """Send a frame that is full, before the end of the turn."""
        frame = section.frame
        assert frame is not None
        self._send(self._accumulator.take(frame))
        if not self._accumulator and self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None

    def _send(self, frame: Frame) -> None:
        add = self.in_flight.add
        for section in frame.sections:
            section.permits = section.count
            add(section.size_bytes, section.permits, section.oneway)
        self._sender.send_frame(frame)

    def _settled(self, section: Section) -> None:
        size_bytes, permits = section.size_bytes, section.permits
        section.size_bytes = section.permits = 0
        self.in_flight.remove(size_bytes, permits, section.oneway)

    async def _wait_for_room(self, timeout_ms: int | None) -> None:
        """Wait until less is in flight than allowed; raise ``RemotingTooMuchRequestError`` after the timeout."""
        if self.in_flight.full:
            await self.in_flight.wait(self._loop.time() + self._timeout_ms(timeout_ms) / 1000)


def _stopped() -> NotStarted:
    return NotStarted("producer is not running", hint='use "async with Producer(...)", or await start() first')
