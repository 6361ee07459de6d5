"""The property string of a message: ``name 0x01 value 0x02``, repeated.

Lives here: RocketMQ's property names, encoder and decoder of the string.
"""

from collections.abc import Mapping
from typing import Final

from pocketmq.common.errors import MessageIllegal

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
