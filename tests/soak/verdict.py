"""Whether a soak was flat: what grew in ten minutes, by process, after the warm-up.

Lives here: ``Growth``, ``growths``, ``table``.

A process that works has peaks; one that leaks never gets back to where it was. So the lowest value of each minute is
looked at, and the slope through them is Theil and Sen's, the median of the slopes between all pairs: one odd minute
does not move it.
"""

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.soak.samples import Sample

TEN_MINUTES_S: Final = 600.0
WINDOW_S: Final = 60.0
MIB: Final = 1 << 20
BOUNDS: Final[Mapping[str, float]] = {
    "rss_bytes": MIB,
    "descriptors": 1,
    "threads": 1,
    "tasks": 1,
    "log_bytes": MIB,
    "disk_bytes": 4 * MIB,
}
"""What must grow by less in ten minutes: less than one descriptor is none. The disk's sawtooth is one segment high."""


@dataclass(slots=True, frozen=True)
class Growth:
    """How one value of a process developed; ``slope`` per ten minutes."""

    process: str
    field: str
    first: float
    last: float
    highest: float
    slope: float

    @property
    def is_flat(self) -> bool:
        """Whether it grew by less than its bound."""
        return self.slope < BOUNDS[self.field]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the median slope between all pairs of (time, value); 0 for fewer than two."""
    slopes = [(b - a) / (t - s) for (s, a), (t, b) in itertools.combinations(points, 2) if t > s]
    return statistics.median(slopes) if slopes else 0.0


def lowest(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the lowest point of each minute."""
    return [
        min(group, key=lambda point: point[1])
        for _, group in itertools.groupby(sorted(points), key=lambda point: point[0] // WINDOW_S)
    ]


def growths(samples: Iterable[Sample], warm_up_s: float) -> Iterator[Growth]:
    """Yield the growth of each bounded value of each process; values that nobody reports are left out."""
    by_process: dict[str, list[Sample]] = {}
    for each in samples:
        if each.at_s >= warm_up_s:
            by_process.setdefault(each.process, []).append(each)
    for process, found in sorted(by_process.items()):
        for field in BOUNDS:
            points = [(each.at_s, float(getattr(each, field))) for each in found if getattr(each, field) >= 0]
            if points:
                lows = lowest(points)
                highest = max(value for _, value in points)
                yield Growth(process, field, lows[0][1], lows[-1][1], highest, slope(lows) * TEN_MINUTES_S)


def table(found: Iterable[Growth]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{'process':<12} {'value':<12} {'first':>10} {'last':>10} {'highest':>10} {'per 10 min':>11}"
    for each in found:
        unit, name = (MIB, each.field.replace("_bytes", " MiB")) if "_bytes" in each.field else (1, each.field)
        values = (each.first / unit, each.last / unit, each.highest / unit)
        numbers = " ".join(f"{value:>10.2f}" for value in values)
        grows = "" if each.is_flat else "  GROWS"
        yield f"{each.process:<12} {name:<12} {numbers} {each.slope / unit:>+11.2f}{grows}"
