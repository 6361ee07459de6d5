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
    WrongLoop,
)
from pocketmq.client.instance import ClientInstance, ClientOptions
from pocketmq.client.offsets import ConsumeFromWhere
from pocketmq.client.producer import Producer
from pocketmq.client.pull_consumer import PullConsumer
from pocketmq.client.push_consumer import PushConsumer
from pocketmq.client.rebalance import MessageQueue
from pocketmq.client.receipts import Receipt, SendStatus
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingTooMuchRequestError

__all__ = [
    "Attempt",
    "BrokerAnswerError",
    "ClientError",
    "ClientInstance",
    "ClientOptions",
    "ConsumeFromWhere",
    "ForkedClient",
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
    "WrongLoop",
]
