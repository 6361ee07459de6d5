"""``make torture``: an hour of crashes. ``python -m tests.torture --minutes 60 [--only lives]``.

Five parts share the time: kills of a real daemon, every flipped bit, every crash in every three steps, random lives of
delayed messages, transactions and replicas, and of the store; what one leaves over goes to the last. A failure is
printed with its seed at once, and the run goes on. POCKETMQ_SEED repeats a run.
"""

import argparse
import asyncio
import itertools
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.e2e.lives import Plan, one_life
from tests.e2e.tally import Tally
from tests.modes import KINDS, LEGAL, Mode, in_turn
from tests.sim.bit_flips import Small, check_log_bit, check_other_bit, small_store, used_bits
from tests.sim.schedules import SURVIVING, Outcome, random_life, run_schedule
from tests.sim.seeds import KNOWN, fresh_seed
from tests.sim.test_delay_crashes import check_lives as check_delay
from tests.sim.test_replication import run as check_replicas
from tests.sim.test_transaction_crashes import check_lives as check_transactions
from tests.torture.kill_daemon import KillRounds

KILL_ROUNDS = 200
KILLS_OF_LIFE = 5
PAIR_KILLS = ("kill_slave", "kill_master", "kill_master_promote", "kill_all", "throw_slave", "throw_master")
MASTER_KILLS = ("kill_one", "kill_every", "kill_in_start")
LIVES = 10_000
STEPS = ("append", "roll", "flush", "commit", "checkpoint", "close", "append_b", "dispatch")
MODES: tuple[dict[str, object], ...] = (
    {"append_mode": "mapped", "flush_disk_type": "ASYNC_FLUSH"},
    {"append_mode": "mapped", "flush_disk_type": "SYNC_FLUSH"},
    {"append_mode": "written", "flush_disk_type": "ASYNC_FLUSH"},
    {"append_mode": "written", "flush_disk_type": "SYNC_FLUSH"},
    {"transient_store_pool_enable": True, "transient_store_pool_size": 3},
    SURVIVING | {"transient_store_pool_size": 3},
    SURVIVING | {"transient_store_pool_size": 4, "transient_store_pool_buffer_size": 4096},
)

Case = tuple[str, Callable[[], Outcome]]


def kills(seed: int) -> Generator[Case, None, None]:
    """Kill real brokers: in turn ten rounds on one store, whose copy is opened after each, and a life of a few rounds
    with every kind of message, in every legal mode."""
    without_pool = [mode for mode in LEGAL if mode.shape == "alone" and mode.pool == "none"]
    modes = in_turn(seed)
    for number in itertools.count():
        yield from _one_store(seed + number, without_pool[number % len(without_pool)])
        yield from _one_life(seed + number, modes[number % len(modes)])


def _one_store(seed: int, mode: Mode) -> Generator[Case, None, None]:
    directory = Path(tempfile.mkdtemp(prefix="torture-"))
    rounds = KillRounds(directory, random.Random(seed), mode)

    def one() -> Outcome:
        before = rounds.torn_tails
        rounds.run()
        return Outcome(1, rounds.torn_tails - before)

    try:
        for number in range(10):
            yield f"kill {number} of a store ({mode}), seed {seed}", one
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _one_life(seed: int, mode: Mode) -> Generator[Case, None, None]:
    rng = random.Random(seed)
    known = PAIR_KILLS if mode.shape == "pair" else MASTER_KILLS
    faults = tuple(rng.choice(known) for _ in range(KILLS_OF_LIFE))
    plan = Plan(seed, mode, faults, KINDS, network=False, copies=2)

    def live() -> Outcome:
        asyncio.run(one_life(plan, Tally()))
        return Outcome(len(faults))

    yield str(plan), live


def bits(seed: int) -> Generator[Case, None, None]:
    """Flip every bit of the log with and without checksums, of the other files after a kill and after a clean stop."""
    for checksums in (True, False):
        small = small_store(checksums=checksums)
        for bit in range(small.bounds[-1] * 8):

            def log_bit(bit: int = bit, small: Small = small, checksums: bool = checksums) -> Outcome:
                check_log_bit(small, bit, checksums=checksums)
                return Outcome(1)

            yield f"bit {bit} of the log, checksums={checksums}", log_bit
    for clean in (True, False):
        small = small_store(checksums=True, clean=clean)
        for path, bit in used_bits(small.files):

            def other_bit(path: str = path, bit: int = bit, small: Small = small) -> Outcome:
                check_other_bit(small, path, bit)
                return Outcome(1)

            yield f"bit {bit} of {path}, clean={clean}", other_bit


