"""Retention is killed, or loses power, at each of its changes: a valid store remains."""

import random

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import PocketMQError
from tests.sim.checkers import SEGMENT_BYTES, Ledger, Place, SimStore, check, close_quietly, fresh_disk
from tests.sim.crash_file_system import CrashFileSystem, Killed, kill_at

SETTINGS = {
    "delete_when": "",
    "disk_space_clean_forcibly_ratio": 85,
    "disk_space_warning_level_ratio": 100,
    "clean_file_forcibly_enable": True,
    "mapped_file_size_consume_queue": 20 * 4,
}


class Full(CrashFileSystem):
    """A disk that is always above the forced ratio."""

    def free_bytes(self, path: str) -> tuple[int, int]:
        return 10 << 20, 100 << 20


def full(files: CrashFileSystem) -> Full:
    return Full(files.root)


def kept(clock: ManualClock) -> tuple[SimStore, dict[Place, int]]:
    """Return an open store of several durable segments, past its first minute, and where each message is in the log."""
    ledger = Ledger()
    sim = SimStore(full(fresh_disk()), ledger, clock, **SETTINGS)
    for number in range(30):
        clock.advance_ms(7)
        sim.append([700, 900], "AB"[number % 2], number % 3, key=f"key{number}")
        sim.store.dispatcher.catch_up()
    sim.store.index.flush()
    sim.store.components.flush.write_checksums()
    sim.checkpoint()
    at = {place: sim.store.physical_offset(*place) for place in ledger.kill_safe}
    clock.advance_ms(60_000)
    return sim, {place: offset for place, offset in at.items() if offset is not None}


def run_round(sim: SimStore, clock: ManualClock) -> None:
    while (wait := sim.store.retention.step()) <= 100:
        clock.advance_ms(wait)
    clock.advance_ms(wait)


def check_left(files: CrashFileSystem, ledger: Ledger, at: dict[Place, int], clock: ManualClock) -> int:
    """Open the store: whole segments are gone and nothing else is; its queues begin where its log does; a round more
    works. Return how many segments it has lost.
    """
    ledger = ledger.copy()
    sim = SimStore(full(files), ledger, clock, **SETTINGS)
    first = sim.store.log.min_offset
    assert first % SEGMENT_BYTES == 0
    for place, offset in at.items():
        if offset < first:
            ledger.kill_safe.pop(place, None)
            ledger.power_safe.pop(place, None)
            assert place[2] < sim.store.min_offset(place[0], place[1])
        else:
            assert place[2] >= sim.store.min_offset(place[0], place[1])
    check(sim.store, ledger)
    clock.advance_ms(60_000)
    run_round(sim, clock)
    assert sim.store.log.min_offset >= first
    close_quietly(sim)
    return first // SEGMENT_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True])
def test_a_round_that_dies_at_every_change(power: bool) -> None:
    """After a kill or a power loss: all acknowledged messages of the remaining segments are there."""
    seen: set[int] = set()
    change = 0
    while True:
        clock = ManualClock()
        sim, at = kept(clock)
        files = sim.files
        files.before = kill_at(change, random.Random(change))
        ledger = sim.ledger
        try:
            run_round(sim, clock)
            ended = True
        except Killed:
            ended = False
        if power:
            ledger.lost_power()
            for disk in files.crash_states(random.Random(change), 12):
                seen.add(check_left(disk, ledger, at, clock))
        else:
            seen.add(check_left(files.after_kill(), ledger, at, clock))
        if ended:
            break
        change += 1
    assert change > 10
    assert len(seen) > 3, "the deaths were not between the removals"


def test_appends_go_on_while_segments_are_removed() -> None:
    """Rounds alternate with appends: the end grows, the beginning follows, and no message in between is missing."""
    clock = ManualClock()
    sim, at = kept(clock)
    for number in range(12):
        sim.append([3000], "A", number % 3)
        sim.store.dispatcher.catch_up()
        if number % 3 == 2:
            sim.checkpoint()
        run_round(sim, clock)
    first = sim.store.log.min_offset
    assert first > 3 * SEGMENT_BYTES
    assert len(sim.store.log._segments) == (sim.store.log.appended_offset - first) // SEGMENT_BYTES + 1
    for place in [place for place in sim.ledger.kill_safe if at.get(place, 1 << 60) < first]:
        del sim.ledger.kill_safe[place]
    for place in [place for place in sim.ledger.kill_safe if place[2] < sim.store.min_offset(place[0], place[1])]:
        assert place not in at, "a message of a segment that is left"
        del sim.ledger.kill_safe[place]
    check(sim.store, sim.ledger)
    try:
        sim.store.close()
    except PocketMQError as error:  # pragma: no cover  the disk is well
        raise AssertionError from error
