"""A retry store in a SQL database through SQLAlchemy (extra ``sql``): MySQL and MariaDB, PostgreSQL, SQLite.

Lives here: ``SqlStore``, its three tables.

``pocketmq_retry`` holds the entries of all names, with their message ids for whoever looks into the database;
``pocketmq_retry_owner`` one row for each owned name: a token, and a beat that grows with every write and renewal. A row
whose beat has not moved for its owner's lease, by this process's monotonic clock, may be taken over; so the clocks of
two machines are never compared. ``pocketmq_retry_holder`` has the process and the lease of each token; a token of an
earlier version has no row there. Where an owner holds a lock that ends with it (``sql_locks``), its death is known at
once. Each read of the beat is a transaction of its own: within one, MySQL would always show the same beat.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pocketmq.client.durable.entry import Entry, entry_bytes
from pocketmq.client.durable.errors import (
    RetryStoreCorrupt,
    RetryStoreError,
    RetryStoreFull,
    RetryStoreLocked,
    RetryStoreRefused,
    RetryStoreUnreachable,
)
from pocketmq.client.durable.ownership import HOST_CHARS_MAX, SILENT_SHARE, Owner, Tokens
from pocketmq.client.durable.sql_locks import is_sealed, lock_of, sealed
from pocketmq.client.durable.store import Changes, Summary
from pocketmq.client.libraries import library, translated
from pocketmq.common.clock import Clock
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table

LANE_CHARS_MAX: Final = 400
"""For a topic (127), a broker's name (up to 255) and a number; more does not fit into an index key of MySQL."""
DELETE_AT_ONCE: Final = 500
MSG_ID: Final = "msg_id"
MSG_ID_INDEX: Final = "pocketmq_retry_msg_id"
MSG_ID_CHARS_MAX: Final = 64
CONTENDED: Final = frozenset({1205, 1213, "40001", "40P01"})
"""MySQL's and PostgreSQL's codes for a transaction that lost to another one: lock wait timeout, deadlock,
serialization."""
DRIVER_EXTRAS: Final = {"pymysql": "sql", "psycopg": "postgresql"}
"""The drivers that an extra of this package brings."""
WAITING, GIVEN_UP = 0, 1


