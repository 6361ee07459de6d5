"""A metric of the broker is one row, from which every place that shows its value is made.

Lives here: ``Row`` and its three kinds ``Gauge``, ``Counter`` and ``Histogram``; ``Group``, rows that are read from one
kind of object; ``only``; the walks that make Prometheus families, and the values of the telemetry, the runtime table
and the ``interval`` event.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from pocketmq.broker.metrics.sources import Reading
from pocketmq.common.exposition import Family

PREFIX: Final = "pocketmq_"
ROCKETMQ: Final = "rocketmq_"
"""Of the names that RocketMQ 5.3's exporter has; they mean what they mean there, or the note says what differs."""

S = TypeVar("S")
"""The object that a row is read from: a store, a pair, a service."""

Distribution = tuple[Sequence[tuple[str, float]], float]
"""A histogram's value: cumulative (bound, count) pairs up to ``+Inf``, and the sum in seconds."""
Value = float | Distribution
Series = Iterable[tuple[Sequence[str] | str, Value]]
"""(label values, value) of each sample; (label text, value) for ``GaugeLines`` and ``CounterLines``."""
Find = Callable[[Reading], Iterable[tuple[Sequence[str], S]]]
"""(label values, object) of each present object."""


def only(read: Callable[[Reading], S | None]) -> Find[S]:
    """Return a ``Find`` of one object without labels, or of none."""

    def find(reading: Reading) -> list[tuple[Sequence[str], S]]:
        found = read(reading)
        return [] if found is None else [((), found)]

    return find


class Unit(enum.Enum):
    """The unit of ``Row.read``. Prometheus gets seconds for ``MS``, and 0 or 1 for ``FLAG``."""

    COUNT = "count"
    BYTES = "bytes"
    RATIO = "ratio"
    SECONDS = "seconds"
    MS = "ms"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Row(Generic[S]):
    """One metric, wherever it is shown.

    ``name``: of the metric, without ``pocketmq_`` and ``_total``; empty: not exported. ``note``: its description in
    docs/metrics.md, where that is longer than ``help``. ``read`` returns one value, or a ``Series`` where the row has
    ``labels`` of its own; it returns at once, in any thread, and takes no lock that disk work can hold.

    ``telemetry``: the field of the group's struct in the telemetry. ``runtime``: the key in the runtime table (for a
    pair: after its prefix). ``interval``: the key in the log event ``interval``, which shows a gauge as it is and by
    how much a counter has grown.
    """

    name: str
    help: str
    read: Callable[[S], Value | Series]
    unit: Unit | None = None
    """Of ``read``; None: as ``name`` says, ``MS`` for seconds."""
    labels: tuple[str, ...] = ()
    note: str = ""
    telemetry: str = ""
    runtime: str = ""
    interval: str = ""
    prefix: str = PREFIX

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        assert not (self.labels and (self.telemetry or self.runtime or self.interval)), self.name
        if self.unit is None:
            object.__setattr__(self, "unit", _unit_of(self.name))

    @property
    def exported(self) -> str:
        """The full name on ``/metrics``."""
        return f"{self.prefix}{self.name}{'_total' if self.kind == Counter.kind else ''}"

    def value(self, source: S) -> Any:
        """Return the value of a row without labels of its own, in the row's unit."""
        assert not self.labels
        return self.read(source)

    def family(self, labels: Sequence[str], found: Iterable[tuple[Sequence[str], S]]) -> Family:
        """Return the Prometheus family with a sample for each of ``found``: (values of ``labels``, object)."""
        family = Family(self.prefix + self.name, self.help, self.kind, (*labels, *self.labels))
        for group_values, source in found:
            read = self.read(source)
            series: Any = read if self.labels else (((), read),)
            for own_values, value in series:
                self._add(family, (*group_values, *own_values), value)
        return family

    def _add(self, family: Family, labels: Sequence[str], value: Any) -> None:
        if self.unit is Unit.MS:
            value = value / 1000 if value >= 0 else -1.0
        family.add_value(labels, float(value))


def _unit_of(name: str) -> Unit:
    if "bytes" in name or name.endswith("_offset"):
        return Unit.BYTES
    return Unit.MS if name.endswith("_seconds") else Unit.RATIO if name.endswith("_ratio") else Unit.COUNT


