"""A decorator that keeps duplicates from a handler.

Lives here: ``Idempotent``: claim, call, finish or give up, for single messages and batches; leases renewed while a
handler runs; messages whose last owner died.
"""

import asyncio
import functools
import hashlib
import inspect
import itertools
import os
import platform
import secrets
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

from pocketmq.client.handlers.consume_result import BROKER_DECIDES, DEAD_LETTER, Later, outcome_of
from pocketmq.client.handlers.handler_call import call_plain, handler_name
from pocketmq.client.handlers.typed_handler import REWRAP
from pocketmq.client.idempotence.counts import Counts
from pocketmq.client.idempotence.opening import open_store
from pocketmq.client.idempotence.store import Claim, MarkStore, MarkStoreUnavailable
from pocketmq.client.idempotence.transaction import Transaction, run_in_transaction
from pocketmq.client.log import StandardLog
from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.errors import ConfigError, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.redelivery import RESENT_FROM
from pocketmq.common.runner import Supervisor

WINDOW_MS: Final = 3 * 86_400_000
"""A message that keeps failing is retried for the last time 4 h 46 min after the first try (levels 3 to 18); add the
time that a stopped consumer, or a resend of dead letters, may take."""
LEASE_MS: Final = 60_000
FINISH_ATTEMPTS: Final = 3
FINISH_PAUSE_S: Final = 0.2
PURGE_EVERY: Final = 1_000
KEY_LENGTH_MAX: Final = 200
THREADS: Final = 20

KeyFunction = Callable[[ReceivedMessage], str]
Handler = Callable[..., Any]


class UnknownEffect:
    """What to do with a message whose last owner died between claim and end: its effect may or may not have
    happened."""

    RUN: Final = "run"
    """Call the handler: at least once."""
    DEAD_LETTER: Final = "dead_letter"
    """Do not call it: a person decides (``pocketmq dlq``). At most once."""


def unique_id(message: ReceivedMessage) -> str:
    """Return the id that its producer gave the message; retries, resends and duplicates of sends keep it."""
    return message.msg_id


