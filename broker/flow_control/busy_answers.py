"""The words of flow control: RocketMQ's busy answers, each with its cause and with the moment to try again.

Lives here: one function per busy answer of facts §2.4, and the rule for ``retry_after_ms``, all of it.

``retry_after_ms`` is the earliest moment at which this broker may serve the same request, as far as it can know:

- ``queue_full``: 100. A full send queue has room again when its younger half has been served or swept: half of the
  200 ms that a send may wait.
- ``queue_timeout``: the longest wait of that queue, at most a second: then all that waits there now is served or swept.
- ``page_cache_busy``: as long as the present holder of the append lock has had it already (a stall that has lasted
  long will last), between 100 and 3000.
- ``no_write_buffer``: the commit interval, after which buffers come back.
- ``disk_error``, ``disk_full`` and the like: what the store says, else 1000.
- ``not_master``, ``shutting_down``: 1000: by then a client knows the route to another broker. ``starting``: 200.

It is the same for all that are refused together, so a client must spread what it does at that moment: the producer
waits a random time on top, and tries another broker first.
"""

from typing import Final

from pocketmq.broker.request.request_task import Refusal
from pocketmq.broker.stats.stage_times import Stage
from pocketmq.common.errors import Cause
from pocketmq.remoting.codes import ResponseCode

QUEUE_WAIT: Final = Stage.QUEUE_WAIT.label
LOCK_WAIT: Final = Stage.LOCK_WAIT.label
APPEND: Final = Stage.APPEND.label
RETRY_AFTER_TIMEOUT_MS_MAX: Final = 1000
RETRY_AFTER_BUSY_MS_MIN: Final = 100
RETRY_AFTER_BUSY_MS_MAX: Final = 3000
RETRY_AFTER_ERROR_MS: Final = 1000

_REJECT: Final = "[REJECTREQUEST]system busy, start flow control for a while"
_PC_SYNCHRONIZED: Final = "[PC_SYNCHRONIZED]broker busy, start flow control for a while"


def reject_page_cache_busy(held_ms: int) -> Refusal:
    """Return the answer at the door while the append lock has been held for ``held_ms``, too long."""
    return Refusal(
        int(ResponseCode.SYSTEM_BUSY), _REJECT, Cause.PAGE_CACHE_BUSY, retry_after_ms=retry_after_busy_ms(held_ms)
    )


def reject_no_write_buffer(commit_interval_ms: int) -> Refusal:
    """Return the answer at the door while the write-buffer pool has no free buffer."""
    return Refusal(
        int(ResponseCode.SYSTEM_BUSY), _REJECT, Cause.NO_WRITE_BUFFER, retry_after_ms=max(1, commit_interval_ms)
    )


def reject_slave() -> Refusal:
    """Return the answer at the door of a slave (RocketMQ 5.3)."""
    return Refusal(int(ResponseCode.SYSTEM_BUSY), _REJECT, Cause.NOT_MASTER, retry_after_ms=RETRY_AFTER_ERROR_MS)


def swept_page_cache_busy(held_ms: int, waited_ns: int, queue_size: int) -> Refusal:
    """Return the answer to a send that waited ``waited_ns`` and was taken out of its queue; ``queue_size`` is left."""
    return _swept("PCBUSY_CLEAN_QUEUE", waited_ns, queue_size, Cause.PAGE_CACHE_BUSY, retry_after_busy_ms(held_ms))


def swept_timeout(max_wait_ms: int, waited_ns: int, queue_size: int) -> Refusal:
    """Return the answer to a request that waited longer than ``max_wait_ms``."""
    retry_after_ms = min(max_wait_ms, RETRY_AFTER_TIMEOUT_MS_MAX)
    return _swept("TIMEOUT_CLEAN_QUEUE", waited_ns, queue_size, Cause.QUEUE_TIMEOUT, retry_after_ms)


def _swept(tag: str, waited_ns: int, queue_size: int, cause: Cause, retry_after_ms: int) -> Refusal:
    return Refusal(
        int(ResponseCode.SYSTEM_BUSY),
        f"[{tag}]broker busy, start flow control for a while, "
        f"period in queue: {waited_ns // 1_000_000}ms, size of queue: {queue_size}",
        cause,
        retry_after_ms=retry_after_ms,
        stages=((QUEUE_WAIT, waited_ns),),
    )


def retry_after_busy_ms(held_ms: int) -> int:
    """Return when to try again while the append lock has been held for ``held_ms``."""
    return min(max(held_ms, RETRY_AFTER_BUSY_MS_MIN), RETRY_AFTER_BUSY_MS_MAX)


def put_remark(status: str, error: str) -> str:
    """Return the text of a put status by its name, "" when the put is fine; ``error`` are the store's own words.

    RocketMQ SendMessageProcessor.handlePutMessageResult; the stored ones (FLUSH_DISK_TIMEOUT, ...) have no text there
    and get their name here.
    """
    if status == "PUT_OK":
        return ""
    if status == "OS_PAGE_CACHE_BUSY":
        return _PC_SYNCHRONIZED
    if status == "CREATE_MAPEDFILE_FAILED":
        return "create mapped file failed, server is busy or broken."
    if status == "SERVICE_NOT_AVAILABLE":
        return f"service not available now: {error}" if error else "service not available now"
    return error or status
