"""The timeline of a scenario with spans: one row a run, who had the lock and who worked, from when to when.

Lives here: ``draw`` (a file, by matplotlib) and ``print_timeline`` (the terminal).
"""

import sys
from typing import Any, Final

from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.scenario.report.report import Phase, Report

LANES: Final = ("lock", "work")
COLORS: Final = {"first": "#2166ac", "second": "#2a9d5c", "first, which is gone": "#c1272d", "nobody": "#bbbbbb"}
STYLES: Final = {"first": "blue", "second": "green", "first, which is gone": "red", "nobody": "dim"}
MARKS: Final = {"first": "1", "second": "2", "first, which is gone": "x", "nobody": "·"}
COLUMNS: Final = 72


def seconds_of(report: Report) -> float:
    """Return the end of the last span."""
    return max((span.to_s for phase in report.phases for span in phase.spans), default=0.0)


def row(phase: Phase, lane: str, seconds: float) -> list[str]:
    """Return for each column what is in a lane then: the name of a span, or nothing."""
    cells = [""] * COLUMNS
    for span in phase.spans:
        if span.lane == lane and seconds:
            first = min(COLUMNS - 1, int(span.from_s / seconds * COLUMNS))
            last = min(COLUMNS - 1, int(span.to_s / seconds * COLUMNS))
            cells[first : last + 1] = [span.what] * (last + 1 - first)
    return cells


def print_timeline(report: Report) -> None:
    """Draw every run, two rows each; nothing in a pipe, where the tables say all."""
    if not sys.stdout.isatty():
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    seconds = seconds_of(report)
    for phase in report.phases:
        console.print(f"\n{phase.role}: {phase.name}", style="bold", markup=False)
        for lane in LANES:
            text = Text(f"{lane:>6} │")
            for what in row(phase, lane, seconds):
                text.append(MARKS[what] if what else " ", STYLES[what] if what else None)
            console.print(text, soft_wrap=True)
        column = min(COLUMNS - 1, int(phase.ended_s / seconds * COLUMNS)) if seconds else 0
        console.print(
            f"       └{'─' * column}┴{'─' * (COLUMNS - column - 1)} {seconds:.1f} s", markup=False, soft_wrap=True
        )
    legend = ", ".join(f"{mark} {what}" for what, mark in MARKS.items())
    console.print(f"\n{legend}; ┴ the first one ends; an empty work row: the queue stands still", markup=False)


def draw(report: Report, path: str) -> None:
    """Draw ``report`` into ``path``; the kind of file was checked before."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    count = len(report.phases)
    figure, axes = pyplot.subplots(figsize=(11.0, 0.95 * count + 1.4))
    try:
        ticks: list[tuple[float, str]] = []
        for number, phase in enumerate(report.phases):
            top = float(count - number)
            for lane, height in (("lock", 0.30), ("work", 0.0)):
                _bars(axes, phase, lane, top + height)
                ticks.append((top + height, f"{phase.name}\nlock" if lane == "lock" else "work"))
            axes.plot([phase.ended_s, phase.ended_s], [top - 0.18, top + 0.48], color="black", linewidth=1.4)
            still = next((each.value for each in phase.evidence if "stood still" in each.what), "")
            axes.text(phase.ended_s, top + 0.52, f"the first one ends; stands still {still} s", fontsize=7)
        axes.set_yticks([at for at, _ in ticks], [text for _, text in ticks], fontsize=7)
        axes.set_ylim(0.6, count + 0.9)
        axes.set_xlim(left=0)
        axes.set_xlabel("seconds")
        axes.grid(True, axis="x", alpha=0.25)
        axes.legend(
            handles=[Patch(color=color, label=what) for what, color in COLORS.items()],
            loc="upper center",
            bbox_to_anchor=(0.5, -0.12),
            ncols=4,
            fontsize=7,
            frameon=False,
        )
        title = f"{report.scenario}: who has the lock of the queue, and who works on it"
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        figure.tight_layout()
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise CommandFailed("the picture cannot be written", why=f"{path}: {error.strerror}") from error
    finally:
        pyplot.close(figure)


def _bars(axes: Any, phase: Phase, lane: str, at: float) -> None:
    for span in phase.spans:
        if span.lane == lane:
            width = max(span.to_s - span.from_s, 0.03)
            axes.barh(at, width, left=span.from_s, height=0.24, color=COLORS[span.what], linewidth=0)
