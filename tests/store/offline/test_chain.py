"""Following records by their sizes gives the same result in every way."""

import struct
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.record import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from pocketmq.store.offline.record_check import chain

MAGICS = st.sampled_from([MAGIC_V1, MAGIC_V1, MAGIC_V1, MAGIC_V2, 0xDA000000, 0])
PIECES = st.lists(
    st.tuples(st.integers(RECORD_BYTES_MIN, 400), MAGICS, st.sampled_from([-1, 0, 0, 0, 0, 0]), st.booleans()),
    max_size=60,
)


def one_by_one(data: bytes, end: int) -> tuple[list[int], int]:
    """Return the result of ``chain``, computed in the plainest way."""
    sizes, at = list[int](), 0
    while end - at >= RECORD_BYTES_MIN:
        size, magic = struct.unpack_from(">II", data, at)
        if magic not in (MAGIC_V1, MAGIC_V2) or not RECORD_BYTES_MIN <= size <= end - at:
            break
        sizes.append(size)
        at += size
    return sizes, at


def followed(data: bytes, end: int) -> tuple[list[int], int]:
    sizes, at = chain(np.frombuffer(data, np.uint8), end)
    return sizes.tolist(), at


@given(PIECES, st.integers(0, 30_000), st.randoms(use_true_random=False))
def test_a_chain_is_what_following_sizes_gives(
    pieces: list[tuple[int, int, int, bool]], cut: int, random: Random
) -> None:
    """Wrong sizes, other magics, bodies that look like records, an end in the middle of one."""
    data = bytearray()
    for size, magic, error, has_fake in pieces * 3:
        record = bytearray(size)
        struct.pack_into(">II", record, 0, size + error, magic)
        if has_fake:
            struct.pack_into(">II", record, random.randint(8, size - 8), RECORD_BYTES_MIN, MAGIC_V1)
        data += record
    for end in (min(cut, len(data)), len(data)):
        assert followed(bytes(data), end) == one_by_one(bytes(data), end)


@given(
    st.integers(RECORD_BYTES_MIN, 300),
    st.integers(1, 80),
    st.lists(st.tuples(st.integers(0, 79), st.sampled_from([-8, -1, 1, 8])), max_size=2),
    st.integers(0, 400),
)
def test_records_of_one_size_are_followed_at_once(
    size: int, count: int, errors: list[tuple[int, int]], rest: int
) -> None:
    """Also where one of them is of another size, and where the end is in the middle of one."""
    data = bytearray()
    for row in range(count):
        own = max(RECORD_BYTES_MIN, size + dict(errors).get(row, 0))
        data += struct.pack(">II", own, MAGIC_V1) + bytes(own - 8)
    data += struct.pack(">II", rest, MAGIC_V1)[: min(8, rest)] + bytes(max(0, rest - 8))
    for end in (len(data), max(0, len(data) - size // 2)):
        assert followed(bytes(data), end) == one_by_one(bytes(data), end)
