"""Pulls of a client, an address or a user that has had its messages for this second: they wait.

RocketMQ's clients pull all the time, and a pull may wait at the broker for 15 to 30 s anyway. So a pull over its limit
is held like one at the end of its queue, runs again when its bucket is open, and its client notices nothing but the
pace. A refusal would be worse for them: their push consumers log each one with a stack trace, and wait three seconds
(DefaultMQPushConsumerImpl, ``pullTimeDelayMillsWhenException``), whatever the answer says. If the bucket is still
closed when the client's time is over, the answer is that of an empty queue, and the client pulls again.

Only a pull that must not wait is refused, with ``[QUOTA]`` and the moment for the next one.

Lives here: ``PullQuota``.
"""

from dataclasses import dataclass
from typing import Any, Final

from pocketmq.broker.pull.pull_checks import SUSPEND_FLAG
from pocketmq.broker.pull.pull_service import PullService, Resumed
from pocketmq.broker.pull.slave_reads import MASTER_ID
from pocketmq.broker.request.request_task import Buffers, Drain, Task, encode_answer, refusal_of
from pocketmq.common.clock import Clock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.limits.quota import Quota
from pocketmq.remoting.limits.token_bucket import TokenBucket
from pocketmq.remoting.protocol.pull import NativePullResponseHeader, PullMessageResponseHeader
from pocketmq.store.message_store import MessageStore

_NATIVE: Final = int(RequestCode.NATIVE_PULL)
_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)


@dataclass(slots=True, eq=False)
class PullQuota:
    """Lets pulls wait. Thread-safe: it keeps nothing between requests."""

    store: MessageStore
    service: PullService
    clock: Clock
    hold_ms_max: int
    """The setting ``suspend_timeout_mills_max``."""

    def settles(self, task: Task, drain: Drain, quota: Quota) -> bool:
        """Let a pull wait, or settle it, if its quota is used up; False: it may be served now."""
        now_ns = self.clock.monotonic_ns()
        bucket = quota.closed_by(now_ns)
        if bucket is None:
            return False
        resumed: Resumed | None = task.context
        queues = _queues_of(task)
        offsets = [offset for _, _, offset in queues] if resumed is None else resumed.offsets
        deadline_ns = now_ns + self._hold_ms(task) * 1_000_000 if resumed is None else resumed.deadline_ns
        if resumed is None and deadline_ns <= now_ns:
            drain.refuse(task, refusal_of(quota.refused_by(bucket, now_ns)))
        elif deadline_ns <= now_ns:
            drain.answer(task, self._nothing(task, offsets))
        else:
            drain.release(task)
            self._delay(task, offsets, deadline_ns, bucket, now_ns)
        return True

    def _delay(self, task: Task, offsets: list[int], deadline_ns: int, bucket: TokenBucket, now_ns: int) -> None:
        until_ns = min(deadline_ns, now_ns + bucket.wait_ns(now_ns))
        later = Task(task.connection, task.request, task.created_ns, task.size_bytes, Resumed(offsets, deadline_ns))
        self.service.delay(later, until_ns, lambda: self._nothing(task, offsets))

    def _hold_ms(self, task: Task) -> int:
        header: Any = task.request.header
        if task.request.code != _NATIVE and not header.sys_flag & SUSPEND_FLAG:
            return 0
        suspend_ms: int = header.suspend_timeout_millis
        return max(0, min(suspend_ms, self.hold_ms_max))

    def _nothing(self, task: Task, offsets: list[int]) -> Buffers:
        """Return the answer of a pull that finds nothing new."""
        bounds = [
            (offset, self.store.min_offset(topic, queue_id), self.store.max_offset(topic, queue_id))
            for (topic, queue_id, _), offset in zip(_queues_of(task), offsets, strict=True)
        ]
        if task.request.code == _NATIVE:
            results = [(_NOT_FOUND, *each, 0) for each in bounds]
            return encode_answer(task.request, header=NativePullResponseHeader(results, MASTER_ID))
        return encode_answer(
            task.request,
            _NOT_FOUND,
            header=PullMessageResponseHeader(MASTER_ID, *bounds[0]),
            remark="OFFSET_FOUND_NULL",
        )


def _queues_of(task: Task) -> list[tuple[str, int, int]]:
    header: Any = task.request.header
    if task.request.code == _NATIVE:
        queues: list[tuple[str, int, int]] = header.queues
        return queues
    return [(header.topic, header.queue_id, header.queue_offset)]
