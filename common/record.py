"""The layout of RocketMQ's commit-log record.

Lives here: field offsets, magic numbers, sysFlag bits, packed dtypes of the header, hosts as bytes.

All integers are big-endian (RocketMQ CommitLog, MessageDecoder). With IPv4 hosts::

    at  0 u32 total size       20 i64 queue offset      48 born host 8         76 i64 prepared offset
        4 u32 magic            28 i64 physical offset   56 i64 store timestamp 84 i32 body length
        8 u32 body CRC         36 i32 sysFlag           64 store host 8        88 body
       12 i32 queue id         40 i64 born timestamp    72 i32 reconsume times
       16 i32 flag             then: u8 topic length (V2: u16), topic, u16 properties length, properties

A host is 4 bytes of IPv4 address (or 16 of IPv6) and the port as i32; each IPv6 host moves what follows by 12 bytes.

The property string of a message: ``name 0x01 value 0x02``, repeated.

Lives here: RocketMQ's property names, encoder and decoder of the string.
"""

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pocketmq.common.addresses import address_text
from pocketmq.common.errors import MessageIllegal

if TYPE_CHECKING:
    import numpy as np

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
"""Two-byte topic length; used when a topic has more than 127 bytes (RocketMQ 5.x)."""
MAGIC_BLANK: Final = 0xCBD43194
"""Fills the end of a segment: u32 bytes left, u32 this."""
BLANK_BYTES_MIN: Final = 8
"""Every segment ends with at least this much blank."""

TOTAL_SIZE_AT: Final = 0
MAGIC_AT: Final = 4
BODY_CRC_AT: Final = 8
QUEUE_ID_AT: Final = 12
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
BORN_HOST_AT: Final = 48
STORE_TIMESTAMP_AT: Final = 56
"""With an IPv4 born host; 12 more with IPv6."""
BODY_AT: Final = 88
"""With two IPv4 hosts; 12 more for each IPv6 host."""

HOST_V4_BYTES: Final = 8
HOST_V6_BYTES: Final = 20
HOST_V6_EXTRA: Final = HOST_V6_BYTES - HOST_V4_BYTES
RECORD_BYTES_MIN: Final = BODY_AT + 1 + 2
"""A V1 record with IPv4 hosts, no body, no topic, no properties."""
TOPIC_BYTES_V1_MAX: Final = 127
TOPIC_BYTES_V2_MAX: Final = 32767
CRC_MASK: Final = 0x7FFF_FFFF
"""The body CRC is CRC-32 without its highest bit (RocketMQ UtilAll.crc32)."""

COMPRESSED_FLAG: Final = 0x1
MULTI_TAGS_FLAG: Final = 0x2
TRANSACTION_MASK: Final = 0xC
TRANSACTION_NOT: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
BORN_HOST_V6_FLAG: Final = 0x10
STORE_HOST_V6_FLAG: Final = 0x20
HOSTS_V6_MASK: Final = 0x30
COMPRESSION_TYPE_MASK: Final = 0x700
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300
"""0 means zlib too: clients before 5.0 know no other."""

PLAIN_SYS_FLAGS: Final = COMPRESSED_FLAG | MULTI_TAGS_FLAG | COMPRESSION_TYPE_MASK
"""What a client may set in a plain record of a native append, besides the host bits."""

HOST_ZERO_V4: Final = bytes(HOST_V4_BYTES)


def host_bytes_of(family: int) -> int:
    """Return the bytes of a host in a record for address family 4 or 6."""
    return HOST_V6_BYTES if family == 6 else HOST_V4_BYTES


def body_at(sys_flag: int) -> int:
    """Return where the body starts in a record with this sysFlag: 88, 100 or 112."""
    hosts = sys_flag & HOSTS_V6_MASK
    return BODY_AT + (0 if hosts == 0 else HOST_V6_EXTRA * 2 if hosts == HOSTS_V6_MASK else HOST_V6_EXTRA)


def header_dtype(born_v6: bool, store_v6: bool) -> "np.dtype[np.void]":
    """Return the packed big-endian dtype of a record's fixed part, up to the body length."""
    import numpy as np  # not at import: a client that sends single messages needs no NumPy

    return np.dtype(
        [
            ("total_size", ">u4"),
            ("magic", ">u4"),
            ("body_crc", ">u4"),
            ("queue_id", ">i4"),
            ("flag", ">i4"),
            ("queue_offset", ">i8"),
            ("physical_offset", ">i8"),
            ("sys_flag", ">i4"),
            ("born_timestamp", ">i8"),
            ("born_host", "V", HOST_V6_BYTES if born_v6 else HOST_V4_BYTES),
            ("store_timestamp", ">i8"),
            ("store_host", "V", HOST_V6_BYTES if store_v6 else HOST_V4_BYTES),
            ("reconsume_times", ">i4"),
            ("prepared_offset", ">i8"),
            ("body_length", ">i4"),
        ]
    )


if TYPE_CHECKING:
    HEADER_V4: np.dtype[np.void]
    """88 bytes: both hosts IPv4."""
    HEADER_V6: np.dtype[np.void]
    """112 bytes: both hosts IPv6."""
    HEADERS: tuple[np.dtype[np.void], ...]
    """By ``(sysFlag & 0x30) >> 4``."""


