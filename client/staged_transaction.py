"""The public import path of staged transactions; the code is in ``client.staged``."""

from pocketmq.client.staged.staged_transaction import InDoubt, RowsLost, StagedTransactions, StagedWrite, StagedWriter

__all__ = ["InDoubt", "RowsLost", "StagedTransactions", "StagedWrite", "StagedWriter"]
