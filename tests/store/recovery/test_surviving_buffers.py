"""What of a dead process's buffers reaches the log, and what does not: faults of every kind, one at a time."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.errors import ConfigError
from pocketmq.common.runner import SteppedRunner
from pocketmq.common.sealed_json import seal, unseal
from pocketmq.store.commitlog.buffer_header import HEADER_BYTES, IDENTITY_AT, WORDS
from pocketmq.store.commitlog.surviving_pool import SurvivingPool
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.errors import DiskError, StoreFull, StoreInUse
from pocketmq.store.message_store import MessageStore
from pocketmq.store.opening import OpenPlan
from tests.store.commitlog.test_write_buffer_pool import FakeMemory
from tests.store.log_fakes import SEGMENT_BYTES, HookedFileSystem, Stepped, bodies, store_config

TEXTS = [b"a" * 700, b"b" * 900, b"c" * 40]
BUFFER_BYTES = 8192


def settings(base: Path, **changes: object) -> dict[str, object]:
    (base / "shm").mkdir(exist_ok=True)
    pool: dict[str, object] = {
        "transient_store_pool_enable": True,
        "transient_store_pool_path": str(base / "shm"),
        "transient_store_pool_size": 3,
    }
    return pool | changes


def dead(base: Path, **changes: object) -> Path:
    """Let a store die with three messages in its buffers, and one in its file; return the directory of its buffers."""
    stepped = Stepped(base / "store", None, **settings(base, **changes))
    stepped.append(b"first")
    stepped.store.log.commit()
    for text in TEXTS:
        stepped.append(text)
    return release(stepped)


def release(stepped: Stepped) -> Path:
    """Let the locks go, as the death of the process does; nothing else is written."""
    pool, lock = stepped.store.pool, stepped.store.components.lock
    assert isinstance(pool, SurvivingPool)
    assert pool._file_lock is not None
    assert lock is not None
    pool._file_lock.release()
    lock.release()
    return Path(pool.directory)


def reopened(base: Path, plan: OpenPlan | None = None, **changes: object) -> Stepped:
    stepped = Stepped(base / "store", None, plan=plan, **settings(base, **changes))
    stepped.dispatch()
    return stepped


def events(stepped: Stepped) -> list[str]:
    names = [str(event["event"]) for event in stepped.log.events]
    return [name.removeprefix("write_buffers_") for name in names if name.startswith("write_buffers_")]


def buffer_in_use(directory: Path) -> Path:
    """Return the file of the buffer that holds the messages."""
    return next(path for path in sorted(directory.glob("[0-9]")) if TEXTS[0] in path.read_bytes())


def test_what_was_not_committed_is_there_again(tmp_path: Path) -> None:
    """In order, told in one event, and the files of the dead run are gone."""
    directory = dead(tmp_path)
    stepped = reopened(tmp_path)
    assert stepped.bodies() == [b"first", *TEXTS]
    assert events(stepped) == ["recovered"]
    assert not directory.exists()
    stepped.store.close()
    assert list((tmp_path / "shm").iterdir()) == []
    assert reopened(tmp_path).bodies() == [b"first", *TEXTS]


def test_without_the_pool_the_next_start_recovers_as_well(tmp_path: Path) -> None:
    """The record in the store counts, not the settings of the new run."""
    dead(tmp_path)
    stepped = reopened(tmp_path, transient_store_pool_enable=False)
    assert stepped.bodies() == [b"first", *TEXTS]
    assert list((tmp_path / "shm").iterdir()) == []


def flip(path: Path, at: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def link(path: Path) -> None:
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)


def second_name(path: Path) -> None:
    os.link(path, path.with_name("another"))


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (Path.unlink, "missing"),
    "cut": (cut, "truncated"),
    "grown": (lambda path: os.truncate(path, path.stat().st_size + 1), "truncated"),
    "empty": (lambda path: os.truncate(path, 0), "truncated"),
    "a link": (link, "foreign"),
    "two names": (second_name, "foreign"),
    "writable for others": (lambda path: path.chmod(0o666), "foreign"),
    "identity": (lambda path: flip(path, IDENTITY_AT + 20), "torn"),
    "a byte of a message": (lambda path: flip(path, HEADER_BYTES + 300), "changed"),
    "zeros": (lambda path: path.write_bytes(bytes(path.stat().st_size)), "torn"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_buffer_never_reaches_the_log(tmp_path: Path, fault: str) -> None:
    """It is told by its kind; what was committed is there, and the store works."""
    directory = dead(tmp_path)
    make, kind = FAULTS[fault]
    make(buffer_in_use(directory))
    stepped = reopened(tmp_path)
    assert stepped.bodies() == [b"first"]
    assert kind in events(stepped)
    assert not directory.exists()
    assert stepped.report.buffers.had
    assert not stepped.report.buffers.kept
    stepped.append(b"next")
    stepped.store.log.commit()
    stepped.dispatch()
    assert stepped.bodies() == [b"first", b"next"]
    quarantine = list((tmp_path / "store" / "pocketmq" / "quarantine").glob("write-buffer-*"))
    assert bool(quarantine) == (kind in ("changed", "torn", "truncated") and fault not in ("zeros", "empty"))


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "a byte of a message"])
def test_without_a_sound_owner_no_buffer_counts(tmp_path: Path, fault: str) -> None:
    """It says which buffers are needed, so nothing is written without it."""
    directory = dead(tmp_path)
    make, kind = FAULTS[fault]
    make(directory / "owner")
    stepped = reopened(tmp_path)
    assert stepped.bodies() == [b"first"]
    assert kind in events(stepped)


@given(st.integers(0, 8 * 8 * WORDS - 1))
def test_a_flipped_bit_in_the_words_of_a_header_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, bit: int
) -> None:
    """Every value is there twice: all messages are there, or (never) something is refused; nothing else comes."""
    base = tmp_path_factory.mktemp("flip")
    flip(buffer_in_use(dead(base)), bit // 8, bit % 8)
    stepped = reopened(base)
    assert stepped.bodies() == [b"first", *TEXTS]
    stepped.store.close()


@given(st.integers(0, 8 * 8 * WORDS - 1))
def test_a_flipped_bit_in_the_words_of_the_owner_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, bit: int
) -> None:
    """The same for the numbers of the buffers in use."""
    base = tmp_path_factory.mktemp("flip")
    flip(dead(base) / "owner", bit // 8, bit % 8)
    assert reopened(base).bodies() == [b"first", *TEXTS]


@given(st.integers(0, HEADER_BYTES - 1), st.binary(min_size=1, max_size=64), st.sampled_from(["owner", "buffer"]))
def test_a_header_torn_at_any_byte_gives_all_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, at: int, garbage: bytes, which: str
) -> None:
    """Bytes written over any place: the messages are there whole, or none of them is, and it is told."""
    base = tmp_path_factory.mktemp("torn")
    directory = dead(base)
    path = directory / "owner" if which == "owner" else buffer_in_use(directory)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(garbage[: HEADER_BYTES - at])
    stepped = reopened(base)
    found = stepped.bodies()
    assert found == [b"first", *TEXTS] or (found == [b"first"] and events(stepped) != ["recovered"])


@given(st.integers(0, HEADER_BYTES + BUFFER_BYTES))
def test_a_file_cut_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    """By its size."""
    base = tmp_path_factory.mktemp("cut")
    path = buffer_in_use(dead(base))
    os.truncate(path, min(size, path.stat().st_size - 1))
    stepped = reopened(base)
    assert stepped.bodies() == [b"first"]
    assert "truncated" in events(stepped)


@given(st.integers(0, 8 * 1700))
def test_a_bit_flipped_in_a_message_keeps_the_buffer_out(tmp_path_factory: pytest.TempPathFactory, bit: int) -> None:
    """The CRC has all bytes, headers and properties too."""
    base = tmp_path_factory.mktemp("message")
    path = buffer_in_use(dead(base))
    flip(path, HEADER_BYTES + bit // 8, bit % 8)
    stepped = reopened(base)
    assert stepped.bodies() == [b"first"]
    assert "changed" in events(stepped)


def test_buffers_of_another_store_are_foreign(tmp_path: Path) -> None:
    """Sound files, in the right place, of a store that is not this one."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    mine, other = dead(tmp_path / "one"), dead(tmp_path / "two")
    shutil.rmtree(mine)
    other.rename(mine)
    stepped = reopened(tmp_path / "one")
    assert stepped.bodies() == [b"first"]
    assert "foreign" in events(stepped)
    assert mine.exists(), "what is foreign is not touched"


