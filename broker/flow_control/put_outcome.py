"""The client's view of a put: a refusal, or an answer now or later.

Lives here: ``PutOutcome``, which every processor that writes to the log uses, and ``confirm_topics``, the step before
an answer confirms a message in a new topic.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from pocketmq.broker.flow_control.busy_answers import (
    RETRY_AFTER_ERROR_MS,
    put_remark,
    reject_no_write_buffer,
    reject_page_cache_busy,
    retry_after_busy_ms,
)
from pocketmq.broker.request.request_task import AnswerPort, Buffers, Drain, Refusal, Task
from pocketmq.common.errors import Cause, PocketMQError, Stored
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.message_store import MessageStore

_NOTHING_KNOWN: Final = AppendResult(PutStatus.PUT_OK)


class Unsure(Protocol):
    """Checks that accept topics before they are on disk; see ``SendChecks``."""

    is_unsure: bool

    def confirm(self) -> None:
        """Note that the topics are on disk."""
        ...

    def forget(self) -> None:
        """Note that the topics could not be written."""
        ...


class Asked(Protocol):
    """A request whose answer waits for the log."""

    @property
    def task(self) -> Task:
        """The request."""
        ...


A = TypeVar("A", bound=Asked)


def confirm_topics(checks: Unsure, persist_topics: Callable[[], object]) -> None:
    """Persist the topics that passed ``checks``, before an answer confirms a message whose topic a crash would lose.

    If ``persist_topics`` raises, so does this, and the topics stay unsure.
    """
    if checks.is_unsure:
        try:
            persist_topics()
        except PocketMQError:
            checks.forget()
            raise
        checks.confirm()


class PutOutcome:
    """Refusals and acknowledgements of the requests that write to ``store``. Thread-safe.

    ``refused_by_role`` returns why this broker must not store anything now: it is a slave, it was replaced, or it hands
    over to another master.
    """

    def __init__(self, store: MessageStore, refused_by_role: Callable[[], Refusal | None]) -> None:
        self._store = store
        self._refused_by_role = refused_by_role

    def refusal_at_admission(self) -> Refusal | None:
        """Return the refusal at admission, or None: the page cache is busy, no write buffer is free (RocketMQ
        SendMessageProcessor.rejectRequest), or the role forbids stores."""
        store = self._store
        if store.is_os_page_cache_busy():
            return reject_page_cache_busy(store.lock_time_mills())
        if store.is_transient_store_pool_deficient():
            return reject_no_write_buffer(store.config.commit_interval_commit_log)
        return self._refused_by_role()

    def refusal(self, status: PutStatus, result: AppendResult | None = None) -> Refusal:
        """Return the refusal for ``status``.

        ``result`` is the return value of ``append``, if known: if it has the same status, nothing was stored. A
        different status arose while the answer waited: the message is stored (a timeout), or that is unknown (the log
        was fenced, or this master was replaced).
        """
        if status.is_stored:
            is_slaves = status in (PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE)
            cause = Cause.TIMEOUT if is_slaves else Cause.DISK_ERROR
            return Refusal(status.code, put_remark(status.name, ""), cause, Stored.YES, RETRY_AFTER_ERROR_MS)
        result = result or _NOTHING_KNOWN
        stored = Stored.NO if result.status is status else Stored.UNKNOWN
        cause, retry_after_ms, error = result.cause, result.retry_after_ms, result.error
        replaced = self._refused_by_role() if stored is Stored.UNKNOWN else None
        if replaced is not None:
            return Refusal(replaced.code, replaced.remark, replaced.cause, stored, replaced.retry_after_ms)
        fenced = self._store.log.fence_error
        if cause is Cause.NONE and fenced is not None:
            cause, error = fenced.cause, str(fenced)
        remark = put_remark(status.name, error)
        if status is PutStatus.OS_PAGE_CACHE_BUSY:
            cause = Cause.PAGE_CACHE_BUSY
            retry_after_ms = retry_after_ms or retry_after_busy_ms(self._store.lock_time_mills())
        elif cause is Cause.NONE:
            cause = Cause.DISK_ERROR
        return Refusal(status.code, remark, cause, stored, retry_after_ms or RETRY_AFTER_ERROR_MS)

    def acknowledge(
        self,
        drain: Drain,
        answers: AnswerPort,
        asked: Sequence[A],
        end_offset: int,
        encode: Callable[[A, PutStatus], Buffers],
    ) -> None:
        """Answer the requests ``asked`` once the log up to ``end_offset`` is as safe as the settings demand of a send.

        At once, or later in a flush thread. ``end_offset`` 0: nothing was written. ``encode`` makes the answer for the
        status that the store reports.
        """
        store = self._store
        if end_offset and store.acknowledges_later:
            for each in asked:
                drain.release(each.task)
            store.acknowledge(
                end_offset,
                True,
                lambda status: answers.post(
                    [(each.task.connection, encode(each, status)) for each in asked if not each.task.request.oneway]
                ),
            )
            return
        reported = [PutStatus.PUT_OK]
        if end_offset:  # reported at once: PUT_OK, or that the log is fenced
            store.acknowledge(end_offset, True, reported.append)
        for each in asked:
            drain.answer(each.task, encode(each, reported[-1]))
