"""Sends: everything drained together becomes one group and one append.

Lives here: ``SendProcessor``: native and typed sends of a drain in their order, topics persisted before the first
answer, the append, the wait for the flush, the answers.
Not here: checks and records (``native_append``, ``typed_send``), the log (``store.message_store``).
"""

from collections.abc import Callable
from typing import Any, Final

from pocketmq.broker.counters import BrokerCounters
from pocketmq.broker.native_append import NativeAppend, NativeSend
from pocketmq.broker.send_checks import SendChecks
from pocketmq.broker.send_part import Appended, PlannedSend, SendPart
from pocketmq.broker.task import STAGE_APPEND, Answer, AnswerPort, Drain, Refusal, encode_refusal, refusal_of
from pocketmq.broker.typed_send import NotStored, TypedSend, TypedSends
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause, PocketMQError, Stored
from pocketmq.common.events import EventLog
from pocketmq.common.record_group import RecordGroup
from pocketmq.remoting.codes import RequestCode
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.message_store import MessageStore

REMARK_OF_STATUS: Final[dict[str, str]] = {
    "CREATE_MAPEDFILE_FAILED": "create mapped file failed, server is busy or broken.",
    "OS_PAGE_CACHE_BUSY": "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    "SERVICE_NOT_AVAILABLE": "service not available now",
}
"""Text of a put status (RocketMQ SendMessageProcessor.handlePutMessageResult)."""


