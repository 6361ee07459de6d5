"""The Python SDK: producers, consumers, admin.

    from pocketmq.client import Message, Producer, PullConsumer, PushConsumer

The packages in the order of the data flow:

    message, connection      messages and receipts; name servers, routes, one instance a process and name server
    arrow, trace             columns instead of objects; message trace
    sender, producer, transaction, staged, durable   messages out
    pull, handlers, push, idempotence        messages in
    admin                    administration

``blocking`` wraps producer and consumers for programs without asyncio. The public names are those in ``__all__`` and
the packages ``admin``, ``durable`` and ``idempotence``. No module here knows broker or store.
"""

from pocketmq.client.connection.instance import ClientInstance, ClientOptions
from pocketmq.client.connection.rebalance import (
    MessageQueue,
    allocate_by_config,
    allocate_by_consistent_hash,
    allocate_by_machine_room,
    allocate_machine_room_nearby,
)
from pocketmq.client.errors import (
    Attempt,
    BrokerAnswerError,
    ClientError,
    ForkedClient,
    NoNameServer,
    NoRoute,
    NotStarted,
    SendFailed,
    SendTimeout,
    WrongLoop,
)
from pocketmq.client.handlers.consume_result import ConsumeResult, Later
from pocketmq.client.handlers.process_queue import ProcessLimits
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
from pocketmq.client.pull.offsets import ConsumeFromWhere
from pocketmq.client.pull.pull_consumer import PullConsumer
from pocketmq.client.push.push_consumer import PushConsumer
from pocketmq.client.sender.fault_items import LATENCY_TABLE_4_9, LATENCY_TABLE_5_3, LatencyTable
from pocketmq.client.sender.retry import DEFAULT_RETRY_RESPONSE_CODES, RETRY_RESPONSE_CODES_4_9
from pocketmq.client.transaction.transaction_producer import Transaction, TransactionProducer
from pocketmq.common.body_codec import BodyUnreadable, CompressionType
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingTooMuchRequestError

__all__ = [
    "DEFAULT_RETRY_RESPONSE_CODES",
    "LATENCY_TABLE_4_9",
    "LATENCY_TABLE_5_3",
    "RETRY_RESPONSE_CODES_4_9",
    "Attempt",
    "BodyUnreadable",
    "BrokerAnswerError",
    "ClientError",
    "ClientInstance",
    "ClientOptions",
    "CompressionType",
    "ConsumeFromWhere",
    "ConsumeResult",
    "ForkedClient",
    "IdentifiedMessage",
    "LatencyTable",
    "Later",
    "LocalTransactionState",
    "Message",
    "MessageQueue",
    "NoNameServer",
    "NoReply",
    "NoRoute",
    "NotStarted",
    "ProcessLimits",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "Receipt",
    "ReceivedMessage",
    "RemotingTooMuchRequestError",
    "ReplyIllegal",
    "ReplyMessage",
    "ResponseCode",
    "SendFailed",
    "SendStatus",
    "SendTimeout",
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
