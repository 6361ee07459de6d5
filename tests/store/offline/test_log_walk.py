"""Walking our own log: checksums, damage, tails, parts."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pocketmq.store.disk.os_file_system import OsFile, OsFileSystem
from pocketmq.store.errors import StorePermission, StoreReadOnly
from pocketmq.store.offline.errors import EmptyStore, MixedSegments, NotAStore
from pocketmq.store.offline.log_walk import RECHECKS, Checked, LogChunk
from pocketmq.store.offline.read_only import ReadOnlyFileSystem
from pocketmq.store.offline.reader import Finding, StoreReader
from tests.store.log_fakes import SEGMENT_BYTES, Stepped


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A closed store of 60 records in groups of three, over several segments."""
    stepped = Stepped(tmp_path / "store")
    for number in range(20):
        stepped.append(*(b"%d." % (number * 3 + each) + bytes(400 + each) for each in range(3)))
        stepped.runner.run_until_idle()
    stepped.store.close()
    return tmp_path / "store"


def offsets(reader: StoreReader, findings: list[Finding] | None = None) -> list[int]:
    found = [] if findings is None else findings
    return [
        offset for chunk in reader.chunks(on_finding=found.append) for offset in chunk.columns.physical_offsets.tolist()
    ]


def change(root: Path, offset: int, data: bytes) -> None:
    path = root / "commitlog" / f"{offset - offset % SEGMENT_BYTES:020d}"
    content = bytearray(path.read_bytes())
    at = offset % SEGMENT_BYTES
    content[at : at + len(data)] = data
    path.write_bytes(content)


def test_group_checksums_cover_all_records(root: Path) -> None:
    """Every record of a sound store is in a chunk whose checksums agreed; checksums alone cover the same bytes."""
    reader = StoreReader.open(str(root))
    chunks = [item for item in reader.walk() if isinstance(item, LogChunk)]
    assert sum(len(chunk.columns) for chunk in chunks) == 60
    assert all(chunk.by_group for chunk in chunks)
    checked = list(reader.walk(checksums_only=True))
    assert all(isinstance(item, Checked) for item in checked)
    assert sum(item.end - item.start for item in checked) == sum(chunk.end - chunk.start for chunk in chunks)


def test_a_changed_header_is_suspect_and_a_changed_body_is_damage(root: Path) -> None:
    """A changed queue id keeps the record and is found by the group's checksum; a changed body loses the record."""
    reader = StoreReader.open(str(root))
    all_offsets = offsets(reader)
    change(root, all_offsets[10] + 15, b"\x09")  # queue id
    change(root, all_offsets[22] + 100, b"\xff\xfe")
    findings: list[Finding] = []
    got = offsets(StoreReader.open(str(root)), findings)
    assert got == [offset for offset in all_offsets if offset != all_offsets[22]]
    assert [(each.kind, each.check) for each in findings] == [("suspect", "group"), ("damage", "record")]
    assert findings[0].start <= all_offsets[10] < findings[0].end
    assert (findings[1].start, findings[1].end) == (all_offsets[22], all_offsets[23])


def test_bytes_behind_the_last_record_are_a_tail_and_zeros_are_nothing(root: Path) -> None:
    """Half a record at the end is reported as a whole tail; without it there is none."""
    reader = StoreReader.open(str(root))
    findings: list[Finding] = []
    all_offsets = offsets(reader, findings)
    assert findings == []
    last = reader.record_at(all_offsets[-1])
    assert last is not None
    end = all_offsets[-1] + len(last)
    change(root, end, last[:90])
    assert offsets(StoreReader.open(str(root)), findings) == all_offsets
    (tail,) = findings
    assert (tail.kind, tail.start) == ("tail", end)
    assert tail.end <= end + 90


@pytest.mark.parametrize("case", ["zeros", "removed", "half"])
def test_a_lost_stretch_with_records_behind_it_is_damage(root: Path, case: str) -> None:
    """A file of zeros, a missing file and a half-copied one are damage up to the next file, not the end."""
    reader = StoreReader.open(str(root))
    before = offsets(reader)
    path = root / "commitlog" / f"{SEGMENT_BYTES:020d}"
    if case == "zeros":
        path.write_bytes(bytes(SEGMENT_BYTES))
    elif case == "removed":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:4000])
    findings: list[Finding] = []
    got = offsets(StoreReader.open(str(root)), findings)
    kept = [offset for offset in before if not SEGMENT_BYTES <= offset < 2 * SEGMENT_BYTES]
    assert [offset for offset in got if not SEGMENT_BYTES <= offset < 2 * SEGMENT_BYTES] == kept
    (finding,) = findings
    assert (finding.kind, finding.end) == ("damage", 2 * SEGMENT_BYTES)
    assert finding.check == ("record" if case == "zeros" else "file")


