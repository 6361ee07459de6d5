"""One index file, compared byte by byte with a scalar writer that works as RocketMQ's does."""

import itertools
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.disk.file_cache import FileCache
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.index.index_file import CorruptIndex, IndexFile

SLOTS = 7
ENTRIES = 40
Key = tuple[int, int, int]  # hash, physical offset, store timestamp


def scalar_index(keys: list[Key], slots: int = SLOTS, entries: int = ENTRIES) -> bytes:
    """Return the file made by single inserts (RocketMQ IndexFile.putKey)."""
    data = bytearray(40 + slots * 4 + entries * 20)
    begin = used = 0
    for index, (key_hash, offset, timestamp) in enumerate(keys, start=1):
        slot_at = 40 + key_hash % slots * 4
        previous = struct.unpack_from(">i", data, slot_at)[0]
        if index == 1:
            begin = timestamp
            struct.pack_into(">q", data, 0, begin)
            struct.pack_into(">q", data, 16, offset)
        used += previous == 0
        seconds = max(0, (timestamp - begin) // 1000)
        struct.pack_into(">iqii", data, 40 + slots * 4 + index * 20, key_hash, offset, seconds, previous)
        struct.pack_into(">i", data, slot_at, index)
        struct.pack_into(">q", data, 8, timestamp)
        struct.pack_into(">q", data, 24, offset)
        struct.pack_into(">ii", data, 32, used, index + 1)
    return bytes(data)


def new_file(path: Path, slots: int = SLOTS, entries: int = ENTRIES) -> IndexFile:
    return IndexFile.create(str(path), FileCache(OsFileSystem(), 4), slots, entries)


def open_file(path: Path, slots: int = SLOTS, entries: int = ENTRIES) -> IndexFile:
    return IndexFile.open(str(path), FileCache(OsFileSystem(), 4), slots, entries)


def insert(file: IndexFile, keys: list[Key]) -> None:
    rows = np.array(keys, np.int64).reshape(-1, 3)
    file.insert(rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].copy())


