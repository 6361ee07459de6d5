"""The fast CRC is zlib's."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.crc import crc32


@given(st.binary(max_size=5000), st.integers(0, 5000))
def test_both_libraries_agree(data: bytes, cut: int) -> None:
    """Whichever library is installed, the number is zlib's: at once, of a view, and in two parts."""
    assert crc32(data) == zlib.crc32(data)
    assert crc32(memoryview(data)[cut:]) == zlib.crc32(data[cut:])
    assert crc32(data[cut:], crc32(data[:cut])) == zlib.crc32(data)
