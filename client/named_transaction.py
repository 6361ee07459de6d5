"""The former import path of ``pocketmq.client.staged_transaction``, with the former name of its class."""

from pocketmq.client.staged.staged_transaction import InDoubt, Part, PartWriter, RowsLost
from pocketmq.client.staged.staged_transaction import StagedTransactions as NamedTransactions
from pocketmq.common.former_names import warn_renamed

__all__ = ["InDoubt", "NamedTransactions", "Part", "PartWriter", "RowsLost"]

warn_renamed("pocketmq.client.named_transaction", "pocketmq.client.staged_transaction", stacklevel=2)
