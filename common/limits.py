"""Limits on the length of texts from peers, and the memory that they take.

A table that counts entries bounds no memory while one entry may be as long as a frame (16 MiB). So every text that is
kept has a limit, and the tables that hold many of them a bound in bytes.

Lives here: limits of names, addresses and filters; ``too_long``; ``table_topic_error``; ``text_bytes``.
"""

from collections.abc import Iterable
from typing import Final

from pocketmq.common.sql_filter import EXPRESSION_LENGTH_MAX
from pocketmq.common.topics import GROUP_LENGTH_MAX, RETRY_PREFIX, TOPIC_LENGTH_MAX

NAME_LENGTH_MAX: Final = 255
"""Characters of a broker's or a cluster's name, and of words such as CONSUME_PASSIVELY (RocketMQ Validators)."""
ADDRESS_LENGTH_MAX: Final = 255 + len(":65535")
"""Characters of ``host:port``; a host has 255 at most (RFC 1035)."""
CLIENT_ID_LENGTH_MAX: Final = 1024
"""Characters of a client id. RocketMQ makes ``ip@instance@unit`` and has no limit."""
SUBSCRIPTION_LENGTH_MAX: Final = EXPRESSION_LENGTH_MAX
"""Characters of a subscription: tags with ``||`` between them, or a SQL92 filter (16 KiB)."""
TABLE_TOPIC_LENGTH_MAX: Final = len(RETRY_PREFIX) + GROUP_LENGTH_MAX + 1 + TOPIC_LENGTH_MAX
"""Characters of a topic that a table of RocketMQ may hold: the longest is a retry topic of pop consumers,
``%RETRY%<group>_<topic>`` (RocketMQ 5 KeyBuilder)."""

_TEXT_BYTES: Final = 56
"""What CPython adds to the characters of a text."""


def too_long(texts: Iterable[tuple[str, str | None, int]]) -> str:
    """Name the first of ``(field, text, limit)`` that is longer than its limit, in characters; empty if none is."""
    for field, text, limit in texts:
        if text is not None and len(text) > limit:
            return f"{field} has {len(text)} characters, limit {limit}"
    return ""


def table_topic_error(topic: str) -> str:
    """Say why a table of routes takes no such topic; empty if it does. It takes more than clients may create: names of
    clusters and brokers are topics as well, and other versions have rules of their own."""
    if not topic or topic.isspace():
        return "the name is blank"
    if not topic.isprintable():
        return "the name has control characters"
    return too_long([("the name", topic, TABLE_TOPIC_LENGTH_MAX)])


def text_bytes(text: str | None) -> int:
    """Return the most memory that a text takes. Always the same for the same text, so that sums do not drift."""
    return 0 if text is None else _TEXT_BYTES + len(text) * (1 if text.isascii() else 4)