def schedules(seed: int) -> Generator[Case, None, None]:
    """Crash in every three steps or fewer, in every mode."""
    for length in (1, 2, 3):
        for steps in itertools.product(STEPS, repeat=length):
            if not steps[0].startswith(("append", "roll")):
                continue
            for mode in MODES:

                def one(steps: tuple[str, ...] = steps, mode: dict[str, object] = mode) -> Outcome:
                    return run_schedule(list(steps), random.Random(seed), 8, **mode)

                yield f"{steps} {mode}, seed {seed}", one


def lives(seed: int) -> Generator[Case, None, None]:
    """Run the seeds that once failed, then new ones."""
    for number in itertools.chain(KNOWN, itertools.count(seed)):
        yield f"POCKETMQ_SEED={number}", partial(random_life, number)


def services(seed: int) -> Generator[Case, None, None]:
    """Run lives of delayed messages, of transactions and of replicas in turn."""
    for number in itertools.count(seed):
        for name, check in (("delay", check_delay), ("transactions", check_transactions), ("replicas", replicas)):

            def one(check: Callable[[int], object] = check, number: int = number) -> Outcome:
                check(number)
                return Outcome(1)

            yield f"{name}, POCKETMQ_SEED={number}", one


def replicas(seed: int) -> None:
    """Run one life of a replicated broker."""
    check_replicas(seed, 40)


@dataclass(slots=True)
class Part:
    """One part of a run: ``share`` of the time, at most ``count`` cases if given."""

    name: str
    cases: Callable[[int], Generator[Case, None, None]]
    share: float
    count: int | None = None
    done: int = 0
    failed: int = 0
    crashes: int = 0
    seconds: float = 0.0
    ended: bool = False

    def run(self, seed: int, until: float, runs_on: bool) -> None:
        """Run cases until the time is over; with ``runs_on`` also more than ``count``."""
        begin = shown = time.monotonic()
        cases = self.cases(seed)
        for name, case in cases:
            now = time.monotonic()
            if now >= until or (self.count is not None and self.done >= self.count and not runs_on):
                break
            if now - shown > 10:
                shown = now
                print(f"  {self.name}: {self.done} done, {self.crashes} crashes, {self.failed} failed", flush=True)
            self.done += 1
            try:
                self.crashes += case().crashes
            except Exception:
                self.failed += 1
                print(f"FAILED {self.name}: {name}\n{traceback.format_exc()}", flush=True)
        else:
            self.ended = True
        cases.close()
        self.seconds = time.monotonic() - begin

    def summary(self) -> str:
        wanted = "all" if self.ended else f"{self.done} of {self.count}" if self.count else f"{self.done}, not all"
        counts = f"{self.crashes:>8} crashes {self.failed:>5} failed {self.seconds:>7.0f} s"
        return f"{self.name:<10}{wanted:>16} cases {counts}"


def main() -> int:
    """Run the parts, print a summary, return 1 if anything failed."""
    parser = argparse.ArgumentParser("python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", choices=["kills", "bits", "schedules", "services", "lives"])
    arguments = parser.parse_args()
    seed = fresh_seed()
    print(f"POCKETMQ_SEED={seed}", flush=True)
    parts = [
        Part("kills", kills, 0.35, KILL_ROUNDS),
        Part("bits", bits, 0.1),
        Part("schedules", schedules, 0.25),
        Part("services", services, 0.1),
        Part("lives", lives, 0.2, LIVES),
    ]
    parts = [part for part in parts if arguments.only in (None, part.name)]
    begin = time.monotonic()
    end = begin + arguments.minutes * 60
    for number, part in enumerate(parts):
        shares = sum(later.share for later in parts[number:])
        until = time.monotonic() + (end - time.monotonic()) * part.share / shares
        print(f"{part.name}: at most {(until - time.monotonic()) / 60:.1f} minutes", flush=True)
        part.run(seed, until, runs_on=number == len(parts) - 1)
    print(f"\nPOCKETMQ_SEED={seed}, {(time.monotonic() - begin) / 60:.1f} minutes")
    for part in parts:
        print(part.summary())
    return 1 if any(part.failed for part in parts) else 0


if __name__ == "__main__":
    sys.exit(main())
