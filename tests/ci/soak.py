"""``make soak`` in CI: what fails before the bound, and again alone, fails CI; a slow machine that does not get to the
end does not.

python -m tests.ci.soak [--minutes 20] [--jobs 2]
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.ci.suite import Outcome, run_suite, try_again

ALONE_S: Final = 180.0
"""Bound of a test that is tried again."""


def lines(outcome: Outcome, minutes: float, recovered: Sequence[str] = ()) -> list[str]:
    """Return what to say about a run, after failures were tried again."""
    told = [f"soak: BROKEN (twice): {test}" for test in outcome.failed]
    told += [f"soak: failed once, then passed: {test}" for test in recovered]
    if not outcome.is_whole:
        told.append(f"soak: stopped at its bound of {minutes:g} minutes")
    return [*told, f"soak: {outcome.passed} passed, {'good' if is_good(outcome) else 'NOT good'}"]


def is_good(outcome: Outcome) -> bool:
    """Tell whether CI goes on: nothing failed twice, something ran, and only failures or the bound ended it."""
    ended = outcome.exit_code in (0, 1) or not outcome.is_whole
    return not outcome.failed and outcome.passed > 0 and ended


def main() -> int:
    """Run the soak tests and return the exit code; the profile is that of POCKETMQ_TESTS."""
    parser = argparse.ArgumentParser(description="the soak tests, with a bound")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--jobs", default="2")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        arguments = [
            "-n",
            options.jobs,
            "-m",
            "soak",
            "--color=no",
            "-q",
            "-rfE",
            "--durations=30",
            "--durations-min=5",
        ]
        results = Path(directory) / "results.xml"
        outcome = run_suite(arguments, options.minutes * 60, results)
        alone = ["-m", "soak", "--color=no", "-q", "-rfE"]
        recovered = try_again(outcome, lambda test: run_suite([*alone, test], ALONE_S, results))
    print("\n".join(lines(outcome, options.minutes, recovered)))
    return 0 if is_good(outcome) else 1


if __name__ == "__main__":
    sys.exit(main())