def in_time_order(hashes: list[int], steps_ms: list[int]) -> list[Key]:
    time, keys = 1_700_000_000_000, []
    for at, (key_hash, step) in enumerate(zip(hashes, steps_ms, strict=False)):
        time += step
        keys.append((key_hash, at // 2 * 100 + 50, time))
    return keys


hashes = st.lists(st.one_of(st.integers(0, 20), st.integers(0, 0x7FFF_FFFF)), max_size=ENTRIES - 1)
time_steps = st.lists(st.integers(0, 3_000), min_size=ENTRIES, max_size=ENTRIES)


@given(hashes=hashes, steps=time_steps, cuts=st.lists(st.integers(0, ENTRIES), max_size=4), reopen=st.booleans())
def test_batches_give_the_bytes_of_single_inserts(
    tmp_path_factory: pytest.TempPathFactory, hashes: list[int], steps: list[int], cuts: list[int], reopen: bool
) -> None:
    """Any keys, in any batches, written at any time, give the file of single inserts."""
    path = tmp_path_factory.mktemp("index") / "a"
    keys = in_time_order(hashes, steps)
    file = new_file(path)
    bounds = sorted({0, len(keys), *(cut for cut in cuts if cut < len(keys))})
    for start, end in itertools.pairwise(bounds):
        insert(file, keys[start:end])
        if reopen:
            file.write()
            file = open_file(path)
    file.seal()
    if keys:
        assert path.read_bytes() == scalar_index(keys)
    else:
        assert not path.exists()


@given(hashes=hashes, steps=time_steps, written=st.sampled_from(["memory", "entries", "sealed"]), data=st.data())
def test_lookups_find_what_a_dict_holds(
    tmp_path_factory: pytest.TempPathFactory, hashes: list[int], steps: list[int], written: str, data: st.DataObject
) -> None:
    """A look-up returns the entries of a hash within the given seconds, newest first, wherever they are."""
    keys = in_time_order(hashes, steps)
    file = new_file(tmp_path_factory.mktemp("index") / "a")
    insert(file, keys)
    if written == "entries":
        file.write_entries()
    elif written == "sealed":
        file.seal()
    begin = 1_700_000_000_000 + data.draw(st.integers(-5_000, 60_000))
    end = begin + data.draw(st.integers(0, 60_000))
    max_num = data.draw(st.integers(1, 50))
    base = keys[0][2] if keys else 0
    for wanted in set(hashes[:5]) | {3}:
        expected = [
            offset
            for key_hash, offset, time in reversed(keys)
            if key_hash == wanted and begin - 999 <= base + (time - base) // 1000 * 1000 <= end
        ]
        assert file.lookup(wanted, begin, end, max_num) == (expected[:max_num], True)


@given(hashes=hashes, steps=time_steps, end=st.integers(0, 2_100), stale=st.booleans())
def test_a_file_is_cut_back_to_what_a_shorter_run_gives(
    tmp_path_factory: pytest.TempPathFactory, hashes: list[int], steps: list[int], end: int, stale: bool
) -> None:
    """After a crash the entries alone decide: slots and header are made again, and inserting on gives the same
    bytes.
    """
    keys = in_time_order(hashes, steps)
    path = tmp_path_factory.mktemp("index") / "a"
    file = new_file(path)
    if stale and keys:  # header and slots are those after the first key, the entries are newer
        insert(file, keys[:1])
        file.write()
        insert(file, keys[1:])
        file.write_entries()
    else:
        insert(file, keys)
        file.write()
    if not keys:
        return
    times = {offset: time for _, offset, time in reversed(keys)}
    kept = [key for key in keys if key[1] < end]
    if kept:
        times[kept[-1][1]] = kept[-1][2]
        times[kept[0][1]] = kept[0][2] if kept[0][1] != kept[-1][1] else times[kept[-1][1]]
    loaded = open_file(path)
    same_time = len(kept) < 2 or kept[0][1] != kept[-1][1] or kept[0][2] == kept[-1][2]
    assert loaded.truncate_to_physical(end, lambda offset: times[offset]) == bool(kept)
    if kept and same_time:
        assert path.read_bytes() == scalar_index(kept)
        insert(loaded, keys[len(kept) :])
        loaded.seal()
        assert path.read_bytes() == scalar_index(keys)


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    """A file made with other settings is refused."""
    (tmp_path / "a").write_bytes(bytes(41))
    with pytest.raises(CorruptIndex, match="41 bytes"):
        open_file(tmp_path / "a")


def test_a_chain_that_points_forward_ends(tmp_path: Path) -> None:
    """Damaged previous pointers cannot lead a look-up in a circle."""
    file = new_file(tmp_path / "a")
    insert(file, [(1, 0, 1_700_000_000_000), (1, 100, 1_700_000_000_000)])
    file.seal()
    with (tmp_path / "a").open("r+b") as damaged:
        damaged.seek(40 + SLOTS * 4 + 20 + 16)
        damaged.write(struct.pack(">i", 2))
    assert open_file(tmp_path / "a").lookup(1, 0, 1 << 60, 9) == ([100, 0], True)


def test_the_first_key_of_a_second_file_counts_from_the_end_of_the_first(tmp_path: Path) -> None:
    """RocketMQ writes it so (stores of 4.9.7 and 5.3.3); a look-up takes it for the start of its file."""
    keys: list[Key] = [(1, 100, 1_700_000_000_000), (2, 200, 1_700_000_001_000)]
    later: list[Key] = [(3, 300, 1_700_000_004_500), (10, 400, 1_700_000_006_000)]
    first = new_file(tmp_path / "1")
    insert(first, keys)
    first.seal()
    second = IndexFile.create(str(tmp_path / "2"), FileCache(OsFileSystem(), 4), SLOTS, ENTRIES, behind=first)
    insert(second, later)
    second.seal()
    wanted = bytearray(scalar_index(later))
    struct.pack_into(">i", wanted, 40 + SLOTS * 4 + 20 + 12, 3)  # 4.5 s less 1 s, in whole seconds
    assert (tmp_path / "2").read_bytes() == bytes(wanted)
    assert open_file(tmp_path / "2").lookup(3, 1_700_000_004_000, 1_700_000_004_999, 9) == ([300], True)
