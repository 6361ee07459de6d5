"""Handlers whose effect happens once, however often their message comes: see docs/consuming.md, "Idempotence"."""

from pocketmq.client.idempotence.idempotent import Idempotent, UnknownEffect
from pocketmq.client.idempotence.memory_store import MemoryStore
from pocketmq.client.idempotence.opening import open_store
from pocketmq.client.idempotence.store import Claim, MarkStore, MarkStoreFull, MarkStoreUnavailable

__all__ = [
    "Claim",
    "Idempotent",
    "MarkStore",
    "MarkStoreFull",
    "MarkStoreUnavailable",
    "MemoryStore",
    "UnknownEffect",
    "open_store",
]
