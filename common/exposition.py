"""Prometheus' text format, version 0.0.4, as ``prometheus_client`` writes it.

Lives here: ``Family`` and its samples, ``page``, ``chunks``. The broker writes the few lines itself:
``prometheus_client`` imports an HTTP server and more, 20 ms and 4 MB of each start, and a first scrape must not read
modules from a disk that hangs.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

ESCAPED: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
ESCAPED_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
EXPONENT_FROM_DIGITS: Final = 7
"""Go writes exponents from here on."""
CHUNK_LINES: Final = 4_096
"""About 1 MB."""


class Sample(NamedTuple):
    """One value."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(slots=True)
class Family:
    """A metric with its samples. ``kind``: gauge, counter or histogram; ``name`` without ``_total``."""

    name: str
    documentation: str
    kind: str
    labels: Sequence[str] = ()
    samples: list[Sample] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """Samples that are text already."""

    def add_value(self, label_values: Sequence[str], value: float) -> None:
        """Add a sample of a gauge or a counter."""
        name = f"{self.name}_total" if self.kind == "counter" else self.name
        self.samples.append(Sample(name, self._labels(label_values), value))

    def add_histogram(
        self, label_values: Sequence[str], buckets: Sequence[tuple[str, float]], sum_value: float
    ) -> None:
        """Add cumulative (bound, count) pairs up to ``+Inf``, and the sum."""
        labels = self._labels(label_values)
        for bound, count in buckets:
            self.samples.append(Sample(f"{self.name}_bucket", {**labels, "le": bound}, count))
        self.samples.append(Sample(f"{self.name}_count", labels, buckets[-1][1]))
        self.samples.append(Sample(f"{self.name}_sum", labels, sum_value))

    def add_text(self, label_text: str, value: int) -> None:
        """Add a sample of a gauge or a counter with labels that are text already: for families of many samples."""
        self.lines.append(f"{self.name}{'_total' if self.kind == 'counter' else ''}{{{label_text}}} {value}\n")

    def _labels(self, values: Sequence[str]) -> dict[str, str]:
        return dict(zip(self.labels, values, strict=True))


def page(families: Iterable[Family]) -> bytes:
    """Return the text of all families."""
    return b"".join(chunks(families))


def chunks(families: Iterable[Family]) -> Iterator[bytes]:
    """Yield the text of all families in parts of at most ``CHUNK_LINES`` lines: one call of C that makes many MB would
    keep the other threads waiting."""
    for family in families:
        lines = _lines(family)
        for at in range(0, len(lines), CHUNK_LINES):
            yield "".join(lines[at : at + CHUNK_LINES]).encode()


def _lines(family: Family) -> list[str]:
    name = f"{family.name}_total" if family.kind == "counter" else family.name
    head = f"# HELP {name} {family.documentation.translate(ESCAPED_HELP)}\n# TYPE {name} {family.kind}\n"
    return [head, *map(_line, family.samples), *family.lines]


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{sample.labels[name].translate(ESCAPED)}"' for name in sorted(sample.labels))
    return (
        f"{sample.name}{{{labels}}} {_number(sample.value)}\n" if labels else f"{sample.name} {_number(sample.value)}\n"
    )


def _number(value: float) -> str:
    """Return a number as Go spells it."""
    number = float(value)
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if math.isnan(number):
        return "NaN"
    text = repr(number)
    dot = text.find(".")
    if number > 0 and dot >= EXPONENT_FROM_DIGITS:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{dot - 1:02d}"
    return text
