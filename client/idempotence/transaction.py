"""Effect and mark in one database transaction: exactly once.

Lives here: ``Transaction`` (for ``async with``), ``run_in_transaction`` (around a plain handler).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from pocketmq.client.handlers.consume_result import Later, outcome_of
from pocketmq.client.handlers.handler_call import call_plain
from pocketmq.client.idempotence.counts import Counts
from pocketmq.client.idempotence.store import Claim, MarkStore, MarkStoreUnavailable
from pocketmq.common.clock import Clock
from pocketmq.common.errors import ConfigError
from pocketmq.common.message import ReceivedMessage

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from pocketmq.client.idempotence.sql_store import SqlStore


class Marker(Protocol):
    """The parts of ``Idempotent`` that a transaction needs."""

    store: MarkStore
    counts: Counts
    clock: Clock
    window_ms: int

    def key_of(self, message: ReceivedMessage, default_scope: str = "") -> str:
        """Return the key of a message."""
        ...

    def new_owner(self) -> str:
        """Return a name for one call."""
        ...

    async def open(self) -> None:
        """Connect the store."""
        ...


class EffectInFlight(MarkStoreUnavailable):
    """Another handler, without a transaction, holds the claim of a message: try later."""


def sql_store(store: MarkStore) -> "SqlStore":
    """Return ``store`` if it has transactions; raise ``ConfigError``."""
    from pocketmq.client.idempotence.sql_store import SqlStore

    if not isinstance(store, SqlStore):
        raise ConfigError(
            "no transactions", why=f"{type(store).__name__} has none", hint="use a SQL store, or decorate the handler"
        )
    return store


class _Rollback(Exception):
    """Leaves a transaction without an error for the user."""


def _mark(
    marker: Marker, connection: "Connection", messages: Sequence[ReceivedMessage], scope: str
) -> tuple[list[ReceivedMessage], list[ReceivedMessage]]:
    """Mark in the transaction of ``connection``; return (messages to handle now, messages to put off)."""
    keys: dict[str, ReceivedMessage] = {}
    for message in messages:
        keys.setdefault(marker.key_of(message, scope), message)
    now_ms = marker.clock.now_ms()
    claims = sql_store(marker.store).mark_in(connection, list(keys), marker.new_owner(), now_ms, marker.window_ms)
    counts = marker.counts
    new: list[ReceivedMessage] = []
    busy: list[ReceivedMessage] = []
    for message, claim in zip(keys.values(), claims, strict=True):
        if claim.is_ours:
            new.append(message)
        elif claim is Claim.BUSY:
            busy.append(message)
    counts.first += len(new)
    counts.busy += len(busy)
    counts.skipped += len(messages) - len(new) - len(busy)
    return new, busy


async def run_in_transaction(marker: Marker, handler: Callable[..., Any], argument: Any, scope: str) -> Any:
    """Call ``handler(argument, connection)`` for messages not done, in a thread and a transaction; return its
    answer."""
    store = sql_store(marker.store)
    is_batch = isinstance(argument, list)
    messages: list[ReceivedMessage] = argument if is_batch else [argument]

    def work() -> Any:
        answer: Any = None
        new: list[ReceivedMessage] = []
        busy: list[ReceivedMessage] = []
        try:
            with store.engine.begin() as connection:
                new, busy = _mark(marker, connection, messages, scope)
                if not new:
                    return Later(messages=busy) if busy else None
                answer = call_plain(handler, new if is_batch else new[0], connection)
                if outcome_of(answer, new).later:
                    raise _Rollback
        except _Rollback:
            marker.counts.failed += len(new)
            # a partial result cannot be kept: the whole call is repeated
            answered = outcome_of(answer, new)
            return Later(delay_level=answered.delay_level, messages=[*new, *busy], suspend_ms=answered.suspend_ms)
        except BaseException:
            marker.counts.failed += len(new)
            raise
        marker.counts.done += len(new)
        return Later(messages=busy) if busy else answer

    return await store.in_thread(work, may_wait=True)


class Transaction:
    """See ``Idempotent.transaction``. ``new``: the messages that are not done; only their effects belong in here."""

    def __init__(self, marker: Marker, messages: ReceivedMessage | Sequence[ReceivedMessage], scope: str) -> None:
        self.new: list[ReceivedMessage] = []
        self._store = sql_store(marker.store)
        self._marker = marker
        self._messages = [messages] if isinstance(messages, ReceivedMessage) else list(messages)
        self._scope = scope
        self._connection: Connection | None = None

    @property
    def is_first(self) -> bool:
        """Whether any message is to be handled."""
        return bool(self.new)

    async def __aenter__(self) -> Self:
        await self._marker.open()
        beginning = asyncio.ensure_future(self._store.in_thread(self._begin, may_wait=True))
        try:
            await asyncio.shield(beginning)
        except asyncio.CancelledError:
            beginning.add_done_callback(self._forget)  # it goes on in its thread: close its connection then
            raise
        return self

    def _forget(self, beginning: "asyncio.Future[None]") -> None:
        if not beginning.cancelled() and beginning.exception() is None and self._connection is not None:
            self._connection.close()

    def _begin(self) -> None:
        connection = self._store.connect()
        try:
            connection.begin()
            self.new, busy = _mark(self._marker, connection, self._messages, self._scope)
            if busy:
                raise EffectInFlight(
                    "message not handled", why=f"{busy[0]} is claimed by a handler without a transaction", hint="later"
                )
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    async def execute(self, statement: Any, parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] = ()) -> Any:
        """Run SQL (text with ``:names``, or a SQLAlchemy statement) in the transaction; return all rows, or how many
        rows it changed."""

        def run(connection: "Connection") -> Any:
            import sqlalchemy

            executable = sqlalchemy.text(statement) if isinstance(statement, str) else statement
            result = connection.execute(executable, parameters or None)
            return result.all() if result.returns_rows else result.rowcount

        return await self.run(run)

    async def run(self, work: Callable[["Connection"], Any]) -> Any:
        """Call ``work(connection)`` in a thread; return what it returns."""
        connection = self._connection
        if connection is None:
            raise ConfigError("no transaction", why="it has ended", hint="use it inside of async with")
        return await self._store.in_thread(lambda: call_plain(work, connection), may_wait=False)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None

        def end() -> None:
            try:
                if kind is None:
                    connection.commit()
                else:
                    connection.rollback()
            finally:
                connection.close()

        await asyncio.shield(self._store.in_thread(end, may_wait=False))
        if kind is None:
            self._marker.counts.done += len(self.new)
        else:
            self._marker.counts.failed += len(self.new)
