"""Errors that say what happened, why, and what to do.

Lives here: the root of every PocketMQ error, those that more than one layer raises, and ``DECODE_ERRORS``: all that
the decoding of a stranger's bytes may raise.
"""

import enum
from typing import ClassVar, Final

import msgspec

from pocketmq.common.printable import printable


class Stored(enum.Enum):
    """Whether the message behind an error is in the log of the broker that answered."""

    NO = "no"
    UNKNOWN = "unknown"
    YES = "yes"


class Cause(enum.Enum):
    """Why something was refused: a closed list, so that a program can branch on it."""

    NONE = "none"
    BAD_REQUEST = "bad_request"
    CODEC = "codec"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    PAGE_CACHE_BUSY = "page_cache_busy"
    NO_WRITE_BUFFER = "no_write_buffer"
    MEMORY_LIMIT = "memory_limit"
    CONNECTION_LIMIT = "connection_limit"
    QUOTA = "quota"
    DISK_FULL = "disk_full"
    DISK_ERROR = "disk_error"
    READ_ONLY = "read_only"
    FENCED = "fenced"
    FENCED_BY_EPOCH = "fenced_by_epoch"
    SHUTTING_DOWN = "shutting_down"
    NOT_MASTER = "not_master"
    NO_PERMISSION = "no_permission"
    NO_ROUTE = "no_route"
    TIMER_CONGESTED = "timer_congested"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    CORRUPT = "corrupt"
    CONFIG = "config"
    INTERNAL = "internal"


class PocketMQError(Exception):
    """Something PocketMQ could not do.

    ``what`` happened, ``why``, and ``hint``: what to do now. ``code`` is the response code that stands for it on the
    wire (RocketMQ's numbers, see ``pocketmq.remoting.codes``); ``retriable`` says whether the same call can succeed
    later without a change by the caller.
    """

    code: ClassVar[int] = 1  # SYSTEM_ERROR
    retriable: ClassVar[bool] = False
    default_cause: ClassVar[Cause] = Cause.INTERNAL

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        hint: str = "",
        cause: Cause | None = None,
        stored: Stored = Stored.NO,
        retry_after_ms: int = 0,
    ) -> None:
        super().__init__(what)  # all positional arguments there are: else an error could not be pickled or copied
        self.what = what
        self.why = why
        self.hint = hint
        self.cause = self.default_cause if cause is None else cause
        self.stored = stored
        self.retry_after_ms = retry_after_ms

    def __str__(self) -> str:
        text = self.what
        if self.why:
            text += f": {self.why}"
        if self.hint:
            text += f" ({self.hint})"
        return printable(text, keep="\n\t")  # parts of it come from peers, and it goes to terminals


class ConfigError(PocketMQError):
    """A setting is unknown, malformed or impossible together with another; the program does not start."""

    default_cause = Cause.CONFIG


class MessageIllegal(PocketMQError):
    """A message, record or batch breaks a rule; nothing of it was stored."""

    code = 13  # MESSAGE_ILLEGAL
    default_cause = Cause.BAD_REQUEST


class CorruptRecord(PocketMQError):
    """Bytes that should be a record are not: size, magic, CRC or lengths disagree."""

    default_cause = Cause.CORRUPT


class BytesIllegal(PocketMQError):
    """Bytes of a peer or a file do not decode to what they should be; nothing of them was taken over."""

    default_cause = Cause.CODEC


DECODE_ERRORS: Final = (
    msgspec.MsgspecError,
    UnicodeError,
    RecursionError,
    BytesIllegal,
)
"""All that a decoder raises because of the bytes it was given: catch these, never a part of them.

msgspec raises its own errors for malformed, truncated and wrongly typed input and for numbers out of range,
``UnicodeDecodeError`` for text that is no UTF-8, and ``RecursionError`` for a few hundred levels, also in fields that
it skips (measured with 0.22). What reads with ``json``, ``int``, ``base64`` or ``struct`` adds their errors to these.
"""