def __getattr__(name: str) -> Any:
    """Make the dtypes of headers when the first module imports one of them."""
    if name not in ("HEADER_V4", "HEADER_V6", "HEADERS"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    headers = tuple(header_dtype(born_v6, store_v6) for store_v6 in (False, True) for born_v6 in (False, True))
    globals().update(HEADER_V4=headers[0], HEADER_V6=headers[3], HEADERS=headers)
    return globals()[name]


def encode_host(address: str, port: int) -> bytes:
    """Return a host as a record holds it: address bytes and the port as i32. ``address`` is numeric, IPv4 or IPv6."""
    try:
        packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address.partition("%")[0])
    except OSError as error:
        raise MessageIllegal("host refused", why=f"{address!r} is no numeric IP address") from error
    return packed + port.to_bytes(4, "big")


def parse_host(host: bytes) -> tuple[str, int]:
    """Return (address, port) of a host's 8 or 20 bytes."""
    if len(host) == HOST_V4_BYTES:
        return socket.inet_ntop(socket.AF_INET, host[:4]), int.from_bytes(host[4:], "big")
    if len(host) == HOST_V6_BYTES:
        return socket.inet_ntop(socket.AF_INET6, host[:16]), int.from_bytes(host[16:], "big")
    raise MessageIllegal("host refused", why=f"{len(host)} bytes, not 8 or 20")


def host_text(host: bytes) -> str:
    """Return ``ip:port``, or ``[ip]:port`` for IPv6."""
    return address_text(*parse_host(host))


PROPERTIES_BYTES_MAX: Final = 32767
"""Largest property string: its length is a Java short (RocketMQ CommitLog)."""


KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
UNIQ_KEY: Final = "UNIQ_KEY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
INSTANCE_ID: Final = "INSTANCE_ID"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
MSG_TYPE: Final = "MSG_TYPE"
CLUSTER: Final = "CLUSTER"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
ARRIVE_TIME: Final = "ARRIVE_TIME"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
"""Of a recall: the message that is not to be delivered (RocketMQ MessageConst)."""
SHARDING_KEY: Final = "__SHARDINGKEY"
POP_CK: Final = "POP_CK"
CRC32: Final = "__CRC32#"

TIMER_PREFIX: Final = "TIMER_"

FIRST_NAMES: Final = (UNIQ_KEY, TAGS, KEYS, CLUSTER)
"""Properties that PocketMQ writes first, in this order: the broker reads that prefix in columns."""

PLAIN_FORBIDDEN: Final = frozenset(
    {WAIT, DELAY, TRAN_MSG, REAL_TOPIC, REAL_QID, TRAN_PREPARED_QUEUE_OFFSET, TRANSACTION_CHECK_TIMES}
)
"""Names that no plain record of a native append carries, besides every ``TIMER_*``. The last two say of a half message
that it stands for another one: only a broker may say that.
"""


def is_plain_forbidden(name: str) -> bool:
    """Return whether a property makes the broker rewrite its message, so that it cannot be in a plain record."""
    return name in PLAIN_FORBIDDEN or name.startswith(TIMER_PREFIX)


def check_property(name: str, value: str) -> None:
    """Raise ``MessageIllegal`` if a pair would not be read back as it is: empty, or with a separator in it."""
    if not name or not value:
        raise MessageIllegal(
            "property refused", why=f"{name!r} has an empty name or value, which readers skip", hint="leave it out"
        )
    if "\x01" in name or "\x02" in name or "\x02" in value or "\x01" in value:
        raise MessageIllegal("property refused", why=f"{name!r} holds the separator 0x01 or 0x02")


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return the property string: UNIQ_KEY, TAGS, KEYS, CLUSTER, then the others as given; the last 0x02 stays.

    Raises ``MessageIllegal`` for an empty name or value, a separator inside one, text that is not Unicode, or more than
    ``PROPERTIES_BYTES_MAX`` bytes.
    """
    if not properties:
        return b""
    parts: list[str] = []
    for name in FIRST_NAMES:
        value = properties.get(name)
        if value is not None:
            check_property(name, value)
            parts.append(f"{name}\x01{value}\x02")
    for name, value in properties.items():
        if name not in FIRST_NAMES:
            check_property(name, value)
            parts.append(f"{name}\x01{value}\x02")
    encoded = encode_text("".join(parts))
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise MessageIllegal("properties refused", why=f"{len(encoded)} bytes, more than {PROPERTIES_BYTES_MAX}")
    return encoded


def encode_text(text: str) -> bytes:
    """Return ``text`` as UTF-8, or raise ``MessageIllegal`` for half a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MessageIllegal("text refused", why=f"not Unicode: {error}") from error


def decode_properties(data: bytes) -> dict[str, str]:
    """Return the pairs of a property string, with or without its last 0x02.

    Pairs with an empty name or value, or without 0x01, are skipped; of two pairs with one name the last counts; bytes
    that are no UTF-8 become U+FFFD (RocketMQ MessageDecoder.string2messageProperties).
    """
    properties: dict[str, str] = {}
    for pair in data.decode("utf-8", "replace").split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            properties[name] = value
    return properties
