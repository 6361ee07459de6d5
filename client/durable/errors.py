"""Errors of the durable retry: what a store could not do, and what the caller of a send gets then.

Lives here: ``RetryStoreError`` and its kinds, ``NotSafe``, ``GivenUpError``.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from pocketmq.client.errors import ClientError, SendFailed
from pocketmq.common.errors import Cause, PocketMQError, Stored
from pocketmq.common.former_names import renamed_objects

FORMER_NAMES: Final = {
    "GivenUp": "GivenUpError",
    "StoreCorrupt": "RetryStoreCorrupt",
    "StoreFull": "RetryStoreFull",
    "StoreLocked": "RetryStoreLocked",
    "StoreRefused": "RetryStoreRefused",
    "StoreUnreachable": "RetryStoreUnreachable",
}
"""Names of the version before, which still work in this one."""


class RetryStoreError(ClientError):
    """A call of the retry store failed. Do not rely on any message it was to add."""

    retriable = True


class RetryStoreFull(RetryStoreError):
    """A limit of the retry store (messages, bytes, keys) is reached, or its disk or memory is full."""

    default_cause = Cause.QUEUE_FULL


class RetryStoreLocked(RetryStoreError):
    """Another process, or another producer of this one, owns the retry store.

    ``owner`` names it, as far as it is known. ``left_ms``: the ownership ends within so many ms unless the owner shows
    a sign of life: check again then. 0: the owner lives, or its ownership does not end by itself.
    """

    default_cause = Cause.CONFIG

    def __init__(self, what: str, *, why: str = "", hint: str = "", owner: str = "", left_ms: int = 0) -> None:
        super().__init__(what, why=why, hint=hint)
        self.owner = owner
        self.left_ms = left_ms


class RetryStoreCorrupt(RetryStoreError):
    """The contents of the retry store are damaged."""

    default_cause = Cause.CORRUPT


class RetryStoreUnreachable(RetryStoreError):
    """The retry store does not answer: its server is unreachable, its disk fails, or it is not open."""

    default_cause = Cause.CONNECTION


class RetryStoreRefused(RetryStoreError):
    """The retry store works, but refuses this message."""

    retriable = False
    default_cause = Cause.BAD_REQUEST


class EntryUnreadable(RetryStoreError):
    """One entry of the store is no message: damaged, or written by a later version."""

    retriable = False
    default_cause = Cause.CORRUPT


class NotSafe(SendFailed):
    """A message was not delivered, and the retry store did not take it either: only the caller has it now.

    ``send_error``: why it was not delivered; ``store_error``: why it is not kept; ``attempts``, ``stored``, ``cause``
    and ``retry_after_ms`` are those of the send.
    """

    default_cause: ClassVar[Cause] = Cause.NONE

    def __init__(self, what: str, *, send_error: PocketMQError, store_error: PocketMQError) -> None:
        stored = send_error.stored
        if stored is Stored.UNKNOWN:
            hint = "it is not safe: a broker may or may not have it; keep it, and send it again"
        else:
            hint = "it is not safe: no broker has it, and it will not be resent; keep it, and send it again"
        super().__init__(
            what,
            attempts=getattr(send_error, "attempts", ()),
            answer_code=getattr(send_error, "answer_code", send_error.code),
            hint=hint,
            cause=send_error.cause,
            stored=stored,
            retry_after_ms=send_error.retry_after_ms,
        )
        self.send_error = send_error
        self.store_error = store_error

    def __str__(self) -> str:
        return f"{self.what}\n  send: {self.send_error}\n  retry store: {self.store_error}\n  ({self.hint})"


def not_safe(topic: str, send_error: PocketMQError, store_error: PocketMQError) -> NotSafe:
    """Return the error for a message that neither a broker nor the retry store took."""
    what = f"message for {topic} is NOT safe: not delivered, and not kept for a retry"
    return NotSafe(what, send_error=send_error, store_error=store_error)


class GivenUpError(ClientError):
    """A message in the retry store is no longer resent: its attempts or its time are used up, or a broker refused it
    for good. It stays in the store as given up unless ``on_given_up`` took it."""

    default_cause = Cause.TIMEOUT


if not TYPE_CHECKING:
    __getattr__ = renamed_objects(__name__, FORMER_NAMES)
