"""A stored message as gRPC clients get it.

Source: RocketMQ 5.3.3 ``GrpcConverter.buildMessage``. The digest is MD5 in upper-case hex, as the proxy's: CRC32 is
written in three ways by the clients, and a wrong digest makes a client take the message for corrupted.

Lives here: ``message_of``, ``type_of_message``.
"""

import hashlib
from typing import Final

from pocketmq.broker.grpc.names import resource_of
from pocketmq.broker.grpc.reserved import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    TRACE_CONTEXT,
    is_reserved,
)
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record import (
    COMPRESSED_FLAG,
    COMPRESSION_TYPE_MASK,
    COMPRESSION_ZLIB,
    KEYS,
    SHARDING_KEY,
    TAGS,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRAN_MSG,
    UNIQ_KEY,
)
from pocketmq.remoting.grpc.codes import DigestType, Encoding, MessageType
from pocketmq.remoting.grpc.messages import (
    DeadLetterQueue,
    Digest,
    Duration,
    MessageOf,
    Resource,
    SystemProperties,
    Timestamp,
)

UNPACKED_BYTES_MAX: Final = 16 << 20


def message_of(
    message: ReceivedMessage,
    named: Resource | None,
    *,
    topic: str = "",
    handle: str | None = None,
    attempt: int | None = None,
    invisible_ms: int = 0,
) -> MessageOf:
    """Return a message for a client that has named its topic as ``named``; ``topic``: the one that it was sent to, if
    its record is in another one. ``handle`` and what follows: of a message that is handed out."""
    properties = message.properties
    body, encoding = _body(message)
    system = SystemProperties(
        tag=properties.get(TAGS) or None,
        keys=[key for key in properties.get(KEYS, "").split(" ") if key],
        message_id=properties.get(UNIQ_KEY) or message.offset_msg_id,
        body_digest=Digest(type=DigestType.MD5, checksum=hashlib.md5(body, usedforsecurity=False).hexdigest().upper()),
        body_encoding=encoding,
        message_type=type_of_message(properties),
        born_timestamp=Timestamp.of_ms(message.born_timestamp),
        born_host=message.born_host,
        store_timestamp=Timestamp.of_ms(message.store_timestamp),
        store_host=message.store_host,
        receipt_handle=handle,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        delivery_attempt=attempt,
        message_group=properties.get(SHARDING_KEY) or None,
        trace_context=properties.get(TRACE_CONTEXT) or None,
    )
    if invisible_ms:
        system.invisible_duration = Duration.of_ms(invisible_ms)
    due = properties.get(TIMER_DELIVER_MS) or properties.get(TIMER_OUT_MS) or ""
    if due.isascii() and due.isdecimal() and len(due) < 19:
        system.delivery_timestamp = Timestamp.of_ms(int(due))
    if DLQ_ORIGIN_TOPIC in properties or DLQ_ORIGIN_MESSAGE_ID in properties:
        system.dead_letter_queue = DeadLetterQueue(
            topic=properties.get(DLQ_ORIGIN_TOPIC, ""), message_id=properties.get(DLQ_ORIGIN_MESSAGE_ID, "")
        )
    own = {name: value for name, value in properties.items() if not is_reserved(name)}
    resource = resource_of(topic or message.topic, named)
    return MessageOf(topic=resource, user_properties=own, system_properties=system, body=body)


def type_of_message(properties: dict[str, str]) -> MessageType:
    """Return what kind of message it was sent as (RocketMQ ``TopicMessageType.parseFromMessageProperty``)."""
    if properties.get(TRAN_MSG, "").lower() == "true":
        return MessageType.TRANSACTION
    if any(name.startswith("TIMER_") for name in properties) or "DELAY" in properties:
        return MessageType.DELAY
    if SHARDING_KEY in properties:
        return MessageType.FIFO
    return MessageType.NORMAL


def _body(message: ReceivedMessage) -> tuple[bytes, Encoding]:
    """Return the body and how it is compressed: clients read GZIP, and by it mean zlib as well; what is compressed in
    another way is unpacked."""
    flag = message.sys_flag
    if not flag & COMPRESSED_FLAG:
        return message.raw_body, Encoding.IDENTITY
    if flag & COMPRESSION_TYPE_MASK in (0, COMPRESSION_ZLIB):
        return message.raw_body, Encoding.GZIP
    try:
        return message.body_within(UNPACKED_BYTES_MAX), Encoding.IDENTITY
    except PocketMQError:  # its library is missing here, or the body is broken: the client finds out
        return message.raw_body, Encoding.IDENTITY
