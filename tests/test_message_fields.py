"""Each field of a message arrives where its row says: records, requests, columns, retry store, sink, command line."""

import inspect
import re
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, DataType, IntegerType, MapType, StringType, StructField, StructType

from pocketmq.cli.input import LineParser
from pocketmq.cli.json_lines import JsonMessage
from pocketmq.cli.message_format import json_line
from pocketmq.cli.messages import produce
from pocketmq.cli.messages.dlq_export import _row as exported_row
from pocketmq.cli.messages.dlq_export import open_writer
from pocketmq.client.arrow import arrow
from pocketmq.client.arrow.arrow_records import read_rows
from pocketmq.client.arrow.row_records import MessageRows
from pocketmq.client.durable.entry import KeptMessage, decode_kept, encode_kept
from pocketmq.client.durable.retry import _kept_message
from pocketmq.client.durable.rows import KeptRows, RecordBuilders
from pocketmq.client.message.request_message import RequestMessage
from pocketmq.client.message.transaction_message import HalfMessage
from pocketmq.client.message.validation import MAX_MESSAGE_SIZE, SYSTEM_PROPERTIES, check_message
from pocketmq.common.errors import MessageIllegal, PocketMQError
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.message_fields import COLUMNS, FIELDS, READ_COLUMNS, SINK_COLUMNS, Field, Not
from pocketmq.common.record import RETRY_TOPIC
from pocketmq.common.record_codec import PlainRecordBuilder, received_message
from pocketmq.pipeline.errors import SchemaIllegal
from pocketmq.pipeline.jobs.replay.ordering import SENT
from pocketmq.pipeline.jobs.replay.sending import columns_of
from pocketmq.pipeline.jobs.replay.sending import messages_of as replayed
from pocketmq.pipeline.sink.sink_plan import check_columns
from pocketmq.pipeline.sink.sink_task import messages_of
from pocketmq.pipeline.source.columns import TYPES
from tests.cli.in_process import run_in_process

ROOT: Final = Path(__file__).resolve().parent.parent
ROWS = pytest.mark.parametrize("row", FIELDS.values(), ids=lambda row: row.name)
UNIQ_KEY: Final = b"0" * 32
BORN_MS: Final = 1_700_000_000_000

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=8)
VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "body": st.binary(min_size=1, max_size=40),
    "topic": st.sampled_from(["Orders", "T", "t" * 127]),
    "tags": TEXTS,
    "keys": TEXTS | st.lists(TEXTS, min_size=1, max_size=3),
    "sharding_key": TEXTS,
    "properties": st.dictionaries(TEXTS.map(lambda name: "p" + name), TEXTS, min_size=1, max_size=3),
    "flag": st.integers(-(1 << 31), (1 << 31) - 1).filter(bool),
    "wait_store_msg_ok": st.just(False),
    "delay_time_level": st.integers(1, 18),
    "delay_time_ms": st.integers(0, 1 << 40),
    "deliver_time_ms": st.integers(0, 1 << 40),
}
"""Values of each field, none of which is the one that an argument has by default."""
UNDELAYED: Final = {name: VALUES.get(name, st.nothing()) for name, row in FIELDS.items() if not row.is_delay}
PLAIN = st.fixed_dictionaries(
    {"topic": VALUES["topic"], "body": VALUES["body"]},
    optional={name: values for name, values in UNDELAYED.items() if name not in ("topic", "body")},
)
"""The fields of a message without a delay, each there or not: a record with few of them is built another way."""
ARROW_TYPES: Final[dict[str, Any]] = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int32": pa.int32(),
    "map<string, string>": pa.map_(pa.string(), pa.string()),
}
SPARK_TYPES: Final[dict[str, DataType]] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int32": IntegerType(),
    "map<string, string>": MapType(StringType(), StringType()),
}


def made(fields: dict[str, Any]) -> Message:
    return Message(**fields)


