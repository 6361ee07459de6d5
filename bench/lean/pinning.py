"""Which cores clients and servers run on.

Lives here: ``PINS``, ``choose`` (the cores of a mode), ``inherited`` (a process gets them from the thread that starts
it).
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PINS: Final = ("split", "shared", "none")
"""Clients and servers on one core each; all on one core; all on every core. A runtime that sizes itself by the machine
(Go, Java) sees only the cores of its mode.
"""
LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Cores:
    """Where the processes of a mode may run."""

    clients: frozenset[int]
    servers: frozenset[int]

    def __str__(self) -> str:
        names = [",".join(map(str, sorted(cores))) for cores in (self.clients, self.servers)]
        return f"clients on core {names[0]}, servers on core {names[1]}"


def choose(pin: str) -> Cores:
    """Return the cores of a mode: the quietest ones now. Raises ``ValueError`` if there are too few for ``split``."""
    allowed = frozenset(os.sched_getaffinity(0))
    if pin == "none":
        return Cores(allowed, allowed)
    before = _busy(_stat())
    time.sleep(LOOK_S)
    after = _busy(_stat())
    return chosen(pin, sorted(allowed, key=lambda core: (after.get(core, 0) - before.get(core, 0), core)))


def chosen(pin: str, quietest_first: Sequence[int]) -> Cores:
    """Return the cores of ``split`` or ``shared`` from an order of cores."""
    if pin == "shared":
        return Cores(frozenset(quietest_first[:1]), frozenset(quietest_first[:1]))
    if len(quietest_first) < 2:
        raise ValueError("--pin split needs two cores, and this process may use one")
    return Cores(frozenset(quietest_first[:1]), frozenset(quietest_first[1:2]))


def _stat() -> str:
    return Path("/proc/stat").read_text()


def _busy(stat: str) -> dict[int, int]:
    """Return the ticks that each core was not idle; fields of ``/proc/stat``: user nice system idle iowait …"""
    found: dict[int, int] = {}
    for line in stat.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(field) for field in fields[:8]]
            found[int(name[3:])] = sum(ticks) - ticks[3] - ticks[4]
    return found


@contextmanager
def inherited(cores: frozenset[int], nice: int = 0) -> Iterator[None]:
    """Run this thread on ``cores``, so that processes it starts meanwhile stay there with all their threads.

    ``nice``: their priority; below this process's own it needs a privilege. Raises ``PermissionError``.
    """
    before, nice_before = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    if nice:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        if nice:
            os.setpriority(os.PRIO_PROCESS, 0, nice_before)
