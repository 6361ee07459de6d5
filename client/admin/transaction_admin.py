"""Open transactions, for operators.

Lives here: ``open_transactions``, ``end_transactions``, ``resume_transaction``.
"""

from collections.abc import Sequence
from typing import Final

from pocketmq.client.admin.admin import Admin
from pocketmq.client.connection.instance import check_answer
from pocketmq.client.errors import ClientError
from pocketmq.common.errors import Cause, MessageIllegal
from pocketmq.common.message_id import parse_offset_msg_id
from pocketmq.common.record import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, host_text
from pocketmq.common.topics import TRANS_CHECK_MAX_TIME_TOPIC
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.transaction import (
    NativeEndTransactionRequestHeader,
    NativeEndTransactionResponseHeader,
    OpenTransaction,
    ResumeCheckHalfMessageRequestHeader,
    TransactionList,
    TransactionListRequestHeader,
)

PAGE: Final = 1000


class TransactionsUnknown(ClientError):
    """A broker does not list its open transactions: RocketMQ's do not."""

    default_cause = Cause.BAD_REQUEST


async def open_transactions(admin: Admin, broker: str = "", max_count: int = 1000) -> list[tuple[str, OpenTransaction]]:
    """Return (broker name, half message) of open transactions, oldest first on each broker, at most ``max_count``.

    ``broker``: that one only. Raises ``NotFound``, connection errors, ``BrokerAnswerError``, and
    ``TransactionsUnknown`` for a broker that is not PocketMQ's.
    """
    found: list[tuple[str, OpenTransaction]] = []
    timeout_ms = admin.instance.options.api_timeout_ms
    for name, address in (await admin.masters(broker=broker)).items():
        connection = await admin.instance.connection_to(address, name, timeout_ms=timeout_ms)
        offset = 0
        while offset >= 0 and len(found) < max_count:
            header = TransactionListRequestHeader(offset, min(PAGE, max_count - len(found)))
            response = await connection.channel.request(RequestCode.TRANSACTION_LIST, header, timeout_ms=timeout_ms)
            if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise TransactionsUnknown(
                    f"the open transactions of {name} are not known",
                    why=f"{address} is not a PocketMQ broker of this version",
                    hint="a RocketMQ broker does not list them; those it gave up are in TRANS_CHECK_MAX_TIME_TOPIC",
                )
            check_answer(response, f"transactions of {name} not listed", address)
            page = decode_body(response.body, TransactionList)
            found += [(name, each) for each in page.transactions]
            offset = page.next_offset if page.next_offset > offset else -1
    return found


async def end_transactions(
    admin: Admin, found: Sequence[tuple[str, OpenTransaction]], *, commit: bool
) -> list[tuple[str, OpenTransaction, str]]:
    """Commit or roll back open transactions, as their producers would; return each with why the broker refused it,
    empty where it is ended.

    ``found``: as ``open_transactions`` returns them. Raises ``NotFound``, connection errors, ``BrokerAnswerError``.
    """
    ended: list[tuple[str, OpenTransaction, str]] = []
    timeout_ms = admin.instance.options.api_timeout_ms
    masters = await admin.masters()
    decision = TRANSACTION_COMMIT if commit else TRANSACTION_ROLLBACK
    parts: dict[tuple[str, str], list[OpenTransaction]] = {}
    for name, each in found:
        parts.setdefault((name, each.producer_group), []).append(each)
    for (name, group), transactions in parts.items():
        connection = await admin.instance.connection_to(masters[name], name, timeout_ms=timeout_ms)
        for first in range(0, len(transactions), PAGE):
            part = transactions[first : first + PAGE]
            ends = [(each.queue_offset, each.physical_offset, decision, False) for each in part]
            header = NativeEndTransactionRequestHeader(group, ends)
            code = RequestCode.NATIVE_END_TRANSACTION
            response = await connection.channel.request(code, header, timeout_ms=timeout_ms)
            check_answer(response, f"transactions of {name} not ended", masters[name])
            answer = response.header
            assert isinstance(answer, NativeEndTransactionResponseHeader)
            for each, (result, why) in zip(part, answer.results, strict=True):
                ended.append((name, each, (why or f"code {result}") if result else ""))
    return ended


async def resume_transaction(admin: Admin, msg_id: str) -> str:
    """Let the broker check once more a half message that it gave up; return the broker's address.

    ``msg_id``: the offset message id of its copy in ``TRANS_CHECK_MAX_TIME_TOPIC``. Raises ``MessageIllegal``,
    connection errors, ``BrokerAnswerError``.
    """
    host, _ = parse_offset_msg_id(msg_id)
    address = host_text(host)
    masters = {each: name for name, each in (await admin.masters()).items()}
    if address not in masters:
        raise MessageIllegal(
            "not resumed",
            why=f"the id is of {address}, where no master is registered",
            hint="give the offset message id of a message in TRANS_CHECK_MAX_TIME_TOPIC",
        )
    timeout_ms = admin.instance.options.api_timeout_ms
    connection = await admin.instance.connection_to(address, masters[address], timeout_ms=timeout_ms)
    if connection.announcement is None:  # RocketMQ would make a half message of whatever the id names
        topic = (await admin.view_message(msg_id)).topic
        if topic != TRANS_CHECK_MAX_TIME_TOPIC:
            raise MessageIllegal(
                "not resumed",
                why=f"the message is of topic {topic}",
                hint="give the offset message id of a message in TRANS_CHECK_MAX_TIME_TOPIC",
            )
    header = ResumeCheckHalfMessageRequestHeader(msg_id)
    response = await connection.channel.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header, timeout_ms=timeout_ms)
    check_answer(response, "transaction not resumed", address)
    return address
