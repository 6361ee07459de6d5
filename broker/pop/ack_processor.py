"""Acknowledgements of popped messages, and changes of the time until they become visible again.

They touch memory only. RocketMQ's broker answers every acknowledgement with 0; here a handle that no longer counts is
refused with 208, and a handle that cannot be one of this queue with 13.

Lives here: ``AckProcessor``: ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME, NATIVE_SETTLE.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.pop.ordered_batches import OrderedBatches
from pocketmq.broker.pop.pop_checks import CODE_OF, INVISIBLE_MS_MAX, PopChecks, PopIllegal, check_invisible, dead
from pocketmq.broker.pop.pop_ledger import PopLedger
from pocketmq.broker.pop.pop_queue import Settled
from pocketmq.broker.pop.pop_service import PopService
from pocketmq.broker.request.executor import OneByOne
from pocketmq.broker.request.request_task import Drain, Task, encode_answer
from pocketmq.common.clock import SteadyTime
from pocketmq.common.receipt_handle import (
    ORDERED_QUEUE,
    HandleIllegal,
    ReceiptHandle,
    first_topic,
    real_topic,
)
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.pop import (
    BatchAck,
    BatchAckBody,
    ChangeInvisibleTimeResponseHeader,
    NativeSettleResponseHeader,
)

SETTLED_MAX: Final = 4_096
"""Messages that one request settles."""
MARKS: Final = ("0", "1", "2")


@dataclass(slots=True, eq=False)
class AckProcessor(OneByOne):
    """Serves the pair of acknowledgements. Its state is in the ledger."""

    config: BrokerConfig
    checks: PopChecks
    ledger: PopLedger
    ordered: OrderedBatches
    offsets: ConsumerOffsets
    service: PopService
    time: SteadyTime

    def serve(self, task: Task, drain: Drain) -> None:
        """Answer or refuse one request."""
        header: Any = task.request.header
        code = task.request.code
        if code == RequestCode.BATCH_ACK_MESSAGE:
            self._batch(task, drain)
            return
        refusal = self.checks.check(header.consumer_group, self._topic(header), 0, task.request.session)
        if refusal is not None:
            drain.refuse(task, refusal)
        elif code == RequestCode.NATIVE_SETTLE:
            self._settle_natively(task, drain, header)
        else:
            handle = ReceiptHandle.parse(header.extra_info)
            self.checks.check_handle(handle, header.topic, header.queue_id, header.offset)
            if code == RequestCode.ACK_MESSAGE:
                self._ack(header.consumer_group, header.topic, [handle])
                drain.answer(task, encode_answer(task.request))
            else:
                self._change(task, drain, header, handle)

    @staticmethod
    def _topic(header: Any) -> str:
        return first_topic(header.topic, header.consumer_group)

    # ---- RocketMQ's

    def _ack(self, group: str, topic: str, handles: list[ReceiptHandle]) -> None:
        """Acknowledge messages of one queue; raises ``HandleDead`` for the first one that was not in flight."""
        now_ms = self.time.now_ms()
        for handle, result in zip(handles, self.acknowledge(group, topic, handles, now_ms), strict=True):
            if result not in (Settled.DONE, Settled.ALREADY):
                raise dead(result, handle)

    def _batch(self, task: Task, drain: Drain) -> None:
        body = decode_body(task.request.body, BatchAckBody)
        if not body.acks:
            raise PopIllegal("nothing acknowledged", why="the request names no message")
        if body.broker_name and body.broker_name != self.config.broker_name:
            why = f"they are of broker {body.broker_name[:64]}, and this is {self.config.broker_name}"
            raise HandleIllegal("acknowledgements refused", why=why)
        parts = [(ack, self._handles(ack)) for ack in body.acks]
        if sum(len(handles) for _, handles in parts) > SETTLED_MAX:
            raise PopIllegal("nothing acknowledged", why=f"more than {SETTLED_MAX} messages in one request")
        for ack, _ in parts:
            refusal = self.checks.check(ack.consumer_group, ack.topic, ack.queue_id, task.request.session)
            if refusal is not None:
                drain.refuse(task, refusal)
                return
        failed: Exception | None = None
        for ack, handles in parts:  # all of them, whatever the first one says
            try:
                self._ack(ack.consumer_group, real_topic(ack.topic, ack.consumer_group, ack.retry), handles)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed
        drain.answer(task, encode_answer(task.request))

    def _handles(self, ack: BatchAck) -> list[ReceiptHandle]:
        try:
            bits = int.from_bytes(base64.b64decode(ack.bits, validate=True), "little")
        except (binascii.Error, ValueError) as error:
            raise HandleIllegal("acknowledgements refused", why=f"their bits: {error}") from error
        if bits.bit_length() > SETTLED_MAX or ack.retry not in MARKS or min(ack.start_offset, ack.queue_id) < 0:
            raise HandleIllegal(
                "acknowledgements refused",
                why=f"{bits.bit_length()} bits, mark {ack.retry[:20]!r}, queue {ack.queue_id}, from {ack.start_offset}",
            )
        first = (ack.start_offset, ack.pop_time, ack.invisible_time, ack.revive_queue_id, ack.retry)
        return [
            ReceiptHandle(*first, self.config.broker_name, ack.queue_id, ack.start_offset + at)
            for at in range(bits.bit_length())
            if bits >> at & 1
        ]

    def _change(self, task: Task, drain: Drain, header: Any, handle: ReceiptHandle) -> None:
        error = check_invisible(header.invisible_time, 0)
        if error is not None:
            raise error
        now_ms = self.time.now_ms()
        result, pop_time, invisible_ms = self.change(
            header.consumer_group, header.topic, handle, now_ms, header.invisible_time
        )
        if result is not Settled.DONE:
            raise dead(result, handle)
        out = ChangeInvisibleTimeResponseHeader(pop_time, invisible_ms, handle.revive_qid)
        drain.answer(task, encode_answer(task.request, header=out))

    # ---- native

    def _settle_natively(self, task: Task, drain: Drain, header: Any) -> None:
        if sum(len(part[5]) for part in header.settled) > SETTLED_MAX:
            raise PopIllegal("nothing acknowledged", why=f"more than {SETTLED_MAX} messages in one request")
        for mark, queue_id, _, _, new_ms, _, _ in header.settled:
            if mark not in MARKS or queue_id < 0 or not -1 <= new_ms <= INVISIBLE_MS_MAX:
                raise PopIllegal("nothing acknowledged", why=f"mark {mark[:20]!r}, queue {queue_id}, {new_ms} ms")
        now_ms = self.time.now_ms()
        results: list[int] = []
        group, name = header.consumer_group, self.config.broker_name
        for mark, queue_id, pop_time, invisible_ms, new_ms, offsets, is_ordered in header.settled:
            topic = real_topic(header.topic, group, mark)
            revive_qid = ORDERED_QUEUE if is_ordered else 0
            handles = [
                ReceiptHandle(offset, pop_time, invisible_ms, revive_qid, mark, name, queue_id, offset)
                for offset in offsets
            ]
            if new_ms < 0:
                settled = self.acknowledge(group, topic, handles, now_ms) if handles else []
            else:
                settled = [self.change(group, topic, each, now_ms, new_ms)[0] for each in handles]
            results += [CODE_OF[each] for each in settled]
        drain.answer(task, encode_answer(task.request, header=NativeSettleResponseHeader(results, now_ms)))

    # ---- both, and other entrances

    def acknowledge(self, group: str, topic: str, handles: list[ReceiptHandle], now_ms: int) -> list[Settled]:
        """Acknowledge messages of one queue, all of one kind of pop; ``topic`` is the one that they lie in. Any thread,
        memory only."""
        queue_id = handles[0].queue_id
        if handles[0].is_ordered:
            return [self._ack_ordered(group, topic, each, now_ms) for each in handles]
        was_full = not self.ledger.has_room(group, topic, queue_id)
        results = self.ledger.ack_all(group, topic, queue_id, handles, now_ms)
        if was_full:
            self.service.freed(group, first_topic(topic, group))
        return results

    def _ack_ordered(self, group: str, topic: str, handle: ReceiptHandle, now_ms: int) -> Settled:
        committed = self.offsets.query(group, topic, handle.queue_id)
        if committed is None:
            return Settled.UNKNOWN
        if handle.queue_offset < committed:
            return Settled.ALREADY
        next_offset = self.ordered.ack(topic, group, handle.queue_id, handle.queue_offset, handle.pop_time, now_ms)
        if next_offset is None:
            return Settled.EXPIRED
        if next_offset > committed:
            self.offsets.commit(group, topic, handle.queue_id, next_offset)
        if not self.ordered.is_blocked(topic, group, handle.queue_id, "", now_ms):
            self.service.freed(group, topic)
        return Settled.DONE

    def change(
        self, group: str, topic: str, handle: ReceiptHandle, now_ms: int, invisible_ms: int
    ) -> tuple[Settled, int, int]:
        """Let a message become visible ``invisible_ms`` from now; return also the pop time and invisible time of its
        new handle. ``topic`` is the one that it lies in. Any thread, memory only."""
        queue_id, offset = handle.queue_id, handle.queue_offset
        if not handle.is_ordered:
            result = self.ledger.change(group, topic, queue_id, handle, now_ms, invisible_ms)
            return result, now_ms, invisible_ms
        visible_ms = now_ms + invisible_ms
        is_known = self.ordered.change(topic, group, queue_id, offset, handle.pop_time, visible_ms, now_ms)
        if is_known and not self.ordered.is_blocked(topic, group, queue_id, "", now_ms):
            self.service.freed(group, topic)
        return Settled.DONE if is_known else Settled.EXPIRED, handle.pop_time, visible_ms - handle.pop_time
