"""Message trace: the producer and the consumers of a message with their times, written to a topic of its own.

Lives here: ``TraceDispatcher`` (a bounded queue, batches, an internal producer), ``TraceHook`` and ``ConsumeTrace`` for
consumers. Producers trace by a stage, ``client.producer.send_trace``.

Tracing never delays the traced messages: a record that finds the queue full is dropped and counted, and so is one whose
trace message could not be sent. The internal producer traces nothing itself.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.trace.trace_format import ContextCode, TraceRecord, TraceType
from pocketmq.common import record as names
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.topics import GROUP_LENGTH_MAX, TRACE_TOPIC, check_topic_name

GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER-"
"""RocketMQ TraceConstants.GROUP_NAME_PREFIX."""
QUEUE_MAX: Final = 8192
"""Records that wait; RocketMQ keeps 1024 contexts, of which a batch of messages is one."""
BATCH_RECORDS: Final = 100
BATCH_BYTES: Final = 128_000
"""RocketMQ AsyncTraceDispatcher: records and bytes of one trace message."""
KEYS_BYTES: Final = 16_000
"""Ours: keys of one trace message. A property string has 32,767 bytes at most, and users' keys can be long."""
SEND_TIMEOUT_MS: Final = 5_000
AT_ONCE: Final = 16
"""Trace messages in flight."""
LINGER_S: Final = 0.01
"""How long the first record of a batch waits for others (RocketMQ: up to 0.5 s)."""


class Sends(Protocol):
    """Sends the trace messages: a producer that belongs to the dispatcher."""

    instance: ClientInstance

    async def start(self) -> None:
        """Start it."""
        ...

    async def stop(self) -> None:
        """Deliver what was sent, then stop it."""
        ...

    def send_nowait(self, message: Message, *, timeout_ms: int | None = None) -> "asyncio.Future[Receipt]":
        """Send and return the receipt's future."""
        ...


