"""Plots of a run: bars of throughput, percentiles of latency, scaling curves.

Lives here: drawing by matplotlib (extra ``plots``), as SVG.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLORS = {
    "pocketmq": "#d62728",
    "rocketmq": "#ff7f0e",
    "redis": "#8c564b",
    "aiokafka": "#1f77b4",
    "confluent": "#17becf",
    "nats": "#2ca02c",
    "rabbitmq": "#9467bd",
    "rabbitmq-stream": "#e377c2",
}

Bar = tuple[float, float, float]
"""Median, least, most."""
Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram of curves by name. ``limit`` draws a goal, ``ideal`` the line where the broker accepts all that is
    offered up to its capacity.
    """

    title: str
    unit: str
    curves: Mapping[str, Curve]
    logarithmic: bool = True
    limit: float | None = None
    ideal: bool = False


@contextmanager
def _panels(path: Path, title: str, count: int, columns_max: int, size: tuple[float, float]) -> Iterator[list[Any]]:
    """Yield so many axes, each ``size`` inches wide and high; then write the figure to ``path``."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "pocketmq"  # the same measurements give the same file
    from matplotlib import pyplot

    columns = min(columns_max, count)
    lines = -(-count // columns)
    figure, grid = pyplot.subplots(lines, columns, figsize=(size[0] * columns, size[1] * lines), squeeze=False)
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.set_visible(False)
    yield axes[:count]
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def bars(path: Path, title: str, unit: str, groups: Mapping[str, Mapping[str, Bar]], labels: Mapping[str, str]) -> None:
    """Draw one panel a group (a variant) with a bar for each peer, its least and most as a whisker."""
    with _panels(path, title, len(groups), 3, (5.2, 3.0)) as axes:
        for axis, (name, group) in zip(axes, groups.items(), strict=True):
            values, least, most = zip(*group.values(), strict=True)
            spread = [
                [value - low for value, low in zip(values, least, strict=True)],
                [high - value for value, high in zip(values, most, strict=True)],
            ]
            places = range(len(group))
            axis.barh(places, values, xerr=spread, color=[COLORS.get(peer, "gray") for peer in group], height=0.7)
            axis.set_yticks(places, [labels.get(peer, peer) for peer in group], fontsize=7)
            axis.invert_yaxis()
            axis.set_title(name, fontsize=9)
            axis.set_xlabel(unit, fontsize=8)
            axis.tick_params(axis="x", labelsize=7)
            axis.ticklabel_format(axis="x", style="plain")
            axis.grid(axis="x", alpha=0.3)


def _curves(axis: Any, curves: Mapping[str, Curve], labels: Mapping[str, str], ticks: Mapping[float, str]) -> None:
    """Draw curves over a logarithmic axis with these ticks."""
    for peer, curve in curves.items():
        if curve:
            xs, ys = zip(*curve, strict=True)
            label = labels.get(peer, peer)
            axis.plot(xs, ys, color=COLORS.get(peer), label=label, marker="o", markersize=3, linewidth=1.3)
    axis.set_xscale("log")
    axis.set_xticks(list(ticks), list(ticks.values()), fontsize=7)
    axis.minorticks_off()
    axis.grid(alpha=0.3)


def percentiles(path: Path, title: str, groups: Mapping[str, Mapping[str, Curve]], labels: Mapping[str, str]) -> None:
    """Draw one panel a group with a curve of (percentile, ms) for each peer, the tail spread out."""

    def place(percentile: float) -> float:
        return 1 / (1 - min(percentile, 99.9999) / 100)

    ticks = {place(at): f"{at:g} %" for at in (50, 90, 99, 99.9, 99.99)}
    with _panels(path, title, len(groups), 2, (6.2, 3.6)) as axes:
        for axis, (name, curves) in zip(axes, groups.items(), strict=True):
            placed = {peer: [(place(percentile), ms) for percentile, ms in curve] for peer, curve in curves.items()}
            _curves(axis, placed, labels, ticks)
            axis.set_yscale("log")
            axis.set_title(name, fontsize=9)
            axis.set_ylabel("ms", fontsize=8)
            axis.tick_params(axis="y", labelsize=7)
        axes[0].legend(fontsize=6)


def scaling(path: Path, title: str, x_label: str, panels: Sequence[Panel], labels: Mapping[str, str]) -> None:
    """Draw (x, y) curves side by side, the x axis logarithmic."""
    with _panels(path, title, len(panels), len(panels), (6.0, 4.0)) as axes:
        for axis, panel in zip(axes, panels, strict=True):
            xs = sorted({x for curve in panel.curves.values() for x, _ in curve})
            _curves(axis, panel.curves, labels, {x: f"{x:,g}" for x in xs})
            if panel.ideal:
                axis.plot(xs, [min(1.0, x) for x in xs], color="gray", linestyle=":", label="ideal")
            if panel.limit is not None:
                axis.axhline(panel.limit, color="gray", linestyle="--", linewidth=0.8)
            if panel.logarithmic:
                axis.set_yscale("log")
            axis.set_xlabel(x_label, fontsize=8)
            axis.set_ylabel(panel.unit, fontsize=8)
            axis.set_title(panel.title, fontsize=9)
        axes[0].legend(fontsize=6)
