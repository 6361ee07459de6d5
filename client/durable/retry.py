"""The durable retry of a producer: messages that could not be sent wait in a store and are resent until a broker has
them.

Lives here: ``DurableRetry``: which failures are kept, the way into the store, receipts, start and stop.

    retry = DurableRetry("rocksdb:///var/lib/orders/retry", order_by_key=True)
    async with Producer("orders", namesrv="…", durable_retry=retry) as producer:
        receipt = await producer.send(message)  # status STORED_FOR_RETRY where no broker took it
"""

import asyncio
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.durable.entry import Entry, KeptMessage
from pocketmq.client.durable.errors import GivenUpError, NotSafe, RetryStoreError, RetryStoreUnreachable, not_safe
from pocketmq.client.durable.keys import KeyedItem, KeyedSends, KeyState
from pocketmq.client.durable.metrics import RetryState
from pocketmq.client.durable.opening import StoreOptions, open_url
from pocketmq.client.durable.options import RetryOptions
from pocketmq.client.durable.ownership import StoreWait
from pocketmq.client.durable.policy import RetryRule, kind_of, rule_for
from pocketmq.client.durable.receipt import StoredForRetry
from pocketmq.client.durable.resender import Resender, ask, is_permanent
from pocketmq.client.durable.store import RetryStore, Summary
from pocketmq.client.durable.worker import StoreWorker, ToKeep
from pocketmq.client.errors import NotStarted
from pocketmq.client.message.identified_message import uniq_keys_of
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.producer.send_port import SendPort
from pocketmq.client.producer.stages import SectionSettled, SendStage
from pocketmq.client.sender.section import Section
from pocketmq.common.errors import ConfigError, PocketMQError, Stored
from pocketmq.common.message import Message
from pocketmq.common.runner import LoopMailbox, Runner, ThreadRunner

WHY_CHARS_MAX = 500
"""Length of a send's error as kept with its message."""
STOP_SLACK_MS = 2_000

Kept = Callable[[list[StoredForRetry] | PocketMQError], None]
"""Called once in the event loop with a receipt for each message, or with the error for all."""


