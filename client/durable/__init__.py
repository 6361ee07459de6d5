"""Durable client retry: messages that could not be sent wait in a store and are resent, across restarts.

from pocketmq.client.durable import DurableRetry
"""

from typing import TYPE_CHECKING

from pocketmq.client.durable.entry import KeptMessage
from pocketmq.client.durable.errors import (
    FORMER_NAMES,
    GivenUpError,
    NotSafe,
    RetryStoreCorrupt,
    RetryStoreError,
    RetryStoreFull,
    RetryStoreLocked,
    RetryStoreRefused,
    RetryStoreUnreachable,
)
from pocketmq.client.durable.ownership import StoreWait
from pocketmq.client.durable.policy import RetryRule
from pocketmq.client.durable.receipt import StoredForRetry
from pocketmq.client.durable.retry import DurableRetry
from pocketmq.client.durable.store import RetryStore
from pocketmq.common.former_names import renamed_objects

__all__ = [
    "DurableRetry",
    "GivenUpError",
    "KeptMessage",
    "NotSafe",
    "RetryRule",
    "RetryStore",
    "RetryStoreCorrupt",
    "RetryStoreError",
    "RetryStoreFull",
    "RetryStoreLocked",
    "RetryStoreRefused",
    "RetryStoreUnreachable",
    "StoreWait",
    "StoredForRetry",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_objects(__name__, FORMER_NAMES)
