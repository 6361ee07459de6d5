"""A recovery is killed, or loses power, at each of its changes; and its rebuilt files are exact."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.store.checkpoint import Checkpoint
from tests import profiles
from tests.sim.checkers import ROOT, SEGMENT_BYTES, Ledger, SimStore, check, close_quietly, fingerprint, fresh_disk
from tests.sim.crash_disk import Directory, Inode
from tests.sim.crash_file_system import CrashFileSystem, Killed, kill_at

LOG = f"{ROOT}/commitlog"


def lived(clock: ManualClock, *, checkpointed: bool = True) -> tuple[CrashFileSystem, Ledger]:
    """Return a killed store: several segments and queues, keys, a checkpoint in the middle, queues too."""
    ledger = Ledger()
    sim = SimStore(fresh_disk(), ledger, clock)
    for number in range(24):
        clock.advance_ms(7)
        sim.append([700, 900], "AB"[number % 2], number % 3, key=f"key{number}")
        sim.store.dispatcher.catch_up()
        sim.store.index.flush()
        if number == 9 and checkpointed:
            sim.checkpoint()
    sim.store.consume_queues.flush(force=True)
    sim.store.components.flush.write_checksums()
    sim.store.log.flush()
    return sim.files.after_kill(), ledger


def with_trouble(files: CrashFileSystem, ledger: Ledger) -> None:
    """Damage a message, tear the end, leave segments of rubbish behind it."""
    ledger.only_kills = False
    body = next(body for body, place in ledger.sent.items() if place == ("A", 2, 4))
    path = next(path for path, inode in files.files(LOG) if body in inode.data.tobytes())
    files.inode(path).data[files.inode(path).data.tobytes().index(body)] ^= 1
    del ledger.kill_safe["A", 2, 4]
    with_rubbish(files)


def with_rubbish(files: CrashFileSystem) -> None:
    """Tear the end of the log, leave segments of rubbish behind it, all of it durable."""
    last = files.files(LOG)[-1]
    end = int(np.flatnonzero(last[1].data)[-1])
    last[1].data[end + 1 : end + 600] = 7
    names = files._find(LOG)
    assert isinstance(names, Directory)
    for number in (1, 2, 3):
        base = int(last[0].rsplit("/", 1)[1]) + number * SEGMENT_BYTES
        inode = Inode(bytes([9]) * SEGMENT_BYTES)
        names.names[f"{base:020d}"] = inode
    for _, inode in files.files(LOG):
        inode.durable, inode.sizes = inode.data.tobytes(), []
        inode.versions.clear()
    names.sync()


def recovered(files: CrashFileSystem, ledger: Ledger, clock: ManualClock) -> dict[str, bytes]:
    """Recover, check, close; return log, queues and index."""
    sim = SimStore(files, ledger, clock)
    check(sim.store, ledger)
    sim.store.close()
    return fingerprint(files)


def at_every_change(
    files: CrashFileSystem, ledger: Ledger, clock: ManualClock, then: Callable[[CrashFileSystem], None]
) -> int:
    """Kill a recovery at each change of the disk in turn; call ``then`` with the result; return the number of kills."""
    change = 0
    while True:
        copy = files.after_kill()
        copy.before = kill_at(change, random.Random(change))
        try:
            sim = SimStore(copy, ledger, clock)
        except Killed:
            then(copy)
            change += 1
            continue
        copy.before = None
        close_quietly(sim)
        return change


@pytest.mark.slow
@pytest.mark.parametrize("is_sick", [False, True])
def test_a_recovery_killed_at_every_change_ends_with_the_same_store(is_sick: bool) -> None:
    """Log, consume queues and index equal those of an undisturbed recovery byte for byte."""
    clock = ManualClock()
    files, ledger = lived(clock)
    if is_sick:
        with_trouble(files, ledger)
    wanted = recovered(files.after_kill(), ledger, clock)

    def again(left: CrashFileSystem) -> None:
        assert recovered(left.after_kill(), ledger, clock) == wanted

    assert at_every_change(files, ledger, clock, again) > 10


@pytest.mark.slow
def test_a_recovery_that_loses_its_power_at_every_change() -> None:
    """Whichever of its own changes reached the disk: all durable messages are there, and the log is the same."""
    clock = ManualClock()
    files, ledger = lived(clock)
    with_trouble(files, ledger)
    ledger.lost_power()
    sane = list(files.crash_states(random.Random(3), 2))[-1]

    def log_of(image: dict[str, bytes]) -> dict[str, bytes]:
        return {path: data for path, data in image.items() if "/commitlog/" in path}

    wanted = log_of(recovered(sane.after_kill(), ledger, clock))

    def again(left: CrashFileSystem) -> None:
        for disk in left.crash_states(random.Random(4), 5):
            assert log_of(recovered(disk, ledger, clock)) == wanted

    assert at_every_change(sane, ledger, clock, again) > 10


@pytest.mark.parametrize("lost", ["consumequeue", "index", "checksums", "pocketmq", "checkpoint", "all"])
@pytest.mark.parametrize("clean", [True, False])
def test_what_can_be_rebuilt_is_rebuilt_byte_for_byte(lost: str, clean: bool) -> None:
    """Whichever files beside the log are missing: queues and index become the same again."""
    clock = ManualClock()
    files, ledger = lived(clock)
    wanted = recovered(files.after_kill(), ledger, clock)
    if clean:
        recovered(files, ledger, clock)
        files = files.after_kill()
    for kind in ("consumequeue", "index", "checksums", "pocketmq", "checkpoint") if lost == "all" else (lost,):
        if kind == "checkpoint":
            files.remove(f"{ROOT}/checkpoint")
        else:
            files.remove_tree(f"{ROOT}/{kind}", below=ROOT)
    assert recovered(files, ledger, clock) == wanted


@pytest.mark.parametrize("content", [b"", b"rubbish", Checkpoint(1 << 60, 1 << 60, 1 << 60).encode(), bytes(4096)])
def test_a_wrong_checkpoint_loses_nothing(content: bytes) -> None:
    """This holds without our own positions, too, as in a store of RocketMQ, and with an abort marker."""
    clock = ManualClock()
    files, ledger = lived(clock, checkpointed=False)
    wanted = recovered(files.after_kill(), ledger, clock)
    files.remove_tree(f"{ROOT}/pocketmq", below=ROOT)
    files.remove(f"{ROOT}/checkpoint")
    files.open(f"{ROOT}/checkpoint", create=True).write_at(0, content)
    sim = SimStore(files, ledger, clock)
    assert (sim.report.kind, sim.report.damaged) == ("unclean", [])
    check(sim.store, ledger)
    sim.store.close()
    if content != Checkpoint(1 << 60, 1 << 60, 1 << 60).encode():
        assert fingerprint(files) == wanted


@pytest.mark.slow
@pytest.mark.scaled
@pytest.mark.parametrize("append_mode", ["mapped", pytest.param("written", marks=pytest.mark.soak)])
def test_no_old_record_comes_back(append_mode: str) -> None:
    """Crash, recover, append one record of the same size, crash, recover: nothing of the first life's end is there."""
    for seed in range(3 if profiles.profile() == "fast" else 12):
        rng = random.Random(seed)
        clock, ledger = ManualClock(), Ledger()
        sim = SimStore(fresh_disk(), ledger, clock, append_mode=append_mode)
        for number in range(20):
            clock.advance_ms(1)
            sim.append([700])
            if number == 3:
                sim.flush()
        for disk in sim.files.crash_states(rng, 12):
            then = ledger.copy()
            then.lost_power()
            first = SimStore(disk, then, clock, append_mode=append_mode)
            seen = check(first.store, then)
            first.append([700])
            for again in first.files.crash_states(rng, 3):
                later = then.copy()
                later.power_safe.update(seen)  # a recovery syncs its findings
                later.lost_power()
                last = SimStore(again, later, clock, append_mode=append_mode)
                assert set(check(last.store, later).values()) <= {*seen.values(), list(then.sent)[-1]}
                close_quietly(last)
            close_quietly(first)


@pytest.mark.parametrize("at_checkpoint", [True, False])
def test_what_a_killed_recovery_took_away_does_not_come_back(at_checkpoint: bool) -> None:
    """The next recovery sees zeros and no segment, and must make them durable before any append, even if it verifies no
    record.
    """
    clock, ledger = ManualClock(), Ledger()
    sim = SimStore(fresh_disk(), ledger, clock)
    for number in range(3):
        sim.append([700, 900], "A", number, key="k")
    sim.store.dispatcher.catch_up()
    if at_checkpoint:
        sim.checkpoint()
    files = sim.files.after_kill()
    with_rubbish(files)

    def then(left: CrashFileSystem) -> None:
        again = left.after_kill()
        end = SimStore(again, ledger, clock).report.end_offset
        for disk in again.crash_states(random.Random(end), 4):
            for path, inode in disk.files(LOG):
                name = path.rsplit("/", 1)[1]
                if name.isdecimal():
                    assert not inode.data[max(0, end - int(name)) :].any(), f"{name} has bytes behind {end}"

    assert at_every_change(files, ledger, clock, then) > 10
