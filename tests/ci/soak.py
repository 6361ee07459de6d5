"""``make deep`` in CI: a test that fails before the time limit, and again alone, fails CI; a machine too slow to reach
the end does not.

python -m tests.ci.soak [--minutes 20] [--jobs 2]
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.ci.suite import QUIET, Outcome, Report, Retried, run_suite, try_again
from tests.profiles import hypothesis_seed

TEST_S: Final = 300.0
"""Bound of one test, against a hang: some take more than a minute, and two slow cores more than two."""
BOOTSTRAPPED: Final = tuple(f"tests/install/test_{name}.py" for name in ("image", "compose", "systemd"))
"""They bootstrap a Debian, which takes half of the time; on a machine of CI without debootstrap they would skip. ``make
deep`` runs them."""
ALONE_S: Final = 330.0
"""Bound of a test that is tried again."""


def lines(outcome: Outcome, minutes: float, retried: Retried, report: Report) -> list[str]:
    """Return the lines to print about a run whose failures were tried again."""
    told = retried.lines(report)
    if not outcome.is_whole:
        told.append(f"soak: stopped at its bound of {minutes:g} minutes")
    return [*told, f"soak: {outcome.passed} passed, {'good' if is_good(outcome) else 'NOT good'}"]


def is_good(outcome: Outcome) -> bool:
    """Return whether CI goes on: no test failed twice, something ran, and only failures or the bound ended the run."""
    ended = outcome.exit_code in (0, 1) or not outcome.is_whole
    return not outcome.failed and outcome.passed > 0 and ended


def main() -> int:
    """Run the soak tests and return the exit code; the profile is that of POCKETMQ_TESTS."""
    parser = argparse.ArgumentParser(description="the soak tests, with a bound")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--jobs", default="2")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        seed = hypothesis_seed()
        print(
            f"soak: --hypothesis-seed={seed}", flush=True
        )  # also in the second try: an example that fails, fails again
        alone = ["-m", "soak", *QUIET, f"--timeout={TEST_S:.0f}", f"--hypothesis-seed={seed}"]
        arguments = ["-n", options.jobs, *alone, *(f"--ignore={name}" for name in BOOTSTRAPPED)]
        results = Path(directory) / "results.xml"
        outcome = run_suite(arguments, options.minutes * 60, results)
        retried = try_again(outcome, lambda test: run_suite([*alone, test], ALONE_S, results))
    print("\n".join(lines(outcome, options.minutes, retried, Report("soak"))))
    return 0 if is_good(outcome) else 1


if __name__ == "__main__":
    sys.exit(main())
