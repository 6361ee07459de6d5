"""Properties read by columns equal those of the scalar parser, whatever bytes a peer sends."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.arrow import arrow_properties
from pocketmq.client.arrow.arrow_properties import ALIKE_MIN, PropertyTable
from pocketmq.common.record import decode_properties
from pocketmq.common.record_columns import RecordColumns

NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "CLUSTER", "a", "bb", "ÄÖ", "x" * 40])
PAIRS = st.lists(st.tuples(NAMES, st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=20)))
WRITTEN = st.builds(
    lambda pairs, closed: (
        "\x02".join(f"{n}\x01{v}" for n, v in pairs) + ("\x02" if closed and pairs else "")
    ).encode(),
    PAIRS,
    st.booleans(),
)
ANY = st.lists(st.sampled_from([b"\x01", b"\x02", b"TAGS", b"KEYS", b"v", b"\xff", b"\x00", b""]), max_size=12)
STRINGS = st.lists(WRITTEN | ANY.map(b"".join), max_size=20)


def table(strings: list[bytes], before: bytes = b"", behind: bytes = b"") -> tuple[PropertyTable, np.ndarray]:
    """Return the table of property strings that are adjacent in a buffer, between other bytes."""
    buffer = np.frombuffer(before + b"".join(strings) + behind, np.uint8)
    lengths = np.array([len(each) for each in strings], np.int64)
    records = RecordColumns(buffer, np.zeros(len(strings), np.int64), lengths)
    records.property_lengths = lengths
    records.property_starts = len(before) + np.cumsum(lengths) - lengths
    return PropertyTable(buffer, records), buffer


def found(properties: PropertyTable, buffer: np.ndarray, name: str, count: int) -> list[str]:
    """Return the value of a name in each row, empty where it is missing."""
    starts, lengths = properties.values(name.encode())
    values = [buffer[at : at + n].tobytes().decode("utf-8", "replace") for at, n in zip(starts, lengths, strict=True)]
    assert len(values) == count
    return [
        properties.others[row].get(name, "") if row in properties.others else value for row, value in enumerate(values)
    ]


@given(STRINGS, st.binary(max_size=4), st.binary(max_size=40))
def test_values_are_those_of_the_scalar_parser(strings: list[bytes], before: bytes, behind: bytes) -> None:
    """Any order of names, any broken form, at the end of the buffer or not."""
    properties, buffer = table(strings, before, behind)
    wanted = [decode_properties(each) for each in strings]
    for name in ("TAGS", "KEYS", "UNIQ_KEY", "a", "missing"):
        assert found(properties, buffer, name, len(strings)) == [each.get(name, "") for each in wanted]


@given(STRINGS)
def test_the_map_is_that_of_the_scalar_parser(strings: list[bytes]) -> None:
    """Or None where columns cannot decide: a name twice in a row, or bytes that are no UTF-8."""
    properties, _ = table(strings)
    made = properties.to_map(pa)
    if made is not None:
        made.validate(full=True)
        assert [dict(row) for row in made.to_pylist()] == [decode_properties(each) for each in strings]
        assert all(len(dict(row)) == len(row) for row in made.to_pylist())


def test_well_formed_strings_need_no_scalar_parser() -> None:
    """With and without the last separator, in RocketMQ's order and in ours."""
    strings = [b"UNIQ_KEY\x01u\x02TAGS\x01t\x02", b"KEYS\x01k 1\x02WAIT\x01true\x02TAGS\x01t", b"", b"a\x01b"] * 3
    properties, _ = table(strings)
    assert properties.others == {}
    assert properties.to_map(pa) is not None


def test_the_matrix_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long strings are parsed one by one."""
    monkeypatch.setattr(arrow_properties, "MATRIX_BYTES_MAX", 60)
    properties, buffer = table([b"TAGS\x01" + b"t" * 40, b"TAGS\x01short"])
    assert list(properties.others) == [0]
    assert found(properties, buffer, "TAGS", 2) == ["t" * 40, "short"]


@given(
    st.lists(st.tuples(st.sampled_from(["TAGS", "KEYS", "a", "ab"]), st.integers(1, 5)), min_size=1, max_size=4),
    st.integers(ALIKE_MIN, ALIKE_MIN + 8),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000), st.sampled_from(b"\x01\x02a\x00")), max_size=2),
    st.randoms(use_true_random=False),
    st.binary(max_size=40),
)
def test_strings_that_are_alike_give_what_the_scalar_parser_gives(
    fields: list[tuple[str, int]], count: int, closed: bool, changes: list[Any], rng: random.Random, behind: bytes
) -> None:
    """Also where a byte of one row is changed: then some row may have other pairs than the first one."""
    rows = []
    for _ in range(count):
        values = [bytes(rng.choice(b"abz\x00\xff\x03") for _ in range(width)) for _, width in fields]
        pairs = [name.encode() + b"\x01" + value for (name, _), value in zip(fields, values, strict=True)]
        rows.append(bytearray(b"\x02".join(pairs) + (b"\x02" if closed else b"")))
    for row, at, byte in changes:
        rows[row % count][at % len(rows[0])] = byte
    strings = [bytes(row) for row in rows]
    properties, buffer = table(strings, b"head", behind)
    wanted = [decode_properties(each) for each in strings]
    for name in ("TAGS", "KEYS", "UNIQ_KEY", "a", "ab", "missing"):
        texts = [each.get(name, "") for each in wanted]
        assert found(properties, buffer, name, count) == texts
        fixed = properties.fixed(name.encode())
        if fixed is not None:
            assert [row.tobytes().decode("utf-8", "replace") for row in fixed] == texts
    made = properties.to_map(pa)
    if made is not None:
        assert [dict(row) for row in made.to_pylist()] == wanted


def test_strings_of_one_producer_are_alike() -> None:
    """Then a value is a column of the matrix; a name that no string has is a column of width 0."""
    strings = [b"UNIQ_KEY\x01%032d\x02CLUSTER\x01c\x02" % number for number in range(ALIKE_MIN)]
    properties, _ = table(strings)
    keys = properties.fixed(b"UNIQ_KEY")
    assert keys is not None
    assert [bytes(row) for row in keys] == [b"%032d" % number for number in range(ALIKE_MIN)]
    missing = properties.fixed(b"TAGS")
    assert missing is not None
    assert missing.shape == (ALIKE_MIN, 0)
    other, _ = table([*strings, b"UNIQ_KEY\x01x\x02CLUSTER\x01c\x02"])
    assert other.fixed(b"UNIQ_KEY") is None
