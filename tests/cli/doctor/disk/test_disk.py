"""``doctor disk``: its measurements on a small directory, its conclusions, and that it leaves no file behind."""

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pocketmq.cli.doctor.disk.command import find_mount
from pocketmq.cli.doctor.disk.meaning import meanings
from pocketmq.cli.doctor.disk.measure import DiskMeasurements, DiskProbe, Times, times_of
from pocketmq.cli.doctor.disk.mounts import Mount, mount_of
from pocketmq.cli.doctor.finding import Severity
from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.common.clock import SystemClock
from pocketmq.store.disk.os_file_system import OsFile, OsFileSystem
from pocketmq.store.errors import DiskError, StoreFull

MIB = 1 << 20


class Watched(OsFileSystem):
    """The real disk; records the most bytes in its files, and can be small or fail."""

    def __init__(self, *, free_bytes: int = 1 << 40, fail_after: int = -1) -> None:
        super().__init__()
        self.free = free_bytes
        self.fail_after = fail_after
        self.paths: list[str] = []

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
        self.paths.append(path)
        if 0 <= self.fail_after < len(self.paths):
            raise DiskError("open failed")
        return super().open(path, create=create, writable=writable)

    def free_bytes(self, path: str) -> tuple[int, int]:
        return self.free, 1 << 41


def probe(directory: Path, files: OsFileSystem, *, mib: int = 8, on_progress: Any = None) -> DiskProbe:
    return DiskProbe(
        str(directory),
        files,
        SystemClock(),
        size_bytes=mib * MIB,
        seconds=0.2,
        on_progress=on_progress or (lambda _name, _share: None),
    )


def test_a_tiny_measurement_has_every_value_and_leaves_nothing(tmp_path: Path) -> None:
    """Each step has run at least once, times are ordered, and the directory is as it was."""
    (tmp_path / "own").write_bytes(b"x")
    steps: dict[str, float] = {}
    measured = probe(tmp_path, Watched(), on_progress=lambda name, share: steps.update({name: share})).measure()
    assert os.listdir(tmp_path) == ["own"]
    times = [measured.sync_alone, measured.sync_reserved, measured.sync_dirty, measured.append_mapped]
    for each in (*times, measured.append_written):
        assert each is not None
        assert each.count >= 1
        assert 0 <= each.p50_ms <= each.p99_ms <= each.max_ms
    assert measured.write_bytes_per_s is not None
    assert measured.read_random is not None or measured.skipped
    assert set(steps.values()) == {1.0}


def test_it_never_writes_more_than_it_was_allowed(tmp_path: Path) -> None:
    """The files together stay within the size, whatever the steps do."""
    most = 0

    def look(_name: str, _share: float) -> None:
        nonlocal most
        most = max(most, sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))

    probe(tmp_path, Watched(), mib=8, on_progress=look).measure()
    assert 0 < most <= 8 * MIB


@pytest.mark.parametrize("number", range(5))
def test_what_was_written_is_gone_after_an_error(tmp_path: Path, number: int) -> None:
    """Whichever file fails to open, no file stays behind and the error reaches the caller."""
    with pytest.raises(DiskError):
        probe(tmp_path, Watched(fail_after=number)).measure()
    assert os.listdir(tmp_path) == []


