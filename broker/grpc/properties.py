"""A message of a gRPC client as the properties of a stored message, with the checks of RocketMQ's proxy.

Source: RocketMQ 5.3.3 ``SendMessageActivity``, ``GrpcValidator``: the properties that are written, and which code
refuses what.

Lives here: ``Sent``, ``sent_of``, ``consistent_hash``.
"""

import hashlib
import zlib
from dataclasses import dataclass
from typing import Final

from pocketmq.broker.grpc.reserved import BORN_HOST, BORN_TIMESTAMP, TRACE_CONTEXT, is_reserved
from pocketmq.broker.grpc.statuses import CallRefused
from pocketmq.common.hashes import java_string_hash
from pocketmq.common.record import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    KEYS,
    PGROUP,
    SHARDING_KEY,
    TAGS,
    TIMER_DELIVER_MS,
    TRAN_MSG,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    encode_properties,
)
from pocketmq.remoting.grpc.codes import Code, DigestType, Encoding, MessageType
from pocketmq.remoting.grpc.messages import Digest, MessageOf, SystemProperties

PROPERTIES_MAX: Final = 128
PROPERTIES_BYTES_MAX: Final = 16 << 10
GROUP_BYTES_MAX: Final = 64
RECOVERY_MS_MAX: Final = 3_600_000
_GZIP_MAGIC: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that may be stored."""

    message_id: str
    properties: str
    """As a send carries them."""
    body: bytes
    sys_flag: int
    born_timestamp: int
    group: str
    """Its message group; empty: none."""
    is_half: bool


def sent_of(
    message: MessageOf, topic: str, topic_type: str, body_bytes_max: int, delay_ms_max: int, now_ms: int
) -> Sent:
    """Return a message as it is to be stored. ``topic_type``: RocketMQ's, ``MIXED`` takes all. Raise
    ``CallRefused``."""
    system = message.system_properties or SystemProperties()
    if not system.message_id.strip():
        raise CallRefused(Code.ILLEGAL_MESSAGE_ID, "the message id is empty: clients make it")
    kind = _kind(system)
    if topic_type not in ("MIXED", kind.name):
        raise CallRefused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"a message of type {kind.name} in the topic {topic}, which takes {topic_type}",
        )
    properties = dict(_user_properties(message.user_properties))
    tag, group = system.tag, system.message_group
    if tag is not None:
        if not tag.strip() or "|" in tag or _has_control(tag):
            raise CallRefused(Code.ILLEGAL_MESSAGE_TAG, "a tag is blank, or has '|' or a control character")
        properties[TAGS] = tag
    if system.keys:
        for key in system.keys:
            if not key.strip() or _has_control(key):
                raise CallRefused(Code.ILLEGAL_MESSAGE_KEY, "a key is blank or has a control character")
        properties[KEYS] = " ".join(system.keys)
    properties[UNIQ_KEY] = system.message_id
    if group is not None:
        if not group.strip() or _has_control(group) or len(group.encode()) >= GROUP_BYTES_MAX:
            text = f"a message group is blank, has a control character, or {GROUP_BYTES_MAX} bytes or more"
            raise CallRefused(Code.ILLEGAL_MESSAGE_GROUP, text)
        properties[SHARDING_KEY] = group
    is_half = kind is MessageType.TRANSACTION
    if is_half:
        _add_transaction(properties, system)
    if system.delivery_timestamp is not None:
        deliver_ms = system.delivery_timestamp.ms
        if deliver_ms > now_ms + delay_ms_max:
            raise CallRefused(
                Code.ILLEGAL_DELIVERY_TIME, f"a delivery {deliver_ms - now_ms} ms ahead: the limit is {delay_ms_max} ms"
            )
        properties[TIMER_DELIVER_MS] = str(max(deliver_ms, 0))
    properties[PGROUP] = topic
    if system.born_host:
        properties[BORN_HOST] = system.born_host
    born_ms = now_ms if system.born_timestamp is None else system.born_timestamp.ms
    properties[BORN_TIMESTAMP] = str(born_ms)
    if system.trace_context is not None:
        properties[TRACE_CONTEXT] = system.trace_context
    for name in (BORN_HOST, TRACE_CONTEXT, UNIQ_KEY):
        if _has_control(properties.get(name, "")):
            raise CallRefused(Code.BAD_REQUEST, f"{name} has a control character")
    body = _body(message.body, system, body_bytes_max)
    sys_flag = TRANSACTION_PREPARED if is_half else 0
    text = encode_properties(properties).decode()
    return Sent(system.message_id, text, body, sys_flag, born_ms, group or "", is_half)


def _kind(system: SystemProperties) -> MessageType:
    """Return the type that a message has by its properties; the one that it names must be the same."""
    if system.message_type == MessageType.TRANSACTION:
        kind = MessageType.TRANSACTION
    elif system.delivery_timestamp is not None:
        kind = MessageType.DELAY
    elif system.message_group is not None:
        kind = MessageType.FIFO
    else:
        kind = MessageType.NORMAL
    if kind is MessageType.TRANSACTION and (system.delivery_timestamp is not None or system.message_group is not None):
        text = "a message of a transaction has a delivery time or a message group"
        raise CallRefused(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)
    if kind is MessageType.DELAY and system.message_group is not None:
        raise CallRefused(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "a message has a delivery time and a message group")
    return kind


def _user_properties(given: dict[str, str]) -> dict[str, str]:
    if len(given) > PROPERTIES_MAX:
        text = f"{len(given)} properties: the limit is {PROPERTIES_MAX}"
        raise CallRefused(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    size = 0
    for name, value in given.items():
        if is_reserved(name):
            raise CallRefused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property name {name[:100]!r} is RocketMQ's own")
        if not name or not value:  # RocketMQ's readers skip it, so that it would be lost
            raise CallRefused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property {name[:100]!r} has no name or no value")
        if _has_control(name) or _has_control(value):
            text = f"the property {name[:100]!r} has a control character"
            raise CallRefused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
        size += len(name.encode()) + len(value.encode())
    if size > PROPERTIES_BYTES_MAX:
        text = f"properties of {size} bytes: the limit is {PROPERTIES_BYTES_MAX}"
        raise CallRefused(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    return given


def _add_transaction(properties: dict[str, str], system: SystemProperties) -> None:
    properties[TRAN_MSG] = "true"
    recovery = system.orphaned_transaction_recovery_duration
    if recovery is not None:
        if not 0 <= recovery.ms <= RECOVERY_MS_MAX:
            text = f"a transaction is asked about after {recovery.ms} ms: the limit is {RECOVERY_MS_MAX} ms"
            raise CallRefused(Code.BAD_REQUEST, text)
        properties[CHECK_IMMUNITY_TIME_IN_SECONDS] = str(-(-recovery.ms // 1000))


def _has_control(text: str) -> bool:
    """Return whether a text has a character of Unicode's class Cc; they separate properties in the log."""
    return not text.isprintable() and any(ord(each) < 0x20 or 0x7F <= ord(each) < 0xA0 for each in text)


