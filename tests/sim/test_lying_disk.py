"""A disk that reports syncs it has not made: messages may be lost, but none is invented and the store opens."""

import random

import pytest

from pocketmq.common.clock import ManualClock
from tests.profiles import lives
from tests.sim.checkers import Ledger, SimStore, check, close_quietly, fresh_disk
from tests.sim.crash_file_system import Fault, Operation


@pytest.mark.slow
@pytest.mark.scaled
@pytest.mark.parametrize("seed", lives(60))
def test_lost_syncs_cost_messages_and_nothing_else(seed: int) -> None:
    """Every second sync of the log is a lie. Readable messages are those sent, at their places, in order."""
    rng = random.Random(seed)
    ledger, clock = Ledger(), ManualClock()
    settings: dict[str, object] = {"flush_disk_type": rng.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))}
    sim = SimStore(fresh_disk(), ledger, clock, **settings)

    def lie(operation: Operation) -> Fault | None:
        is_data = operation.kind == "sync" and not operation.path.endswith((".allocating", ".tmp"))
        return Fault(lost=True) if is_data and rng.random() < 0.5 else None

    sim.files.before = lie
    for number in range(25):
        clock.advance_ms(3)
        sim.append([rng.choice((10, 500, 3000)) for _ in range(rng.randint(1, 3))], "AB"[number % 2])
        if sim.is_sync:
            sim.step("group-commit")
        if number % 6 == 5:
            sim.store.dispatcher.catch_up()
            sim.store.consume_queues.flush()
            sim.store.components.flush.write_checksums()
        if number == 15:
            sim.checkpoint()
    for disk in sim.files.crash_states(rng, 12):
        lost = Ledger(dict(ledger.sent), ledger.keys, number=ledger.number, only_kills=False)
        found = SimStore(disk, lost, clock, **settings)
        check(found.store, lost)
        found.append([25])
        found.store.show_all()
        check(found.store, lost)
        close_quietly(found)
