"""RocketMQ's busy answers, each with its cause and the time of the next try.

Lives here: one function per busy answer of RocketMQ. Texts, codes and the bounds of ``retry_after_ms`` come from the
table in ``pocketmq.common.refusals``.

``retry_after_ms`` is the earliest time at which this broker may serve the same request, as far as it can know. After
``queue_full`` a send queue has room again when its younger half has been served or has expired; after ``queue_timeout``
when all requests that wait now have been; a stall of the append lock that has lasted long is expected to last.

All requests refused together get the same value, so clients must spread their retries: the producer adds a random
delay, and tries another broker first.
"""

from typing import Final

from pocketmq.broker.request.request_task import Refusal
from pocketmq.broker.stats.stage_times import Stage
from pocketmq.common.errors import Cause
from pocketmq.common.refusals import (
    AFTER_ERROR,
    CREATE_FILE_FAILED,
    NOT_AVAILABLE,
    PAGE_CACHE_SWEPT,
    PAGE_CACHE_SYNCHRONIZED,
    REFUSALS,
    REJECT_REQUEST,
    TIMEOUT_SWEPT,
    Text,
)

QUEUE_WAIT: Final = Stage.QUEUE_WAIT.label
LOCK_WAIT: Final = Stage.LOCK_WAIT.label
APPEND: Final = Stage.APPEND.label
RETRY_AFTER_TIMEOUT_MS_MAX: Final = REFUSALS[Cause.QUEUE_TIMEOUT].retry_after.ms_max
RETRY_AFTER_BUSY_MS_MIN: Final = REFUSALS[Cause.PAGE_CACHE_BUSY].retry_after.ms_min
RETRY_AFTER_BUSY_MS_MAX: Final = REFUSALS[Cause.PAGE_CACHE_BUSY].retry_after.ms_max
RETRY_AFTER_ERROR_MS: Final = AFTER_ERROR.ms_max


def reject_page_cache_busy(held_ms: int) -> Refusal:
    """Return the answer of admission control when the append lock has been held too long: for ``held_ms``."""
    return _rejected(Cause.PAGE_CACHE_BUSY, retry_after_busy_ms(held_ms))


def reject_no_write_buffer(commit_interval_ms: int) -> Refusal:
    """Return the answer of admission control while the write-buffer pool has no free buffer."""
    return _rejected(Cause.NO_WRITE_BUFFER, max(1, commit_interval_ms))


def reject_slave() -> Refusal:
    """Return the answer of a slave's admission control (RocketMQ 5.3)."""
    return _rejected(Cause.NOT_MASTER, RETRY_AFTER_ERROR_MS)


def _rejected(cause: Cause, retry_after_ms: int) -> Refusal:
    return Refusal(REJECT_REQUEST.code, REJECT_REQUEST.template, cause, retry_after_ms=retry_after_ms)


def expired_page_cache_busy(held_ms: int, waited_ns: int, queue_size: int) -> Refusal:
    """Return the answer to a send removed from its queue after ``waited_ns``; ``queue_size`` requests are left."""
    return _expired(PAGE_CACHE_SWEPT, waited_ns, queue_size, Cause.PAGE_CACHE_BUSY, retry_after_busy_ms(held_ms))


def expired_timeout(max_wait_ms: int, waited_ns: int, queue_size: int) -> Refusal:
    """Return the answer to a request that waited longer than ``max_wait_ms``."""
    retry_after_ms = min(max_wait_ms, RETRY_AFTER_TIMEOUT_MS_MAX)
    return _expired(TIMEOUT_SWEPT, waited_ns, queue_size, Cause.QUEUE_TIMEOUT, retry_after_ms)


def _expired(text: Text, waited_ns: int, queue_size: int, cause: Cause, retry_after_ms: int) -> Refusal:
    return Refusal(
        text.code,
        text.template % (waited_ns // 1_000_000, queue_size),
        cause,
        retry_after_ms=retry_after_ms,
        stages=((QUEUE_WAIT, waited_ns),),
    )


def retry_after_busy_ms(held_ms: int) -> int:
    """Return the ms until the next try when the append lock has been held for ``held_ms``."""
    return min(max(held_ms, RETRY_AFTER_BUSY_MS_MIN), RETRY_AFTER_BUSY_MS_MAX)


def put_remark(status: str, error: str) -> str:
    """Return the text of a put status by its name, "" for PUT_OK; ``error`` is the store's own text.

    RocketMQ SendMessageProcessor.handlePutMessageResult; statuses of stored messages (FLUSH_DISK_TIMEOUT, ...) have no
    text there and get their name here.
    """
    if status == "PUT_OK":
        return ""
    if status == "OS_PAGE_CACHE_BUSY":
        return PAGE_CACHE_SYNCHRONIZED.template
    if status == "CREATE_MAPEDFILE_FAILED":
        return CREATE_FILE_FAILED.template
    if status == "SERVICE_NOT_AVAILABLE":
        said = error.removeprefix("service not available").removeprefix(" now").removeprefix(": ")  # not twice
        return f"{NOT_AVAILABLE.template}: {said}" if said else NOT_AVAILABLE.template
    return error or status
