"""Groups: the log returns the group that the append made."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.errors import CorruptRecord, MessageIllegal
from pocketmq.common.record import decode_properties
from pocketmq.common.record_codec import encode_record
from pocketmq.common.record_columns import patch
from pocketmq.common.record_group import GroupSection, RecordGroup, RecordMeta, cut_keys, record_meta, uniq_key_rows

HOST = bytes([127, 0, 0, 1, 0, 0, 0, 80])
VALUE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x01\x02"), min_size=1, max_size=6)
PAIR = st.one_of(
    st.tuples(st.sampled_from(["TAGS", "KEYS", "CLUSTER", "UNIQ_KEY", "xKEYS", "a"]), VALUE),
    st.just(("UNIQ_KEY", "A" * 32)),
    st.just(("UNIQ_KEY", "é" * 16)),
    st.just(("TAGS", "xKEYS\x01y")),
    st.just(("KEYS", "")),
    st.just(("", "x")),
)


@st.composite
def property_strings(draw: st.DrawFn) -> bytes:
    """Property strings in usual and odd shapes: other orders, pairs twice, without the last separator."""
    usual = [("UNIQ_KEY", draw(st.sampled_from(["0" * 32, "1" * 32, "2" * 56])))] if draw(st.booleans()) else []
    pairs = usual + draw(st.lists(PAIR, max_size=4))
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
    return text[:-1] if text and draw(st.booleans()) else text


@st.composite
def stored(draw: st.DrawFn) -> tuple[bytes, RecordMeta]:
    """One record as a broker stores it, with the scalar path's values."""
    topic = draw(st.sampled_from(["A", "B", "%RETRY%g"]))
    queue_id = draw(st.integers(0, 1))
    sys_flag = draw(st.sampled_from([0, 0, 0, 4, 8, 12]))
    properties = draw(property_strings())
    data = encode_record(
        topic,
        draw(st.binary(max_size=9)),
        queue_id=queue_id,
        properties=properties,
        sys_flag=sys_flag,
        born_host=HOST,
        store_host=HOST,
    )
    return data, record_meta(topic, queue_id, sys_flag, decode_properties(properties))


def columns_of(group: RecordGroup) -> dict[str, Any]:
    """Return all comparable data of a group."""

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.ndarray) else value

    return {name: plain(getattr(group, name)) for name in RecordGroup.__slots__}


@given(st.lists(stored(), min_size=1, max_size=12), st.booleans())
def test_the_log_gives_back_the_columns_of_the_append(made: list[tuple[bytes, RecordMeta]], repeat: bool) -> None:
    """After the store's patch, ``from_log`` returns the values of ``from_records``."""
    made = made * (4 if repeat else 1)
    group = RecordGroup.from_records([data for data, _ in made], [meta for _, meta in made])
    group.queue_offsets = np.arange(len(made), dtype=np.int64)
    group.physical_offsets = group.starts + 77
    group.store_timestamp = 1_700_000_000_000
    patch(group, group.queue_offsets, group.physical_offsets, group.store_timestamp, HOST)
    again = RecordGroup.from_log(group.buffer.copy())
    assert columns_of(again) == columns_of(group)
    assert again.store_times().tolist() == group.store_times().tolist() == [1_700_000_000_000] * len(made)


def test_records_of_other_times_keep_their_own() -> None:
    """A slice of the log may hold several appends."""
    made = [
        encode_record("t", b"", queue_id=0, store_timestamp=time, born_host=HOST, store_host=HOST) for time in (5, 5, 6)
    ]
    group = RecordGroup.from_log(np.frombuffer(bytearray(b"".join(made)), np.uint8))
    assert group.store_times().tolist() == [5, 5, 6]
    assert group.store_timestamp == 6
    assert group.sections == [GroupSection("t", 0, 0, 3)]
    assert group.record(1).tobytes() == made[1]
    assert group.size_bytes == sum(map(len, made))


