"""Answers to the broker's check-backs of local transactions.

Lives here: ``TransactionChecks``: takes checks from brokers, runs a bounded number at once with a time limit, queues a
bounded number.
"""

import asyncio
import contextlib
import contextvars
import functools
import inspect
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.client.connection.instance import BrokerConnection, ClientInstance, TaskSet
from pocketmq.client.message.transaction_message import LocalTransactionState, TransactionRefused, as_state
from pocketmq.client.transaction.transaction_end import End, EndSender
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record import PGROUP
from pocketmq.common.record_codec import decode_record, received_message
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.codec import Request
from pocketmq.remoting.protocol.transaction import CheckTransactionStateRequestHeader

CHECKS_WAITING_MAX: Final = 2000
"""RocketMQ's checkRequestHoldMax; further checks are dropped, and the broker repeats them."""
CHECK_BYTES_MAX: Final = 64 << 20
"""Bytes of the messages that wait."""
DECIDED_MAX: Final = 16_384
BORN_SLACK_MS: Final = 1_000
"""A message may be born a little before its send: with the section that it joins."""
END_ATTEMPTS: Final = 2

Check = Callable[[ReceivedMessage], Any]
"""``async def`` or a plain function (run in a thread): the state of the local transaction of this message."""


@dataclass(slots=True)
class _Asked:
    """One check that waits."""

    connection: BrokerConnection
    header: CheckTransactionStateRequestHeader
    message: ReceivedMessage


