"""Delayed messages over crashes: none lost, none early, none twice without a crash; also in a real killed process."""

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import PocketMQError
from tests.broker.delay_fixture import DelayFixture
from tests.profiles import lives
from tests.sim.checkers import fresh_disk, sim_config
from tests.sim.crash_file_system import CrashFileSystem, Killed, kill_at
from tests.sim.seeds import base_seed
from tests.store.log_fakes import HOST

LEVELS_MS = {"1": 1000, "2": 5000}


class Life:
    """A broker's delayed messages through several crashes of one disk."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.files: CrashFileSystem = fresh_disk()
        self.sent: dict[bytes, int] = {}  # body → due
        self.kill_safe: set[bytes] = set()
        self.power_safe: set[bytes] = set()
        self.number = 0
        self.crashes = 0
        self.fixture: DelayFixture | None = None
        self.changes: dict[str, object] = {
            "message_delay_level": "1s 5s",
            "mapped_file_size_commit_log": 1 << 16,
            "flush_delay_offset_interval": 3000,
            "append_mode": self.rng.choice(["mapped", "written"]),
        }

    def open(self) -> DelayFixture:
        self.fixture = DelayFixture(sim_config(**self.changes), self.files, self.clock, HOST)
        return self.fixture

    def step(self, fixture: DelayFixture) -> None:
        kind = self.rng.random()
        if kind < 0.4:
            bodies = []
            level = self.rng.choice(["1", "2"])
            delay_ms = self.rng.choice([0, 1, 700, 4000])
            for _ in range(self.rng.randint(1, 3)):
                self.number += 1
                bodies.append(b"%d" % self.number)
            if kind < 0.2:
                asked: dict[str, Any] = {"DELAY": level}
                due_ms = self.clock.now_ms() + LEVELS_MS[level]
            else:
                due_ms = self.clock.now_ms() + delay_ms
                asked = {"TIMER_DELIVER_MS": str(due_ms)}
            self.sent.update((body, due_ms) for body in bodies)
            result = fixture.send(*bodies, **asked)
            if result.status.is_stored:
                self.kill_safe.update(bodies)
        elif kind < 0.7:
            fixture.run(self.rng.choice([0, 1, 500, 1500]))
        elif kind < 0.8:
            fixture.service.persist()
        elif kind < 0.9:
            before = set(self.kill_safe)
            if self.rng.random() < 0.5:
                fixture.store.log.flush()
            else:
                fixture.store.checkpoint()
            self.power_safe |= before
        elif kind < 0.95:
            fixture.store.consume_queues.flush(force=True)
        else:
            before = set(self.kill_safe)
            fixture.stop()
            self.power_safe |= before
            self.open()

    def live(self) -> None:
        """Take some steps, die in the middle of one of them or not, and restart."""
        self.files.before = None
        try:
            fixture = self.open()
            self.files.before = kill_at(self.rng.randrange(1, 80), self.rng) if self.rng.random() < 0.7 else None
            for _ in range(self.rng.randint(1, 25)):
                assert self.fixture is not None
                self.step(self.fixture)
        except Killed:
            pass
        self.files.before = None
        del fixture
        self.crashes += 1
        if self.rng.random() < 0.5:
            self.files = self.files.after_kill()
        else:
            self.kill_safe = set(self.power_safe)
            self.files = self.rng.choice(list(self.files.crash_states(self.rng, 4)))

    def finish(self) -> list[bytes]:
        """Restart a last time, wait until everything is due; return the delivered messages."""
        fixture = self.open()
        for _ in range(4):
            fixture.run(10_000)
        arrived = fixture.delivered()
        for record in arrived:
            assert record.store_timestamp >= self.sent[record.body], f"early: {record}"
            assert record.property_map()["UNIQ_KEY"] == f"U{record.body!r}"
        assert fixture.service.deliverer.dropped == 0
        assert fixture.service.timers.pending == 0
        bodies = [record.body for record in arrived]
        fixture.stop()
        again = self.open()
        again.run(10_000)
        assert again.bodies() == bodies, "a clean stop repeats nothing"
        again.stop()
        return bodies


@pytest.mark.slow
@pytest.mark.scaled
@pytest.mark.parametrize("offset", lives(300))
def test_delayed_messages_survive_any_crash(offset: int) -> None:
    """Kills and power cuts anywhere: each acknowledged and safe message arrives, with its id, and never early."""
    seed = base_seed() + offset
    print(f"POCKETMQ_SEED={seed}")
    check_lives(seed)


def check_lives(seed: int) -> None:
    """Live and die some times, restart, and check the safe messages."""
    life = Life(seed)
    for _ in range(life.rng.randint(1, 4)):
        life.live()
    arrived = life.finish()
    lost = life.kill_safe - set(arrived)
    assert not lost, f"seed {seed}: lost {lost}"


@pytest.mark.slow
@pytest.mark.scaled
@pytest.mark.parametrize("offset", lives(100))
def test_without_a_crash_each_comes_once(offset: int) -> None:
    """With any steps and any number of clean restarts each arrives exactly once, per level in order."""
    seed = base_seed() + offset
    print(f"POCKETMQ_SEED={seed}")
    life = Life(seed)
    life.open()
    for _ in range(120):
        assert life.fixture is not None
        life.step(life.fixture)
    assert life.fixture is not None
    life.fixture.stop()
    arrived = life.finish()
    assert sorted(arrived, key=int) == [b"%d" % number for number in range(1, life.number + 1)]


KILLED = """
import sys
from pathlib import Path
from pocketmq.common.clock import SystemClock
from pocketmq.common.runner import ThreadRunner
from pocketmq.broker.delay.delay_service import DelayService
from pocketmq.store.disk.os_file_system import OsFileSystem
from tests.broker.delay_fixture import DelayFixture
from tests.store.log_fakes import store_config
root = Path(sys.argv[1])
changes = {"flush_delay_offset_interval": 50, "message_delay_level": "1s", "mapped_file_size_commit_log": 1 << 20}
config = store_config(root, **changes)
fixture = DelayFixture(config, OsFileSystem(), SystemClock())
number = 0
while True:
    level = number % 2
    result = fixture.send(b"%d" % number, **({"DELAY": "1"} if level else {"TIMER_DELAY_MS": "30"}))
    assert result.status.is_stored
    print(number, flush=True)
    number += 1
    fixture.run()
    if number % 50 == 0 and any(int(body) % 2 for body in fixture.bodies()):
        print("delivered", flush=True)
"""


@pytest.mark.slow
def test_a_killed_process_loses_no_delayed_message(tmp_path: Path) -> None:
    """``kill -9`` while it takes and delivers, a level, too: all that it said it had arrives after the next start."""
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    said: list[str] = []
    try:
        assert child.stdout is not None
        while len(said) <= 50 or "delivered\n" not in said:  # the slower the machine, the longer it lives
            said.append(child.stdout.readline())
            assert said[-1], "the child has ended by itself"
    finally:
        child.kill()
    said += child.communicate()[0].splitlines(keepends=True)
    acknowledged = {int(line) for line in said if line.endswith("\n") and line != "delivered\n"}
    from pocketmq.store.disk.os_file_system import OsFileSystem
    from tests.store.log_fakes import store_config

    clock = ManualClock(time.time_ns() // 1_000_000)
    config = store_config(tmp_path, mapped_file_size_commit_log=1 << 20, message_delay_level="1s")
    fixture = DelayFixture(config, OsFileSystem(), clock)
    fixture.run(5000)
    arrived = {int(body) for body in fixture.bodies()}
    assert not acknowledged - arrived
    try:
        fixture.stop()
    except PocketMQError as error:
        pytest.fail(str(error))
