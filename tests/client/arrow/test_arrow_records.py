"""Arrow rows become the same records as messages."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.arrow.arrow import ColumnUnknown
from pocketmq.client.arrow.arrow_records import ArrowRows, by_topic, cut, read_rows
from pocketmq.common.errors import MessageIllegal, PocketMQError
from pocketmq.common.message import Message
from pocketmq.common.record_codec import PlainRecordBuilder
from pocketmq.common.topics import TopicIllegal

MAP = pa.map_(pa.string(), pa.string())
TEXT = st.one_of(st.none(), st.sampled_from(["", "a", "tag-ö", "k1 k2"]))
ROW = st.fixed_dictionaries(
    {
        "body": st.binary(min_size=1, max_size=40),
        "tags": TEXT,
        "keys": TEXT,
        "sharding_key": TEXT,
        "flag": st.one_of(st.none(), st.integers(-(1 << 31), (1 << 31) - 1)),
        "properties": st.one_of(st.none(), st.dictionaries(st.sampled_from(["a", "b-ö"]), st.sampled_from(["1", "ü"]))),
    }
)


@given(
    st.lists(ROW, min_size=1, max_size=20),
    st.sets(st.sampled_from(["tags", "keys", "sharding_key", "flag", "properties"])),
    st.sampled_from([4, 6]),
    st.integers(0, 3),
    st.booleans(),
)
def test_records_from_columns_equal_records_from_messages(
    rows: Any, columns: Any, family: Any, skip: Any, one_length: bool
) -> None:
    """Byte for byte what PlainRecordBuilder builds, for any subset of columns, a sliced batch, bodies of one length."""
    if one_length:
        rows = [{**row, "body": row["body"][:1] * 7} for row in rows]
    names = ["body", *sorted(columns)]
    types = {"body": pa.binary(), "flag": pa.int32(), "properties": MAP}
    values = [{**row, "properties": row["properties"] and list(row["properties"].items())} for row in rows]
    data = {name: pa.array([row[name] for row in values], types.get(name, pa.string())) for name in names}
    batch = pa.record_batch(data).slice(min(skip, len(rows) - 1))
    kept = rows[min(skip, len(rows) - 1) :]
    keys = [b"%032d" % number for number in range(len(kept))]
    chosen = np.arange(len(kept))
    part = ArrowRows(read_rows(batch, "Topic", 100), "Topic", chosen, keys)
    builder = PlainRecordBuilder("cluster", family)
    messages = [
        Message(
            "Topic",
            row["body"],
            tags=(row["tags"] or "") if "tags" in columns else "",
            keys=(row["keys"] or "") if "keys" in columns else "",
            sharding_key=(row["sharding_key"] or None) if "sharding_key" in columns else None,
            flag=(row["flag"] or 0) if "flag" in columns else 0,
            properties=(row["properties"] or {}) if "properties" in columns else {},
        )
        for row in kept
    ]
    expected = [builder.build(message, 3, key, 77) for message, key in zip(messages, keys, strict=True)]
    packed = part.records("cluster", family, 3, 77)
    assert packed.data == b"".join(expected)
    assert packed.sizes.tolist() == [len(record) for record in expected]
    assert [builder.build(message, 3, key, 77) for message, key in zip(part.messages(), keys, strict=True)] == expected
    some = chosen[:: 2 if len(chosen) > 2 else 1]
    some_keys = [keys[row] for row in some.tolist()]
    scattered = ArrowRows(read_rows(batch, "Topic", 100), "Topic", some, some_keys).records("cluster", family, 3, 77)
    assert scattered.data == b"".join(expected[row] for row in some.tolist())


def test_rows_are_grouped_by_topic_and_cut_into_parts() -> None:
    """The topic column splits rows; parts keep order and have at least one row."""
    batch = pa.table({"body": [b"x" * 100, b"y", b"z" * 5000], "topic": ["A", "B", "A"]})
    rows = read_rows(batch, None, 10_000)
    assert {topic: chosen.tolist() for topic, chosen in by_topic(rows).items()} == {"A": [0, 2], "B": [1]}
    assert [part.tolist() for part in cut(rows, [0, 1, 2], 700)] == [[0, 1], [2]]
    assert cut(rows, [], 700) == []
    assert by_topic(read_rows(pa.table({"body": pa.array([], pa.binary())}), "T", 10)) == {}


@pytest.mark.parametrize(
    ("data", "topic", "error"),
    [
        ({"body": [b"x"], "extra": [1]}, "T", ColumnUnknown),
        ({"tags": ["a"]}, "T", ColumnUnknown),
        ({"body": [b"x"]}, None, ColumnUnknown),
        ({"body": [b"x"], "topic": ["T"]}, "T", ColumnUnknown),
        ({"body": [1]}, "T", ColumnUnknown),
        ({"body": [b"x"], "flag": ["a"]}, "T", ColumnUnknown),
        ({"body": [b"x"], "flag": [1 << 40]}, "T", ColumnUnknown),
        ({"body": [b"x", None]}, "T", MessageIllegal),
        ({"body": [b"x", b""]}, "T", MessageIllegal),
        ({"body": [b"x" * 101]}, "T", MessageIllegal),
        ({"body": [b"x"], "tags": ["a\x02"]}, "T", MessageIllegal),
        ({"body": [b"x"]}, "bad topic", TopicIllegal),
        ({"body": [b"x"], "topic": [None]}, None, MessageIllegal),
        ({"body": [b"x"], "topic": ["bad topic"]}, None, TopicIllegal),
        ({"body": [b"x"], "properties": ["a"]}, "T", ColumnUnknown),
        ({"body": [b"x"], "properties": pa.array([[("TAGS", "a")]], MAP)}, "T", MessageIllegal),
    ],
)
def test_bad_columns_and_rows_are_refused_before_anything_is_sent(data: Any, topic: str, error: Any) -> None:
    """Each causes its own typed error."""
    with pytest.raises(error):
        read_rows(pa.table(data), topic, 100)


def test_other_objects_are_refused() -> None:
    """A list is not a batch."""
    wrong: Any = [b"x"]
    with pytest.raises(PocketMQError):
        read_rows(wrong, "T", 100)
