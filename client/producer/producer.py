"""The producer: messages in, receipts out.

Lives here: ``Producer``: the ways to send, checks, choice of queue, start and stop. ``parking``, ``batch_send`` and the
stages (``stages``) have what not every send needs.
"""

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pocketmq.client.connection.instance import ClientInstance, retrieve_exception
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.errors import WrongLoop
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.message.identified_message import uniq_keys_of
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.message.request_message import ReplyMessage
from pocketmq.client.message.transaction_message import HalfMessage
from pocketmq.client.message.validation import MAX_MESSAGE_SIZE, check_message
from pocketmq.client.producer.accumulator import Accumulator
from pocketmq.client.producer.batch_send import BatchSend
from pocketmq.client.producer.compression import OVER_HOWMUCH_BYTES, Compression
from pocketmq.client.producer.failed_sends import FailedSends
from pocketmq.client.producer.parking import Parking, not_running
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.producer.producer_options import SEND_TIMEOUT_MS_MAX, ProducerOptions, check_range
from pocketmq.client.producer.request_reply import ReplyDone, Requests
from pocketmq.client.producer.section_port import SendPort
from pocketmq.client.producer.sections import Sections
from pocketmq.client.producer.selectors import QueueSelector, select_by_hash, select_by_user, select_for_reply
from pocketmq.client.producer.send_trace import SendTrace
from pocketmq.client.producer.stages import SendChain, SendStage
from pocketmq.client.sender.attempt_plan import AttemptPlan
from pocketmq.client.sender.fault_items import LATENCY_TABLE_5_3, FaultItems, LatencyTable
from pocketmq.client.sender.in_flight import ASYNC_PERMITS, IN_FLIGHT_BYTES_MAX, ONEWAY_PERMITS, InFlight
from pocketmq.client.sender.queue_choice import QueueChooser
from pocketmq.client.sender.retry import DEFAULT_RETRY_RESPONSE_CODES, RetryPolicy
from pocketmq.client.sender.retry_budget import FLOOR, RATIO, RetryBudget
from pocketmq.client.sender.retry_gate import RetryGate
from pocketmq.client.sender.section import FRAME_BYTES_TARGET, Frame, Section
from pocketmq.client.sender.sender import SectionSender
from pocketmq.client.trace.trace import TraceDispatcher, trace_group
from pocketmq.common.body_codec import LEVEL_DEFAULT, CompressionType
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.topics import TRACE_TOPIC, check_group_name

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
        stages: Sequence[SendStage] = (),
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
        chosen: list[SendStage] = []
        if compress_type is not None:
            chosen.append(Compression(compress_type, compress_level, compress_msg_body_over_howmuch))
        if enable_message_trace:
            inner = Producer(trace_group(group, "PRODUCE"), instance=self.instance)
            chosen.append(SendTrace(group, self.instance, TraceDispatcher(inner, trace_topic)))
        self._chain = chain = SendChain([*chosen, *stages])
        self._entering = bool(chain.entering)
        self._simple_bytes_max = chain.body_bytes_max(max_message_size)
        self._requests = Requests(self)
        self.durable_retry = durable_retry
        rescue = durable_retry.take_section if durable_retry is not None else None
        self._sender = SectionSender(self.instance, group, plan, self._settled, rescue, chain.cutting, chain.settling)
        self._sections = Sections(self.instance, self._sender, self.in_flight, self._check_running)
        self._batches = BatchSend(
            self._sections, self._chooser, self.in_flight, self._sync_attempts, max_message_size, self._is_simple
        )
        self._parking = Parking(self.instance, self.in_flight, send_msg_timeout_ms, self._put, durable_retry)
        self._parked = self._parking.waiting
        self._ids: list[bytes] = []
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
                    self._parking.settle,
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
        for stage in self._chain.stages:
            await stage.start()
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
            await self._parking.tasks.wait(timeout_s)
            await durable_retry.quiesce(timeout_s)
        self._running = False
        await self._parking.tasks.wait(timeout_s)
        self._flush()
        await self._sender.drain(timeout_s + STOP_SLACK_S)
        await self._parking.tasks.cancel()
        await self._sender.close()
        self.in_flight.fail_waiting(not_running())
        if durable_retry is not None:
            await durable_retry.stop()
        for stage in self._chain.stages:
            await stage.stop(timeout_s)
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
        """Send without an answer: one attempt, and no word of whether it arrived.

        Raises ``RemotingTooMuchRequestError`` when ``in_flight_oneways_max`` messages have not left yet.
        """
        self._submit(message, selector, None, True, None, 1)

    async def request(
        self, message: Message, *, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> ReceivedMessage:
        """Send a request and return the reply that a consumer sends with ``reply_to``.

        ``timeout_ms`` (``send_msg_timeout_ms`` if not given) is for everything. Raises ``NoReply`` when it is over,
        what ``send_nowait`` raises, and ``RemotingTooMuchRequestError`` when 10,000 requests wait. A request is never
        kept by the durable retry: its caller would no longer wait for the reply.
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
        groups = self._batches.group(batch)
        if self._in_order and any(message.sharding_key for message in batch):
            return await self._send_each(batch, timeout_ms)
        limit_ms = self._timeout_ms(timeout_ms)
        if not self._chain.entering_batch:
            return await self._batches.send(batch, groups, limit_ms)
        self._check_running()
        future: asyncio.Future[Sequence[Receipt]] = self._loop.create_future()
        for enter in self._chain.entering_batch:
            enter(batch, future)
        return await _settle_with(self._batches.send(batch, groups, limit_ms), future)

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
        from pocketmq.client.arrow.arrow_records import ArrowRows, by_topic, read_rows

        rows = read_rows(data, topic, self.max_message_size)
        if self._in_order and rows.sharding_keys is not None and any(rows.sharding_keys):
            batch: list[Message | None] = [None] * len(rows)
            for name, chosen in by_topic(rows).items():
                for index, message in zip(chosen.tolist(), ArrowRows(rows, name, chosen, ()).messages(), strict=True):
                    batch[index] = message
            return await self._send_each([message for message in batch if message is not None], timeout_ms)
        return await self._batches.send_rows(rows, self._timeout_ms(timeout_ms))

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
            raise not_running()
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
        send = PendingSend(message, plain, selector, oneway, future, started_ns, deadline_ns, own_time, attempts_max)
        if self._entering:
            self._chain.enter(send)
        topic = message.topic
        if send.ready is None and topic not in self._parked:
            if self.durable_retry is not None and self.durable_retry.take_behind(send):
                return
            route = self.instance.routes.get(topic)
            if route is not None and route.write_queues:
                self._put(send, route)
                return
        self._parking.park(send)

    def _put(self, send: PendingSend, route: TopicRoute) -> None:
        """Choose the queue of a checked message and add it to the section for that."""
        message = send.message
        wait, oneway, plain = bool(message.wait_store_msg_ok), send.oneway, send.plain
        attempts_max, half = send.attempts_max, type(message) is HalfMessage
        key: Any
        queue: MessageQueue | None = None
        if send.selector is not None:
            queue = select_by_user(send.selector, route.write_queues, message)
        elif isinstance(message, ReplyMessage):
            queue = select_for_reply(message.broker_name, route.write_queues)
        elif message.sharding_key:
            queue = select_by_hash(message.sharding_key, route.write_queues)
        if queue is not None:
            retry = self.durable_retry
            if retry is not None and not oneway and retry.send_in_order(send, queue):
                return
            key = (queue, wait, oneway, plain, attempts_max, half)
        elif wait and not oneway and plain and not half and attempts_max == self._async_attempts:
            key = message.topic  # the key of the hot path
        else:
            key = (message.topic, wait, oneway, plain, attempts_max, half)
        if send.own_time:
            key = (key, send.deadline_ns // _DEADLINE_STEP_NS)
        section = self._open.get(key)
        if section is None:
            chosen = queue if queue is not None else self._chooser.first(route)
            section = self._sections.new(
                key,
                chosen,
                started_ns=send.started_ns,
                deadline_ns=send.deadline_ns,
                attempts_max=attempts_max,
                plain=plain,
                wait=wait,
                may_move=queue is None,
                oneway=oneway,
                half=half,
            )
            if self._accumulator.begin(section):
                self._schedule_flush()
        elif send.own_time and send.deadline_ns < section.deadline_ns:
            section.deadline_ns = send.deadline_ns
        uniq_key = uniq_keys_of((message,), self.instance.ids)[0]
        if self._accumulator.add(section, message, uniq_key, send.future):
            self._cut(section)

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


async def _settle_with(
    sending: Coroutine[Any, Any, Sequence[Receipt]], future: "asyncio.Future[Sequence[Receipt]]"
) -> Sequence[Receipt]:
    """Return what ``sending`` returns, and let ``future`` end as it does."""
    try:
        receipts = await sending
    except asyncio.CancelledError:
        future.cancel()
        raise
    except Exception as error:
        future.set_exception(error)
        retrieve_exception(future)
        raise
    future.set_result(receipts)
    return receipts
