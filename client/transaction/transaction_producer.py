"""Transactions: a message that consumers get if, and only if, a local transaction was committed.

    async def paid(message):                                          # the broker asks after a crash
        return await db.has_payment(message.keys[0])

    async with TransactionProducer("billing", "127.0.0.1:9876", check=paid) as producer:
        async with producer.transaction(Message("Paid", b"...", keys=["o-17"])) as transaction:
            await db.pay("o-17")                                      # commits; after an exception the broker asks
        receipt = await producer.send_in_transaction(Message("Paid", b"...", keys=["o-18"]), pay)

Lives here: ``TransactionProducer``, ``Transaction``: the half message, the local transaction, the decision.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self, Unpack

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.errors import NoRoute
from pocketmq.client.message.receipts import Receipt, SendStatus
from pocketmq.client.message.transaction_message import (
    HalfMessage,
    LocalTransactionState,
    TransactionNotBegun,
    TransactionReceipt,
    TransactionRefused,
    as_state,
)
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.producer_options import ProducerSettings, check_range
from pocketmq.client.producer.selectors import QueueSelector
from pocketmq.client.telemetry.conventions import COMMIT, MESSAGE_ID, MESSAGE_TYPE, ROLLBACK
from pocketmq.client.telemetry.switch import TelemetryArgument
from pocketmq.client.transaction.transaction_checks import Check, TransactionChecks
from pocketmq.client.transaction.transaction_end import End, EndSender
from pocketmq.common.errors import ConfigError, PocketMQError
from pocketmq.common.message import Message
from pocketmq.common.message_id import parse_offset_msg_id
from pocketmq.common.topics import HALF_TOPIC
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.security.client_security import TLSArgument
from pocketmq.remoting.security.credentials import Credentials

CHECK_CONCURRENCY: Final = 8
"""Checks at once (RocketMQ: 1, see checkThreadPoolMinSize)."""
CHECK_TIMEOUT_MS: Final = 10_000
END_ATTEMPTS: Final = 4

LocalTransaction = Callable[[HalfMessage], Any]
"""``async def`` or a plain function (run in a thread): does the local work and returns its state. What it gets is a
copy of the message that knows its ``msg_id``."""


class TransactionProducer(Producer):
    """A producer of transactional messages; plain sends work, too.

    The broker calls ``check(message)`` for a transaction without a decision: after a crash of this process, of another
    one of the same group, or when the decision did not arrive. It returns what ``local`` does: a
    ``LocalTransactionState``, True, False, or None for "ask again". It may be called in any process of the group,
    several times, and must read durable state, not memory. One that raises, hangs or returns anything else counts as
    unknown, and is logged.

    ``check_concurrency`` checks run at once, each for ``check_timeout_ms`` at most. Other options: ``Producer``.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        check: Check,
        check_concurrency: int = CHECK_CONCURRENCY,
        check_timeout_ms: int = CHECK_TIMEOUT_MS,
        credentials: Credentials | None = None,
        tls: TLSArgument = None,
        telemetry: TelemetryArgument = None,
        instance: ClientInstance | None = None,
        **options: Unpack[ProducerSettings],
    ) -> None:
        if not callable(check):
            raise ConfigError(
                "producer refused",
                why=f"check={check!r} cannot be called",
                hint="give a function that says what became of the local transaction of a message",
            )
        check_range("check_concurrency", check_concurrency, 1, 1000, whole=True)
        check_range("check_timeout_ms", check_timeout_ms, 1, 3_600_000, whole=True)
        super().__init__(
            group, namesrv, credentials=credentials, tls=tls, telemetry=telemetry, instance=instance, **options
        )
        self._ends = EndSender(self.instance, group)
        self._check_arguments = (check, check_concurrency, check_timeout_ms)
        self.checks = self._new_checks()
        self._finder: asyncio.Task[None] | None = None
        self._end_half = self._decide if self.instance.telemetry is None else self._decide_in_span

    def _new_checks(self) -> TransactionChecks:
        check, concurrency, timeout_ms = self._check_arguments
        return TransactionChecks(
            self.instance, self.group, check, self._ends, concurrency=concurrency, timeout_ms=timeout_ms
        )

    # -- life --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start, and connect to every broker that may have half messages of this group, so that it can check back."""
        if self.port.running:
            return
        self.checks = self._new_checks()
        await super().start()
        self.instance.add_request_handler(RequestCode.CHECK_TRANSACTION_STATE, self.checks.on_request)
        self._finder = self.instance.supervisor.keep(self._find_brokers, "pocketmq-transaction-brokers")

    async def stop(self) -> None:
        """Stop as a producer does; no further check is taken."""
        if not self.port.running:
            return
        if self._finder is not None:
            self._finder.cancel()
            await asyncio.gather(self._finder, return_exceptions=True)
            self._finder = None
        self.instance.remove_request_handler(RequestCode.CHECK_TRANSACTION_STATE, self.checks.on_request)
        await self.checks.stop()
        await super().stop()

    async def _find_brokers(self) -> None:
        """Connect to all brokers now, and to those that appear later with the instance's heartbeats."""
        known: set[str] = set()
        while True:
            try:
                await self.instance.route(HALF_TOPIC, timeout_ms=self.instance.options.api_timeout_ms)
                masters = {each.master for each in self.instance.routes.brokers().values() if each.master}
                if masters - known:
                    known = masters
                    await self.instance.heartbeat()
            except NoRoute:  # no broker yet; a RocketMQ has the topic after its first transaction only
                pass
            except PocketMQError as error:
                self.instance.log.info("transaction_brokers_not_found", error=str(error))
            await asyncio.sleep(self.instance.options.poll_name_server_interval_ms / 1000 if known else 1.0)

    # -- transactions ------------------------------------------------------------------------------------------

    async def send_in_transaction(
        self,
        message: Message,
        local: LocalTransaction,
        *,
        selector: QueueSelector | None = None,
        timeout_ms: int | None = None,
        check_immunity_sec: int | None = None,
    ) -> TransactionReceipt:
        """Store the half message, run ``local(message)``, send its result to the broker.

        ``local`` runs only after SEND_OK. If it raises, or is cancelled, the state is unknown (it may have committed
        before): the broker will ask ``check``, and the error is raised here. ``check_immunity_sec``: how long the
        broker does not ask, for a local transaction that takes longer than its ``transaction_time_out``.

        Raises what ``send`` raises, ``TransactionNotBegun``, and ``TransactionRefused`` if the broker has ended the
        transaction differently meanwhile. A missing confirmation is no error: see ``TransactionReceipt.acknowledged``.
        """
        half = HalfMessage(message, self.group, check_immunity_sec)
        receipt = await self._send_half(half, selector, timeout_ms)
        msg_id = half.msg_id
        self.checks.begin(msg_id)
        try:
            if _is_async(local):
                result = await local(half)
            else:
                result = await self.checks.run_plain(local, half)
            state = as_state(result)
        except BaseException as error:
            self._tell_unknown(receipt, repr(error))
            error.add_note(f"the half message {msg_id} is stored; the broker will ask the check what to do with it")
            self.checks.end(msg_id)
            raise
        try:
            return await self._end_half(receipt, state, timeout_ms)
        finally:  # not earlier: a check meanwhile must not query a state that is being sent
            self.checks.end(msg_id)

    def transaction(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_ms: int | None = None,
        check_immunity_sec: int | None = None,
    ) -> "Transaction":
        """Return a context manager whose body is the local transaction; see ``Transaction``."""
        return Transaction(self, message, selector, timeout_ms, check_immunity_sec)

    async def _send_half(self, half: HalfMessage, selector: QueueSelector | None, timeout_ms: int | None) -> Receipt:
        if self.in_flight.full:
            self.port.check_running()
            await self.port.wait_for_room(timeout_ms)
        checks = self.checks
        place = checks.sending()
        try:
            receipt = await self.port.send_half(half, selector, timeout_ms)
        finally:
            checks.sent(place)
        half.msg_id = receipt.msg_id
        if receipt.status is not SendStatus.SEND_OK:
            with contextlib.suppress(TransactionRefused):
                await self._end_half(receipt, LocalTransactionState.ROLLBACK_MESSAGE, timeout_ms)
            raise TransactionNotBegun(
                "transaction not begun",
                why=f"the half message is stored with {receipt.status.name}: {receipt.durability}",
                hint="nothing was done; try again",
                receipt=receipt,
            )
        return receipt

    async def _decide(
        self, receipt: Receipt, state: LocalTransactionState, timeout_ms: int | None
    ) -> TransactionReceipt:
        if state is LocalTransactionState.UNKNOW:
            self._tell_unknown(receipt, "the local transaction says so")
            return TransactionReceipt(receipt, state, False)
        physical_offset = receipt.physical_offset
        if physical_offset < 0:
            _, physical_offset = parse_offset_msg_id(receipt.offset_msg_id)
        if receipt.duplicate_possible:
            self.checks.decided(receipt.msg_id, receipt.broker, physical_offset)
        end = End(receipt.queue_offset, physical_offset, state, receipt.msg_id)
        limit_ms = self.port.limit_ms(timeout_ms)
        deadline_ns = self.port.clock.monotonic_ns() + limit_ms * 1_000_000
        ends, broker = self._ends, receipt.broker
        first = ends.end_nowait(broker, end, limit_ms)
        if first is not None:  # the usual case without a further coroutine
            try:
                code, _ = await first
            except PocketMQError:
                code = -1
            if code == ResponseCode.SUCCESS:
                ends.acknowledged += 1
                return TransactionReceipt(receipt, state, True)
        acknowledged = await ends.end(
            broker, end, timeout_ms=limit_ms, attempts=END_ATTEMPTS, first=first, deadline_ns=deadline_ns
        )
        return TransactionReceipt(receipt, state, acknowledged)

    async def _decide_in_span(
        self, receipt: Receipt, state: LocalTransactionState, timeout_ms: int | None
    ) -> TransactionReceipt:
        """Do the same inside OpenTelemetry's span of the decision; there is none while it is unknown."""
        spans = self.instance.telemetry
        if spans is None or state is LocalTransactionState.UNKNOW:
            return await self._decide(receipt, state, timeout_ms)
        kind = COMMIT if state is LocalTransactionState.COMMIT_MESSAGE else ROLLBACK
        with spans.settling(kind, "", receipt.topic, {MESSAGE_ID: receipt.msg_id, MESSAGE_TYPE: "transaction"}):
            return await self._decide(receipt, state, timeout_ms)

    def _tell_unknown(self, receipt: Receipt, why: str) -> None:
        self.instance.log.info("transaction_unknown", msg_id=receipt.msg_id, broker=receipt.broker, why=why)