def canonical(value: Any) -> Any:
    """Return a field's value in the form in which it comes back: several keys are one text, no properties are None."""
    return " ".join(value) if isinstance(value, list | tuple) else None if value == {} else value


def as_property(value: Any) -> str:
    """Return RocketMQ's property of a field."""
    return str(value).lower() if isinstance(value, bool) else str(canonical(value))


def arrived(row: Field, message: ReceivedMessage) -> Any:
    """Return the field as a consumer receives it."""
    if isinstance(row.property, str):
        return message.properties.get(row.property)
    if row.name == "properties":
        return {name: value for name, value in message.properties.items() if name not in SYSTEM_PROPERTIES}
    return getattr(message, row.name)


def plain_record(message: Message) -> bytes:
    return PlainRecordBuilder("c").build(message, 3, UNIQ_KEY, BORN_MS)


def batch_of(messages: list[Message], columns: list[str]) -> pa.RecordBatch:
    """Return the messages as rows of these columns."""

    def cell(message: Message, name: str) -> Any:
        value = canonical(getattr(message, name))
        return list(value.items()) if isinstance(value, dict) else value

    kinds = [ARROW_TYPES[COLUMNS[name]] for name in columns]
    arrays = [
        pa.array([cell(each, name) for each in messages], kind) for name, kind in zip(columns, kinds, strict=True)
    ]
    return pa.record_batch(arrays, names=columns)


def same(found: Message, sent: Message, names: set[str]) -> None:
    for name in names:
        assert canonical(getattr(found, name)) == canonical(getattr(sent, name)), name


def test_each_field_has_values_here() -> None:
    """Otherwise the tests below would not cover it."""
    assert VALUES.keys() == FIELDS.keys()


@ROWS
@given(data=st.data())
def test_a_producer_checks_each_field(row: Field, data: st.DataObject) -> None:
    """Its values pass; another type is refused with the field's name. The switch takes any true or false value."""
    message = Message("T", b"x")
    setattr(message, row.name, data.draw(VALUES[row.name]))
    assert check_message(message, MAX_MESSAGE_SIZE) == (not row.is_delay)
    if row.name == "wait_store_msg_ok":
        return
    setattr(message, row.name, object())
    with pytest.raises(PocketMQError, match=row.name):
        check_message(message, MAX_MESSAGE_SIZE)


@ROWS
def test_a_property_of_a_field_is_the_field_s_alone(row: Field) -> None:
    """A user who sets it as a property is refused, or sets the field itself, as the row says."""
    if not isinstance(row.property, str):
        return
    message = Message("T", b"x", properties={row.property: "1"})
    if row.reserved:
        with pytest.raises(MessageIllegal, match="used by the system"):
            check_message(message, MAX_MESSAGE_SIZE)
    else:
        assert not check_message(message, MAX_MESSAGE_SIZE)  # otherwise it is no plain message
    if row.plain is True:
        setattr(message, row.name, "a")
        with pytest.raises(MessageIllegal, match="set by PocketMQ"):
            plain_record(message)


# ---- records and requests


@given(PLAIN)
def test_a_plain_record_has_each_field_that_its_row_says(fields: dict[str, Any]) -> None:
    """A consumer receives each of them, and none of the others."""
    message = made(fields)
    received = received_message(plain_record(message), "b")
    for name, value in fields.items():
        row = FIELDS[name]
        if row.plain is True:
            assert arrived(row, received) == canonical(value), name
    for name, row in FIELDS.items():
        if name not in fields or row.plain is not True:
            assert row.property not in received.properties, name


@ROWS
@given(data=st.data())
def test_a_delay_is_in_no_plain_record(row: Field, data: st.DataObject) -> None:
    if row.is_delay:
        with pytest.raises(MessageIllegal, match="delayed"):
            plain_record(Message("T", b"x", **{row.name: data.draw(VALUES[row.name])}))


