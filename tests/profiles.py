"""How much a run tries: ``fast`` for ``make test``, ``soak`` for ``make deep``; POCKETMQ_TESTS chooses.

Holds what depends on the profile: the examples of Hypothesis, the number of simulated lives and their time. No
profile has a deadline for one example: a machine under load is no error.
"""

import os
from typing import Final

from hypothesis import HealthCheck, settings

from tests.sim.seeds import base_seed, fresh_seed

VARIABLE: Final = "POCKETMQ_TESTS"
EXAMPLES: Final = {"fast": 25, "soak": 500}
"""Examples of a property without a number of its own; also of step sequences against a model."""
LIVES: Final = 8
"""Lives of a family of crashes in the fast profile."""
LIVES_S: Final = {"fast": 2.0, "soak": 40.0}
"""Time for random lives that are counted by the clock."""
HYPOTHESIS_MARK: Final = "scaled"
"""The mark of a test that tries more in the soak profile, and so belongs to it, too."""


def profile() -> str:
    """Return the name of the profile; raise ``ValueError`` for one that does not exist."""
    name = os.environ.get(VARIABLE, "") or "fast"
    if name not in EXAMPLES:
        raise ValueError(f"{VARIABLE}={name} is not one of {', '.join(EXAMPLES)}")
    return name


def load() -> None:
    """Register both profiles with Hypothesis and load the chosen one; before the first test module is imported."""
    for name, examples in EXAMPLES.items():
        settings.register_profile(
            name,
            max_examples=examples,
            deadline=None,
            derandomize=False,  # Hypothesis' own profile where CI is set; we set the seed
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile(profile())


def hypothesis_seed() -> int:
    """Return the seed of all properties: the same in each fast run, a new one in each soak, or POCKETMQ_SEED."""
    return base_seed() if profile() == "fast" else fresh_seed()


def examples(count: int, soak: int | None = None) -> settings:
    """Return settings of an expensive property: ``count`` examples, in a soak ``soak`` or in proportion."""
    in_proportion = count * EXAMPLES["soak"] // EXAMPLES["fast"]
    return settings(max_examples=count if profile() == "fast" else soak or in_proportion)


def tries(fast: int, soak: int) -> int:
    """Return how often a test tries something; mark such a test ``scaled``."""
    return fast if profile() == "fast" else soak


def lives(soak: int) -> range:
    """Return the seed offsets of a family of lives: eight, or ``soak``."""
    return range(LIVES if profile() == "fast" else soak)


def lives_ns() -> int:
    """Return how long random lives go on."""
    return round(LIVES_S[profile()] * 1e9)
