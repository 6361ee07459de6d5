"""Staged transactions beside the requests: delivery of what was committed, expiry, snapshots.

Lives here: ``StagedService``: the delivery thread; who waits for a delivery; retention kept from what is needed.
"""

from collections.abc import Callable
from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.staged.staged_log import StagedLog
from pocketmq.broker.staged.staged_recovery import recover_staged
from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, Worker
from pocketmq.store.message_store import MessageStore

IDLE_MS: Final = 1000.0
PAUSE_MS: Final = 100.0
"""Before an append that was refused is tried again."""
STEP_CHUNKS: Final = 16
"""Chunks delivered in one step: so often the thread looks whether it is to stop."""
HOUSEKEEPING_MS: Final = 10_000
SNAPSHOT_EVENTS: Final = 2000
SNAPSHOT_EVENTS_EACH: Final = 4
"""A snapshot is due after ``SNAPSHOT_EVENTS`` events, or, where much is remembered, four for each transactional id."""
SNAPSHOT_MS: Final = 3_600_000
"""Or after an hour with any event. One older than a quarter of the retention is made anew: it keeps old segments."""
WAITERS_MAX: Final = 10_000
HOUR_MS: Final = 3_600_000
FORMER_KEYS: Final = {
    "namedTransactionNames": "stagedTransactionIds",
    "namedTransactionChunksStaged": "stagedTransactionChunksStaged",
    "namedTransactionBytesStaged": "stagedTransactionBytesStaged",
    "namedTransactionMessagesDelivered": "stagedTransactionMessagesDelivered",
}
"""Keys of the runtime table: former → now. This version has both."""

Done = Callable[[int], None]
"""Called with the end of the log once a delivery is in it."""


class StagedService:
    """Runs on masters only. ``open``, ``start``, ``stop`` in this order."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        staged_log: StagedLog,
        clock: Clock,
        log: EventLog,
        *,
        is_held: Callable[[], bool] = lambda: False,
    ) -> None:
        self.is_held = is_held
        """Whether nothing must be written now, because another master leads or is about to."""
        self._config = config
        self._store = store
        self.staged_log = staged_log
        self._clock = clock
        self._log = log
        self._worker: Worker | None = None
        self._waiting: dict[tuple[str, int], list[Done]] = {}
        self._waiters = 0
        self._housekeeping_due_ns = 0
        self.dropped_attempts = 0

    # ---- life

    def open(self) -> None:
        """Find what is open and what is not delivered. Blocks. Raises ``CorruptRecord``, ``StoreError``."""
        recover_staged(self._store, self.staged_log, self._log)

    def start(self, runner: Runner) -> None:
        """Begin to deliver; keep retention from what is needed."""
        retention = self._store.retention
        before = retention.wanted_from
        retention.wanted_from = self.wanted_from if before is None else lambda: min(before(), self.wanted_from())
        self._worker = runner.start("StagedTransactions", self.step, first_after_ms=PAUSE_MS)

    def stop(self) -> None:
        """End the thread. What is not delivered yet is so after the next start."""
        worker, self._worker = self._worker, None
        if worker is not None and not worker.stop():
            self._log.error("staged_transactions_hang", what_to_do="look at the disk")

    def wanted_from(self) -> int:
        """Return the physical offset from which on retention must keep the log."""
        with self.staged_log.lock:
            return self.staged_log.table.wanted_from(self._store.committed_offset)

    # ---- waiting for a delivery

    def when_delivered(self, transactional_id: str, version: int, done: Done) -> bool:
        """Have ``done`` called when a commit is delivered, in this service's thread; False if it is already, or too
        many wait. Under the lock of ``staged_log``.
        """
        if self.staged_log.table.delivery(transactional_id, version) is None or self._waiters >= WAITERS_MAX:
            return False
        self._waiters += 1
        self._waiting.setdefault((transactional_id, version), []).append(done)
        return True

    def wake(self) -> None:
        """Have the thread look now."""
        if self._worker is not None:
            self._worker.wake()

    # ---- the thread

    def step(self) -> float:
        """Deliver, and do what is due; return the ms until the next look."""
        if self.is_held():
            return IDLE_MS
        wait_ms = self._deliver()
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._housekeeping_due_ns:
            self._housekeeping_due_ns = now_ns + HOUSEKEEPING_MS * 1_000_000
            try:
                self.housekeep()
            except PocketMQError as error:
                self._log.error("staged_transactions_housekeeping_failed", error=str(error))
        return wait_ms

    def _deliver(self) -> float:
        if self.staged_log.repairs and not self.staged_log.repair():
            return PAUSE_MS
        for _ in range(STEP_CHUNKS):
            try:
                delivered = self.staged_log.deliver()
            except PocketMQError as error:
                self._log.error("staged_transaction_not_delivered", error=str(error))
                return IDLE_MS
            if delivered is None:
                return IDLE_MS
            delivery, result = delivered
            if not result.status.is_stored:
                self._log.warning(
                    "staged_transaction_delivery_waits",
                    transactional_id=delivery.transactional_id,
                    version=delivery.version,
                    status=result.status.name,
                    error=result.error,
                )
                return max(PAUSE_MS, float(result.retry_after_ms))
            if delivery.at >= len(delivery.chunks):
                self._store.dispatch()
                with self.staged_log.lock:
                    waiting = self._waiting.pop((delivery.transactional_id, delivery.version), [])
                    self._waiters -= len(waiting)
                for done in waiting:
                    done(result.end_offset)
        return 0.0

    def housekeep(self) -> None:
        """Drop what is too old, forget what need not be remembered, write a snapshot where one is due."""
        now_ms = self._clock.now_ms()
        staged_log = self.staged_log
        reserved_ms = self._store.config.file_reserved_time * HOUR_MS
        with staged_log.lock:
            table = staged_log.table
            min_offset = staged_log.min_offset
            expired = table.expired(now_ms - self._config.staged_transaction_time_out, now_ms - reserved_ms, min_offset)
            for event in expired:
                if event.unprepared:
                    self._log.error(
                        "staged_transaction_in_doubt_dropped",
                        transactional_id=event.transactional_id,
                        version=event.version,
                        why="it was prepared and its commit did not come; another broker may have committed its part",
                    )
                if staged_log.write(event).status.is_stored:
                    self.dropped_attempts += len(event.attempts)
                    self._log.warning(
                        "staged_transaction_expired",
                        transactional_id=event.transactional_id,
                        version=event.version,
                        attempts=len(event.attempts),
                    )
            table.forget(now_ms)
            events = table.events_since_snapshot
            age_ms = now_ms - (table.snapshot_ms or table.first_ms)
            due = events >= max(SNAPSHOT_EVENTS, SNAPSHOT_EVENTS_EACH * len(table))
            due |= events > 0 and age_ms > SNAPSHOT_MS
            due |= len(table) > 0 and age_ms > reserved_ms // 4
            due |= len(table) > 0 and table.base < min_offset  # removed by force: only this table knows it any more
        if due:
            staged_log.snapshot()

    def runtime_info(self) -> dict[str, str]:
        """Return our keys of the runtime table, under their names and, for this version, under their former ones."""
        table = self.staged_log.table
        found = {
            "stagedTransactionIds": str(len(table)),
            "stagedTransactionChunksStaged": str(table.chunks),
            "stagedTransactionBytesStaged": str(table.staged_bytes),
            "stagedTransactionMessagesDelivered": str(self.staged_log.delivered_messages),
        }
        return found | {former: found[key] for former, key in FORMER_KEYS.items()}
