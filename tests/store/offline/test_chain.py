"""Following records by their sizes gives the same result in every way."""

import struct
from random import Random

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
    end = min(cut, len(data))
    assert chain(memoryview(bytes(data)), end) == one_by_one(bytes(data), end)
    assert chain(memoryview(bytes(data)), len(data)) == one_by_one(bytes(data), len(data))