def test_buffers_of_an_earlier_boot_are_stale(tmp_path: Path) -> None:
    """A path on a disk keeps them over the death of the machine; they are told, and not used."""
    directory = dead(tmp_path)
    record = tmp_path / "store" / "pocketmq" / "write_buffers.json"
    content = unseal(record.read_bytes())
    boot = (Path("/proc/sys/kernel/random/boot_id").read_text()).strip().encode()
    record.write_bytes(seal(content.replace(boot, b"another-boot")))
    stepped = reopened(tmp_path)
    assert stepped.bodies() == [b"first"]
    assert "stale" in events(stepped)
    assert not directory.exists()


def test_a_damaged_record_uses_no_buffer(tmp_path: Path) -> None:
    """It alone says which buffers are this store's; the directory stays, for people to look at."""
    directory = dead(tmp_path)
    record = tmp_path / "store" / "pocketmq" / "write_buffers.json"
    flip(record, 30)
    stepped = reopened(tmp_path)
    assert stepped.bodies() == [b"first"]
    assert events(stepped) == ["record_damaged"]
    assert directory.exists()
    assert not stepped.report.buffers.kept


def test_a_copied_store_leaves_the_buffers_of_the_other(tmp_path: Path) -> None:
    """The copy has what its log has; the store itself recovers everything afterwards."""
    directory = dead(tmp_path)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    copy = Stepped(tmp_path / "copy", None, **settings(tmp_path))
    copy.dispatch()
    assert copy.bodies() == [b"first"]
    assert "copy" in events(copy)
    assert directory.exists()
    assert reopened(tmp_path).bodies() == [b"first", *TEXTS]


