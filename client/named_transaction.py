"""The public import path of transactions with a name; the code is in ``client.staged``."""

from pocketmq.client.staged.staged_transaction import InDoubt, NamedTransactions, Part, PartWriter, RowsLost

__all__ = ["InDoubt", "NamedTransactions", "Part", "PartWriter", "RowsLost"]
