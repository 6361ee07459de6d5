"""The table of message fields is complete, and does not contradict itself."""

import inspect

import pytest

from pocketmq.common.message import Message
from pocketmq.common.message_fields import DELAYS, FIELDS, NO_FIELDS, READ_COLUMNS, SINK_COLUMNS, Field, Not
from pocketmq.common.record import is_plain_forbidden

ROWS = pytest.mark.parametrize("row", FIELDS.values(), ids=lambda row: row.name)
ARGUMENTS = inspect.signature(Message).parameters


def test_every_field_of_a_message_has_its_row() -> None:
    """Or it is listed, with the reason, among the attributes that are no fields."""
    slots = set(Message.__slots__)
    assert FIELDS.keys() <= slots
    assert slots | ARGUMENTS.keys() == FIELDS.keys() | NO_FIELDS.keys()
    assert FIELDS.keys().isdisjoint(NO_FIELDS)
    assert all(FIELDS[name].name == name for name in FIELDS)
    assert all(NO_FIELDS.values())


@ROWS
def test_the_type_is_that_of_the_argument(row: Field) -> None:
    written = inspect.formatannotation(ARGUMENTS[row.name].annotation)
    assert written.replace("collections.abc.", "") == row.type


@ROWS
def test_a_row_says_what_it_means_and_why_a_reader_leaves_it_out(row: Field) -> None:
    assert row.meaning
    for reader in row.__struct_fields__:
        decision = getattr(row, reader)
        if isinstance(decision, Not):
            assert decision.why, reader
            assert not decision.why.endswith("."), reader


@pytest.mark.parametrize("reader", sorted({*Field.__struct_fields__} - {"reserved", "is_delay"}))
def test_a_row_without_a_decision_does_not_load(reader: str) -> None:
    """Without a column, a decision on the retry store, …, the import raises ``TypeError``."""
    row = FIELDS["tags"]
    decided = {name: getattr(row, name) for name in row.__struct_fields__}
    assert Field(**decided) == row
    del decided[reader]
    with pytest.raises(TypeError, match=reader):
        Field(**decided)


@ROWS
def test_a_row_does_not_contradict_itself(row: Field) -> None:
    """A column of the sink is one of ``send_arrow``; a delay is in no plain record and in no column."""
    if row.sink is True or row.read is True:
        assert not isinstance(row.column, Not)
    if not isinstance(row.column, Not):
        assert row.plain is True
    if row.is_delay:
        assert isinstance(row.plain, Not)
        assert isinstance(row.property, str)
    if isinstance(row.property, str):
        assert is_plain_forbidden(row.property) == (row.plain is not True)
    assert not row.reserved or isinstance(row.property, str)


def test_the_lists_that_readers_take() -> None:
    """The lists hold the names that a user sees."""
    assert {"body", "topic", "tags", "keys", "sharding_key", "properties"} == SINK_COLUMNS.keys()
    assert {"body", "topic", "tags", "keys", "sharding_key", "properties"} == READ_COLUMNS.keys()
    assert DELAYS == ("delay_time_level", "delay_time_ms", "deliver_time_ms")
