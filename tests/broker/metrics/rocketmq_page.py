"""A page of RocketMQ 5.3.3's Prometheus exporter, as names, types and labels.

Its lines of type and help leave out the unit that the samples' names have (OpenTelemetry 1.29, ``_milliseconds``), and
it has a type that Prometheus does not know: so no Prometheus parser reads it whole, and this one reads lines.
"""

import re
from pathlib import Path
from typing import Final

VECTOR: Final = Path(__file__).parents[2] / "vectors" / "rocketmq-5.3.3-metrics.txt"
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{(.*)\} (\S+)(?: \d+)?")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
OWN_OF_THE_EXPORTER: Final = frozenset({"otel_scope_name"})
"""Of OpenTelemetry's library, and no label of RocketMQ's."""


def named(text: str) -> dict[str, frozenset[str]]:
    """Return sample name → every label that a sample of it has."""
    found: dict[str, frozenset[str]] = {}
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match is not None and match[1].startswith("rocketmq_"):
            labels = frozenset(name for name, _ in _LABEL.findall(match[2])) - OWN_OF_THE_EXPORTER
            found[match[1]] = found.get(match[1], frozenset()) | labels
    return found