@ROWS
@given(data=st.data())
def test_a_request_of_rocketmq_s_has_its_property(row: Field, data: st.DataObject) -> None:
    """The request carries the property only where the field is set, beside the user's own properties."""
    if not isinstance(row.property, str):
        return
    value = data.draw(VALUES[row.name])
    sent = Message("T", b"x", properties={"colour": "red"}, **{row.name: value}).property_map()
    assert sent[row.property] == as_property(value)
    assert sent["colour"] == "red"
    unset = Message("T", b"x").property_map()
    assert unset.get(row.property) == ("true" if row.name == "wait_store_msg_ok" else None)


# ---- columns


@given(PLAIN)
def test_columns_of_a_batch_are_the_fields_of_its_rows(fields: dict[str, Any]) -> None:
    """PocketMQ receives them as records, byte by byte, and RocketMQ as messages."""
    message = made(fields)
    rows = read_rows(batch_of([message], list(COLUMNS)), None, MAX_MESSAGE_SIZE)
    (found,) = rows.messages(message.topic, np.array([0]))
    same(found, message, set(COLUMNS))
    ids = np.full((1, 32), ord("0"), np.uint8)
    _, record = rows.records(message.topic, "c", 4, 3, BORN_MS, slice(0, 1), ids)
    assert bytes(record) == plain_record(message)


@ROWS
@given(data=st.data())
def test_each_column_alone(row: Field, data: st.DataObject) -> None:
    """A column with a row works without the others; an unknown one is refused."""
    value = data.draw(VALUES[row.name])
    message = made({"topic": "T", "body": b"x", row.name: value})
    names = list(dict.fromkeys(["body", "topic", row.name]))
    if isinstance(row.column, Not):
        batch = pa.record_batch({"body": [b"x"], "topic": ["T"], row.name: [value]})
        with pytest.raises(arrow.ColumnUnknown):
            MessageRows(batch, None, MAX_MESSAGE_SIZE)
        return
    rows = MessageRows(batch_of([message], names), None, MAX_MESSAGE_SIZE)
    ids = np.full((1, 32), ord("0"), np.uint8)
    _, record = rows.records(message.topic, "c", 4, 3, BORN_MS, slice(0, 1), ids)
    assert bytes(record) == plain_record(message)


@given(PLAIN)
def test_columns_of_received_messages_show_what_the_row_says(fields: dict[str, Any]) -> None:
    message = made(fields)
    record = plain_record(message)
    columns = [name for name in (*arrow.COLUMNS, *arrow.OPTIONAL_COLUMNS) if name in FIELDS]
    assert set(columns) == set(READ_COLUMNS)
    batch = arrow.records_to_arrow(record, None, "b", columns)
    (found,) = batch.to_pylist()
    for name in columns:
        assert batch.schema.field(name).type == ARROW_TYPES[READ_COLUMNS[name]] == arrow.schema([name]).field(0).type
        if name == "properties":
            assert found[name] == list(received_message(record, "b").properties.items())
        else:
            assert found[name] == (canonical(getattr(message, name)) or ""), name


@ROWS
def test_the_spark_source_has_the_columns_of_the_rows(row: Field) -> None:
    assert TYPES.get(row.name) == (SPARK_TYPES[READ_COLUMNS[row.name]] if row.read is True else None)


# ---- Spark sink and jobs


@ROWS
def test_the_sink_takes_the_columns_of_the_rows(row: Field) -> None:
    kind = StringType() if isinstance(row.column, Not) else SPARK_TYPES[row.column]
    others = [StructField(name, StringType()) for name in ("body", "topic") if name != row.name]
    schema = StructType([*others, StructField(row.name, kind)])
    if row.sink is True:
        check_columns(schema, None)
    else:
        with pytest.raises(SchemaIllegal, match=row.name):
            check_columns(schema, None)


@given(st.lists(PLAIN, min_size=1, max_size=5))
def test_rows_of_the_sink_are_messages_in_their_order(rows: list[dict[str, Any]]) -> None:
    """For a broker that takes no columns; the topics may alternate."""
    messages = [made(fields) for fields in rows]
    found = messages_of(MessageRows(batch_of(messages, list(SINK_COLUMNS)), None, MAX_MESSAGE_SIZE))
    for one, other in zip(found, messages, strict=True):
        same(one, other, set(SINK_COLUMNS))


