"""Kept messages as rows of a section."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.durable.entry import KeptMessage
from pocketmq.client.durable.rows import KeptRows, RecordBuilders
from pocketmq.common.record_codec import PlainRecordBuilder

text = st.text("abc", max_size=4)
kept_messages = st.builds(
    KeptMessage,
    topic=st.sampled_from(["T", "Orders"]),
    body=st.binary(min_size=1, max_size=30),
    uniq_key=st.sampled_from([b"A" * 32, b"short"]),
    tags=text,
    keys=text,
    properties=st.none()
    | st.dictionaries(st.sampled_from(["x", "y"]), st.text("ab", min_size=1, max_size=4), max_size=2),
    flag=st.integers(0, 5),
    sharding_key=st.none() | st.text("kä", min_size=1, max_size=3),
)


@given(st.lists(kept_messages, min_size=1, max_size=5), st.sampled_from([4, 6]))
def test_records_are_those_of_the_messages(kept: list[KeptMessage], family: int) -> None:
    """A record built from the stored form equals the message's own record byte for byte."""
    rows = KeptRows(kept, RecordBuilders(), 99)
    builder: Any = PlainRecordBuilder("c", family)
    messages = rows.messages()
    expected = [builder.build(message, 2, each.uniq_key, 7) for message, each in zip(messages, kept, strict=True)]
    assert rows.records("c", family, 2, 7) == expected
    assert (len(rows), rows.size_bytes) == (len(kept), 99)
