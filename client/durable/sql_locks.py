"""Locks that end with their owner's connection or process: the proof that an owner of a SQL store is dead.

Lives here: ``OwnerLock``, its kinds for MySQL and MariaDB (``GET_LOCK``), PostgreSQL (advisory locks) and SQLite (an
OS lock on ``PATH.NAME.lock``); ``is_sealed``.

An owner that holds such a lock says so in its token: ``~``, a *seal* of 12 hexadecimal digits, a random rest. The seal
names the run of the server, because a restart of the server frees all locks, also of owners that live. A successor that
finds the lock free, under the same seal, knows that the owner's connection has ended. A held lock proves nothing, since
a server notices the loss of a machine late: then the lease decides, as it does after an owner of an earlier version,
and with a database that refuses such locks. The token still guards every write: a wrong proof could cost a living owner
its store, never a message.
"""

import contextlib
import hashlib
import os
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from pocketmq.client.durable.ownership import PLACE_CHARS

if TYPE_CHECKING:
    from sqlalchemy import Connection

SEAL_MARK: Final = "~"
"""No hexadecimal digit, with which the tokens of earlier versions begin."""
SEAL_CHARS: Final = PLACE_CHARS - len(SEAL_MARK)
_FILE_SEAL: Final = "0" * SEAL_CHARS
_STARTED_MARGIN_S: Final = 1
"""MySQL reports its start as now minus uptime, both in whole seconds."""


def is_sealed(token: str) -> bool:
    """Return whether the owner of a token held a lock."""
    return token.startswith(SEAL_MARK)


def sealed(token: str, seal: str) -> str:
    """Return a token with its seal, of the same length; without a lock (an empty seal) as it is."""
    return f"{SEAL_MARK}{seal}{_key(token)}" if seal else token


def _key(token: str) -> str:
    """Return the part of a token that is the same before and after it is sealed."""
    return token[PLACE_CHARS:]


class OwnerLock(Protocol):
    """The lock of one owner at a time. ``connection`` is the one connection that the owner keeps."""

    def take(self, connection: "Connection", token: str) -> str:
        """Take the lock of a token, without waiting, and return its seal; "" where there is none to have."""
        ...

    def has_ended(self, connection: "Connection", token: str) -> bool:
        """Return whether the owner of a sealed token is proven dead."""
        ...

    def release(self) -> None:
        """Free what the end of the connection does not free."""
        ...


class NoLock:
    """For databases in memory, systems without file locks, and other dialects: the lease decides."""

    def take(self, connection: "Connection", token: str) -> str:
        """Return no seal."""
        return ""

    def has_ended(self, connection: "Connection", token: str) -> bool:
        """Prove nothing."""
        return False

    def release(self) -> None:
        """Hold nothing."""


class ServerLock:
    """A lock of a server's session, which the server frees when the connection ends.

    Statements run in a savepoint: one that this server refuses leaves the transaction usable, and the lease decides.
    """

    def __init__(self, sql: Any) -> None:
        self._sql = sql
        self._text = sql.text

    def take(self, connection: "Connection", token: str) -> str:
        """Take the lock until the connection ends."""
        with self._refusable(connection):
            return self._take(connection, token)
        return ""

    def has_ended(self, connection: "Connection", token: str) -> bool:
        """Return whether the same run of the same server has the lock free."""
        with self._refusable(connection):
            return self._is_free(connection, token)
        return False

    def release(self) -> None:
        """Leave it to the end of the connection."""

    @contextlib.contextmanager
    def _refusable(self, connection: "Connection") -> Iterator[None]:
        try:
            with connection.begin_nested():
                yield
        except self._sql.exc.DBAPIError as error:
            if error.connection_invalidated:
                raise

    def _take(self, connection: "Connection", token: str) -> str:
        raise NotImplementedError

    def _is_free(self, connection: "Connection", token: str) -> bool:
        raise NotImplementedError


