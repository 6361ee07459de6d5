"""Sends: requests drained together become one group and one append.

Lives here: ``SendProcessor``: the refusal at admission, topics persisted before the first answer, the append, the wait
for the flush, the answers.
"""

from collections.abc import Callable, Sequence
from typing import Final

from pocketmq.broker.flow_control.busy_answers import APPEND, LOCK_WAIT, QUEUE_WAIT, put_remark, reject_slave
from pocketmq.broker.flow_control.put_outcome import PutOutcome, confirm_topics
from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.request.request_task import Answer, AnswerPort, Drain, Refusal, encode_refusal, refusal_of
from pocketmq.broker.send.send_back import send_back_refusal
from pocketmq.broker.send.send_batch import Appended, PlannedSend, SendBatch
from pocketmq.broker.send.send_planner import SendPlanner
from pocketmq.broker.send.send_times import PutTiming, SendTimes
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.stage_times import RequestTiming, Stage
from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError, Stored
from pocketmq.common.events import EventLog
from pocketmq.common.record_group import RecordGroup
from pocketmq.remoting.codes import RequestCode
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.message_store import MessageStore

_LOCK_WAIT: Final = int(Stage.LOCK_WAIT)
_APPEND: Final = int(Stage.APPEND)


class SendProcessor:
    """Serves codes 10, 310, 320, 36 and the native append.

    With one planner, one worker thread may call ``process``, and the log keeps the order of the queue. With two
    planners, two threads may: then two drains enter the log in either order, as with RocketMQ's larger send pool.
    """

    def __init__(
        self,
        store: MessageStore,
        planners: Sequence[SendPlanner],
        persist_topics: Callable[[], object],
        answers: AnswerPort,
        counters: BrokerCounters,
        refusals: RefusalStats,
        clock: Clock,
        log: EventLog,
        times: SendTimes | None = None,
        refused_by_role: Callable[[], Refusal | None] | None = None,
    ) -> None:
        """``persist_topics`` returns when the topics are on disk as they were at the call. ``times`` counts the times
        of puts, if given. ``refused_by_role`` returns why this broker stores nothing now: it was replaced, or hands
        over."""
        self._times = times
        self._store = store
        self._planners = list(planners)
        self._dispatch_later = len(self._planners) == 1
        """Whether the executor dispatches after drains; with two threads the dispatch worker does."""
        self._persist_topics = persist_topics
        self._answers = answers
        self._counters = counters
        self._refusals = refusals
        self._clock = clock
        self._log = log
        self._refused_by_role = refused_by_role or (lambda: None)
        is_slave = store.config.broker_role == "SLAVE"
        self._outcome = PutOutcome(store, self._refused_by_role)
        self.reject_request = (
            PutOutcome(store, reject_slave).refusal_at_admission if is_slave else self._outcome.refusal_at_admission
        )
        """The refusal at admission (on a slave, RocketMQ 5.3's), or None. Bound here: this saves a call."""

    def process(self, drain: Drain) -> None:
        """Append the drained messages, in order, as one group if they fit; answer now or after the flush.

        Appended messages still need the dispatch: with one thread the executor runs it (``follow_up``) after the
        answers.
        """
        started_ns = self._clock.monotonic_ns()
        planner = self._planners.pop()
        try:
            appends = planner.plan(drain, started_ns)
            if planner.checks.is_unsure:
                try:
                    confirm_topics(planner.checks, self._persist_topics)
                except PocketMQError as error:
                    self._log.error("topics_not_persisted", error=str(error))
                    self._refuse_all(_sends(appends), drain, refusal_of(error, Stored.NO), started_ns)
                    return
        finally:
            self._planners.append(planner)
        for joined in appends:
            self._append(joined, drain, started_ns)

    def _append(self, batches: list[SendBatch], drain: Drain, drained_ns: int) -> None:
        group = RecordGroup.concat([batch.group for batch in batches])
        sends: list[PlannedSend] = []
        sections = 0
        for batch in batches:
            if sections:
                for send in batch.sends:
                    send.shift(sections)
            sections += len(batch.group.sections)
            sends += batch.sends
        replaced = self._refused_by_role()
        if replaced is not None:  # since these were admitted
            self._refuse_all(sends, drain, replaced, drained_ns)
            return
        started_ns = self._clock.monotonic_ns()
        try:
            result = self._store.append(group, dispatch_later=self._dispatch_later)
        except PocketMQError as error:
            self._refuse_all(sends, drain, refusal_of(error), drained_ns)
            return
        put_timing = PutTiming(drained_ns, started_ns, self._clock.monotonic_ns(), drain.stages_ns)
        drain.stages_ns[_LOCK_WAIT] += result.lock_wait_ns
        drain.stages_ns[_APPEND] += result.append_ns
        for send in sends:
            drain.release(send.task)
        if not result.status.is_stored:
            self._counters.put_failed(len(group))
            self._log.error("append_failed", status=result.status.name, error=result.error, records=len(group))
            self.answer(sends, result, result.status, put_timing)
            return
        self._counters.put(len(group), group.size_bytes)
        for batch in batches:
            if batch.stored is not None:
                batch.stored(result)
        self.acknowledge(sends, result, put_timing)

    def acknowledge(self, sends: list[PlannedSend], result: AppendResult, put_timing: PutTiming) -> None:
        """Answer stored ``sends`` when they are as safe as the settings demand: now, or later in another thread."""
        waiting = [send for send in sends if send.wait]
        others = [send for send in sends if not send.wait] if len(waiting) < len(sends) else []
        for chosen, wait in ((others, False), (waiting, True)):
            if chosen:
                self._acknowledge(chosen, result, wait, put_timing)

    def _acknowledge(self, sends: list[PlannedSend], result: AppendResult, wait: bool, put_timing: PutTiming) -> None:
        """Answer ``sends`` when the store calls back: once, in this thread or in the flush thread."""

        def done(status: PutStatus) -> None:
            self.answer(sends, result, status, put_timing, waited=wait)

        try:
            self._store.acknowledge(result.end_offset, wait, done)
        except PocketMQError as error:
            self.refuse(sends, refusal_of(error, Stored.UNKNOWN), result, put_timing.drained_ns)

    def answer(
        self,
        sends: list[PlannedSend],
        result: AppendResult,
        status: PutStatus,
        put_timing: PutTiming,
        *,
        waited: bool = False,
    ) -> None:
        """Answer ``sends`` with the store's verdict. ``waited``: for flush or slaves. Any thread."""
        timing = None
        if self._times is not None:
            timing = self._times.answering(sends, sends[0].task.created_ns, result, put_timing, waited)
        if not status.is_stored:
            self.refuse(sends, self._outcome.refusal(status, result), result, put_timing.drained_ns, timing)
            return
        remark = put_remark(status.name, result.error)
        appended = Appended(status.code, remark, result.store_timestamp, result.first_queue_offsets, result.runs)
        answers: list[Answer] = []
        for send in sends:
            task = send.task
            if task.request.oneway:
                continue
            try:
                answers.append((task.connection, send.encode(appended)))
            except Exception as error:  # one answer that cannot be encoded must not block the others
                refusal = refusal_of(error, Stored.YES)
                self._log.error("answer_failed", code=task.request.code, error=refusal.remark)
                answers.append((task.connection, encode_refusal(task.request, refusal)))
        self._answers.post(answers, timing)

    def _refuse_all(self, sends: list[PlannedSend], drain: Drain, refusal: Refusal, drained_ns: int) -> None:
        """Refuse sends that did not reach the store."""
        self._refusals.note(refusal.cause.value, refusal.code, refusal.remark, len(sends))
        for send in sends:
            drain.refuse(send.task, refusal.with_stages(((QUEUE_WAIT, drained_ns - send.task.created_ns),)))

    def refuse(
        self,
        sends: list[PlannedSend],
        refusal: Refusal,
        result: AppendResult,
        drained_ns: int,
        timing: RequestTiming | None = None,
    ) -> None:
        """Refuse sends after the store's answer. Any thread."""
        self._refusals.note(refusal.cause.value, refusal.code, refusal.remark, len(sends))
        put_stages = tuple(
            (name, took_ns)
            for name, took_ns in ((LOCK_WAIT, result.lock_wait_ns), (APPEND, result.append_ns))
            if took_ns
        )
        answers: list[Answer] = []
        for send in sends:
            task = send.task
            if not task.request.oneway:
                explained = refusal.with_stages(((QUEUE_WAIT, drained_ns - task.created_ns), *put_stages))
                if task.request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
                    explained = send_back_refusal(explained, result.status)
                answers.append((task.connection, encode_refusal(task.request, explained)))
        self._answers.post(answers, timing)


def _sends(appends: list[list[SendBatch]]) -> list[PlannedSend]:
    return [send for joined in appends for batch in joined for send in batch.sends]
