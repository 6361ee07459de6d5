"""The report: one self-contained HTML page, for small screens and dark mode, too.

Lives here: ``write_page``. All texts are escaped and the page may run no script: logs are untrusted.
"""

import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.common.units import plural
from pocketmq.pipeline.jobs.flow_control.chain import Chain, minute_text, ms
from pocketmq.pipeline.jobs.flow_control.evidence import Incident

INCIDENTS_SHOWN_MAX: Final = 50
MINUTES_SHOWN_MAX: Final = 240
EVIDENCE_SHOWN_MAX: Final = 8
_STYLE: Final = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--bad:#d1495b;--good:#5aa469;--dim:#808080}
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.2rem;border-bottom:1px solid var(--line)}
h3{font-size:1.05rem;margin:.2rem 0;overflow-wrap:anywhere}
.tiles{display:flex;flex-wrap:wrap;gap:.6rem}.tile{border:1px solid var(--line);border-radius:.5rem;padding:.5rem .9rem}
.tile b{display:block;font-size:1.4rem}
.incident{border:1px solid var(--line);border-left:.3rem solid var(--bad);border-radius:.5rem;
padding:.8rem;margin:1rem 0}
.chain{list-style:none;padding:0;margin:.6rem 0}
.chain>li{border-left:.2rem solid var(--good);padding:.1rem 0 .5rem .8rem;position:relative}
.chain>li.open{border-left:.2rem dashed var(--dim);color:var(--dim)}
.chain>li+li::before{content:"\\2193";position:absolute;left:-.45rem;top:-.75rem;color:var(--dim)}
.cited{font-size:.82rem;color:var(--dim);overflow-wrap:anywhere;margin:.1rem 0 0;padding-left:1.1rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem}
td,th{padding:.2rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
td:first-child,th:first-child,td.left{text-align:left}
svg{width:100%;height:auto}code{background:var(--soft);padding:0 .25rem;border-radius:.2rem}
.dim{color:var(--dim);font-size:.9rem}
"""
_HEAD: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    "<title>PocketMQ: flow control</title>"
)
_COLUMNS: Final = (
    ("refused", "refused"),
    ("client_sends_ended", "ended in clients"),
    ("puts", "puts"),
    ("queue_wait_p99_ms", "queue wait p99, ms"),
    ("append_p99_ms", "append p99, ms"),
    ("lock_held_max_ms", "lock held, ms"),
    ("sync_p99_ms", "sync p99, ms"),
    ("replica_wait_p99_ms", "replica wait p99, ms"),
    ("whole_p99_ms", "whole put p99, ms"),
    ("slave_behind_max_ms", "slave behind, ms"),
)


@dataclass(slots=True)
class Report:
    """The content of the page. ``minutes``: rows of the table of minutes; ``pictures``: SVG by broker."""

    begin_ms: int
    end_ms: int
    counts: Mapping[str, int]
    unreadable: Sequence[tuple[str, str]]
    incidents: Sequence[tuple[Incident, Sequence[Chain]]]
    incidents_all: int
    refused: int
    sends_ended: int
    refused_by: Mapping[str, int]
    brokers: int
    minutes: Sequence[Mapping[str, Any]]
    pictures: Mapping[str, str]
    traces: Sequence[Mapping[str, Any]] = ()


def write_page(path: str, report: Report) -> None:
    """Write the page atomically: a reader sees the old one or the new one."""
    parts = [_HEAD, f"<style>{_STYLE}</style></head><body>", *_top(report), *_incidents(report)]
    parts += [*_pictures(report), *_minutes(report), *_traces(report), *_reading(report), _METHOD, "</body></html>\n"]
    aside = f"{path}.tmp"
    with open(aside, "w", encoding="utf-8", errors="replace") as file:
        file.write("\n".join(parts))
    os.replace(aside, path)


def _e(value: object) -> str:
    return html.escape(str(value), quote=True)


def _top(report: Report) -> list[str]:
    if not report.counts.get("events"):
        span = "The logs hold no event of PocketMQ."
    else:
        span = f"{minute_text(report.begin_ms)} to {minute_text(report.end_ms)} UTC"
    tiles = (
        (report.incidents_all, "incidents"),
        (report.refused, "requests refused"),
        (report.sends_ended, "sends ended in clients"),
        (report.brokers, "brokers"),
        (report.counts.get("events", 0), "events read"),
    )
    cells = "".join(f'<div class="tile"><b>{count:,}</b>{_e(text)}</div>' for count, text in tiles)
    kinds = "".join(f"<tr><td>{_e(text)}</td><td>{count:,}</td></tr>" for text, count in report.refused_by.items())
    table = (
        f'<div class="scroll"><table><tr><th>refusal</th><th>requests</th></tr>{kinds}</table></div>' if kinds else ""
    )
    return ["<h1>Flow control</h1>", f'<p class="dim">{_e(span)}</p>', f'<div class="tiles">{cells}</div>', table]


def _incidents(report: Report) -> list[str]:
    parts = ["<h2>Incidents and their causes</h2>"]
    if not report.incidents:
        parts.append("<p>None: no request was refused, no lock held for long, no failed send reported.</p>")
    for incident, chains in report.incidents[:INCIDENTS_SHOWN_MAX]:
        span = f"{minute_text(incident.begin_ms)} to {minute_text(incident.end_ms)[-5:]} UTC"
        parts.append('<section class="incident">')
        parts.append(f"<h3>{_e(incident.broker)}: {_e(chains[0].summary)}</h3>")
        parts.append(
            f'<p class="dim">{span}, {plural(incident.minutes, "minute")} with trouble; '
            f"{plural(incident.refused, 'request')} refused, "
            f"{plural(incident.sends_ended, 'send')} ended in clients</p>"
        )
        for chain in chains:
            parts += _chain(chain)
        parts.append("</section>")
    more = report.incidents_all - min(len(report.incidents), INCIDENTS_SHOWN_MAX)
    if more > 0:
        parts.append(
            f"<p>{plural(more, 'smaller incident')} not shown; all are in the Parquet table <code>incidents</code>.</p>"
        )
    return parts


def _chain(chain: Chain) -> list[str]:
    kind = f"Incident class {chain.number}" if chain.number else "Class"
    parts = [f"<p><b>{_e(kind)}</b>: {_e(chain.title)}</p>", '<ol class="chain">']
    for step in chain.steps:
        cited = "".join(f"<li>{_e(text)}</li>" for text in step.evidence[:EVIDENCE_SHOWN_MAX])
        left = len(step.evidence) - EVIDENCE_SHOWN_MAX
        cited += f"<li>and {left} more</li>" if left > 0 else ""
        mark = "" if step.shown else ' class="open"'
        word = "" if step.shown else " <i>(not shown by these logs)</i>"
        parts.append(f'<li{mark}>{_e(step.text)}{word}<ul class="cited">{cited}</ul></li>')
    parts.append("</ol>")
    if chain.missing:
        parts.append(f"<p><b>Not enough evidence.</b> Missing: {_e('; '.join(chain.missing))}</p>")
    parts.append("<p><b>Cure</b></p><ul>" + "".join(f"<li>{_e(cure)}</li>" for cure in chain.cures) + "</ul>")
    if chain.scenario:
        parts.append(
            f'<p class="dim">The same on your machine: <code>pocketmq scenario {_e(chain.scenario)}</code></p>'
        )
    return parts


def _pictures(report: Report) -> list[str]:
    parts = ["<h2>Minutes</h2>"] if report.pictures or report.minutes else []
    for broker, svg in report.pictures.items():
        parts.append(f"<h3>{_e(broker)}</h3><div>{svg}</div>")
    return parts


def _minutes(report: Report) -> list[str]:
    if not report.minutes:
        return []
    head = "".join(f"<th>{_e(text)}</th>" for _, text in _COLUMNS)
    rows = []
    for row in report.minutes[:MINUTES_SHOWN_MAX]:
        cells = "".join(f"<td>{_number(row.get(name))}</td>" for name, _ in _COLUMNS)
        rows.append(f'<tr><td>{_e(row["at"])}</td><td class="left">{_e(row["broker"])}</td>{cells}</tr>')
    left = len(report.minutes) - MINUTES_SHOWN_MAX
    note = "<p>More minutes with trouble are in the Parquet table <code>minute</code>.</p>" if left > 0 else ""
    return [
        f'<div class="scroll"><table><tr><th>minute, UTC</th><th>broker</th>{head}</tr>{"".join(rows)}</table></div>',
        note,
    ]


def _number(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
    return f"{value:,}" if isinstance(value, int) else _e(value)


def _traces(report: Report) -> list[str]:
    if not report.traces:
        return []
    rows = "".join(
        f"<tr><td>{_e(row['at'])}</td><td>{_e(row['topic'])}</td><td>{row['sends']:,}</td><td>{row['failed']:,}</td>"
        f"<td>{_e(ms(row['p50_ms']))}</td><td>{_e(ms(row['p99_ms']))}</td></tr>"
        for row in report.traces
    )
    head = "<tr><th>minute, UTC</th><th>topic</th><th>sends</th><th>failed</th><th>p50</th><th>p99</th></tr>"
    return ["<h2>Sends as clients traced them</h2>", f'<div class="scroll"><table>{head}{rows}</table></div>']


def _reading(report: Report) -> list[str]:
    words = {
        "files": "files",
        "lines": "lines",
        "events": "events of PocketMQ",
        "broken": "broken or incomplete lines, skipped",
        "foreign": "lines of another format, skipped",
        "enormous": "lines above 1 MiB, skipped",
        "without_time": "events without a usable time, skipped",
        "clock_back": "times that a clock went back by more than 1 s",
        "empty_files": "empty files",
        "unreadable": "files that could not be read to their end",
    }
    rows = "".join(
        f"<tr><td>{_e(text)}</td><td>{report.counts[name]:,}</td></tr>"
        for name, text in words.items()
        if report.counts.get(name)
    )
    bad = "".join(f"<li>{_e(path)}: {_e(error)}</li>" for path, error in report.unreadable[:20])
    return [
        "<h2>What was read</h2>",
        f'<div class="scroll"><table>{rows}</table></div>',
        f"<ul>{bad}</ul>" if bad else "",
    ]


_METHOD: Final = (
    '<p class="dim">How to read it: a broker counts its stages in intervals of a minute, or of ten seconds while it '
    "refuses. Where a minute has several, p50 is their mean weighted by counts and p99 the highest: an upper bound. "
    "Percentiles of an interval are at most 6 % too high. Each refusal counts once; counts may come from sampled "
    "lines, which carry the number of omitted ones. Steps in gray are not shown by these logs.</p>"
)