def test_a_moved_store_takes_its_buffers_along(tmp_path: Path) -> None:
    """It is the only one with that identity."""
    dead(tmp_path)
    (tmp_path / "store").rename(tmp_path / "moved")
    stepped = Stepped(tmp_path / "moved", None, **settings(tmp_path))
    stepped.dispatch()
    assert stepped.bodies() == [b"first", *TEXTS]


def test_a_log_that_went_on_without_them_is_not_overwritten(tmp_path: Path) -> None:
    """Another program has written to the log since: the buffers are refused."""
    dead(tmp_path)
    record = tmp_path / "store" / "pocketmq" / "write_buffers.json"
    kept = record.read_bytes()
    record.unlink()
    other = reopened(tmp_path, transient_store_pool_enable=False)
    other.append(b"other")
    other.store.close()
    record.write_bytes(kept)
    stepped = reopened(tmp_path)
    assert stepped.bodies() == [b"first", b"other"]
    assert "log_differs" in events(stepped)


def test_a_live_owner_keeps_its_buffers(tmp_path: Path) -> None:
    """The store's lock refuses a second process; the lock of the directory refuses one that has a copy."""
    stepped = Stepped(tmp_path / "store", None, **settings(tmp_path))
    stepped.append(b"x")
    with pytest.raises(StoreInUse):
        reopened(tmp_path)
    lock = stepped.store.components.lock
    assert lock is not None
    lock.release()
    (tmp_path / "store").rename(tmp_path / "moved")
    with pytest.raises(StoreInUse):
        Stepped(tmp_path / "moved", None, **settings(tmp_path))


@pytest.mark.parametrize(("epochs", "found"), [(frozenset({3, 7}), 4), (frozenset({3}), 1), (frozenset(), 1)])
def test_bytes_of_an_epoch_that_is_not_ours_stay_out(tmp_path: Path, epochs: frozenset[int], found: int) -> None:
    """An old master's buffers, after another node has led."""
    stepped = Stepped(tmp_path / "store", None, **settings(tmp_path))
    stepped.append(b"first")
    stepped.store.close()
    stepped = reopened(tmp_path)
    stepped.store.set_epoch(7)
    for text in TEXTS:
        stepped.append(text)
    release(stepped)
    other = reopened(tmp_path, OpenPlan(epochs=epochs))
    assert len(other.bodies()) == found
    assert ("other_epoch" in events(other)) == (found == 1)


def test_a_cut_that_replication_orders_comes_after_the_buffers(tmp_path: Path) -> None:
    """What they held is a tail like any other: in the quarantine, not in the log."""
    dead(tmp_path)
    stepped = reopened(tmp_path, OpenPlan(cut_to=len(b"first") + 92))
    assert stepped.bodies() == [b"first"]
    assert stepped.store.appended_offset == len(b"first") + 92
    quarantine = tmp_path / "store" / "pocketmq" / "quarantine"
    assert TEXTS[0] in b"".join(path.read_bytes() for path in quarantine.iterdir())


def test_a_dropped_log_drops_the_buffers(tmp_path: Path) -> None:
    """They would be a tail without a log."""
    dead(tmp_path)
    stepped = reopened(tmp_path, OpenPlan(drop=True))
    assert stepped.bodies() == []
    assert stepped.store.appended_offset == 0
    assert "dropped" in events(stepped)


