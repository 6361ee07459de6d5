"""The property string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.errors import MessageIllegal
from pocketmq.common.record import (
    PROPERTIES_BYTES_MAX,
    check_property,
    decode_properties,
    encode_properties,
    is_plain_forbidden,
)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=12)
names = st.one_of(st.sampled_from(["UNIQ_KEY", "TAGS", "KEYS", "CLUSTER"]), texts)


@given(st.dictionaries(names, texts, max_size=12))
def test_decoded_is_what_was_encoded(properties: dict[str, str]) -> None:
    """Round trip, with and without the last separator."""
    data = encode_properties(properties)
    assert decode_properties(data) == properties
    assert decode_properties(data[:-1]) == properties
    if properties:
        assert data.endswith(b"\x02")


def test_the_usual_names_come_first() -> None:
    """UNIQ_KEY, TAGS, KEYS, CLUSTER, then the user's properties in their order."""
    data = encode_properties({"z": "1", "CLUSTER": "c", "KEYS": "k", "a": "2", "TAGS": "t", "UNIQ_KEY": "u"})
    assert data == b"UNIQ_KEY\x01u\x02TAGS\x01t\x02KEYS\x01k\x02CLUSTER\x01c\x02z\x011\x02a\x012\x02"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"a\x01\x02\x01b\x02nothing\x02c\x01d\x02", {"c": "d"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01b\x02a\x01c\x02", {"a": "c"}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
    ],
)
def test_readers_are_tolerant(data: bytes, expected: dict[str, str]) -> None:
    """Empty names and values are skipped, the second of two equal names wins, bad UTF-8 is replaced."""
    assert decode_properties(data) == expected


@given(st.binary(max_size=200))
def test_any_bytes_decode(data: bytes) -> None:
    """No input raises an error, and no name or value is empty."""
    assert all(name and value for name, value in decode_properties(data).items())


@pytest.mark.parametrize(
    "properties", [{"": "v"}, {"n": ""}, {"n\x01": "v"}, {"n": "v\x02"}, {"n": "v\x01"}, {"n": "\ud800"}]
)
def test_what_would_not_come_back_is_refused(properties: dict[str, str]) -> None:
    """Separators, empty texts and lone surrogates raise an error."""
    with pytest.raises(MessageIllegal):
        encode_properties(properties)


def test_the_limit_counts_bytes() -> None:
    """32,767 bytes pass, one more byte is refused."""
    room = PROPERTIES_BYTES_MAX - len("n\x01\x02")
    assert len(encode_properties({"n": "v" * room})) == PROPERTIES_BYTES_MAX
    with pytest.raises(MessageIllegal):
        encode_properties({"n": "v" * (room - 1) + "é"})


def test_properties_the_broker_acts_on_are_not_plain() -> None:
    """WAIT, DELAY, timers and transactions are refused."""
    assert all(
        map(is_plain_forbidden, ["WAIT", "DELAY", "TIMER_OUT_MS", "TIMER_X", "TRAN_MSG", "REAL_TOPIC", "REAL_QID"])
    )
    assert all(map(is_plain_forbidden, ["TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"]))
    assert not any(map(is_plain_forbidden, ["TAGS", "KEYS", "CLUSTER", "user", "wait"]))
    check_property("n", "v")
