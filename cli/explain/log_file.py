"""``pocketmq explain --log``: incidents, causes and cures from logs of RocketMQ or PocketMQ, without Spark.

Lives here: ``explain_log``, which reads and prints; the reader and the rules are those of ``pipeline flow-control``.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from pocketmq.cli.output import print_json, print_progress
from pocketmq.common.printable import printable
from pocketmq.common.units import plural
from pocketmq.pipeline.jobs.flow_control.blocks import STDIN
from pocketmq.pipeline.jobs.flow_control.chain import Chain, minute_text
from pocketmq.pipeline.jobs.flow_control.evidence import INCIDENTS_MAX, Incident
from pocketmq.pipeline.jobs.flow_control.files import find_logs, logs_of
from pocketmq.pipeline.jobs.flow_control.log_reader import Reading, Zones, read_log
from pocketmq.pipeline.jobs.flow_control.tally import Tally

SHOWN: Final = 5
"""Incidents that are printed; JSON has all."""
CITED: Final = 3
"""Pieces of evidence of a step that are printed."""
READ: Final = ("lines", "events", "continued")
"""Counts of lines that were read; the others are of skipped input."""
FACTS_A_NOTE: Final = 1_000_000


def explain_log(places: Sequence[str], zones: Zones, *, quiet_minutes: int = 1, as_json: bool = False) -> None:
    """Read files, patterns, directories, ``-`` for standard input; print what happened, why, and what to do.

    Reads line by line; memory does not grow with the logs. Raises ``ConfigError`` for a place without files.
    """
    files = find_logs([place for place in places if place != STDIN]) if set(places) != {STDIN} else []
    paths = [*files, *([STDIN] if STDIN in places else [])]
    tally, counts = Tally(), Counter[str]()
    unreadable: list[tuple[str, str]] = []
    logs = logs_of(paths)
    facts = 0
    for path in paths:
        reading = Reading()
        for line, at_ms, fact in read_log(path, reading, zones):
            tally.add(logs[path], path, line, at_ms, fact)
            facts += 1
            if facts % FACTS_A_NOTE == 0 and sys.stderr.isatty():
                print_progress(f"{path}: line {reading.lines:,}")
        counts.update(dict(reading.counts()))
        if reading.unreadable:
            unreadable.append((path, reading.error))
    incidents, number = tally.incidents(quiet_minutes)
    if as_json:
        print_json(_document(incidents, number, counts, unreadable, tally))
        return
    for incident, chains in incidents[:SHOWN]:
        print("\n".join(_incident_lines(incident, chains)))
        print()
    for text in _notes(len(paths), number, counts, unreadable, tally):
        print(text)


def _document(
    incidents: Sequence[tuple[Incident, Sequence[Chain]]],
    number: int,
    counts: Counter[str],
    unreadable: Sequence[tuple[str, str]],
    tally: Tally,
) -> dict[str, Any]:
    return {
        "incidents": [
            {
                "broker": incident.broker,
                "begin": minute_text(incident.begin_ms),
                "end": minute_text(incident.end_ms),
                "refused": incident.refused,
                "sends_ended": incident.sends_ended,
                "chains": [
                    {
                        "class": chain.number,
                        "class_text": chain.title,
                        "summary": chain.summary,
                        "complete": chain.complete,
                        "steps": [{"step": step.text, "evidence": step.evidence} for step in chain.steps],
                        "missing": chain.missing,
                        "cures": chain.cures,
                        "scenario": chain.scenario,
                    }
                    for chain in chains
                ],
            }
            for incident, chains in incidents
        ],
        "incidents_all": number,
        "refused": tally.refused(),
        "counts": dict(counts),
        "unreadable": [{"file": path, "error": error} for path, error in unreadable],
        "left_out": tally.left_out,
    }


def _incident_lines(incident: Incident, chains: Sequence[Chain]) -> list[str]:
    facts = [f"{plural(incident.refused, 'request')} refused"] if incident.refused else []
    facts += [f"{plural(incident.sends_ended, 'send')} ended in clients"] if incident.sends_ended else []
    begin, end = minute_text(incident.begin_ms), minute_text(incident.end_ms)[11:]
    lines = [f"{printable(incident.broker)}, {begin} to {end} UTC{': ' if facts else ''}{', '.join(facts)}"]
    for chain in chains:
        lines.append(f"  {chain.summary}  (class {chain.number}: {chain.title})")
        for step in chain.steps:
            lines.append(f"    {'-' if step.shown else '?'} {printable(step.text)}")
            lines += [f"        {printable(text)}" for text in step.evidence[:CITED]]
            if len(step.evidence) > CITED:
                lines.append(f"        and {len(step.evidence) - CITED} more")
        lines += [f"    missing: {text}" for text in chain.missing]
        lines += [f"    cure: {text}" for text in chain.cures]
        if chain.scenario:
            lines.append(f"    see it: pocketmq scenario {chain.scenario}")
    return lines


def _notes(
    files: int, number: int, counts: Counter[str], unreadable: Sequence[tuple[str, str]], tally: Tally
) -> list[str]:
    read = f"{plural(files, 'file')}, {plural(counts['lines'], 'line')}, {counts['events']:,} with a time"
    lines = [f"{read}; {plural(number, 'incident')}"]
    skipped = {name: count for name, count in counts.items() if name not in READ}
    if skipped:
        lines.append("skipped or odd: " + ", ".join(f"{name} {count:,}" for name, count in sorted(skipped.items())))
    lines += [f"not read to its end: {printable(path)}: {printable(error)}" for path, error in unreadable]
    if number > SHOWN:
        lines.append(f"{plural(number - SHOWN, 'smaller incident')}: --json has the worst {INCIDENTS_MAX}")
    if tally.left_out:
        lines.append(
            f"{plural(tally.left_out, 'fact')} found no room: give fewer files, or use pocketmq pipeline flow-control"
        )
    if not counts["events"] and not counts["undated"]:
        lines.append("no event of PocketMQ and no line of RocketMQ: are these its logs?")
    elif not number:
        lines.append(
            "These logs show no refusal and no long wait. RocketMQ's broker does not log refusals: add "
            "rocketmq_client.log or the application's log."
        )
    return lines
