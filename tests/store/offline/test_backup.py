"""Backups of live and stopped stores on a simulated disk: what was acknowledged before one began is in it."""

import os
import posixpath
import random
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.store.checkpoint import StorePaths, read_positions
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import BackupUnfinished, StoreError, StoreFull
from pocketmq.store.offline.backup import Backup, BackupResult
from pocketmq.store.offline.backup_note import read_note
from pocketmq.store.offline.errors import BackupFailed, BackupRefused, NotAStore
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.verify import verify
from tests.sim.checkers import ROOT, SEGMENT_BYTES, Ledger, SimStore, check, close_quietly, fresh_disk
from tests.sim.crash_file_system import CrashFileSystem, Killed, Operation, kill_at

COPY = "/backups/one"
PROGRESS = "config/progress.json"
"""What any table of a broker may hold: how far in the log it is."""
RETENTION = {
    "delete_when": "",
    "disk_space_clean_forcibly_ratio": 85,
    "disk_space_warning_level_ratio": 100,
    "clean_file_forcibly_enable": True,
    "file_reserved_time": 0,
    "mapped_file_size_consume_queue": 20 * 4,
}


def busy(ledger: Ledger, *, groups: int = 30, **settings: Any) -> SimStore:
    """Return an open store of several segments with checkpoints on the way; its newest records have no entries yet."""
    sim = SimStore(fresh_disk(), ledger, **settings)
    for number in range(groups):
        work(sim, number)
    return sim


def work(sim: SimStore, number: int) -> None:
    """Append a group; every few, let the workers write what they hold, and write a checkpoint."""
    sim.clock.advance_ms(7)
    sim.append([700, 900], "AB"[number % 2], number % 3, key=f"key{number}")
    sim.commit()
    if number % 3 == 0:
        sim.store.dispatcher.catch_up()
        sim.store.components.flush.write_checksums()
    if number % 7 == 0:
        sim.store.index.flush()
        sim.checkpoint()
    sim.files.replace(f"{ROOT}/{PROGRESS}", b"%d" % sim.store.log.appended_offset)


def back_up(source: FileSystem, target: FileSystem, **arguments: Any) -> BackupResult:
    return Backup(ROOT, COPY, source, target, clock=ManualClock(), **arguments).run()


def new_disk() -> CrashFileSystem:
    files = fresh_disk()
    files.make_dirs("/backups")
    files.sync_all("/")
    return files


def opened(target: CrashFileSystem, ledger: Ledger, **settings: Any) -> SimStore:
    """Start a store from the backup."""
    return SimStore(target, ledger.copy(), store_path_root_dir=COPY, **settings)


def check_copy(target: CrashFileSystem, ledger: Ledger, **settings: Any) -> None:
    """``log verify`` accepts the copy, and a store opened from it has every promised message and goes on."""
    reader = StoreReader.open(COPY, file_system=target, index_numbers=(16, 256))
    report = verify(reader, level="full")
    reader.close()
    assert report.ok, (report.findings, report.queues, report.index, report.checkpoint, report.problems)
    assert int(target.read_all(f"{COPY}/{PROGRESS}")) <= report.end_offset, "a small file is ahead of the log"
    sim = opened(target, ledger, **settings)
    check(sim.store, sim.ledger)
    assert sim.report.damaged == []
    sim.append([100], "A", 0, key="after")
    sim.store.dispatcher.catch_up()
    check(sim.store, sim.ledger)
    close_quietly(sim)


class Busy:
    """A file system whose owner does a piece of work before the call number ``at`` of a reader."""

    def __init__(self, inner: CrashFileSystem, at: int, act: Callable[[], None]) -> None:
        self._inner = inner
        self._at = at
        self._act = act
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("open", "list", "read_all", "size", "exists"):
            return found

        def call(*arguments: Any, **keywords: Any) -> Any:
            self.calls += 1
            if self.calls == self._at:
                self._act()
            return found(*arguments, **keywords)

        return call


