"""The check of a message before a record is built from it.

Lives here: the rules for topic, body, tags, keys, properties and numbers, and whether a message is plain.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Final

from pocketmq.common.errors import MessageIllegal
from pocketmq.common.message import Message
from pocketmq.common.message_fields import DELAYS, RESERVED
from pocketmq.common.record import check_property, is_plain_forbidden
from pocketmq.common.topics import TopicIllegal, check_topic_name, is_plain_topic, is_send_forbidden

MAX_MESSAGE_SIZE: Final = 4 << 20
"""Bytes of a body (DefaultMQProducer.java maxMessageSize)."""
DELAY_LEVEL_MAX: Final = 18
"""Levels of a broker with default settings (MessageStoreConfig.java messageDelayLevel)."""

TIME_MS_MAX: Final = 10**15
"""Year 33658: larger values were not meant as ms."""

SYSTEM_PROPERTIES: Final = RESERVED | frozenset(
    {
        "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET",
        "MAX_OFFSET", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "MSG_REGION",
        "TRACE_ON", "UNIQ_KEY", "INSTANCE_ID", "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "TRAN_PREPARED_QUEUE_OFFSET", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "MSG_TYPE", "CLUSTER",
        "PUSH_REPLY_TIME", "ARRIVE_TIME", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "POP_CK",
        "__CRC32#",
    }
)  # fmt: skip
"""Names that users may not set themselves (MessageConst.java STRING_HASH_SET, and ours): ``Message``'s own fields set
them, the rest only clients and brokers.
"""


def is_users_own(name: str) -> bool:
    """Return whether a received message has this property from its sender, as one that a copy may have, too."""
    return name not in SYSTEM_PROPERTIES and not is_plain_forbidden(name)


def check_sendable_topic(topic: str) -> bool:
    """Raise ``TopicIllegal`` unless a client may send to ``topic``; return whether its messages can be plain."""
    if not isinstance(topic, str):
        raise TopicIllegal("topic refused", why=f"topic is {type(topic).__name__}, not str")
    return _check_topic_text(topic)


@functools.lru_cache(maxsize=1024)
def _check_topic_text(topic: str) -> bool:
    """Check a topic once: a producer sends to few, and a refusal is not cached."""
    check_topic_name(topic)
    if is_send_forbidden(topic):
        raise TopicIllegal("topic refused", why=f"Sending message to topic[{topic}] is forbidden.")
    return is_plain_topic(topic)


def check_body(body: object, max_message_size: int) -> None:
    """Raise ``MessageIllegal`` unless ``body`` is ``bytes`` of an allowed size; RocketMQ refuses empty ones, too."""
    if not isinstance(body, bytes):
        raise _illegal("body", f"it is {type(body).__name__}, not bytes", "encode text and serialise objects first")
    if not body:
        raise _illegal("body", "the message body length is zero", "put the payload into the body")
    if len(body) > max_message_size:
        raise _illegal(
            "body", f"{len(body)} bytes, over the limit of {max_message_size}", "split it or raise max_message_size"
        )


def check_message(message: Message, max_message_size: int) -> bool:
    """Raise a typed error that names the field, or return whether the message is plain (fit for a native append)."""
    if not isinstance(message, Message):
        raise MessageIllegal("message refused", why=f"{type(message).__name__} is no Message", hint="send a Message")
    plain = check_sendable_topic(message.topic)
    check_body(message.body, max_message_size)
    flag = message.flag
    if type(flag) is not int or not -(1 << 31) <= flag < 1 << 31:
        raise _illegal("flag", f"{flag!r} is no signed 32-bit number")
    level = message.delay_time_level
    if type(level) is not int or not 0 <= level <= DELAY_LEVEL_MAX:
        raise _illegal("delay_time_level", f"{level!r} is not from 0 to {DELAY_LEVEL_MAX}")
    timed = message.is_timed
    if timed:
        _check_times(message)
    check_text("tags", message.tags)
    keys = message.keys
    if isinstance(keys, str):
        check_text("keys", keys)
    else:
        if type(keys) not in (tuple, list) and (not isinstance(keys, Sequence) or isinstance(keys, bytes)):
            raise _illegal("keys", f"it is {type(keys).__name__}, neither str nor a list of str")
        for key in keys:
            check_text("keys", key)
            if key.split() != [key]:
                raise _illegal("keys", f"key {key!r} is empty or holds a space", "keys are separated by spaces")
    if message.sharding_key is not None:
        check_text("sharding_key", message.sharding_key)
    if message.properties is not None:
        if type(message.properties) is not dict and not isinstance(message.properties, Mapping):
            raise _illegal("properties", f"it is {type(message.properties).__name__}, no mapping")
        plain = _check_properties(message.properties) and plain
    return plain and level == 0 and not timed and message.is_plain_kind


def _check_times(message: Message) -> None:
    """Check the times of a timed message; the broker limits how far ahead they may lie."""
    given = (message.delay_time_level or None, message.delay_time_ms, message.deliver_time_ms)
    if given.count(None) < len(DELAYS) - 1:
        raise _illegal(", ".join(DELAYS), "more than one of them is set", "set one of them")
    for field, value in zip(DELAYS, given, strict=True):  # a level is a small number, and was checked
        if value is not None and (type(value) is not int or not 0 <= value <= TIME_MS_MAX):
            raise _illegal(field, f"{value!r} is no time in whole ms from 0 to {TIME_MS_MAX}", "round a float up")


def _check_properties(properties: Mapping[str, str]) -> bool:
    plain = True
    for name, value in properties.items():
        check_text("properties", name)
        check_text(f"properties[{name!r}]", value)
        check_property(name, value)
        if name in SYSTEM_PROPERTIES:
            raise _illegal(
                f"properties[{name!r}]",
                f"the name {name} is used by the system",
                "choose another, or Message's own field",
            )
        if is_plain_forbidden(name):
            plain = False
    return plain


def check_text(field: str, value: object) -> None:
    """Raise ``MessageIllegal`` unless ``value`` is text that a property can hold."""
    if not isinstance(value, str):
        raise _illegal(field, f"it is {type(value).__name__}, not str")
    if "\x01" in value or "\x02" in value:
        raise _illegal(field, "it holds the separator 0x01 or 0x02")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _illegal(field, f"not Unicode: {error}") from error


def _illegal(field: str, why: str, hint: str = "") -> MessageIllegal:
    return MessageIllegal(f"message refused, field {field}", why=why, hint=hint)
