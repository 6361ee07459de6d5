"""Sends decisions on half messages to the brokers that have them.

Lives here: ``EndSender``: groups the decisions of one loop turn for one broker; retries; interprets answers.

A PocketMQ broker that announces it gets NATIVE_END_TRANSACTION and answers each decision; since it remembers the ends
of transactions, a decision may be sent again after a lost answer. Any other broker gets RocketMQ's oneway
END_TRANSACTION: whether it arrived shows when the broker asks again, or does not.
"""

import asyncio
from typing import Any, Final

import msgspec

from pocketmq.client.connection.instance import BrokerConnection, ClientInstance
from pocketmq.client.errors import ClientError
from pocketmq.client.message.transaction_message import LocalTransactionState, TransactionRefused
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.transaction import EndTransactionRequestHeader, NativeEndTransactionRequestHeader

ENDS_MAX: Final = 1024
"""Decisions in one request."""
PAUSE_MS: Final = 100
"""Before the second attempt; twice as long before each further one."""

_ACKNOWLEDGED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
_AGAIN: Final = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE}
)
"""Answers after which the same decision may be taken a moment later."""


class End(msgspec.Struct, frozen=True, gc=False):
    """One decision. ``queue_offset`` and ``physical_offset`` are those of the half message."""

    queue_offset: int
    physical_offset: int
    state: LocalTransactionState
    msg_id: str
    from_check: bool = False
    transaction_id: str = ""


class _Turn:
    """Decisions of one loop turn for one broker; ``futures`` is parallel to ``ends``."""

    __slots__ = ("ends", "futures", "left_ms", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, left_ms: float) -> None:
        self.loop = loop
        self.left_ms = left_ms
        self.ends: list[End] = []
        self.futures: list[asyncio.Future[tuple[int, str]]] = []


