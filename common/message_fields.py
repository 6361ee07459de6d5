"""The fields of a message: one row for each field of ``Message``.

Lives here: ``FIELDS``, the table; ``Field`` and ``Not``, what it holds; the lists that readers take from it.

Arrow columns, retry store, Spark sink and command line take names, properties and types from here. Code that runs once
for each message spells the fields out, because a loop would cost time: tests/test_message_fields.py compares such code
with the rows. docs/sending.md shows the table.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from pocketmq.common import record as names


class Not(msgspec.Struct, frozen=True):
    """Why a reader leaves a field out."""

    why: str


ColumnType = Literal["binary", "string", "int32", "map<string, string>"]


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of ``Message``, and what each reader makes of it. A row that leaves a reader undecided does not load.

    ``name``: attribute and argument of ``Message``, and the name of the field wherever a reader has it. ``type``: its
    annotation. ``property``: RocketMQ's property that carries it. ``reserved``: users may not set that property
    themselves. ``is_delay``: it delays the message; a message has one of these at most.

    ``plain``: a plain record of a native append carries it. ``column``: Arrow type of the column of ``send_arrow``; a
    body may be text as well. ``sink``: the Spark sink takes that column. ``read``: it is a column of ``poll_arrow`` and
    of the Spark source. ``option``: of ``pocketmq produce``, for all messages of a run; ``line``: what ``pocketmq
    produce`` takes from each line. ``json``: ``pocketmq consume --json`` shows it, and ``produce --json-lines``
    takes it. ``kept``: the retry store keeps it. ``copied``: a half message, a request and a reply have it from the
    message that they are made of. ``exported``: the column of ``pocketmq dlq export --format parquet`` that has it.
    """

    name: str
    type: str
    meaning: str
    property: str | Not
    reserved: bool = False
    is_delay: bool = False
    plain: Literal[True] | Not
    column: ColumnType | Not
    sink: Literal[True] | Not
    read: Literal[True] | Not
    option: str | Not
    line: str | Not
    json: Literal[True] | Not
    kept: Literal[True] | Not
    copied: Literal[True] | Not
    exported: str | Not


_NO_PROPERTY: Final = Not("the record has a place of its own for it")
_ALONE: Final = Not("a delayed message is sent by itself, as RocketMQ's clients send it")
_AFTER_DELAY: Final = Not("it is over when a consumer gets the message")
_FOR_ALL: Final = Not("all messages of a run have the same")
_NO_DELAY: Final = Not("refused: a half message, a request or a reply cannot be delayed")
_SEND_ONLY: Final = Not("it says how the send ends, and nothing of the message")

