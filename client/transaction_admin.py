"""Open transactions, as operators look at them.

Lives here: ``open_transactions``, ``resume_transaction``.
Not here: other administration (``admin``), what is printed (``pocketmq transaction``).
"""

from typing import Final

from pocketmq.client.admin import Admin
from pocketmq.client.instance import check_answer
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.message_id import parse_offset_msg_id
from pocketmq.common.record import host_text
from pocketmq.remoting.bodies import OpenTransaction, TransactionList, decode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import ResumeCheckHalfMessageRequestHeader, TransactionListRequestHeader

PAGE: Final = 1000


async def open_transactions(admin: Admin, broker: str = "", max_count: int = 1000) -> list[tuple[str, OpenTransaction]]:
    """Return (broker name, half message) of those that wait, oldest first on each broker, at most ``max_count``.

    ``broker``: that one only. Raises ``NotFound``, connection errors, ``BrokerAnswerError`` (a real RocketMQ does not
    serve this).
    """
    found: list[tuple[str, OpenTransaction]] = []
    timeout_ms = admin.instance.options.api_timeout_ms
    for name, address in (await admin.masters(broker=broker)).items():
        link = await admin.instance.link_to(address, name, timeout_ms=timeout_ms)
        offset = 0
        while offset >= 0 and len(found) < max_count:
            header = TransactionListRequestHeader(offset, min(PAGE, max_count - len(found)))
            response = await link.channel.request(RequestCode.TRANSACTION_LIST, header, timeout_ms=timeout_ms)
            check_answer(response, f"transactions of {name} not listed", address)
            page = decode_body(response.body, TransactionList)
            found += [(name, each) for each in page.transactions]
            offset = page.next_offset if page.next_offset > offset else -1
    return found


async def resume_transaction(admin: Admin, msg_id: str) -> str:
    """Let the broker ask once more about a half message that it gave up; return the broker's address.

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
    link = await admin.instance.link_to(address, masters[address], timeout_ms=timeout_ms)
    header = ResumeCheckHalfMessageRequestHeader(msg_id)
    response = await link.channel.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header, timeout_ms=timeout_ms)
    check_answer(response, "transaction not resumed", address)
    return address