@given(bytes_max=st.integers(1, 40_000), use_checksums=st.booleans(), seed=st.randoms())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_any_split_reads_each_record_exactly_once(
    root: Path, bytes_max: int, use_checksums: bool, seed: random.Random
) -> None:
    """Parts of any size, walked in any order by separate readers, give every record once."""
    whole = offsets(StoreReader.open(str(root)))
    parts = StoreReader.open(str(root)).ranges(bytes_max)
    seed.shuffle(parts)
    got: list[int] = []
    for part in parts:
        reader = StoreReader.open(str(root), use_checksums=use_checksums)
        for chunk in reader.chunks(part):
            got += chunk.columns.physical_offsets.tolist()
        reader.close()
    assert sorted(got) == whole


def test_what_a_body_holds_is_not_taken_for_records(tmp_path: Path) -> None:
    """A damaged record whose body contains a whole record at its own place is skipped, not searched."""
    stepped = Stepped(tmp_path)
    stepped.append(b"first" * 20)
    first = stepped.store.read_record(0)
    assert first is not None
    inner_at = len(first) + 100
    inner = bytearray(first)
    inner[28:36] = inner_at.to_bytes(8, "big")
    stepped.append(bytes(12) + bytes(inner) + bytes(20))
    stepped.append(b"last")
    stepped.store.close()
    second = len(first)
    assert bytes((tmp_path / "commitlog" / f"{0:020d}").read_bytes()[inner_at : inner_at + 4]) == inner[:4]
    change(tmp_path, second + 95, b"\xee")  # the body's CRC differs now
    findings: list[Finding] = []
    got = offsets(StoreReader.open(str(tmp_path)), findings)
    assert len(got) == 2
    assert inner_at not in got
    assert [each.kind for each in findings] == ["damage"]


def test_a_record_half_written_at_the_first_look_is_read_at_the_second(root: Path) -> None:
    """In a store that is open elsewhere bad bytes are read again after a pause before they are called damage."""
    all_offsets = offsets(StoreReader.open(str(root)))
    good = (root / "commitlog" / f"{0:020d}").read_bytes()
    change(root, all_offsets[5], bytes(300))
    (root / "abort").touch()
    pauses = 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1
        if pauses == RECHECKS - 1:
            (root / "commitlog" / f"{0:020d}").write_bytes(good)

    findings: list[Finding] = []
    assert offsets(StoreReader.open(str(root), pause=pause), findings) == all_offsets
    assert findings == []
    assert pauses == RECHECKS - 1


def test_directories_that_are_no_store_are_told_apart(root: Path, tmp_path: Path) -> None:
    """Missing, foreign, empty, mixed and unreadable directories each have their own error."""
    with pytest.raises(NotAStore):
        StoreReader.open(str(tmp_path / "nowhere"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file.txt").touch()
    with pytest.raises(NotAStore):
        StoreReader.open(str(tmp_path / "other"))
    with pytest.raises(NotAStore):
        StoreReader.open(str(tmp_path / "other" / "file.txt"))
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    with pytest.raises(EmptyStore):
        StoreReader.open(str(tmp_path / "empty"))
    (root / "commitlog" / f"{SEGMENT_BYTES + 4096:020d}").write_bytes(bytes(4096))
    with pytest.raises(MixedSegments):
        StoreReader.open(str(root))


def test_a_store_without_permission_is_refused(root: Path) -> None:
    """A file that the system refuses to open is reported as a missing permission, not as damage."""

    class Refusing(OsFileSystem):
        def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
            if "commitlog" in path:
                raise StorePermission("open failed", why=path)
            return super().open(path, create=create, writable=writable)

    with pytest.raises(StorePermission):
        StoreReader.open(str(root), file_system=Refusing())


def test_the_read_only_file_system_refuses_every_change(tmp_path: Path) -> None:
    """No call of the file system changes a file; files open for reading, whatever mode was requested."""
    (tmp_path / "a").write_bytes(b"x")
    files = ReadOnlyFileSystem(OsFileSystem())
    path = str(tmp_path / "a")
    for call in (
        lambda: files.make_dirs(path),
        lambda: files.remove(path),
        lambda: files.remove_tree(str(tmp_path), below="/"),
        lambda: files.rename(path, path + "b"),
        lambda: files.replace(path, b""),
        lambda: files.sync_dir(path),
        lambda: files.sync_all(path),
        lambda: files.lock_file(path, ""),
    ):
        with pytest.raises(StoreReadOnly):
            call()
    with pytest.raises(Exception, match="write"):
        files.open(path, writable=True).write_at(0, b"y")
    with pytest.raises(FileNotFoundError):
        files.open(path + "new", create=True)
    assert (tmp_path / "a").read_bytes() == b"x"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
