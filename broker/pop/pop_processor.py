"""POP_MESSAGE, its relatives and the native pop: from a request to messages that are in flight.

Lives here: ``PopProcessor``.
"""

from dataclasses import dataclass
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.message_filter import EVERYTHING, MessageFilter
from pocketmq.broker.pop.pop_checks import POP_MESSAGES_MAX, PopChecks
from pocketmq.broker.pop.pop_reader import PopAsk, Popped, PopReader
from pocketmq.broker.pop.pop_service import PopHolds, PopService, waiting_key
from pocketmq.broker.pop.popped_records import body_of, with_handle
from pocketmq.broker.pull.pull_service import Resumed
from pocketmq.broker.request.budget import Budgets
from pocketmq.broker.request.executor import OneByOne
from pocketmq.broker.request.request_task import Buffers, Drain, Refusal, Task, encode_answer, refusal_of, refused
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.common import refusals
from pocketmq.common.clock import Clock, SteadyTime
from pocketmq.common.errors import Cause
from pocketmq.common.receipt_handle import ORDERED_QUEUE, msg_offset_info, order_count_info, start_offset_info
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.pop import (
    NativePopResponseHeader,
    NotificationResponseHeader,
    PollingInfoResponseHeader,
    PopMessageResponseHeader,
)
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore

REVIVE_QUEUE: Final = 0
"""The ``reviveQid`` of pops without order. RocketMQ writes check points to one of 8 queues; here there are none."""
NATIVE_MESSAGES_MAX: Final = 1024
READS_WAIT_MS: Final = 200
_NOTHING: Final = int(ResponseCode.POLLING_TIMEOUT)
_FULL: Final = int(ResponseCode.POLLING_FULL)