_FIELDS: Final = (
    Field(
        name="body",
        type="bytes",
        meaning="the payload, 1 byte to `max_message_size`",
        property=_NO_PROPERTY,
        plain=True,
        column="binary",
        sink=True,
        read=True,
        option="--message",
        line="the line, or the rest of it behind --key-sep",
        json=True,
        kept=True,
        copied=True,
        exported="body",
    ),
    Field(
        name="topic",
        type="str",
        meaning="where it goes",
        property=_NO_PROPERTY,
        plain=True,
        column="string",
        sink=True,
        read=True,
        option=Not("it is the first argument"),
        line=_FOR_ALL,
        json=True,
        kept=True,
        copied=True,
        exported="origin_topic",
    ),
    Field(
        name="tags",
        type="str",
        meaning="consumers can subscribe to them; empty: none",
        property=names.TAGS,
        reserved=True,
        plain=True,
        column="string",
        sink=True,
        read=True,
        option="--tags",
        line=_FOR_ALL,
        json=True,
        kept=True,
        copied=True,
        exported="tags",
    ),
    Field(
        name="keys",
        type="Sequence[str] | str",
        meaning="the broker indexes each; as one text: with spaces between them",
        property=names.KEYS,
        reserved=True,
        plain=True,
        column="string",
        sink=True,
        read=True,
        option="--key",
        line="--key-sep or --key-field",
        json=True,
        kept=True,
        copied=True,
        exported="keys",
    ),
    Field(
        name="sharding_key",
        type="str | None",
        meaning="messages with equal ones go to one queue, in order",
        property=names.SHARDING_KEY,
        reserved=True,
        plain=True,
        column="string",
        sink=True,
        read=True,
        option=Not("it is the key: --sharding-key-from-key"),
        line="--sharding-key-from-key",
        json=True,
        kept=True,
        copied=True,
        exported=Not("`properties` has it"),
    ),
    Field(
        name="properties",
        type="Mapping[str, str] | None",
        meaning="the user's own; received messages show the system's as well",
        property=Not("each is a property"),
        plain=True,
        column="map<string, string>",
        sink=True,
        read=True,
        option="--property",
        line=_FOR_ALL,
        json=True,
        kept=True,
        copied=True,
        exported="properties",
    ),
    Field(
        name="flag",
        type="int",
        meaning="32 bits for programs that agree on them",
        property=_NO_PROPERTY,
        plain=True,
        column="int32",
        sink=Not("the source has no such column, so that a copied topic would lose it"),
        read=Not("rarely set; `poll()` has it"),
        option=Not("RocketMQ's tools have none"),
        line=_FOR_ALL,
        json=True,
        kept=True,
        copied=True,
        exported=Not("rarely set; `pocketmq message` has it"),
    ),
    Field(
        name="wait_store_msg_ok",
        type="bool",
        meaning="False: the receipt does not wait for disk or slaves",
        property=names.WAIT,
        reserved=True,
        plain=Not("the request says it once for all its messages"),
        column=Not("rows always wait"),
        sink=Not("rows always wait"),
        read=_SEND_ONLY,
        option=Not("exit code 0 says that every message is stored, so it waits"),
        line=_FOR_ALL,
        json=_SEND_ONLY,
        kept=True,
        copied=True,
        exported=_SEND_ONLY,
    ),
    Field(
        name="delay_time_level",
        type="int",
        meaning="1 to 18: delivered after the broker's delay of that level; 0: now",
        property=names.DELAY,
        reserved=True,
        is_delay=True,
        plain=_ALONE,
        column=_ALONE,
        sink=Not("its column is `delay_level`, for `transactional=false`"),
        read=_AFTER_DELAY,
        option="--delay-level",
        line=_FOR_ALL,
        json=True,
        kept=True,
        copied=_NO_DELAY,
        exported=_AFTER_DELAY,
    ),
    Field(
        name="delay_time_ms",
        type="int | None",
        meaning="delivered so many ms from now",
        property=names.TIMER_DELAY_MS,
        is_delay=True,
        plain=_ALONE,
        column=_ALONE,
        sink=Not("`deliver_at` says it"),
        read=_AFTER_DELAY,
        option="--delay",
        line=_FOR_ALL,
        json=Not("shown as `deliver_time_ms`, the time that it meant"),
        kept=Not("kept as `deliver_time_ms`, the time that it meant when it was sent"),
        copied=_NO_DELAY,
        exported=_AFTER_DELAY,
    ),
    Field(
        name="deliver_time_ms",
        type="int | None",
        meaning="delivered at that time, ms since 1970",
        property=names.TIMER_DELIVER_MS,
        is_delay=True,
        plain=_ALONE,
        column=_ALONE,
        sink=Not("its column is `deliver_at`, a timestamp, for `transactional=false`"),
        read=_AFTER_DELAY,
        option="--deliver-at",
        line=_FOR_ALL,
        json=True,
        kept=True,
        copied=_NO_DELAY,
        exported=_AFTER_DELAY,
    ),
)

FIELDS: Final[Mapping[str, Field]] = {field.name: field for field in _FIELDS}
"""The table, in the order of the columns and of the document."""
NO_FIELDS: Final[Mapping[str, str]] = {
    "packed": "the body as a producer has compressed it, for one send",
    "delay_time_sec": "an argument only: `delay_time_ms` in seconds",
}
"""Slots and arguments of ``Message`` that are no fields, with the reason."""
RESERVED: Final = frozenset(field.property for field in _FIELDS if field.reserved and isinstance(field.property, str))
"""Properties that only ``Message``'s own fields set."""
DELAYS: Final = tuple(field.name for field in _FIELDS if field.is_delay)
"""The fields that delay a message."""
COLUMNS: Final[Mapping[str, ColumnType]] = {
    field.name: field.column for field in _FIELDS if not isinstance(field.column, Not)
}
"""The columns of ``send_arrow``, with their types."""
SINK_COLUMNS: Final[Mapping[str, ColumnType]] = {
    name: kind for name, kind in COLUMNS.items() if FIELDS[name].sink is True
}
"""Those that the Spark sink takes."""
TEXT_PROPERTIES: Final[Mapping[str, str]] = {
    field.name: field.property for field in _FIELDS if field.column == "string" and isinstance(field.property, str)
}
"""The columns of ``send_arrow`` that become a property each, with the property's name."""
READ_COLUMNS: Final[Mapping[str, ColumnType]] = {
    name: kind for name, kind in COLUMNS.items() if FIELDS[name].read is True
}
"""The columns of received messages that fields fill, with their types."""
READ_PROPERTIES: Final[Mapping[str, str]] = {
    name: TEXT_PROPERTIES[name] for name in READ_COLUMNS if name in TEXT_PROPERTIES
}
"""Those that show a property each, with the property's name."""