class SqlStore:
    """The entries of one name in a database, owned by one process through a row that it keeps changing."""

    def __init__(self, url: str, name: str, *, clock: Clock, timeout_ms: int, lease_ms: int, sync: bool) -> None:
        self._sql = sqlalchemy = library("sqlalchemy", "sql", "retry store refused")
        kinds = (sqlalchemy.exc.SQLAlchemyError, OSError, ImportError)
        self._guard = partial(translated, kinds, self._translated)
        try:
            parsed = sqlalchemy.make_url(url)
        except sqlalchemy.exc.ArgumentError as error:
            raise ConfigError("retry store refused", why=str(error)) from error
        if parsed.drivername in ("mysql", "mariadb"):
            parsed = parsed.set(drivername=f"{parsed.drivername}+pymysql")
        elif parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_driver_name() in DRIVER_EXTRAS:
            library(parsed.get_driver_name(), DRIVER_EXTRAS[parsed.get_driver_name()], "retry store refused")
        self._parsed = parsed
        self._dialect = parsed.get_backend_name()
        self._sync = sync
        self._clock = clock
        self._timeout_s = max(timeout_ms / 1000, 1.0)
        self._lease_ms = lease_ms
        self._store_name = name
        self._token = ""
        self._tokens = Tokens()
        """An ownership under one of them is still ours: the server was unreachable when it was to be given back, or
        committed it and its answer was lost."""
        self._seen: tuple[str, int] = ("", -1)
        """Token and beat of the owner, first found at ``_seen_ns``. ``_lives``: the beat has moved."""
        self._seen_ns = 0
        self._lives = False
        self._has_msg_ids = True
        """Whether the table has the column, which one of an earlier version lacks until it may be altered."""
        self._lock = lock_of(self._dialect, parsed.database, name, sqlalchemy)
        self._engine: Engine | None = None
        self._tables()

    def _tables(self) -> None:
        sql = self._sql
        from sqlalchemy.dialects.mysql import LONGBLOB, VARCHAR

        metadata = sql.MetaData()
        engines = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}
        # compared byte by byte, as everywhere else: MySQL's default collation ignores case
        exact = {"mysql": "utf8mb4_bin", "mariadb": "utf8mb4_bin"}.get(self._dialect)

        def text(size: int) -> Any:
            base = sql.String(size)
            return base.with_variant(VARCHAR(size, charset="utf8mb4", collation=exact), "mysql", "mariadb")

        binary = sql.LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")
        self._table: Table = sql.Table(
            "pocketmq_retry",
            metadata,
            sql.Column("name", text(64), primary_key=True),
            sql.Column("seq", sql.BigInteger, primary_key=True, autoincrement=False),
            sql.Column("state", sql.SmallInteger, nullable=False),
            sql.Column("lane", text(LANE_CHARS_MAX), nullable=False),
            sql.Column("due_ms", sql.BigInteger, nullable=False),
            sql.Column("attempts", sql.Integer, nullable=False),
            sql.Column("payload_bytes", sql.Integer, nullable=False),
            sql.Column("order_key", sql.LargeBinary, nullable=False),
            sql.Column("why", sql.LargeBinary, nullable=False),
            sql.Column("payload", binary, nullable=False),
            sql.Column(MSG_ID, text(MSG_ID_CHARS_MAX), nullable=True),
            sql.Index(MSG_ID_INDEX, "name", MSG_ID),
            sql.Index("pocketmq_retry_due", "name", "state", "lane", "due_ms", "seq"),
            **engines,
        )
        self._owners: Table = sql.Table(
            "pocketmq_retry_owner",
            metadata,
            sql.Column("name", text(64), primary_key=True),
            sql.Column("token", sql.String(32), nullable=False),
            sql.Column("beat", sql.BigInteger, nullable=False),
            **engines,
        )
        self._holders: Table = sql.Table(
            "pocketmq_retry_holder",
            metadata,
            sql.Column("token", sql.String(32), primary_key=True),
            sql.Column("host", sql.String(HOST_CHARS_MAX), nullable=False),
            *(sql.Column(name, sql.BigInteger, nullable=False) for name in ("pid", "since_ms", "lease_ms")),
            **engines,
        )
        self._metadata = metadata

    @property
    def name(self) -> str:
        """The URL without a password."""
        return f"{self._parsed.render_as_string(hide_password=True)}?name={self._store_name}"

    @property
    def durability(self) -> str:
        """What a written entry survives."""
        if self._dialect == "sqlite":
            if self._sync:
                return "kept in SQLite on this machine's disk and synced: it survives a power loss"
            return "kept in SQLite on this machine's disk: it survives the end of the process, a power loss may lose it"
        return f"committed in {self._dialect}: it survives the loss of this machine, and what the database survives"

    # -- life --------------------------------------------------------------------------------------------------

    def open(self, *, read_only: bool = False) -> Summary:
        """Connect, make missing tables, take ownership, count the entries.

        Raises ``RetryStoreLocked`` where another process owns them; a call after ``left_ms`` takes over from a dead
        one.
        """
        assert self._engine is None
        path = self._parsed.database
        if read_only and self._dialect == "sqlite" and path and path != ":memory:" and not os.path.exists(path):
            raise RetryStoreUnreachable("retry store not opened", why=f"{path} does not exist")  # SQLite would make it
        try:
            with self._guard("retry store not opened"):
                engine = self._engine = self._make_engine()
                if not read_only:
                    self._make_tables(engine)
                    self._has_msg_ids = self._add_msg_ids(engine)
                    self._take()
                return self._summary()
        except RetryStoreError:
            self.close()
            raise

    def _make_engine(self) -> "Engine":
        sql = self._sql
        arguments: dict[str, Any] = {}
        if self._dialect in ("mysql", "mariadb"):
            timeout_s = self._timeout_s
            arguments = {"connect_timeout": timeout_s, "read_timeout": timeout_s, "write_timeout": timeout_s}
        elif self._dialect == "postgresql":
            milliseconds = int(self._timeout_s * 1000)
            arguments = {"connect_timeout": int(self._timeout_s), "options": f"-c statement_timeout={milliseconds}"}
        elif self._dialect == "sqlite":
            arguments = {"timeout": self._timeout_s, "check_same_thread": False}
        engine: Engine = sql.create_engine(
            self._parsed,
            connect_args=arguments,
            pool_size=1,
            max_overflow=0,
            pool_pre_ping=False,
            poolclass=sql.QueuePool,
        )
        if self._dialect == "sqlite":
            synchronous = "FULL" if self._sync else "NORMAL"

            def settings(connection: Any, _record: Any) -> None:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute(f"PRAGMA synchronous={synchronous}")

            sql.event.listen(engine, "connect", settings)
        return engine

    def _make_tables(self, engine: "Engine") -> None:
        """Make missing tables. Another process may make the same one now: then the next try finds it."""
        for left in reversed(range(len(self._metadata.tables) + 1)):
            try:
                self._metadata.create_all(engine)
                return
            except self._sql.exc.DBAPIError as error:
                if not left or "already exists" not in str(error):
                    raise

    def _add_msg_ids(self, engine: "Engine") -> bool:
        """Add the column to a table of an earlier version. Return False where the database does not let us: messages
        are kept all the same.
        """
        sql = self._sql

        def has_column() -> bool:
            return any(each["name"] == MSG_ID for each in sql.inspect(engine).get_columns(self._table.name))

        if has_column():
            return True
        column = str(sql.schema.CreateColumn(self._table.c[MSG_ID]).compile(engine))
        try:
            with engine.begin() as connection:
                connection.execute(sql.text(f"ALTER TABLE {self._table.name} ADD COLUMN {column}"))
            index = next(each for each in self._table.indexes if each.name == MSG_ID_INDEX)
            index.create(engine, checkfirst=True)
        except sql.exc.DBAPIError:
            return has_column()  # another process has added it, at the same moment
        return True

    def _take(self) -> None:
        """Become the owner, or raise ``RetryStoreLocked``."""
        owners, holders = self._owners, self._holders
        owner = Owner.new(self._clock, self._lease_ms, self._tokens.new())
        mine = owners.c.name == self._store_name
        query = (
            self._sql.select(owners.c.token, owners.c.beat, holders.c.host, holders.c.pid)
            .add_columns(holders.c.since_ms, holders.c.lease_ms)
            .select_from(owners.outerjoin(holders, owners.c.token == holders.c.token))
            .where(mine)
        )
        try:
            with self._transaction("retry store not opened", own=False) as connection:
                before_ns = self._clock.monotonic_ns()
                row = connection.execute(query).first()
                if row is not None and not self._is_free(connection, row.token):
                    self._await_end(row, before_ns)
                owner = msgspec.structs.replace(
                    owner, token=sealed(owner.token, self._lock.take(connection, owner.token))
                )
                if row is None:
                    connection.execute(owners.insert().values(name=self._store_name, token=owner.token, beat=0))
                else:
                    same = mine & (owners.c.token == row.token) & (owners.c.beat == row.beat)
                    if connection.execute(owners.update().where(same).values(token=owner.token, beat=0)).rowcount != 1:
                        why = "its owner renewed it, or another process took it, at the same moment"
                        raise self._locked(why, left_ms=self._lease_ms)
                    if row.pid is not None:  # a delete that finds nothing would lock a gap of the index in MySQL
                        connection.execute(holders.delete().where(holders.c.token == row.token))
                connection.execute(holders.insert().values(**msgspec.structs.asdict(owner)))
        except RetryStoreError as error:
            if self._lost_a_race(error.__cause__):
                why = "another process opens it, or writes, at the same moment"
                raise self._locked(why, left_ms=self._lease_ms) from error
            raise
        self._token, self._seen, self._lives = owner.token, ("", -1), False

    def _is_free(self, connection: "Connection", token: str) -> bool:
        """Return whether an ownership is our own, or its owner is proven dead."""
        return self._tokens.made(token) or (is_sealed(token) and self._lock.has_ended(connection, token))

    def _await_end(self, row: Any, before_ns: int) -> None:
        """Return if the owner that ``row`` names has been silent for its lease; raise ``RetryStoreLocked`` if not.

        ``before_ns``: when the read began. The beat was first seen before ``_seen_ns``, and has not moved since.
        """
        owner = Owner(token=str(row.token))
        if row.pid is not None:
            owner = msgspec.structs.replace(
                owner, host=str(row.host), pid=int(row.pid), since_ms=int(row.since_ms), lease_ms=int(row.lease_ms)
            )
        lease_ms, seen = owner.lease_or(self._lease_ms), (owner.token, int(row.beat))
        if seen != self._seen:
            self._lives = seen[0] == self._seen[0]
            self._seen, self._seen_ns = seen, self._clock.monotonic_ns()
        still_ms = max(before_ns - self._seen_ns, 0) // 1_000_000
        if still_ms >= lease_ms:
            return
        if self._lives and still_ms < lease_ms * SILENT_SHARE:
            raise self._locked("it lives: its last sign of life was just seen", owner)
        why = f"it may be dead: without a sign of life for {still_ms} of {lease_ms} ms"
        raise self._locked(why, owner, left_ms=lease_ms - still_ms)

    def _lost_a_race(self, error: BaseException | None) -> bool:
        """Return whether a statement failed only because another process's came first."""
        if isinstance(error, self._sql.exc.IntegrityError):
            return True
        fault = getattr(error, "orig", None)
        codes = {getattr(fault, "sqlstate", None), *getattr(fault, "args", ())[:1]}
        return not CONTENDED.isdisjoint(codes) or (self._dialect == "sqlite" and "database is locked" in str(fault))

    def _locked(self, why: str, owner: Owner | None = None, *, left_ms: int = 0) -> RetryStoreLocked:
        who = str(owner) if owner is not None else "another process"
        return RetryStoreLocked(
            "retry store not opened",
            why=f"{who} owns {self.name}: {why}",
            hint="give each process a name of its own: …?name=NAME",
            owner=who,
            left_ms=left_ms,
        )

    def _summary(self) -> Summary:
        table = self._table
        summary = Summary()
        columns = (table.c.seq, table.c.state, table.c.lane, table.c.payload_bytes, table.c.order_key)
        query = self._sql.select(*columns).where(table.c.name == self._store_name)
        with self._transaction("retry store not opened", own=False) as connection:
            rows = connection.execution_options(yield_per=1_000).execute(query)
            for seq, state, lane, payload_bytes, order_key in rows:
                key = bytes(order_key).decode()
                if state == WAITING:
                    summary.add(seq, entry_bytes(payload_bytes, key), lane, key)
                else:
                    summary.add_given_up(seq, entry_bytes(payload_bytes, key))
        return summary

    def close(self) -> None:
        """Give the ownership back, if it is still ours, and disconnect."""
        engine, token = self._engine, self._token
        self._token = ""
        if engine is None:
            return
        try:
            if token:
                owners, holders = self._owners, self._holders
                ours = (owners.c.name == self._store_name) & (owners.c.token == token)
                with self._transaction("retry store not closed", own=False) as connection:
                    if connection.execute(owners.delete().where(ours)).rowcount:
                        connection.execute(holders.delete().where(holders.c.token == token))
            self._lock.release()
        except RetryStoreError:
            return  # the ownership ends by itself, or with the next opening
        finally:
            self._engine = None
            engine.dispose()

    def keep_alive(self) -> None:
        """Move the beat."""
        with self._transaction("retry store not renewed"):
            pass

    def repair(self) -> str:
        """Move a damaged SQLite file aside; refuse for a server, whose tables are not this program's to drop."""
        path = self._parsed.database
        if self._dialect != "sqlite" or not path or path == ":memory:":
            raise RetryStoreCorrupt(
                "retry store not repaired",
                why=f"{self.name} holds what this program cannot read",
                hint="ask its operator",
            )
        self.close()
        aside = f"{path}.corrupt-{self._clock.now_ms()}"
        try:
            for suffix in ("", "-wal", "-shm"):
                if os.path.exists(path + suffix):
                    os.rename(path + suffix, aside + suffix)
        except OSError as error:
            raise RetryStoreCorrupt("retry store not repaired", why=f"not moved aside: {error}") from error
        return f"moved aside to {aside}, its messages are NOT resent; a new, empty one is begun"

    # -- writing -----------------------------------------------------------------------------------------------

    def write(self, changes: Changes) -> None:
        """Write in one transaction."""
        table, sql = self._table, self._sql
        ours = table.c.name == self._store_name
        for entry in changes.added:
            if len(entry.lane) > LANE_CHARS_MAX:
                raise RetryStoreRefused(
                    "retry store not written", why=f"topic and broker have over {LANE_CHARS_MAX} characters"
                )
        with self._transaction("retry store not written") as connection:
            if changes.added:
                connection.execute(table.insert(), [self._row(entry) for entry in changes.added])
            gone = [entry.seq for entry in changes.removed]
            for at in range(0, len(gone), DELETE_AT_ONCE):
                connection.execute(table.delete().where(ours & table.c.seq.in_(gone[at : at + DELETE_AT_ONCE])))
            if changes.moved:
                one = ours & (table.c.seq == sql.bindparam("moved_seq"))
                connection.execute(
                    table.update()
                    .where(one)
                    .values(due_ms=sql.bindparam("new_due_ms"), attempts=sql.bindparam("new_attempts")),
                    [
                        {"moved_seq": entry.seq, "new_due_ms": due_ms, "new_attempts": attempts}
                        for entry, due_ms, attempts in changes.moved
                    ],
                )
            if changes.given_up:
                one = ours & (table.c.seq == sql.bindparam("gone_seq"))
                connection.execute(
                    table.update().where(one).values(state=GIVEN_UP, why=sql.bindparam("reason")),
                    [{"gone_seq": entry.seq, "reason": why.encode()[:60_000]} for entry, why in changes.given_up],
                )

    def _row(self, entry: Entry) -> dict[str, Any]:
        return {
            "name": self._store_name,
            "seq": entry.seq,
            "state": WAITING,
            "lane": entry.lane,
            "due_ms": entry.due_ms,
            "attempts": entry.attempts,
            "payload_bytes": len(entry.payload),
            "order_key": entry.order_key.encode(),
            "why": b"",
            "payload": entry.payload,
            **({MSG_ID: entry.msg_id[:MSG_ID_CHARS_MAX] or None} if self._has_msg_ids else {}),
        }

    @contextmanager
    def _transaction(self, what: str, *, own: bool = True) -> "Iterator[Connection]":
        """Open a transaction; with ``own`` it fails if the ownership is lost."""
        engine = self._engine
        if engine is None:
            raise RetryStoreUnreachable(what, why=f"{self.name} is not open")
        owners = self._owners
        with self._guard(what), engine.begin() as connection:
            if own:
                ours = (owners.c.name == self._store_name) & (owners.c.token == self._token)
                if connection.execute(owners.update().where(ours).values(beat=owners.c.beat + 1)).rowcount != 1:
                    raise RetryStoreLocked(
                        what,
                        why=f"the lease of {self.name} ran out, and another process owns it now",
                        hint="give each process a name of its own; raise lease_ms if this one was only slow",
                    )
            yield connection

    # -- reading -----------------------------------------------------------------------------------------------

    def due(self, start: tuple[int, int], until_ms: int, count: int, size_bytes: int) -> list[Entry]:
        """Return entries without a lane."""
        table = self._table
        behind = (table.c.due_ms > start[0]) | ((table.c.due_ms == start[0]) & (table.c.seq >= start[1]))
        where = self._waiting("") & (table.c.due_ms >= start[0]) & behind & (table.c.due_ms <= until_ms)
        return self._entries(where, (table.c.due_ms, table.c.seq), count, size_bytes)

    def first_due_ms(self, start: tuple[int, int]) -> int | None:
        """Return the due time of the first entry without a lane."""
        table = self._table
        behind = (table.c.due_ms > start[0]) | ((table.c.due_ms == start[0]) & (table.c.seq >= start[1]))
        query = self._sql.select(self._sql.func.min(table.c.due_ms)).where(self._waiting("") & behind)
        with self._transaction("retry store not read", own=False) as connection:
            found: int | None = connection.execute(query).scalar()
            return found

    def lane(self, lane: str, start_seq: int, count: int, size_bytes: int) -> list[Entry]:
        """Return entries of a lane."""
        table = self._table
        return self._entries(self._waiting(lane) & (table.c.seq >= start_seq), (table.c.seq,), count, size_bytes)

    def _waiting(self, lane: str) -> Any:
        table = self._table
        return (table.c.name == self._store_name) & (table.c.state == WAITING) & (table.c.lane == lane)

    def _entries(self, where: Any, order: tuple[Any, ...], count: int, size_bytes: int) -> list[Entry]:
        """Read the index first, then the payloads in parts."""
        table = self._table
        columns = [table.c[name] for name in ("seq", "due_ms", "attempts", "lane", "order_key", "payload_bytes")]
        found: list[Entry] = []
        with self._transaction("retry store not read", own=False) as connection:
            heads = connection.execute(self._sql.select(*columns).where(where).order_by(*order).limit(count)).all()
            wanted: list[Any] = []
            for head in heads:
                if size_bytes <= 0:
                    break
                wanted.append(head)
                size_bytes -= entry_bytes(head.payload_bytes, "")
            ours = table.c.name == self._store_name
            for at in range(0, len(wanted), DELETE_AT_ONCE):
                part = wanted[at : at + DELETE_AT_ONCE]
                query = self._sql.select(table.c.seq, table.c.payload).where(
                    ours & table.c.seq.in_([head.seq for head in part])
                )
                payloads = {seq: bytes(payload) for seq, payload in connection.execute(query)}
                for head in part:
                    due_ms = 0 if head.lane else head.due_ms
                    key = bytes(head.order_key).decode()
                    found.append(Entry(head.seq, due_ms, head.attempts, head.lane, key, payloads.get(head.seq, b"")))
        return found

    def oldest_seq(self, start_seq: int) -> int:
        """Return the smallest seq of the waiting entries."""
        table = self._table
        waiting = (table.c.name == self._store_name) & (table.c.state == WAITING) & (table.c.seq >= start_seq)
        query = self._sql.select(table.c.seq).where(waiting).order_by(table.c.seq).limit(1)
        with self._transaction("retry store not read", own=False) as connection:
            return connection.execute(query).scalar() or 0

    def given_up(self, start_seq: int, count: int) -> list[tuple[Entry, str]]:
        """Return entries that were given up."""
        table = self._table
        query = (
            self._sql.select(table)
            .where((table.c.name == self._store_name) & (table.c.state == GIVEN_UP) & (table.c.seq >= start_seq))
            .order_by(table.c.seq)
            .limit(count)
        )
        found: list[tuple[Entry, str]] = []
        with self._transaction("retry store not read", own=False) as connection:
            for row in connection.execute(query):
                key = bytes(row.order_key).decode()
                entry = Entry(row.seq, row.due_ms, row.attempts, row.lane, key, bytes(row.payload))
                found.append((entry, bytes(row.why).decode(errors="replace")))
        return found

    def purge_given_up(self, entries: Sequence[Entry]) -> None:
        """Remove entries that were given up."""
        table = self._table
        seqs = [entry.seq for entry in entries]
        ours = (table.c.name == self._store_name) & (table.c.state == GIVEN_UP)
        with self._transaction("retry store not written") as connection:
            for at in range(0, len(seqs), DELETE_AT_ONCE):
                connection.execute(table.delete().where(ours & table.c.seq.in_(seqs[at : at + DELETE_AT_ONCE])))

    def _translated(self, what: str, error: Exception) -> RetryStoreError:
        text = f"{self.name}: {getattr(error, 'orig', None) or error}"
        low = text.lower()
        if "malformed" in low or "not a database" in low or "file is encrypted" in low:
            return RetryStoreCorrupt(what, why=text, hint="the next opening moves it aside")
        if "database or disk is full" in low or "is full" in low or "no space" in low:
            return RetryStoreFull(what, why=text, hint="free space in the database")
        if isinstance(error, self._sql.exc.DataError | self._sql.exc.IntegrityError):
            return RetryStoreRefused(what, why=text)
        return RetryStoreUnreachable(what, why=text, hint="check the database server")