@dataclass(slots=True, eq=False)
class PopProcessor(OneByOne):
    """Serves the pair of pops. Its state is in ``reader`` and ``service``."""

    config: BrokerConfig
    store_config: StoreConfig
    store: MessageStore
    checks: PopChecks
    reader: PopReader
    service: PopService
    counters: BrokerCounters
    clock: Clock
    time: SteadyTime
    budgets: Budgets

    def serve(self, task: Task, drain: Drain) -> None:
        """Answer, refuse or hold one request."""
        code = task.request.code
        if task.connection.closed or task.request.oneway:
            drain.finish(task)
            if task.context is not None:  # what it was woken for is another's now
                self.service.freed(task.request.header.consumer_group, task.request.header.topic)  # type: ignore[union-attr]
        elif self.store.reads_wait:
            name = self.config.broker_name
            drain.refuse(task, refused(Cause.NOT_MASTER, refusals.READS_WAIT, name, retry_after_ms=READS_WAIT_MS))
        elif code == RequestCode.POLLING_INFO:
            self._polling_info(task, drain)
        elif code == RequestCode.NOTIFICATION:
            self._notify(task, drain)
        elif code == RequestCode.PEEK_MESSAGE:
            self._peek(task, drain)
        else:
            self._pop(task, drain, is_native=code == RequestCode.NATIVE_POP)

    # ---- pops

    def _pop(self, task: Task, drain: Drain, *, is_native: bool) -> None:
        header: Any = task.request.header
        ask = self._native_ask(header) if is_native else self._ask(header)
        limit = NATIVE_MESSAGES_MAX if is_native else POP_MESSAGES_MAX
        refusal = self._refusal(task, ask, limit)
        wanted: MessageFilter | Refusal = EVERYTHING
        if refusal is None:
            if is_native:
                wanted = self.checks.filter_of(header.expression_type, header.expression)
            else:
                wanted = self.checks.filter_of(header.exp_type, header.exp)
        if refusal is not None or isinstance(wanted, Refusal):
            drain.refuse(task, refusal if refusal is not None else wanted)  # type: ignore[arg-type]
            return
        ask.wanted = wanted
        now_ns = self.clock.monotonic_ns()
        resumed: Resumed | None = task.context
        deadline_ns = self._deadline_ns(task, header, is_native) if resumed is None else resumed.deadline_ns
        quota = task.connection.quota
        if quota is not None:
            bucket = quota.closed_by(now_ns)
            if bucket is not None:
                if deadline_ns <= now_ns:
                    drain.refuse(task, refusal_of(quota.refused_by(bucket, now_ns)))
                    return
                drain.release(task)
                later = Task(task.connection, task.request, task.created_ns, task.size_bytes, Resumed([0], deadline_ns))
                until_ns = min(deadline_ns, now_ns + bucket.wait_ns(now_ns))
                self.service.delay(later, until_ns, self._nothing(task, ask, is_native, _NOTHING))
                return
        popped = self.reader.read(ask, self.time.now_ms(), self.budgets.begin(task.connection))
        if popped.count:
            self._count(task, ask, popped)
            drain.answer(task, self._encode(task, ask, popped, is_native))
            if popped.rest:
                self.service.freed(ask.group, ask.topic)
        elif deadline_ns > now_ns and (resumed is None or not resumed.is_due):
            drain.release(task)
            key = waiting_key(ask.group, ask.topic, ask.is_ordered)
            full = self._nothing(task, ask, is_native, _FULL)
            self.service.hold(task, [(key, ask.queue_id, 0)], deadline_ns, full)
        else:
            drain.answer(task, self._nothing(task, ask, is_native, _NOTHING))

    def _refusal(self, task: Task, ask: PopAsk, limit: int) -> Refusal | None:
        error = self.checks.check_numbers(ask.count_max, ask.invisible_ms, ask.attempt_id, limit)
        if error is not None:
            return refusal_of(error)
        return self.checks.check(ask.group, ask.topic, ask.queue_id, task.request.session)

    def _ask(self, header: Any) -> PopAsk:
        return PopAsk(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.max_msg_nums,
            self.store_config.max_transfer_bytes_on_message_in_memory,
            header.invisible_time,
            is_ordered=header.order,
            attempt_id=header.attempt_id,
            from_newest=header.init_mode == 1,
        )

    def _native_ask(self, header: Any) -> PopAsk:
        count_max = min(header.max_messages, POP_MESSAGES_MAX) if header.order else header.max_messages
        return PopAsk(
            header.consumer_group,
            header.topic,
            header.queue_id,
            count_max,
            max(1, min(header.max_bytes, self.config.native_pull_bytes_max)),
            header.invisible_ms,
            is_ordered=header.order,
            attempt_id=header.attempt_id,
            from_newest=header.init_mode == 1,
        )

    def _deadline_ns(self, task: Task, header: Any, is_native: bool) -> int:
        """Return until when a pop may be held. RocketMQ counts from the client's time of the request, if it is one."""
        wait_ms: int = header.poll_ms if is_native else header.poll_time
        if not is_native and header.born_time > 0:
            late_ms = self.clock.now_ms() - header.born_time
            if 0 < late_ms <= wait_ms:
                wait_ms -= late_ms
        wait_ms = max(0, min(wait_ms, self.config.suspend_timeout_mills_max))
        return task.created_ns + wait_ms * 1_000_000

    def _count(self, task: Task, ask: PopAsk, popped: Popped) -> None:
        self.counters.got(popped.count, popped.size_bytes)
        for queue, result in zip(popped.queues, popped.results, strict=True):
            self.counters.group_got(
                queue.topic, ask.group, queue.queue_id, result.next_begin_offset, len(queue.offsets), len(result.body)
            )
        quota = task.connection.quota
        if quota is not None:
            quota.sent(popped.count, popped.size_bytes, self.clock.monotonic_ns())

    def _encode(self, task: Task, ask: PopAsk, popped: Popped, is_native: bool) -> Buffers:
        if is_native:
            counts = [
                (queue.queue_id, offset, count)
                for queue, each in zip(popped.queues, popped.counts, strict=False)
                for offset, count in each.items()
            ]
            sizes = b"".join(each.sizes.astype(">u4", copy=False).tobytes() for each in popped.results)
            return encode_answer(
                task.request,
                header=NativePopResponseHeader(popped.pop_time, ask.invisible_ms, popped.count, popped.rest, counts),
                body=[sizes, *[each.body.data for each in popped.results]],
            )
        orders = ";".join(
            order_count_info(queue.topic, queue.queue_id, each, _least(each, len(queue.offsets)))
            for queue, each in zip(popped.queues, popped.counts, strict=False)
        )
        revive_qid = ORDERED_QUEUE if ask.is_ordered else REVIVE_QUEUE
        bodies: list[Any] = []
        for queue, result in zip(popped.queues, popped.results, strict=True):
            if queue.topic == ask.topic:
                bodies.append(result.body.data)
            else:
                bodies += with_handle(
                    result, queue, ask.topic, popped.pop_time, ask.invisible_ms, revive_qid, self.config.broker_name
                )
        return encode_answer(
            task.request,
            header=PopMessageResponseHeader(
                popped.pop_time,
                ask.invisible_ms,
                revive_qid,
                popped.rest,
                start_offset_info(popped.queues),
                msg_offset_info(popped.queues),
                orders,
            ),
            remark="FOUND",
            body=bodies,
        )

    @staticmethod
    def _nothing(task: Task, ask: PopAsk, is_native: bool, code: int) -> Buffers:
        if is_native:
            return encode_answer(task.request, code, header=NativePopResponseHeader(0, ask.invisible_ms))
        header = PopMessageResponseHeader(0, ask.invisible_ms, REVIVE_QUEUE, 0)
        return encode_answer(task.request, code, header=header, remark="NO_MESSAGE_IN_QUEUE")

    # ---- others

    def _notify(self, task: Task, drain: Drain) -> None:
        header: Any = task.request.header
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        refusal = self.checks.check(group, topic, queue_id, task.request.session)
        if refusal is not None:
            drain.refuse(task, refusal)
            return
        resumed: Resumed | None = task.context
        is_there = self.reader.is_ready(group, topic, queue_id, header.order, self.time.now_ms())
        deadline_ns = self._deadline_ns(task, header, False) if resumed is None else resumed.deadline_ns
        if not is_there and (resumed is None or not resumed.is_due) and deadline_ns > self.clock.monotonic_ns():
            drain.release(task)
            full = encode_answer(task.request, header=NotificationResponseHeader(False, True))
            self.service.hold(task, [(waiting_key(group, topic, header.order), queue_id, 0)], deadline_ns, full)
        else:
            drain.answer(task, encode_answer(task.request, header=NotificationResponseHeader(is_there)))

    def _polling_info(self, task: Task, drain: Drain) -> None:
        header: Any = task.request.header
        holds = self.service.holds
        assert isinstance(holds, PopHolds)
        count = sum(
            holds.waiters(waiting_key(header.consumer_group, header.topic, is_ordered), header.queue_id)
            for is_ordered in (False, True)
        )
        drain.answer(task, encode_answer(task.request, header=PollingInfoResponseHeader(count)))

    def _peek(self, task: Task, drain: Drain) -> None:
        header: Any = task.request.header
        ask = PopAsk(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.max_msg_nums,
            self.store_config.max_transfer_bytes_on_message_in_memory,
            1,
        )
        refusal = self._refusal(task, ask, POP_MESSAGES_MAX)
        if refusal is not None:
            drain.refuse(task, refusal)
            return
        popped = self.reader.peek(ask, self.time.now_ms())
        header_out = PopMessageResponseHeader(
            popped.pop_time,
            0,
            REVIVE_QUEUE,
            popped.rest,
            start_offset_info(popped.queues),
            msg_offset_info(popped.queues),
        )
        code = ResponseCode.SUCCESS if popped.count else ResponseCode.PULL_NOT_FOUND
        drain.answer(task, encode_answer(task.request, code, header=header_out, body=body_of(popped.results)))


def _least(counts: dict[int, int], messages: int) -> int:
    """Return the least number of earlier deliveries of a batch."""
    return min(counts.values()) if len(counts) == messages else 0
