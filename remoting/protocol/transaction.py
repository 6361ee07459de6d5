"""Transactions: decisions on half messages, checks, and the list of open ones.

Header structs: RocketMQ 4.9.8 ``EndTransactionRequestHeader`` and its neighbors.

Access: RocketMQ 5.3.3 ``DefaultAuthorizationContextBuilder`` for 37, the annotation of the header for 323. In both the
topic is optional: here the topic of the half message counts. NATIVE_END_TRANSACTION needs what 37 needs
for each half, TRANSACTION_LIST Get on the cluster, because it shows the transactions of all groups. 39 goes to clients.
"""

from typing import Final

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import FROM_BROKER, GET_CLUSTER, PUB_STORED, UPDATE, Place, needs, topic
from pocketmq.remoting.protocol.body import Body
from pocketmq.remoting.protocol.spec import Header, Int, Long, Pool, Raw, Spec


class EndTransactionRequestHeader(Header, frozen=True):
    """END_TRANSACTION; ``commit_or_rollback`` is 8 commit, 12 rollback, 0 unknown; oneway from a client."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str = ""
    bname: str = ""


class CheckTransactionStateRequestHeader(Header, frozen=True):
    """CHECK_TRANSACTION_STATE, broker to producer, oneway; the body is the encoded message with its real topic."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str = ""
    transaction_id: str = ""
    offset_msg_id: str = ""
    bname: str = ""


class NativeEndTransactionRequestHeader(Header, frozen=True):
    """NATIVE_END_TRANSACTION: many decisions of one producer group."""

    producer_group: str
    ends: list[tuple[Long, Long, Int, bool]]
    """(half-queue offset, commit-log offset, 8 commit or 12 rollback or 0 unknown, from a check) of each."""


class NativeEndTransactionResponseHeader(Header, frozen=True):
    """One result a decision. The frame's code is SUCCESS if any was judged."""

    results: list[tuple[Int, str]]
    """(response code, remark) of each."""


class TransactionListRequestHeader(Header, frozen=True):
    """TRANSACTION_LIST: those from the half-queue offset ``from_offset`` on, at most ``count``; the body is JSON."""

    from_offset: Long = 0
    count: Int = 1000


class ResumeCheckHalfMessageRequestHeader(Header, frozen=True):
    """RESUME_CHECK_HALF_MESSAGE; the offset message id of a half message."""

    msg_id: str = ""


class OpenTransaction(Body):
    """A half message that waits for its decision; times in ms since 1970."""

    queue_offset: int
    physical_offset: int
    producer_group: str = ""
    topic: str = ""
    uniq_key: str = ""
    store_timestamp: int = 0
    checks: int = 0


class TransactionList(Body):
    """TRANSACTION_LIST; ``next_offset`` is where the next request continues, -1 at the end."""

    transactions: list[OpenTransaction] = []
    total: int = 0
    next_offset: int = -1


_R = RequestCode
SPECS: Final = (
    Spec(_R.END_TRANSACTION, Pool.END_TRANSACTION, PUB_STORED, EndTransactionRequestHeader),
    Spec(_R.CHECK_TRANSACTION_STATE, Pool.CLIENT, FROM_BROKER, CheckTransactionStateRequestHeader, body=Raw.RECORDS),
    Spec(
        _R.RESUME_CHECK_HALF_MESSAGE,
        Pool.ADMIN,
        needs(topic(Place.STORED, UPDATE)),
        ResumeCheckHalfMessageRequestHeader,
    ),
    Spec(
        _R.NATIVE_END_TRANSACTION,
        Pool.END_TRANSACTION,
        PUB_STORED,
        NativeEndTransactionRequestHeader,
        NativeEndTransactionResponseHeader,
    ),
    Spec(_R.TRANSACTION_LIST, Pool.ADMIN, GET_CLUSTER, TransactionListRequestHeader, answer=TransactionList),
)
