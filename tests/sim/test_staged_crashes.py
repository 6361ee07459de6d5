"""Staged transactions over crashes: all of a transaction or nothing, once, whatever dies where."""

import random

import pytest

from pocketmq.broker.staged.staged_state import StagedState
from pocketmq.common.clock import ManualClock
from tests.broker.staged_fixture import StagedFixture
from tests.profiles import lives
from tests.sim.checkers import fresh_disk, sim_config
from tests.sim.crash_file_system import CrashFileSystem, Killed, kill_at
from tests.sim.seeds import base_seed

NAME = "query-1"


class Life:
    """A broker through several crashes of one disk, and a driver that writes one micro-batch after the other, repeating
    each until it knows that it was committed, as Spark does: with new attempts and the same version.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.files: CrashFileSystem = fresh_disk()
        self.version = 0
        self.attempts = 0
        self.staged: dict[str, int] = {}
        """Of the present batch: attempts whose chunks were all acknowledged."""
        self.rows: dict[int, list[bytes]] = {}
        self.fixture: StagedFixture
        self.changes: dict[str, object] = {
            "mapped_file_size_commit_log": self.rng.choice([1 << 14, 1 << 15]),
            "append_mode": self.rng.choice(["mapped", "written"]),
            "flush_disk_type": self.rng.choice(["ASYNC_FLUSH", "SYNC_FLUSH"]),
        }
        self.is_synchronous = self.changes["flush_disk_type"] == "SYNC_FLUSH"
        self.lost_power = False
        self.repaired = False
        """Whether damage was found: messages that it took are delivered behind later ones."""
        self.committed: list[int] = []

    def open(self) -> None:
        self.fixture = StagedFixture(sim_config(**self.changes), self.files, self.clock)

    def batch(self) -> list[list[bytes]]:
        """Return the present batch as chunks, always equal for one version."""
        rng = random.Random(self.version)
        chunks = [
            [
                b"%d.%d.%d" % (self.version, chunk, row) + b"x" * rng.choice([0, 50, 700])
                for row in range(rng.randint(1, 6))
            ]
            for chunk in range(rng.randint(1, 4))
        ]
        self.rows[self.version] = [row for chunk in chunks for row in chunk]
        return chunks

    def stage(self) -> None:
        """One task: stages the batch, perhaps not all of it; the driver learns of it only if it ends."""
        self.attempts += 1
        attempt = f"task-{self.attempts}"
        chunks = self.batch()
        for index, chunk in enumerate(chunks):
            if self.rng.random() < 0.1 or not self.fixture.stage(NAME, self.version, attempt, index, chunk):
                return
        self.staged[attempt] = len(chunks)

    def commit(self) -> None:
        """The driver commits one of the attempts; if the broker lacks a part of it, the batch fails."""
        fixture = self.fixture
        state, opened, _ = fixture.staged_log.table.get(NAME, self.version)
        if state is not StagedState.COMMITTED:
            if not self.staged:
                return
            attempt, count = self.rng.choice(list(self.staged.items()))
            if fixture.staged_log.table.missing(opened, [(attempt, count)]):
                self.staged.clear()
                return
            if not fixture.commit(NAME, self.version, [(attempt, count)]):
                return
        self.staged.clear()
        if self.rng.random() < 0.7 and self.version < 15:  # else the driver dies here: it repeats the batch
            self.version += 1

    def step(self) -> None:
        fixture, kind = self.fixture, self.rng.random()
        if kind < 0.35:
            self.stage()
        elif kind < 0.6:
            self.commit()
        elif kind < 0.8:
            fixture.service.step()
            fixture.store.dispatcher.catch_up()
        elif kind < 0.85:
            fixture.staged_log.snapshot()
            fixture.store.dispatcher.catch_up()
        elif kind < 0.9 and self.staged:
            fixture.drop(NAME, self.version, self.rng.choice(list(self.staged)))
        elif kind < 0.95:
            fixture.store.log.flush() if self.rng.random() < 0.5 else fixture.store.checkpoint()
        else:
            fixture.stop()
            self.open()

    def live(self) -> None:
        """Take some steps; die in the middle of one of them, or not. Then the process or the power is gone."""
        self.files.before = None
        try:
            self.open()
            self.files.before = kill_at(self.rng.randrange(1, 80), self.rng) if self.rng.random() < 0.8 else None
            for _ in range(self.rng.randint(1, 40)):
                self.step()
        except Killed:
            pass
        self.files.before = None
        if self.rng.random() < 0.7:
            self.files = self.files.after_kill()
        else:
            self.files = self.rng.choice(list(self.files.crash_states(self.rng, 4)))
            self.lost_power |= not self.is_synchronous
        self.staged.clear()  # the driver begins the batch again

    def finish(self) -> list[bytes]:
        """Restart a last time, deliver the committed batches; return the messages of the topic."""
        self.open()
        self.fixture.deliver()
        assert not self.fixture.staged_log.table.deliveries
        self.repaired = bool(self.fixture.store.log.damaged)
        bodies = self.fixture.bodies()
        states = [self.fixture.state(NAME, version) for version in range(self.version + 1)]
        self.committed = [version for version, state in enumerate(states) if state is StagedState.COMMITTED]
        self.fixture.stop()
        self.open()
        assert [self.fixture.state(NAME, version) for version in range(self.version + 1)] == states
        assert not self.fixture.staged_log.table.deliveries
        assert self.fixture.bodies() == bodies
        self.fixture.stop()
        return bodies


@pytest.mark.slow
@pytest.mark.scaled
@pytest.mark.parametrize("offset", lives(400))
def test_staged_transactions_survive_any_crash(offset: int) -> None:
    """Kills at any change of the disk, and with SYNC_FLUSH power cuts as well: the topic has every batch that the
    driver knows to be committed, whole and once, at most the one under way beside them, and nothing of any other
    attempt."""
    seed = base_seed() + offset
    print(f"POCKETMQ_SEED={seed}")
    life = Life(seed)
    for _ in range(life.rng.randint(1, 5)):
        life.live()
    arrived = life.finish()
    if life.lost_power:  # acknowledged messages may be gone, as any: only the states are promised
        return
    assert life.committed[: life.version] == list(range(life.version)), f"seed {seed}: lost {life.committed}"
    expected = [row for version in life.committed for row in life.rows[version]]
    assert sorted(arrived) == sorted(expected), f"seed {seed}: {len(arrived)} arrived, {len(expected)} were committed"
    if not life.repaired:
        assert arrived == expected, f"seed {seed}: not in order"
