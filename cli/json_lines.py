"""Messages as lines of JSON, as ``pocketmq consume --json`` writes them, for ``pocketmq produce --json-lines``.

Lives here: ``JsonLineParser``. A copied topic has the same bodies, keys, tags, sharding keys, flags, properties and
delays; ids, offsets and times of storage are new.
"""

import re
from typing import Any, Final

import msgspec

from pocketmq.cli.input import InputFailed, shown
from pocketmq.client.message.validation import SYSTEM_PROPERTIES
from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.common.message import Message
from pocketmq.common.record import KEYS
from pocketmq.common.redelivery import forget_delay

LINE_BYTES_MAX: Final = 128 << 20
"""A body of 16 MiB, each byte of it escaped as ``\\u0000``, and its properties."""


class JsonMessage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One line: the fields that a copy takes, then those that a copy has anew."""

    body: str | None = None
    body_base64: bytes | None = None
    keys: list[str] | str = msgspec.field(default_factory=list)
    tags: str = ""
    sharding_key: str | None = None
    flag: int = 0
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    delay_time_level: int = 0
    delay_time_ms: int | None = None
    deliver_time_ms: int | None = None

    topic: Any = None
    broker: Any = None
    queue_id: Any = None
    queue_offset: Any = None
    physical_offset: Any = None
    msg_id: Any = None
    born_timestamp: Any = None
    store_timestamp: Any = None
    reconsume_times: Any = None


class JsonLineParser:
    """Turn a line of JSON into a message to ``topic``. ``with_delay`` False: without its delay."""

    def __init__(self, topic: str, *, with_delay: bool = True) -> None:
        self._topic = topic
        self._with_delay = with_delay
        self._decoder = msgspec.json.Decoder(JsonMessage)

    def parse(self, line: bytes) -> Message:
        """Return the message of a line; raise ``InputFailed`` for another line. Properties of the system, which only
        clients and brokers set, are left out."""
        try:
            found = self._decoder.decode(line)
        except DECODE_ERRORS as error:
            hint = "one JSON object a line, as pocketmq consume --json writes them"
            raise InputFailed("line refused", why=f"{_reason(error)} in {shown(line)}", hint=hint) from error
        if (found.body is None) == (found.body_base64 is None):
            which = "neither body nor body_base64" if found.body is None else "body and body_base64"
            raise InputFailed("line refused", why=f"{which} in {shown(line)}", hint="give one of them")
        properties = {name: value for name, value in found.properties.items() if name not in SYSTEM_PROPERTIES}
        forget_delay(properties)
        delayed = self._with_delay
        return Message(
            self._topic,
            found.body_base64 if found.body is None else found.body.encode(),  # type: ignore[arg-type]
            keys=_keys(found),
            tags=found.tags,
            sharding_key=found.sharding_key,
            flag=found.flag,
            properties=properties or None,
            delay_time_level=found.delay_time_level if delayed else 0,
            delay_time_ms=found.delay_time_ms if delayed else None,
            deliver_time_ms=found.deliver_time_ms if delayed else None,
        )


def _keys(found: JsonMessage) -> list[str] | str:
    """Return the keys; as the text that they were, where the line has it: white space of any kind separates keys."""
    text = found.properties.get(KEYS)
    return text if text is not None and text.split() == found.keys else found.keys


def _reason(error: Exception) -> str:
    """Return why a line is refused, in the words of the field rather than of the decoder."""
    match = re.search(r"unknown field `(.+?)`", str(error))
    return f"unknown field {match[1]!r}" if match else str(error)
