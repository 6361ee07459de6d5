"""One target under atheris: ``python -m tests.fuzz.one TARGET [libFuzzer's options and corpus]``.

Every input runs at full speed. One that takes long, or makes the process grow, is run once more with its calls and its
memory counted; only the count decides (``target.check``).
"""

import resource
import sys
import time
from typing import Final

import atheris

with atheris.instrument_imports(include=["pocketmq"]):
    from tests.fuzz.target import Target, check, outcome
    from tests.fuzz.targets import TARGETS

SLOW_NS: Final = 100_000_000
GROWTH_KIB: Final = 16 << 10


def runner(target: Target) -> None:
    """Fuzz until libFuzzer ends the process."""
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def one(data: bytes) -> None:
        nonlocal highest
        begin_ns = time.process_time_ns()
        outcome(target.run, data)
        slow = time.process_time_ns() - begin_ns > SLOW_NS
        now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if slow or now > highest + GROWTH_KIB:
            highest = max(now, highest)
            check(target, data)

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    name = sys.argv.pop(1)
    runner(TARGETS[name])
