"""A message whose sender waits for an answer, and the answer.

Lives here: ``RequestMessage`` and ``ReplyMessage``, ``reply_to`` for consumers, ``is_request``, ``ReplyIllegal``.

As RocketMQ's (MessageUtil): the request carries a correlation id, the client id of its sender and a time to live; the
reply goes to the topic ``<cluster>_REPLY_TOPIC`` and repeats them.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pocketmq.client.errors import ClientError
from pocketmq.common import record as names
from pocketmq.common.errors import Cause, MessageIllegal
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.topics import REPLY_SUFFIX
from pocketmq.remoting.codes import ResponseCode

REPLY_FLAG: Final = "reply"
"""Value of MSG_TYPE of a reply (RocketMQ MixAll.REPLY_MESSAGE_FLAG)."""


class ReplyIllegal(ClientError):
    """A message cannot be replied to: it is no request (RocketMQ CREATE_REPLY_MESSAGE_EXCEPTION, code 10007)."""

    code = ResponseCode.CREATE_REPLY_MESSAGE_EXCEPTION
    default_cause = Cause.BAD_REQUEST


class _Linked(Message):
    """A message with properties of the system's own."""

    __slots__ = ("system_properties",)

    is_plain_kind = False

    def __init__(self, message: Message, topic: str, system_properties: Mapping[str, str]) -> None:
        if message.delay_time_level or message.is_timed:
            raise MessageIllegal(
                "message refused", why="a request or reply cannot be delayed", hint="send it without the delay"
            )
        self.copy_fields(message)
        self.topic = topic
        self.system_properties = dict(system_properties)

    def property_map(self, uniq_key: str = "") -> dict[str, str]:
        """Return the message's properties and those of the system."""
        return {**super().property_map(uniq_key), **self.system_properties}


class RequestMessage(_Linked):
    """A message whose sender waits for a reply. Only ``Producer.request`` makes one."""

    __slots__ = ()


class ReplyMessage(_Linked):
    """The reply to a request; send it with any producer of the same cluster.

    ``broker_name``: the broker that had the request; the requester is connected there, so the reply goes there.
    """

    __slots__ = ("broker_name",)

    def __init__(self, message: Message, topic: str, system_properties: Mapping[str, str], broker_name: str) -> None:
        super().__init__(message, topic, system_properties)
        self.broker_name = broker_name


def reply_to(
    request: ReceivedMessage,
    body: bytes,
    *,
    tags: str = "",
    keys: Sequence[str] | str = (),
    properties: Mapping[str, str] | None = None,
) -> ReplyMessage:
    """Return the reply to a request that was consumed (RocketMQ MessageUtil.createReplyMessage).

    Raises ``ReplyIllegal`` for a message that is no request. Use: ``await producer.send(reply_to(message, b"..."))``.
    """
    if not isinstance(request, ReceivedMessage):
        raise ReplyIllegal(
            "create reply message fail", why=f"{type(request).__name__} is no received message", hint="pass the request"
        )
    known = request.properties
    for name in (names.CLUSTER, names.REPLY_TO_CLIENT, names.CORRELATION_ID):
        if not known.get(name):
            raise ReplyIllegal(
                "create reply message fail",
                why=f"requestMessage error, property[{name}] is null.",
                hint="reply only to what Producer.request has sent",
            )
    system = {
        names.MSG_TYPE: REPLY_FLAG,
        names.CORRELATION_ID: known[names.CORRELATION_ID],
        names.REPLY_TO_CLIENT: known[names.REPLY_TO_CLIENT],
    }
    if names.TTL in known:
        system[names.TTL] = known[names.TTL]
    topic = known[names.CLUSTER] + REPLY_SUFFIX
    message = Message(topic, body, tags=tags, keys=keys, properties=properties)
    return ReplyMessage(message, topic, system, request.broker_name)


def is_request(message: ReceivedMessage) -> bool:
    """Return whether the sender of a message waits for a reply."""
    known = message.properties
    return bool(known.get(names.CORRELATION_ID) and known.get(names.REPLY_TO_CLIENT)) and names.MSG_TYPE not in known
