"""Which client of a group may consume which queue in order: the core of the broker's queue locks.

Lives here: ``LockTable`` (RocketMQ RebalanceLockManager): holders, expiry, waiting clients, and the locks that end with
a connection. It does no I/O, reads no clock and takes no lock.
"""

import enum
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Generic, NamedTuple, TypeVar

from pocketmq.common.bounds import bounded
from pocketmq.common.limits import text_bytes

WAITERS_MAX: Final = 16
"""Clients remembered as waiting for one lock; others learn of a free lock at their next request."""
LOCK_BYTES: Final = 1024
"""One lock without its texts: objects and table entries (CPython 3.11, 64 bit)."""
WAITER_BYTES: Final = 512
SIZE_BYTES_MAX: Final = 256 << 20
FORGET_EXPIRED_NS: Final = 3_600_000_000_000
"""A lock that no client requests is forgotten an hour after it expired (RocketMQ keeps it for ever)."""

ConnectionT = TypeVar("ConnectionT", bound=Hashable)


class LockKey(NamedTuple):
    """One queue of this broker, as one group consumes it."""

    group: str
    topic: str
    queue_id: int


class Result(enum.Enum):
    """The result of a lock request."""

    GOT = "got"
    """The queue was not locked."""
    RENEWED = "renewed"
    """The caller held the lock."""
    TAKEN_OVER = "taken_over"
    """Another client's lock had expired."""
    REFUSED = "refused"
    """Another client holds the lock."""
    FULL = "full"
    """The table has its maximum number of locks."""


class Unlocked(enum.Enum):
    """The result of an unlock."""

    RELEASED = "released"
    NOT_OWNER = "not_owner"
    NOT_LOCKED = "not_locked"
    NO_GROUP = "no_group"


@dataclass(slots=True)
class Waiter(Generic[ConnectionT]):
    """A client that was refused; times are monotonic ns."""

    connection: ConnectionT
    first_ns: int
    last_ns: int
    refusals: int = 1


@dataclass(slots=True)
class QueueLock(Generic[ConnectionT]):
    """One lock; times are monotonic ns. ``release_at_ns`` is set while its holder's connection is gone."""

    key: LockKey
    client_id: str
    connection: ConnectionT
    watches_connection: bool
    token: int
    acquired_ns: int
    renewed_ns: int
    release_at_ns: int | None = None
    waiters: dict[str, Waiter[ConnectionT]] = field(default_factory=dict)


class Granted(NamedTuple, Generic[ConnectionT]):
    """The answer for one queue. ``lock`` is a copy of the lock in the table (None: FULL); ``old_client_id``: the former
    holder of a lock that was taken over."""

    key: LockKey
    result: Result
    lock: QueueLock[ConnectionT] | None
    old_client_id: str = ""


class Released(NamedTuple, Generic[ConnectionT]):
    """A lock that ended without its holder's request, or that expired while others waited for it."""

    lock: QueueLock[ConnectionT]
    why: str
    """``disconnected`` (removed from the table) or ``expired`` (still in it, free to be taken over)."""