def test_too_little_shared_memory_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes, the path, what to do; and no file is left."""
    monkeypatch.setattr(OsFileSystem, "free_bytes", lambda self, path: (20_000, 1 << 40))
    with pytest.raises(ConfigError, match="33248 bytes too few") as refused:
        Stepped(tmp_path / "store", None, **settings(tmp_path, transient_store_pool_size=3))
    assert str(tmp_path / "shm") in str(refused.value)
    assert "--shm-size" in str(refused.value)
    assert list((tmp_path / "shm").iterdir()) == []


def test_buffers_of_another_dead_store_are_named_and_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose they are, and what to do."""
    (tmp_path / "other").mkdir()
    other = dead(tmp_path / "other")
    (tmp_path / "shm").mkdir()
    moved = tmp_path / "shm" / other.name
    other.rename(moved)
    live = reopened(tmp_path)
    assert "of_another_store" not in events(live), "its process, this one, is alive"
    live.store.close()
    monkeypatch.setattr("pocketmq.store.commitlog.buffer_leftovers.process_start", lambda files, pid: "")
    stepped = reopened(tmp_path)
    (named,) = [event for event in stepped.log.events if event["event"] == "write_buffers_of_another_store"]
    assert (named["directory"], named["store"]) == (str(moved), str(tmp_path / "other" / "store"))
    stepped.store.close()
    assert moved.exists()


def test_a_refused_append_does_not_come_back_after_a_kill(tmp_path: Path) -> None:
    """Its head was in a buffer, and its tail met a sick disk: the sender was refused."""
    sick: list[str] = []

    def hook(operation: str, path: str) -> None:
        if sick and operation == "write" and path.endswith(sick[0]):
            raise DiskError("EIO")

    changes = settings(tmp_path, transient_store_pool_size=1)
    stepped = Stepped(tmp_path / "store", HookedFileSystem(hook), **changes)
    stepped.append(b"a" * 5000)
    sick.append(f"{SEGMENT_BYTES:020d}")
    refused = stepped.store.append(bodies(b"b" * 2000, b"c" * 5000))
    assert not refused.status.is_stored
    release(stepped)
    assert reopened(tmp_path).bodies() == [b"a" * 5000]


@pytest.mark.parametrize(("locks", "is_memory"), [(9, True), (1, True), (9, False)])
def test_only_locked_buffers_in_memory_cannot_stall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: int, is_memory: bool
) -> None:
    """Reserved they are always; where the lock is refused the store works, and says so."""
    monkeypatch.setattr("pocketmq.store.commitlog.surviving_pool.is_shared_memory", lambda files, path: is_memory)
    store = MessageStore(
        store_config(tmp_path / "store", **settings(tmp_path)), memory=FakeMemory(locks), runner=SteppedRunner()
    )
    assert not store.appends_cannot_stall
    store.open()
    assert store.pool_memory_locked == (locks > 3)
    assert store.appends_cannot_stall == (locks > 3 and is_memory)
    store.close()
    assert not store.appends_cannot_stall


def test_a_machine_without_shared_memory_has_the_anonymous_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a warning; a path that somebody has set must be there."""
    monkeypatch.setattr("pocketmq.store.commitlog.surviving_pool.SHARED_MEMORY", str(tmp_path / "none"))
    pool = {"transient_store_pool_enable": True, "transient_store_pool_path": str(tmp_path / "none")}
    stepped = Stepped(tmp_path / "store", None, **pool)
    assert "do_not_survive" in events(stepped)
    assert stepped.store.pool is not None
    assert not stepped.store.pool.survives
    stepped.append(b"x")
    stepped.store.close()
    with pytest.raises(ConfigError, match="does not exist"):
        Stepped(tmp_path / "store", None, **pool | {"transient_store_pool_path": str(tmp_path / "other")})


@pytest.mark.parametrize("failing", ["reserve", "create"])
def test_a_pool_that_cannot_be_made_leaves_nothing(tmp_path: Path, failing: str) -> None:
    """Full memory is told as too little of it, whatever was free before; a sick one as what it is."""
    made: list[str] = []

    def hook(operation: str, path: str) -> None:
        if "/shm/" in path and operation == failing:
            made.append(path)
            if len(made) == 3:
                raise StoreFull("no space")

    changes = settings(tmp_path)
    with pytest.raises((ConfigError, StoreFull), match="too little shared memory"):
        Stepped(tmp_path / "store", HookedFileSystem(hook), **changes)
    assert list((tmp_path / "shm").iterdir()) == []
    stepped = reopened(tmp_path)
    assert events(stepped) == []
    stepped.store.close()
