"""One run of pytest with a bound, and what came of each test, read from its JUnit file.

A run that reaches its bound is interrupted as by Ctrl-C, so that it still writes its results; then it is killed.
"""

import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

RETRIES_MAX: Final = 10
GRACE_S: Final = 90.0
"""Time to end servers and to write results after the interrupt."""


@dataclass(slots=True)
class Outcome:
    """What a run found. ``failed`` and ``skipped``: node id to what pytest says about it."""

    exit_code: int
    is_whole: bool
    """False where the bound was reached: tests are missing from it."""
    passed: int = 0
    """With the test that was under way at the bound."""
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def run_suite(arguments: Sequence[str], bound_s: float, results: Path, python: str = sys.executable) -> Outcome:
    """Run pytest with these arguments for ``bound_s`` at most; its output goes to ours."""
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


def try_again(outcome: Outcome, again: Callable[[str], Outcome]) -> list[str]:
    """Run each test that failed once more, alone; take those that pass out of ``failed`` and return them.

    More than ``RETRIES_MAX`` failures are no accident: they stay.
    """
    if len(outcome.failed) > RETRIES_MAX:
        return []
    recovered = [test for test in outcome.failed if passes(again(test))]
    for test in recovered:
        del outcome.failed[test]
        outcome.passed += 1
    return recovered


def passes(outcome: Outcome) -> bool:
    """Tell whether a run of one test passed."""
    return outcome.is_whole and outcome.exit_code == 0 and outcome.passed > 0


def read_results(results: Path, outcome: Outcome) -> None:
    """Add what a JUnit file says; a test that failed and whose end failed, too, counts once."""
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
    """Return the id that pytest takes as an argument; of a file that was not collected, its path."""
    path, owner, name = case.get("file", ""), case.get("classname", ""), case.get("name", "")
    if not path:  # the error of a collection: its name is the module
        return name.replace(".", "/") + ".py"
    inner = owner[len(path.removesuffix(".py")) + 1 :]
    return "::".join((path, *filter(None, inner.split(".")), name))
