"""The producer: messages in, receipts out.

Lives here: ``Producer``: its options, the ways to send, start and stop. ``submission`` brings single sends into
sections; ``parking``, ``batch_send`` and the stages (``stages``) do the work that not every send needs.
"""

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pocketmq.client.connection.instance import ClientInstance, retrieve_exception
from pocketmq.client.connection.own_instance import instance_for
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.message.validation import MAX_MESSAGE_SIZE
from pocketmq.client.producer.batch_send import BatchSend
from pocketmq.client.producer.compression import OVER_HOWMUCH_BYTES, Compression
from pocketmq.client.producer.parking import not_running
from pocketmq.client.producer.producer_options import ProducerOptions
from pocketmq.client.producer.request_reply import ReplyDone, Requests
from pocketmq.client.producer.selectors import QueueSelector
from pocketmq.client.producer.send_chain import SendChain
from pocketmq.client.producer.send_port import SendPort
from pocketmq.client.producer.send_telemetry import SendTelemetry
from pocketmq.client.producer.send_trace import SendTrace
from pocketmq.client.producer.short_path import ShortPath
from pocketmq.client.producer.short_targets import ShortTargets
from pocketmq.client.producer.stages import SendStage
from pocketmq.client.producer.submission import IDS_AT_ONCE, Submission
from pocketmq.client.sender.attempt_plan import AttemptPlan
from pocketmq.client.sender.fault_items import LATENCY_TABLE_5_3, FaultItems, LatencyTable
from pocketmq.client.sender.in_flight import ASYNC_PERMITS, IN_FLIGHT_BYTES_MAX, ONEWAY_PERMITS, InFlight
from pocketmq.client.sender.queue_choice import QueueChooser
from pocketmq.client.sender.retry import DEFAULT_RETRY_RESPONSE_CODES, RetryPolicy
from pocketmq.client.sender.retry_budget import FLOOR, RATIO, RetryBudget
from pocketmq.client.sender.retry_gate import RetryGate
from pocketmq.client.sender.section import Section
from pocketmq.client.sender.sender import SectionSender
from pocketmq.client.telemetry.switch import TelemetryArgument
from pocketmq.client.trace.trace import GROUP_PREFIX, TraceDispatcher, trace_group
from pocketmq.common.body_codec import LEVEL_DEFAULT, CompressionType
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.topics import TRACE_TOPIC, check_group_name
from pocketmq.remoting.security.client_security import TLSArgument
from pocketmq.remoting.security.credentials import Credentials

if TYPE_CHECKING:
    import pyarrow as pa

STOP_SLACK_S = 0.25
"""How much longer than the send timeout a stop waits: timeouts fire a little late."""


