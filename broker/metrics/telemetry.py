"""The present state of the broker, and the lines that it logs every second and minute.

Lives here: ``Telemetry``: the worker that turns the windows, writes RocketMQ's lines and watches the append lock; the
snapshot in the runtime table's key ``pocketmqTelemetry``.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from pocketmq.broker.metrics.interval_log import IntervalLog
from pocketmq.broker.metrics.request_metrics import PAIRS
from pocketmq.broker.metrics.sources import Reading, Sources
from pocketmq.broker.metrics.store_metrics import LOG, PAGE_CACHE, POOL
from pocketmq.broker.metrics.watermarks import Watermarks
from pocketmq.broker.send.send_times import LOCK_HOLD_NS
from pocketmq.broker.stats import put_statistics
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.histogram import SLOTS
from pocketmq.common.runner import LoopMailbox, Runner, Worker
from pocketmq.remoting.telemetry import (
    BucketCount,
    FlushTelemetry,
    PageCacheTelemetry,
    PairTelemetry,
    PoolTelemetry,
    TelemetrySnapshot,
)

STEP_MS: Final = 1000
SLOT_NS: Final = 10_000_000_000
MINUTE_NS: Final = 60_000_000_000


class Telemetry:
    """One worker with a step a second that never touches a disk, so that it continues while the disk stands still.

    ``snapshot`` may be called from any thread; it takes about 3 ms, so not from the loop.
    """

    def __init__(
        self,
        sources: Sources,
        watermarks: Watermarks,
        intervals: IntervalLog | None,
        mailbox: LoopMailbox,
        clock: Clock,
        logger: Callable[[str], EventLog],
    ) -> None:
        """``logger`` returns the logs "store" and "lock"."""
        self.sources = sources
        self._watermarks = watermarks
        self._intervals = intervals
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
        self._logged_hold_ns = 0
        self._log_hold_again_ns = 0
        self._asked_loop_ns = 0
        sources.loop.seen_ns = now_ns

    def start(self, runner: Runner) -> None:
        """Begin."""
        self._worker = runner.start("BrokerTelemetry", self.step, first_after_ms=STEP_MS)

    def stop(self) -> None:
        """End the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
            if self._intervals is not None:
                self._intervals.step(self._clock.monotonic_ns(), end=True)

    def step(self) -> float:
        """Do what is due; return the ms until the next step."""
        sources = self.sources
        now_ns = self._clock.monotonic_ns()
        if not self._asked_loop_ns:
            self._asked_loop_ns = now_ns
            self._mailbox.post(self._loop_answers, now_ns)
        sources.counters.sample(now_ns, self._clock.now_ms())
        sources.flush_times.look()
        sources.slow.log_left_out()
        sources.refused_requests.log_left_out()
        self._watch_lock(now_ns)
        self._watermarks.write(now_ns)
        if now_ns >= self._slot_due_ns:
            self._slot_due_ns = now_ns + SLOT_NS
            self._rotate(now_ns)
            if self._intervals is not None:
                self._intervals.step(now_ns)
        if now_ns >= self._minute_due_ns:
            self._minute_due_ns = now_ns + MINUTE_NS
            self._print_minute(now_ns)
        return STEP_MS

    def _loop_answers(self, asked_ns: int) -> None:
        loop = self.sources.loop
        loop.seen_ns = self._clock.monotonic_ns()
        loop.lag_ns = loop.seen_ns - asked_ns
        with contextlib.suppress(RuntimeError):  # a mailbox may be served without an event loop, as in a simulation
            loop.tasks = len(asyncio.all_tasks())
        self._asked_loop_ns = 0

    def _rotate(self, now_ns: int) -> None:
        sources = self.sources
        if sources.stage_times is not None:
            sources.stage_times.rotate()
        sources.put_times.rotate()
        sources.flush_times.rotate()
        self._slot_begins_ns = [*self._slot_begins_ns, now_ns][-SLOTS:]

    def _print_minute(self, now_ns: int) -> None:
        """Write RocketMQ's two lines (StoreStatsService), unless there was no put and no get for two minutes."""
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
        """Log an append that holds its lock for long, while it does: once, then every ten seconds."""
        since_ns = self.sources.store.log.lock.held_since_ns
        if not since_ns or now_ns - since_ns < LOCK_HOLD_NS:
            return
        if since_ns != self._logged_hold_ns or now_ns >= self._log_hold_again_ns:
            self._logged_hold_ns = since_ns
            self._log_hold_again_ns = now_ns + SLOT_NS
            self._lock_log.warning(
                "append_lock_held",
                held_ms=(now_ns - since_ns) // 1_000_000,
                page_cache_busy=self.sources.store.is_os_page_cache_busy(),
            )

    # ---- the snapshot

    def snapshot(self) -> TelemetrySnapshot:
        """Return the present state; values that are metrics too come from their rows."""
        sources = self.sources
        reading = Reading(sources, self._clock.monotonic_ns())
        flush = sources.flush_times.window()
        store = sources.store
        began_ns = store.log.flush_began_ns
        pools = [POOL.telemetry_of(pool) for _, pool in POOL.find(reading)]
        return TelemetrySnapshot(
            window_s=round((reading.now_ns - self._slot_begins_ns[0]) / 1e9, 3),
            pairs=[PairTelemetry(name=pair.executor.name, **PAIRS.telemetry_of(pair)) for pair in reading.pairs()],
            stages=sources.stage_times.rows() if sources.stage_times is not None else [],
            refusals=sources.refusals(),
            refused_requests=sources.refused_requests.snapshot(),
            page_cache=PageCacheTelemetry(**PAGE_CACHE.telemetry_of(store)),
            pool=PoolTelemetry(**pools[0]) if pools else None,
            flush=FlushTelemetry(
                mode=store.config.flush_disk_type,
                count=flush.count,
                p50_us=flush.percentile_ns(0.5) / 1000,
                p99_us=flush.percentile_ns(0.99) / 1000,
                max_us=flush.max_ns / 1000,
                running_ms=max(0, reading.now_ns - began_ns) // 1_000_000 if began_ns else 0,
                **LOG.telemetry_of(store),
            ),
            put_times=[BucketCount(label=label, count=count) for label, count in sources.put_times.window()],
            slowest=sources.slow.slowest(),
            security=None if sources.security is None else sources.security(),
        )