class EndSender:
    """Belongs to one producer and its event loop. ``sent``, ``acknowledged``, ``refused`` count decisions."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._turn: dict[str, _Turn] = {}
        """By address: the decisions that leave at the end of the loop turn."""
        self._turn_of: dict[str, _Turn] = {}
        """By broker, for brokers looked up in this turn."""
        self.sent = 0
        self.acknowledged = 0
        self.refused = 0

    def end_nowait(self, broker_name: str, end: End, timeout_ms: int) -> "asyncio.Future[tuple[int, str]] | None":
        """Send a decision to a connected broker that answers; return the future of (code, remark), else None."""
        turn = self._turn_of.get(broker_name)
        if turn is not None:  # its connection was checked in this turn
            future: asyncio.Future[tuple[int, str]] = turn.loop.create_future()
            turn.ends.append(end)
            turn.futures.append(future)
            if timeout_ms < turn.left_ms:
                turn.left_ms = timeout_ms
            return future
        connection = self._instance.open_connection(broker_name)
        if connection is None or connection.announcement is None or not connection.announcement.transactions:
            return None
        future = self._ask(connection, end, timeout_ms)
        self._turn_of[broker_name] = self._turn[connection.address]
        return future

    async def end(
        self,
        broker_name: str,
        end: End,
        *,
        timeout_ms: int,
        attempts: int,
        connection: BrokerConnection | None = None,
        first: "asyncio.Future[tuple[int, str]] | None" = None,
        deadline_ns: int | None = None,
    ) -> bool:
        """Send a decision to the broker; return whether it has confirmed. Raises ``TransactionRefused`` where it
        decided differently. ``connection``: the connection to use first; ``first``: the first attempt, in flight or
        ended. ``deadline_ns``: the deadline, if not ``timeout_ms`` from now.
        """
        instance = self._instance
        if deadline_ns is None:
            deadline_ns = instance.clock.monotonic_ns() + timeout_ms * 1_000_000
        why = ""
        for attempt in range(attempts):
            left_ms = (deadline_ns - instance.clock.monotonic_ns()) / 1e6
            if left_ms <= 0 and (attempt or first is None):
                break
            if attempt:
                pause_ms = min(PAUSE_MS * 2 ** (attempt - 1), left_ms / 2)
                await asyncio.sleep(pause_ms * (1 + instance.random.random()) / 2000)
                left_ms = max(1.0, (deadline_ns - instance.clock.monotonic_ns()) / 1e6)
            try:
                if attempt == 0 and first is not None:
                    code, remark = await first
                else:
                    if connection is None or connection.channel.closed:
                        connection = await instance.connection(broker_name, timeout_ms=left_ms)
                    if connection.announcement is None or not connection.announcement.transactions:
                        self._oneway(connection, end)
                        return False
                    code, remark = await self._ask(connection, end, left_ms)
            except PocketMQError as error:
                why = str(error)
                continue
            if self.judge(end, code, remark):
                return True
            why = f"{broker_name} answered {code} {remark}".rstrip()
        instance.log.warning(
            "transaction_end_unconfirmed",
            broker=broker_name,
            msg_id=end.msg_id,
            state=end.state.name,
            why=why,
            what_to_do="nothing: the broker asks this producer group for the state",
        )
        return False

    def judge(self, end: End, code: int, remark: str) -> bool:
        """Return True if an answer confirms the decision, False if it allows another attempt; else raise
        ``TransactionRefused``."""
        if code in _ACKNOWLEDGED:
            self.acknowledged += 1
            return True
        if code in _AGAIN:
            return False
        self.refused += 1
        raise TransactionRefused(
            "the broker does not take the decision",
            why=f"{end.state.name} of {end.msg_id}: it answered {code} {remark}".rstrip(),
            hint=_hint(code),
            answer_code=code,
            msg_id=end.msg_id,
        )

    def _oneway(self, connection: BrokerConnection, end: End) -> None:
        header = EndTransactionRequestHeader(
            producer_group=self._group,
            tran_state_table_offset=end.queue_offset,
            commit_log_offset=end.physical_offset,
            commit_or_rollback=end.state.value,
            msg_id=end.msg_id,
            from_transaction_check=end.from_check,
            transaction_id=end.transaction_id or end.msg_id,
            bname=connection.broker_name,
        )
        self.sent += 1
        connection.channel.send_oneway(RequestCode.END_TRANSACTION, header)

    def _ask(self, connection: BrokerConnection, end: End, left_ms: float) -> "asyncio.Future[tuple[int, str]]":
        """Put the decision into this turn's request; the channel ends the wait after the shortest ``left_ms``."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[int, str]] = loop.create_future()
        turn = self._turn.get(connection.address)
        if turn is None:
            turn = self._turn[connection.address] = _Turn(loop, left_ms)
            loop.call_soon(self._flush, connection)
        turn.ends.append(end)
        turn.futures.append(future)
        turn.left_ms = min(turn.left_ms, left_ms)
        return future

    def _flush(self, connection: BrokerConnection) -> None:
        turn = self._turn.pop(connection.address)
        self._turn_of.clear()  # brokers with open turns are looked up again
        for first in range(0, len(turn.ends), ENDS_MAX):
            part = turn.ends[first : first + ENDS_MAX]
            header = NativeEndTransactionRequestHeader(
                producer_group=self._group,
                ends=[(end.queue_offset, end.physical_offset, end.state.value, end.from_check) for end in part],
            )
            futures = turn.futures[first : first + ENDS_MAX]
            self.sent += len(part)

            def done(
                result: Response | PocketMQError, futures: list[asyncio.Future[tuple[int, str]]] = futures
            ) -> None:
                _settle(futures, result)

            try:
                connection.channel.request_nowait(
                    RequestCode.NATIVE_END_TRANSACTION, header, b"", timeout_ms=max(1, int(turn.left_ms)), done=done
                )
            except PocketMQError as error:
                _settle(futures, error)


def _settle(futures: list[asyncio.Future[tuple[int, str]]], result: Response | PocketMQError) -> None:
    waiting = [future for future in futures if not future.done()]
    if not isinstance(result, Response):
        for future in waiting:
            future.set_exception(result)
        return
    header: Any = result.header
    if result.code != ResponseCode.SUCCESS or header is None:
        for future in waiting:
            future.set_result((result.code, result.remark))
        return
    if len(header.results) != len(futures):
        why = f"{len(header.results)} results for {len(futures)} decisions"
        error = ClientError("answer refused", why=why, hint="check the broker", cause=Cause.CORRUPT)
        for future in waiting:
            future.set_exception(error)
        return
    for future, (code, remark) in zip(futures, header.results, strict=True):
        if not future.done():
            future.set_result((code, remark))


def _hint(code: int) -> str:
    if code == ResponseCode.TRANSACTION_FAILED:
        return "pocketmq transaction resume lets the broker ask for it again"
    if code in (ResponseCode.TRANSACTION_SHOULD_COMMIT, ResponseCode.TRANSACTION_SHOULD_ROLLBACK):
        return "local transaction and check must say the same; a check may have come before the local transaction ended"
    return "the half message may have been ended by a check meanwhile; look for the message by its id"
