"""Pictures of benchmark results: lines over one axis, several panels.

Lives here: ``Panel`` and ``draw``, by matplotlib (extra ``plots``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram: ``key`` names the figure; ``limit`` draws a goal, ``ideal`` the line where all that is offered up to
    capacity is accepted.
    """

    title: str
    key: str
    logarithmic: bool = False
    limit: float | None = None
    ideal: bool = False


def draw(
    path: Path,
    x_label: str,
    x_key: str,
    lines: Mapping[str, Sequence[Mapping[str, object]]],
    panels: Sequence[Panel],
) -> None:
    """Draw ``panels`` side by side, one line for each of ``lines``, into ``path`` (its suffix names the format)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(5 * len(panels), 4.2), squeeze=False)
    for panel, axis in zip(panels, axes[0], strict=True):
        for name, rows in lines.items():
            points = [(row[x_key], row[panel.key]) for row in rows if row.get(panel.key) is not None]
            if points:
                xs, ys = zip(*points, strict=True)
                axis.plot(xs, ys, marker="o", markersize=3, linewidth=1.2, label=name)
        xs_all = sorted({float(str(row[x_key])) for rows in lines.values() for row in rows})
        if panel.ideal:
            axis.plot(xs_all, [min(1.0, x) for x in xs_all], color="gray", linestyle=":", label="ideal")
        if panel.limit is not None:
            axis.axhline(panel.limit, color="gray", linestyle="--", linewidth=0.8)
        axis.set_title(panel.title, fontsize=10)
        axis.set_xlabel(x_label)
        axis.set_xscale("log")
        axis.set_xticks(xs_all, [f"{x:g}" for x in xs_all])
        axis.minorticks_off()
        if panel.logarithmic:
            axis.set_yscale("log")
        axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