def test_what_was_written_is_gone_after_an_interrupt(tmp_path: Path) -> None:
    """Ctrl-C comes in the middle of a step."""
    calls = 0

    def interrupt(_name: str, _share: float) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            assert os.listdir(tmp_path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        probe(tmp_path, Watched(), on_progress=interrupt).measure()
    assert os.listdir(tmp_path) == []


def test_it_declines_when_space_is_short(tmp_path: Path) -> None:
    """It declines before it writes a byte, with both sizes and the cure."""
    with pytest.raises(CommandFailed) as caught:
        probe(tmp_path, Watched(free_bytes=100 * MIB)).measure()
    assert "100 MiB are free" in caught.value.why
    assert "--size" in caught.value.hint
    assert os.listdir(tmp_path) == []


def test_a_directory_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    """A mistyped name is an error, not a new directory."""
    with pytest.raises(CommandFailed):
        probe(tmp_path / "typo", Watched()).measure()
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fills_up_meanwhile_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    """ENOSPC in the middle of a step reaches the caller, and the files are gone."""

    class Filling(Watched):
        def open(self, path: str, *, create: bool = False, writable: bool = True) -> OsFile:
            if path.endswith("beside"):
                raise StoreFull("write failed")
            return super().open(path, create=create, writable=writable)

    with pytest.raises(StoreFull):
        probe(tmp_path, Filling()).measure()
    assert os.listdir(tmp_path) == []


def test_percentiles_are_times_that_were_measured() -> None:
    """There is no interpolation between two operations; without operations the value is None."""
    times = times_of([int(ms * 1e6) for ms in (1, 2, 3, 100)])
    assert times == Times(4, 3.0, 100.0, 100.0)
    assert times_of([]) is None
    assert times_of(list(np.arange(1, 101) * 1_000_000)) == Times(100, 51.0, 100.0, 100.0)


TABLE = (
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,barrier=0\n"
    "30 22 0:25 / /var/my\\040data rw,noatime - xfs /dev/vdb1 rw,attr2,inode64\n"
    "31 22 0:26 / /var rw - tmpfs tmpfs rw,size=4k\n"
    "not a line\n"
    "32 31 0:27 / /var ro - ext4 /dev/vdc rw\n"
)


@pytest.mark.parametrize(
    ("path", "point", "fs_type"),
    [
        ("/home/x", "/", "ext4"),
        ("/var/my data/store", "/var/my data", "xfs"),
        ("/var/other", "/var", "ext4"),
        ("/variable", "/", "ext4"),
        ("/var", "/var", "ext4"),
    ],
)
def test_the_longest_mount_point_holds_a_path(path: str, point: str, fs_type: str) -> None:
    """The later of two mounts at one point hides the earlier; names with spaces work."""
    mount = mount_of(path, TABLE)
    assert mount is not None
    assert (mount.point, mount.fs_type) == (point, fs_type)


def test_the_mount_of_a_real_directory_is_found(tmp_path: Path) -> None:
    """It reads the kernel's own table through the store's file system."""
    mount = find_mount(str(tmp_path.resolve()), OsFileSystem())
    assert mount is None or str(tmp_path.resolve()).startswith(mount.point)
    assert mount_of("/", "") is None


HEALTHY = DiskMeasurements(
    size_bytes=512 * MIB,
    free_bytes=80 << 30,
    total_bytes=100 << 30,
    reserve_ms=1.0,
    blocks_reserved=True,
    write_bytes_per_s=500.0 * MIB,
    sync_alone=Times(1000, 1.0, 2.0, 5.0),
    sync_reserved=Times(1000, 1.5, 3.0, 6.0),
    sync_dirty=Times(100, 3.0, 8.0, 20.0),
    append_mapped=Times(1000, 0.02, 0.1, 3.0),
    append_written=Times(1000, 0.021, 0.1, 3.0),
    read_random=Times(1000, 0.1, 0.4, 2.0),
)
EXT4 = Mount("/", "ext4", "/dev/vda", ("rw", "relatime"))


def said(measured: DiskMeasurements = HEALTHY, mount: Mount | None = EXT4) -> dict[str, tuple[Severity, str]]:
    return {meaning.about: (meaning.severity, meaning.text) for meaning in meanings(measured, mount)}


def changed(**changes: Any) -> DiskMeasurements:
    return msgspec.structs.replace(HEALTHY, **changes)


def test_a_good_disk_is_only_notes() -> None:
    """Estimates are marked as such; the pool is not recommended where it would not help."""
    found = said()
    assert {severity for severity, _ in found.values()} == {Severity.NOTE}
    assert "Estimate" in found["SYNC_FLUSH"][1]
    assert "about 1,000/s with one in flight; at most about 64,000/s with 64 in flight" in found["SYNC_FLUSH"][1]
    assert "500 ms is fine" in found["ASYNC_FLUSH"][1]
    assert "would not help" in found["write-buffer pool"][1]
    assert "about the same" in found["append_mode"][1]


def test_the_estimate_for_many_in_flight_is_bounded_by_the_sequential_rate() -> None:
    """A disk of 1 MiB a second cannot take 64,000 messages of 1 KiB."""
    text = said(changed(write_bytes_per_s=1.0 * MIB))["SYNC_FLUSH"][1]
    assert "at most about 1,024/s with 64 in flight" in text
    assert "bounded by the sequential rate" in text


@pytest.mark.parametrize(
    ("changes", "about", "severity", "words"),
    [
        ({"sync_alone": Times(9, 0.01, 0.01, 0.01)}, "SYNC_FLUSH", Severity.NOTE, "about 100,000/s"),
        ({"sync_alone": Times(9, 25.0, 30.0, 40.0)}, "SYNC_FLUSH", Severity.WARNING, "about 40.0/s"),
        ({"sync_alone": None}, "SYNC_FLUSH", Severity.NOTE, "No data"),
        ({"sync_dirty": Times(9, 200.0, 250.0, 400.0)}, "ASYNC_FLUSH", Severity.WARNING, "without a pause"),
        ({"append_mapped": Times(9, 0.1, 1.0, 20.0)}, "write-buffer pool", Severity.WARNING, "would help"),
        ({"append_mapped": Times(9, 0.1, 1.0, 19.9)}, "write-buffer pool", Severity.NOTE, "would not help"),
        ({"sync_dirty": Times(9, 5.1, 8.0, 9.0)}, "write-buffer pool", Severity.NOTE, "may help"),
        ({"append_written": Times(9, 0.1, 1.0, 1.0)}, "append_mode", Severity.NOTE, "mapped is 5.0 times quicker"),
        ({"append_mapped": Times(9, 0.21, 1.0, 1.0)}, "append_mode", Severity.NOTE, "written is 10.0 times quicker"),
        ({"free_bytes": 24 << 30}, "space", Severity.NOTE, "are free"),
        ({"free_bytes": 9 << 30}, "space", Severity.NOTE, "RocketMQ would refuse puts"),
        ({"free_bytes": 1 << 30}, "space", Severity.WARNING, "a new store takes smaller files"),
        ({"free_bytes": 19 << 20}, "space", Severity.ERROR, "A store does not begin with less than 20 MiB"),
        ({"read_random": Times(9, 0.001, 0.1, 0.1)}, "reads", Severity.NOTE, "no data on the disk"),
    ],
)
def test_each_measurement_has_its_meaning(changes: dict[str, Any], about: str, severity: Severity, words: str) -> None:
    """The finding appears from the first relevant value on."""
    found = said(changed(**changes))[about]
    assert found[0] is severity
    assert words in found[1]


def test_a_sync_that_is_too_fast_is_doubted() -> None:
    """20 µs is no disk: the promise of SYNC_FLUSH depends on a cache."""
    texts = [meaning.text for meaning in meanings(changed(sync_alone=Times(9, 0.01, 0.01, 0.01)), EXT4)]
    assert any("no disk is that fast" in text for text in texts)
    assert not any("no disk is that fast" in meaning.text for meaning in meanings(HEALTHY, EXT4))


def test_sparse_segments_are_a_warning() -> None:
    """Without reserved blocks a full disk shows in the middle of a segment."""
    texts = [meaning.text for meaning in meanings(changed(blocks_reserved=False), EXT4)]
    assert any("sparse" in text for text in texts)
    assert not any("sparse" in meaning.text for meaning in meanings(changed(blocks_reserved=None), EXT4))


@pytest.mark.parametrize(
    ("mount", "severity", "words"),
    [
        (Mount("/", "ext4", "/dev/a", ("ro",)), Severity.ERROR, "read-only"),
        (Mount("/", "ext4", "/dev/a", ("rw", "nobarrier")), Severity.ERROR, "Barriers are off"),
        (Mount("/", "ext4", "/dev/a", ("rw", "barrier=0")), Severity.ERROR, "Barriers are off"),
        (Mount("/", "tmpfs", "tmpfs", ("rw",)), Severity.WARNING, "memory"),
        (Mount("/", "nfs4", "host:/x", ("rw",)), Severity.WARNING, "network"),
        (Mount("/", "overlay", "overlay", ("rw",)), Severity.WARNING, "volume"),
        (Mount("/", "ext4", "/dev/a", ("rw", "data=writeback")), Severity.NOTE, "data=writeback"),
    ],
)
def test_mounts_that_matter(mount: Mount, severity: Severity, words: str) -> None:
    """The finding names the mount's effect on durability or latency."""
    found = said(mount=mount)["mount"]
    assert found[0] is severity
    assert words in found[1]
    assert "mount" not in said(mount=EXT4)
    assert "mount" not in said(mount=None)