@given(PLAIN)
def test_a_replay_sends_what_the_sink_would(fields: dict[str, Any]) -> None:
    """A replay sends each column of the sink but the topic, which differs."""
    message = made(fields)
    assert set(SENT) == SINK_COLUMNS.keys() - {"topic"}
    batch = batch_of([message], list(SENT))
    (found,) = replayed(batch, "T", 0, 1)
    assert found is not None
    same(found, message, set(SENT))
    (in_columns,) = MessageRows(columns_of(batch), "T", MAX_MESSAGE_SIZE).messages("T", np.array([0]))
    same(in_columns, message, set(SENT))


# ---- the retry store


OF_THE_STORE: Final = {"uniq_key", "broker", "queue_id", "order_key", "maybe_stored", "why", "plain"}


def test_the_retry_store_keeps_the_fields_of_the_rows_and_no_others() -> None:
    kept = {name for name, row in FIELDS.items() if row.kept is True}
    assert set(KeptMessage.__struct_fields__) == kept | OF_THE_STORE


@given(PLAIN, st.sampled_from([None, *(name for name, row in FIELDS.items() if row.is_delay)]), st.data())
def test_a_message_comes_out_of_the_retry_store_as_it_went_in(
    fields: dict[str, Any], delay: str | None, data: st.DataObject
) -> None:
    """But a delay has become the time that it stands for."""
    if delay is not None:
        fields = {**fields, delay: data.draw(VALUES[delay])}
    message = made(fields)
    error = PocketMQError("not sent")
    kept = decode_kept(encode_kept(_kept_message(message, delay is None, UNIQ_KEY, None, "", error, BORN_MS)))
    found = kept.message()
    same(found, message, {name for name, row in FIELDS.items() if row.kept is True} - {"deliver_time_ms"})
    if message.delay_time_ms is not None:
        assert found.deliver_time_ms == BORN_MS + message.delay_time_ms
    else:
        assert found.deliver_time_ms == message.deliver_time_ms
    assert all(getattr(found, name) is None for name, row in FIELDS.items() if row.kept is not True)
    assert kept.is_delayed == (delay is not None)
    if delay is None:
        (record,) = KeptRows([kept], RecordBuilders(), 0).records("c", 4, 3, BORN_MS)
        assert record == plain_record(message)


# ---- copies


@ROWS
@given(data=st.data())
def test_a_half_message_and_a_request_have_what_the_row_says(row: Field, data: st.DataObject) -> None:
    message = made({"topic": "T", "body": b"x", row.name: data.draw(VALUES[row.name])})

    def copies() -> list[Message]:
        return [HalfMessage(message, "group"), RequestMessage(message, message.topic, {})]

    if row.copied is True:
        for copy in copies():
            same(copy, message, {row.name})
    else:
        with pytest.raises(MessageIllegal, match="delayed"):
            HalfMessage(message, "group")
        with pytest.raises(MessageIllegal, match="delayed"):
            RequestMessage(message, message.topic, {})


# ---- the command line


def options_of_produce() -> set[Any]:
    found: set[Any] = set()
    for parameter in inspect.signature(produce.produce).parameters.values():
        for each in getattr(parameter.annotation, "__metadata__", ()):
            found |= {getattr(each, "default", None), *(getattr(each, "param_decls", None) or ())}
    return found


@ROWS
def test_produce_has_the_option_of_the_row(row: Field) -> None:
    """The options that the row names for parts of a line exist as well."""
    options = options_of_produce()
    named = [*re.findall(r"--[\w-]+", row.line if isinstance(row.line, str) else "")]
    if isinstance(row.option, str):
        named.append(row.option)
    assert set(named) <= options


