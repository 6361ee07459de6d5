"""EndTransaction: the decision on a half message.

Lives here: ``Transactions``.
"""

from dataclasses import dataclass
from typing import Final

from pocketmq.broker.grpc.callers import Callers
from pocketmq.broker.grpc.names import topic_of
from pocketmq.broker.grpc.open_transactions import OpenTransactions
from pocketmq.broker.grpc.statuses import OK, CallRefused, status_of_answer, status_of_error
from pocketmq.common.errors import PocketMQError
from pocketmq.common.record import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.grpc.call import Call
from pocketmq.remoting.grpc.codes import Code, TransactionResolution, TransactionSource
from pocketmq.remoting.grpc.messages import EndTransactionRequest, EndTransactionResponse
from pocketmq.remoting.protocol.transaction import EndTransactionRequestHeader

KINDS: Final[dict[int, int]] = {
    TransactionResolution.COMMIT: TRANSACTION_COMMIT,
    TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK,
}
NOT_FOUND: Final = "cannot found transaction data"
"""RocketMQ's words."""


@dataclass(slots=True, eq=False)
class Transactions:
    """Serves one method."""

    callers: Callers
    open: OpenTransactions

    async def end(self, call: Call, request: EndTransactionRequest) -> EndTransactionResponse:
        """Commit or roll back."""
        try:
            caller = self.callers.of(call, RequestCode.END_TRANSACTION)
            topic = topic_of(request.topic)
            if not request.transaction_id.strip():
                raise CallRefused(Code.INVALID_TRANSACTION_ID, "the transaction id is empty")
            kind = KINDS.get(request.resolution)
            if kind is None:
                raise CallRefused(Code.BAD_REQUEST, "a transaction ends with COMMIT or ROLLBACK")
            place = self.open.find(topic, request.transaction_id)
            if place is None:
                raise CallRefused(
                    Code.INTERNAL_SERVER_ERROR,
                    f"{NOT_FOUND}: {request.transaction_id[:64]} is not open here; "
                    "after a restart its producers are asked soon",
                )
            header = EndTransactionRequestHeader(
                producer_group=topic,
                tran_state_table_offset=place[0],
                commit_log_offset=place[1],
                commit_or_rollback=kind,
                msg_id=request.message_id,
                from_transaction_check=request.source == TransactionSource.SERVER_CHECK,
                transaction_id=request.transaction_id,
            )
            answer = await caller.ask(RequestCode.END_TRANSACTION, header)
        except CallRefused as refused:
            return EndTransactionResponse(status=refused.status)
        except PocketMQError as error:
            return EndTransactionResponse(status=status_of_error(error))
        if answer.code == ResponseCode.SUCCESS:
            return EndTransactionResponse(status=OK)
        return EndTransactionResponse(status=status_of_answer(answer))
