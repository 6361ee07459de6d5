"""Plots of a run: bars of throughput, percentiles of latency, scaling curves.

Lives here: drawing, by matplotlib (extra ``plots``), as SVG.
"""

from collections.abc import Mapping, Sequence
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


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "pocketmq"  # the same figures give the same file
    from matplotlib import pyplot

    return pyplot


def _save(pyplot: Any, figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def bars(path: Path, title: str, unit: str, groups: Mapping[str, Mapping[str, Bar]], labels: Mapping[str, str]) -> None:
    """Draw one panel a group (a variant) with a bar for each peer, its least and most as a whisker."""
    pyplot = _pyplot()
    names = list(groups)
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(5.2 * columns, 3.0 * lines), squeeze=False)
    for place, name in enumerate(names):
        axis = axes[place // columns][place % columns]
        group = groups[name]
        peers = list(group)
        values = [group[peer][0] for peer in peers]
        spread = [[value - group[peer][1] for peer, value in zip(peers, values, strict=True)]]
        spread.append([group[peer][2] - value for peer, value in zip(peers, values, strict=True)])
        axis.barh(
            range(len(peers)), values, xerr=spread, color=[COLORS.get(peer, "gray") for peer in peers], height=0.7
        )
        axis.set_yticks(range(len(peers)), [labels.get(peer, peer) for peer in peers], fontsize=7)
        axis.invert_yaxis()
        axis.set_title(name, fontsize=9)
        axis.set_xlabel(unit, fontsize=8)
        axis.tick_params(axis="x", labelsize=7)
        axis.ticklabel_format(axis="x", style="plain")
        axis.grid(axis="x", alpha=0.3)
    for place in range(len(names), lines * columns):
        axes[place // columns][place % columns].set_visible(False)
    figure.suptitle(title, fontsize=10)
    _save(pyplot, figure, path)


def percentiles(
    path: Path, title: str, groups: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], labels: Mapping[str, str]
) -> None:
    """Draw one panel a group with a curve of (percentile, ms) for each peer, the tail spread out."""
    pyplot = _pyplot()
    names = list(groups)
    columns = min(2, len(names))
    lines = -(-len(names) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(6.2 * columns, 3.6 * lines), squeeze=False)
    ticks = {50: "50 %", 90: "90 %", 99: "99 %", 99.9: "99.9 %", 99.99: "99.99 %"}
    for place, name in enumerate(names):
        axis = axes[place // columns][place % columns]
        for peer, curve in groups[name].items():
            xs = [1 / (1 - min(percentile, 99.9999) / 100) for percentile, _ in curve]
            axis.plot(xs, [ms for _, ms in curve], color=COLORS.get(peer), label=labels.get(peer, peer), linewidth=1.3)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xticks([1 / (1 - at / 100) for at in ticks], list(ticks.values()), fontsize=7)
        axis.minorticks_off()
        axis.set_title(name, fontsize=9)
        axis.set_ylabel("ms", fontsize=8)
        axis.tick_params(axis="y", labelsize=7)
        axis.grid(alpha=0.3)
    for place in range(len(names), lines * columns):
        axes[place // columns][place % columns].set_visible(False)
    axes[0][0].legend(fontsize=6)
    figure.suptitle(title, fontsize=10)
    _save(pyplot, figure, path)


def scaling(
    path: Path,
    title: str,
    x_label: str,
    unit: str,
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    labels: Mapping[str, str],
) -> None:
    """Draw (x, median) curves of the peers, both axes logarithmic, a panel for each group."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(1, len(panels), figsize=(6.0 * len(panels), 4.0), squeeze=False)
    for axis, (name, curves) in zip(axes[0], panels.items(), strict=True):
        xs_all = sorted({x for curve in curves.values() for x, _ in curve})
        for peer, curve in curves.items():
            xs, ys = zip(*curve, strict=True)
            axis.plot(
                xs, ys, color=COLORS.get(peer), label=labels.get(peer, peer), marker="o", markersize=3, linewidth=1.3
            )
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xticks(xs_all, [f"{x:,g}" for x in xs_all], fontsize=7)
        axis.minorticks_off()
        axis.set_xlabel(x_label, fontsize=8)
        axis.set_ylabel(unit, fontsize=8)
        axis.set_title(name, fontsize=9)
        axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=6)
    figure.suptitle(title, fontsize=10)
    _save(pyplot, figure, path)
