"""The picture in a file, drawn by matplotlib (extra ``plots``), which is imported on first use.

Lives here: ``check``, and ``draw``: one panel a run with its sends over time, their latency on a log scale, colored by
outcome; or, for a report with a timeline, two rows a run: who had the lock, and who worked.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.scenario.report.report import Phase, Report
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: Final = (".png", ".svg")
DELIVERED_COLORS: Final = ("#2a9d5c", "#7fc8a0")
FAILED_COLORS: Final = ("#c1272d", "#e08214", "#7b3294", "#2166ac", "#636363")
SPAN_COLORS: Final = {"first": "#2166ac", "second": "#2a9d5c", "first, which is gone": "#c1272d", "nobody": "#bbbbbb"}
PANEL_INCHES: Final = (11.0, 2.6)
TEXT_CHARACTERS_MAX: Final = 130
LEGEND_BELOW: Final = -0.08
LEGEND_BELOW_TICKS: Final = -0.3
"""Where a legend begins, in heights of a panel; the last panel has the time axis there."""


def check(path: str) -> None:
    """Raise an error before a run of a minute if its picture cannot be drawn."""
    target = Path(path)
    if target.suffix.lower() not in KINDS:
        raise ConfigError(
            "the picture cannot be drawn", why=f"{path!r} is neither .png nor .svg", hint="end the name in one of them"
        )
    if not target.absolute().parent.is_dir():
        raise ConfigError("the picture cannot be drawn", why=f"there is no directory {target.absolute().parent}")
    try:
        import matplotlib  # noqa: F401  is it installed?
    except ImportError as error:
        raise CommandFailed(
            "the picture cannot be drawn",
            why="matplotlib is not installed",
            hint="pip install 'pocketmq[plots]', or omit --picture: the terminal shows a picture, too",
        ) from error


def draw(report: Report, path: str) -> None:
    """Draw ``report`` into ``path``."""
    from matplotlib.figure import Figure

    figure = Figure()
    title = _draw_timeline(figure, report) if report.has_timeline else _draw_sends(figure, report)
    figure.suptitle(f"{report.scenario}: {title}", x=0.01, ha="left", fontsize=11)
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise CommandFailed("the picture cannot be written", why=f"{path}: {error.strerror}") from error


def _draw_sends(figure: "Figure", report: Report) -> str:
    (width, height), count = PANEL_INCHES, len(report.phases)
    figure.set_size_inches(width, height * count + 0.8)
    panels = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    colors = report.colors(DELIVERED_COLORS, FAILED_COLORS)
    for axes, phase in zip(panels, report.phases, strict=True):
        for number, outcome in enumerate(phase.outcomes):
            points = [point for point in phase.points if point.outcome == number]
            text = outcome.text
            if len(text) > TEXT_CHARACTERS_MAX:
                text = text[: TEXT_CHARACTERS_MAX - 1] + "…"
            axes.scatter(
                [point.at_s for point in points],
                [max(point.took_ms, 0.01) for point in points],
                s=9,
                alpha=0.6,
                linewidths=0,
                color=colors[outcome.text_without_numbers],
                label=f"{outcome.count:,} × {text}".replace("$", r"\$"),
            )
        axes.set_yscale("log")
        axes.set_ylim(0.1, 20_000)
        axes.set_ylabel("ms")
        axes.grid(True, which="major", alpha=0.25)
        title = f"{phase.role}: {phase.name}  ({phase.delivered:,} of {phase.sends:,} delivered)"
        axes.set_title(title, loc="left", fontsize=9)
        below = LEGEND_BELOW_TICKS if axes is panels[-1] else LEGEND_BELOW
        axes.legend(loc="upper left", bbox_to_anchor=(0, below), fontsize=7, frameon=False)
    panels[-1].set_xlabel("second of the load in which the send was due")
    return "how long each send took, and how it ended"


def _draw_timeline(figure: "Figure", report: Report) -> str:
    from matplotlib.patches import Patch

    count = len(report.phases)
    figure.set_size_inches(11.0, 0.95 * count + 1.4)
    axes: Any = figure.subplots()
    ticks: list[tuple[float, str]] = []
    for number, phase in enumerate(report.phases):
        top = float(count - number)
        for lane, at in (("lock", top + 0.30), ("work", top)):
            _draw_bars(axes, phase, lane, at)
            ticks.append((at, f"{phase.name}\nlock" if lane == "lock" else "work"))
        axes.plot([phase.ended_s, phase.ended_s], [top - 0.18, top + 0.48], color="black", linewidth=1.4)
        still = next((each.value for each in phase.evidence if "stood still" in each.what), "")
        axes.text(phase.ended_s, top + 0.52, f"the first one ends; stands still {still} s", fontsize=7)
    axes.set_yticks([at for at, _ in ticks], [text for _, text in ticks], fontsize=7)
    axes.set_ylim(0.6, count + 0.9)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds")
    axes.grid(True, axis="x", alpha=0.25)
    legend = [Patch(color=color, label=what) for what, color in SPAN_COLORS.items()]
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.12), "ncols": 4}
    axes.legend(handles=legend, fontsize=7, frameon=False, **place)
    return "which member has the lock of the queue, and which one works on it"


def _draw_bars(axes: Any, phase: Phase, lane: str, at: float) -> None:
    for span in phase.spans:
        if span.lane == lane:
            width = max(span.to_s - span.from_s, 0.03)
            axes.barh(at, width, left=span.from_s, height=0.24, color=SPAN_COLORS[span.what], linewidth=0)