@bounded("queue locks in bytes", limit="size_bytes_max", size="size_bytes", unit="bytes")
@bounded("queue locks", limit="locks_max", size="__len__", entry_bytes=LOCK_BYTES, setting="broker.queue_locks_max")
@dataclass(slots=True, eq=False)
class LockTable(Generic[ConnectionT]):
    """Group, topic, queue → lock. Not thread-safe; times are arguments, monotonic, and never go back.

    A lock belongs to a client until it unlocks, or until ``max_live_ns`` after its last renewal; after that, the next
    client that requests it gets it. Each new lock (not a renewal) has a token above all before. Holds: at most
    ``locks_max`` locks in ``size_bytes_max`` bytes, waiters included; each remembers at most ``WAITERS_MAX`` of them.
    """

    max_live_ns: int
    locks_max: int
    next_token: Callable[[], int]
    """Returns a number above all that it returned before."""
    size_bytes_max: int = SIZE_BYTES_MAX
    size_bytes: int = field(init=False, default=0)
    """Memory of all locks, estimated from above."""
    _groups: dict[str, dict[LockKey, QueueLock[ConnectionT]]] = field(init=False, default_factory=dict)
    _count: int = field(init=False, default=0)
    _of_connection: dict[ConnectionT, dict[LockKey, None]] = field(init=False, default_factory=dict)
    _leaving: dict[LockKey, None] = field(init=False, default_factory=dict)  # with release_at_ns
    _awaited: dict[LockKey, None] = field(init=False, default_factory=dict)  # with waiters; expiry not yet reported

    def __post_init__(self) -> None:
        assert self.max_live_ns > 0
        assert self.locks_max > 0

    def __len__(self) -> int:
        return self._count

    # ---- clients ---------------------------------------------------------------------------------------------------

    def try_lock(
        self,
        group: str,
        client_id: str,
        connection: ConnectionT,
        queues: Iterable[tuple[str, int]],
        now_ns: int,
        *,
        watches_connection: bool = False,
    ) -> list[Granted[ConnectionT]]:
        """Lock or renew each (topic, queue id) that is free or the client's; return the result of each, in order."""
        results: list[Granted[ConnectionT]] = []
        for topic, queue_id in queues:
            key = LockKey(group, topic, queue_id)
            held = self._find(key)
            if held is None:
                if not self._has_room(key, client_id) and not (
                    self.forget_expired(now_ns) and self._has_room(key, client_id)
                ):
                    results.append(Granted(key, Result.FULL, None))
                    continue
                lock = self._add(key, client_id, connection, watches_connection, now_ns)
                results.append(Granted(key, Result.GOT, _copy(lock)))
            elif self.is_expired(held, now_ns):
                old_client_id, waiters = held.client_id, held.waiters
                self._remove(held)
                waiters.pop(client_id, None)
                lock = self._add(key, client_id, connection, watches_connection, now_ns)
                if waiters:  # clients that waited for the last holder now wait for this one
                    lock.waiters = waiters
                    self.size_bytes += sum(map(_waiter_bytes, waiters))
                    self._awaited[key] = None
                results.append(Granted(key, Result.TAKEN_OVER, _copy(lock), old_client_id))
            elif held.client_id == client_id:
                self._renew(held, connection, watches_connection, now_ns)
                results.append(Granted(key, Result.RENEWED, _copy(held)))
            else:
                self._wait(held, client_id, connection, now_ns)
                results.append(Granted(key, Result.REFUSED, _copy(held)))
        return results

    def unlock(
        self, group: str, client_id: str, queues: Iterable[tuple[str, int]]
    ) -> list[tuple[LockKey, Unlocked, QueueLock[ConnectionT] | None]]:
        """Release the locks that ``client_id`` holds here, expired or not; return (key, result, lock) of each queue."""
        results: list[tuple[LockKey, Unlocked, QueueLock[ConnectionT] | None]] = []
        has_group = group in self._groups
        for topic, queue_id in queues:
            key = LockKey(group, topic, queue_id)
            held = self._find(key)
            if held is None:
                results.append((key, Unlocked.NOT_LOCKED if has_group else Unlocked.NO_GROUP, None))
            elif held.client_id != client_id:
                results.append((key, Unlocked.NOT_OWNER, _copy(held)))
            else:
                self._remove(held)
                results.append((key, Unlocked.RELEASED, held))
        return results

    def take_away(self, key: LockKey, token: int) -> QueueLock[ConnectionT] | None:
        """Remove the lock with this token; None if there is none, or a later one."""
        held = self._find(key)
        if held is None or held.token != token:
            return None
        self._remove(held)
        return held

    # ---- connections and time --------------------------------------------------------------------------------------

    def connection_closed(self, connection: ConnectionT, now_ns: int, grace_ns: int, *, all_clients: bool) -> int:
        """Let the locks last renewed on this connection end in ``grace_ns``, unless they are renewed on another one
        before; return how many.

        Without ``all_clients``, only locks of clients that watch their connection: other clients (RocketMQ's) continue
        to consume while they reconnect.
        """
        leaving = 0
        for key in list(self._of_connection.get(connection, ())):
            held = self._find(key)
            assert held is not None
            if all_clients or held.watches_connection:
                held.release_at_ns = now_ns + grace_ns
                self._leaving[key] = None
                leaving += 1
        return leaving

    def due(self, now_ns: int) -> list[Released[ConnectionT]]:
        """End the locks whose grace period is over; also return, once, locks that expired while clients waited."""
        released: list[Released[ConnectionT]] = []
        for key in list(self._leaving):
            held = self._find(key)
            assert held is not None
            assert held.release_at_ns is not None
            if held.release_at_ns <= now_ns:
                self._remove(held)
                released.append(Released(held, "disconnected"))
        for key in list(self._awaited):
            held = self._find(key)
            assert held is not None
            if self.is_expired(held, now_ns):
                del self._awaited[key]
                released.append(Released(_copy(held), "expired"))
        return released

    def next_due_ns(self) -> int | None:
        """Return when ``due`` must run next, or None."""
        times = [self._lock(key).release_at_ns or 0 for key in self._leaving]
        times += [self._lock(key).renewed_ns + self.max_live_ns + 1 for key in self._awaited]
        return min(times, default=None)

    def forget_expired(self, now_ns: int, expired_for_ns: int = 0) -> int:
        """Remove locks that expired more than ``expired_for_ns`` ago; return how many."""
        old_ns = now_ns - self.max_live_ns - expired_for_ns
        old = [held for locks in self._groups.values() for held in locks.values() if held.renewed_ns < old_ns]
        for held in old:
            self._remove(held)
        return len(old)

    def is_expired(self, lock: QueueLock[ConnectionT], now_ns: int) -> bool:
        """Return whether another client may take the lock now."""
        return now_ns - lock.renewed_ns > self.max_live_ns

    # ---- questions -------------------------------------------------------------------------------------------------

    def get(self, key: LockKey) -> QueueLock[ConnectionT] | None:
        """Return a copy of the lock of a queue, expired or not."""
        held = self._find(key)
        return None if held is None else _copy(held)

    def locks(self, group: str = "", topic: str = "") -> list[QueueLock[ConnectionT]]:
        """Return copies of the locks in order; only those of ``group`` and ``topic``, if given."""
        groups = self._groups.values() if not group else [self._groups.get(group, {})]
        found = [held for locks in groups for held in locks.values() if not topic or held.key.topic == topic]
        return [_copy(held) for held in sorted(found, key=lambda held: held.key)]

    def has_group(self, group: str) -> bool:
        """Return whether the group has any lock; may be called without the owner's mutex."""
        return group in self._groups

    def holds_any(self, group: str, now_ns: int) -> bool:
        """Return whether a client of the group holds an unexpired lock (5.3 isLockAllExpired, negated)."""
        return any(not self.is_expired(held, now_ns) for held in self._groups.get(group, {}).values())

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _find(self, key: LockKey) -> QueueLock[ConnectionT] | None:
        locks = self._groups.get(key.group)
        return None if locks is None else locks.get(key)

    def _lock(self, key: LockKey) -> QueueLock[ConnectionT]:
        return self._groups[key.group][key]

    def _has_room(self, key: LockKey, client_id: str) -> bool:
        size_bytes = self.size_bytes + _lock_bytes(key, client_id)
        return self._count < self.locks_max and size_bytes <= self.size_bytes_max

    def _add(
        self, key: LockKey, client_id: str, connection: ConnectionT, watches_connection: bool, now_ns: int
    ) -> QueueLock[ConnectionT]:
        lock = QueueLock(key, client_id, connection, watches_connection, self.next_token(), now_ns, now_ns)
        self._groups.setdefault(key.group, {})[key] = lock
        self._count += 1
        self.size_bytes += _lock_bytes(key, client_id)
        self._of_connection.setdefault(connection, {})[key] = None
        assert self._count <= self.locks_max
        return lock

    def _renew(
        self, held: QueueLock[ConnectionT], connection: ConnectionT, watches_connection: bool, now_ns: int
    ) -> None:
        held.renewed_ns = now_ns
        held.watches_connection = watches_connection
        held.release_at_ns = None
        self._leaving.pop(held.key, None)
        if held.connection != connection:
            self._leave_connection(held)
            held.connection = connection
            self._of_connection.setdefault(connection, {})[held.key] = None

    def _wait(self, held: QueueLock[ConnectionT], client_id: str, connection: ConnectionT, now_ns: int) -> None:
        known = held.waiters.get(client_id)
        if known is not None:
            known.connection = connection
            known.last_ns = now_ns
            known.refusals += 1
        else:
            if len(held.waiters) >= WAITERS_MAX:
                return
            if self.size_bytes + _waiter_bytes(client_id) > self.size_bytes_max:
                return
            held.waiters[client_id] = Waiter(connection, now_ns, now_ns)
            self.size_bytes += _waiter_bytes(client_id)
        self._awaited[held.key] = None

    def _leave_connection(self, held: QueueLock[ConnectionT]) -> None:
        keys = self._of_connection[held.connection]
        del keys[held.key]
        if not keys:
            del self._of_connection[held.connection]

    def _remove(self, held: QueueLock[ConnectionT]) -> None:
        key = held.key
        locks = self._groups[key.group]
        del locks[key]
        if not locks:
            del self._groups[key.group]
        self._count -= 1
        self.size_bytes -= _lock_bytes(key, held.client_id) + sum(map(_waiter_bytes, held.waiters))
        self._leave_connection(held)
        self._leaving.pop(key, None)
        self._awaited.pop(key, None)


def _copy(lock: QueueLock[ConnectionT]) -> QueueLock[ConnectionT]:
    return replace(lock, waiters={client_id: replace(each) for client_id, each in lock.waiters.items()})


def _lock_bytes(key: LockKey, client_id: str) -> int:
    return LOCK_BYTES + text_bytes(key.group) + text_bytes(key.topic) + text_bytes(client_id)


def _waiter_bytes(client_id: str) -> int:
    return WAITER_BYTES + text_bytes(client_id)
