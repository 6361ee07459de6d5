"""What the broker knows about itself right now, and what it writes down about it every second and minute.

Lives here: ``Telemetry``: the worker that turns the windows, writes RocketMQ's lines and watches the append lock; the
snapshot that ``pocketmqTelemetry`` carries.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pocketmq.broker.metrics.interval_log import IntervalLog
from pocketmq.broker.metrics.slow_requests import SlowRequests
from pocketmq.broker.metrics.watermarks import Watermarks
from pocketmq.broker.request.executor import DrainExecutor
from pocketmq.broker.send.send_times import LOCK_HOLD_NS
from pocketmq.broker.stats import put_statistics
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.flush_times import FlushTimes
from pocketmq.broker.stats.put_statistics import PutStatistics
from pocketmq.broker.stats.stage_times import StageTimes
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.histogram import SLOTS
from pocketmq.common.runner import LoopMailbox, Runner, Worker
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.telemetry import (
    BucketCount,
    FlushTelemetry,
    PageCacheTelemetry,
    PairTelemetry,
    PoolTelemetry,
    RefusalCount,
    TelemetrySnapshot,
)
from pocketmq.store.message_store import MessageStore

STEP_MS: Final = 1000
SLOT_NS: Final = 10_000_000_000
MINUTE_NS: Final = 60_000_000_000


@dataclass(slots=True)
class TelemetrySources:
    """What telemetry reads. Nothing of it may block on a disk."""

    store: MessageStore
    counters: BrokerCounters
    executors: Sequence[DrainExecutor]
    swept: Mapping[str, int]
    """Requests answered by fast failure, by pair."""
    refusals: Callable[[], list[RefusalCount]]
    refused_requests: RefusedRequests
    stage_times: StageTimes | None
    put_times: PutStatistics
    flush_times: FlushTimes
    slow: SlowRequests
    watermarks: Watermarks
    intervals: IntervalLog | None = None


class Telemetry:
    """One worker with a step a second that never touches a disk, so that it goes on while the disk stands still.

    ``snapshot`` may be called from any thread; it takes about 3 ms, so not from the loop.
    """

    def __init__(
        self, sources: TelemetrySources, mailbox: LoopMailbox, clock: Clock, logger: Callable[[str], EventLog]
    ) -> None:
        """``logger`` gives the logs "store" and "lock"."""
        self.sources = sources
        self._mailbox = mailbox
        self._clock = clock
        self._store_log = logger("store")
        self._lock_log = logger("lock")
        self._worker: Worker | None = None
        now_ns = clock.monotonic_ns()
        self._slot_due_ns = now_ns + SLOT_NS
        self._slot_begins_ns = [now_ns]
        self._minute_due_ns = now_ns + MINUTE_NS
        self._printed = False
        self._told_hold_ns = 0
        self._tell_hold_again_ns = 0
        self._asked_loop_ns = 0
        self.loop_seen_ns = now_ns
        """When the event loop last answered."""
        self.loop_lag_ns = 0
        """How long its last answer took."""

    def start(self, runner: Runner) -> None:
        """Begin."""
        self._worker = runner.start("BrokerTelemetry", self.step, first_after_ms=STEP_MS)

    def stop(self) -> None:
        """End the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
            if self.sources.intervals is not None:
                self.sources.intervals.step(self._clock.monotonic_ns(), end=True)

    def step(self) -> float:
        """Do what is due; return the ms until the next step."""
        sources = self.sources
        now_ns = self._clock.monotonic_ns()
        if not self._asked_loop_ns:
            self._asked_loop_ns = now_ns
            self._mailbox.post(self._loop_answers, now_ns)
        sources.counters.sample(now_ns, self._clock.now_ms())
        sources.flush_times.look()
        sources.slow.tell_left_out()
        sources.refused_requests.tell()
        self._watch_lock(now_ns)
        sources.watermarks.write(now_ns)
        if now_ns >= self._slot_due_ns:
            self._slot_due_ns = now_ns + SLOT_NS
            self._rotate(now_ns)
            if sources.intervals is not None:
                sources.intervals.step(now_ns)
        if now_ns >= self._minute_due_ns:
            self._minute_due_ns = now_ns + MINUTE_NS
            self._print_minute(now_ns)
        return STEP_MS

    def _loop_answers(self, asked_ns: int) -> None:
        self.loop_seen_ns = self._clock.monotonic_ns()
        self.loop_lag_ns = self.loop_seen_ns - asked_ns
        self._asked_loop_ns = 0

    def _rotate(self, now_ns: int) -> None:
        sources = self.sources
        if sources.stage_times is not None:
            sources.stage_times.rotate()
        sources.put_times.rotate()
        sources.flush_times.rotate()
        self._slot_begins_ns = [*self._slot_begins_ns, now_ns][-SLOTS:]

    def _print_minute(self, now_ns: int) -> None:
        """Write RocketMQ's two lines (StoreStatsService), unless nothing was put or got for two minutes."""
        counters = self.sources.counters
        by_label = self.sources.put_times.end_minute()
        total = sum(count for _, count in by_label)
        names = ("put", "get_found_requests", "get_miss_requests", "get")
        put_tps, found_tps, miss_tps, transfered_tps = (counters.rates(name, now_ns)[1] for name in names)
        busy = bool(total or put_tps or found_tps or miss_tps or transfered_tps)
        if busy or self._printed:
            self._store_log.info(
                f"[PAGECACHERT] TotalPut {total}, PutMessageDistributeTime {put_statistics.text(by_label)}",
                total_put=total,
            )
            self._store_log.info(
                f"[STORETPS] put_tps {put_tps:.2f} get_found_tps {found_tps:.2f} get_miss_tps {miss_tps:.2f} "
                f"get_transfered_tps {transfered_tps:.2f}"
            )
        self._printed = busy

    def _watch_lock(self, now_ns: int) -> None:
        """Tell of an append that holds its lock for long while it does: once, then every ten seconds."""
        since_ns = self.sources.store.log.lock.held_since_ns
        if not since_ns or now_ns - since_ns < LOCK_HOLD_NS:
            return
        if since_ns != self._told_hold_ns or now_ns >= self._tell_hold_again_ns:
            self._told_hold_ns = since_ns
            self._tell_hold_again_ns = now_ns + SLOT_NS
            self._lock_log.warning(
                "append_lock_held",
                held_ms=(now_ns - since_ns) // 1_000_000,
                page_cache_busy=self.sources.store.is_os_page_cache_busy(),
            )

    # ---- the snapshot

    def snapshot(self) -> TelemetrySnapshot:
        """Return everything, at this moment."""
        sources = self.sources
        now_ns = self._clock.monotonic_ns()
        flush = sources.flush_times.window()
        store = sources.store
        return TelemetrySnapshot(
            window_s=round((now_ns - self._slot_begins_ns[0]) / 1e9, 3),
            pairs=[pair_telemetry(executor, sources.swept, now_ns) for executor in sources.executors],
            stages=sources.stage_times.rows() if sources.stage_times is not None else [],
            refusals=sources.refusals(),
            refused_requests=sources.refused_requests.snapshot(),
            page_cache=page_cache_telemetry(store),
            pool=pool_telemetry(store),
            flush=FlushTelemetry(
                mode=store.config.flush_disk_type,
                count=flush.count,
                p50_us=flush.percentile_ns(0.5) / 1000,
                p99_us=flush.percentile_ns(0.99) / 1000,
                max_us=flush.max_ns / 1000,
                behind_bytes=max(0, store.appended_offset - store.flushed_offset),
                fenced=store.log.fenced_by is not None,
            ),
            put_times=[BucketCount(label=label, count=count) for label, count in sources.put_times.window()],
            slowest=sources.slow.slowest(),
        )