def test_damage_in_the_log_is_named() -> None:
    """``from_log`` does not skip unreadable records."""
    data = encode_record("t", b"", queue_id=0, born_host=HOST, store_host=HOST)
    with pytest.raises(CorruptRecord, match="record 1"):
        RecordGroup.from_log(np.frombuffer(bytearray(data + bytes(len(data))), np.uint8))
    assert len(RecordGroup.from_log(np.empty(0, np.uint8))) == 0


@given(st.lists(st.lists(stored(), min_size=1, max_size=3), min_size=1, max_size=5), st.data())
def test_selecting_and_joining_keep_each_record_with_its_columns(
    parts: list[list[tuple[bytes, RecordMeta]]], data: st.DataObject
) -> None:
    """A selection is the group of its records alone, and joined groups are the group of all records."""

    def group_of(chosen: list[list[tuple[bytes, RecordMeta]]]) -> RecordGroup:
        flat = [pair for part in chosen for pair in part]
        sections, first = [], 0
        for part in chosen:
            sections.append(GroupSection("x", 0, first, len(part)))
            first += len(part)
        return RecordGroup.from_records([one for one, _ in flat], [meta for _, meta in flat], sections)

    kept = sorted(data.draw(st.sets(st.integers(0, len(parts) - 1), min_size=1)))
    assert columns_of(group_of(parts).select(kept)) == columns_of(group_of([parts[at] for at in kept]))
    joined = RecordGroup.concat([group_of([part]) for part in parts])
    assert columns_of(joined) == columns_of(group_of(parts))


def test_nothing_makes_no_group() -> None:
    """An empty input is a mistake of the caller."""
    data = encode_record("t", b"", queue_id=0, born_host=HOST, store_host=HOST)
    with pytest.raises(MessageIllegal):
        RecordGroup.from_records([], [])
    with pytest.raises(MessageIllegal):
        RecordGroup.from_records([data], [])
    with pytest.raises(MessageIllegal):
        RecordGroup.concat([])
    with pytest.raises(MessageIllegal):
        RecordGroup.from_records([data], [RecordMeta("t", 0)]).select([])


def test_transaction_types() -> None:
    """PREPARED and ROLLBACK enter no queue, ROLLBACK no index."""
    flags = [record_meta("t", 0, kind, {}) for kind in (0, 4, 8, 12)]
    assert [meta.in_queue for meta in flags] == [True, False, True, False]
    assert [meta.indexed for meta in flags] == [True, True, True, False]
    assert record_meta("t", 0, 0, {"TAGS": "TagA"}).tags_code == 2598919


def test_unique_keys_as_rows() -> None:
    """32 ASCII bytes make a row, other keys are kept beside, and a missing key is zeros."""
    rows, others = uniq_key_rows([b"A" * 32, b"", b"short", b"\xc3\xa9" * 16])
    assert rows is not None
    assert rows.tobytes() == b"A" * 32 + bytes(96)
    assert others == {2: b"short", 3: b"\xc3\xa9" * 16}
    assert uniq_key_rows([b"", b"x"]) == (None, {1: b"x"})
    assert uniq_key_rows([]) == (None, {})


@pytest.mark.parametrize(
    ("tail", "result"),
    [
        (b"KEYS\x01k\x02", (b"", b"k")),
        (b"TAGS\x01t\x02KEYS\x01a b\x02C\x01c\x02", (b"TAGS\x01t\x02C\x01c\x02", b"a b")),
        (b"TAGS\x01t\x02", None),
        (b"xKEYS\x01k\x02", None),
        (b"KEYS\x01\x02", None),
        (b"KEYS\x01k", None),
        (b"", None),
    ],
)
def test_keys_are_cut_out(tail: bytes, result: tuple[bytes, bytes] | None) -> None:
    """Only a whole pair that is not empty is cut out."""
    assert cut_keys(tail) == result
