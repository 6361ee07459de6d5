"""Marks in memory: the ids of recent messages.

Lives here: ``MemoryStore``.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from pocketmq.client.idempotence.store import Claim, MarkStoreFull

MAX_KEYS: Final = 100_000


class MemoryStore:
    """Keeps duplicates away within one process, while it lives and remembers.

    At most ``max_keys`` marks: beyond that the one done first is forgotten before its window is over
    (``evicted`` counts those). Belongs to one event loop.
    """

    def __init__(self, max_keys: int = MAX_KEYS) -> None:
        self.max_keys = max_keys
        self.evicted = 0
        self._running: dict[str, tuple[str, int]] = {}
        self._done: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._running) + len(self._done)

    async def open(self) -> None:
        """Nothing to open."""

    async def claim(
        self, keys: Sequence[str], owner: str, now_ms: int, lease_ms: int, window_ms: int
    ) -> Sequence[Claim]:
        """Claim keys; all of them or, when the store is full, none."""
        claims = [self._state(key, now_ms) for key in keys]
        wanted = sum(claim.is_ours for claim in claims)
        if len(self._running) + wanted > self.max_keys:
            raise MarkStoreFull(
                "message not claimed", why=f"{len(self._running)} handlers run", hint="raise max_keys of MemoryStore"
            )
        for key, claim in zip(keys, claims, strict=True):
            if claim.is_ours:
                self._done.pop(key, None)
                self._running[key] = (owner, now_ms + lease_ms)
        while len(self) > self.max_keys:
            self._done.popitem(last=False)
            self.evicted += 1
        return claims

    def _state(self, key: str, now_ms: int) -> Claim:
        held = self._running.get(key)
        if held is not None:
            return Claim.BUSY if held[1] > now_ms else Claim.TAKEN_OVER
        return Claim.DONE if self._done.get(key, 0) > now_ms else Claim.NEW

    async def renew(self, keys: Sequence[str], owner: str, now_ms: int, lease_ms: int) -> None:
        """Renew held claims."""
        for key in keys:
            if self._holds(key, owner):
                self._running[key] = (owner, now_ms + lease_ms)

    async def finish(self, keys: Sequence[str], owner: str, now_ms: int, window_ms: int) -> Sequence[bool]:
        """Mark held claims as done."""
        held = [self._holds(key, owner) for key in keys]
        for key, is_held in zip(keys, held, strict=True):
            if is_held:
                del self._running[key]
                self._done[key] = now_ms + window_ms
        return held

    async def release(self, keys: Sequence[str], owner: str) -> None:
        """Forget held claims."""
        for key in keys:
            if self._holds(key, owner):
                del self._running[key]

    def _holds(self, key: str, owner: str) -> bool:
        held = self._running.get(key)
        return held is not None and held[0] == owner

    async def purge(self, now_ms: int) -> int:
        """Forget done marks whose window is over."""
        purged = 0
        while self._done and next(iter(self._done.values())) <= now_ms:
            self._done.popitem(last=False)
            purged += 1
        return purged

    async def close(self) -> None:
        """Forget everything."""
        self._running.clear()
        self._done.clear()
