"""What a start checks before it serves, and what a stop reports that does not end.

Lives here: settings that contradict each other, the memory of the machine, warnings.
"""

import os
from typing import Final

from pocketmq.broker.config import MASTER_ID, BrokerConfig
from pocketmq.broker.metrics.thread_dump import thread_stacks
from pocketmq.common.errors import ConfigError
from pocketmq.common.events import EventLog
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore

POOL_SIZE_MIN: Final = 3
"""Buffers of a working pool: one in use, one prepared, one free (without a free one sends are refused)."""
DEFAULT_MEMORY_BYTES: Final = 4 << 30
"""Assumed memory of the machine if the system does not report it."""


def check_together(config: BrokerConfig, store_config: StoreConfig) -> None:
    """Raise ``ConfigError`` for settings of broker and store that contradict each other."""
    if store_config.broker_role == "SLAVE" and config.broker_id == MASTER_ID:
        raise ConfigError(
            "bad setting",
            why=f"store.broker_role=SLAVE with broker.broker_id={MASTER_ID}, a master's (RocketMQ BrokerStartup)",
            hint="give the slave a broker_id above 0",
        )
    if store_config.broker_role != "SLAVE" and config.broker_id != MASTER_ID:
        raise ConfigError(
            "bad setting",
            why=f"store.broker_role={store_config.broker_role} with broker.broker_id={config.broker_id}, a slave's: "
            "clients would find no master to send to",
            hint=f"leave broker_id at {MASTER_ID}, or set store.broker_role=SLAVE",
        )


def machine_memory_bytes() -> int:
    """Return the memory of the machine, or ``DEFAULT_MEMORY_BYTES`` where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return DEFAULT_MEMORY_BYTES


def warn_of_small_pool(config: StoreConfig, log: EventLog) -> None:
    """Warn of a pool that sooner or later refuses every send; it is allowed, as with RocketMQ."""
    if config.transient_store_pool_enable and config.transient_store_pool_size < POOL_SIZE_MIN:
        log.warning(
            "write_buffer_pool_too_small",
            buffers=config.transient_store_pool_size,
            why="one buffer takes appends and one is prepared for the next file: then none is free, every send is "
            "refused, and no append can free one",
            hint=f"set store.transient_store_pool_size to {POOL_SIZE_MIN} or more (default 5)",
        )


def report_overdue_stop(store: MessageStore, stopping_thread: str, log: EventLog) -> None:
    """Log what a process that does not end waits for: a stalled disk has no time limit."""
    only_in_memory = store.log.appended_offset - store.log.committed_offset
    hint = "wait for the disk, or send the signal again to end at once; the next start recovers the store"
    if only_in_memory and not (store.pool is not None and store.pool.survives):
        hint += f", without the {only_in_memory} acknowledged bytes that are only in write buffers"
    log.error(
        "stop_overdue",
        why="the store is not closed yet: its disk is slow or stalled",
        hint=hint,
        uncommitted_bytes=only_in_memory,
        stack=thread_stacks().get(f"thread_{stopping_thread}", ""),
    )
