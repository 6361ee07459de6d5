"""The fast tests on one Python newer than the one that runs this, where the machine has one.

    python -m tests.ci.newer

Makes a virtual environment of its own and removes it. No newer interpreter, or a package registry that does not
answer, is reported and is no failure. What fails is tried once more, alone.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.ci.soak import is_good
from tests.ci.suite import QUIET, Report, run_suite, try_again

MINORS: Final = (14, 13, 12)
"""Newest first: the versions on which the suite is known to pass."""
BOUND_S: Final = 420.0
ALONE_S: Final = 120.0
FAST: Final = "not slow and not soak and not scenario and not interop"
NO_ANSWER: Final = re.compile(
    r"Temporary failure in name resolution|Connection (?:refused|reset|aborted)|NewConnectionError|timed out"
    r"|HTTP error 5"
)


def candidates(pyenv: Path) -> list[Path]:
    """Return interpreters of the newer versions, newest first: pyenv's own, then those on PATH."""
    found: list[Path] = []
    for minor in MINORS:
        if minor <= sys.version_info.minor:
            continue
        found += sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python3.{minor}"))
        on_path = shutil.which(f"python3.{minor}")
        if on_path:
            found.append(Path(on_path))
    return found


def first_that_runs(interpreters: Iterable[Path]) -> Path | None:
    """Return the first one that starts and can make a virtual environment; pyenv has shims of unused versions."""
    for each in interpreters:
        if subprocess.run([each, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode == 0:
            return each
    return None


def main() -> int:
    """Set up, run the fast tests, and return the exit code."""
    python = first_that_runs(candidates(Path.home() / ".pyenv"))
    if python is None:
        print(f"newer: no Python above 3.{sys.version_info.minor} on this machine")
        return 0
    print(f"newer: {python}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pocketmq-newer-") as directory:
        made = subprocess.run(
            ["make", "setup", f"VENV={directory}/venv", f"PYTHON={python}"], capture_output=True, text=True, check=False
        )
        if made.returncode:
            said = (made.stdout + made.stderr)[-3000:]
            print(said)
            if NO_ANSWER.search(said):
                print("newer: not run, the package registry does not answer")
                return 0
            return made.returncode
        results, newer = Path(directory) / "results.xml", f"{directory}/venv/bin/python"
        arguments = ["-m", FAST, *QUIET, "-p", "no:cacheprovider"]
        outcome = run_suite(["-n", "2", *arguments], BOUND_S, results, newer)
        retried = try_again(outcome, lambda test: run_suite([*arguments, test], ALONE_S, results, newer))
        for line in retried.lines(Report("newer")):
            print(line)
        if not outcome.is_whole:
            print(f"newer: stopped at its bound of {BOUND_S:.0f} s")
        return 0 if is_good(outcome) else 1


if __name__ == "__main__":
    sys.exit(main())
