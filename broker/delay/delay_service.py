"""The service that delivers delayed messages and keeps its progress across restarts.

Lives here: ``DelayService``: the delivery thread over all levels and timers, its wake-ups; the thread that persists
the progress.

Written progress is never ahead of the log: delivered messages are flushed first. So after a crash a message may arrive
twice, with the same unique id, but none is lost; after a clean stop none arrives twice.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from pocketmq.broker.delay.arrivals import Arrivals
from pocketmq.broker.delay.delay_offsets import DelayOffsets
from pocketmq.broker.delay.delivery import RETRY_MS, Deliverer
from pocketmq.broker.delay.level_queue import LevelQueue
from pocketmq.broker.delay.rocketmq_timers import RocketMQTimers
from pocketmq.broker.delay.timer_queue import TimerProgress, TimerQueue, TimerState
from pocketmq.broker.persisted_table import PersistedTable
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.common.clock import Clock, SteadyTime
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, Worker
from pocketmq.common.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.message_store import MessageStore

OFFSETS_FILE: Final = "config/delayOffset.json"
TIMER_FILE: Final = "pocketmq/timerProgress.json"
WAIT_MS_MAX: Final = 1000.0
"""The clock is read this often even if nothing is due: it may be set."""
POLL_MS: Final = 3.0
"""While new timers arrive, the queue is polled this often, instead of one wake-up for each dispatch."""
STEP_ROUNDS: Final = 8
HELD_MS: Final = 50.0
ERROR_RETRY_MS: Final = 10_000
"""After an unexpected error (RocketMQ ScheduleMessageService.DELAY_FOR_A_PERIOD)."""


class DelayProgressBody(msgspec.Struct, rename="camel"):
    """GET_ALL_DELAY_OFFSET: RocketMQ's ``offsetTable``, and two fields of ours that its slaves ignore."""

    offset_table: dict[int, int] = {}
    timer_progress: msgspec.Raw = msgspec.Raw(msgspec.json.encode(TimerState()))
    end_offset: int = 0


@dataclass(slots=True)
class Snapshot:
    """The progress at one moment, safe to persist once the log is durable up to ``end_offset``."""

    table: dict[int, int]
    state: TimerState
    end_offset: int


