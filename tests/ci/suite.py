"""One run of pytest with a time limit, and the result of each test, read from its JUnit file.

At its limit a run is interrupted as by Ctrl-C, so that it still writes its results; then it is killed.

pytest itself shows its progress and no failure: failures are judged first. ``Report`` prints the verdict: a test
that fails twice is shown with both tracebacks, one that passes alone with a line; that line names the file under
``KEPT`` with the traceback.
"""

import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

RETRIES_MAX: Final = 10
KEPT: Final = Path(".ci-results")
"""Directory for the tracebacks of tests that failed once; relative to the working directory, and ignored by git."""
QUIET: Final = ("--color=no", "-q", "--no-summary")
"""Progress and the count at the end, no tracebacks and no lines of failures: a first failure is not the verdict."""
GRACE_S: Final = 90.0
"""Time to end servers and to write results after the interrupt."""


@dataclass(slots=True)
class Outcome:
    """The results of a run. ``failed`` and ``skipped`` map a node id to pytest's reason."""

    exit_code: int
    is_whole: bool
    """False where the bound was reached: tests are missing from it."""
    passed: int = 0
    """With the test that was under way at the bound."""
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def run_suite(arguments: Sequence[str], bound_s: float, results: Path, python: str = sys.executable) -> Outcome:
    """Run pytest with these arguments for at most ``bound_s``; pass its output on."""
    results.unlink(missing_ok=True)
    command = [python, "-m", "pytest", *arguments, f"--junitxml={results}", "-o", "junit_family=xunit1"]
    process = subprocess.Popen(command, start_new_session=True)
    is_whole = True
    try:
        process.wait(bound_s)
    except subprocess.TimeoutExpired:
        is_whole = False
        process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    outcome = Outcome(process.returncode, is_whole)
    if results.exists():
        read_results(results, outcome)
    return outcome


class Report:
    """Reports the failures of one CI step; the step's name begins each line."""

    def __init__(self, step: str, kept: Path = KEPT) -> None:
        self._step = step
        self._kept = kept

    def recovered(self, test: str, why: str) -> str:
        """Keep the traceback of a test that failed once and then passed; return the line to print."""
        self._kept.mkdir(parents=True, exist_ok=True)
        file = self._kept / f"{self._step}-{re.sub(r'[^A-Za-z0-9]+', '-', test).strip('-')[-120:]}.txt"
        file.write_text(f"{test}\n\n{why}\n", errors="replace")
        return f"{self._step}: failed once, then passed: {test}: {first_line(why)} (whole: {file})"

    def broken(self, test: str, first: str, second: str = "") -> str:
        """Return the line and the tracebacks of a test that failed twice, or once if it was not tried again."""
        again = f"-- the second try, alone:\n{second}" if second else "-- not tried again"
        return f"{self._step}: BROKEN (twice): {test}\n-- the first try:\n{first}\n{again}"


@dataclass(slots=True)
class Retried:
    """The results of second tries: node id to the reason(s)."""

    recovered: dict[str, str] = field(default_factory=dict)
    broken: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The second reason is empty where the test was not tried again."""

    def lines(self, report: Report) -> list[str]:
        """Return the lines to print of each test."""
        told = [report.broken(test, *reasons) for test, reasons in self.broken.items()]
        return told + [report.recovered(test, why) for test, why in self.recovered.items()]


def try_again(outcome: Outcome, again: Callable[[str], Outcome]) -> Retried:
    """Run each test that failed once more, alone; take those that pass out of ``failed``.

    More than ``RETRIES_MAX`` failures are no accident: they stay.
    """
    retried = Retried()
    is_retried = len(outcome.failed) <= RETRIES_MAX
    for test, why in list(outcome.failed.items()):
        second = again(test) if is_retried else Outcome(1, False)
        if passes(second):
            retried.recovered[test] = why
            del outcome.failed[test]
            outcome.passed += 1
        else:
            retried.broken[test] = why, second_reason(second, test) if is_retried else ""
    return retried


def second_reason(second: Outcome, test: str) -> str:
    """Return why the second try failed."""
    if second.failed:
        return second.failed.get(test) or "\n".join(second.failed.values())
    return f"pytest ended with {second.exit_code}" if second.is_whole else "it reached its bound"


def first_line(why: str) -> str:
    """Return the first informative line of a reason, shortened to one line's width."""
    return next((line.strip() for line in why.splitlines() if line.strip()), "no reason")[:200]


def passes(outcome: Outcome) -> bool:
    """Return whether one test passes when it runs alone."""
    return outcome.is_whole and outcome.exit_code == 0 and outcome.passed > 0


def read_results(results: Path, outcome: Outcome) -> None:
    """Add the results of a JUnit file; a test whose body and teardown fail counts once."""
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        told = [(each.tag, f"{each.get('message', '')}\n{each.text or ''}") for each in case]
        bad = [text for tag, text in told if tag in ("failure", "error")]
        if bad:
            outcome.failed[node_id(case)] = "\n".join(bad)
        elif any(tag == "skipped" for tag, _ in told):
            outcome.skipped[node_id(case)] = told[0][1]
        else:
            outcome.passed += 1


def node_id(case: ElementTree.Element) -> str:
    """Return the id that pytest takes as an argument; for a file that was not collected, its path."""
    path, owner, name = case.get("file", ""), case.get("classname", ""), case.get("name", "")
    if not path:  # a collection error: its name is the module
        return name.replace(".", "/") + ".py"
    inner = owner[len(path.removesuffix(".py")) + 1 :]
    return "::".join((path, *filter(None, inner.split(".")), name))
