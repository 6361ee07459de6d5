r"""How ``pocketmq consume`` writes a message: a format string, or JSON lines.

Lives here: the fields and escapes of a format string, compiled once; ``json_line``.

    {topic} {broker} {queue_id} {queue_offset} {physical_offset} {msg_id} {offset_msg_id} {keys} {tags} {body}
    {body_hex} {body_base64} {size} {flag} {sys_flag} {reconsume_times} {born_timestamp} {born_time} {born_host}
    {store_timestamp} {store_time} {store_host} {sharding_key} {properties} {property:NAME}

``*_timestamp`` are ms since 1970, ``*_time`` the same as text in UTC. ``{body}`` is written unchanged, byte by byte.
Escapes: ``\n \t \r \0 \\ \xHH``; ``{{`` and ``}}`` stand for braces.
"""

import base64
import re
from collections.abc import Callable
from typing import Final

import msgspec

from pocketmq.cli.output import time_text
from pocketmq.common.errors import ConfigError
from pocketmq.common.message import ReceivedMessage

Part = Callable[[ReceivedMessage], bytes]

_TOKEN = re.compile(r"\{\{|\}\}|\{([a-z_][a-z_0-9]*)(?::([^{}]+))?\}|\\x([0-9a-fA-F]{2})|\\(.)|[{}\\]", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def _text(read: Callable[[ReceivedMessage], object]) -> Part:
    return lambda message: str(read(message)).encode("utf-8", "replace")


FIELDS: Final[dict[str, Part]] = {
    "topic": _text(lambda m: m.topic),
    "broker": _text(lambda m: m.broker_name),
    "queue_id": _text(lambda m: m.queue_id),
    "queue_offset": _text(lambda m: m.queue_offset),
    "physical_offset": _text(lambda m: m.physical_offset),
    "msg_id": _text(lambda m: m.msg_id),
    "offset_msg_id": _text(lambda m: m.offset_msg_id),
    "keys": _text(lambda m: " ".join(m.keys)),
    "tags": _text(lambda m: m.tags),
    "body": lambda m: bytes(m.body),
    "body_hex": lambda m: m.body.hex().encode(),
    "body_base64": lambda m: base64.b64encode(m.body),
    "size": _text(lambda m: len(m.body)),
    "flag": _text(lambda m: m.flag),
    "sys_flag": _text(lambda m: m.sys_flag),
    "reconsume_times": _text(lambda m: m.reconsume_times),
    "born_timestamp": _text(lambda m: m.born_timestamp),
    "born_time": _text(lambda m: time_text(m.born_timestamp)),
    "born_host": _text(lambda m: m.born_host),
    "store_timestamp": _text(lambda m: m.store_timestamp),
    "store_time": _text(lambda m: time_text(m.store_timestamp)),
    "store_host": _text(lambda m: m.store_host),
    "sharding_key": _text(lambda m: m.sharding_key or ""),
    "properties": lambda m: msgspec.json.encode(m.properties),
}
"""Every field of a format string except ``{property:NAME}``."""


class MessageFormat:
    """A compiled format string. Raises ``ConfigError`` for an unknown field, a lone brace or an unknown escape."""

    __slots__ = ("_parts",)

    def __init__(self, text: str) -> None:
        parts: list[Part] = []
        literal = b""
        at = 0
        for match in _TOKEN.finditer(text):
            literal += text[at : match.start()].encode()
            at = match.end()
            token, field, argument, code, escape = match[0], match[1], match[2], match[3], match[4]
            if token in ("{{", "}}"):
                literal += token[:1].encode()
            elif field is not None:
                parts += [_literal(literal), _field(field, argument)]
                literal = b""
            elif code is not None:
                literal += bytes([int(code, 16)])
            elif escape is not None and escape in _ESCAPES:
                literal += _ESCAPES[escape]
            else:
                hint = r"write {{ or }} for a brace, \\ for a backslash"
                raise ConfigError("bad format string", why=f"{token!r} at position {match.start()}", hint=hint)
        parts.append(_literal(literal + text[at:].encode()))
        self._parts = parts

    def render(self, message: ReceivedMessage) -> bytes:
        """Return the formatted message, without a separator."""
        return b"".join([part(message) for part in self._parts])


def unescape(text: str) -> bytes:
    r"""Return ``text`` with its escapes (``\n``, ``\t``, ``\0``, ``\xHH``) replaced; braces stand for themselves."""
    try:
        return MessageFormat(text.replace("{", "{{").replace("}", "}}")).render(_NO_MESSAGE)
    except ConfigError as error:
        raise ConfigError("bad separator", why=error.why, hint=error.hint) from error


def json_line(message: ReceivedMessage) -> bytes:
    """Return one line of JSON; a body that is not UTF-8 is in ``body_base64`` instead of ``body``.

    ``cli.json_lines`` reads it back.
    """
    fields: dict[str, object] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "msg_id": message.msg_id,
        "keys": message.keys,
        "tags": message.tags,
        "sharding_key": message.sharding_key,
        "flag": message.flag,
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "reconsume_times": message.reconsume_times,
        "properties": message.properties,
    }
    if message.delay_time_level:
        fields["delay_time_level"] = message.delay_time_level
    if message.deliver_time_ms is not None:
        fields["deliver_time_ms"] = message.deliver_time_ms
    try:
        fields["body"] = bytes(message.body).decode()
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(message.body).decode()
    return msgspec.json.encode(fields) + b"\n"


def _literal(value: bytes) -> Part:
    return lambda _message: value


def _field(name: str, argument: str | None) -> Part:
    if name == "property" and argument:
        wanted = argument
        return lambda message: message.properties.get(wanted, "").encode("utf-8", "replace")
    if name not in FIELDS or argument is not None:
        shown = f"{{{name}:{argument}}}" if argument else f"{{{name}}}"
        fields = ", ".join([*FIELDS, "property:NAME"])
        raise ConfigError("bad format string", why=f"no field {shown}", hint=f"the fields are {fields}")
    return FIELDS[name]


_NO_MESSAGE: Final = ReceivedMessage(b"", "", "", 0, 0, 0, 0)