class Producer(Lifecycle):
    """Sends messages. ``async with Producer(group=..., namesrv=...) as producer: await producer.send(Message(...))``

    Belongs to one event loop; threads use ``pocketmq.client.blocking``. Sends of one turn of the loop to one broker
    travel in one frame; ``linger_ms`` widens that turn. Messages without a sharding key take turns over the queues
    frame by frame. A message object must not be changed before its receipt is there.

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
        durable_retry: SendStage | None = None,
        compress_type: CompressionType | str | None = None,
        compress_level: int = LEVEL_DEFAULT,
        compress_msg_body_over_howmuch: int = OVER_HOWMUCH_BYTES,
        enable_message_trace: bool = False,
        trace_topic: str = TRACE_TOPIC,
        stages: Sequence[SendStage] = (),
        credentials: Credentials | None = None,
        tls: TLSArgument = None,
        telemetry: TelemetryArgument = None,
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
        self.instance = instance = instance_for(instance, namesrv, credentials, tls, telemetry)
        self.in_flight = InFlight(in_flight_bytes_max, in_flight_sends_max, in_flight_oneways_max)
        codes = DEFAULT_RETRY_RESPONSE_CODES if retry_response_codes is None else retry_response_codes
        self.retry = RetryPolicy(set(map(int, codes)), send_msg_max_timeout_per_request_ms)
        self.retry_budget = RetryBudget(retry_budget_ratio, retry_budget_floor)
        self.fault_items = FaultItems(latency_table) if send_latency_fault_enable else None
        self.durable_retry = durable_retry
        self._sync_attempts = 1 + options.retry_times_when_send_failed
        self._async_attempts = 1 + options.retry_times_when_send_async_failed
        self._clock = instance.clock
        chooser = QueueChooser(self._clock, instance.random, self.fault_items)
        plan = AttemptPlan(
            self.retry,
            RetryGate(self.retry_budget),
            chooser,
            instance.routes,
            self._clock,
            instance.random,
            retry_another_broker_when_not_store_ok=retry_another_broker_when_not_store_ok,
        )
        chosen: list[SendStage] = []
        if instance.telemetry is not None and not group.startswith(GROUP_PREFIX):
            chosen.append(SendTelemetry(instance, instance.telemetry))
        if compress_type is not None:
            chosen.append(Compression(compress_type, compress_level, compress_msg_body_over_howmuch))
        if enable_message_trace:
            inner = Producer(trace_group(group, "PRODUCE"), instance=instance)
            chosen.append(SendTrace(group, instance, TraceDispatcher(inner, trace_topic)))
        chosen += stages
        if durable_retry is not None:
            chosen.append(durable_retry)
        self._chain = chain = SendChain(chosen, instance.log)
        rescue = chain.keep_failed if chain.keeping_failed else None
        self._sender = SectionSender(instance, group, plan, self._settled, rescue, chain.cutting, chain.settling)
        hooks = chain.hooks(max_message_size)
        self._submission = submission = Submission(instance, options, self.in_flight, chooser, self._sender, hooks)
        self._short: ShortPath | None = None
        if chain.passes_plain() and hooks.body_bytes_max and not linger_ms:
            targets = ShortTargets(instance, self._sender, chooser, self.retry, options, group)
            self._short = ShortPath(submission, self._sender, plan, targets, hooks.body_bytes_max)
            submission.before_cut, submission.before_open = self._short.before_cut, self._short.before_open
        self._add_short = self._short.add if self._short is not None else None
        self._add_nowait = self._add_short if self._sync_attempts == self._async_attempts else None
        # what the hot path needs, without an attribute lookup in between
        self._accumulator, self._open, self._ids = submission.accumulator, submission.open, submission.ids
        self._is_simple, self._cut = submission.is_simple, submission.cut
        self._batches = BatchSend(
            submission.sections,
            chooser,
            self.in_flight,
            self._sync_attempts,
            max_message_size,
            self._is_simple,
            hooks.body_bytes_max,
        )
        self.port = SendPort(submission, chooser, self.retry.retry_response_codes)
        """For parts of the SDK that send in ways of their own; applications do not need it."""
        self._requests = Requests(self.port)
        self._loop: asyncio.AbstractEventLoop
        chain.attach(self.port)

    # -- life --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the client; routes and connections are made with the first message to a topic."""
        if self._submission.running:
            return
        await self.instance.start()
        self.instance.add_producer(self.group)
        self._loop = asyncio.get_running_loop()
        self._submission.begin()
        if self._short is not None:
            self._short.begin()
        try:
            await self._chain.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Deliver what was sent, within ``send_msg_timeout_ms``; fail the rest with ``NotStarted``; close.

        Raises ``WrongLoop`` in another loop than that of the start; the producer goes on there.
        """
        submission = self._submission
        if not submission.running:
            return
        submission.check_loop()
        self._flush()
        self._requests.close()
        await self._requests.wait_closed()
        timeout_s = self.send_msg_timeout_ms / 1000
        await self._chain.ending(timeout_s)
        submission.running = False
        await submission.parking.tasks.wait(timeout_s)
        self._flush()
        end_s = self._loop.time() + timeout_s + STOP_SLACK_S
        if self._short is not None:
            await self._short.drain(timeout_s + STOP_SLACK_S)
            self._short.close()
        await self._sender.drain(max(end_s - self._loop.time(), 0))
        await submission.parking.tasks.cancel()
        await self._sender.close()
        self.in_flight.fail_waiting(not_running())
        await self._chain.stop(timeout_s)
        await self.instance.remove_producer(self.group)
        await self.instance.stop()

    def add_retry_response_code(self, code: int) -> None:
        """Count answers with this response code as worth another attempt."""
        self.retry.retry_response_codes.add(int(code))

    @property
    def send_msg_timeout_ms(self) -> int:
        """The time of a send that has none of its own, in ms."""
        return self.options.send_msg_timeout_ms

    @property
    def linger_ms(self) -> float:
        """How long a frame waits for further sends, in ms."""
        return self.options.linger_ms

    @property
    def max_message_size(self) -> int:
        """The largest body that is sent, in bytes."""
        return self.options.max_message_size

    @property
    def in_flight_bytes(self) -> int:
        """Bytes held without a receipt, the open frame not counted."""
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
        queue. Both are retried on that queue only, and only if the broker reported that nothing was stored and no later
        message for the queue has been sent: a retry never breaks their order.
        """
        if self._add_short is not None and selector is None and timeout_ms is None:
            short = self._add_short(message)
            if short is not None:
                return await short
        started_ns = 0
        if self.in_flight.full:
            self._submission.check_running()
            started_ns = self._clock.monotonic_ns()
            await self._submission.wait_for_room(timeout_ms)
        elif self._sync_attempts == self._async_attempts:
            return await self._send_nowait(message, selector, timeout_ms)
        future = self._submission.new_future()
        self._submission.submit(message, selector, timeout_ms, False, future, self._sync_attempts, started_ns)
        return await future

    def send_nowait(
        self, message: Message, *, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> "asyncio.Future[Receipt]":
        """Send and return the receipt's future; errors of the message itself are raised here.

        Raises ``RemotingTooMuchRequestError`` when a limit of sends in flight is reached. Retried
        ``retry_times_when_send_async_failed`` times, otherwise as ``send``.
        """
        if self._add_nowait is not None and selector is None and timeout_ms is None:
            short = self._add_nowait(message)
            if short is not None:
                return short
        return self._send_nowait(message, selector, timeout_ms)

    def _send_nowait(
        self, message: Message, selector: QueueSelector | None, timeout_ms: int | None
    ) -> "asyncio.Future[Receipt]":
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
        future = self._submission.new_future()
        self._submission.submit(message, selector, timeout_ms, False, future, self._async_attempts)
        return future

    def send_oneway(self, message: Message, *, selector: QueueSelector | None = None) -> None:
        """Send without an answer: one attempt, and no report whether it arrived.

        Raises ``RemotingTooMuchRequestError`` when ``in_flight_oneways_max`` messages have not left yet.
        """
        self._submission.submit(message, selector, None, True, None, 1)

    async def request(
        self, message: Message, *, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> ReceivedMessage:
        """Send a request and return the reply that a consumer sends with ``reply_to``.

        ``timeout_ms`` (``send_msg_timeout_ms`` if not given) is for everything. Raises ``NoReply`` when it is over,
        what ``send_nowait`` raises, and ``RemotingTooMuchRequestError`` when 10,000 requests wait. A request is never
        kept by the durable retry: its caller would no longer wait for the reply.
        """
        self._submission.check_running()
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
        self._submission.check_running()
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
        if self._chain.keeps_order and any(message.sharding_key for message in batch):
            return await self._send_each(batch, timeout_ms)
        limit_ms = self._submission.limit_ms(timeout_ms)
        if not self._chain.entering_batch:
            return await self._batches.send(batch, groups, limit_ms)
        self._submission.check_running()
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
        if self._chain.keeps_order and rows.sharding_keys is not None and any(rows.sharding_keys):
            batch: list[Message | None] = [None] * len(rows)
            for name, chosen in by_topic(rows).items():
                for index, message in zip(chosen.tolist(), ArrowRows(rows, name, chosen, ()).messages(), strict=True):
                    batch[index] = message
            return await self._send_each([message for message in batch if message is not None], timeout_ms)
        return await self._batches.send_rows(rows, self._submission.limit_ms(timeout_ms))

    async def _send_each(self, batch: list[Message], timeout_ms: int | None) -> list[Receipt]:
        """Send messages in order, each settled by itself; those for one queue still travel together."""
        futures: list[asyncio.Future[Receipt]] = []
        error: PocketMQError | None = None
        for message in batch:
            try:
                await self._submission.wait_for_room(timeout_ms)
                future = self._submission.new_future()
                self._submission.submit(message, None, timeout_ms, False, future, self._sync_attempts)
            except PocketMQError as refused:  # earlier ones are in flight: collect their errors, raise this one
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

    def _flush(self) -> None:
        """Send what waits for the end of the turn."""
        if self._short is not None:
            self._short.flush()
        self._submission.flush()

    def _settled(self, section: Section) -> None:
        size_bytes, permits = section.size_bytes, section.permits
        section.size_bytes = section.permits = 0
        self.in_flight.remove(size_bytes, permits, section.oneway)


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
