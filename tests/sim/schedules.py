"""Steps of a store's life, crashes between them and in the middle of them, and the checks afterwards.

Lives here: the steps, ``run_schedule`` (a list of steps, then every crash that is wanted), ``random_life`` (one seed: a
store that lives, dies and comes back several times).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.common.clock import ManualClock
from tests.sim.checkers import ROOT, SEGMENT_BYTES, Ledger, SimStore, check, close_quietly, fingerprint, fresh_disk
from tests.sim.crash_file_system import CrashFileSystem, Killed, kill_at

_OFTEN = (
    *("commit", "flush", "group_commit", "group_commit", "dispatch", "dispatch"),
    *("write_queues", "checksums", "checkpoint"),
)
SURVIVING: dict[str, object] = {"transient_store_pool_enable": True, "transient_store_pool_path": "/dev/shm"}
"""Write buffers that outlive the process."""
Step = Callable[[SimStore], None]

STEPS: dict[str, Step] = {
    "append": lambda sim: sim.append([300, 20, 500]),
    "append_b": lambda sim: sim.append([60], "B", 1, key="k"),
    "roll": lambda sim: sim.append([SEGMENT_BYTES // 3] * 2),
    "commit": lambda sim: sim.commit(),
    "flush": lambda sim: sim.flush(),
    "group_commit": lambda sim: sim.step("group-commit") if sim.is_sync else sim.flush(),
    "dispatch": lambda sim: sim.store.dispatcher.catch_up(),
    "write_queues": lambda sim: sim.store.consume_queues.flush(force=True),
    "checksums": lambda sim: sim.store.components.flush.write_checksums(),
    "checkpoint": lambda sim: sim.checkpoint(),
    "close": lambda sim: sim.close(),
}


@dataclass(slots=True)
class Outcome:
    """How many crashes were tried, and the findings of their recoveries."""

    crashes: int = 0
    cut: int = 0
    damaged: int = 0

    def add(self, other: "Outcome") -> None:
        self.crashes += other.crashes
        self.cut += other.cut
        self.damaged += other.damaged


def recover_and_check(files: CrashFileSystem, ledger: Ledger, clock: ManualClock, **changes: object) -> Outcome:
    """Open a crashed store, check it, append, crash again, check again; the second recovery must find the same."""
    ledger = ledger.copy()
    first = SimStore(files, ledger, clock, **changes)
    readable = check(first.store, ledger)
    ledger.kill_safe.update(readable)  # a recovery makes its findings durable
    ledger.power_safe.update(readable)
    first.append([40])
    first.append([40], "B", 1)
    copy = first.files.after_kill()
    ledger_then = ledger.copy()
    second = SimStore(copy, ledger_then, clock, **changes)
    check(second.store, ledger_then)
    assert [(part.start, part.end) for part in second.report.damaged] == [
        (part.start, part.end) for part in first.report.damaged
    ]
    close_quietly(second)
    third = SimStore(second.files, ledger_then, clock, **changes)
    assert third.report.kind == "clean", third.report
    check(third.store, ledger_then)
    close_quietly(third)
    close_quietly(first)
    return Outcome(1, int(first.report.cut_bytes > 0), len(first.report.damaged))


def run_schedule(names: list[str], rng: random.Random, states_max: int, **changes: object) -> Outcome:
    """Take the steps, then try crashes: after them, and in the middle of the last one at every change of the disk."""
    outcome = Outcome()

    def live(steps: list[str], killer: tuple[int, random.Random] | None) -> tuple[SimStore | None, SimStore, Ledger]:
        ledger, clock = Ledger(), ManualClock()
        sim = SimStore(fresh_disk(), ledger, clock, **changes)
        for number, name in enumerate(steps):
            clock.advance_ms(1)
            if killer is not None and number == len(steps) - 1:
                sim.files.before = kill_at(*killer)
            try:
                if not sim.store._is_open:
                    sim = SimStore(sim.files, ledger, clock, **changes)
                STEPS[name](sim)
            except Killed:
                return None, sim, ledger
        return sim, sim, ledger

    def crashes(sim: SimStore, ledger: Ledger) -> None:
        outcome.add(recover_and_check(sim.files.after_kill(), ledger, sim.clock, **changes))
        for disk in sim.files.crash_states(rng, states_max):
            lost = ledger.copy()
            lost.lost_power()
            outcome.add(recover_and_check(disk, lost, sim.clock, **changes))

    finished, sim, ledger = live(names, None)
    crashes(sim, ledger)
    change = 0
    while True:
        finished, sim, ledger = live(names, (change, random.Random(rng.random())))
        if finished is not None:
            return outcome
        crashes(sim, ledger)
        change += 1


def random_life(seed: int, **settings: object) -> Outcome:
    """Let one store live: random settings, random steps, kills anywhere, power cuts, recoveries killed as well.

    ``settings`` replace the random ones.
    """
    rng = random.Random(seed)
    changes: dict[str, object] = {
        "append_mode": rng.choice(("mapped", "mapped", "written")),
        "flush_disk_type": rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH")),
        "group_checksums": rng.random() < 0.8,
        "message_index_enable": rng.random() < 0.7,
    }
    if changes["append_mode"] == "mapped" and changes["flush_disk_type"] == "ASYNC_FLUSH" and rng.random() < 0.3:
        changes |= {"transient_store_pool_enable": True, "transient_store_pool_size": 3}
        if rng.random() < 0.6:
            changes |= SURVIVING | {"transient_store_pool_buffer_size": rng.choice((0, 4096, 8192))}
    changes |= settings
    outcome = Outcome()
    ledger, clock = Ledger(), ManualClock()
    files = fresh_disk()
    for _ in range(rng.randint(1, 4)):
        if rng.random() < 0.4:  # the recovery is killed as well
            files.before = kill_at(rng.randrange(1, 30), rng)
        sim = None
        try:
            sim = SimStore(files, ledger, clock, **changes)
            check(sim.store, ledger)
            files.before = kill_at(rng.randrange(1, 60), rng) if rng.random() < 0.7 else None
            for _ in range(rng.randint(1, 14)):
                clock.advance_ms(rng.choice((0, 0, 1, 5, 2000)))
                _random_step(sim, rng)
                if not sim.store._is_open:
                    break
        except Killed:
            pass
        outcome.crashes += 1
        if sim is not None:
            outcome.cut += sim.report.cut_bytes > 0
            outcome.damaged += len(sim.report.damaged)
        files.before = None
        if rng.random() < 0.5:
            files = files.after_kill()
        else:
            limit = 6
            disks = list(files.crash_states(rng, limit))
            ledger.lost_power()
            files = rng.choice(disks)
            for disk in disks:
                if disk is not files:
                    outcome.add(recover_and_check(disk, ledger, clock, **changes))
    outcome.add(recover_and_check(files, ledger, clock, **changes))
    return outcome


def _random_step(sim: SimStore, rng: random.Random) -> None:
    kind = rng.random()
    if kind < 0.55:
        sizes = [rng.choice((0, 10, 80, 400, 1500, 4000)) for _ in range(rng.randint(1, 4))]
        key = rng.choice(("", "k", "k2", "long" * rng.randrange(1, 300)))
        sim.append(sizes, rng.choice("AB"), rng.randrange(2), key=key)
    elif kind < 0.95:
        STEPS[rng.choice(_OFTEN)](sim)
    elif kind < 0.98:
        sim.clock.advance_ms(20_000)
        sim.runner.step_all()
    else:
        sim.close()


def recovered_image(files: CrashFileSystem, clock: ManualClock, **changes: object) -> dict[str, bytes]:
    """Recover, close cleanly, return the log, queues and index."""
    ledger = Ledger()
    sim = SimStore(files, ledger, clock, **changes)
    sim.store.close()
    return fingerprint(sim.files)


__all__ = ["ROOT", "STEPS", "Outcome", "random_life", "recover_and_check", "recovered_image", "run_schedule"]