class Idempotent:
    """Decorates handlers, below ``subscribe``:

        idempotent = Idempotent(store="sqlite:///marks.db", scope="billing")

        @consumer.subscribe("orders")
        @idempotent
        async def charge(message): ...

    ``store``: a ``MarkStore`` or what ``open_store`` takes. ``scope``: marks of different scopes are independent;
    usually the consumer group; by default the name of the handler. ``key``: from a message to its key (default: its
    unique id). ``window_ms``: how long a done message is remembered. ``lease_ms``: how long after the death of a
    process its messages wait; it is renewed while a handler runs. ``unknown_effect``: see ``UnknownEffect``, or a
    function (plain or async) that returns whether the effect of a message has happened.

    Belongs to one event loop. Plain handlers run in ``threads`` threads.
    """

    def __init__(
        self,
        store: MarkStore | str,
        *,
        scope: str = "",
        key: KeyFunction = unique_id,
        window_ms: int = WINDOW_MS,
        lease_ms: int = LEASE_MS,
        unknown_effect: str | Callable[[ReceivedMessage], Any] = UnknownEffect.RUN,
        threads: int = THREADS,
        clock: Clock | None = None,
        log: EventLog | None = None,
    ) -> None:
        for name, value in (("window_ms", window_ms), ("lease_ms", lease_ms), ("threads", threads)):
            if type(value) is not int or value < 1:
                raise ConfigError("idempotence refused", why=f"{name}={value!r} is no whole number above 0")
        if not callable(unknown_effect) and unknown_effect not in (UnknownEffect.RUN, UnknownEffect.DEAD_LETTER):
            raise ConfigError(
                "idempotence refused", why=f"unknown_effect={unknown_effect!r}", hint="run, dead_letter or a function"
            )
        self._owns_store = isinstance(store, str)
        self.store: MarkStore = open_store(store) if isinstance(store, str) else store
        self.counts = Counts()
        self.clock: Clock = clock or SystemClock()
        self.log: EventLog = log if log is not None else StandardLog()
        self.window_ms = window_ms
        self._scope = scope
        self._key = key
        self._lease_ms = lease_ms
        self._unknown_effect = unknown_effect
        self._name = f"{platform.node()[:60]}:{os.getpid()}:{secrets.token_hex(6)}"
        self._numbers = itertools.count()
        self._opened = False
        self._opening: asyncio.Lock | None = None
        self._until_purge = PURGE_EVERY
        self._tasks: set[asyncio.Task[Any]] = set()
        self.supervisor = Supervisor(self.log, self.clock)
        """Logs and counts renewals and purges that end with an unexpected error."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="pocketmq-idempotent")

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect the store; otherwise the first message does."""
        if self._opened:
            return
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if not self._opened:
                await self.store.open()
                self._opened = True

    async def close(self) -> None:
        """End; call it when the consumer has stopped. A store that was made elsewhere stays open."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False)
        if self._opened and self._owns_store:
            self._opened = False
            await self.store.close()

    # ---- keys

    def key_of(self, message: ReceivedMessage, default_scope: str = "") -> str:
        """Return the key of a message in the store; a long one is replaced by its hash."""
        key = self._key(message)
        if not isinstance(key, str) or not key:
            raise ConfigError("no key", why=f"the key function returned {key!r} for {message}", hint="return text")
        whole = f"{self._scope or default_scope}:{key}"
        if len(whole) > KEY_LENGTH_MAX:
            whole = f"{whole[:100]}#{hashlib.sha256(whole.encode('utf-8', 'replace')).hexdigest()}"
        return whole.encode("utf-8", "replace").decode()

    def new_owner(self) -> str:
        """Return a name for one call: a later call of the same process is another owner."""
        return f"{self._name}:{next(self._numbers)}"

    # ---- around a handler

    def __call__(self, handler: Handler) -> Handler:
        """Return the handler that calls ``handler`` only for messages that are not done."""
        scope = handler_name(handler)
        is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004
        )

        async def call(argument: Any) -> Any:
            if is_async:
                return await handler(argument)
            returned = await asyncio.get_running_loop().run_in_executor(self._threads, call_plain, handler, argument)
            return await returned if inspect.isawaitable(returned) else returned

        @functools.wraps(handler, updated=())
        async def idempotent(argument: Any) -> Any:
            await self.open()
            if isinstance(argument, list):
                return await self._handle(argument, scope, call, not is_async)
            return await self._handle([argument], scope, lambda messages: call(messages[0]), not is_async)

        setattr(idempotent, REWRAP, self)  # it takes messages, whatever the handler takes
        return idempotent

    async def _handle(
        self, messages: list[ReceivedMessage], scope: str, call: Callable[[Any], Any], in_thread: bool
    ) -> Any:
        keys: dict[str, ReceivedMessage] = {}
        twins: list[tuple[str, ReceivedMessage]] = []  # duplicates within the batch
        for message in messages:
            key = self.key_of(message, scope)
            if key in keys:
                twins.append((key, message))
            else:
                keys[key] = message
        owner = self.new_owner()
        ours, later, dead = await self._claim(keys, owner)
        returned: Any = None
        left: dict[str, ReceivedMessage] = {}
        if ours:
            called = self._call(ours, owner, call, in_thread)
            # a thread cannot be canceled: its claims live until it ends
            returned, left = await (self._outlive(called) if in_thread else called)
        outcome = outcome_of(returned, list(ours.values()))
        gone = {**later, **left}
        again = [*later.values(), *left.values(), *(message for key, message in twins if key in gone)]
        self.counts.skipped += sum(1 for key, _ in twins if key not in gone and key not in dead)
        if dead and not again:
            # it stays claimed: if it does not reach the dead letters, the next try must not run it either
            return Later(delay_level=DEAD_LETTER, messages=list(dead.values()))
        if not again:
            return returned
        if len(messages) == 1:
            return returned if left else Later()
        # one answer has one level: the handler's only if it put off all of them; dead ones stay claimed, and are
        # decided again when their lease is over
        level = BROKER_DECIDES if later or dead else outcome.delay_level
        return Later(delay_level=level, messages=[*again, *dead.values()], suspend_ms=outcome.suspend_ms)

    async def _claim(
        self, keys: dict[str, ReceivedMessage], owner: str
    ) -> tuple[dict[str, ReceivedMessage], dict[str, ReceivedMessage], dict[str, ReceivedMessage]]:
        """Return by key: the messages to handle now, those to put off, those for the dead letters."""
        names = list(keys)
        try:
            claims = await self.store.claim(names, owner, self.clock.now_ms(), self._lease_ms, self.window_ms)
        except PocketMQError:
            self.counts.store_errors += 1
            raise
        except asyncio.CancelledError:  # the store may have claimed them; nothing has begun
            await asyncio.shield(self._release(names, owner))
            raise
        self._purge_sometimes(len(names))
        ours: dict[str, ReceivedMessage] = {}
        later: dict[str, ReceivedMessage] = {}
        dead: dict[str, ReceivedMessage] = {}
        for key, claim in zip(names, claims, strict=True):
            if claim is Claim.NEW:
                self.counts.first += 1
                ours[key] = keys[key]
            elif claim is Claim.TAKEN_OVER:
                self.counts.taken_over += 1
                try:
                    await self._taken_over(key, keys[key], owner, ours, dead)
                except BaseException:  # free the keys that no handler had begun; the others stay unknown
                    fresh = [each for each, its in zip(names, claims, strict=True) if its is Claim.NEW]
                    await asyncio.shield(self._release(fresh, owner))
                    raise
            elif claim is Claim.DONE:
                self.counts.skipped += 1
            else:
                self.counts.busy += 1
                later[key] = keys[key]
        return ours, later, dead

    async def _taken_over(
        self,
        key: str,
        message: ReceivedMessage,
        owner: str,
        ours: dict[str, ReceivedMessage],
        dead: dict[str, ReceivedMessage],
    ) -> None:
        """Decide about a message whose last owner never finished."""
        decision = self._unknown_effect
        if decision == UnknownEffect.DEAD_LETTER and RESENT_FROM in message.properties:
            decision = UnknownEffect.RUN  # a person resent it, and wants it handled
        self.log.warning("effect_unknown", message=message, key=key, decision=str(decision))
        if decision == UnknownEffect.DEAD_LETTER:
            dead[key] = message
            return
        if callable(decision):
            happened = decision(message)
            if inspect.isawaitable(happened):
                happened = await happened
            if happened:
                await self._finish([key], owner)
                return
        ours[key] = message

    async def _call(
        self, ours: dict[str, ReceivedMessage], owner: str, call: Callable[[Any], Any], in_thread: bool
    ) -> tuple[Any, dict[str, ReceivedMessage]]:
        """Call the handler; return its answer and, by key, the messages that are not done."""
        keys, messages = list(ours), list(ours.values())
        renewal = self._renew_later(keys, owner)
        try:
            returned = await call(messages)
        except BaseException as error:
            self.counts.failed += len(keys)
            if not (in_thread and isinstance(error, asyncio.CancelledError)):  # the loop ends, the thread does not
                await asyncio.shield(self._release(keys, owner))
            raise
        finally:
            renewal()
        not_done = {id(message) for message in outcome_of(returned, messages).later}
        left = {key: message for key, message in ours.items() if id(message) in not_done}
        if left:
            self.counts.failed += len(left)
            await self._release(list(left), owner)
        if len(left) < len(keys):
            await self._finish([key for key in keys if key not in left], owner)
        return returned, left

    # ---- ends of a claim

    async def _finish(self, keys: Sequence[str], owner: str) -> None:
        """Mark as done. The effect has happened: a store that fails is tried again, then the failure is only logged."""
        for attempt in range(1, FINISH_ATTEMPTS + 1):
            try:
                kept = await self.store.finish(keys, owner, self.clock.now_ms(), self.window_ms)
            except MarkStoreUnavailable as error:
                self.counts.store_errors += 1
                if attempt < FINISH_ATTEMPTS:
                    await asyncio.sleep(FINISH_PAUSE_S * attempt)
                    continue
                self.counts.unmarked += len(keys)
                self.log.error("done_not_marked", keys=list(keys[:5]), messages=len(keys), error=str(error))
                return
            self.counts.done += sum(kept)
            lost = [key for key, is_kept in zip(keys, kept, strict=True) if not is_kept]
            if lost:
                self.counts.lease_lost += len(lost)
                self.log.error(
                    "lease_lost", keys=lost[:5], messages=len(lost), hint="raise lease_ms; do not block the event loop"
                )
            return

    async def _release(self, keys: Sequence[str], owner: str) -> None:
        """Give claims up; if the store fails, their leases end by themselves."""
        try:
            await self.store.release(keys, owner)
        except MarkStoreUnavailable as error:
            self.counts.store_errors += 1
            self.log.warning("claim_not_given_up", keys=list(keys[:5]), lease_ms=self._lease_ms, error=str(error))

    def _renew_later(self, keys: Sequence[str], owner: str) -> Callable[[], None]:
        """Renew the lease each third of it until the returned function is called."""
        loop = asyncio.get_running_loop()
        pause_s = self._lease_ms / 3000
        timer: asyncio.TimerHandle

        async def renew() -> None:
            try:
                await self.store.renew(keys, owner, self.clock.now_ms(), self._lease_ms)
            except MarkStoreUnavailable as error:
                self.counts.store_errors += 1
                self.log.warning("lease_not_renewed", keys=list(keys[:5]), error=str(error))

        def due() -> None:
            nonlocal timer
            self._spawn(renew(), "idempotent-renew")
            timer = loop.call_later(pause_s, due)

        timer = loop.call_later(pause_s, due)
        return lambda: timer.cancel()

    def _purge_sometimes(self, messages: int) -> None:
        self._until_purge -= messages
        if self._until_purge > 0:
            return
        self._until_purge = PURGE_EVERY

        async def purge() -> None:
            try:
                await self.store.purge(self.clock.now_ms())
            except MarkStoreUnavailable as error:
                self.counts.store_errors += 1
                self.log.warning("marks_not_purged", error=str(error))

        self._spawn(purge(), "idempotent-purge")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._keep(task)
        self.supervisor.watch(task)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _outlive(self, called: Coroutine[Any, Any, Any]) -> Any:
        """Wait for a call that goes on when the caller is canceled."""
        task = asyncio.get_running_loop().create_task(called)
        self._keep(task)
        return await asyncio.shield(task)

    # ---- effects that commit together with their mark

    def transaction(self, messages: ReceivedMessage | Sequence[ReceivedMessage], scope: str = "") -> Transaction:
        """Return an ``async with`` transaction of the SQL store in which the mark and the caller's statements commit
        together.

            async with idempotent.transaction(message) as transaction:
                if transaction.is_first:
                    await transaction.execute("INSERT INTO charges VALUES (:id, :cents)", {"id": 1, "cents": 250})

        Raises ``ConfigError`` for a store that has no transactions.
        """
        return Transaction(self, messages, scope)

    def transactional(self, handler: Handler) -> Handler:
        """Decorate a plain handler ``handler(message, connection)``: its statements on ``connection`` commit together
        with the mark, or not at all.

        ``connection`` is a SQLAlchemy connection in a transaction; for a batch handler the first argument is the list
        of the messages that are not done. A handler that raises, or asks for a later try, rolls back.
        """
        scope = handler_name(handler)

        @functools.wraps(handler, updated=())
        async def idempotent(argument: Any) -> Any:
            await self.open()
            return await run_in_transaction(self, handler, argument, scope)

        return idempotent