class DelayService:
    """Runs on masters only. ``open``, ``start``, ``stop`` in this order; statistics may be read from any thread."""

    def __init__(
        self,
        config: StoreConfig,
        store: MessageStore,
        file_system: FileSystem,
        counters: BrokerCounters,
        clock: Clock,
        log: EventLog,
        *,
        is_held: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._log = log
        self.offsets = DelayOffsets()
        self.progress = TimerProgress()
        self.deliverer = Deliverer(store, counters, log)
        self.timers = TimerQueue(config, store, self.deliverer, log)
        self._time = SteadyTime(clock)
        self._step_lock = threading.Lock()
        begin_ms = self._time.now_ms()
        self.levels = [
            LevelQueue(number, delay_ms, store, self.offsets, self.deliverer, log, Arrivals(delay_ms, begin_ms))
            for number, delay_ms in enumerate(store.delay_levels.levels_ms, 1)
        ]
        root, durable = store.config.store_path_root_dir, config.sync_on_close
        self._files = [
            PersistedTable(self.offsets, f"{root}/{OFFSETS_FILE}", file_system, log, durable=durable),
            PersistedTable(self.progress, f"{root}/{TIMER_FILE}", file_system, log, durable=durable),
        ]
        self._rocketmq = RocketMQTimers(store, file_system, log)
        self._persist_due_ns = 0
        self._not_before_ns = [0] * (len(self.levels) + 1)
        self._polls = False
        self._worker: Worker | None = None
        self._writer: Worker | None = None
        self._handed: Snapshot | None = None
        self.is_held = is_held
        """Returns whether deliveries must pause: the broker hands over, or has been replaced."""

    # ---- life

    def open(self) -> None:
        """Load the progress and the waiting messages. Blocks. Raises ``CorruptRecord``, ``StoreError``."""
        for file in self._files:
            file.load()
        for level in self.levels:
            level.correct()
            level.arrivals.open(level.max_offset)
        taken_over = self._rocketmq.take_over()
        if taken_over is not None:
            self.progress.settle(taken_over)
        self.timers.open(self.progress.state)
        self.persist()  # a correction must not be repeated when the queue has grown

    def start(self, runner: Runner) -> None:
        """Start delivering."""
        self._persist_due_ns = self._clock.monotonic_ns() + self._config.flush_delay_offset_interval * 1_000_000
        self._store.on_dispatched.append(self.notify_dispatched)
        self._store.retention.wanted_from = self.wanted_from
        self._writer = runner.start("DelayProgress", self.write_step, first_after_ms=None)
        self._worker = runner.start("DelayDelivery", self.step)

    def stop(self) -> None:
        """Stop the threads, persist the progress. Blocks; the store is still open."""
        if self.notify_dispatched in self._store.on_dispatched:
            self._store.on_dispatched.remove(self.notify_dispatched)
        workers = [worker for worker in (self._worker, self._writer) if worker is not None]
        if not workers:
            return
        self._worker = self._writer = None
        stopped = [worker.stop() for worker in workers]
        if not all(stopped):  # one hangs on the disk and may still deliver: its progress is unknown
            self._log.error("delay_service_hangs", what_to_do="check the disk; deliveries may repeat after the start")
            return
        self.persist()

    def notify_dispatched(self, updates: list[tuple[str, int, int]]) -> None:
        """Wake the thread if a dispatched message may be due before its next wake-up. Dispatch thread."""
        worker = self._worker
        if worker is None:
            return
        for topic, queue_id, _ in updates:
            if topic == TIMER_TOPIC:
                if not self._polls:
                    worker.wake()
            elif topic == SCHEDULE_TOPIC and queue_id < len(self.levels):
                level = self.levels[queue_id]
                self._note_step()
                level.arrivals.arrived(level.max_offset, self._time.now_ms())
                if level.is_empty:
                    worker.wake()

    # ---- the thread

    def step(self) -> float:
        """Deliver due messages; return the ms until the next step."""
        if self.is_held():
            return HELD_MS
        wait_ms = 0.0
        found = False
        for _ in range(STEP_ROUNDS):
            wait_ms, found_now = self._round()
            found |= found_now
            if wait_ms > 0:
                break
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._persist_due_ns:
            self._persist_due_ns = now_ns + self._config.flush_delay_offset_interval * 1_000_000
            self._handed = self._snapshot()
            if self._writer is not None:
                self._writer.wake()
        # The dispatch reads ``_polls`` after its entries are readable: so check the queue again after setting it False.
        self._polls = found
        if not found and self.timers.read_offset < self.timers.max_offset:
            return 0.0
        return min(wait_ms, POLL_MS) if found else wait_ms

    def _round(self) -> tuple[float, bool]:
        """Give every level and the timers a turn: a busy or failing one does not delay the others."""
        self._note_step()
        now_ms, wall_ms, now_ns = self._time.now_ms(), self._clock.now_ms(), self._clock.monotonic_ns()
        wait_ms = WAIT_MS_MAX
        found = False
        parts: list[LevelQueue | TimerQueue] = [*self.levels, self.timers]
        for at, part in enumerate(parts):
            if now_ns < self._not_before_ns[at]:
                wait_ms = min(wait_ms, (self._not_before_ns[at] - now_ns) / 1e6)
                continue
            try:
                if isinstance(part, TimerQueue):
                    part_ms, found = part.run(now_ms, wall_ms)
                else:
                    part_ms = part.run(now_ms, wall_ms)
            except PocketMQError as error:
                part_ms = self._failed(at, error, RETRY_MS)
            except Exception as error:
                part_ms = self._failed(at, error, ERROR_RETRY_MS)
            if part_ms is not None:
                wait_ms = min(wait_ms, part_ms)
        return wait_ms, found

    def _note_step(self) -> None:
        """Notice that the wall clock has been set: in the delivery thread, and in the dispatch thread before it notes
        any entry, since one from after a step must not pass for one from before."""
        with self._step_lock:
            step_ms = self._time.take_step()
            if not step_ms:
                return
            for level in self.levels:
                level.arrivals.stepped(self._time.skew_ms)
        self._log.warning("clock_stepped", step_ms=step_ms, levels="keep their delays", timers="follow the clock")

    def _failed(self, at: int, error: Exception, retry_ms: int) -> float:
        self._log.error(
            "delayed_delivery_failed",
            queue="timers" if at == len(self.levels) else f"level {at + 1}",
            error=str(error) or repr(error),
            retry_ms=retry_ms,
        )
        self._not_before_ns[at] = self._clock.monotonic_ns() + retry_ms * 1_000_000
        return float(retry_ms)

    # ---- progress on disk

    def _snapshot(self) -> Snapshot:
        """Return the current progress; in the delivery thread, or when it has ended."""
        return Snapshot(self.offsets.table(), self.timers.state(), self.deliverer.end_offset)

    def persist(self) -> None:
        """Persist the current progress; in the delivery thread, or when it has ended."""
        self._write(self._snapshot())

    def write_step(self) -> None:
        """Persist the snapshot of the delivery thread, in a thread of its own, which waits for the disk."""
        handed, self._handed = self._handed, None
        if handed is not None:
            self._write(handed)

    def _write(self, snapshot: Snapshot) -> None:
        """Flush the deliveries, then persist the progress. A failure is logged and retried."""
        try:
            end_offset = snapshot.end_offset
            if self._store.flushed_offset < end_offset and self._store.make_durable() < end_offset:
                return  # not even committed yet: wait for the next snapshot
            self.offsets.settle(snapshot.table)
            self.progress.settle(snapshot.state)
            for file in self._files:
                file.persist()
            self._rocketmq.hand_over(snapshot.state)
        except PocketMQError as error:
            self._log.error("delay_progress_not_written", error=str(error))

    def progress_body(self) -> bytes:
        """Return the answer to GET_ALL_DELAY_OFFSET: RocketMQ's table and, for our slaves, the timers' progress and the
        end of the log that both require. Any thread.

        A slave with the log up to that end has every delivery that the progress counts; with less it would lose some.
        """
        table, timers = self.offsets.table(), self.progress.encode()
        return msgspec.json.encode(DelayProgressBody(table, msgspec.Raw(timers), self._store.committed_offset))

    def wanted_from(self) -> int:
        """Return the physical offset of the first record that the persisted progress, or a later one, may deliver.

        Exact for levels; for timers, exact to a block of their queue. Raises ``StoreError``. Retention thread.
        """
        waiting = [(SCHEDULE_TOPIC, level.level - 1, self.offsets.settled(level.level)) for level in self.levels]
        waiting.append((TIMER_TOPIC, 0, self.progress.state.low_offset))
        wanted = self._store.committed_offset
        for topic, queue_id, offset in waiting:
            offset = max(offset, self._store.min_offset(topic, queue_id))
            for entry in self._store.read_entries(topic, queue_id, offset, 1):
                wanted = min(wanted, int(entry["offset"]))
        return wanted

    def wake(self) -> None:
        """Look for due messages now: the clock was moved. Any thread."""
        if self._worker is not None:
            self._worker.wake()

    # ---- statistics

    def next_due_in_ms(self) -> int:
        """Return how long the next known message has to wait; 0 if it is due, or none is known."""
        now_ms, wall_ms = self._time.now_ms(), self._clock.now_ms()
        waits = [level.next_due_ms - now_ms for level in self.levels if level.next_due_ms]
        if self.timers.next_due_ms:
            waits.append(self.timers.next_due_ms - wall_ms)
        return max(0, min(waits, default=0))

    def is_congested(self, due_ms: int) -> bool:
        """Return whether the second of ``due_ms`` has its maximum number of timers. Any thread."""
        return self.timers.wheel.count_at(due_ms) >= self._config.timer_congest_num_each_slot

    def runtime_info(self) -> dict[str, str]:
        """Return the keys of RocketMQ's runtime table that are not metrics (ScheduleMessageService.buildRunningStats,
        5.x TimerMessageStore)."""
        table = {
            f"scheduleMessageOffset_{level.level}": f"{level.offset},{level.max_offset}"
            for level in self.levels
            if level.max_offset
        }
        table["timerCongestNum"] = str(self.timers.pending)
        return table

    def timer_lag_ms(self) -> int:
        """Return how long the next timer has been due; 0 if none is."""
        due_ms = self.timers.next_due_ms
        return max(0, self._clock.now_ms() - due_ms) if due_ms else 0

    def level_lag_ms(self) -> int:
        """Return how long the oldest message of a level has been due; 0 if none is."""
        due_ms = min((level.next_due_ms for level in self.levels if level.next_due_ms), default=0)
        return max(0, self._time.now_ms() - due_ms) if due_ms else 0

    def timers_unread(self) -> int:
        """Return how many stored timers have not been read yet."""
        return max(0, self.timers.max_offset - self.timers.read_offset)

    def pending_levels(self) -> int:
        """Return how many messages wait in levels."""
        return sum(max(0, level.max_offset - level.offset) for level in self.levels)
