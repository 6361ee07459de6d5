"""Group checksums and their files."""

from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.commitlog import checksums as checksums_module
from pocketmq.store.commitlog.checksums import CHECKSUM_ENTRY_BYTES, ChecksumLog, good_entries, pack_entries
from pocketmq.store.commitlog.segment import segment_name
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.errors import StoreFull
from tests.store.log_fakes import HookedFileSystem


def test_entries_come_back_in_their_segments(tmp_path: Path) -> None:
    """Entries added out of order are found in the file of their segment, by offset."""
    log = ChecksumLog(OsFileSystem(), str(tmp_path), 4096)
    log.add(5000, 10, 1)
    log.add(0, 20, 2)
    log.add(4096, 30, 0xFFFFFFFF)
    log.write()
    log.add(20, 40, 3)
    log.write()
    assert log.load(0) == {0: (20, 2), 20: (40, 3)}
    assert log.load(4096) == {4096: (30, 0xFFFFFFFF), 5000: (10, 1)}
    assert log.load(8192) == {}


@given(
    st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 90), st.integers(0, 2**32 - 1)), min_size=1, max_size=5),
    st.data(),
)
def test_a_changed_bit_or_a_torn_end_costs_only_its_own_entry(
    rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """Any flipped bit invalidates exactly its entry, any cut only the entries it touches."""
    whole = pack_entries(rows).tobytes()
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    flipped = bytearray(whole)
    flipped[bit // 8] ^= 1 << bit % 8
    kept = [row for at, row in enumerate(rows) if at != bit // 8 // CHECKSUM_ENTRY_BYTES]
    found = good_entries(bytes(flipped), 0, 4096)
    assert [tuple(entry)[:3] for entry in found.tolist()] == kept
    cut = data.draw(st.integers(0, len(whole)))
    assert len(good_entries(whole[:cut], 0, 4096)) == cut // CHECKSUM_ENTRY_BYTES


def test_zeros_and_entries_of_other_segments_are_no_entries() -> None:
    """Garbage of the right size is no entry."""
    assert len(good_entries(bytes(200), 0, 4096)) == 0
    assert len(good_entries(pack_entries([(4000, 97, 1), (4096, 1, 1)]).tobytes(), 0, 4096)) == 0


def test_a_torn_entry_is_overwritten(tmp_path: Path) -> None:
    """Entries behind a torn one stay aligned."""
    (tmp_path / segment_name(0)).write_bytes(pack_entries([(0, 10, 1)]).tobytes() + b"torn")
    log = ChecksumLog(OsFileSystem(), str(tmp_path), 4096)
    log.add(10, 10, 2)
    log.write()
    assert log.load(0) == {0: (10, 1), 10: (10, 2)}


def test_a_cut_removes_what_lies_behind_it(tmp_path: Path) -> None:
    """No entry survives its bytes; those below stay."""
    log = ChecksumLog(OsFileSystem(), str(tmp_path), 4096)
    for offset in (0, 100, 4096, 8192):
        log.add(offset, 100, crc32(b""))
    log.write()
    log.cut(150)
    assert (list(log.load(0)), log.load(4096), log.load(8192)) == ([0], {}, {})
    log.add(100, 50, 9)
    log.write()
    assert list(log.load(0)) == [0, 100]


def test_waiting_entries_are_bounded_and_a_full_disk_loses_only_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the bound entries are dropped and counted; a failed write is not repeated."""
    monkeypatch.setattr(checksums_module, "PENDING_MAX", 2)
    full = True

    def hook(operation: str, path: str) -> None:
        if operation == "write" and full:
            raise StoreFull("no space")

    log = ChecksumLog(HookedFileSystem(hook), str(tmp_path), 4096)
    for offset in range(3):
        log.add(offset, 1, 1)
    assert log.dropped == 1
    with pytest.raises(StoreFull):
        log.write()
    full = False
    log.add(7, 1, 1)
    log.write()
    assert list(log.load(0)) == [7]
