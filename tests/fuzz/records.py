"""Targets: records, properties, bodies, filters, each read in several ways that must agree.

Lives here: ``TARGETS``.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from pocketmq.broker.group.message_filter import parse_tags
from pocketmq.common.body_codec import CompressionType, compress_body, decompress_body
from pocketmq.common.errors import CorruptRecord, MessageIllegal
from pocketmq.common.hashes import crc32
from pocketmq.common.message import Message
from pocketmq.common.record import CRC_MASK, decode_properties, encode_properties
from pocketmq.common.record_codec import PlainRecordBuilder, decode_record, encode_record
from pocketmq.common.record_columns import first_bad_crc, parse_columns, received_messages
from pocketmq.common.sql_filter import compile_filter
from tests.common.test_plain_check import RULES, both
from tests.fuzz.target import Target, outcome

IDS: Final = [bytes(f"{number:032X}", "ascii") for number in range(3)]
BODY_BYTES_MAX: Final = 1 << 20


def record(data: bytes) -> None:
    """The scalar codec, the columns and the reader of messages see the same record, or each of them refuses it."""
    array = np.frombuffer(data, np.uint8)
    size = np.array([len(data)])
    scalar = outcome(lambda data: decode_record(data, check_crc=False), data)
    if not isinstance(scalar, type) and scalar.size != len(data):  # type: ignore[attr-defined]
        scalar = CorruptRecord  # bytes behind it
    columns = outcome(lambda data: parse_columns(array, size if data else None), data)
    messages = outcome(lambda data: received_messages(data, size, "b"), data)
    many = outcome(lambda data: received_messages(data * 40, np.array([len(data)] * 40), "b"), data)
    if isinstance(scalar, type):
        assert not data or (columns, messages) == (CorruptRecord, CorruptRecord), (columns, messages)
        assert not data or many is CorruptRecord
        return
    found: Any = scalar
    seen: Any = columns
    message: Any = messages
    row = (seen.queue_ids[0], seen.queue_offsets[0], seen.physical_offsets[0], seen.sys_flags[0], seen.flags[0])
    assert row == (found.queue_id, found.queue_offset, found.physical_offset, found.sys_flag, found.flag)
    start, end = int(seen.property_starts[0]), int(seen.property_starts[0] + seen.property_lengths[0])
    assert data[start:end] == found.properties
    assert (first_bad_crc(seen) is None) == (crc32(found.body) & CRC_MASK == found.body_crc)
    other: Any = many
    for each in (*message, *other):
        assert (each.topic, each.queue_id, each.raw_body) == (found.topic, found.queue_id, found.body)
        outcome(_read_all, each)


def _read_all(message: Any) -> object:
    return message.properties, message.keys, message.tags, message.body, repr(message)


def plain(data: bytes) -> None:
    """The check of native appends: one record in a cold and a warm cache, in columns, and many alike, judge the same.

    The first byte chooses how often the record is repeated; its checksum and its size are put right.
    """
    if len(data) < 100:
        return
    repeat, made = data[0] % 40 + 1, bytearray(data[1:])
    made[:4] = len(made).to_bytes(4, "big")
    body_bytes = int.from_bytes(made[84:88], "big")
    body = bytes(made[88 : 88 + body_bytes])
    made[8:12] = (crc32(body) & CRC_MASK).to_bytes(4, "big")
    outcome(lambda data: both([data] * repeat, [("T", 1, repeat)], RULES[4]), bytes(made))


def _records() -> Iterator[bytes]:
    builder = PlainRecordBuilder("c")
    messages = (
        Message("T", b""),
        Message("T", b"body", tags="a", keys="k1 k2"),
        Message("T", b"body", properties={"p": "é"}, sharding_key="s"),
    )
    for message, unique in zip(messages, IDS, strict=True):
        yield builder.build(message, 1, unique, 1_700_000_000_000)
    for host in (bytes(8), bytes(20)):
        flags = 0x30 if len(host) == 20 else 0
        yield encode_record(
            "T", b"x", queue_id=1, sys_flag=flags, born_host=host, store_host=host, properties=b"TAGS\x01a\x02"
        )


def properties(data: bytes) -> None:
    """What is read can be written and read again."""
    found = decode_properties(data)
    try:
        packed = encode_properties(found)
    except MessageIllegal:
        return
    assert decode_properties(packed) == found


def tags(data: bytes) -> None:
    """A subscription by tags."""
    parse_tags(data.decode("utf-8", "surrogateescape"))


ROWS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"a": "1", "b": "x"},
    {"a": "-1.5e3", "b": "é", "c": "TRUE"},
    {"a": "9" * 400, "n": "nan"},
)


def sql(data: bytes) -> None:
    """A filter that compiles answers for each row, the same each time it is compiled."""
    expression = data.decode("utf-8", "surrogateescape")
    found = compile_filter(expression)
    answers = [found.matches(row) for row in ROWS]
    assert all(answer is True or answer is False for answer in answers), answers
    assert [compile_filter(expression).matches(row) for row in ROWS] == answers


def _filters() -> Iterator[bytes]:
    for text in (
        "a > 5 AND b = 'x'",
        "a BETWEEN 1 AND 2.5e3 OR b IN ('x', 'y') OR c IS NOT NULL",
        "NOT (a <= 0x1F) AND b NOT IN ('z') AND a <> -7",
        "b LIKE 'x%'",
        "b CONTAINS 'x' AND b NOT STARTSWITH 'y' OR b ENDSWITH ''",
        "c = TRUE AND c IS NULL AND a NOT BETWEEN 1 AND 9223372036854775807",
        "((((a = 1))))",
    ):
        yield text.encode()


def compressed(data: bytes) -> None:
    """A body of any compression type is bounded, whatever it says of itself; the first byte chooses the type."""
    if data:
        found = decompress_body(data[1:], data[0] % 5 << 8, BODY_BYTES_MAX)
        assert len(found) <= BODY_BYTES_MAX


def _compressed() -> Iterator[bytes]:
    for kind in CompressionType:
        for body in (b"", b"hello" * 20, bytes(100_000)):
            yield bytes((kind.value >> 8,)) + compress_body(body, kind)


TARGETS: Final = {
    "record": Target(record, _records),
    "plain": Target(plain, lambda: (b"\0" + each for each in _records())),
    "properties": Target(properties, lambda: [b"a\x01b\x02KEYS\x01k k\x02", b"\x01\x02\x02"]),
    "tags": Target(tags, lambda: [b"a || b", b"*"]),
    "sql": Target(sql, _filters),
    "compressed": Target(compressed, _compressed),
}
