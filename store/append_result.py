"""The result of an append.

Lives here: ``PutStatus`` (RocketMQ's PutMessageStatus), ``AppendResult`` and ``PutTimes``.
"""

import enum
from dataclasses import dataclass, field

from pocketmq.common.errors import Cause, MessageIllegal, PocketMQError
from pocketmq.store.errors import PageCacheBusy, SegmentNotReady, StoreError


class PutStatus(enum.Enum):
    """RocketMQ's PutMessageStatus; ``code`` is its response code (RocketMQ SendMessageProcessor)."""

    PUT_OK = ("PUT_OK", 0, True)
    FLUSH_DISK_TIMEOUT = ("FLUSH_DISK_TIMEOUT", 10, True)
    FLUSH_SLAVE_TIMEOUT = ("FLUSH_SLAVE_TIMEOUT", 12, True)
    SLAVE_NOT_AVAILABLE = ("SLAVE_NOT_AVAILABLE", 11, True)
    SERVICE_NOT_AVAILABLE = ("SERVICE_NOT_AVAILABLE", 14, False)
    CREATE_MAPEDFILE_FAILED = ("CREATE_MAPEDFILE_FAILED", 1, False)
    MESSAGE_ILLEGAL = ("MESSAGE_ILLEGAL", 13, False)
    PROPERTIES_SIZE_EXCEEDED = ("PROPERTIES_SIZE_EXCEEDED", 13, False)
    OS_PAGE_CACHE_BUSY = ("OS_PAGE_CACHE_BUSY", 2, False)
    UNKNOWN_ERROR = ("UNKNOWN_ERROR", 1, False)

    def __init__(self, text: str, code: int, is_stored: bool) -> None:
        self.text = text
        self.code = code
        self.is_stored = is_stored
        """Whether the record is in this broker's log, even if a flush or a slave did not confirm it in time."""


@dataclass(slots=True)
class AppendResult:
    """The result of appending one group.

    ``end_offset`` is the physical offset behind its last byte: what ``acknowledge`` waits for. ``first_queue_offsets``
    and ``runs`` have one item per section; a run is (physical offset of its first record, records back to back from
    there), and a section has two when it crossed into the next segment. When ``status`` is not PUT_OK nothing of the
    group is visible; ``error`` explains why, ``cause`` is the code for programs. ``lock_wait_ns`` is the wait for the
    append lock, ``append_ns`` the time under it; both are set for refusals too, 0 for a refusal before the lock.
    """

    status: PutStatus
    end_offset: int = 0
    store_timestamp: int = 0
    first_queue_offsets: list[int] = field(default_factory=list)
    runs: list[list[tuple[int, int]]] = field(default_factory=list)
    error: str = ""
    cause: Cause = Cause.NONE
    retry_after_ms: int = 0
    lock_wait_ns: int = 0
    append_ns: int = 0


class PutTimes:
    """Where the time of one append went; ``CommitLog.append`` fills it, whether it succeeds or raises."""

    __slots__ = ("append_ns", "lock_wait_ns")

    def __init__(self) -> None:
        self.lock_wait_ns = 0
        self.append_ns = 0


def refused(error: PocketMQError, times: PutTimes | None = None) -> AppendResult:
    """Return the answer for an append that raised ``error``."""
    if isinstance(error, MessageIllegal):
        status = PutStatus.MESSAGE_ILLEGAL
    elif isinstance(error, PageCacheBusy):
        status = PutStatus.OS_PAGE_CACHE_BUSY
    elif isinstance(error, SegmentNotReady):
        status = PutStatus.CREATE_MAPEDFILE_FAILED
    elif isinstance(error, StoreError):
        status = PutStatus.SERVICE_NOT_AVAILABLE
    else:
        status = PutStatus.UNKNOWN_ERROR
    result = AppendResult(status, error=str(error), cause=error.cause, retry_after_ms=error.retry_after_ms)
    if times is not None:
        result.lock_wait_ns, result.append_ns = times.lock_wait_ns, times.append_ns
    return result
