"""The seed of a run: printed first, given by POCKETMQ_SEED; and the seeds that once failed.

``make test`` lives the same lives each time, so that a red run points at the change; ``make torture`` and ``make
partitions`` look for new ones. A seed that fails goes into ``KNOWN`` with the fix.
"""

import os
import time

KNOWN: tuple[int, ...] = (
    1,  # properties whose last page was lost, before a hole
    17,  # the abort marker was not durable: an older clean stop was believed
    48,  # a power cut lost the name of a segment, and not that of the next one
    59,  # a power cut lost the size of a segment, and not its name
    552,  # old records behind a tail that was not zeroed
    260004133,  # a size of zero under a good magic: the start never ended
    259299715,  # a prepared segment that was removed at a clean stop, and came back with a power cut
    264479581,  # zeros of a recovery that was killed before their sync, and lost with the next power cut
    258644894,  # a clean stop right behind the blank end of a segment
)


SEED_OF_TESTS = 20261121


def base_seed() -> int:
    """Return the given seed, or the default seed of the tests."""
    return given_seed(SEED_OF_TESTS)


def fresh_seed() -> int:
    """Return the given seed, or one made from the clock."""
    return given_seed(time.time_ns() // 1_000_000 % 1_000_000_000)


def given_seed(otherwise: int) -> int:
    """Return the number in POCKETMQ_SEED, if there is one."""
    given = os.environ.get("POCKETMQ_SEED", "")
    return int(given) if given else otherwise
