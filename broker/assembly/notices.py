"""What an operator is told about the broker as a whole, at its start and at its end.

Lives here: the notice of a write-buffer pool that is too small, and of a stop that waits for the disk.
"""

from typing import Final

from pocketmq.broker.metrics.thread_dump import thread_stacks
from pocketmq.common.events import EventLog
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore

POOL_SIZE_MIN: Final = 3
"""Buffers of a pool that works: one in use, one prepared, one free (sends are refused while none is)."""


def tell_of_small_pool(config: StoreConfig, log: EventLog) -> None:
    """Warn of a pool that refuses every send sooner or later; it is allowed, as with RocketMQ."""
    if config.transient_store_pool_enable and config.transient_store_pool_size < POOL_SIZE_MIN:
        log.warning(
            "write_buffer_pool_too_small",
            buffers=config.transient_store_pool_size,
            why="one buffer is appended to and one is prepared for the next file: then none is free, every send is "
            "refused, and nothing is appended that would free one",
            hint=f"set store.transient_store_pool_size to {POOL_SIZE_MIN} or more (default 5)",
        )


def tell_of_overdue_stop(store: MessageStore, stopping_thread: str, log: EventLog) -> None:
    """Say what a process that does not end waits for: a disk that stands still has no time limit."""
    only_in_memory = store.log.appended_offset - store.log.committed_offset
    hint = "wait for the disk, or send the signal again to end at once; the next start recovers the store"
    if only_in_memory:
        hint += f", without the {only_in_memory} bytes that are acknowledged and only in write buffers"
    log.error(
        "stop_overdue",
        why="the store is not closed yet: its disk is slow or stands still",
        hint=hint,
        uncommitted_bytes=only_in_memory,
        stack=thread_stacks().get(f"thread_{stopping_thread}", ""),
    )
