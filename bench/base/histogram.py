"""Latencies as an HdrHistogram: from 1 µs to a minute with three significant digits.

Lives here: recording, merging, percentiles, the text form that goes into a result line (HdrHistogram's compressed V2
log encoding, which every HdrHistogram library reads).
"""

from array import array
from collections.abc import Iterable

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

LOWEST_NS = 1_000
HIGHEST_NS = 60_000_000_000
DIGITS = 3
PERCENTILES = (50.0, 90.0, 99.0, 99.9)
CURVE = (0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999)
"""Where a percentile plot has its points."""


class Latencies:
    """Counts of latencies in ns; a latency of more than a minute counts as a minute."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)

    @classmethod
    def of_ns(cls, values_ns: "Iterable[int] | NDArray[np.int64]") -> "Latencies":
        """Return the histogram of these latencies."""
        made = cls()
        array = np.fromiter(values_ns, np.int64) if not isinstance(values_ns, np.ndarray) else values_ns
        values, counts = np.unique(np.clip(array, LOWEST_NS, HIGHEST_NS), return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            made._histogram.record_value(value, count)
        return made

    @classmethod
    def of_taken(cls, taken_ns: "array[int]") -> "Latencies | None":
        """Return the histogram of what a load appended to an array of type ``q``, or None where it took nothing."""
        return cls.of_ns(np.frombuffer(taken_ns, np.int64)) if taken_ns else None

    @classmethod
    def decode(cls, text: str) -> "Latencies":
        """Return what ``encode`` wrote, here or by another HdrHistogram library. Raises ``ValueError``."""
        made = cls()
        try:
            made._histogram.decode_and_add(text)
        except Exception as error:  # the library raises what its parts raise: zlib, base64, its own
            raise ValueError(f"no HdrHistogram: {text[:40]!r}: {error}") from error
        return made

    def encode(self) -> str:
        """Return the compressed text form."""
        encoded = self._histogram.encode()
        return encoded.decode("ascii") if isinstance(encoded, bytes) else str(encoded)

    def add(self, other: "Latencies") -> None:
        """Count the other's latencies here too."""
        self._histogram.add(other._histogram)

    @property
    def count(self) -> int:
        """How many latencies were counted."""
        return int(self._histogram.get_total_count())

    def percentile_ms(self, percentile: float) -> float:
        """Return the ms that ``percentile`` percent did not exceed; 0 when nothing was counted."""
        return float(self._histogram.get_value_at_percentile(percentile)) / 1e6 if self.count else 0.0

    @property
    def max_ms(self) -> float:
        """The longest."""
        return float(self._histogram.get_max_value()) / 1e6 if self.count else 0.0

    def metrics(self, name: str = "") -> dict[str, float]:
        """Return ``p50_ms`` and so on, ``max_ms``; each key begins with ``name``."""
        prefix = f"{name}_" if name else ""
        out = {
            f"{prefix}p{percentile:g}_ms".replace(".", ""): self.percentile_ms(percentile) for percentile in PERCENTILES
        }
        out[f"{prefix}max_ms"] = self.max_ms
        return {key: round(value, 4) for key, value in out.items()}

    def curve(self) -> list[tuple[float, float]]:
        """Return (percentile, ms) for a plot, up to the percentiles that the count can distinguish."""
        if not self.count:
            return []
        return [(each, self.percentile_ms(each)) for each in CURVE if (100 - each) / 100 * self.count >= 1 or each == 0]


def merged(texts: Iterable[str]) -> Latencies:
    """Return one histogram of several encoded ones."""
    whole = Latencies()
    for text in texts:
        whole.add(Latencies.decode(text))
    return whole