@pytest.mark.parametrize("mode", ["mapped", "written"])
def test_a_backup_of_a_live_store_has_what_was_acknowledged(mode: str) -> None:
    """The copy of an open store passes a full verification and opens with every message, in order."""
    ledger = Ledger()
    sim = busy(ledger, append_mode=mode)
    target = new_disk()
    result = back_up(sim.files, target)
    assert result.is_live
    assert result.end_offset == sim.store.log.appended_offset
    check_copy(target, ledger, append_mode=mode)


@pytest.mark.slow
def test_a_backup_at_every_change_of_the_store() -> None:
    """Whatever change the store is about to make, a backup taken then has what was acknowledged before."""
    ledger = Ledger()
    sim = busy(ledger, groups=18)
    rng, seen, number = random.Random(7), 0, 18

    def before(operation: Operation) -> None:
        nonlocal seen
        if operation.path.startswith(ROOT) and rng.random() < 0.2:
            sim.files.before = None
            seen += 1
            target = new_disk()
            back_up(sim.files, target)
            check_copy(target, ledger.copy())
            sim.files.before = before

    sim.files.before = before
    while seen < 40:
        work(sim, number)
        number += 1
    sim.files.before = None
    close_quietly(sim)


@pytest.mark.slow
def test_the_store_works_at_every_moment_of_a_backup() -> None:
    """Appends, checkpoints and removals by retention between any two reads of a backup leave it whole."""
    calls, at, seen = 1 << 30, 1, 0
    while at < calls:
        ledger = Ledger()
        clock = ManualClock()
        sim = SimStore(Shrinking(fresh_disk().root), ledger, clock, **RETENTION)
        for number in range(70):
            work(sim, number)
        clock.advance_ms(60_000)
        promised = ledger.copy()

        def act(sim: SimStore = sim, clock: ManualClock = clock) -> None:
            for number in range(100, 108):
                work(sim, number)
            for _ in range(3):
                clock.advance_ms(int(sim.store.retention.step()))

        files = Busy(sim.files, at, act)
        target = new_disk()
        result = back_up(files, target)
        calls = files.calls
        seen += bool(result.expired_to)
        promised.sent, promised.keys = ledger.sent, ledger.keys
        first = result.begin_offset
        for place in list(promised.kill_safe):
            offset = sim.store.physical_offset(*place)
            if offset is None or offset < first:
                del promised.kill_safe[place]
        assert first <= sim.store.log.min_offset
        if at < calls // 2:
            assert first == sim.store.log.min_offset, "segments that the source no longer has"
        assert len(promised.kill_safe) > 4
        check_copy(target, promised, mapped_file_size_consume_queue=20 * 4)
        close_quietly(sim)
        at += 5
    assert seen > 1, "retention never removed a file under a backup"


class Shrinking(CrashFileSystem):
    """A disk that is always above the forced ratio, so that each round of retention removes a segment."""

    def free_bytes(self, path: str) -> tuple[int, int]:
        return 10 << 20, 100 << 20


def test_a_closed_store_gives_a_closed_copy() -> None:
    """The copy of a stopped store starts without a recovery, and has the whole index."""
    ledger = Ledger()
    sim = busy(ledger)
    sim.close()
    target = new_disk()
    result = back_up(sim.files, target)
    assert not result.is_live
    copy = opened(target, ledger)
    assert copy.report.kind == "clean"
    check(copy.store, copy.ledger)
    close_quietly(copy)


@pytest.mark.slow
def test_a_second_backup_copies_new_bytes_only_and_dies_harmlessly() -> None:
    """Killed at any change, a second backup leaves a store with everything of the first; at the end it has the rest."""
    ledger = Ledger()
    sim = busy(ledger)
    base = new_disk()
    first = back_up(sim.files, base)
    early = ledger.copy()
    for number in range(30, 45):
        work(sim, number)
    early.sent, early.keys = ledger.sent, ledger.keys
    change, step = 0, random.Random(3)
    while True:
        target = base.after_kill()
        target.before = kill_at(change, random.Random(change))
        try:
            result = back_up(sim.files, target)
            break
        except Killed:
            copy = opened(target.after_kill(), early)
            check(copy.store, copy.ledger)
            close_quietly(copy)
        change += step.randint(1, 5)
    assert change > 20
    assert result.is_incremental
    assert result.copied_bytes == result.end_offset - first.end_offset
    target.before = None
    check_copy(target, ledger)
    note = read_note(target, StorePaths(COPY))
    assert note is None or note.end_offset == result.end_offset


