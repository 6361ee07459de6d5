"""One seed from start to end.

Lives here: ``run_seed``, ``Result``.
"""

import contextlib
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.cluster_sim.checks import missing_for_consumers, summary
from tests.cluster_sim.installed import installed
from tests.cluster_sim.kernel import Kernel, Stuck
from tests.cluster_sim.life import Life
from tests.cluster_sim.planted import BUGS


@dataclass(slots=True, frozen=True)
class Result:
    """What became of a seed. ``trace``: the same for two runs that did the same, bit for bit."""

    seed: int
    failure: str
    trace: str
    counts: Counter[str]
    seconds: float = 0.0
    """Of this process."""


def run_seed(seed: int, *, acknowledged: int = 1000, faults: int = 6, bug: str = "", trace: bool = False) -> Result:
    """Live the life of a seed."""
    begun_s = time.process_time()
    kernel = Kernel(seed)
    failure = ""
    if trace:
        kernel.watch = lambda line: print(line, file=sys.stderr)
    with installed(kernel), planted(bug):
        life = Life(kernel, acknowledged=acknowledged, faults=faults)
        try:
            life.run()
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            if isinstance(error, Stuck):
                failure += f"; {life.state()}; not handled: {missing_for_consumers(life)[:3]}"
            if trace:
                traceback.print_exc()
                show(life)
        finally:
            counts = summary(life)
            kernel.note("end", failure, sorted(counts.items()))
            kernel.close()
    return Result(seed, failure, kernel.trace.hexdigest(), counts, round(time.process_time() - begun_s, 2))


@contextlib.contextmanager
def planted(bug: str) -> Iterator[None]:
    """Have a bug within this block; empty: none."""
    changes = BUGS[bug]() if bug else []
    before = [getattr(change.owner, change.name) for change in changes]
    for change in changes:
        setattr(change.owner, change.name, change.value)
    try:
        yield
    finally:
        for change, value in zip(changes, before, strict=True):
            setattr(change.owner, change.name, value)


def show(life: Life) -> None:
    """Print the logs of all nodes."""
    for node in life.nodes:
        process = node.process
        if process is None:
            continue
        for name, error in process.crashes:
            print(f"{process.name} worker {name}:", file=sys.stderr)
            traceback.print_exception(error)
        for context in process.loop.unhandled:
            print(f"{process.name} callback: {context}", file=sys.stderr)
        for event in process.log.events:
            print(f"{process.name} {event}", file=sys.stderr)
