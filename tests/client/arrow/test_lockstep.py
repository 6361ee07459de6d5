"""Records with the same names are read at once, and give what the scalar parser gives; others are left alone."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.arrow.lockstep import PAIRS_MAX, ROWS_MIN, VALUE_BYTES_MAX, lockstep
from pocketmq.common.record import decode_properties
from pocketmq.common.record_columns import RecordColumns

NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "a", "ab", "missing")


def found(strings: list[bytes], before: bytes = b"", between: bytes = b"", behind: bytes = b"") -> Any:
    """Return name → value of each row; None if the records differ."""
    buffer = np.frombuffer(before + b"".join(each + between for each in strings) + behind, np.uint8)
    lengths = np.array([len(each) for each in strings], np.int64)
    records = RecordColumns(buffer, np.zeros(len(strings), np.int64), lengths)
    records.property_lengths = lengths
    records.property_starts = len(before) + np.cumsum(lengths + len(between)) - lengths - len(between)
    spans = lockstep(buffer, records)
    if spans is None:
        return None
    return {
        name: [buffer[at : at + size].tobytes() for at, size in zip(*each, strict=True)] for name, each in spans.items()
    }


@given(
    st.lists(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "ab"]), min_size=1, max_size=5),
    st.integers(ROWS_MIN, ROWS_MIN + 20),
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999), st.sampled_from(b"\x01\x02a\x00\xff")), max_size=3),
    st.randoms(use_true_random=False),
    st.sampled_from([b"", b"x", b"\x02" * 9, b"TAGS\x01no\x02"]),
    st.binary(max_size=300),
)
def test_values_are_those_of_the_scalar_parser(
    names: list[str], count: int, widest: int, changes: list[Any], rng: random.Random, between: bytes, behind: bytes
) -> None:
    """Values of any lengths; a byte changed anywhere; closed strings and open ones; other bytes on both sides."""
    rows = []
    for _ in range(count):
        pairs = [
            name.encode() + b"\x01" + bytes(rng.choice(b"abz\x00\xff\x01") for _ in range(rng.randint(1, widest)))
            for name in names
        ]
        rows.append(bytearray(b"\x02".join(pairs) + rng.choice([b"", b"\x02"])))
    for row, at, byte in changes:
        rows[row % count][at % len(rows[row % count])] = byte
    strings = [bytes(row) for row in rows]
    values = found(strings, b"head", between, behind)
    if values is None:
        return
    wanted = [decode_properties(each) for each in strings]
    for name in NAMES:
        texts = [value.decode("utf-8", "replace") for value in values.get(name.encode(), [b""] * count)]
        assert texts == [each.get(name, "") for each in wanted]
    assert set(values) == {name.encode() for name in names} or changes


def test_the_records_of_one_producer_are_read_so() -> None:
    """Tags and keys of different lengths; with the last separator and without; the last record ends the buffer."""
    strings = [
        b"UNIQ_KEY\x01%032d\x02TAGS\x01%s\x02KEYS\x01k%d\x02CLUSTER\x01c%s"
        % (n, (b"odd", b"even")[n % 2], n**3, b"\x02" * (n % 2))
        for n in range(100)
    ]
    values = found(strings)
    assert values is not None
    assert values[b"KEYS"] == [b"k%d" % n**3 for n in range(100)]
    assert values[b"CLUSTER"] == [b"c"] * 100
    assert found([b""] * ROWS_MIN) == {}


@pytest.mark.parametrize(
    "strings",
    [
        [b"TAGS\x01a\x02"] * (ROWS_MIN - 1),
        [*[b"TAGS\x01a\x02"] * ROWS_MIN, b""],
        [*[b"TAGS\x01a\x02"] * ROWS_MIN, b"KEYS\x01a\x02"],
        [*[b"TAGS\x01a\x02"] * ROWS_MIN, b"TAGS\x01a\x02TAGS\x01b\x02"],
        [*[b"TAGS\x01a\x02KEYS\x01b\x02"] * ROWS_MIN, b"TAGS\x01a\x02"],
        [*[b"TAGS\x01a\x02KEYS\x01b\x02"] * ROWS_MIN, b"TAGS\x01\x02KEYS\x01b\x02"],
        [b"TAGS\x01" + b"t" * (VALUE_BYTES_MAX + 1)] * ROWS_MIN,
        [b"\x01a\x02"] * ROWS_MIN,
        [b"\x02".join(b"n%d\x01v" % n for n in range(PAIRS_MAX + 1))] * ROWS_MIN,
    ],
)
def test_what_is_not_alike_is_left_alone(strings: list[bytes]) -> None:
    """Few, others without properties, other names, more or fewer pairs, an empty or a long value."""
    assert found(strings) is None
