"""Message trace of sends, as a stage.

Lives here: ``SendTrace``. ``client.trace`` has the records and the dispatcher that sends them.
"""

import asyncio
from collections.abc import Sequence

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.message.receipts import Receipt, SendStatus
from pocketmq.client.message.transaction_message import HalfMessage
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.producer.stages import SendStage
from pocketmq.client.trace.trace import TraceDispatcher
from pocketmq.client.trace.trace_format import TracedKind, TraceRecord, TraceType
from pocketmq.common.message import Message


class SendTrace(SendStage):
    """Traces the sends of one producer: those that the broker stored and wants traced (TRACE_ON)."""

    body_bytes_max = 0

    def __init__(self, group: str, instance: ClientInstance, dispatcher: TraceDispatcher) -> None:
        self._group = group
        self._instance = instance
        self.dispatcher = dispatcher

    async def start(self) -> None:
        """Start the dispatcher."""
        await self.dispatcher.start()

    async def stop(self, timeout_s: float) -> None:
        """Send what waits, at most for ``timeout_s``."""
        await self.dispatcher.stop(timeout_s)

    def enter(self, send: PendingSend) -> None:
        """Trace a message once its receipt is there."""
        message, future = send.message, send.future
        if future is None or message.topic == self.dispatcher.trace_topic:
            return
        clock = self._instance.clock
        started_ms, started_ns = clock.now_ms(), clock.monotonic_ns()

        def done(sent: "asyncio.Future[Receipt]") -> None:
            if not sent.cancelled() and sent.exception() is None:
                self._stored(message, sent.result(), started_ms, (clock.monotonic_ns() - started_ns) // 1_000_000)

        future.add_done_callback(done)

    def enter_batch(self, messages: list[Message], future: "asyncio.Future[Sequence[Receipt]]") -> None:
        """Trace a batch once all receipts are there; each message costs its share of the time (RocketMQ)."""
        clock = self._instance.clock
        started_ms, started_ns = clock.now_ms(), clock.monotonic_ns()

        def done(sent: "asyncio.Future[Sequence[Receipt]]") -> None:
            if sent.cancelled() or sent.exception() is not None:
                return
            took_ms = (clock.monotonic_ns() - started_ns) // 1_000_000
            for message, receipt in zip(messages, sent.result(), strict=True):
                if message.topic != self.dispatcher.trace_topic:
                    self._stored(message, receipt, started_ms, took_ms // max(len(messages), 1))

        future.add_done_callback(done)

    def _stored(self, message: Message, receipt: Receipt, started_ms: int, cost_ms: int) -> None:
        """Trace one message, unless the broker wants no trace or has none (``StoredForRetry``)."""
        if type(receipt) is not Receipt or not receipt.trace_on:
            return
        found = self._instance.routes.broker(receipt.broker)
        if isinstance(message, HalfMessage):
            kind = TracedKind.TRANSACTION_HALF
        else:
            kind = TracedKind.DELAY if message.delay_time_level or message.is_timed else TracedKind.NORMAL
        self.dispatcher.put(
            TraceRecord(
                trace_type=TraceType.PUB,
                timestamp_ms=started_ms,
                region=receipt.region,
                group=self._group,
                topic=message.topic,
                msg_id=receipt.msg_id,
                tags=message.tags,
                keys=message.keys_text,
                store_host="" if found is None else found.master,
                body_bytes=len(message.body),
                cost_ms=cost_ms,
                kind=kind,
                offset_msg_id=receipt.offset_msg_id,
                success=receipt.status is SendStatus.SEND_OK,
            )
        )
