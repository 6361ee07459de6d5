"""The public import path of staged transactions; the code is in ``client.staged``."""

from pocketmq.client.staged.staged_transaction import InDoubt, Part, PartWriter, RowsLost, StagedTransactions

__all__ = ["InDoubt", "Part", "PartWriter", "RowsLost", "StagedTransactions"]
