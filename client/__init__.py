"""The Python SDK: producers, consumers, admin.

from pocketmq.client import Message, Producer, PullConsumer, PushConsumer
"""

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
from pocketmq.client.fault_items import LATENCY_TABLE_4_9, LATENCY_TABLE_5_3, LatencyTable
from pocketmq.client.instance import ClientInstance, ClientOptions
from pocketmq.client.offsets import ConsumeFromWhere
from pocketmq.client.producer import Producer
from pocketmq.client.pull_consumer import PullConsumer
from pocketmq.client.push_consumer import PushConsumer
from pocketmq.client.rebalance import MessageQueue
from pocketmq.client.receipts import Receipt, SendStatus
from pocketmq.client.retry import DEFAULT_RETRY_RESPONSE_CODES, RETRY_RESPONSE_CODES_4_9
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingTooMuchRequestError

__all__ = [
    "DEFAULT_RETRY_RESPONSE_CODES",
    "LATENCY_TABLE_4_9",
    "LATENCY_TABLE_5_3",
    "RETRY_RESPONSE_CODES_4_9",
    "Attempt",
    "BrokerAnswerError",
    "ClientError",
    "ClientInstance",
    "ClientOptions",
    "ConsumeFromWhere",
    "ForkedClient",
    "LatencyTable",
    "Message",
    "MessageQueue",
    "NoNameServer",
    "NoRoute",
    "NotStarted",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "Receipt",
    "ReceivedMessage",
    "RemotingTooMuchRequestError",
    "ResponseCode",
    "SendFailed",
    "SendStatus",
    "SendTimeout",
    "WrongLoop",
]
