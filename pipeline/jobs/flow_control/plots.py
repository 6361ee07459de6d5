"""Pictures of minutes as SVG text: refusals by kind, stages, replica lag.

Lives here: ``Bin`` (data of a picture), ``bins_of`` (Spark, at most ``BINS_MAX`` for a broker), ``draw``.
The colors suit light and dark backgrounds.
"""

import datetime
import importlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BINS_MAX: Final = 360
BROKERS_MAX: Final = 8
LINES: Final = {
    "queue_wait_p99_ms": "queue wait p99",
    "append_p99_ms": "append p99",
    "sync_p99_ms": "sync p99",
    "replica_wait_p99_ms": "replica wait p99",
    "whole_p99_ms": "whole put p99",
    "lock_held_max_ms": "append lock held",
    "slave_behind_max_ms": "slave behind",
}
"""Columns of the table of minutes in the pictures, all in ms."""
COLORS: Final = ("#d1495b", "#edae49", "#00798c", "#7b6cd9", "#5aa469", "#c06c3e", "#4a90d9", "#999999")
GRAY: Final = "#808080"


@dataclass(slots=True)
class Bin:
    """Some minutes of one broker: refusals by kind, sends that ended in clients, ms by column."""

    begin_ms: int
    refused: dict[str, int] = field(default_factory=dict)
    ended: int = 0
    lines: dict[str, float] = field(default_factory=dict)


def check_plots() -> None:
    """Raise ``ConfigError`` if matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "the report needs matplotlib", why=str(error), hint="pip install 'pocketmq[plots]', or --no-report"
        ) from error


def bins_of(
    minutes: "DataFrame", brokers: Sequence[str], begin_ms: int, end_ms: int
) -> tuple[int, dict[str, list[Bin]]]:
    """Return the minutes of a bin, and the bins of each broker between two times, in order."""
    from pyspark.sql import functions as f

    width = max(1, -(-(end_ms - begin_ms) // 60_000 // BINS_MAX))
    at = f.unix_millis("minute")
    at_bin = (at - f.lit(begin_ms) - f.pmod(at - f.lit(begin_ms), f.lit(width * 60_000))).cast("bigint")
    rows = (
        minutes.where(f.col("broker").isin(list(brokers)) & (at >= begin_ms) & (at < end_ms))
        .withColumn("bin", at_bin + f.lit(begin_ms))
        .groupBy("broker", "bin")
        .agg(
            f.flatten(f.collect_list(f.map_entries("refused_by"))).alias("refused_by"),
            f.sum("client_sends_ended").alias("ended"),
            *(f.max(name).alias(name) for name in LINES),
        )
        .orderBy("broker", "bin")
        .collect()
    )
    found: dict[str, list[Bin]] = {}
    for row in rows:
        each = Bin(row["bin"], ended=row["ended"])
        for text, count in row["refused_by"]:
            each.refused[text] = each.refused.get(text, 0) + count
        each.lines = {name: row[name] for name in LINES if row[name] is not None}
        found.setdefault(row["broker"], []).append(each)
    return width, found


def draw(bins: Sequence[Bin], width_minutes: int, salt: str) -> str:
    """Return one broker's picture as an ``<svg>`` element. ``salt`` keeps ids of several pictures apart."""
    import matplotlib
    from matplotlib.figure import Figure

    dates: Any = importlib.import_module("matplotlib.dates")  # parts of it have no types
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "text.parse_math": False,
        "text.color": GRAY,
        "axes.edgecolor": GRAY,
        "axes.labelcolor": GRAY,
        "xtick.color": GRAY,
        "ytick.color": GRAY,
        "font.family": "sans-serif",
        "font.size": 9,
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(9, 4.6), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True)
        middle = datetime.timedelta(minutes=width_minutes / 2)
        times = [datetime.datetime.fromtimestamp(each.begin_ms / 1000, datetime.UTC) + middle for each in bins]
        bar_days = width_minutes / 1440 * 0.9
        bottom = [0] * len(bins)
        for index, text in enumerate(sorted({text for each in bins for text in each.refused})):
            counts = [each.refused.get(text, 0) for each in bins]
            above.bar(times, counts, bar_days, bottom=bottom, label=text, color=COLORS[index % len(COLORS)])
            bottom = [low + count for low, count in zip(bottom, counts, strict=True)]
        if any(each.ended for each in bins):
            above.plot(times, [each.ended for each in bins], "o", ms=4, color=GRAY, label="ended in clients")
        above.set_ylabel("requests refused" + (f" in {width_minutes} min" if width_minutes > 1 else " a minute"))
        for index, (name, text) in enumerate(LINES.items()):
            values = [each.lines.get(name, float("nan")) for each in bins]
            if any(value > 0 for value in values):
                below.plot(times, values, "-o", ms=3, lw=1.3, label=text, color=COLORS[index % len(COLORS)])
        below.set_ylabel("ms")
        below.set_yscale("log" if below.lines else "linear")
        below.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")  # powers of ten would need mathtext
        locator = dates.AutoDateLocator(tz=datetime.UTC)
        below.xaxis.set_major_locator(locator)
        below.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=datetime.UTC))
        half = datetime.timedelta(minutes=max(width_minutes, 1) * 1.5)
        below.set_xlim(times[0] - half, times[-1] + half)
        for axes in (above, below):
            axes.patch.set_alpha(0)
            axes.grid(alpha=0.25)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        text_io = io.StringIO()
        figure.savefig(text_io, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text_io.getvalue()
    return svg[svg.index("<svg") :]
