"""The components of one store and their connections.

Lives here: ``StoreComponents``, which ``opening`` starts and ``closing`` stops in order; ``build``, which makes them.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.record_group import GroupSection
from pocketmq.common.redelivery import DelayLevels
from pocketmq.store.checkpointer import Checkpointer
from pocketmq.store.commitlog.allocate import SegmentAllocator
from pocketmq.store.commitlog.checksums import ChecksumLog
from pocketmq.store.commitlog.commit import CommitService
from pocketmq.store.commitlog.commit_log import CommitLog
from pocketmq.store.commitlog.flush import FlushService
from pocketmq.store.commitlog.group_commit import GroupCommit
from pocketmq.store.commitlog.group_feed import LogColumns
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.commitlog.surviving_pool import SurvivingPool
from pocketmq.store.commitlog.write_buffer_pool import WriteBufferPool
from pocketmq.store.config import StoreConfig
from pocketmq.store.consumequeue.consume_queues import ConsumeQueues
from pocketmq.store.disk.file_system import FileLock
from pocketmq.store.disk.memory_lock import Memory
from pocketmq.store.dispatch import Dispatcher
from pocketmq.store.environment import StoreEnvironment
from pocketmq.store.index.index import KeyIndex
from pocketmq.store.retention.retention import Retention
from pocketmq.store.short_append import ShortAppend


@dataclass(slots=True)
class StoreComponents:
    """Everything that one store runs on. ``lock`` is held while the store is open."""

    environment: StoreEnvironment
    segments: SegmentQueue
    pool: WriteBufferPool | None
    allocator: SegmentAllocator
    checksums: ChecksumLog | None
    delay_levels: DelayLevels
    queues: ConsumeQueues
    log: CommitLog
    index: KeyIndex
    dispatcher: Dispatcher
    checkpointer: Checkpointer
    retention: Retention
    flush: FlushService
    commit: CommitService | None
    group_commit: GroupCommit | None
    short: ShortAppend
    lock: FileLock | None = None

    def settings_changed(self, config: StoreConfig) -> None:
        """Take what can change while the store is open, and wake the workers that wait. Any thread."""
        self.flush.settings_changed(config)
        if self.commit is not None:
            self.commit.settings_changed(config)
        self.allocator.settings_changed(config)
        self.retention.settings_changed(config)
        self.log.lock.limit_by(config.os_page_cache_busy_timeout_mills)

    @property
    def must_sync_on_close(self) -> bool:
        """Whether a clean stop syncs the log to disk instead of leaving it to the system."""
        return self.environment.config.sync_on_close or self.group_commit is not None


def build(
    environment: StoreEnvironment, memory: Memory, random_bytes: Callable[[int], bytes] = os.urandom
) -> StoreComponents:
    """Make and connect the components. Touches no file."""
    config, paths, files = environment.config, environment.paths, environment.file_system
    clock, runner, error_log = environment.clock, environment.runner, environment.error_log
    segment_bytes = config.mapped_file_size_commit_log
    segments = SegmentQueue(files, paths.commit_log, segment_bytes)
    pool: WriteBufferPool | None = None
    if config.transient_store_pool_enable:
        size, buffer_bytes = config.transient_store_pool_size, config.pool_buffer_bytes
        if config.pool_survives:
            pool = SurvivingPool(environment, memory, random_bytes)
        else:
            pool = WriteBufferPool(size, buffer_bytes, memory, clock, environment.log)
    allocator = SegmentAllocator(config, files, paths.commit_log, runner, error_log, pool=pool, memory=memory)
    checksums = ChecksumLog(files, paths.checksums, segment_bytes) if config.group_checksums else None
    delay_levels = DelayLevels(config.message_delay_level)

    def deliver_times(section: GroupSection, group: LogColumns) -> NDArray[np.int64]:
        """Return when messages of a delay level are due: the tags codes of their entries (RocketMQ
        ScheduleMessageService.computeDeliverTimestamp).
        """
        delay_ms = delay_levels.delay_ms(section.queue_id + 1)
        if group.store_timestamps is None:
            return np.full(section.count, group.store_timestamp + delay_ms, np.int64)
        return group.store_timestamps[section.first : section.first + section.count] + delay_ms

    queues = ConsumeQueues(config, files, clock, runner, tags_code_of=deliver_times, log=error_log)
    log = CommitLog(environment, segments, allocator, checksums, queues.next_offset, pool=pool)
    index = KeyIndex(config, files, clock, runner, log, log=error_log)
    dispatcher = Dispatcher(queues, log, runner, index=index, log=error_log)
    checkpointer = Checkpointer(environment, log, queues, index, dispatcher)
    return StoreComponents(
        environment=environment,
        segments=segments,
        pool=pool,
        allocator=allocator,
        checksums=checksums,
        delay_levels=delay_levels,
        queues=queues,
        log=log,
        index=index,
        dispatcher=dispatcher,
        checkpointer=checkpointer,
        retention=Retention(environment, segments, queues, index, checksums, checkpointer),
        flush=FlushService(config, log, checksums, clock, error_log, dispatcher.nudge),
        commit=None if pool is None else CommitService(config, log, clock),
        group_commit=GroupCommit(log, clock, config.sync_flush_timeout, environment.log)
        if config.flush_disk_type == "SYNC_FLUSH"
        else None,
        short=ShortAppend(log, dispatcher, index, environment.gate, clock, pool is not None),
    )
