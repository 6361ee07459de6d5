"""The background work of staged transactions: delivery of committed chunks, expiry, snapshots.

Lives here: ``StagedService``: the delivery thread; waiting commits; protection of needed records from retention.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.staged.staged_log import StagedLog
from pocketmq.broker.staged.staged_recovery import recover_staged
from pocketmq.broker.staged.staged_state import IDS_MAX
from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, Worker
from pocketmq.store.message_store import MessageStore

IDLE_MS: Final = 1000.0
PAUSE_MS: Final = 100.0
"""Pause before a refused append is tried again."""
STEP_CHUNKS: Final = 16
"""Chunks delivered in one step; the thread can stop between steps."""
HOUSEKEEPING_MS: Final = 10_000
SNAPSHOT_EVENTS: Final = 2000
SNAPSHOT_EVENTS_EACH: Final = 4
"""A snapshot is due after ``SNAPSHOT_EVENTS`` events, or, with many transactional ids, after four for each of them."""
SNAPSHOT_MS: Final = 3_600_000
"""Or after an hour with any event, or a quarter of the retention time: an old snapshot keeps old segments."""
SNAPSHOT_PAUSE_MS: Final = 60_000
"""But no sooner, however short the retention time."""
WAITERS_MAX: Final = 10_000
CROWDED_MS: Final = 600_000
"""While four fifths of the transactional ids are taken, attempts without a chunk for this long are dropped."""
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


@dataclass(slots=True, eq=False)
class StagedService:
    """Runs on masters only. ``open``, ``start``, ``stop`` in this order."""

    config: BrokerConfig
    store: MessageStore
    staged_log: StagedLog
    clock: Clock
    log: EventLog
    is_held: Callable[[], bool] = lambda: False
    """Returns whether writes are forbidden now, because another master leads or is about to."""
    dropped_attempts: int = 0
    _worker: Worker | None = None
    _waiting: dict[tuple[str, int], list[Done]] = field(default_factory=dict)
    _waiters: int = 0
    _housekeeping_due_ns: int = 0

    # ---- life

    def open(self) -> None:
        """Find the open and the undelivered transactions. Blocks. Raises ``CorruptRecord``, ``StoreError``."""
        recover_staged(self.store, self.staged_log, self.log)

    def start(self, runner: Runner) -> None:
        """Begin to deliver; keep retention from needed records."""
        retention = self.store.retention
        before = retention.wanted_from
        retention.wanted_from = self.wanted_from if before is None else lambda: min(before(), self.wanted_from())
        self._worker = runner.start("StagedTransactions", self.step, first_after_ms=PAUSE_MS)

    def stop(self) -> None:
        """Stop the thread. The next start continues the delivery."""
        worker, self._worker = self._worker, None
        if worker is not None and not worker.stop():
            self.log.error("staged_transactions_hang", what_to_do="check the disk")

    def wanted_from(self) -> int:
        """Return the physical offset from which retention must keep the log."""
        with self.staged_log.lock:
            return self.staged_log.table.wanted_from(self.store.committed_offset)

    # ---- waiting for a delivery

    def when_delivered(self, transactional_id: str, version: int, done: Done) -> bool:
        """Call ``done`` in this service's thread when a commit is delivered; False if it is delivered already, or too
        many commits wait. Under the lock of ``staged_log``.
        """
        if self.staged_log.table.delivery(transactional_id, version) is None or self._waiters >= WAITERS_MAX:
            return False
        self._waiters += 1
        self._waiting.setdefault((transactional_id, version), []).append(done)
        return True

    def wake(self) -> None:
        """Let the thread take its next step now."""
        if self._worker is not None:
            self._worker.wake()

    # ---- the thread

    def step(self) -> float:
        """Deliver, and do what is due; return the ms until the next step."""
        if self.is_held():
            return IDLE_MS
        wait_ms = self._deliver()
        now_ns = self.clock.monotonic_ns()
        if now_ns >= self._housekeeping_due_ns:
            self._housekeeping_due_ns = now_ns + HOUSEKEEPING_MS * 1_000_000
            try:
                self.housekeep()
            except PocketMQError as error:
                self.log.error("staged_transactions_housekeeping_failed", error=str(error))
        return wait_ms

    def _deliver(self) -> float:
        if self.staged_log.repairs and not self.staged_log.repair():
            return PAUSE_MS
        for _ in range(STEP_CHUNKS):
            try:
                delivered = self.staged_log.deliver()
            except PocketMQError as error:
                self.log.error("staged_transaction_not_delivered", error=str(error))
                return IDLE_MS
            if delivered is None:
                return IDLE_MS
            delivery, result = delivered
            if not result.status.is_stored:
                self.log.warning(
                    "staged_transaction_delivery_waits",
                    transactional_id=delivery.transactional_id,
                    version=delivery.version,
                    status=result.status.name,
                    error=result.error,
                )
                return max(PAUSE_MS, float(result.retry_after_ms))
            if delivery.at >= len(delivery.chunks):
                self.store.dispatch()
                with self.staged_log.lock:
                    waiting = self._waiting.pop((delivery.transactional_id, delivery.version), [])
                    self._waiters -= len(waiting)
                for done in waiting:
                    done(result.end_offset)
        return 0.0

    def housekeep(self) -> None:
        """Drop expired attempts, forget old commits, write a snapshot if one is due."""
        staged_log = self.staged_log
        now_ms = staged_log.now_ms()
        # with file_reserved_time=0 the retention of the log would drop every open attempt at once
        reserved_ms = max(self.store.config.file_reserved_time * HOUR_MS, self.config.staged_transaction_time_out)
        with staged_log.lock:
            table = staged_log.table
            min_offset = staged_log.min_offset
            time_out_ms = self.config.staged_transaction_time_out
            if len(table) > IDS_MAX * 4 // 5:
                time_out_ms = min(time_out_ms, CROWDED_MS)
            expired = table.expired(now_ms - time_out_ms, now_ms - reserved_ms, min_offset)
            for event in expired:
                if event.unprepared:
                    self.log.error(
                        "staged_transaction_in_doubt_dropped",
                        transactional_id=event.transactional_id,
                        version=event.version,
                        why="it was prepared but no commit followed; another broker may have committed its part",
                    )
                if staged_log.write(event).status.is_stored:
                    self.dropped_attempts += len(event.attempts)
                    self.log.warning(
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
            log_ms = self.store.config.file_reserved_time * HOUR_MS
            due |= len(table) > 0 and age_ms > max(SNAPSHOT_PAUSE_MS, log_ms // 4)
            due |= len(table) > 0 and table.base < min_offset  # removed by force: only this table still knows it
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