class MySqlLock(ServerLock):
    """``GET_LOCK`` of a name with the token. Each server of a cluster has locks of its own, so the seal names it."""

    def _take(self, connection: "Connection", token: str) -> str:
        if connection.execute(self._text("SELECT GET_LOCK(:name, 0)"), {"name": self._name(token)}).scalar() != 1:
            return ""
        server, started_s = self._run(connection)
        return f"{server:04x}{started_s:08x}"

    def _is_free(self, connection: "Connection", token: str) -> bool:
        seal = token[len(SEAL_MARK) : PLACE_CHARS]
        server, started_s = self._run(connection)
        try:
            same = int(seal[:4], 16) == server and abs(int(seal[4:], 16) - started_s) <= _STARTED_MARGIN_S
        except ValueError:
            return False
        free = self._text("SELECT IS_FREE_LOCK(:name)")
        return same and connection.execute(free, {"name": self._name(token)}).scalar() == 1

    def _name(self, token: str) -> str:
        return f"pocketmq-retry:{_key(token)}"

    def _run(self, connection: "Connection") -> tuple[int, int]:
        query = self._text("SELECT CONCAT(@@hostname, ':', @@port), UNIX_TIMESTAMP()")
        server, now_s = connection.execute(query).one()
        uptime_s = connection.execute(self._text("SHOW GLOBAL STATUS LIKE 'Uptime'")).one()[1]
        return zlib.crc32(str(server).encode()) & 0xFFFF, (int(now_s) - int(uptime_s)) & 0xFFFF_FFFF


class PostgresLock(ServerLock):
    """A session's advisory lock, found in ``pg_locks``: trying it would succeed in a session that has it already."""

    def _take(self, connection: "Connection", token: str) -> str:
        high, low = self._numbers(token)
        lock = self._text("SELECT pg_try_advisory_lock(:high, :low)")
        return self._seal(connection) if connection.execute(lock, {"high": high, "low": low}).scalar() else ""

    def _is_free(self, connection: "Connection", token: str) -> bool:
        if not token.startswith(SEAL_MARK + self._seal(connection)):
            return False
        high, low = self._numbers(token)
        held = self._text(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted"
            " AND classid::bigint = :high AND objid::bigint = :low"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        unsigned = {"high": high & 0xFFFF_FFFF, "low": low & 0xFFFF_FFFF}
        return connection.execute(held, unsigned).scalar() == 0

    def _numbers(self, token: str) -> tuple[int, int]:
        digest = hashlib.sha256(b"pocketmq-retry:" + _key(token).encode()).digest()
        return int.from_bytes(digest[:4], "big", signed=True), int.from_bytes(digest[4:8], "big", signed=True)

    def _seal(self, connection: "Connection") -> str:
        started = self._text("SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint")
        return f"{int(connection.execute(started).scalar() or 0) & 0xFFFF_FFFF_FFFF:012x}"


class FileLock:
    """An OS lock on a file beside a SQLite database; the file stays, since a removal would race other openings.

    An owner that cannot give its row back keeps the lock, and opens the store again.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def take(self, connection: "Connection", token: str) -> str:
        """Take the lock until ``release`` or the end of the process."""
        return _FILE_SEAL if self._lock() else ""

    def has_ended(self, connection: "Connection", token: str) -> bool:
        """Return whether the file could be locked."""
        return self._lock()

    def release(self) -> None:
        """Free the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _lock(self) -> bool:
        if self._descriptor >= 0:
            return True
        import fcntl

        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return False
        try:
            # of the open file, not of the process: two stores in one process exclude each other, too
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True


def lock_of(dialect: str, path: str | None, name: str, sql: Any) -> OwnerLock:
    """Return the lock for a database. ``path``: of SQLite's file; ``sql``: the module ``sqlalchemy``."""
    if dialect in ("mysql", "mariadb"):
        return MySqlLock(sql)
    if dialect == "postgresql":
        return PostgresLock(sql)
    if dialect == "sqlite" and path and path != ":memory:":
        with contextlib.suppress(ImportError):
            import fcntl  # noqa: F401

            return FileLock(f"{path}.{name}.lock")
    return NoLock()
