"""Transactions for plain threads.

    with TransactionProducer("agents", "127.0.0.1:9876", check=is_booked) as producer:
        with producer.transaction(Message("Bookings", b"order 17")) as transaction:
            book(17, transaction.msg_id)

Lives here: the blocking faces.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

from pocketmq.client import blocking
from pocketmq.client.blocking_arguments import TransactionProducerArguments
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.message.transaction_message import TransactionReceipt
from pocketmq.client.producer.selectors import QueueSelector
from pocketmq.client.transaction import transaction_producer as async_transaction
from pocketmq.client.transaction.transaction_checks import Check
from pocketmq.common.message import Message


class TransactionProducer(blocking.Producer):
    """``pocketmq.client.TransactionProducer`` for threads; takes the same arguments. ``check`` runs in a thread of its
    own, or on the loop's thread if it is ``async def``."""

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        check: Check,
        **options: Unpack[TransactionProducerArguments],
    ) -> None:
        self._transactions = async_transaction.TransactionProducer(group, namesrv, check=check, **options)
        super(blocking.Producer, self).__init__(self._transactions)

    def send_in_transaction(
        self,
        message: Message,
        local: async_transaction.LocalTransaction,
        *,
        selector: QueueSelector | None = None,
        timeout_ms: int | None = None,
        check_immunity_sec: int | None = None,
    ) -> TransactionReceipt:
        """Store the half message, run ``local`` in a thread, send its result to the broker; wait for the end."""
        return self._thread.call(
            self._transactions.send_in_transaction(
                message, local, selector=selector, timeout_ms=timeout_ms, check_immunity_sec=check_immunity_sec
            )
        )

    def transaction(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        timeout_ms: int | None = None,
        check_immunity_sec: int | None = None,
    ) -> "Transaction":
        """Return a context manager whose body, in the calling thread, is the local transaction."""
        inner = self._transactions.transaction(
            message, selector=selector, timeout_ms=timeout_ms, check_immunity_sec=check_immunity_sec
        )
        return Transaction(inner, self._thread)


class Transaction:
    """``pocketmq.client.Transaction`` for threads."""

    def __init__(self, inner: async_transaction.Transaction, thread: blocking.LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    @property
    def receipt(self) -> Receipt:
        """The receipt of the half message."""
        return self._inner.receipt

    @property
    def msg_id(self) -> str:
        """The id of the message."""
        return self._inner.msg_id

    @property
    def result(self) -> TransactionReceipt | None:
        """How it ended; None before the end of the body."""
        return self._inner.result

    def commit(self) -> None:
        """Commit the message at the end of the body, even if it raises."""
        self._inner.commit()

    def rollback(self) -> None:
        """Roll the message back at the end of the body."""
        self._inner.rollback()

    def leave_unknown(self) -> None:
        """Let the broker ask the check."""
        self._inner.leave_unknown()

    def __enter__(self) -> Self:
        self._thread.call(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._inner.__aexit__(kind, error, trace))
