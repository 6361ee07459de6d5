"""The broker's queue locks: the table with its threads, log lines and waiting clients.

Lives here: ``LockManager``: locking and unlocking for requests, release when a connection ends, notices to waiting
clients, RocketMQ's lock log lines, the check of commits.

The event loop only records closed connections; the table's lock is for worker threads, and no disk work happens under
it.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.lock.fencing_tokens import FencingTokens
from pocketmq.broker.lock.lock_table import (
    FORGET_EXPIRED_NS,
    Granted,
    LockKey,
    LockTable,
    QueueLock,
    Released,
    Result,
    Unlocked,
)
from pocketmq.broker.persisted_table import PersistedTable
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.runner import LoopMailbox, Runner, Worker
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.client import ConsumerGroupRequestHeader
from pocketmq.remoting.server import Connection

Lock = QueueLock[Connection]

CLEAN_INTERVAL_NS: Final = 600_000_000_000
STEP_MS_MIN: Final = 1.0
STEP_MS_MAX: Final = 60_000.0


class CommitFenced(PocketMQError):
    """A commit by a client that does not hold the queue's lock; the offset stays as it was."""

    code = 16  # NO_PERMISSION
    default_cause = Cause.FENCED


@dataclass(slots=True, eq=False)
class LockManager:
    """Queue locks of one broker; in memory only, as in RocketMQ: after a restart clients request them again.

    Methods are for worker threads, except ``connection_closed`` (loop). A service of the broker: ``open``, ``start``,
    ``stop``.
    """

    config: BrokerConfig
    tokens: FencingTokens
    tokens_file: PersistedTable
    member_id: Callable[[str, Connection], str]
    """``member_id(group, connection)``: the client id of a member of a consumer group, empty for others."""
    mailbox: LoopMailbox
    clock: Clock
    log: EventLog
    _mutex: threading.Lock = field(init=False, default_factory=threading.Lock)
    _table: LockTable[Connection] = field(init=False)
    _closed: deque[tuple[Connection, int]] = field(init=False, default_factory=deque)
    _worker: Worker | None = field(init=False, default=None)
    _clean_due_ns: int = field(init=False)

    def __post_init__(self) -> None:
        max_live_ns = self.config.lock_max_live_time * 1_000_000
        self._table = LockTable(max_live_ns, self.config.queue_locks_max, self.tokens.next)
        self._clean_due_ns = self.clock.monotonic_ns() + CLEAN_INTERVAL_NS

    # ---- life ------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Load the tokens' progress. Blocks; raises ``CorruptRecord``."""
        self.tokens_file.load()
        self.tokens.open(self.tokens_file.persist)

    def start(self, runner: Runner) -> None:
        """Start releasing and expiring locks."""
        self._worker = runner.start("QueueLocks", self.step, first_after_ms=None)

    def stop(self) -> None:
        """Stop the thread. Locks die with the process."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def step(self) -> float | None:
        """Release and forget due locks; return the ms until the next step, None: when woken."""
        now_ns = self.clock.monotonic_ns()
        grace_ns = self.config.lock_release_grace_mills * 1_000_000
        mode = self.config.release_locks_on_disconnect
        with self._mutex:
            while self._closed:
                connection, closed_ns = self._closed.popleft()
                if mode != "OFF":
                    self._table.connection_closed(connection, closed_ns, grace_ns, all_clients=mode == "ALL")
            released = self._table.due(now_ns)
            if now_ns >= self._clean_due_ns:
                self._clean_due_ns = now_ns + CLEAN_INTERVAL_NS
                self._table.forget_expired(now_ns, FORGET_EXPIRED_NS)
            next_ns = self._table.next_due_ns()
            count = len(self._table)
        for each in released:
            self._log_released(each, now_ns)
        if next_ns is None:
            return STEP_MS_MAX if count else None
        return max(STEP_MS_MIN, min((next_ns - now_ns) / 1e6, STEP_MS_MAX))

    def connection_closed(self, connection: Connection) -> None:
        """Record a closed connection; its locks end after the grace period, as the settings say. Loop thread."""
        self._closed.append((connection, self.clock.monotonic_ns()))
        self._wake_worker()

    # ---- requests --------------------------------------------------------------------------------------------------

    def try_lock(
        self,
        group: str,
        client_id: str,
        connection: Connection,
        queues: Sequence[tuple[str, int]],
        *,
        watches_connection: bool = False,
    ) -> list[Granted[Connection]]:
        """Lock or renew free queues; return the result of each queue, in order. Raises ``StoreError`` if tokens cannot
        be reserved; then nothing is locked."""
        while True:
            if self.tokens.left < len(queues):
                self.tokens.reserve(len(queues))
            with self._mutex:
                if self.tokens.left < len(queues):
                    continue  # another thread took them
                now_ns = self.clock.monotonic_ns()
                results = self._table.try_lock(
                    group, client_id, connection, queues, now_ns, watches_connection=watches_connection
                )
            break
        for each in results:
            self._log_granted(each, client_id, now_ns)
        if connection.closed:  # it closed while the request was queued: its close event came too early for these locks
            self.connection_closed(connection)
        elif any(each.result is Result.REFUSED for each in results):
            self._wake_worker()
        return results

    def unlock(self, group: str, client_id: str, queues: Sequence[tuple[str, int]]) -> None:
        """Release the locks that ``client_id`` holds on these queues."""
        with self._mutex:
            results = self._table.unlock(group, client_id, queues)
        group_logged = False
        waiting: dict[Connection, None] = {}
        for key, result, lock in results:
            queue = self._queue_text(key)
            if result is Unlocked.RELEASED:
                text = f"unlockBatch, Group: {group} {queue} {client_id}"
                self.log.info("queue_unlocked", text=text, **_fields(key), client_id=client_id)
                assert lock is not None
                waiting.update(dict.fromkeys(each.connection for each in lock.waiters.values()))
            elif result is Unlocked.NOT_OWNER:
                assert lock is not None
                text = (
                    f"unlockBatch, but mq locked by other client: {lock.client_id}, Group: {group} {queue} {client_id}"
                )
                self.log.warning("unlock_by_other", text=text, **_fields(key), client_id=client_id)
            elif result is Unlocked.NOT_LOCKED:
                text = f"unlockBatch, but mq not locked, Group: {group} {queue} {client_id}"
                self.log.warning("unlock_not_locked", text=text, **_fields(key), client_id=client_id)
            elif not group_logged:
                group_logged = True
                text = f"unlockBatch, group not exist, Group: {group} {client_id}"
                self.log.warning("unlock_group_unknown", text=text, group=group, client_id=client_id)
        self._wake(group, waiting)

    def release(self, key: LockKey, token: int, by: str) -> Lock | None:
        """Take a lock away from its holder, if it still has this token; None if not. ``by``: the requester."""
        with self._mutex:
            lock = self._table.take_away(key, token)
        if lock is not None:
            self.log.warning("queue_lock_taken_away", **_fields(key), client_id=lock.client_id, token=token, by=by)
            self._wake(key.group, dict.fromkeys(each.connection for each in lock.waiters.values()))
        return lock

    def locks(self, group: str, topic: str) -> tuple[list[Lock], int]:
        """Return (copies of the locks in order, the monotonic ns of the copy)."""
        with self._mutex:
            return self._table.locks(group, topic), self.clock.monotonic_ns()

    def holds_any(self, group: str) -> bool:
        """Return whether a client of the group holds an unexpired lock."""
        with self._mutex:
            return self._table.holds_any(group, self.clock.monotonic_ns())

    # ---- commits ---------------------------------------------------------------------------------------------------

    def allows_commit(self, group: str, topic: str, queue_id: int, connection: Connection) -> bool:
        """Return whether the commit in a pull, which has no token, counts; if not, log why."""
        try:
            self.check_commit(group, topic, queue_id, None, connection)
        except CommitFenced:
            return False
        return True

    def check_commit(self, group: str, topic: str, queue_id: int, token: int | None, connection: Connection) -> None:
        """Raise ``CommitFenced`` unless the sender of a commit may move this offset.

        With a token: it must be that of the queue's lock, which may have expired if no other client has taken it.
        Without one (RocketMQ's clients, tools): refused while another client holds the lock, if the sender is a member
        of the group or the holder uses tokens. Unlocked queues are free.
        """
        if token is None and not self._table.has_group(group):
            return  # most groups are not ordered
        client_id = self.member_id(group, connection)
        key = LockKey(group, topic, queue_id)
        now_ns = self.clock.monotonic_ns()
        with self._mutex:
            lock = self._table.get(key)
            if lock is not None and token is None and self._table.is_expired(lock, now_ns):
                return
        if token is None:
            if lock is None or lock.client_id == client_id or lock.connection is connection:
                return
            if not client_id and not lock.watches_connection:
                return
            why = "the commit has no fencing token"
        elif lock is None:
            why = f"the lock with token {token} is over: it was released, or this broker was restarted"
        elif lock.token == token:
            return
        else:
            why = f"the lock with token {token} is over"
        if lock is not None:
            age_ms = (now_ns - lock.acquired_ns) // 1_000_000
            why += f"; {lock.client_id} has held the queue for {age_ms} ms with token {lock.token}"
        self.log.warning("commit_fenced", **_fields(key), client_id=client_id, token=token, why=why)
        raise CommitFenced(
            f"commit of {topic} queue {queue_id} refused for {group}",
            why=why,
            hint="lock the queue again before consuming further",
        )

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _wake_worker(self) -> None:
        worker = self._worker
        if worker is not None:
            worker.wake()

    def _queue_text(self, key: LockKey) -> str:
        """Return RocketMQ's text of a queue (MessageQueue.toString)."""
        return f"MessageQueue [topic={key.topic}, brokerName={self.config.broker_name}, queueId={key.queue_id}]"

    def _log_granted(self, granted: Granted[Connection], client_id: str, now_ns: int) -> None:
        """Log RocketMQ's line (4.9 RebalanceLockManager.tryLockBatch); a renewal has none."""
        key, lock = granted.key, granted.lock
        queue = self._queue_text(key)
        if lock is None:
            self.log.error("queue_locks_full", **_fields(key), client_id=client_id, locks=self.config.queue_locks_max)
        elif granted.result is Result.GOT:
            text = (
                f"tryLockBatch, message queue not locked, I got it. Group: {key.group} NewClientId: {client_id} {queue}"
            )
            self.log.info("queue_locked", text=text, **_fields(key), client_id=client_id, token=lock.token)
        elif granted.result is Result.TAKEN_OVER:
            text = (
                "tryLockBatch, message queue lock expired, I got it. "
                f"Group: {key.group} OldClientId: {granted.old_client_id} NewClientId: {client_id} {queue}"
            )
            self.log.warning("queue_lock_expired", text=text, **_fields(key), client_id=client_id, token=lock.token)
        elif granted.result is Result.REFUSED:
            text = (
                "tryLockBatch, message queue locked by other client. "
                f"Group: {key.group} OtherClientId: {lock.client_id} NewClientId: {client_id} {queue}"
            )
            self.log.warning(
                "queue_lock_refused",
                text=text,
                **_fields(key),
                client_id=client_id,
                holder=lock.client_id,
                age_ms=(now_ns - lock.acquired_ns) // 1_000_000,
                expires_in_ms=self.expires_in_ms(lock, now_ns),
            )

    def now_ns(self) -> int:
        """Return the time on the locks' clock."""
        return self.clock.monotonic_ns()

    def expires_in_ms(self, lock: Lock, now_ns: int) -> int:
        """Return the ms until the lock expires; negative once it has."""
        return (lock.renewed_ns + self._table.max_live_ns - now_ns) // 1_000_000

    def _log_released(self, released: Released[Connection], now_ns: int) -> None:
        lock, key = released.lock, released.lock.key
        note = self.log.warning if released.why == "expired" else self.log.info
        note(
            "queue_lock_over",
            why=released.why,
            **_fields(key),
            client_id=lock.client_id,
            token=lock.token,
            age_ms=(now_ns - lock.acquired_ns) // 1_000_000,
            renewed_ms_ago=(now_ns - lock.renewed_ns) // 1_000_000,
            waiting=len(lock.waiters),
        )
        self._wake(key.group, dict.fromkeys(each.connection for each in lock.waiters.values()))

    def _wake(self, group: str, connections: Iterable[Connection]) -> None:
        """Notify clients that wait for a lock: RocketMQ's clients then try again to lock their queues."""
        waiting = list(connections)
        if waiting and self.config.notify_consumer_ids_changed_enable:
            self.mailbox.post(_notify, waiting, ConsumerGroupRequestHeader(group))


def _notify(connections: list[Connection], header: ConsumerGroupRequestHeader) -> None:
    for connection in connections:
        if not connection.closed:
            connection.send_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, b"")


def _fields(key: LockKey) -> dict[str, Any]:
    return {"group": key.group, "topic": key.topic, "queue_id": key.queue_id}
