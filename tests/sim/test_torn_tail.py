"""The end of a log after a kill in the middle of a copy, and after a power cut that lost some pages."""

import errno
import random

import numpy as np
import pytest

from pocketmq.common.clock import ManualClock
from tests.sim.checkers import ROOT, SEGMENT_BYTES, Ledger, SimStore, check, close_quietly, fresh_disk
from tests.sim.crash_disk import PAGE
from tests.sim.crash_file_system import CrashFileSystem, Fault, Killed, Operation

LOG = f"{ROOT}/commitlog/{0:020d}"


def killed_in_a_copy(seed: int, records: int, body_bytes: int) -> tuple[CrashFileSystem, Ledger, int]:
    """Return a disk after a kill in the middle of the copy of one group into the map; the end before it."""
    rng = random.Random(seed)
    ledger = Ledger()
    sim = SimStore(fresh_disk(), ledger)
    sim.append([50, 60])
    end = sim.store.appended_offset

    def kill(operation: Operation) -> Fault | None:
        if operation.kind == "store":
            return Fault(None, rng.randrange(operation.length // 2, operation.length), rng=rng)
        return None

    sim.files.before = kill
    with pytest.raises(Killed):
        sim.append([body_bytes] * records)
    return sim.files.after_kill(), ledger, end


@pytest.mark.parametrize("body_bytes", [300, 500])
def test_a_group_whose_copy_was_cut_off_leaves_no_damage(body_bytes: int) -> None:
    """Whichever of its lines the map has, even its end alone: the group is cut, and the report lists it."""
    cut = 0
    for seed in range(60):
        files, ledger, end = killed_in_a_copy(seed, 12, body_bytes)
        sim = SimStore(files, ledger)  # asserts that there is no damage
        assert sim.report.end_offset == end
        cut += sim.report.cut_bytes > 0
        assert not any(files.image()[LOG][end:])
        check(sim.store, ledger)
        close_quietly(sim)
    assert cut == 60


@pytest.mark.parametrize("append_mode", ["mapped", "written"])
def test_a_small_group_whose_write_was_cut_off_leaves_no_damage(append_mode: str) -> None:
    """Wherever its part ends: within a head, a body, the properties, or between two records."""
    sizes = [10, 0, 70]
    plain = SimStore(fresh_disk(), Ledger(), append_mode=append_mode)
    plain.append([50, 60])
    start = plain.store.appended_offset
    plain.append(sizes)
    end, whole = plain.store.appended_offset, plain.files.image()[LOG]
    close_quietly(plain)
    for taken in range(1, end - start):
        ledger = Ledger()
        sim = SimStore(fresh_disk(), ledger, append_mode=append_mode)
        sim.append([50, 60])

        def kill(operation: Operation, taken: int = taken) -> Fault | None:
            return Fault(None, taken) if operation.kind == "write" and operation.path == LOG else None

        sim.files.before = kill
        with pytest.raises(Killed):
            sim.append(sizes)
        files = sim.files.after_kill()
        found = SimStore(files, ledger, append_mode=append_mode)  # asserts that there is no damage
        kept = found.report.end_offset
        assert start <= kept <= end
        assert files.image()[LOG] == whole[:kept].ljust(SEGMENT_BYTES, b"\0")
        check(found.store, ledger)
        close_quietly(found)


@pytest.mark.parametrize("position", range(PAGE - 10, PAGE + 1))
def test_a_head_that_lies_on_two_pages_leaves_no_damage(position: int) -> None:
    """A write can be cut at the end of a page. The head of a large group is written last, after the rest."""
    for taken in (1, 2, 3, 4, 5, 6, 7, PAGE, 4500):
        ledger = Ledger()
        sim = SimStore(fresh_disk(), ledger)
        sim.append([1000])
        sim.append([position - sim.store.appended_offset - record_bytes(0)])
        assert sim.store.appended_offset == position
        written: list[int] = []

        def kill(operation: Operation, taken: int = taken, written: list[int] = written) -> Fault | None:
            if operation.kind != "write" or operation.path != LOG:
                return None
            written.append(operation.length)
            return Fault(None, min(taken, operation.length - 1))

        sim.files.before = kill
        with pytest.raises(Killed):
            sim.append([1500] * 3)
        files = sim.files.after_kill()
        found = SimStore(files, ledger)  # asserts that there is no damage
        check(found.store, ledger)
        close_quietly(found)
        assert written == [8 if position not in (PAGE - 7, PAGE - 6, PAGE - 5) else 3 * record_bytes(1500)]


def record_bytes(body_bytes: int) -> int:
    """Return the size of a record of ``SimStore.append``, whose number in the body has one digit."""
    sim = SimStore(fresh_disk(), Ledger())
    sim.append([body_bytes])
    close_quietly(sim)
    return sim.store.appended_offset


def lost_pages(sim: SimStore, *pages: int) -> CrashFileSystem:
    """Return the disk after a power cut that lost only these pages of the log."""
    files = sim.files.after_kill()
    inode = files.inode(LOG)
    for page in pages:
        inode.data[page * PAGE : (page + 1) * PAGE] = np.frombuffer(inode.durable_page(page), np.uint8)
    return files


def test_after_a_power_cut_whole_groups_behind_a_lost_one_stay() -> None:
    """ASYNC_FLUSH: later messages keep their offsets, the hole is reported, and stays reported."""
    ledger, clock = Ledger(), ManualClock()
    sim = SimStore(fresh_disk(), ledger, clock)
    for _ in range(12):
        clock.advance_ms(1)
        sim.append([900])
    files = lost_pages(sim, 1)
    ledger.lost_power()
    found = SimStore(files, ledger, clock)
    assert [(part.start // PAGE, part.end // PAGE) for part in found.report.damaged] == [(0, 2)]
    readable = check(found.store, ledger)
    assert [offset for _, _, offset in readable] == [0, 1, 2, 3, 9, 10, 11]
    found.append([30])
    again = SimStore(found.files.after_kill(), ledger, clock)
    assert again.report.damaged == found.report.damaged
    assert [offset for _, _, offset in check(again.store, ledger)] == [0, 1, 2, 3, 9, 10, 11, 12]
    close_quietly(again)


def test_after_a_power_cut_the_rest_of_one_unfinished_group_goes() -> None:
    """Its first page is lost, its last is there: it was never acknowledged, so there is no damage."""
    ledger, clock = Ledger(), ManualClock()
    sim = SimStore(fresh_disk(), ledger, clock, flush_disk_type="SYNC_FLUSH")
    sim.append([20])
    sim.step("group-commit")
    clock.advance_ms(1)
    sim.append([900] * 9)
    files = lost_pages(sim, 0, 1)
    ledger.lost_power()
    found = SimStore(files, ledger, clock, flush_disk_type="SYNC_FLUSH")
    assert found.report.damaged == []
    assert found.report.cut_bytes > PAGE
    assert len(check(found.store, ledger)) == 1
    close_quietly(found)


@pytest.mark.parametrize("evidence", ["checksums", "write_queues"])
def test_a_group_that_was_certainly_finished_is_never_cut(evidence: str) -> None:
    """A page of zeros in an unsynced log: if a checksum or a queue names the bytes behind it, they stay."""
    ledger, clock = Ledger(), ManualClock()
    sim = SimStore(fresh_disk(), ledger, clock)
    sim.append([900] * 4)
    sim.append([900] * 6)  # the same store time: it could be one group
    if evidence == "checksums":
        sim.store.components.flush.write_checksums()
    else:
        sim.store.dispatcher.catch_up()
        sim.store.consume_queues.flush()
    files = lost_pages(sim, 1)
    ledger.lost_power()
    found = SimStore(files, ledger, clock)
    assert found.report.cut_bytes == 0
    assert len(found.report.damaged) == 1
    assert len(check(found.store, ledger)) == 5
    assert found.store.max_offset("A", 0) == 10
    close_quietly(found)


def test_offsets_of_damaged_messages_are_not_given_to_others() -> None:
    """Also when the damaged ones are the last of their queue: a consumer that has read them is not sent back."""
    ledger, clock = Ledger(), ManualClock()
    sim = SimStore(fresh_disk(), ledger, clock)
    sim.append([30, 30], "A")
    sim.append([30, 30], "B")
    sim.store.close()
    files = sim.files.after_kill()
    sim = SimStore(files, ledger, clock)
    assert sim.report.kind == "clean"
    close_quietly(sim)
    body = next(body for body, place in ledger.sent.items() if place == ("B", 0, 1))
    at = files.image()[LOG].index(body)
    files.inode(LOG).data[at] ^= 1
    del ledger.kill_safe["B", 0, 1]
    found = SimStore(files, Ledger(ledger.sent, ledger.keys, ledger.kill_safe, only_kills=False), clock)
    assert found.report.reason == "the last group is damaged"
    assert [part.end for part in found.report.damaged] == [found.report.end_offset]
    assert found.report.cut_bytes == 0
    check(found.store, ledger)
    assert found.store.max_offset("B", 0) == 2
    found.append([10], "B")
    assert ledger.sent[list(ledger.sent)[-1]] == ("B", 0, 2)
    found.store.close()
    again = SimStore(found.files.after_kill(), Ledger(ledger.sent, ledger.keys, only_kills=False), clock)
    assert (again.report.kind, again.store.max_offset("B", 0)) == ("clean", 3)
    close_quietly(again)


def test_what_a_failed_append_left_is_no_clean_stop() -> None:
    """The disk failed in a write, and again when the rest was to be zeroed: the next start zeroes it."""
    ledger, clock = Ledger(), ManualClock()
    sim = SimStore(fresh_disk(), ledger, clock, append_mode="written")
    sim.append([30])
    end = sim.store.appended_offset

    def fail(operation: Operation) -> Fault | None:
        if operation.kind == "write" and "commitlog" in operation.path:
            return Fault(errno.EIO, taken=operation.length - 10)
        return Fault(errno.EIO) if operation.kind == "zero" else None

    sim.files.before = fail
    sim.append([100] * 5)
    assert sim.store.appended_offset == end
    sim.store.close()
    sim.files.before = None
    assert any(sim.files.image()[LOG][end:])
    found = SimStore(sim.files.after_kill(), ledger, clock, append_mode="written")
    assert found.report.kind == "unclean"
    assert not any(found.files.image()[LOG][found.report.end_offset :])
    close_quietly(found)


def test_a_prepared_segment_that_comes_back_after_a_clean_stop_is_removed() -> None:
    """Its removal was not durable. Appends after the roll must not go to a file that another one replaces."""
    ledger, clock = Ledger(), ManualClock()
    sim = SimStore(fresh_disk(), ledger, clock)
    sim.append([900] * 6)
    sim.runner.run_until_idle()  # the next segment is prepared
    sim.close()
    names = sim.files.after_kill()
    names.open(f"{ROOT}/commitlog/{SEGMENT_BYTES:020d}", create=True).reserve(SEGMENT_BYTES)
    found = SimStore(names, ledger, clock)
    assert found.report.kind == "clean"
    for _ in range(4):
        found.append([900] * 6)
        found.runner.run_until_idle()
    again = SimStore(found.files.after_kill(), ledger, clock)
    assert len(check(again.store, ledger)) == 30
    close_quietly(again)