class SendProcessor:
    """Serves codes 10, 310, 320 and the native append; one worker thread only, so that the log is written in order."""

    def __init__(
        self,
        store: MessageStore,
        native: NativeAppend,
        typed: TypedSends,
        checks: SendChecks,
        persist_topics: Callable[[], object],
        answers: AnswerPort,
        counters: BrokerCounters,
        group_bytes_max: int,
        clock: Clock,
        log: EventLog,
    ) -> None:
        self._store = store
        self._group_bytes_max = group_bytes_max
        self._native = native
        self._typed = typed
        self._checks = checks
        self._persist_topics = persist_topics
        self._topics_persisted = 0
        self._answers = answers
        self._counters = counters
        self._clock = clock
        self._log = log

    def reject_request(self) -> Refusal | None:
        """Refuse nothing yet: the page cache and the write-buffer pool report here."""
        return None

    def process(self, drain: Drain) -> None:
        """Append what was drained, in order, as one group where it fits; answer now or when it is flushed.

        What is appended still has to be dispatched: the executor does so (``follow_up``) when the answers are out.
        """
        parts = self._parts(drain)
        if self._checks.created != self._topics_persisted:
            # Before any answer speaks of a topic that a crash would forget.
            created = self._checks.created
            self._persist_topics()
            self._topics_persisted = created
        for batch in self._batches(parts):
            self._append(batch, drain)

    def _append(self, parts: list[SendPart], drain: Drain) -> None:
        group = RecordGroup.concat([part.group for part in parts])
        sends: list[PlannedSend] = []
        sections = 0
        for part in parts:
            if sections:
                for send in part.sends:
                    send.shift(sections)
            sections += len(part.group.sections)
            sends += part.sends
        started_ns = self._clock.monotonic_ns()
        try:
            result = self._store.append(group, dispatch_later=True)
        except PocketMQError as error:
            refusal = refusal_of(error)
            for send in sends:
                drain.refuse(send.task, refusal)
            return
        drain.stages_ns[STAGE_APPEND] += self._clock.monotonic_ns() - started_ns
        for send in sends:
            drain.release(send.task)
        if not result.status.is_stored:
            self._counters.put_failed(len(group))
            self._log.error("append_failed", status=result.status.name, error=result.error, records=len(group))
            self._answer(sends, result, result.status)
            return
        self._counters.put(len(group), group.size_bytes)
        waiting = [send for send in sends if send.wait]
        others = [send for send in sends if not send.wait] if len(waiting) < len(sends) else []
        for chosen, wait in ((others, False), (waiting, True)):
            if chosen:
                self._acknowledge(chosen, result, wait)

    def _batches(self, parts: list[SendPart]) -> list[list[SendPart]]:
        """Return the parts in order, put together up to the largest group the store takes."""
        batches: list[list[SendPart]] = []
        size_bytes = self._group_bytes_max + 1
        for part in parts:
            size_bytes += part.group.size_bytes
            if size_bytes > self._group_bytes_max:
                batches.append([])
                size_bytes = part.group.size_bytes
            batches[-1].append(part)
        return batches

    def _parts(self, drain: Drain) -> list[SendPart]:
        """Return runs of native and of typed sends, each checked and made into a group, in the order of the drain.

        A run ends where the kind changes, or where it would pass the largest group the store takes.
        """
        parts: list[SendPart] = []
        native_run: list[NativeSend] = []
        typed_run: list[TypedSend] = []
        run_bytes = 0

        def end_run() -> None:
            if native_run:
                part = self._native.check(list(native_run), drain)
                if part is not None:
                    parts.append(part)
                native_run.clear()
            if typed_run:
                parts.append(self._typed.check(list(typed_run)))
                typed_run.clear()

        for task in drain.tasks:
            is_native = task.request.code == RequestCode.NATIVE_APPEND
            try:
                send = self._native.plan(task) if is_native else self._typed.plan(task)
            except NotStored as error:
                drain.refuse(task, error.refusal)
                continue
            except PocketMQError as error:
                drain.refuse(task, refusal_of(error, Stored.NO))
                continue
            run_bytes += send.size_bytes
            if run_bytes > self._group_bytes_max or (typed_run if is_native else native_run):
                end_run()
                run_bytes = send.size_bytes
            if isinstance(send, NativeSend):
                native_run.append(send)
            else:
                typed_run.append(send)
        end_run()
        return parts

    def _acknowledge(self, sends: list[PlannedSend], result: AppendResult, wait: bool) -> None:
        """Answer ``sends`` when the store says so; its call comes in this thread or in the flush thread, once."""

        def done(status: PutStatus) -> None:
            self._answer(sends, result, status)

        try:
            self._store.acknowledge(result.end_offset, wait, done)
        except PocketMQError as error:
            self._post_refusals(sends, refusal_of(error, Stored.UNKNOWN))

    def _answer(self, sends: list[PlannedSend], result: AppendResult, status: PutStatus) -> None:
        remark = _remark(status, result.error)
        if not status.is_stored:
            stored = Stored.NO if result.status is status else Stored.UNKNOWN
            cause = result.cause if result.cause is not Cause.NONE else Cause.DISK_ERROR
            self._post_refusals(sends, Refusal(status.code, remark, cause, stored, result.retry_after_ms or 1000))
            return
        appended = Appended(status.code, remark, result.store_timestamp, result.first_queue_offsets, result.runs)
        answers: list[Answer] = []
        for send in sends:
            task = send.task
            if task.request.oneway:
                continue
            try:
                answers.append((task.connection, send.encode(appended)))
            except Exception as error:  # one answer that cannot be encoded must not silence the others
                refusal = refusal_of(error, Stored.YES)
                self._log.error("answer_failed", code=task.request.code, error=refusal.remark)
                answers.append((task.connection, encode_refusal(task.request, refusal)))
        self._answers.post(answers)

    def _post_refusals(self, sends: list[Any], refusal: Refusal) -> None:
        self._answers.post(
            [
                (send.task.connection, encode_refusal(send.task.request, refusal))
                for send in sends
                if not send.task.request.oneway
            ]
        )


def _remark(status: PutStatus, error: str) -> str:
    if status is PutStatus.PUT_OK:
        return ""
    text = REMARK_OF_STATUS.get(status.name, "")
    if status is PutStatus.SERVICE_NOT_AVAILABLE and error:
        return f"{text}: {error}"
    return text or error or status.name