class DurableRetry(SendStage):
    """Belongs to one producer, from its start to its stop; then it may be given to another.

    ``store``: a URL (``memory:``, ``rocksdb:///path``, ``redis://host/0``, ``mysql://user@host/db``,
    ``sqlite:///path``, ``postgresql://…``) or an object with the methods of ``RetryStore``. ``name``: names this
    process's messages on a server; each process needs its own. The other settings: ``RetryOptions``.
    """

    def __init__(
        self,
        store: "str | RetryStore" = "rocksdb:pocketmq-retry",
        *,
        name: str = "default",
        runner: Runner | None = None,
        **options: Any,
    ) -> None:
        try:
            self.options = RetryOptions(**options)
        except TypeError as error:
            raise ConfigError("durable retry refused", why=str(error)) from error
        self.keeps_order = self.options.order_by_key
        self._given = store
        self._name = name
        self._runner: Runner = runner or ThreadRunner(self._crashed)
        self._port: SendPort | None = None
        self._store: RetryStore | None = None
        self._worker: StoreWorker | None = None
        self._resender: Resender | None = None
        self._keyed: KeyedSends | None = None
        self._opened: asyncio.Future[None] | None = None
        self._start_limit: asyncio.Timeout | None = None
        """The limit of a start that waits for its store."""
        self._receipts: weakref.WeakValueDictionary[int, StoredForRetry] = weakref.WeakValueDictionary()
        self._running = False
        self.state = RetryState(self)
        self.kept_total = self.delivered_total = self.given_up_total = self.not_safe_total = 0

    def _crashed(self, name: str, error: BaseException) -> None:
        assert self._port is not None  # no thread starts before it
        self._port.supervisor.crashed(name, error)

    # -- life --------------------------------------------------------------------------------------------------

    def attach(self, port: SendPort) -> None:
        """Become the retry of the producer behind ``port``, for good.

        Raises ``ConfigError`` for a bad store, and for a second producer: each would resend the messages of the other.
        """
        if self._port is not None:
            raise ConfigError("durable retry refused", why="another producer uses it", hint="give each one of its own")
        options = self.options
        if isinstance(self._given, str):
            store_options = StoreOptions(
                name=self._name, sync=options.sync, timeout_ms=options.timeout_ms, lease_ms=options.lease_ms
            )
            self._store = open_url(self._given, store_options, port.clock)
        else:
            self._store = self._given
        self._port = port
        self._keyed = KeyedSends(port, self._keep_keyed, self.wants) if options.order_by_key else None

    # -- figures -----------------------------------------------------------------------------------------------

    @property
    def summary(self) -> Summary:
        """Counts of the waiting messages; written by the store's thread."""
        return self._worker.summary if self._worker is not None else Summary()

    @property
    def store_name(self) -> str:
        """The store's URL without a password."""
        return self._store.name if self._store is not None else ""

    @property
    def store_fault(self) -> RetryStoreError | None:
        """Why the store cannot be used now, or None."""
        return (
            self._worker.fault
            if self._worker is not None
            else RetryStoreUnreachable("retry store not used", why="not started")
        )

    @property
    def resent_total(self) -> int:
        """Resends of messages."""
        return self._resender.resent if self._resender is not None else 0

    def now_ms(self) -> int:
        """Return the producer's wall time."""
        assert self._port is not None
        return self._port.clock.now_ms()

    @property
    def keyed(self) -> KeyedSends | None:
        """The order of keys, with ``order_by_key``."""
        return self._keyed

    async def start(self) -> None:
        """Open the store in its thread; wait for that at most ``store_timeout_ms``.

        If the store is required and its owner may be dead, also wait for the end of that owner's lease.
        Raises ``RetryStoreError`` if it cannot be opened and is required. Otherwise the producer starts without it,
        reports every message it cannot keep, and keeps trying to open it.
        """
        port, store, options = self._port, self._store, self.options
        assert port is not None
        assert store is not None
        if self._running:
            raise ConfigError("durable retry refused", why="another producer uses it", hint="give each one of its own")
        loop = asyncio.get_running_loop()
        self._opened = opened = loop.create_future()
        worker = self._worker = StoreWorker(
            store,
            self._runner,
            LoopMailbox(loop),
            port.clock,
            port.log,
            options,
            opened=self._store_opened,
            failed=self._store_failed,
            waits=self._store_waits,
        )
        resender = self._resender = Resender(port, worker, options, self)
        self._running = True
        worker.start()
        try:
            async with asyncio.timeout(options.store_timeout_ms / 1000) as self._start_limit:
                try:
                    await asyncio.shield(opened)
                finally:  # a limit that has ended cannot be moved
                    self._start_limit = None
        except (RetryStoreError, TimeoutError) as error:
            if options.required or options.order_by_key:
                await self.stop()
                if isinstance(error, RetryStoreError):
                    raise
                raise RetryStoreUnreachable(
                    "retry store not opened", why=f"nothing after {options.store_timeout_ms} ms"
                ) from error
            port.log.error("durable_retry_without_store", store=store.name, error=str(error) or "timeout")
        except BaseException:
            await self.stop()
            raise
        resender.start()

    def _store_opened(self, summary: Summary, note: str) -> None:
        if self._keyed is not None:
            self._keyed.restore(summary.lanes.items())
        if self._resender is not None:
            self._resender.opened(summary.lanes)
        if not summary.count and self._receipts:
            gone = GivenUpError("message given up", why=f"the retry store lost it: {note or 'it was found empty'}")
            for receipt in list(self._receipts.values()):
                receipt._settle(gone)
            self._receipts.clear()
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    def _store_failed(self, error: PocketMQError) -> None:
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()  # mark it as seen: the start may have ended already

    def _store_waits(self, wait: StoreWait, error: RetryStoreError) -> None:
        """Report the wait for an owner that may be dead. Only a start that requires the store goes on waiting. It is a
        warning in the log unless ``on_store_wait`` gets it.
        """
        port, callback = self._port, self.options.on_store_wait
        assert port is not None
        note = port.log.warning if callback is None else port.log.info
        note(
            "retry_store_waits",
            store=wait.store,
            owner=wait.owner,
            waited_ms=wait.waited_ms,
            at_most_ms=wait.at_most_ms,
        )
        if callback is not None:
            try:
                callback(wait)
            except Exception as fault:
                port.log.error("on_store_wait_raised", error=f"{type(fault).__name__}: {fault}")
        limit, opened = self._start_limit, self._opened
        if limit is None or opened is None or opened.done():
            return
        if not (self.options.required or self.options.order_by_key):
            self._store_failed(error)
        elif not limit.expired():
            left_ms = wait.at_most_ms - wait.waited_ms + self.options.store_timeout_ms
            limit.reschedule(asyncio.get_running_loop().time() + left_ms / 1000)

    async def ending(self, timeout_s: float) -> None:
        """Resend nothing more; wait for resends in flight and parked sends, let keyed sends in memory leave, keep the
        rest.

        ``timeout_s`` is for each of these.
        """
        port = self._port
        assert port is not None
        if self._resender is not None:
            await self._resender.stop(timeout_s)
        await port.wait_parked(timeout_s)
        if self._keyed is not None and self._running:
            await self._keyed.wait_idle(timeout_s)
            self._keyed.end()

    async def stop(self, timeout_s: float = 0) -> None:
        """Finish the writes handed over and close the store, within ``store_timeout_ms``. Waiting messages stay
        there."""
        worker = self._worker
        if not self._running or worker is None:
            return
        if self._resender is not None:
            await self._resender.stop(0)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + (self.options.store_timeout_ms + STOP_SLACK_MS) / 1000
        closed = asyncio.Event()
        worker.stop(closed.set)  # after all jobs handed over
        try:
            async with asyncio.timeout_at(end_s):
                await closed.wait()
                worker.join()
        except TimeoutError:
            port = self._port
            if port is not None:
                port.log.error("retry_store_not_closed", store=self.store_name, waited_ms=self.options.store_timeout_ms)
        self._running = False
        stopped = NotStarted("producer stopped before the message was delivered", why="it waits in the retry store")
        for receipt in list(self._receipts.values()):
            receipt._settle(stopped)
        self._receipts.clear()
        self._store_failed(NotStarted("producer stopped while its retry store was being opened"))

    def resend_now(self) -> None:
        """Resend all waiting messages now: the brokers are known to be back."""
        if self._resender is not None:
            self._resender.resend_now()

    def hurry(self) -> None:
        """Do what ``resend_now`` does: its former name."""
        warnings.warn("DurableRetry.hurry is now resend_now", DeprecationWarning, stacklevel=2)
        self.resend_now()

    # -- keeping -----------------------------------------------------------------------------------------------

    def wants(self, error: BaseException) -> bool:
        """Return whether messages whose send failed with ``error`` are kept: not if sending them again cannot help."""
        assert self._port is not None
        return (
            self._running
            and not isinstance(error, NotSafe)
            and not is_permanent(error, self._port.retry_response_codes)
        )

    def rule(self, message: Message) -> RetryRule | None:
        """Return the rule that keeps such messages, or None."""
        return rule_for(self.options.rules, message.topic, kind_of(message))

    def failed(self, section: Section, error: Exception, done: SectionSettled) -> bool:
        """Keep the messages of a section that failed; return False if they are not to be kept.

        ``done`` gets their receipts, or the error that reports them as not safe.
        """
        if not self.wants(error):
            return False
        messages = section.rows.messages() if section.rows is not None else section.messages
        rules = [self.rule(message) for message in messages]
        if not messages or None in rules:
            return False
        queue = None if section.may_move else section.queue
        assert isinstance(error, PocketMQError)

        def kept(result: "list[StoredForRetry] | PocketMQError") -> None:
            done(section, result if isinstance(result, PocketMQError) else list(result))

        self._keep(
            [
                _kept_message(message, section.plain, uniq_key, queue, "", error, section.born_ms)
                for message, uniq_key in zip(messages, section.all_ids, strict=True)
            ],
            [""] * len(messages),
            rules,
            error,
            kept,
        )
        return True

    def unrouted(self, send: PendingSend, error: PocketMQError, *, early: bool) -> bool:
        """Keep a send that found no route; return False if it is not to be kept. ``early``: earlier sends still wait
        for the route."""
        rule = self.rule(send.message)
        if send.selector is not None or rule is None or not self.wants(error):
            return False
        if self._keyed is not None and _has_order(send.message):
            if early:
                return False  # it would overtake sends of its key that wait for the route
            self._keyed.keep_unrouted(send, error)
            return True
        port = self._port
        assert port is not None
        uniq_key = uniq_keys_of((send.message,), port.instance.ids)[0]
        kept = _kept_message(send.message, send.plain, uniq_key, None, "", error, port.clock.now_ms())

        def done(result: "list[StoredForRetry] | PocketMQError") -> None:
            port.settle(send, result if isinstance(result, PocketMQError) else result[0])

        self._keep([kept], [""], [rule], error, done)
        return True

    def take(self, send: PendingSend) -> bool:
        """Take a send whose key waits in the store, before the lookup of its route; return whether it was taken."""
        return self._keyed is not None and self._keyed.behind(send)

    def place(self, send: PendingSend, queue: MessageQueue) -> bool:
        """Take over an ordered send whose queue was chosen; return False if it is sent as usual."""
        message, keyed = send.message, self._keyed
        if keyed is None or not (send.selector is not None or _has_order(message)):
            return False
        if message.delay_time_level or message.is_timed or self.rule(message) is None:
            return False  # a delayed message has its own time; a kind never kept has nothing to wait behind
        keyed.send(send, queue)
        return True

    def _keep_keyed(self, items: list[KeyedItem], states: list[KeyState], error: PocketMQError) -> None:
        """Keep sends in order; each is settled alone."""
        port, keyed = self._port, self._keyed
        assert port is not None
        assert keyed is not None
        now_ms = port.clock.now_ms()
        messages: list[KeptMessage] = []
        lanes: list[str] = []
        for item, state in zip(items, states, strict=True):
            message = item.send.message
            lanes.append(keyed.lane_for(message.topic, state))
            messages.append(
                _kept_message(message, item.send.plain, item.uniq_key, state.queue, item.key, error, now_ms)
            )

        def done(result: "list[StoredForRetry] | PocketMQError") -> None:
            for index, item in enumerate(items):
                port.settle(item.send, result if isinstance(result, PocketMQError) else result[index])

        def confirmed(kept: bool) -> None:
            for item in items:
                keyed.confirmed(item.send.message.topic, item.key, kept=kept)

        self._keep(messages, lanes, [self.rule(item.send.message) for item in items], error, done, confirmed)

    def _keep(
        self,
        messages: list[KeptMessage],
        lanes: list[str],
        rules: "Sequence[RetryRule | None]",
        error: PocketMQError,
        done: Kept,
        confirmed: Callable[[bool], None] | None = None,
    ) -> None:
        """Hand messages of one topic to the store's thread; ``done`` is called within ``store_timeout_ms``.

        ``confirmed`` gets the real outcome, even if that takes longer.
        """
        port, store, worker, resender = self._port, self._store, self._worker, self._resender
        if port is None or store is None or worker is None or resender is None:
            raise NotStarted("durable retry is not running", hint="start its producer first")
        topic = messages[0].topic
        answered = False

        def refuse(store_error: PocketMQError) -> None:
            self.not_safe_total += len(messages)
            port.log.error(
                "message_not_safe",
                topic=topic,
                count=len(messages),
                send_error=str(error),
                store_error=str(store_error),
            )
            done(not_safe(topic, error, store_error))

        def late() -> None:
            nonlocal answered
            answered = True
            waited_ms = self.options.store_timeout_ms
            refuse(
                RetryStoreUnreachable(
                    "retry store did not answer",
                    why=f"nothing from {store.name} after {waited_ms} ms",
                    hint="it may still take the message: then it is resent under the same msg_id",
                )
            )

        timer = asyncio.get_running_loop().call_later(self.options.store_timeout_ms / 1000, late)

        def answer(entries: Any, store_error: RetryStoreError | None) -> None:
            timer.cancel()
            if store_error is None:
                self.kept_total += len(messages)
                resender.added(entries)
            if confirmed is not None:
                confirmed(store_error is None)
            if answered:
                return
            if store_error is not None:
                refuse(store_error)
                return
            words = store.durability
            receipts = [StoredForRetry(topic, message.uniq_key, error, words) for message in messages]
            for entry, receipt in zip(entries, receipts, strict=True):
                self._receipts[entry.seq] = receipt
            port.log.info("message_stored_for_retry", topic=topic, count=len(messages), error=error.what)
            done(receipts)

        items = [
            ToKeep(message, lane, rule.pause_ms(0, port.random) if rule is not None else 0)
            for message, lane, rule in zip(messages, lanes, rules, strict=True)
        ]
        worker.add(items, answer)

    # -- reports of the resender --------------------------------------------------------------------------------

    def key_queue(self, entry: Entry, topic: str, choose: Callable[[], MessageQueue]) -> MessageQueue:
        """Return the queue of an ordered message."""
        if self._keyed is None:  # kept by a program that asked for order; this one does not
            return choose()
        return self._keyed.pinned(topic, entry.order_key, choose)

    def left(self, entry: Entry, message: KeptMessage | None, result: "Receipt | PocketMQError") -> None:
        """Settle the receipt of a message that has left the store, and count it."""
        if message is not None and message.order_key and self._keyed is not None:
            self._keyed.delivered(message.topic, message.order_key)
        receipt = self._receipts.pop(entry.seq, None) if self._receipts else None
        if receipt is not None:
            receipt._settle(result)
        if isinstance(result, GivenUpError):
            self.given_up_total += 1
            return
        self.delivered_total += 1
        callback = self.options.on_delivered
        if callback is not None and message is not None and isinstance(result, Receipt):
            try:
                callback(message, result)
            except Exception as error:
                assert self._port is not None
                self._port.log.error("on_delivered_raised", error=f"{type(error).__name__}: {error}")

    async def read(self, work: Callable[[RetryStore], Any]) -> Any:
        """Call ``work(store)`` in the store's thread and return its result."""
        worker = self._worker
        assert worker is not None
        return await ask(lambda answer: worker.read(work, answer))


def _has_order(message: Message) -> bool:
    return bool(message.sharding_key)


def _kept_message(
    message: Message,
    plain: bool,
    uniq_key: bytes,
    queue: MessageQueue | None,
    order_key: str,
    error: PocketMQError,
    born_ms: int,
) -> KeptMessage:
    """Return a message as the store keeps it. A relative delay becomes an absolute time."""
    deliver_time_ms = message.deliver_time_ms
    if message.delay_time_ms is not None:
        deliver_time_ms = born_ms + message.delay_time_ms
    return KeptMessage(
        topic=message.topic,
        body=message.body,
        uniq_key=uniq_key,
        tags=message.tags,
        keys=message.keys_text,
        properties=dict(message.properties) if message.properties else None,
        flag=message.flag,
        wait_store_msg_ok=bool(message.wait_store_msg_ok),
        sharding_key=message.sharding_key,
        delay_time_level=message.delay_time_level,
        deliver_time_ms=deliver_time_ms,
        broker=queue.broker_name if queue is not None else "",
        queue_id=queue.queue_id if queue is not None else -1,
        order_key=order_key,
        maybe_stored=error.stored is not Stored.NO,
        why=str(error)[:WHY_CHARS_MAX],
        plain=plain,
    )
