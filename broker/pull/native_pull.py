"""Native pull: many queues in one request, record sizes in the answer.

Lives here: ``NativePull``.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.message_filter import MessageFilter, get_filtered
from pocketmq.broker.pull.pull_checks import PullChecks, pull_code
from pocketmq.broker.pull.pull_service import PullService, Resumed
from pocketmq.broker.pull.slave_reads import ReadAdvice
from pocketmq.broker.request.budget import QUEUES, Budget, Budgets
from pocketmq.broker.request.request_task import Buffers, Drain, Refusal, Task, encode_answer
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.protocol.pull import NativePullResponseHeader
from pocketmq.store.consumequeue.get import GetResult
from pocketmq.store.message_store import MessageStore

QueueResult = tuple[int, int, int, int, int]
"""(response code, next begin offset, min offset, max offset, records)"""

_NOT_FOUND = int(ResponseCode.PULL_NOT_FOUND)
_RETRY = int(ResponseCode.PULL_RETRY_IMMEDIATELY)


@dataclass(slots=True, eq=False)
class NativePull:
    """Serves the native pull. Thread-safe: it keeps nothing between requests.

    The first queue with messages is read up to ``max_bytes``, at least one message; the others share the rest. Where
    other queues' messages lie among its own in the log, they share ``max_bytes`` in log order, and the log is read once
    for all of them. Each request starts at another queue (its opaque number selects it), so that a busy queue starves
    no other. Queues that are not reached within the pull's budget answer PULL_RETRY_IMMEDIATELY.
    """

    config: BrokerConfig
    store: MessageStore
    advice: ReadAdvice
    checks: PullChecks
    service: PullService
    counters: BrokerCounters
    clock: Clock
    budgets: Budgets

    def serve(self, task: Task, drain: Drain) -> None:
        """Answer, refuse or hold one pull."""
        header: Any = task.request.header
        resumed: Resumed | None = task.context
        queues = header.queues
        refusal = self.checks.check_group(header.consumer_group, task.request.session)
        if refusal is None and not 1 <= len(queues) <= self.config.native_pull_queues_max:
            text = f"{len(queues)} queues, not 1 to {self.config.native_pull_queues_max}"
            refusal = Refusal(int(ResponseCode.SYSTEM_ERROR), text, Cause.BAD_REQUEST)
        if refusal is None and len(queues) > 1 and len({queue[:2] for queue in queues}) < len(queues):
            text = "a queue is named twice"
            refusal = Refusal(int(ResponseCode.SYSTEM_ERROR), text, Cause.BAD_REQUEST)
        wanted = self.checks.parsed(header.expression_type, header.expression)
        if refusal is None and isinstance(wanted, Refusal):
            refusal = wanted
        if refusal is not None or isinstance(wanted, Refusal):
            assert refusal is not None
            drain.refuse(task, refusal)
            return
        offsets = [offset for _, _, offset in queues] if resumed is None else resumed.offsets
        is_long = wanted.sql is not None or len(queues) > QUEUES
        budget = self.budgets.begin(task.connection) if is_long else None
        results, sizes, bodies = self._read(header, offsets, wanted, task.request.opaque, budget)
        quota = task.connection.quota
        if quota is not None and bodies:
            quota.sent(sum(map(len, sizes)), sum(map(len, bodies)), self.clock.monotonic_ns())
        buffers = self._encode(task, results, sizes, bodies, self._suggest(header, results))
        if bodies or any(code not in (_NOT_FOUND, _RETRY) for code, *_ in results):
            drain.answer(task, buffers)
            return
        may_wait = resumed is None and all(code == _NOT_FOUND for code, *_ in results)
        filtered = resumed is not None and not resumed.is_due and bool(wanted)
        if header.suspend_timeout_millis <= 0 or not (may_wait or filtered):
            drain.answer(task, buffers)
            return
        if resumed is None:
            hold_ms = min(header.suspend_timeout_millis, self.config.suspend_timeout_mills_max)
            deadline_ns = self.clock.monotonic_ns() + hold_ms * 1_000_000
        else:
            deadline_ns = resumed.deadline_ns
        waiting = [(topic, queue_id, result[1]) for (topic, queue_id, _), result in zip(queues, results, strict=True)]
        drain.release(task)
        self.service.hold(task, waiting, deadline_ns, buffers)

    def _read(
        self, header: Any, offsets: list[int], wanted: MessageFilter, turn: int, budget: Budget | None
    ) -> tuple[list[QueueResult], list[NDArray[Any]], list[NDArray[np.uint8]]]:
        """Return (result of each queue, sizes and records of those with records, in the order of the queues)."""
        queues = header.queues
        rest_bytes = max(1, min(header.max_bytes, self.config.native_pull_bytes_max))
        rest_messages = max(1, header.max_messages)
        results: dict[int, QueueResult] = {}
        found: dict[int, tuple[NDArray[Any], NDArray[np.uint8]]] = {}
        failed: PocketMQError | None = None
        run = {} if wanted or len(queues) == 1 else self._read_run(queues, offsets, turn, rest_messages, rest_bytes)
        for result in run.values():
            rest_bytes -= len(result.body)
            rest_messages -= len(result.sizes)
        for step in range(len(queues)):
            index = (turn + step) % len(queues)
            topic, queue_id, _ = queues[index]
            offset = offsets[index]
            refusal = self.checks.check_queue(topic, queue_id)
            if refusal is not None:
                results[index] = (refusal.code, offset, 0, 0, 0)
                continue
            read = run.get(index)
            if budget is not None and step and (wanted.sql is not None or not step % QUEUES) and budget.is_over():
                rest_messages = 0
            if read is None and (rest_bytes <= 0 or rest_messages <= 0):
                bounds = self.store.min_offset(topic, queue_id), self.store.max_offset(topic, queue_id)
                results[index] = (_RETRY, offset, *bounds, 0)
                continue
            try:
                result = read or get_filtered(
                    self.store,
                    topic,
                    queue_id,
                    offset,
                    wanted,
                    max_messages=rest_messages,
                    max_bytes=rest_bytes,
                    budget=budget,
                )
                if self.advice.must_read_again(result.status.name, offset):
                    result = get_filtered(
                        self.store,
                        topic,
                        queue_id,
                        offset,
                        wanted,
                        max_messages=rest_messages,
                        max_bytes=rest_bytes,
                        budget=budget,
                    )
            except PocketMQError as error:  # one queue on a bad part of the disk must not block the others
                failed = error
                bounds = self.store.min_offset(topic, queue_id), self.store.max_offset(topic, queue_id)
                results[index] = (_RETRY, offset, *bounds, 0)
                continue
            count = len(result.sizes)
            code, next_offset = self.advice.correct(
                pull_code(result.status.name, offset), result.status.name, offset, result.next_begin_offset
            )
            results[index] = (code, next_offset, result.min_offset, result.max_offset, count)
            if count:
                found[index] = (result.sizes, result.body)
                self.counters.group_got(topic, header.consumer_group, queue_id, next_offset, count, len(result.body))
                if read is None:
                    rest_bytes -= len(result.body)
                    rest_messages -= count
        if failed is not None and not found:
            raise failed
        self.counters.got(sum(len(sizes) for sizes, _ in found.values()), sum(len(body) for _, body in found.values()))
        order = sorted(found)
        return (
            [results[index] for index in range(len(queues))],
            [found[index][0] for index in order],
            [found[index][1] for index in order],
        )

    def _read_run(
        self, queues: list[tuple[str, int, int]], offsets: list[int], turn: int, max_messages: int, max_bytes: int
    ) -> dict[int, GetResult]:
        """Return messages of queues that lie interleaved in the log, by position in the request; see ``get_run``.

        Queues that cannot be read are not left out here: the caller refuses them.
        """
        order = [(turn + step) % len(queues) for step in range(len(queues))]
        found = self.store.get_run(
            [(queues[at][0], queues[at][1], offsets[at]) for at in order],
            max_messages=max_messages,
            max_bytes=max_bytes,
        )
        return {order[at]: result for at, result in found.items()}

    def _suggest(self, header: Any, results: list[QueueResult]) -> int:
        """Return where to pull next: one broker id for all queues, that of the queue furthest behind."""
        return max(
            self.advice.suggest(header.consumer_group, topic, queue_id, result[1])
            for (topic, queue_id, _), result in zip(header.queues, results, strict=True)
        )

    @staticmethod
    def _encode(
        task: Task,
        results: list[QueueResult],
        sizes: list[NDArray[Any]],
        bodies: list[NDArray[np.uint8]],
        suggested_id: int,
    ) -> Buffers:
        body: list[bytes | memoryview] = []
        if bodies:
            body = [
                b"".join([each.astype(">u4", copy=False).tobytes() for each in sizes]),
                *[each.data for each in bodies],
            ]
        return encode_answer(task.request, header=NativePullResponseHeader(results, suggested_id), body=body)
