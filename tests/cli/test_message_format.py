"""Format strings of ``pocketmq consume``."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.cli.message_format import FIELDS, MessageFormat, json_line, unescape
from pocketmq.common.errors import ConfigError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record import BODY_AT


class Received(ReceivedMessage):
    """A message whose record has the test's values."""

    __slots__ = ()

    @property
    def sys_flag(self) -> int:
        return 0

    @property
    def born_timestamp(self) -> int:
        return 1_700_000_000_123

    @property
    def store_timestamp(self) -> int:
        return 1_700_000_000_456

    @property
    def physical_offset(self) -> int:
        return 4096

    @property
    def reconsume_times(self) -> int:
        return 2

    @property
    def flag(self) -> int:
        return 7

    @property
    def born_host(self) -> str:
        return "10.0.0.1:1"

    @property
    def store_host(self) -> str:
        return "10.0.0.2:2"

    @property
    def offset_msg_id(self) -> str:
        return "0A"


def received(body: bytes, properties: str = "TAGS\x01A\x02KEYS\x01k1 k2\x02color\x01red\x02") -> ReceivedMessage:
    head = bytes(BODY_AT - 4) + len(body).to_bytes(4, "big")
    record = head + body + properties.encode()
    return Received(record, "broker-a", "T", 3, 42, BODY_AT, BODY_AT + len(body))


def test_fields_literals_and_escapes() -> None:
    text = r"{topic} {queue_id}:{queue_offset}\t{keys} {tags} {body}\n{{x}} \x41\\"
    assert MessageFormat(text).render(received(b"hi")) == b"T 3:42\tk1 k2 A hi\n{x} A\\"


def test_times_properties_and_encodings() -> None:
    text = "{born_time} {store_timestamp} {property:color}{property:none} {body_hex} {body_base64} {size} {flag}"
    rendered = MessageFormat(text).render(received(b"\xff\x00"))
    assert rendered == b"2023-11-14T22:13:20.123Z 1700000000456 red ff00 /wA= 2 7"


def test_every_documented_field_can_be_rendered() -> None:
    for name in FIELDS:
        assert isinstance(MessageFormat(f"{{{name}}}").render(received(b"x")), bytes)


def test_a_body_is_written_byte_by_byte() -> None:
    body = bytes(range(256))
    assert MessageFormat("{body}").render(received(body)) == body


@pytest.mark.parametrize("text", ["{bdy}", "{topic:x}", "{property}", "{", "}", "{topic", r"\q", "\\", r"\x4"])
def test_what_is_no_format_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError, match="bad format string"):
        MessageFormat(text)


@given(st.text(max_size=40))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    try:
        rendered = MessageFormat(text).render(received(b"x"))
    except ConfigError as error:
        rendered = error.why.encode()
    assert isinstance(rendered, bytes)


@given(st.binary(max_size=40))
def test_unescape_gives_back_any_bytes_spelled_in_hex(data: bytes) -> None:
    assert unescape("".join(f"\\x{byte:02x}" for byte in data)) == data


def test_unescape_leaves_braces_alone() -> None:
    assert unescape(r"{}\t") == b"{}\t"
    with pytest.raises(ConfigError, match="bad separator"):
        unescape("\\")


def test_a_json_line_has_the_body_as_text_or_in_base64() -> None:
    line = json.loads(json_line(received(b"text")))
    assert (line["topic"], line["queue_id"], line["queue_offset"], line["body"]) == ("T", 3, 42, "text")
    assert (line["keys"], line["tags"], line["properties"]["color"]) == (["k1", "k2"], "A", "red")
    assert json.loads(json_line(received(b"\xff")))["body_base64"] == "/w=="
    assert json_line(received(b"a\nb")).count(b"\n") == 1
