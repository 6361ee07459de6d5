"""The interface of a store of marks: which messages are being handled, by which owner, and which are done.

Lives here: ``MarkStore``, the protocol of all stores; ``Claim``, the answer to a claim; their errors.

The life of a mark:

    (none) --claim--> RUNNING (owner, lease) --finish--> DONE (until the window is over) --> (none)
                         |  |--release--> (none)             the handler failed: the next try may run
                         |--lease over, claim--> RUNNING     by another owner: TAKEN_OVER
"""

import enum
from collections.abc import Sequence
from typing import Protocol

from pocketmq.common.errors import Cause, PocketMQError


class MarkStoreUnavailable(PocketMQError):
    """A store of marks failed; the handler was not called, or its end was not recorded."""

    retriable = True
    default_cause = Cause.CONNECTION


class MarkStoreFull(PocketMQError):
    """A store of marks is full of claims whose handlers still run; nothing was claimed."""

    retriable = True
    default_cause = Cause.MEMORY_LIMIT


class Claim(enum.IntEnum):
    """The result of claiming one key."""

    NEW = 0
    """Claimed: no owner has handled it within the window."""
    TAKEN_OVER = 1
    """Claimed: an earlier owner neither finished nor gave up within its lease. Whether its effect happened is
    unknown."""
    BUSY = 2
    """Not claimed: another owner is handling it."""
    DONE = 3
    """Not claimed: it is done."""

    @property
    def is_ours(self) -> bool:
        """Whether the caller owns the key now."""
        return self is Claim.NEW or self is Claim.TAKEN_OVER


class MarkStore(Protocol):
    """Keys are texts of at most 200 characters, distinct within a call. ``owner`` is unique for each call of a
    handler. Times are ms since 1970, durations ms.

    Each method is atomic for each key: of two callers that claim one key at once, one gets it. All raise
    ``MarkStoreUnavailable``; ``claim`` also ``MarkStoreFull``. Bounded: marks older than their window are forgotten.
    """

    async def open(self) -> None:
        """Connect and make tables, before any other call. A second call does nothing."""
        ...

    async def claim(
        self, keys: Sequence[str], owner: str, now_ms: int, lease_ms: int, window_ms: int
    ) -> Sequence[Claim]:
        """Try to become the owner of each key for ``lease_ms``."""
        ...

    async def renew(self, keys: Sequence[str], owner: str, now_ms: int, lease_ms: int) -> None:
        """Let the claims that ``owner`` still has live for another ``lease_ms``."""
        ...

    async def finish(self, keys: Sequence[str], owner: str, now_ms: int, window_ms: int) -> Sequence[bool]:
        """Mark as done for ``window_ms``; False for a key that ``owner`` had lost to another owner meanwhile."""
        ...

    async def release(self, keys: Sequence[str], owner: str) -> None:
        """Give up the claims that ``owner`` still has."""
        ...

    async def purge(self, now_ms: int) -> int:
        """Forget some of the expired marks; return how many."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...
