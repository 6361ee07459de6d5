"""The Python SDK: producers, consumers, admin.

    from pocketmq.client import Message, Producer, PullConsumer, PushConsumer, SimpleConsumer

The packages in the order of the data flow:

    telemetry                OpenTelemetry, if it is switched on
    message, connection      messages and receipts; name servers, routes, one instance a process and name server
    arrow, trace             columns instead of objects; message trace
    sender, producer, transaction, staged, durable   messages out
    pull, simple, handlers, push, idempotence   messages in
    admin                    administration

Each name is imported with its module when it is first used: a producer pays for no consumer.

``blocking`` wraps producer and consumers for programs without asyncio. The public names are those in ``__all__`` and
the packages ``admin``, ``durable``, ``idempotence`` and ``telemetry``. Every error of the SDK is a ``PocketMQError``;
those that public calls raise are here. No module here knows broker or store.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pocketmq.client.admin import Admin, GroupOnline, NotFound
    from pocketmq.client.arrow.arrow import ArrowMissing, ColumnUnknown
    from pocketmq.client.connection.instance import ClientInstance, ClientOptions
    from pocketmq.client.connection.rebalance import (
        MessageQueue,
        allocate_by_config,
        allocate_by_consistent_hash,
        allocate_by_machine_room,
        allocate_machine_room_nearby,
    )
    from pocketmq.client.durable import DurableRetry, GivenUpError, RetryStoreError, RetryStoreLocked
    from pocketmq.client.errors import (
        Attempt,
        BrokerAnswerError,
        BrokerNotExist,
        BrokerUnavailable,
        ClientError,
        ForkedClient,
        NoNameServer,
        NoRoute,
        NotStarted,
        OffsetIllegal,
        SelectorFailed,
        SendFailed,
        SendTimeout,
        SubscriptionIllegal,
        WrongLoop,
    )
    from pocketmq.client.handlers.consume_result import ConsumeResult, DeadLetter, Later
    from pocketmq.client.handlers.process_queue import ProcessLimits
    from pocketmq.client.idempotence import Idempotent, MarkStoreUnavailable
    from pocketmq.client.message.identified_message import IdentifiedMessage
    from pocketmq.client.message.receipts import Receipt, SendStatus
    from pocketmq.client.message.request_message import ReplyIllegal, ReplyMessage, is_request, reply_to
    from pocketmq.client.message.transaction_message import (
        LocalTransactionState,
        TransactionNotBegun,
        TransactionReceipt,
        TransactionRefused,
    )
    from pocketmq.client.producer.producer import Producer
    from pocketmq.client.producer.request_reply import NoReply
    from pocketmq.client.producer.selectors import QueueSelector
    from pocketmq.client.pull.offsets import ConsumeFromWhere
    from pocketmq.client.pull.pull_consumer import PullConsumer
    from pocketmq.client.push.push_consumer import PushConsumer
    from pocketmq.client.sender.fault_items import LATENCY_TABLE_4_9, LATENCY_TABLE_5_3, LatencyTable
    from pocketmq.client.sender.retry import DEFAULT_RETRY_RESPONSE_CODES, RETRY_RESPONSE_CODES_4_9
    from pocketmq.client.simple.popped_message import PoppedMessage, ReceiptExpired
    from pocketmq.client.simple.simple_consumer import SimpleConsumer
    from pocketmq.client.staged.chunk_target import BrokersUnreachableError, NotSupportedByBrokerError
    from pocketmq.client.staged.staged_transaction import InDoubt, RowsLost, StagedTransactions
    from pocketmq.client.transaction.transaction_producer import Transaction, TransactionProducer
    from pocketmq.common.body_codec import BodyUnreadable, CompressionType
    from pocketmq.common.errors import ConfigError, CorruptRecord, MessageIllegal, PocketMQError
    from pocketmq.common.message import Message, ReceivedMessage
    from pocketmq.common.topics import GroupIllegal, TopicIllegal
    from pocketmq.common.value_codec import JSON, MSGPACK, BodyCodec, BodyNotDecoded
    from pocketmq.remoting.codes import ResponseCode
    from pocketmq.remoting.errors import (
        AuthenticationFailed,
        ConnectFailed,
        ConnectionLost,
        CredentialsIllegal,
        RemotingTooMuchRequestError,
        RequestTimeout,
    )
    from pocketmq.remoting.security.client_security import TLS
    from pocketmq.remoting.security.credentials import Credentials

_MODULES: Final = {
    "Admin": "client.admin",
    "ArrowMissing": "client.arrow.arrow",
    "Attempt": "client.errors",
    "AuthenticationFailed": "remoting.errors",
    "BodyCodec": "common.value_codec",
    "BodyNotDecoded": "common.value_codec",
    "BodyUnreadable": "common.body_codec",
    "BrokerAnswerError": "client.errors",
    "BrokerNotExist": "client.errors",
    "BrokerUnavailable": "client.errors",
    "BrokersUnreachableError": "client.staged.chunk_target",
    "ClientError": "client.errors",
    "ClientInstance": "client.connection.instance",
    "ClientOptions": "client.connection.instance",
    "ColumnUnknown": "client.arrow.arrow",
    "CompressionType": "common.body_codec",
    "ConfigError": "common.errors",
    "ConnectFailed": "remoting.errors",
    "ConnectionLost": "remoting.errors",
    "ConsumeFromWhere": "client.pull.offsets",
    "ConsumeResult": "client.handlers.consume_result",
    "CorruptRecord": "common.errors",
    "Credentials": "remoting.security.credentials",
    "CredentialsIllegal": "remoting.errors",
    "DEFAULT_RETRY_RESPONSE_CODES": "client.sender.retry",
    "DeadLetter": "client.handlers.consume_result",
    "DurableRetry": "client.durable",
    "ForkedClient": "client.errors",
    "GivenUpError": "client.durable",
    "GroupIllegal": "common.topics",
    "GroupOnline": "client.admin",
    "Idempotent": "client.idempotence",
    "IdentifiedMessage": "client.message.identified_message",
    "InDoubt": "client.staged.staged_transaction",
    "JSON": "common.value_codec",
    "LATENCY_TABLE_4_9": "client.sender.fault_items",
    "LATENCY_TABLE_5_3": "client.sender.fault_items",
    "LatencyTable": "client.sender.fault_items",
    "Later": "client.handlers.consume_result",
    "LocalTransactionState": "client.message.transaction_message",
    "MSGPACK": "common.value_codec",
    "MarkStoreUnavailable": "client.idempotence",
    "Message": "common.message",
    "MessageIllegal": "common.errors",
    "MessageQueue": "client.connection.rebalance",
    "NoNameServer": "client.errors",
    "NoReply": "client.producer.request_reply",
    "NoRoute": "client.errors",
    "NotFound": "client.admin",
    "NotStarted": "client.errors",
    "NotSupportedByBrokerError": "client.staged.chunk_target",
    "OffsetIllegal": "client.errors",
    "PocketMQError": "common.errors",
    "PoppedMessage": "client.simple.popped_message",
    "ProcessLimits": "client.handlers.process_queue",
    "Producer": "client.producer.producer",
    "PullConsumer": "client.pull.pull_consumer",
    "PushConsumer": "client.push.push_consumer",
    "QueueSelector": "client.producer.selectors",
    "RETRY_RESPONSE_CODES_4_9": "client.sender.retry",
    "Receipt": "client.message.receipts",
    "ReceiptExpired": "client.simple.popped_message",
    "ReceivedMessage": "common.message",
    "RemotingTooMuchRequestError": "remoting.errors",
    "ReplyIllegal": "client.message.request_message",
    "ReplyMessage": "client.message.request_message",
    "RequestTimeout": "remoting.errors",
    "ResponseCode": "remoting.codes",
    "RetryStoreError": "client.durable",
    "RetryStoreLocked": "client.durable",
    "RowsLost": "client.staged.staged_transaction",
    "SelectorFailed": "client.errors",
    "SendFailed": "client.errors",
    "SendStatus": "client.message.receipts",
    "SendTimeout": "client.errors",
    "SimpleConsumer": "client.simple.simple_consumer",
    "StagedTransactions": "client.staged.staged_transaction",
    "SubscriptionIllegal": "client.errors",
    "TLS": "remoting.security.client_security",
    "TopicIllegal": "common.topics",
    "Transaction": "client.transaction.transaction_producer",
    "TransactionNotBegun": "client.message.transaction_message",
    "TransactionProducer": "client.transaction.transaction_producer",
    "TransactionReceipt": "client.message.transaction_message",
    "TransactionRefused": "client.message.transaction_message",
    "WrongLoop": "client.errors",
    "allocate_by_config": "client.connection.rebalance",
    "allocate_by_consistent_hash": "client.connection.rebalance",
    "allocate_by_machine_room": "client.connection.rebalance",
    "allocate_machine_room_nearby": "client.connection.rebalance",
    "is_request": "client.message.request_message",
    "reply_to": "client.message.request_message",
}
"""Public name → its module, below ``pocketmq``."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"pocketmq.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


