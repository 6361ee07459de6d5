"""The former import path of ``pocketmq.client.staged_transaction``, with the former names of its classes."""

from pocketmq.client.staged.staged_transaction import InDoubt, RowsLost
from pocketmq.client.staged.staged_transaction import StagedTransactions as NamedTransactions
from pocketmq.client.staged.staged_transaction import StagedWrite as Part
from pocketmq.client.staged.staged_transaction import StagedWriter as PartWriter
from pocketmq.common.former_names import warn_renamed

__all__ = ["InDoubt", "NamedTransactions", "Part", "PartWriter", "RowsLost"]

warn_renamed("pocketmq.client.named_transaction", "pocketmq.client.staged_transaction", stacklevel=2)
