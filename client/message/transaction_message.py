"""The parts of a transaction on the client's side: the half message, the states, the result.

Lives here: ``HalfMessage``, ``LocalTransactionState``, ``as_state``, ``TransactionReceipt``, the errors.
"""

import enum
from typing import Final

import msgspec

from pocketmq.client.errors import ClientError
from pocketmq.client.message.receipts import Receipt
from pocketmq.common import record as names
from pocketmq.common.errors import Cause, MessageIllegal, Stored
from pocketmq.common.message import Message
from pocketmq.common.record import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_ROLLBACK

CHECK_IMMUNITY_SEC_MAX: Final = 7 * 86_400


class LocalTransactionState(enum.Enum):
    """The result of a local transaction or of its check (RocketMQ LocalTransactionState); the values are the wire's."""

    COMMIT_MESSAGE = TRANSACTION_COMMIT
    ROLLBACK_MESSAGE = TRANSACTION_ROLLBACK
    UNKNOW = TRANSACTION_NOT
    UNKNOWN = TRANSACTION_NOT


class TransactionNotBegun(ClientError):
    """The half message was stored, but not as safely as asked, so the local transaction was not run; it is rolled back.

    ``receipt.status`` says what was missing (RocketMQ runs the local transaction after SEND_OK only).
    """

    default_cause = Cause.TIMEOUT

    def __init__(self, what: str, *, why: str = "", hint: str = "", receipt: Receipt | None = None) -> None:
        super().__init__(what, why=why, hint=hint, stored=Stored.NO)
        self.receipt = receipt


class TransactionRefused(ClientError):
    """The broker does not take the decision on a half message: it ended differently, or does not exist.

    ``answer_code`` is RocketMQ's response code: 200 it was committed, 201 it was rolled back, 4 it was given up after
    too many checks, 1 it is unknown. The local transaction is not undone by this.
    """

    default_cause = Cause.BAD_REQUEST

    def __init__(self, what: str, *, why: str = "", hint: str = "", answer_code: int = -1, msg_id: str = "") -> None:
        super().__init__(what, why=why, hint=hint)
        self.answer_code = answer_code
        self.msg_id = msg_id


class TransactionReceipt(msgspec.Struct, frozen=True, gc=False):
    """How a transaction ended, as far as its producer knows.

    ``half``: the receipt of the half message. ``acknowledged``: the broker has confirmed the decision. Where it has not
    (it was not reached, the state is unknown, or it is a real RocketMQ, which does not answer), it asks the producer
    group later.
    """

    half: Receipt
    state: LocalTransactionState
    acknowledged: bool

    @property
    def msg_id(self) -> str:
        """The id of the message: that of the half message and of what consumers get."""
        return self.half.msg_id

    @property
    def committed(self) -> bool:
        """Whether the message is there for consumers, confirmed by the broker."""
        return self.acknowledged and self.state is LocalTransactionState.COMMIT_MESSAGE


class HalfMessage(Message):
    """A message as the first half of a transaction. Only a ``TransactionProducer`` makes one.

    ``msg_id`` is known to the local transaction, which should store it: so the check can distinguish tries.
    """

    __slots__ = ("check_immunity_sec", "msg_id", "producer_group")

    def __init__(self, message: Message, producer_group: str, check_immunity_sec: int | None = None) -> None:
        """Copy ``message``. Raises ``MessageIllegal`` for one that is delayed, or for an impossible immunity."""
        if not isinstance(message, Message):
            raise MessageIllegal(
                "message refused", why=f"{type(message).__name__} is no Message", hint="send a Message"
            )
        if message.delay_time_level or message.delay_time_ms is not None or message.deliver_time_ms is not None:
            raise MessageIllegal(
                "message refused",
                why="it is delayed, and it is to be sent in a transaction",
                hint="a transaction cannot hold a delayed message: send it without the delay, or outside of one",
            )
        if check_immunity_sec is not None and (
            type(check_immunity_sec) is not int or not 1 <= check_immunity_sec <= CHECK_IMMUNITY_SEC_MAX
        ):
            raise MessageIllegal(
                "message refused, field check_immunity_sec",
                why=f"{check_immunity_sec!r} is not from 1 to {CHECK_IMMUNITY_SEC_MAX}",
            )
        self.copy_fields(message)
        self.msg_id = ""
        self.producer_group = producer_group
        self.check_immunity_sec = check_immunity_sec

    def property_map(self, uniq_key: str = "") -> dict[str, str]:
        """Return the message's properties and those that make it a half one (RocketMQ
        DefaultMQProducerImpl.sendMessageInTransaction)."""
        result = super().property_map(uniq_key)
        result[names.TRAN_MSG] = "true"
        result[names.PGROUP] = self.producer_group
        if self.check_immunity_sec is not None:
            result[names.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(self.check_immunity_sec)
        return result


def as_state(value: object) -> LocalTransactionState:
    """Return the state that a local transaction or a check has returned: a ``LocalTransactionState``, True (commit),
    False (roll back) or None (unknown). Raises ``ClientError`` for anything else.
    """
    if isinstance(value, LocalTransactionState):
        return value
    if value is True:
        return LocalTransactionState.COMMIT_MESSAGE
    if value is False:
        return LocalTransactionState.ROLLBACK_MESSAGE
    if value is None:
        return LocalTransactionState.UNKNOW
    raise ClientError(
        "no state of a transaction",
        why=f"it returned {type(value).__name__}",
        hint="return a LocalTransactionState, True to commit, False to roll back, None for unknown",
        cause=Cause.BAD_REQUEST,
    )
