"""Native pulls of one queue that the loop itself serves: held at the queue's end, answered from the record just stored.

Lives here: ``QuickPull``.

A push consumer that has read everything pulls again from the end of its queue. ``NativePull`` would pass that pull
through a thread to learn that nothing is there, and through the thread again once a message has come. Both cases need
memory only: the queue's end, and the record, which the append hands over with its news (``PullService.news``). All
other pulls, and every refusal, are left to ``NativePull``, whose answers these equal byte for byte.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pocketmq.broker.group.message_filter import ALL, EVERYTHING, MessageFilter
from pocketmq.broker.pull.pull_checks import PullChecks
from pocketmq.broker.pull.pull_service import PullService
from pocketmq.broker.pull.slave_reads import MASTER_ID, ReadAdvice
from pocketmq.broker.request.request_task import Buffers, Refusal, Task, encode_answer
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.common.clock import Clock
from pocketmq.common.sql_filter import TAG_TYPE
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.pull import NativePullResponseHeader
from pocketmq.store.message_store import MessageStore

EXPRESSION_CHARS_MAX: Final = 256
"""A longer filter is parsed in the pull thread."""
_CODE: Final = RequestCode.NATIVE_PULL
_FOUND: Final = int(ResponseCode.SUCCESS)
_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)


@dataclass(slots=True, eq=False)
class QuickPull:
    """Serves the usual pull of a waiting consumer in the loop's thread: no I/O, no lock that disk work can hold."""

    store: MessageStore
    advice: ReadAdvice
    checks: PullChecks
    service: PullService
    counters: BrokerCounters
    clock: Clock
    hold_ms_max: int
    """The setting ``suspend_timeout_mills_max``."""
    count: Callable[[int], None]
    """Counts a request served here, with the ns that it took."""

    def hold(self, task: Task) -> bool:
        """Hold a new pull that waits at the end of its only queue; False: nothing was done, the pull thread has to."""
        request = task.request
        if request.code != _CODE or request.oneway or task.context is not None:
            return False
        header: Any = request.header
        if len(header.queues) != 1 or header.suspend_timeout_millis <= 0:
            return False
        topic, queue_id, offset = header.queues[0]
        if self._filter(header, topic, queue_id) is None:
            return False
        queue = self.store.consume_queues.get(topic, queue_id)
        if queue is None or not 0 < offset == queue.max_offset or offset < queue.min_offset:
            return False
        now_ns = self.clock.monotonic_ns()
        deadline_ns = now_ns + min(header.suspend_timeout_millis, self.hold_ms_max) * 1_000_000
        nothing = partial(_nothing, task, offset, queue.min_offset)
        self.counters.got(0, 0)
        self.count(now_ns - task.created_ns)
        self.service.hold_here(task, [(topic, queue_id, offset)], deadline_ns, nothing)
        return True

    def answer(self, task: Task, offset: int, tags_code: int, record: bytes) -> Buffers | None:
        """Return the answer to a held pull that waits for ``offset``, where ``record`` has just been stored.

        None: the pull thread has to read the queue, because more messages are there, or the pull is not a usual one.
        """
        begin_ns = self.clock.monotonic_ns()
        request = task.request
        if request.code != _CODE:
            return None
        quota = task.connection.quota
        if quota is not None and quota.closed_by(begin_ns) is not None:
            return None  # it waits
        header: Any = request.header
        if len(header.queues) != 1:
            return None
        topic, queue_id, _ = header.queues[0]
        wanted = self._filter(header, topic, queue_id)
        if wanted is None or (wanted.tags is not None and tags_code not in wanted.tags):
            return None
        queue = self.store.consume_queues.get(topic, queue_id)
        if queue is None or queue.max_offset != offset + 1 or offset < queue.min_offset:
            return None
        size = len(record)
        results = [(_FOUND, offset + 1, queue.min_offset, offset + 1, 1)]
        buffers = encode_answer(
            request,
            header=NativePullResponseHeader(results, MASTER_ID),
            body=[size.to_bytes(4, "big"), record],
        )
        if quota is not None:
            quota.sent(1, size, begin_ns)
        self.counters.group_got(topic, header.consumer_group, queue_id, offset + 1, 1, size)
        self.counters.got(1, size)
        self.count(self.clock.monotonic_ns() - begin_ns)
        return buffers

    def _filter(self, header: Any, topic: str, queue_id: int) -> MessageFilter | None:
        """Return the filter of a pull that passes every check; None for one that is refused, or needs more than
        memory: a filter by properties, a new group, the advice to read from a slave."""
        if self.advice.enabled or self.advice.is_slave or self.advice.groups.get(header.consumer_group) is None:
            return None
        if self.checks.check_group(header.consumer_group) or self.checks.check_queue(topic, queue_id):
            return None
        if header.expression_type != TAG_TYPE:
            return None
        if header.expression == ALL:
            return EVERYTHING
        if len(header.expression) > EXPRESSION_CHARS_MAX:
            return None
        wanted = self.checks.parsed(TAG_TYPE, header.expression)
        return None if isinstance(wanted, Refusal) else wanted


def _nothing(task: Task, offset: int, min_offset: int) -> Buffers:
    """Return the answer of a pull at the end of its queue that cannot be held."""
    results = [(_NOT_FOUND, offset, min_offset, offset, 0)]
    return encode_answer(task.request, header=NativePullResponseHeader(results, MASTER_ID))