@pytest.mark.slow
def test_an_unfinished_first_backup_is_not_opened_and_can_be_run_again() -> None:
    """A backup that dies leaves a directory that no broker opens as if it were whole."""
    ledger = Ledger()
    sim = busy(ledger)
    change, refused = 8, 0
    while True:
        target = new_disk()
        target.before = kill_at(change, random.Random(change))
        try:
            back_up(sim.files, target)
            break
        except Killed:
            left = target.after_kill()
        if left.exists(f"{COPY}/backup.unfinished"):
            with pytest.raises(BackupUnfinished):
                opened(left, ledger)
            refused += 1
        else:  # it died before its first file, or after its last
            assert left.exists(f"{COPY}/commitlog") == left.exists(f"{COPY}/backup.json")
        back_up(sim.files, left)
        check_copy(left, ledger)
        change += 23
    assert refused > 2
    assert change > 50


def test_offsets_of_empty_queues_are_kept() -> None:
    """A queue whose messages retention has all removed goes on at its offset in the copy."""
    ledger, clock = Ledger(), ManualClock()
    sim = SimStore(Shrinking(fresh_disk().root), ledger, clock, **RETENTION)
    for _ in range(4):
        sim.append([900], "B", 5)
    for number in range(24):
        sim.append([3000], "A", number % 3)
        sim.store.dispatcher.catch_up()
    sim.checkpoint()
    clock.advance_ms(60_000)
    for _ in range(6):
        sim.store.retention.step()
        clock.advance_ms(60_000)
    assert sim.store.min_offset("B", 5) == sim.store.max_offset("B", 5) == 4
    target = new_disk()
    back_up(sim.files, target)
    ledger.kill_safe.clear()
    copy = opened(target, ledger, mapped_file_size_consume_queue=20 * 4)
    assert copy.store.max_offset("B", 5) == 4
    close_quietly(copy)


def test_what_is_in_write_buffers_is_waited_for() -> None:
    """Bytes in surviving buffers are in the copy after the broker commits them; without a commit the backup says so."""
    ledger = Ledger()
    settings: dict[str, Any] = {
        "transient_store_pool_enable": True,
        "transient_store_pool_path": "/dev/shm",
        "transient_store_pool_size": 2,
    }
    files = fresh_disk()
    files.make_dirs(f"/proc/{os.getpid()}")
    files.open(f"/proc/{os.getpid()}/stat", create=True).write_at(0, b"1 (x) " + b"7 " * 30)  # the process is alive
    sim = SimStore(files, ledger, **settings)
    for number in range(12):
        sim.append([700], "A", number % 3)
    files.replace(f"{ROOT}/{PROGRESS}", b"0")
    assert sim.store.log.committed_offset < sim.store.log.appended_offset
    waits: list[int] = []

    def pause() -> None:
        waits.append(1)
        if len(waits) == 3:
            sim.commit()

    target = new_disk()
    try:
        result = back_up(sim.files, target, pause=pause, wanted_end=sim.store.log.appended_offset)
    finally:
        close_quietly(sim)
    assert len(waits) >= 3
    assert result.end_offset == sim.store.log.appended_offset
    check_copy(target, ledger)


def test_a_broker_that_never_writes_its_buffers_is_named() -> None:
    """An offset that the files do not reach ends the backup with a reason."""
    sim = busy(Ledger())
    with pytest.raises(BackupFailed, match="has acknowledged the log up to offset"):
        back_up(sim.files, new_disk(), wanted_end=sim.store.log.appended_offset + 1)