class TraceDispatcher:
    """Sends records to the trace topic in the background. Loop thread only.

    Life: ``start`` and ``stop`` of its owner, a producer or consumer, whose instance it shares.
    """

    def __init__(self, producer: Sends, trace_topic: str = TRACE_TOPIC, *, queue_max: int = QUEUE_MAX) -> None:
        """``producer`` is the internal one; it is started and stopped here."""
        check_topic_name(trace_topic)
        self.trace_topic = trace_topic
        self._producer = producer
        self._queue_max = queue_max
        self._queue: deque[TraceRecord] = deque()
        self._wake_up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Future[Receipt]] = set()
        self._room = asyncio.Event()
        self._is_stopping = False
        self.dropped = 0
        """Records put while the queue was full, or after the stop."""
        self.sent = 0
        """Records that reached the trace topic."""
        self.lost = 0
        """Records whose trace message was not stored."""

    @property
    def waiting(self) -> int:
        """Records that wait to be sent."""
        return len(self._queue)

    async def start(self) -> None:
        """Start the internal producer."""
        self._is_stopping = False
        self._wake_up, self._room = asyncio.Event(), asyncio.Event()  # of this event loop
        await self._producer.start()
        self._task = self._producer.instance.supervisor.keep(self._run, "pocketmq-trace")

    async def stop(self, timeout_s: float = SEND_TIMEOUT_MS / 1000) -> None:
        """Send waiting records, at most for ``timeout_s``; stop the internal producer."""
        task = self._task
        if task is None:
            return
        self._task = None
        self._is_stopping = True
        self._wake_up.set()
        await asyncio.wait((task,), timeout=timeout_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.dropped += len(self._queue)
        self._queue.clear()
        await self._producer.stop()

    def put(self, record: TraceRecord) -> None:
        """Queue a record, or drop and count it; never waits."""
        if self._task is None or len(self._queue) >= self._queue_max:
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:  # log the first, second, fourth …: a flood stays short
                self._producer.instance.log.warning("trace_dropped", dropped=self.dropped, waiting=len(self._queue))
            return
        self._queue.append(record)
        self._wake_up.set()

    async def _run(self) -> None:
        while True:
            if not self._queue:
                if self._is_stopping:
                    break
                self._wake_up.clear()
                await self._wake_up.wait()
                if not self._is_stopping:
                    await asyncio.sleep(LINGER_S)
                continue
            while len(self._sending) >= AT_ONCE:
                self._room.clear()
                await self._room.wait()
            self._send(self._take())
        while self._sending:
            self._room.clear()
            await self._room.wait()

    def _take(self) -> tuple[Message, int]:
        """Return the next trace message and how many records are in it."""
        queue, parts, keys = self._queue, list[str](), dict[str, None]()
        size_bytes = keys_bytes = 0
        while queue and len(parts) < BATCH_RECORDS:
            text = queue[0].encode()
            new_keys = [key for key in sorted(queue[0].index_keys()) if key and key not in keys]
            text_bytes = len(text.encode("utf-8", "replace"))
            new_bytes = sum(len(key.encode("utf-8", "replace")) + 1 for key in new_keys)
            if parts and (size_bytes + text_bytes > BATCH_BYTES or keys_bytes + new_bytes > KEYS_BYTES):
                break
            size_bytes += text_bytes
            keys_bytes += new_bytes
            keys.update(dict.fromkeys(new_keys))
            parts.append(text)
            queue.popleft()
        body = "".join(parts).encode("utf-8", "replace")
        return Message(self.trace_topic, body, keys=list(keys)), len(parts)

    def _send(self, batch: tuple[Message, int]) -> None:
        message, count = batch
        try:
            future = self._producer.send_nowait(message, timeout_ms=SEND_TIMEOUT_MS)
        except PocketMQError as error:
            self._failed(count, error)
            return
        self._sending.add(future)

        def done(sent: "asyncio.Future[Receipt]") -> None:
            self._sending.discard(sent)
            self._room.set()
            error = None if sent.cancelled() else sent.exception()
            if sent.cancelled() or error is not None:
                self._failed(count, error)
            else:
                self.sent += count

        future.add_done_callback(done)

    def _failed(self, count: int, error: BaseException | None) -> None:
        before, self.lost = self.lost, self.lost + count
        if before.bit_length() != self.lost.bit_length():
            self._producer.instance.log.warning("trace_lost", lost=self.lost, error=str(error))


def trace_group(group: str, what: str) -> str:
    """Return the group of the internal producer of a group's producers or consumers (``what``)."""
    return f"{GROUP_PREFIX}{group}-{what}"[:GROUP_LENGTH_MAX]


@dataclass(slots=True, frozen=True)
class Traced:
    """Messages whose consumption was begun together; ``started_ns`` is monotonic."""

    request_id: str
    messages: tuple[ReceivedMessage, ...]
    started_ns: int


class TraceHook(Protocol):
    """Called by a consumer around its handlers, on the event loop. It never raises and never waits."""

    def before(self, messages: Sequence[ReceivedMessage]) -> Traced:
        """Record that a handler is about to get ``messages``; the result goes to ``after``."""
        ...

    def after(self, traced: Traced, ok: bool, cost_ms: int | None = None, code: int | None = None) -> None:
        """Record how it ended. ``cost_ms``: its duration, if not since ``before``; ``code``: RocketMQ's result code, if
        it is more than success or failure.
        """
        ...


class ConsumeTrace:
    """``TraceHook`` of one consumer group: SubBefore and SubAfter for each message, unless it says TRACE_ON=false."""

    def __init__(self, group: str, instance: ClientInstance, dispatcher: TraceDispatcher) -> None:
        self._group = group
        self._instance = instance
        self.dispatcher = dispatcher

    def before(self, messages: Sequence[ReceivedMessage]) -> Traced:
        """Queue one SubBefore for each message."""
        clock = self._instance.clock
        chosen = tuple(
            message
            for message in messages
            if message.properties.get(names.TRACE_ON, "true") != "false"
            and message.topic != self.dispatcher.trace_topic
        )
        request_id = self._instance.ids.next() if chosen else ""
        now_ms = clock.now_ms()
        for message in chosen:
            properties = message.properties
            self.dispatcher.put(
                TraceRecord(
                    trace_type=TraceType.SUB_BEFORE,
                    timestamp_ms=now_ms,
                    region=properties.get(names.MSG_REGION, ""),
                    group=self._group,
                    request_id=request_id,
                    msg_id=message.msg_id,
                    retry_times=message.reconsume_times,
                    keys=properties.get(names.KEYS, ""),
                )
            )
        return Traced(request_id, chosen, clock.monotonic_ns())

    def after(self, traced: Traced, ok: bool, cost_ms: int | None = None, code: int | None = None) -> None:
        """Queue one SubAfter for each message."""
        clock = self._instance.clock
        if cost_ms is None:
            cost_ms = (clock.monotonic_ns() - traced.started_ns) // 1_000_000
        for message in traced.messages:
            self.dispatcher.put(
                TraceRecord(
                    trace_type=TraceType.SUB_AFTER,
                    request_id=traced.request_id,
                    msg_id=message.msg_id,
                    # a call that got several costs each its share (RocketMQ)
                    cost_ms=cost_ms // len(traced.messages),
                    success=ok,
                    keys=message.properties.get(names.KEYS, ""),
                    context_code=(ContextCode.SUCCESS if ok else ContextCode.EXCEPTION) if code is None else code,
                    timestamp_ms=clock.now_ms(),
                    group=self._group,
                )
            )
