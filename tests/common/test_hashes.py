"""Java's string hash, against values a JVM gives."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.hashes import crc32, hash_rows, java_hash_columns, java_string_hash

KNOWN = {
    "": 0,
    "a": 97,
    "hello": 99162322,
    "TagA": 2598919,
    "polygenelubricants": -(1 << 31),
    "\u00e9": 233,
    "\U0001f600": 0xD83D * 31 + 0xDE00,
    "Aa": 2112,
    "BB": 2112,
}

ascii_text = st.text(st.characters(min_codepoint=1, max_codepoint=126), max_size=40)


@pytest.mark.parametrize(("text", "value"), KNOWN.items())
def test_known_values(text: str, value: int) -> None:
    """The values were computed by Java; they include a surrogate pair and the smallest integer."""
    assert java_string_hash(text) == value


@given(st.text(max_size=30))
def test_agrees_with_the_definition(text: str) -> None:
    """The hash is the polynomial in 31 over UTF-16 units, cut to 32 signed bits."""
    data = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
    value = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units)) & 0xFFFFFFFF
    assert java_string_hash(text) == (value - (1 << 32) if value >> 31 else value)


@given(ascii_text, st.integers(1, 40), st.integers(0, 20))
def test_rows_agree_with_single_strings(prefix: str, width: int, count: int) -> None:
    """Many rows behind one prefix have the hashes of their texts."""
    rows = np.random.default_rng(width * 100 + count).integers(1, 127, (count, width), dtype=np.uint8)
    expected = [java_string_hash(prefix + row.tobytes().decode("ascii")) for row in rows]
    assert hash_rows(prefix, rows).tolist() == expected


@given(st.lists(ascii_text, max_size=20), ascii_text)
def test_columns_of_other_lengths_agree_with_single_strings(texts: list[str], prefix: str) -> None:
    """Padded rows hash only their own bytes."""
    rows = np.zeros((len(texts), 40), np.uint8)
    for row, text in zip(rows, texts, strict=True):
        row[: len(text)] = np.frombuffer(text.encode("ascii"), np.uint8)
    lengths = np.array([len(text) for text in texts], np.int64)
    assert java_hash_columns(rows, lengths, prefix).tolist() == [java_string_hash(prefix + text) for text in texts]


@given(st.binary(max_size=5000), st.integers(0, 5000))
def test_both_libraries_agree(data: bytes, cut: int) -> None:
    """With either library the checksum is zlib's: in one call, of a view, and in two parts."""
    assert crc32(data) == zlib.crc32(data)
    assert crc32(memoryview(data)[cut:]) == zlib.crc32(data[cut:])
    assert crc32(data[cut:], crc32(data[:cut])) == zlib.crc32(data)
