"""Every moment of death of a process with surviving write buffers, and of its machine."""

import random
import time

import pytest

from pocketmq.common.clock import ManualClock
from tests.profiles import lives_ns, tries
from tests.sim.checkers import Ledger, SimStore, check, fresh_disk
from tests.sim.crash_file_system import Killed, kill_at
from tests.sim.schedules import SURVIVING, random_life, recover_and_check, run_schedule
from tests.sim.seeds import base_seed

SETTINGS = SURVIVING | {"transient_store_pool_size": 4}


@pytest.mark.slow
@pytest.mark.scaled
@pytest.mark.parametrize("buffer_bytes", [0, 4096])
@pytest.mark.parametrize("last", ["append", "roll", "commit", "checkpoint", "close"])
def test_no_death_of_the_process_loses_an_acknowledged_message(last: str, buffer_bytes: int) -> None:
    """Killed at every change of disk and memory; when the machine dies, only what was flushed is promised."""
    for first in ("append", "roll")[: tries(1, 2)]:
        steps = [first, "commit", "append_b", last]
        outcome = run_schedule(steps, random.Random(2), 2, **SETTINGS, transient_store_pool_buffer_size=buffer_bytes)
        assert outcome.crashes > 3


def test_an_uncommitted_message_is_there_after_a_kill() -> None:
    """And gone after the machine's death; both are told."""
    ledger = Ledger()
    sim = SimStore(fresh_disk(), ledger, ManualClock(), **SETTINGS)
    sim.append([10, 20])
    assert sim.store.committed_offset < sim.store.appended_offset
    killed = SimStore(sim.files.after_kill(), ledger.copy(), ManualClock(), **SETTINGS)
    assert list(check(killed.store, ledger).values()) == list(ledger.sent)
    assert killed.report.buffers.kept
    assert killed.report.buffers.written_bytes == sim.store.appended_offset
    lost = ledger.copy()
    lost.lost_power()
    dead = SimStore(sim.files.after_power_loss(lambda count: count - 1), lost, ManualClock(), **SETTINGS)
    assert check(dead.store, lost) == {}
    assert "write_buffers_stale" in [event["event"] for event in dead.log.events]


@pytest.mark.slow
def test_a_start_that_is_killed_at_any_change_is_repeated() -> None:
    """Recovery of the buffers, killed anywhere, and then once more, loses nothing."""
    ledger = Ledger()
    sim = SimStore(fresh_disk(), ledger, ManualClock(), **SETTINGS, transient_store_pool_buffer_size=4096)
    for sizes in ([10, 3000], [5000], [100]):
        sim.append(sizes)
    rng = random.Random(3)
    for change in range(1000):
        files = sim.files.after_kill()
        files.before = kill_at(change, rng)
        try:
            SimStore(files, ledger.copy(), ManualClock(), **SETTINGS)
        except Killed:
            recover_and_check(files.after_kill(), ledger, ManualClock(), **SETTINGS)
        else:
            break
    else:
        raise AssertionError("the start never ended")
    assert change > 20


def test_a_clean_stop_leaves_nothing_in_shared_memory() -> None:
    """No file, no directory."""
    sim = SimStore(fresh_disk(), Ledger(), ManualClock(), **SETTINGS)
    sim.append([10])
    assert sim.files.list("/dev/shm")
    sim.close()
    assert sim.files.list("/dev/shm") == []


@pytest.mark.slow
@pytest.mark.scaled
def test_random_lives_with_surviving_buffers(capsys: pytest.CaptureFixture[str]) -> None:
    """Buffers of every size, kills of the process and of its recoveries, deaths of the machine."""
    seed = base_seed()
    crashes = number = 0
    deadline_ns = time.monotonic_ns() + lives_ns() // 4
    while number < 3 or time.monotonic_ns() < deadline_ns:
        sizes = {"transient_store_pool_size": number % 4 + 1, "transient_store_pool_buffer_size": number % 5 * 4096}
        try:
            crashes += random_life(seed + number, flush_disk_type="ASYNC_FLUSH", **SURVIVING | sizes).crashes
        except BaseException as error:
            error.add_note(f"POCKETMQ_SEED={seed + number}, {sizes}")
            raise
        number += 1
    with capsys.disabled():
        print(f" seed {seed}, {number} lives, {crashes} crashes", end="")
    assert crashes > number
