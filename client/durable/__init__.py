"""Durable client retry: messages that could not be sent wait in a store and are resent, across restarts.

from pocketmq.client.durable import DurableRetry
"""

from pocketmq.client.durable.entry import KeptMessage
from pocketmq.client.durable.errors import (
    GivenUp,
    NotSafe,
    RetryStoreError,
    StoreCorrupt,
    StoreFull,
    StoreLocked,
    StoreRefused,
    StoreUnreachable,
)
from pocketmq.client.durable.ownership import StoreWait
from pocketmq.client.durable.policy import RetryRule
from pocketmq.client.durable.receipt import StoredForRetry
from pocketmq.client.durable.retry import DurableRetry
from pocketmq.client.durable.store import RetryStore

__all__ = [
    "DurableRetry",
    "GivenUp",
    "KeptMessage",
    "NotSafe",
    "RetryRule",
    "RetryStore",
    "RetryStoreError",
    "StoreCorrupt",
    "StoreFull",
    "StoreLocked",
    "StoreRefused",
    "StoreUnreachable",
    "StoreWait",
    "StoredForRetry",
]