def pair_telemetry(executor: DrainExecutor, swept: Mapping[str, int], now_ns: int) -> PairTelemetry:
    """Return the figures of one pair."""
    queue = executor.queue
    return PairTelemetry(
        name=executor.name,
        queue_size=len(queue),
        queue_capacity=queue.count_max,
        queue_bytes=queue.size_bytes,
        queue_bytes_max=queue.size_bytes_max,
        head_wait_ms=queue.head_wait_ms(now_ns),
        max_wait_ms=executor.max_wait_ms,
        served=executor.served,
        refused_full=executor.refused,
        swept=swept.get(executor.name, 0),
        drain_limit=executor.adaptive.count,
        drains=executor.drains,
    )


def page_cache_telemetry(store: MessageStore) -> PageCacheTelemetry:
    """Return the figures of the append lock."""
    lock = store.log.lock
    busy = store.is_os_page_cache_busy()
    return PageCacheTelemetry(
        busy=busy,
        lock_held_ms=store.lock_time_mills(),
        longest_hold_ms_last_minute=lock.longest_hold_ns() // 1_000_000,
        busy_episodes=lock.busy_episodes + busy,
        timeout_ms=store.config.os_page_cache_busy_timeout_mills,
    )


def pool_telemetry(store: MessageStore) -> PoolTelemetry | None:
    """Return the figures of the write-buffer pool, if there is one."""
    pool = store.pool
    if pool is None:
        return None
    return PoolTelemetry(
        size=pool.size,
        available=pool.available,
        locked=pool.is_locked,
        deficient=store.is_transient_store_pool_deficient(),
        uncommitted_bytes=max(0, store.appended_offset - store.committed_offset),
    )
