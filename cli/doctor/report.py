"""Prints the doctor's results: drawn on a terminal, plain lines in a pipe.

Lives here: ``render`` (for rich), ``plain_lines``, the findings of all brokers in one order, and the exit code of a
check.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pocketmq.cli.doctor.finding import Diagnosis, Finding, Light, Severity
from pocketmq.cli.doctor.session import Round
from pocketmq.cli.doctor.words import seconds_text
from pocketmq.cli.exit_codes import ExitCode
from pocketmq.common.units import plural

if TYPE_CHECKING:
    from rich.console import RenderableType

_LIGHT_STYLES: Final = {Light.GREEN: "green", Light.YELLOW: "yellow", Light.RED: "bold red", Light.NO_DATA: "dim"}
SEVERITY_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_AREA_WIDTH: Final = 10
SUMMARY_MAX: Final = 20


def exit_code_of_rounds(rounds: Sequence[Round]) -> ExitCode:
    """Return 0 when nothing is worse than a warning, 1 with an error, 4 when no broker could be read."""
    if not rounds or all(each.diagnosis.error for each in rounds):
        return ExitCode.NOT_REACHABLE
    bad = any(each.diagnosis.worst is Severity.ERROR for each in rounds)
    return ExitCode.FAILED if bad else ExitCode.OK


def worst_first(rounds: Sequence[Round]) -> list[tuple[Diagnosis, Finding]]:
    """Return the findings of all brokers in the order in which to read them."""
    found = [(each.diagnosis, finding) for each in rounds for finding in each.diagnosis.findings]
    return sorted(found, key=lambda each: each[1].rank)


def summary(rounds: Sequence[Round]) -> Iterator[tuple[Severity, str]]:
    """Yield a line for each finding that is worse than a note, of several brokers; none for one broker."""
    if len(rounds) < 2:
        return
    found = [each for each in worst_first(rounds) if each[1].severity is not Severity.NOTE]
    for diagnosis, finding in found[:SUMMARY_MAX]:
        yield finding.severity, f"{diagnosis.broker} at {diagnosis.address}: {finding.title}  [{finding.key}]"
    if len(found) > SUMMARY_MAX:
        yield found[SUMMARY_MAX][1].severity, f"and {plural(len(found) - SUMMARY_MAX, 'finding')} more"


def headline(diagnosis: Diagnosis) -> str:
    """Return the broker, the time, and how far back the metrics reach."""
    window = f", metrics of the last {seconds_text(diagnosis.window_s)}" if diagnosis.window_s is not None else ""
    at = time.strftime("%H:%M:%S", time.localtime(diagnosis.at_ms / 1000))
    version = f" ({diagnosis.version})" if diagnosis.version else ""
    return f"{diagnosis.broker} at {diagnosis.address}{version}, {at}{window}"


def verdict(diagnosis: Diagnosis) -> str:
    """Return one sentence on all findings."""
    if diagnosis.error:
        return "not read"
    counts = {kind: sum(each.severity is kind for each in diagnosis.findings) for kind in Severity}
    if counts[Severity.ERROR] or counts[Severity.WARNING]:
        parts = [plural(count, kind.value) for kind, count in counts.items() if count]
        return ", ".join(parts)
    known = [each for each in diagnosis.areas if each.light is not Light.NO_DATA]
    notes = f"; {plural(counts[Severity.NOTE], 'note')}" if counts[Severity.NOTE] else ""
    return f"nothing wrong in {plural(len(known), 'area')} of {len(diagnosis.areas)} that have data{notes}"


def finding_lines(finding: Finding) -> Iterator[tuple[str, str]]:
    """Yield the parts of a finding with their labels, in reading order."""
    for line in finding.evidence:
        yield "evidence", line
    yield "cause", finding.cause
    yield "cure", finding.cure
    for advice in finding.settings:
        yield "setting", f"{advice.name} = {advice.present} → {advice.suggested}; it costs: {advice.cost}"
    if finding.reference:
        yield "see", finding.reference


def plain_lines(rounds: Sequence[Round]) -> Iterator[str]:
    """Yield the report as lines without colors or wrapping."""
    head = list(summary(rounds))
    if head:
        yield _summary_title(rounds)
    for severity, text in head:
        yield f"  {severity.value.upper():<7}  {text}"
    for number, each in enumerate(rounds):
        diagnosis = each.diagnosis
        if number or head:
            yield ""
        yield headline(diagnosis)
        for line in diagnosis.areas:
            yield f"  {line.area.value:<{_AREA_WIDTH}}  {line.light.value:<7}  {line.text}"
        yield f"  {verdict(diagnosis)}"
        for text in diagnosis.missing:
            yield f"  {text}"
        for text in each.rates:
            yield f"  since the previous check: {text}"
        for text in each.gone:
            yield f"  gone: {text}"
        for finding in diagnosis.findings:
            mark = " (new)" if finding.key in each.new else ""
            yield ""
            yield f"  {finding.severity.value.upper()} {finding.title}{mark}  [{finding.key}]"
            for label, text in finding_lines(finding):
                yield f"    {label:<8}  {text}"


def _summary_title(rounds: Sequence[Round]) -> str:
    return f"{plural(len(rounds), 'broker')}, the worst first:"


def render(rounds: Sequence[Round]) -> "RenderableType":
    """Return the report for a terminal."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    if head := list(summary(rounds)):
        parts.append(Text(_summary_title(rounds), "bold"))
        parts += [
            Text.assemble("  ", (f"{severity.value.upper():<7}", SEVERITY_STYLES[severity]), f"  {text}")
            for severity, text in head
        ]
    for each in rounds:
        if parts:
            parts.append(Text())
        parts += _render_one(each)
    return Group(*parts)


def _render_one(each: Round) -> "list[RenderableType]":
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    diagnosis = each.diagnosis
    parts: list[RenderableType] = [Text(headline(diagnosis), "bold")]
    grid = Table.grid(padding=(0, 1))
    for line in diagnosis.areas:
        dot, style = ("○", "dim") if line.light is Light.NO_DATA else ("●", "")
        light = Text(f"  {dot}", _LIGHT_STYLES[line.light])
        grid.add_row(light, Text(line.area.value, "bold"), Text(line.text, style))
    if diagnosis.areas:
        parts.append(grid)
    worst = diagnosis.worst
    style = SEVERITY_STYLES[worst] if worst is not None and worst is not Severity.NOTE else "green"
    parts.append(Padding(Text(verdict(diagnosis), style), (0, 0, 0, 2)))
    parts += [Padding(Text(text, "dim"), (0, 0, 0, 2)) for text in diagnosis.missing]
    parts += [Padding(Text(f"since the previous check: {text}"), (0, 0, 0, 2)) for text in each.rates]
    parts += [Padding(Text(f"gone: {text}", "green"), (0, 0, 0, 2)) for text in each.gone]
    for finding in diagnosis.findings:
        style = SEVERITY_STYLES[finding.severity]
        mark = (" (new)", "bold") if finding.key in each.new else ""
        title = Text.assemble((finding.severity.value.upper(), style), " ", (finding.title, "bold"), mark)
        table = Table.grid(padding=(0, 2))
        for label, text in finding_lines(finding):
            table.add_row(Text(f"    {label}", "dim"), Text(text))
        parts += [Text(), Padding(title, (0, 0, 0, 2)), table]
    return parts
