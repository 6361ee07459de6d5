"""The report of a run in Markdown, made from its result lines alone.

Lives here: medians, spreads and ratios of the rounds, the tables, which plots there are.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.base.histogram import Latencies, merged
from bench.base.results import Line
from bench.cases import BY_NAME as CASES
from bench.comparison.case import Case
from bench.peers import BY_NAME as PEERS
from bench.report import charts
from bench.report.goals import goal_rows

OURS = "pocketmq"
BUSY_CORES = 0.25
"""More than this used by others: the report says that the machine was not quiet."""
SCALE_COLUMNS = {
    "messages_per_s": "messages/s",
    "mb_per_s": "MB/s",
    "offered_per_s": "offered/s",
    "of_peak": "of peak",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "p999_ms": "p99.9 ms",
    "delivered_p50_ms": "delivered p50 ms",
    "delivered_p99_ms": "delivered p99 ms",
    "delivered_p999_ms": "delivered p99.9 ms",
    "client_cpu_us": "client µs",
    "server_cpu_us": "server µs",
    "first_send_s": "first send s",
    "idle_cpu_percent": "idle CPU %",
    "idle_resident_mb": "idle resident MB",
    "idle_anonymous_mb": "idle anonymous MB",
    "loaded_resident_mb": "loaded resident MB",
    "loaded_anonymous_mb": "loaded anonymous MB",
    "threads": "threads",
    "filled_mb": "log MB",
    "stop_s": "stop s",
    "after_stop_s": "after stop s",
    "after_kill_s": "after kill -9 s",
}
"""Metrics that have a column, in this order, where any row has them."""


@dataclass(slots=True)
class Group:
    """The rounds of one peer in one variant of one case."""

    case: str
    variant: str
    peer: str
    x: float | None = None
    rounds: list[dict[str, Any]] = field(default_factory=list)

    def values(self, metric: str) -> list[float]:
        """Return a metric of the rounds that have it."""
        return [float(each[metric]) for each in self.rounds if isinstance(each.get(metric), int | float)]

    def median(self, metric: str) -> float | None:
        """Return the middle of the rounds, or None where none has the metric."""
        values = self.values(metric)
        return statistics.median(values) if values else None

    def bar(self, metric: str) -> charts.Bar | None:
        """Return median, least and most."""
        values = self.values(metric)
        return (statistics.median(values), min(values), max(values)) if values else None

    def latencies(self, key: str) -> Latencies | None:
        """Return the histograms of all rounds as one."""
        texts = [str(each[key]) for each in self.rounds if each.get(key)]
        return merged(texts) if texts else None


def is_better_low(metric: str) -> bool:
    """Say whether less of a metric is better."""
    return metric.endswith(("_s", "_ms", "_mb", "_us", "_percent")) and not metric.endswith("per_s")


def number_text(value: float | None) -> str:
    """Return a number with as many digits as it deserves."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.3g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table; the first column is text, the others are numbers."""
    return [
        "| " + " | ".join(head) + " |",
        "|" + "|".join(["---", *(["---:"] * (len(head) - 1))]) + "|",
        *("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows),
    ]


def section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a heading and its table, or nothing without rows."""
    return [f"## {title}", "", *table(head, rows), ""] if rows else []


def label_of(peer: str) -> str:
    """Return how the report names a peer."""
    return PEERS[peer].label if peer in PEERS else peer


class Report:
    """Reads the lines of one run once; ``text`` writes the report and the plots."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.environment: dict[str, Any] = next((dict(each) for each in lines if each["kind"] == "environment"), {})
        self.groups: dict[tuple[str, str, str], Group] = {}
        for line in lines:
            if line["kind"] != "run":
                continue
            key = (str(line["case"]), str(line["variant"]), str(line["peer"]))
            group = self.groups.setdefault(key, Group(*key))
            x = line.get("x")
            group.x = float(x) if isinstance(x, int | float) else None
            measured = line["figures"]
            assert isinstance(measured, dict)
            group.rounds.append(measured)

    def group(self, case: str, variant: str, peer: str) -> Group | None:
        """Return the rounds of a peer in a variant, or None."""
        return self.groups.get((case, variant, peer))

    def variants(self, case: str) -> list[str]:
        """Return the variants of a case in the order of the run."""
        return list(dict.fromkeys(group.variant for group in self.groups.values() if group.case == case))

    def of(self, case: str, variant: str) -> list[Group]:
        """Return the groups of a variant, in the order of the peers."""
        order = list(PEERS)
        found = [group for group in self.groups.values() if group.case == case and group.variant == variant]
        return sorted(found, key=lambda group: order.index(group.peer) if group.peer in order else len(order))

    def floor(self, start: str, metric: str) -> float | None:
        """Return a metric of the floor whose name begins so."""
        for line in self.lines:
            value = line.get(metric)
            if str(line.get("floor", "")).startswith(start) and isinstance(value, int | float):
                return float(value)
        return None

    def text(self, stem: str, directory: Path) -> str:
        """Return the whole report; draw its plots into ``directory``, their names beginning with ``stem``."""
        out = ["# Benchmarks side by side", ""]
        out += self._conditions() + self._floors()
        out += section("Against the goals", ["goal", "wanted", "measured", "verdict"], goal_rows(self))
        for case in dict.fromkeys(group.case for group in self.groups.values()):
            out += self._case(CASES[case], stem, directory) if case in CASES else []
        out += self._own() + self._missing() + self._acknowledged()
        return "\n".join(out) + "\n"

    def _conditions(self) -> list[str]:
        facts = self.environment
        if not facts:
            return []
        others = [float(value) for group in self.groups.values() for value in group.values("other_cores")]
        libraries, servers = (
            ", ".join(f"{name} {version}" for name, version in dict(facts.get(kind) or {}).items())
            for kind in ("libraries", "servers")
        )
        scale = dict(facts.get("scale") or {})
        out = [
            f"{facts.get('started')}; {facts.get('cores')} cores ({facts.get('processor')}), "
            f"{facts.get('memory_gb')} GB, {facts.get('file_system')}, Linux {facts.get('kernel')}, "
            f"CPython {facts.get('python')}, load at the start {facts.get('load')}, commit {facts.get('commit')}.",
            "",
        ]
        if scale:
            out += [
                f"{'Quick run' if scale.get('quick') else 'Full run'}: {scale.get('repeats')} rounds of "
                f"{scale.get('seconds')} s, peers in turn within each round; medians, in brackets the least and the "
                "most. Ratios are of medians of this run. One server process (RocketMQ: name server and broker) and "
                "one client process each, all on this machine. No compression. Index, checksums and telemetry of "
                "PocketMQ are on.",
                "",
                f"Servers: {servers}. Libraries: {libraries}.",
                "",
            ]
        if others and statistics.median(others) > BUSY_CORES:
            out += [
                f"**Not quiet:** other processes used {statistics.median(others):.2f} of the {facts.get('cores')} "
                "cores (median of the rounds); absolute numbers and tails are worth little.",
                "",
            ]
        return out

    def _floors(self) -> list[str]:
        keys = ("messages_per_s", "mb_per_s", "syncs_per_s", "p50_ms", "p99_ms")
        floors = [(str(line["floor"]), Group("", "", "", rounds=[line])) for line in self.lines if "floor" in line]
        rows = [[name, *(number_text(floor.median(key)) for key in keys)] for name, floor in floors]
        head = ["floor", "messages/s", "MB/s", "syncs/s", "p50 ms", "p99 ms"]
        return section("Floors of this machine, this run", head, rows)

    def _case(self, case: Case, stem: str, directory: Path) -> list[str]:
        out = [f"## {case.title}", "", case.text, ""]
        for variant in self.variants(case.name):
            out += [f"**{variant}**", "", *self._variant(case, variant), ""]
        plot = self._plot(case, stem, directory)
        return [*out, *([f"![{case.title}]({plot})", ""] if plot else [])]

    def _variant(self, case: Case, variant: str) -> list[str]:
        groups = self.of(case.name, variant)
        keys = [key for key in SCALE_COLUMNS if any(group.values(key) for group in groups)]
        ours = self.group(case.name, variant, OURS)
        our_value = ours.median(case.metric) if ours else None
        rows = []
        for group in groups:
            cells = {key: number_text(group.median(key)) for key in keys}
            bar = group.bar(case.metric)
            if case.metric in cells and bar is not None and len(group.rounds) > 1:
                cells[case.metric] += f" [{number_text(bar[1])}–{number_text(bar[2])}]"
            ratio = ratio_text(our_value, bar[0] if bar else None, case.metric)
            rows.append([label_of(group.peer), *cells.values(), ratio, failures_text(group)])
        head = ["", *(SCALE_COLUMNS[key] for key in keys), "PocketMQ is", "failed"]
        if not any(row[-1] for row in rows):
            head, rows = head[:-1], [row[:-1] for row in rows]
        return table(head, rows)

    def _plot(self, case: Case, stem: str, directory: Path) -> str:
        labels = {name: peer.label for name, peer in PEERS.items()}
        path = directory / f"{stem}-{case.name}.svg"
        groups = {variant: self.of(case.name, variant) for variant in self.variants(case.name)}
        unit = SCALE_COLUMNS.get(case.metric, case.metric)
        if case.chart == "percentiles":
            found = {
                variant: {group.peer: group.latencies("delivered_hdr") for group in of_variant}
                for variant, of_variant in groups.items()
            }
            curves = {
                variant: {peer: each.curve() for peer, each in of_variant.items() if each is not None}
                for variant, of_variant in found.items()
            }
            if not any(curves.values()):
                return ""
            charts.percentiles(path, f"{case.title}: due time to consumer", curves, labels)
        elif case.chart == "scaling" and len({group.x for of_variant in groups.values() for group in of_variant}) > 1:
            panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
            for variant, of_variant in groups.items():
                panel = panels.setdefault(variant.rsplit(", ", 1)[1] if ", " in variant else case.title, {})
                for group in of_variant:
                    value = group.median(case.metric)
                    if value is not None and group.x is not None:
                        panel.setdefault(group.peer, []).append((group.x, value))
            drawn = [charts.Panel(name, unit, of_panel) for name, of_panel in panels.items()]
            charts.scaling(path, case.title, case.x_label, drawn, labels)
        else:
            bars = {
                variant: {group.peer: bar for group in of_variant if (bar := group.bar(case.metric)) is not None}
                for variant, of_variant in groups.items()
            }
            bars = {variant: of_variant for variant, of_variant in bars.items() if of_variant}
            if not bars:
                return ""
            charts.bars(path, case.title, unit, bars, labels)
        return path.name

    def _own(self) -> list[str]:
        out: list[str] = []
        names = dict.fromkeys(str(line["bench"]) for line in self.lines if line["kind"] == "row")
        for name in names:
            found = [line["figures"] for line in self.lines if line["kind"] == "row" and line["bench"] == name]
            rows = [row for row in found if isinstance(row, dict)]
            out += [f"## PocketMQ alone: {name}", ""]
            while rows:  # rows of one shape make one table
                keys = list(rows[0])
                same = [row for row in rows if list(row) == keys]
                rows = [row for row in rows if list(row) != keys]
                out += [*table(keys, [[str(row[key]) for key in keys] for row in same]), ""]
        return out

    def _missing(self) -> list[str]:
        rows: dict[tuple[str, str, str], list[str]] = {}
        for line in self.lines:
            if line["kind"] in ("skip", "failed"):
                kind = "left out" if line["kind"] == "skip" else "FAILED"
                key = (str(line.get("peer", "")), kind, str(line["why"]))
                rows.setdefault(key, []).append(f"{line.get('case', 'all')} {line.get('variant', '')}".strip())
        cells = [[peer, kind, ", ".join(where), why] for (peer, kind, why), where in rows.items()]
        return section("Left out and failed", ["peer", "", "where", "why"], cells)

    def _acknowledged(self) -> list[str]:
        logs = dict(self.environment.get("one_topic_is") or {})
        cells = [
            [label_of(peer), str(logs.get(peer, "")), mode, text]
            for peer, modes in dict(self.environment.get("acknowledged") or {}).items()
            for mode, text in dict(modes).items()
        ]
        return section("What an acknowledgement means", ["", "one topic is", "durability", "acknowledged"], cells)


def ratio_text(ours: float | None, theirs: float | None, metric: str) -> str:
    """Return how many times better PocketMQ is than a row; below 1: worse."""
    if not ours or not theirs:
        return ""
    ratio = theirs / ours if is_better_low(metric) else ours / theirs
    return f"{ratio:.2f} ×"


def failures_text(group: Group) -> str:
    """Return how many messages failed or were never answered, if any."""
    total = sum(sum(group.values(key)) for key in ("failed", "unanswered", "refused_by_client"))
    return f"{total:,.0f}" if total else ""
