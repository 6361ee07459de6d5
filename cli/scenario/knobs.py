"""What a reader may change in a scenario: sizes, times and pace of its load and its fault.

Lives here: ``KNOBS``, the one table of options; ``Knobs``, the values that were given. ``catalog`` says which knobs a
scenario has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

T = TypeVar("T")

KNOBS: Final[Mapping[str, str]] = {
    "append_ms": "How long each write of the slow disk takes, in ms.",
    "stall_ms": "How long the disk stalls, in ms.",
    "whole_disk": "The whole disk is slow or stalls: reads, writes and syncs, not only appends.",
    "burst": "Sends at once, at the beginning.",
    "rate": "Sends a second after that.",
    "seconds": "How long the load lasts.",
    "body_bytes": "Size of each message.",
    "timeout_ms": "How long a client waits for its answer: 500ms, 3s.",
    "probes": "Sends after the flood.",
    "slave_timeout_ms": "How long the master waits for a slave, in ms.",
    "lock_ms": "How long a queue lock lives, in ms.",
}
"""Knob → its meaning."""
LOAD: Final = ("rate", "seconds", "body_bytes", "timeout_ms")
DISK: Final = (*LOAD, "whole_disk")


def option_of(knob: str) -> str:
    """Return the option that sets a knob."""
    return "--timeout" if knob == "timeout_ms" else f"--{knob.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class Knobs:
    """The values that were given, by knob."""

    given: Mapping[str, Any] = field(default_factory=dict)

    def get(self, knob: str, own: T) -> T:
        """Return the value that was given, or the scenario's own."""
        assert knob in KNOBS
        value: T = self.given.get(knob, own)
        return value

    def words(self) -> dict[str, str]:
        """Return option → value, for the report."""
        return {option_of(knob): str(value) for knob, value in self.given.items()}


OWN: Final = Knobs()
"""Nothing was given: a scenario's own values."""