__all__ = [
    "DEFAULT_RETRY_RESPONSE_CODES",
    "JSON",
    "LATENCY_TABLE_4_9",
    "LATENCY_TABLE_5_3",
    "MSGPACK",
    "RETRY_RESPONSE_CODES_4_9",
    "TLS",
    "Admin",
    "ArrowMissing",
    "Attempt",
    "AuthenticationFailed",
    "BodyCodec",
    "BodyNotDecoded",
    "BodyUnreadable",
    "BrokerAnswerError",
    "BrokerNotExist",
    "BrokerUnavailable",
    "BrokersUnreachableError",
    "ClientError",
    "ClientInstance",
    "ClientOptions",
    "ColumnUnknown",
    "CompressionType",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "ConsumeFromWhere",
    "ConsumeResult",
    "CorruptRecord",
    "Credentials",
    "CredentialsIllegal",
    "DeadLetter",
    "DurableRetry",
    "ForkedClient",
    "GivenUpError",
    "GroupIllegal",
    "GroupOnline",
    "Idempotent",
    "IdentifiedMessage",
    "InDoubt",
    "LatencyTable",
    "Later",
    "LocalTransactionState",
    "MarkStoreUnavailable",
    "Message",
    "MessageIllegal",
    "MessageQueue",
    "NoNameServer",
    "NoReply",
    "NoRoute",
    "NotFound",
    "NotStarted",
    "NotSupportedByBrokerError",
    "OffsetIllegal",
    "PocketMQError",
    "PoppedMessage",
    "ProcessLimits",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "QueueSelector",
    "Receipt",
    "ReceiptExpired",
    "ReceivedMessage",
    "RemotingTooMuchRequestError",
    "ReplyIllegal",
    "ReplyMessage",
    "RequestTimeout",
    "ResponseCode",
    "RetryStoreError",
    "RetryStoreLocked",
    "RowsLost",
    "SelectorFailed",
    "SendFailed",
    "SendStatus",
    "SendTimeout",
    "SimpleConsumer",
    "StagedTransactions",
    "SubscriptionIllegal",
    "TopicIllegal",
    "Transaction",
    "TransactionNotBegun",
    "TransactionProducer",
    "TransactionReceipt",
    "TransactionRefused",
    "WrongLoop",
    "allocate_by_config",
    "allocate_by_consistent_hash",
    "allocate_by_machine_room",
    "allocate_machine_room_nearby",
    "is_request",
    "reply_to",
]