def _body(body: bytes, system: SystemProperties, bytes_max: int) -> bytes:
    """Return the body as it is stored, unpacked."""
    if not body:
        raise CallRefused(Code.MESSAGE_BODY_EMPTY, "the body is empty")
    if len(body) > bytes_max:
        raise CallRefused(Code.MESSAGE_BODY_TOO_LARGE, f"a body of {len(body)} bytes: the limit is {bytes_max}")
    if system.body_digest is not None and not _matches(system.body_digest, body):
        raise CallRefused(Code.MESSAGE_CORRUPTED, "the body has another digest than its message says")
    if system.body_encoding == Encoding.GZIP:
        return _unpacked(body, bytes_max)
    return body


def _unpacked(body: bytes, bytes_max: int) -> bytes:
    """Return a body that came as GZIP, or as the zlib stream that older clients mean by it. RocketMQ's 4.x clients read
    zlib alone, so it is stored as it was before."""
    unpacker = zlib.decompressobj(31 if body.startswith(_GZIP_MAGIC) else 15)
    try:
        plain = unpacker.decompress(body, bytes_max + 1)
    except zlib.error as error:
        raise CallRefused(Code.MESSAGE_CORRUPTED, f"the body is not the GZIP that it should be: {error}") from error
    if len(plain) > bytes_max:
        raise CallRefused(Code.MESSAGE_BODY_TOO_LARGE, f"an unpacked body of more than {bytes_max} bytes")
    if not unpacker.eof:
        raise CallRefused(Code.MESSAGE_CORRUPTED, "the body is half of a GZIP stream")
    if not plain:
        raise CallRefused(Code.MESSAGE_BODY_EMPTY, "the body is empty")
    return plain


def _matches(digest: Digest, body: bytes) -> bool:
    """Return whether a digest is that of a body. CRC32 is not compared: clients write it in three ways."""
    if digest.type == DigestType.MD5:
        return digest.checksum.upper() == hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    if digest.type == DigestType.SHA1:
        return digest.checksum.upper() == hashlib.sha1(body, usedforsecurity=False).hexdigest().upper()
    return True


def queue_of(group: str, queues: int) -> int:
    """Return the queue of a message group among so many, as RocketMQ's proxy chooses it."""
    return consistent_hash(java_string_hash(group), queues)


def consistent_hash(value: int, buckets: int) -> int:
    """Return Guava's ``Hashing.consistentHash`` of a number among ``buckets``: a linear congruential generator, seeded
    with the number, jumps from bucket to bucket (Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash")."""
    state, candidate = value & 0xFFFF_FFFF_FFFF_FFFF, 0
    while True:
        state = (2_862_933_555_777_941_757 * state + 1) & 0xFFFF_FFFF_FFFF_FFFF
        step = ((state >> 33) + 1) / 0x8000_0000
        following = int((candidate + 1) / step)
        if not 0 <= following < buckets:
            return candidate
        candidate = following