def test_refusals_change_nothing() -> None:
    """A directory with other files, another store's backup, a started backup, a small disk, no store, itself."""
    ledger = Ledger()
    sim = busy(ledger)
    target = new_disk()
    target.make_dirs(COPY)
    target.open(f"{COPY}/thesis.txt", create=True).close()
    with pytest.raises(BackupRefused, match="holds no backup"):
        back_up(sim.files, target)
    assert target.list(COPY) == ["thesis.txt"]
    target = new_disk()
    back_up(sim.files, target)
    other = SimStore(fresh_disk(), Ledger())
    for number in range(40):
        other.append([600], "Z", number % 2)
    with pytest.raises(BackupRefused, match="are others than the backup's"):
        back_up(other.files, target)
    check_copy(target, ledger)
    with pytest.raises(BackupRefused, match="has been started from the backup"):
        back_up(sim.files, target)
    target = new_disk()
    target.capacity_bytes = 16 << 20
    with pytest.raises(StoreFull, match="are needed"):
        back_up(sim.files, target)
    assert not target.exists(COPY)
    with pytest.raises(NotAStore):
        back_up(fresh_disk(), new_disk())
    with pytest.raises(BackupRefused, match="within each other"):
        Backup(ROOT, posixpath.join(ROOT, "config", "copy"), sim.files, sim.files).run()


def test_small_files_come_along_and_passwords_stay_private() -> None:
    """Tables of config/ and pocketmq/ are the source's; the record of the write buffers stays behind."""
    sim = busy(Ledger())
    for name in ("config/topics.json", "config/auth.json", "pocketmq/ha.json", "pocketmq/write_buffers.json"):
        sim.files.replace(f"{ROOT}/{name}", b'{"a":"%b"}' % name.encode())
    target = new_disk()
    private: list[str] = []
    open_private = target.open_private
    target.open_private = lambda path, **more: private.append(path) or open_private(path, **more)  # type: ignore
    back_up(sim.files, target)
    assert target.read_all(f"{COPY}/config/topics.json") == b'{"a":"config/topics.json"}'
    assert target.read_all(f"{COPY}/config/auth.json") == b'{"a":"config/auth.json"}'
    assert f"{COPY}/config/auth.json.tmp" in private
    assert not target.exists(f"{COPY}/pocketmq/write_buffers.json")
    positions = read_positions(target, StorePaths(COPY))
    assert positions is not None
    assert not positions.clean
    sim.files.remove(f"{ROOT}/config/topics.json")
    back_up(sim.files, target)
    assert not target.exists(f"{COPY}/config/topics.json")


def test_closed_segments_can_be_shared() -> None:
    """What shares a file is not copied; what cannot be shared is."""
    ledger = Ledger()
    sim = busy(ledger)
    target = new_disk()
    asked: list[str] = []

    def share(source: str, copy: str) -> bool:
        asked.append(source)
        if len(asked) % 2:
            return False
        target.replace(copy, sim.files.read_all(source))
        return True

    result = back_up(sim.files, target, share=share)
    assert result.shared_bytes == len(asked) // 2 * SEGMENT_BYTES > 0
    check_copy(target, ledger)


@pytest.mark.parametrize(
    "data", [b"", b"{}x", b"[]", b'{"version":9}', b'{"begin_offset":5,"end_offset":1}', b'{"end_offset":"1"}', b"\xff"]
)
def test_a_note_that_cannot_be_read_is_refused(data: bytes) -> None:
    """A damaged or foreign backup.json is no earlier backup to add to."""
    ledger = Ledger()
    sim = busy(ledger)
    target = new_disk()
    back_up(sim.files, target)
    target.replace(f"{COPY}/backup.json", data)
    with pytest.raises(BackupRefused, match="name a directory that does not exist"):
        back_up(sim.files, target)
    check_copy(target, ledger)


@pytest.mark.slow
def test_random_bytes_in_every_file_end_in_a_copy_or_in_an_error_of_ours() -> None:
    """Whatever the files of a store hold, a backup raises errors of the store only, and writes in its target only."""
    rng = random.Random(11)
    made = 0
    for _ in range(40):
        sim = busy(Ledger(), groups=12)
        for path in sim.files.image(ROOT):
            if rng.random() < 0.3:
                file = sim.files.open(path)
                file.write_at(0, rng.randbytes(rng.randint(1, 200)))
        before = sim.files.image(ROOT)
        target = new_disk()
        try:
            back_up(sim.files, target)
            made += 1
        except StoreError:
            pass
        assert sim.files.image(ROOT) == before
        assert all(path.startswith(COPY) for path in target.image("/backups"))
        close_quietly(sim)
    assert made > 5
