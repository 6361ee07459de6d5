"""``make interop`` in CI: a test that fails twice and is not a known failure fails CI.

    python -m tests.ci.interop [--minutes 25]

A failing test is tried once more, alone. A registry that does not answer is no failure; a test that is skipped is one,
unless a registry kept its program from us (POCKETMQ_MAY_LACK, see programs.py). ``known_failures.txt`` names tests
that may fail, each with its reason.
"""

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.ci.suite import QUIET, RETRIES_MAX, Outcome, Report, Retried, passes, run_suite, second_reason

KNOWN: Final = Path(__file__).with_name("known_failures.txt")
SELECTED: Final = "interop and not clients"
"""Without the clients of other languages: their toolchains and packages are not CI's."""
SUITE: Final = ("-m", SELECTED, "tests/interop", *QUIET)
ALONE: Final = ("-m", SELECTED, *QUIET)
ALONE_S: Final = 600.0
NO_ANSWER: Final = re.compile(
    r"Could not transfer artifact (?:(?!status code: 40[0-9]).)*$|Unknown host|No route to host"
    r"|Temporary failure in name resolution|Command '\['mvn'.*timed out",
    re.MULTILINE,
)
"""Maven's texts when the registry is out of reach or does not serve; a name that it does not know is a failure."""


@dataclass(slots=True)
class Verdict:
    """CI's verdict. It fails when ``broken`` or ``skipped`` is not empty, or when the run did not end."""

    broken: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    recovered: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    retried: Retried = field(default_factory=Retried)
    """The reasons of ``broken`` and ``recovered``."""
    is_whole: bool = True

    @property
    def is_good(self) -> bool:
        """Return whether CI goes on."""
        return self.is_whole and not self.broken and not self.skipped

    def lines(self, report: Report) -> list[str]:
        """Return what to print of each test that did not simply pass: tracebacks of broken tests, else one line."""
        told = self.retried.lines(report)
        told += [f"interop: BROKEN: {what}" for what in self.broken if what not in self.retried.broken]
        named = {"known to fail": self.known, "not run, the registry does not answer": self.unanswered}
        told += [f"interop: {what}: {test}" for what, tests in named.items() for test in tests]
        told += [f"interop: SKIPPED: {test}: {why.splitlines()[0]}" for test, why in self.skipped.items()]
        return told if self.is_whole else [*told, "interop: BROKEN: the run reached its bound"]


def read_known(text: str) -> dict[str, str]:
    """Return node ids with their reasons; a line without a reason raises ``ValueError``. Lines with # are comments."""
    known: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        test, separator, reason = line.partition("  # ")
        if not separator or not reason.strip():
            raise ValueError(f"line {number}: {line!r} gives no reason: write two blanks, # and the reason behind it")
        known[test.strip()] = reason.strip()
    return known


def judge(
    first: Outcome, again: Callable[[str], Outcome], known: Mapping[str, str], may_lack: Iterable[str]
) -> Verdict:
    """Try failed tests again and return the verdict."""
    verdict = Verdict(is_whole=first.is_whole)
    if not set(may_lack) & {"java", "javac", "mvn"}:
        verdict.skipped = dict(first.skipped)
    retry = len(first.failed) <= RETRIES_MAX
    for test, why in first.failed.items():
        if NO_ANSWER.search(why):
            verdict.unanswered.append(test)
        elif test in known:
            verdict.known.append(test)
        elif retry and passes(second := again(test)):
            verdict.recovered.append(test)
            verdict.retried.recovered[test] = why
        elif retry and second.failed and all(map(NO_ANSWER.search, second.failed.values())):
            verdict.unanswered.append(test)
        else:
            verdict.broken.append(test)
            verdict.retried.broken[test] = why, second_reason(second, test) if retry else ""
    if not first.failed and first.is_whole and first.exit_code != 0:
        verdict.broken.append(f"pytest ended with {first.exit_code}")
    return verdict


def main() -> int:
    """Run the tests, judge them, report, and return the exit code."""
    parser = argparse.ArgumentParser(description="interop tests, judged as CI does")
    parser.add_argument("--minutes", type=float, default=25.0, help="bound of the first run")
    options = parser.parse_args()
    known = read_known(KNOWN.read_text())
    with tempfile.TemporaryDirectory() as directory:
        results = Path(directory) / "results.xml"
        first = run_suite(SUITE, options.minutes * 60, results)
        verdict = judge(
            first,
            lambda test: run_suite([*ALONE, test], ALONE_S, results),
            known,
            os.environ.get("POCKETMQ_MAY_LACK", "").split(),
        )
    for line in verdict.lines(Report("interop")):
        print(line)
    print(f"interop: {first.passed} passed, {'good' if verdict.is_good else 'NOT good'}")
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
