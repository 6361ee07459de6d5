"""What a put's outcome means to the client: a refusal, or an answer now or later.

Lives here: ``PutOutcome``, which every processor that writes to the log uses, and ``confirm_topics``, the step before
an answer speaks of a new topic.
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
    """Checks that let topics pass which may not be on disk yet; see ``SendChecks``."""

    is_unsure: bool

    def confirm(self) -> None:
        """Learn that the topics are on disk."""
        ...

    def forget(self) -> None:
        """Learn that the topics could not be written."""
        ...


class Asked(Protocol):
    """A request whose answer waits for the log."""

    @property
    def task(self) -> Task:
        """The request."""
        ...


A = TypeVar("A", bound=Asked)


def confirm_topics(checks: Unsure, persist_topics: Callable[[], object]) -> None:
    """Write the topics that passed ``checks`` to disk, before an answer speaks of one that a crash would forget.

    Raises what ``persist_topics`` raises; then the topics are unsure again.
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

    ``refused_by_role`` says why this broker must not store anything now: it is a slave, it was replaced, or it hands
    over to another master.
    """

    def __init__(self, store: MessageStore, refused_by_role: Callable[[], Refusal | None]) -> None:
        self._store = store
        self._refused_by_role = refused_by_role

    def at_door(self) -> Refusal | None:
        """Return why no request may enter the queue now: the page cache is busy or no write buffer is free (RocketMQ
        SendMessageProcessor.rejectRequest), or the role forbids it."""
        store = self._store
        if store.is_os_page_cache_busy():
            return reject_page_cache_busy(store.lock_time_mills())
        if store.is_transient_store_pool_deficient():
            return reject_no_write_buffer(store.config.commit_interval_commit_log)
        return self._refused_by_role()

    def refusal(self, status: PutStatus, result: AppendResult | None = None) -> Refusal:
        """Return the refusal that ``status`` stands for.

        ``result`` is what ``append`` returned, where that is known: if it has the same status, the store took nothing.
        Any other status came while the answer waited: the message is stored (a timeout), or it is unknown whether it
        is (the log was fenced, or this master was replaced).
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
        """Answer every request of ``asked`` when the log is as safe up to ``end_offset`` as a send's would be.

        At once, or later in a flush thread. 0: nothing was written, so nothing has to be safe. ``encode`` makes the
        answer for the status that the store reports.
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