def _is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function is ``async def``; the usual case without the cost of ``inspect``."""
    code = getattr(function, "__code__", None)
    return bool(code is not None and code.co_flags & inspect.CO_COROUTINE) or inspect.iscoroutinefunction(function)


class Transaction:
    """``async with producer.transaction(message) as transaction:``: the body is the local transaction.

    On entry the half message is stored. At the end of the body the message is committed. An exception leaves it to the
    check, and goes on: a database that goes away during COMMIT may have committed (RocketMQ's state stays UNKNOW, too).
    ``commit``, ``rollback`` and ``leave_unknown`` override that beforehand: the last call counts, also when the body
    raises afterwards. A body that knows that nothing was committed calls ``rollback`` and saves the check.

    ``receipt`` is the half message's, ``result`` the ``TransactionReceipt`` after the end.
    """

    def __init__(
        self,
        producer: TransactionProducer,
        message: Message,
        selector: QueueSelector | None,
        timeout_ms: int | None,
        check_immunity_sec: int | None,
    ) -> None:
        self.message = message
        self._producer = producer
        self._arguments = (selector, timeout_ms)
        self._check_immunity_sec = check_immunity_sec
        self._receipt: Receipt | None = None
        self._state: LocalTransactionState | None = None
        self.result: TransactionReceipt | None = None

    @property
    def receipt(self) -> Receipt:
        """The receipt of the half message; only inside the body and behind it."""
        assert self._receipt is not None
        return self._receipt

    @property
    def msg_id(self) -> str:
        """The id of the message."""
        return self.receipt.msg_id

    def commit(self) -> None:
        """Commit the message at the end of the body, even if it raises."""
        self._state = LocalTransactionState.COMMIT_MESSAGE

    def rollback(self) -> None:
        """Roll the message back at the end of the body."""
        self._state = LocalTransactionState.ROLLBACK_MESSAGE

    def leave_unknown(self) -> None:
        """Let the broker ask the check."""
        self._state = LocalTransactionState.UNKNOW

    async def __aenter__(self) -> Self:
        half = HalfMessage(self.message, self._producer.group, self._check_immunity_sec)
        self._receipt = await self._producer._send_half(half, *self._arguments)
        self._producer.checks.begin(self._receipt.msg_id)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        producer, receipt = self._producer, self.receipt
        state = self._state
        if state is None:
            state = LocalTransactionState.COMMIT_MESSAGE if kind is None else LocalTransactionState.UNKNOW
        try:
            self.result = await producer._end_half(receipt, state, self._arguments[1])
        except TransactionRefused as refused:
            if error is None:
                raise
            producer.instance.log.error("transaction_end_refused", msg_id=receipt.msg_id, why=refused.why)
        finally:
            producer.checks.end(receipt.msg_id)
