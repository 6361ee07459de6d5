"""Marks in a SQL database: a unique key, inserted first.

Lives here: ``SqlStore``: the table, claims in transactions of their own, marks inside the user's transaction.
Needs ``pip install 'pocketmq[sql]'`` and the driver of the database (SQLite has one).

When two instances claim one key at once, both insert the same primary key: the database admits one, and the other waits
until that transaction ends. No lock outlives its transaction.
"""

import asyncio
import hashlib
import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pocketmq.client.idempotence.store import Claim, MarkStoreUnavailable
from pocketmq.client.libraries import library, translated
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

TABLE: Final = "pocketmq_marks"
MAX_KEYS: Final = 10_000_000
PURGE_MAX: Final = 5_000
THREADS: Final = 8
LABEL_LENGTH_MAX: Final = 200
ABANDONED_MS: Final = 30 * 86_400_000
"""A claim whose lease ended so long ago is forgotten: its message no longer arrives."""
_RUNNING, _DONE = 0, 1
T = TypeVar("T")


def hash_of(key: str) -> str:
    """Return the primary key for a key: databases differ in how they compare case, accents and trailing spaces."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


class SqlStore:
    """``database``: a SQLAlchemy URL or the user's own ``Engine``. The table is made if it is missing.

    Leases are compared with the clocks of the instances: these must agree within a fraction of the lease. ``max_keys``
    is enforced roughly, by ``purge``; ``evicted`` counts marks forgotten before their window was over. All work
    runs in threads of the store.
    """

    def __init__(self, database: "str | Engine", *, table: str = TABLE, max_keys: int = MAX_KEYS) -> None:
        self.evicted = 0
        self.max_keys = max_keys
        self._sa = sa = library("sqlalchemy", "sql", "marks in SQL need a library")
        self._guard = partial(translated, (sa.exc.SQLAlchemyError,), _unavailable)
        self._owns_engine = isinstance(database, str)
        self.engine: Engine = _engine(sa, database) if isinstance(database, str) else database
        self._is_sqlite = self.engine.dialect.name == "sqlite"
        self._threads = ThreadPoolExecutor(1 if self._is_sqlite else THREADS, thread_name_prefix="pocketmq-marks")
        self._ending_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="pocketmq-marks-ending")
        self._table = sa.Table(
            table,
            sa.MetaData(),
            sa.Column("mark_key", sa.CHAR(64), primary_key=True),
            sa.Column("state", sa.SmallInteger, nullable=False),
            sa.Column("owner", sa.String(160), nullable=False),
            sa.Column("until_ms", sa.BigInteger, nullable=False),
            sa.Column("label", sa.String(LABEL_LENGTH_MAX), nullable=False),
            sa.Index(f"{table}_until", "until_ms"),
        )

    async def _run(self, what: str, work: Callable[["Connection"], T]) -> T:
        def transaction() -> T:
            with self._guard(what), self.engine.begin() as connection:
                return work(connection)

        return await asyncio.get_running_loop().run_in_executor(self._threads, transaction)

    async def open(self) -> None:
        """Make the table if it is missing."""

        def make() -> None:
            try:
                self._table.create(self.engine, checkfirst=True)
            except self._sa.exc.SQLAlchemyError as error:
                if not self._sa.inspect(self.engine).has_table(self._table.name):  # else another instance made it
                    raise _unavailable("table not made", error) from error

        await asyncio.get_running_loop().run_in_executor(self._threads, make)

    # ---- claims in a transaction of their own

    async def claim(
        self, keys: Sequence[str], owner: str, now_ms: int, lease_ms: int, window_ms: int
    ) -> Sequence[Claim]:
        """Claim keys."""
        return await self._run(
            "not claimed",
            lambda connection: self._enter(connection, keys, owner, _RUNNING, now_ms, now_ms + lease_ms),
        )

    def _enter(
        self, connection: "Connection", keys: Sequence[str], owner: str, state: int, now_ms: int, until_ms: int
    ) -> list[Claim]:
        """Insert the marks of these keys, or find out why not. Sorted, so that two callers never deadlock."""
        hashes = {key: hash_of(key) for key in keys}
        values = [
            {
                "mark_key": hashed,
                "state": state,
                "owner": owner,
                "until_ms": until_ms,
                "label": key.encode("ascii", "replace").decode()[:LABEL_LENGTH_MAX],
            }
            for key, hashed in sorted(hashes.items(), key=lambda each: each[1])
        ]
        connection.execute(self._insert(), values)
        table = self._table.c
        wanted = self._sa.select(table.mark_key, table.state, table.owner, table.until_ms)
        found = {
            row.mark_key: row for row in connection.execute(wanted.where(table.mark_key.in_(list(hashes.values()))))
        }
        return [self._claimed(connection, found.get(hashes[key]), owner, state, now_ms, until_ms) for key in keys]

    def _insert(self) -> Any:
        """Return an insert that leaves existing marks alone."""
        name = self.engine.dialect.name
        if name in ("sqlite", "postgresql"):
            dialect = importlib.import_module(f"sqlalchemy.dialects.{name}")
            return dialect.insert(self._table).on_conflict_do_nothing(index_elements=["mark_key"])
        if name in ("mysql", "mariadb"):
            return self._sa.insert(self._table).prefix_with("IGNORE")
        raise ConfigError("bad store of marks", why=f"database {name}", hint="SQLite, PostgreSQL, MySQL or MariaDB")

    def _claimed(self, connection: "Connection", row: Any, owner: str, state: int, now_ms: int, until_ms: int) -> Claim:
        if row is None:  # purged between the two statements; the next caller may claim it
            return Claim.BUSY
        if row.owner == owner:
            return Claim.NEW
        if row.until_ms > now_ms:
            return Claim.DONE if row.state == _DONE else Claim.BUSY
        table = self._table.c
        taken = connection.execute(
            self._sa.update(self._table)
            .where(table.mark_key == row.mark_key, table.owner == row.owner, table.until_ms == row.until_ms)
            .values(state=state, owner=owner, until_ms=until_ms)
        )
        if taken.rowcount != 1:
            return Claim.BUSY
        return Claim.NEW if row.state == _DONE else Claim.TAKEN_OVER

    def _held(self, key: str, owner: str) -> Any:
        table = self._table.c
        return self._sa.and_(table.mark_key == hash_of(key), table.owner == owner, table.state == _RUNNING)

    async def renew(self, keys: Sequence[str], owner: str, now_ms: int, lease_ms: int) -> None:
        """Renew held claims."""

        def renew(connection: "Connection") -> None:
            for key in sorted(keys, key=hash_of):
                connection.execute(
                    self._sa.update(self._table).where(self._held(key, owner)).values(until_ms=now_ms + lease_ms)
                )

        await self._run("not renewed", renew)

    async def finish(self, keys: Sequence[str], owner: str, now_ms: int, window_ms: int) -> Sequence[bool]:
        """Mark held claims as done."""

        def finish(connection: "Connection") -> list[bool]:
            done: dict[str, bool] = {}
            for key in sorted(keys, key=hash_of):
                change = self._sa.update(self._table).where(self._held(key, owner))
                result = connection.execute(change.values(state=_DONE, until_ms=now_ms + window_ms))
                done[key] = result.rowcount == 1
            return [done[key] for key in keys]

        return await self._run("not finished", finish)

    async def release(self, keys: Sequence[str], owner: str) -> None:
        """Forget held claims."""

        def release(connection: "Connection") -> None:
            for key in sorted(keys, key=hash_of):
                connection.execute(self._sa.delete(self._table).where(self._held(key, owner)))

        await self._run("not released", release)

    # ---- marks inside the user's transaction

    def mark_in(
        self, connection: "Connection", keys: Sequence[str], owner: str, now_ms: int, window_ms: int
    ) -> list[Claim]:
        """Mark keys as done within the transaction of ``connection``; the caller commits or rolls back.

        Of two transactions with one key the second waits here until the first ends, and then finds it done, or free.
        """
        with self._guard("not marked"):
            return self._enter(connection, keys, owner, _DONE, now_ms, now_ms + window_ms)

    def connect(self) -> "Connection":
        """Return a connection of the pool; blocks."""
        with self._guard("not connected"):
            return self.engine.connect()

    async def in_thread(self, work: Callable[[], T], *, may_wait: bool) -> T:
        """Run blocking work of a transaction in a thread of the store.

        ``may_wait``: it may wait for another transaction to end; such work never takes the threads that the other one
        needs to end.
        """
        threads = self._threads if may_wait else self._ending_threads
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    # ----

    async def purge(self, now_ms: int) -> int:
        """Forget expired marks; then, if more than ``max_keys`` are left, some of the oldest done ones."""

        def purge(connection: "Connection") -> int:
            table = self._table.c
            over = self._delete(connection, table.until_ms <= now_ms, table.state == _DONE)
            over += self._delete(connection, table.until_ms <= now_ms - ABANDONED_MS, table.state == _RUNNING)
            count = connection.execute(self._sa.select(self._sa.func.count()).select_from(self._table)).scalar_one()
            excess = min(int(count) - self.max_keys, PURGE_MAX)
            if excess > 0:
                evicted = self._delete(connection, table.state == _DONE, count_max=excess)
                self.evicted += evicted
                over += evicted
            return over

        return await self._run("not purged", purge)

    def _delete(self, connection: "Connection", *conditions: Any, count_max: int = PURGE_MAX) -> int:
        table = self._table.c
        chosen = self._sa.select(table.mark_key).where(*conditions).order_by(table.until_ms).limit(count_max)
        keys = [row.mark_key for row in connection.execute(chosen)]
        if not keys:
            return 0
        deleted = 0
        for start in range(0, len(keys), 500):  # SQLite takes 999 parameters
            part = keys[start : start + 500]
            result = connection.execute(self._sa.delete(self._table).where(table.mark_key.in_(part), *conditions))
            deleted += result.rowcount
        return deleted

    async def close(self) -> None:
        """Disconnect; the user's own engine stays open."""
        if self._owns_engine:
            await asyncio.get_running_loop().run_in_executor(self._threads, self.engine.dispose)
        self._threads.shutdown(wait=False)
        self._ending_threads.shutdown(wait=False)


def _engine(sa: Any, url: str) -> Any:
    try:
        parsed = sa.engine.make_url(url)
        if parsed.get_backend_name() != "sqlite":
            return sa.create_engine(parsed, pool_size=THREADS, pool_pre_ping=True)
        if parsed.database in (None, "", ":memory:"):
            raise ConfigError("bad store of marks", why=f"{url} is gone with its connection", hint="use MemoryStore()")
        engine = sa.create_engine(parsed, connect_args={"timeout": 30, "check_same_thread": False})
    except (sa.exc.SQLAlchemyError, ImportError) as error:
        raise ConfigError("bad store of marks", why=f"{type(error).__name__}: {error}") from error

    def use_wal(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")

    sa.event.listen(engine, "connect", use_wal)
    return engine


def _unavailable(what: str, error: Exception) -> MarkStoreUnavailable:
    text = str(getattr(error, "orig", None) or error).splitlines()
    return MarkStoreUnavailable(f"marks: {what}", why=f"{type(error).__name__}: {text[0] if text else ''}")
