"""A report as text: the runs, the results of the clients, the measurements of the brokers, the failed checks.

Lives here: ``print_report``, drawn with rich on a terminal, plain lines in a pipe.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from pocketmq.cli.output import print_table
from pocketmq.cli.scenario.report.report import Latency, Outcome, Phase, Report

SUMMARY: Final = (
    "run",
    "kind",
    "sends",
    "delivered",
    "p50 / p99 ms",
    "failed",
    "after p50 ms",
    "stored, no receipt",
    "delivered, then lost",
)


def print_report(report: Report) -> None:
    """Print a report."""
    say = _Say()
    say.title(f"{report.scenario}: {report.incident}")
    say.line(report.question)
    if report.quick:
        say.line("(--quick: fewer sends and shorter times; the numbers are smaller, the texts are the same)")
    if report.knobs:
        chosen = " ".join(f"{option} {value}" for option, value in report.knobs.items())
        say.line(f"(changed: {chosen}; a check that fails then says what is different)")
    print_table(SUMMARY, [_summary(phase) for phase in report.phases], title="All runs")
    for phase in report.phases:
        _print_phase(phase, say)
    say.title("Cure")
    say.line(report.cure)
    say.line(f"Price: {report.price}.")
    differed = report.failed()
    say.title("As expected" if report.ok else "NOT as expected")
    for name, check in differed:
        say.line(f"{name}: expected: {check.what}; found: {check.found}")
    checks = sum(len(phase.checks) for phase in report.phases)
    say.line(f"{checks - len(differed)} of {checks} checks hold; {report.duration_s:.0f} s; {report.machine}")
    if report.directory:
        say.line(f"kept: {report.directory}")


def _summary(phase: Phase) -> tuple[object, ...]:
    failed = phase.sends - phase.delivered
    return (
        phase.name,
        phase.role,
        phase.sends,
        phase.delivered,
        " / ".join(_times(phase.delivered_latency)) if phase.delivered else "",
        failed,
        f"{phase.failed_latency.p50_ms:,.0f}" if failed else "",
        phase.stored_for_nobody,
        phase.acknowledged_lost,
    )


def _times(latency: Latency) -> tuple[str, str]:
    return (f"{latency.p50_ms:,.1f}", f"{latency.p99_ms:,.1f}") if latency.count else ("", "")


def _print_phase(phase: Phase, say: "_Say") -> None:
    say.title(f"{phase.role}: {phase.name}")
    say.line(phase.says)
    say.line(f"load: {phase.load}")
    say.line("settings: " + "; ".join(f"{key}={value}" for key, value in phase.settings.items()))
    print_table(("what the clients saw", "sends", "p50 ms", "p99 ms", "stored", "cause"), _outcome_rows(phase.outcomes))
    if phase.evidence:
        print_table(
            ("broker", "what the brokers measured", "", "from"),
            [(each.broker, each.what, each.value, each.source) for each in phase.evidence],
        )
    for check in phase.checks:
        say.line(f"  {'ok  ' if check.ok else 'NO  '} {check.what}: {check.found}")


def _outcome_rows(outcomes: Iterable[Outcome]) -> Sequence[Sequence[object]]:
    return [
        (outcome.text, outcome.count, *_times(outcome.latency), outcome.stored, outcome.cause) for outcome in outcomes
    ]


class _Say:
    """Prints the lines between the tables."""

    def __init__(self) -> None:
        self._print: Callable[..., None] | None = None
        if sys.stdout.isatty():
            from rich.console import Console

            self._print = partial(Console(highlight=False).print, markup=False)

    def title(self, text: str) -> None:
        """Print a heading."""
        if self._print is not None:
            self._print(f"\n{text}", style="bold")
        else:
            print(f"\n== {text}")

    def line(self, text: str) -> None:
        """Print a line."""
        (self._print or print)(text)
