"""The metrics of the store and the process: append lock, log, write buffers, disks, connections; one row each.

Lives here: the groups of ``STORE`` and ``PROCESS``.
"""

from typing import Final

from pocketmq.broker.metrics.registry import Counter, Gauge, Group, Unit, only
from pocketmq.broker.metrics.sources import Process, Sources
from pocketmq.store.commitlog.write_buffer_pool import WriteBufferPool
from pocketmq.store.message_store import MessageStore

PAGE_CACHE: Final[Group[MessageStore]] = Group(
    only(lambda look: look.sources.store),
    (
        Gauge(
            "page_cache_busy",
            "1 while the append lock is held for too long.",
            lambda store: store.is_os_page_cache_busy(),
            Unit.FLAG,
            note="1 while an append has held its lock for longer than `os_page_cache_busy_timeout_mills`",
            telemetry="busy",
        ),
        Counter(
            "page_cache_busy_episodes",
            "Holds above the limit.",
            lambda store: store.log.lock.busy_episodes + store.is_os_page_cache_busy(),
            note="times that this happened",
            telemetry="busy_episodes",
        ),
        Counter(
            "",
            "Holds above the limit that have ended.",
            lambda store: store.log.lock.busy_episodes,
            interval="page_cache_busy_episodes",
        ),
        Gauge(
            "append_lock_held_seconds",
            "Time for which its present holder has had the append lock.",
            lambda store: store.lock_time_mills(),
            note="how long the present holder has had it, 0 when free",
            telemetry="lock_held_ms",
            runtime="pageCacheLockTimeMills",
            interval="lock_held_now_ms",
        ),
        Gauge(
            "append_lock_longest_hold_seconds",
            "Longest hold of the last minute.",
            lambda store: store.log.lock.longest_hold_ns() // 1_000_000,
            telemetry="longest_hold_ms_last_minute",
        ),
        Gauge(
            "",
            "Hold from which the page cache counts as busy.",
            lambda store: store.config.os_page_cache_busy_timeout_mills,
            Unit.MS,
            telemetry="timeout_ms",
        ),
    ),
    telemetry="page_cache",
)
LOG: Final[Group[MessageStore]] = Group(
    only(lambda look: look.sources.store),
    (
        Gauge("log_appended_offset", "End of the accepted records.", lambda store: store.appended_offset),
        Gauge(
            "log_committed_offset",
            "End of the readable records.",
            lambda store: store.committed_offset,
            note="end of what can be read; below the one above only with a write-buffer pool",
            runtime="commitLogMaxOffset",
        ),
        Gauge("log_flushed_offset", "End of the durable records.", lambda store: store.flushed_offset),
        Gauge("log_dispatched_offset", "End of the records that consumers see.", lambda store: store.dispatched_offset),
        Gauge(
            "log_fenced",
            "1 after a failed sync: the log accepts no more records.",
            lambda store: store.log.fenced_by is not None,
            Unit.FLAG,
            note="1 after a failed sync: the log takes nothing more until a restart",
            telemetry="fenced",
        ),
        Gauge(
            "",
            "Accepted and not yet durable.",
            lambda store: max(0, store.appended_offset - store.flushed_offset),
            Unit.BYTES,
            telemetry="behind_bytes",
            runtime="remainHowManyDataToFlush",
            interval="not_flushed_bytes",
        ),
        Gauge(
            "",
            "Accepted and not yet readable.",
            lambda store: max(0, store.appended_offset - store.committed_offset),
            Unit.BYTES,
            runtime="remainHowManyDataToCommit",
        ),
        Gauge(
            "",
            "Readable and not yet seen by consumers.",
            lambda store: max(0, store.committed_offset - store.dispatched_offset),
            Unit.BYTES,
            runtime="dispatchBehindBytes",
            interval="dispatch_behind_bytes",
        ),
    ),
    telemetry="flush",
)
POOL: Final[Group[tuple[WriteBufferPool, MessageStore]]] = Group(
    only(lambda look: None if look.sources.store.pool is None else (look.sources.store.pool, look.sources.store)),
    (
        Gauge(
            "write_buffers",
            "Buffers of the write-buffer pool.",
            lambda pool: pool[0].size,
            note="size of the write-buffer pool; these four are missing without one",
            telemetry="size",
            interval="write_buffers",
        ),
        Gauge(
            "write_buffers_available",
            "Free write buffers.",
            lambda pool: pool[0].available,
            note="free buffers; 0 refuses sends",
            telemetry="available",
            runtime="remainTransientStoreBufferNumbs",
            interval="write_buffers_available",
        ),
        Gauge(
            "write_buffers_locked",
            "1 if all write buffers are locked in RAM.",
            lambda pool: pool[0].is_locked,
            Unit.FLAG,
            telemetry="locked",
        ),
        Gauge(
            "",
            "They outlive the process.",
            lambda pool: pool[0].survives,
            Unit.FLAG,
            telemetry="survives",
        ),
        Gauge(
            "",
            "They outlive the process, are in memory and locked.",
            lambda pool: pool[0].cannot_stall,
            Unit.FLAG,
            telemetry="cannot_stall",
        ),
        Gauge(
            "write_buffers_uncommitted_bytes",
            "Bytes in write buffers that are not yet in the file.",
            lambda pool: max(0, pool[1].appended_offset - pool[1].committed_offset),
            note="bytes that a crash of the machine would lose; with anonymous buffers, one of this process",
            telemetry="uncommitted_bytes",
            interval="uncommitted_bytes",
        ),
        Gauge(
            "",
            "True while sends are refused for lack of buffers.",
            lambda pool: pool[1].is_transient_store_pool_deficient(),
            Unit.FLAG,
            telemetry="deficient",
        ),
    ),
    telemetry="pool",
)
SERVER: Final[Group[Process]] = Group(
    only(lambda look: look.sources.process),
    (
        Gauge(
            "commit_log_disk_used_ratio",
            "Used share of the disk, -1 if unknown.",
            lambda process: process.disk.commit_log.ratio,
            note="0 to 1, checked every 10 s; -1 unknown",
            runtime="commitLogDiskRatio",
        ),
        Gauge(
            "commit_log_disk_free_bytes",
            "Free bytes of the disk, -1 unknown.",
            lambda process: process.disk.commit_log.free_bytes,
            runtime="commitLogDiskFreeBytes",
        ),
        Gauge(
            "consume_queue_disk_used_ratio",
            "Used share of the disk of the consume queues, -1 if unknown.",
            lambda process: process.disk.consume_queues.ratio,
            note="the same where the consume queues are",
            runtime="consumeQueueDiskRatio",
        ),
        Counter(
            "oneway_dropped",
            "Oneway requests dropped by admission control.",
            lambda process: process.admission.oneway_dropped,
            note="oneway requests dropped by admission control, without an answer as always",
        ),
        Counter("thread_dumps", "Thread dumps written while refusing.", lambda process: process.thread_dumper.dumps),
        Gauge("connections", "Open connections.", lambda process: len(process.server.connections)),
        Counter(
            "connections_refused",
            "Connections closed at once because there were too many.",
            lambda process: process.server.refused_count,
            note="connections closed at once: more than `connections_max`",
        ),
        Gauge("half_frame_bytes", "Memory of half-received frames.", lambda process: process.server.budget.used_bytes),
        Gauge(
            "unwritten_bytes",
            "Bytes of answers that their peers have not read.",
            lambda process: process.server.unwritten_bytes,
        ),
        Gauge(
            "client_entries",
            "(group, connection) entries of clients.",
            lambda process: len(process.clients),
            note="(group, connection) entries of producers and consumers",
        ),
        Gauge("topics", "Topics.", lambda process: len(process.topics), runtime="topics"),
        Gauge("pulls_held", "Pulls that wait for messages.", lambda process: process.pulls.count, runtime="pullHolds"),
        Gauge(
            "start_time_seconds",
            "Start, Unix time.",
            lambda process: process.boot_ms,
            note="start of the broker, Unix time",
            runtime="bootTimestamp",
        ),
        Counter(
            "task_failures",
            "Unexpected errors in background tasks and threads.",
            lambda process: [((task,), count) for task, count in process.supervisor.failures.items()],
            labels=("task",),
            note="unexpected errors in a background task or thread, which was started again. The log has each as "
            "`task_failed`",
        ),
    ),
)
LOOP: Final[Group[Sources]] = Group(
    only(lambda look: look.sources),
    (
        Gauge(
            "loop_lag_seconds",
            "Time that the loop took for its last turn.",
            lambda sources: sources.loop.lag_ns / 1e9,
            Unit.SECONDS,
            note="how long the event loop took to answer the last question, asked once a second",
        ),
        Gauge(
            "loop_tasks",
            "Tasks of the event loop.",
            lambda sources: sources.loop.tasks,
            note="asyncio tasks of the broker, counted once a second: follows the connections and held pulls",
        ),
    ),
)
STORE: Final = (PAGE_CACHE, LOG, POOL)
PROCESS: Final = (SERVER, LOOP)
"""Each in the order of the documentation."""
