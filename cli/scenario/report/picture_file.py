"""The picture in a file: one panel a run, sends over time, latency on a log scale, colored by how they ended.

Lives here: ``check`` and ``draw``, by matplotlib (extra ``plots``), imported on first use.
"""

from pathlib import Path
from typing import Final

from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.scenario.report.report import Report
from pocketmq.common.errors import ConfigError

KINDS: Final = (".png", ".svg")
DELIVERED_COLORS: Final = ("#2a9d5c", "#7fc8a0")
FAILED_COLORS: Final = ("#c1272d", "#e08214", "#7b3294", "#2166ac", "#636363")
PANEL_INCHES: Final = (11.0, 2.6)
TEXT_CHARACTERS_MAX: Final = 130
LEGEND_BELOW: Final = -0.08
LEGEND_BELOW_TICKS: Final = -0.3
"""Where a legend begins, in heights of a panel; the last panel has the time axis there."""


def check(path: str) -> None:
    """Raise before a run of a minute what would keep its picture from being drawn."""
    target = Path(path)
    if target.suffix.lower() not in KINDS:
        raise ConfigError("the picture cannot be drawn", why=f"{path!r} is neither .png nor .svg", hint="name it so")
    if not target.absolute().parent.is_dir():
        raise ConfigError("the picture cannot be drawn", why=f"there is no directory {target.absolute().parent}")
    try:
        import matplotlib  # noqa: F401  asked here only whether it is there
    except ImportError as error:
        raise CommandFailed(
            "the picture cannot be drawn",
            why="matplotlib is not installed",
            hint="pip install 'pocketmq[plots]', or leave --picture out: the terminal shows a picture, too",
        ) from error


def draw(report: Report, path: str) -> None:
    """Draw ``report`` into ``path``."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    width, height = PANEL_INCHES
    count = len(report.phases)
    figure, grid = pyplot.subplots(count, 1, figsize=(width, height * count + 0.8), sharex=True, squeeze=False)
    try:
        for axes, phase in zip(grid[:, 0], report.phases, strict=True):
            colors = {True: iter(DELIVERED_COLORS * len(phase.outcomes)), False: iter(FAILED_COLORS * 9)}
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
                    color=next(colors[outcome.delivered], FAILED_COLORS[-1]),
                    label=f"{outcome.count:,} × {text}".replace("$", r"\$"),
                )
            axes.set_yscale("log")
            axes.set_ylim(0.1, 20_000)
            axes.set_ylabel("ms")
            axes.grid(True, which="major", alpha=0.25)
            axes.set_title(
                f"{phase.role}: {phase.name}  ({phase.delivered:,} of {phase.sends:,} delivered)",
                loc="left",
                fontsize=9,
            )
            below = LEGEND_BELOW_TICKS if axes is grid[-1, 0] else LEGEND_BELOW
            axes.legend(loc="upper left", bbox_to_anchor=(0, below), fontsize=7, frameon=False)
        grid[-1, 0].set_xlabel("second of the load in which the send was due")
        figure.suptitle(f"{report.scenario}: how long each send took, and how it ended", x=0.01, ha="left", fontsize=11)
        figure.tight_layout()
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise CommandFailed("the picture cannot be written", why=f"{path}: {error.strerror}") from error
    finally:
        pyplot.close(figure)