GIVEN: Final = {
    "tags": ("A", "A"),
    "keys": ("k1", "k1"),
    "properties": ("colour=red", {"colour": "red"}),
    "delay_time_level": ("3", 3),
    "delay_time_ms": ("15m", 900_000),
    "deliver_time_ms": ("1700000000000", 1_700_000_000_000),
}
"""The value behind an option, and the message's value."""


@ROWS
def test_produce_puts_its_options_into_the_message(row: Field, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each option sets its field; ``--message`` or a line holds the body."""
    if not isinstance(row.option, str):
        assert row.name not in GIVEN
        return
    if row.option == "--message":
        assert LineParser("T").parse(b"line").body == b"line"
        return
    parsers: list[LineParser] = []

    class Kept(LineParser):
        def __init__(self, *arguments: Any, **fields: Any) -> None:
            super().__init__(*arguments, **fields)
            parsers.append(self)

    monkeypatch.setattr("pocketmq.cli.input.LineParser", Kept)
    monkeypatch.setattr(produce, "run_async", lambda work: work.close())
    text, value = GIVEN[row.name]
    done = run_in_process(["produce", "T", row.option, text], b"", {}, tmp_path)
    assert done.returncode == 0, done.stderr
    (parser,) = parsers
    assert getattr(parser.parse(b"line"), row.name) == value


def test_lines_of_json_are_read_with_every_field_that_they_are_written_with() -> None:
    """The topic is the command's argument; what a copy has anew is passed over."""
    written = {name for name, row in FIELDS.items() if row.json is True}
    assert written <= set(JsonMessage.__struct_fields__)
    message = received_message(plain_record(Message("T", b"x")), "b")
    assert set(msgspec.json.decode(json_line(message))) <= set(JsonMessage.__struct_fields__)


def test_produce_takes_the_key_from_a_line() -> None:
    """The sharding key follows from it."""
    message = LineParser("T", key_separator=b":", sharding=True).parse(b"k:line")
    assert (message.keys, message.sharding_key, message.body) == ("k", "k", b"line")
    assert {name for name, row in FIELDS.items() if isinstance(row.line, str)} == {"body", "keys", "sharding_key"}


@given(PLAIN)
def test_a_line_of_json_and_an_export_have_what_the_row_says(fields: dict[str, Any]) -> None:
    """``consume --json`` and ``dlq export``: a field without its own place there is a property, or is left out."""
    dead = {**fields, "properties": {**fields.get("properties", {}), RETRY_TOPIC: fields["topic"]}}
    received = received_message(plain_record(made(dead)), "b")
    line = msgspec.json.decode(json_line(received))
    exported = exported_row(received)
    for name, value in fields.items():
        row, wanted = FIELDS[name], canonical(value)
        if row.json is not True:
            assert name not in line
        elif name == "keys":
            assert " ".join(line[name]) == wanted
        elif name == "properties":
            assert line[name] == received.properties
        elif name == "body":
            assert ("body" in line and line["body"].encode() == wanted) or "body_base64" in line
        else:
            assert line[name] == wanted
        if isinstance(row.exported, Not):
            assert name not in exported
        else:
            found = exported[row.exported]
            assert found == (list(received.properties.items()) if name == "properties" else wanted)


def test_the_columns_of_an_export_are_those_of_the_rows(tmp_path: Path) -> None:
    """The file has the fields of Python's row: Arrow silently drops a key that the schema lacks."""
    message = received_message(plain_record(Message("T", b"x")), "b")
    with open_writer("parquet", str(tmp_path / "dead.parquet")) as write:
        write(message)
    names = set(pq.read_schema(tmp_path / "dead.parquet").names)
    assert names == exported_row(message).keys()
    assert {row.exported for row in FIELDS.values() if isinstance(row.exported, str)} <= names


# ---- the document


@ROWS
def test_the_document_has_the_row(row: Field) -> None:
    page = (ROOT / "docs" / "sending.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{row.name}` \| `[^`]+` \|.*\|$", page, re.MULTILINE)