class TransactionChecks:
    """The checks of one producer group. Belongs to one event loop.

    ``begin`` and ``decided`` record what this process knows: a running transaction is unknown, whatever the check would
    return now, and of a message stored twice (its first answer was lost) only one half is committed.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        check: Check,
        ends: EndSender,
        *,
        concurrency: int,
        timeout_ms: int,
    ) -> None:
        self._instance = instance
        self._group = group
        self._check = check
        self._ends = ends
        self._concurrency = concurrency
        self._timeout_ms = timeout_ms
        self._waiting: deque[_Asked] = deque()
        self._waiting_bytes = 0
        self._places: set[tuple[str, int]] = set()
        self._running: set[str] = set()
        self._sending: dict[int, int] = {}
        self._sent = 0
        self._decided: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._tasks = TaskSet(instance.supervisor)
        self._threads: ThreadPoolExecutor | None = None
        self._stopping = False
        self.checked = 0
        self.failed = 0
        """Checks that raised, returned an invalid value or took too long."""
        self.dropped = 0
        """Checks that arrived while too many waited."""

    # ---- known transactions

    def sending(self) -> int:
        """Note that a half message is being sent; return the number to pass to ``sent``."""
        self._sent += 1
        self._sending[self._sent] = self._instance.clock.now_ms()
        return self._sent

    def sent(self, place: int) -> None:
        """Note that its send has ended."""
        del self._sending[place]

    def _may_be_on_its_way(self, born_ms: int) -> bool:
        """Return whether the checked half message may be one whose send has no answer yet: its local transaction has
        not begun, and a check that finds no trace of it would mislead.
        """
        oldest_ms = next(iter(self._sending.values()), None)
        return oldest_ms is not None and born_ms >= oldest_ms - BORN_SLACK_MS

    def begin(self, msg_id: str) -> None:
        """Note that the local transaction of a message is about to run."""
        self._running.add(msg_id)

    def end(self, msg_id: str) -> None:
        """Note that it has ended."""
        self._running.discard(msg_id)

    def decided(self, msg_id: str, broker: str, physical_offset: int) -> None:
        """Note which half of a message was decided, of possibly several."""
        self._decided[msg_id] = (broker, physical_offset)
        if len(self._decided) > DECIDED_MAX:
            self._decided.popitem(last=False)

    # ---- from the broker

    def on_request(self, channel: ClientChannel, request: Request) -> None:
        """Take one CHECK_TRANSACTION_STATE. Other requests, and those of other groups, are ignored."""
        header = request.header
        if self._stopping or not isinstance(header, CheckTransactionStateRequestHeader):
            return
        connection = self._instance.connection_of(channel)
        if connection is None:
            return
        try:
            record = bytes(request.body)
            decoded = decode_record(record)
            if decoded.property_map().get(PGROUP) != self._group:
                return
            message = received_message(record, connection.broker_name)
        except PocketMQError as error:
            self._instance.log.warning("transaction_check_illegal", address=connection.address, error=str(error))
            return
        place = (connection.address, header.commit_log_offset)
        if place in self._places:
            return  # it waits or runs already
        if len(self._waiting) >= CHECKS_WAITING_MAX or self._waiting_bytes + len(record) > CHECK_BYTES_MAX:
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:  # log the first, second, fourth …: a flood stays short
                self._instance.log.warning("transaction_checks_dropped", group=self._group, dropped=self.dropped)
            return
        self._places.add(place)
        self._waiting.append(_Asked(connection, header, message))
        self._waiting_bytes += len(record)
        if len(self._tasks) < self._concurrency:
            self._tasks.spawn(self._work(), f"pocketmq-check-{self._group}")

    async def _work(self) -> None:
        while self._waiting and not self._stopping:
            asked = self._waiting.popleft()
            self._waiting_bytes -= asked.message.size_bytes
            try:
                await self._answer(asked)
            except Exception as error:  # a fault of ours must not end the others
                self._instance.log.error("transaction_check_lost", message=asked.message, error=repr(error))
            finally:
                self._places.discard((asked.connection.address, asked.header.commit_log_offset))

    async def _answer(self, asked: _Asked) -> None:
        message, header = asked.message, asked.header
        self.checked += 1
        state = await self._state(asked)
        end = End(
            header.tran_state_table_offset,
            header.commit_log_offset,
            state,
            message.msg_id,
            from_check=True,
            transaction_id=header.transaction_id,
        )
        try:
            await self._ends.end(
                asked.connection.broker_name,
                end,
                timeout_ms=self._timeout_ms,
                attempts=END_ATTEMPTS,
                connection=asked.connection,
            )
        except TransactionRefused as error:  # it ended meanwhile: the producer itself was faster
            self._instance.log.info("transaction_check_late", msg_id=message.msg_id, why=error.why)

    async def _state(self, asked: _Asked) -> LocalTransactionState:
        """Return the state that this process knows, or the result of the user's check, if in time."""
        msg_id = asked.message.msg_id
        decided = self._decided.get(msg_id)
        if decided is not None and decided != (asked.connection.broker_name, asked.header.commit_log_offset):
            return LocalTransactionState.ROLLBACK_MESSAGE  # another half of the same message was decided
        if msg_id in self._running or self._may_be_on_its_way(asked.message.born_timestamp):
            return LocalTransactionState.UNKNOW
        why = ""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000) as limit:
                return as_state(await self._call(asked.message))
        except TimeoutError as error:
            why = f"no answer after {self._timeout_ms} ms" if limit.expired() else repr(error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if self._stopping or (task is not None and task.cancelling()):
                raise
            why = repr(error)  # the check awaited something that was cancelled: its failure, not our end
        except Exception as error:
            why = str(error) if isinstance(error, PocketMQError) else repr(error)
        self.failed += 1
        self._instance.log.error(
            "transaction_check_failed",
            message=asked.message,
            why=why,
            what_to_do="repair the check; the broker asks again, a limited number of times",
        )
        return LocalTransactionState.UNKNOW

    async def _call(self, message: ReceivedMessage) -> object:
        spans = self._instance.telemetry
        with contextlib.nullcontext() if spans is None else spans.checking(message):
            if inspect.iscoroutinefunction(self._check):
                return await self._check(message)
            return await self.run_plain(self._check, message)

    async def run_plain(self, function: Callable[..., Any], *arguments: object) -> object:
        """Run a plain function in a thread; await what it returns if that can be awaited."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="pocketmq-transaction")
        if self._instance.telemetry is not None:  # the current span is that of the thread, too
            function = functools.partial(contextvars.copy_context().run, function)
        result = await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
        return await result if inspect.isawaitable(result) else result

    async def stop(self) -> None:
        """Take no further check, end those that run."""
        self._stopping = True
        self._waiting.clear()
        await self._tasks.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
