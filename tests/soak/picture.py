"""The picture of a soak: memory, descriptors, threads, tasks, log and disk of each process over time.

Lives here: ``draw``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.soak.samples import Sample

PANELS: Final = (
    ("rss_bytes", "resident memory, MiB", 1 << 20),
    ("pss_bytes", "PSS, MiB", 1 << 20),
    ("tasks", "tasks", 1),
    ("descriptors", "descriptors", 1),
    ("threads", "threads", 1),
    ("log_bytes", "log, KiB", 1 << 10),
    ("disk_bytes", "disk, MiB", 1 << 20),
)


def draw(samples: Sequence[Sample], warm_up_s: float, path: Path) -> Path:
    """Write the picture as PNG and return its path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.2 * len(PANELS)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(PANELS), 1, sharex=True)
    for axis, (field, label, unit) in zip(axes, PANELS, strict=True):
        for process in dict.fromkeys(each.process for each in samples):
            points = [
                (each.at_s / 60, getattr(each, field) / unit)
                for each in samples
                if each.process == process and getattr(each, field) >= 0
            ]
            if points:
                axis.plot(*zip(*points, strict=True), label=process, linewidth=1)
        axis.axvspan(0, warm_up_s / 60, alpha=0.12, color="grey")
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
    axes[0].legend(ncols=6, fontsize="small")
    axes[-1].set_xlabel("minutes; grey: warm-up")
    figure.savefig(path, dpi=90)
    return path
