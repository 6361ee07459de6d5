"""The public import path of the administration of transactions; the code is in ``client.admin``."""

from pocketmq.client.admin.transaction_admin import (
    TransactionsUnknown,
    end_transactions,
    open_transactions,
    resume_transaction,
)

__all__ = ["TransactionsUnknown", "end_transactions", "open_transactions", "resume_transaction"]
