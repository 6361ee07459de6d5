"""PULL_MESSAGE and LITE_PULL_MESSAGE (of 5.3's lite pull consumer), and the processor of every kind of pull.

Lives here: ``PullProcessor``: RocketMQ's pull with RocketMQ's limits.
"""

from dataclasses import dataclass, field
from typing import Any

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.group.message_filter import EVERYTHING, MessageFilter, get_filtered
from pocketmq.broker.lock.lock_manager import LockManager
from pocketmq.broker.pull.filter_lane import FilterLane
from pocketmq.broker.pull.native_pull import NativePull
from pocketmq.broker.pull.pull_checks import COMMIT_OFFSET_FLAG, SUSPEND_FLAG, PullChecks, pull_code
from pocketmq.broker.pull.pull_quota import PullQuota
from pocketmq.broker.pull.pull_service import PullService, Resumed
from pocketmq.broker.pull.slave_reads import ReadAdvice, RecentMessages
from pocketmq.broker.request.budget import Budgets
from pocketmq.broker.request.executor import OneByOne
from pocketmq.broker.request.request_task import Drain, Refusal, Task, encode_answer, refused
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.topic.queue_checks import CommitOffsetIllegal, check_commit
from pocketmq.common import refusals
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause
from pocketmq.common.events import EventLog
from pocketmq.common.sql_filter import SQL92_TYPE
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.pull import PullMessageResponseHeader
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import GetResult, MessageStore

LOG_COMMITS_EVERY_NS = 10_000_000_000
READS_WAIT_MS = 200


@dataclass(slots=True, eq=False)
class PullProcessor(OneByOne):
    """Serves PULL_MESSAGE and passes native pulls on. Thread-safe: it keeps nothing between requests."""

    config: BrokerConfig
    store_config: StoreConfig
    store: MessageStore
    recent: RecentMessages
    advice: ReadAdvice
    checks: PullChecks
    offsets: ConsumerOffsets
    service: PullService
    locks: LockManager
    native: NativePull
    counters: BrokerCounters
    clock: Clock
    log: EventLog
    budgets: Budgets
    quota: PullQuota
    lane: FilterLane | None
    """Takes the pulls with SQL92 filters; None: they are served here."""
    _log_commits_from_ns: int = field(init=False, default=0)

    def serve(self, task: Task, drain: Drain) -> None:
        """Answer, refuse or hold one pull."""
        if task.connection.closed or task.request.oneway:
            drain.finish(task)
        elif self.store.reads_wait:
            name = self.config.broker_name
            drain.refuse(task, refused(Cause.NOT_MASTER, refusals.READS_WAIT, name, retry_after_ms=READS_WAIT_MS))
        elif task.connection.quota is not None and self.quota.settles(task, drain, task.connection.quota):
            pass
        elif self.lane is not None and task.request.header.expression_type == SQL92_TYPE:  # type: ignore[union-attr]
            drain.release(task)
            self.lane.take(task)
        elif task.request.code == RequestCode.NATIVE_PULL:
            self.native.serve(task, drain)
        else:
            self._pull(task, drain)

    def _pull(self, task: Task, drain: Drain) -> None:
        header: Any = task.request.header
        resumed: Resumed | None = task.context
        topic, queue_id = header.topic, header.queue_id
        wanted: MessageFilter | Refusal = EVERYTHING
        refusal = self.checks.check_group(header.consumer_group, task.request.session) or self.checks.check_queue(
            topic, queue_id
        )
        if refusal is None:
            wanted = self.checks.filter_of(header)
            if isinstance(wanted, Refusal):
                refusal = wanted
        if refusal is not None or isinstance(wanted, Refusal):
            assert refusal is not None
            drain.refuse(task, refusal)
            return
        if wanted.sql is not None and self.lane is not None:  # from a heartbeat
            drain.release(task)
            self.lane.take(task)
            return
        asked = header.queue_offset
        offset = asked if resumed is None else resumed.offsets[0]
        limits = self.store_config
        if self.recent.is_on_disk(topic, queue_id, offset):
            count_max = limits.max_transfer_count_on_message_in_disk
            bytes_max = limits.max_transfer_bytes_on_message_in_disk
        else:
            count_max = limits.max_transfer_count_on_message_in_memory
            bytes_max = limits.max_transfer_bytes_on_message_in_memory

        budget = None if wanted.sql is None else self.budgets.begin(task.connection)

        def read() -> GetResult:
            return get_filtered(
                self.store,
                topic,
                queue_id,
                offset,
                wanted,
                max_messages=max(1, min(header.max_msg_nums, count_max)),
                max_bytes=bytes_max,
                budget=budget,
            )

        result = read()
        if self.advice.must_read_again(result.status.name, offset):
            result = read()
        commits = resumed is None and header.sys_flag & COMMIT_OFFSET_FLAG and header.commit_offset >= 0
        if (
            commits
            and self.store_config.broker_role != "SLAVE"
            and self.locks.allows_commit(header.consumer_group, topic, queue_id, task.connection)
        ):
            self._commit(task, header)
        code, next_offset = self.advice.correct(
            pull_code(result.status.name, offset), result.status.name, offset, result.next_begin_offset
        )
        self.counters.got(len(result.sizes), len(result.body))
        if len(result.sizes):
            self.counters.group_got(
                topic, header.consumer_group, queue_id, next_offset, len(result.sizes), len(result.body)
            )
            quota = task.connection.quota
            if quota is not None:
                quota.sent(len(result.sizes), len(result.body), self.clock.monotonic_ns())
        buffers = encode_answer(
            task.request,
            code,
            header=PullMessageResponseHeader(
                suggest_which_broker_id=self.advice.suggest(header.consumer_group, topic, queue_id, next_offset),
                next_begin_offset=next_offset,
                min_offset=result.min_offset,
                max_offset=result.max_offset,
            ),
            remark=result.status.name,
            body=result.body.data if code == ResponseCode.SUCCESS else b"",
        )
        if code == ResponseCode.PULL_NOT_FOUND and resumed is None and header.sys_flag & SUSPEND_FLAG:
            deadline_ns = self.clock.monotonic_ns() + self._hold_ms(header.suspend_timeout_millis) * 1_000_000
            drain.release(task)
            self.service.hold(task, [(topic, queue_id, offset)], deadline_ns, buffers)
        elif code == ResponseCode.PULL_RETRY_IMMEDIATELY and resumed is not None and not resumed.is_due and wanted:
            drain.release(task)
            self.service.hold(task, [(topic, queue_id, result.next_begin_offset)], resumed.deadline_ns, buffers)
        else:
            drain.answer(task, buffers)

    def _commit(self, task: Task, header: Any) -> None:
        """Commit the offset that a pull carries. One outside the queue is logged; the pull itself is served."""
        try:
            check_commit(self.store, header.topic, header.queue_id, header.commit_offset)
        except CommitOffsetIllegal as error:
            now_ns = self.clock.monotonic_ns()
            if now_ns >= self._log_commits_from_ns:  # the client repeats it in every pull
                self._log_commits_from_ns = now_ns + LOG_COMMITS_EVERY_NS
                self.log.warning(
                    "commit_refused", group=header.consumer_group, remote=task.connection.remote, error=str(error)
                )
            return
        self.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)

    def _hold_ms(self, suspend_timeout_ms: int) -> int:
        if not self.config.long_polling_enable:
            return self.config.short_polling_time_mills
        return max(0, min(suspend_timeout_ms, self.config.suspend_timeout_mills_max))
