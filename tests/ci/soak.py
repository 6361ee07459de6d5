"""``make soak`` in CI: what fails before the bound fails CI; a slow machine that does not get to the end does not.

python -m tests.ci.soak [--minutes 20] [--jobs 2]
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.ci.suite import Outcome, run_suite


def lines(outcome: Outcome, minutes: float) -> list[str]:
    """Return what to say about a run."""
    told = [f"soak: BROKEN: {test}" for test in outcome.failed]
    if not outcome.is_whole:
        told.append(f"soak: stopped at its bound of {minutes:g} minutes")
    return [*told, f"soak: {outcome.passed} passed, {'good' if is_good(outcome) else 'NOT good'}"]


def is_good(outcome: Outcome) -> bool:
    """Tell whether CI goes on: nothing failed, something ran, and only the bound ended it early."""
    return not outcome.failed and outcome.passed > 0 and (outcome.exit_code == 0 or not outcome.is_whole)


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
        outcome = run_suite(arguments, options.minutes * 60, Path(directory) / "results.xml")
    print("\n".join(lines(outcome, options.minutes)))
    return 0 if is_good(outcome) else 1


if __name__ == "__main__":
    sys.exit(main())