class Gauge(Row[S]):
    """A present value."""

    __slots__ = ()
    kind = "gauge"


class Counter(Row[S]):
    """A count since the start of the broker."""

    __slots__ = ()
    kind = "counter"


class Histogram(Row[S]):
    """Times since the start; ``read`` returns a ``Distribution``."""

    __slots__ = ()
    kind = "histogram"

    def _add(self, family: Family, labels: Sequence[str], value: Any) -> None:
        buckets, sum_s = value
        family.add_histogram(labels, buckets, sum_s)


class GaugeLines(Gauge[S]):
    """A present value of many objects: ``read`` returns (label text, value) of each."""

    __slots__ = ()

    def family(self, labels: Sequence[str], found: Iterable[tuple[Sequence[str], S]]) -> Family:
        """Return the family; the label texts have the group's labels too."""
        return _family_of_lines(self, labels, found)


class CounterLines(Counter[S]):
    """A count of many objects: ``read`` returns (label text, value) of each."""

    __slots__ = ()

    def family(self, labels: Sequence[str], found: Iterable[tuple[Sequence[str], S]]) -> Family:
        """Return the family; the label texts have the group's labels too."""
        return _family_of_lines(self, labels, found)


def _family_of_lines(row: Row[S], labels: Sequence[str], found: Iterable[tuple[Sequence[str], S]]) -> Family:
    family = Family(row.prefix + row.name, row.help, row.kind, (*labels, *row.labels))
    for _, source in found:
        lines: Any = row.read(source)
        for text, value in lines:
            family.add_text(text, value)
    return family


@dataclass(frozen=True, slots=True)
class Group(Generic[S]):
    """Rows that are read from one kind of object.

    ``find`` returns the present objects, each with its values of ``labels``; without one the rows are missing.
    ``telemetry``: the key of their struct in the telemetry, for the documentation. ``in_rounds``: their text is made
    when the figures are computed, and not at each scrape.
    """

    find: Find[S]
    rows: tuple[Row[S], ...]
    labels: tuple[str, ...] = ()
    telemetry: str = ""
    in_rounds: bool = False

    def families(self, reading: Reading) -> Iterator[Family]:
        """Yield the families that are exported, read now."""
        found = list(self.find(reading))
        if found:
            for row in self.rows:
                if row.name:
                    yield row.family(self.labels, found)

    def telemetry_of(self, source: S) -> dict[str, Any]:
        """Return the fields of the group's struct."""
        return {row.telemetry: row.value(source) for row in self.rows if row.telemetry}

    def runtime_of(self, source: S, prefix: str = "") -> dict[str, str]:
        """Return the entries of the runtime table."""
        return {prefix + row.runtime: runtime_text(row, row.value(source)) for row in self.rows if row.runtime}


def runtime_text(row: Row[Any], value: Any) -> str:
    """Return a value as the runtime table spells it."""
    if row.unit is Unit.FLAG:
        return str(bool(value)).lower()
    return f"{value:.4f}" if row.unit is Unit.RATIO else str(value)


def runtime_table(groups: Iterable[Group[Any]], reading: Reading) -> dict[str, str]:
    """Return the entries of all groups whose objects have no labels."""
    table: dict[str, str] = {}
    for group in groups:
        if not group.labels:
            for _, source in group.find(reading):
                table |= group.runtime_of(source)
    return table


@dataclass(frozen=True, slots=True)
class IntervalValues:
    """Values of the ``interval`` event, by key."""

    gauges: Mapping[str, float]
    counters: Mapping[str, float]
    """Since the start."""


def interval_values(groups: Iterable[Group[Any]], reading: Reading) -> IntervalValues:
    """Return the values of the ``interval`` event, read now."""
    gauges: dict[str, float] = {}
    counters: dict[str, float] = {}
    for group in groups:
        rows = [row for row in group.rows if row.interval]
        for _, source in group.find(reading) if rows else ():
            for row in rows:
                value = row.value(source)
                shown = int(value) if row.unit is Unit.FLAG else value
                (counters if row.kind == Counter.kind else gauges)[row.interval] = shown
    return IntervalValues(gauges, counters)
