"""Upper bounds on the calls of a message, which a test holds.

Each is what the path takes, plus a twentieth: half of that is what the background threads vary, the other half is free
for a small change. A change that needs more makes each message slower: say in the commit what it buys, and raise the
bound. A change that saves calls lowers it.

With 100 connections only the broker's loop is bound: how many sends one wake of the send thread takes, and so its calls
per message, depends on the machine. It cannot take more than with one in flight, whose calls are bound.
"""

from dataclasses import dataclass
from typing import Final

from bench.calls.cases import BROKER, CLIENT, CONSUMER, LOOP, Measured


@dataclass(frozen=True, slots=True)
class Bound:
    """At most ``calls`` per message in a case, on one side, in one thread or ("") in all of them."""

    case: str
    side: str
    calls: float
    thread: str = ""

    def measured(self, found: Measured) -> float:
        """Return what this bound limits."""
        figures = found.sides[self.side]
        return figures.of(self.thread) if self.thread else figures.total


BOUNDS: Final = (
    Bound("one", BROKER, 449),
    Bound("one", CLIENT, 213),
    Bound("64", BROKER, 8.2),
    Bound("64", CLIENT, 29.5),
    Bound("connections", BROKER, 61, LOOP),
    Bound("connections", CLIENT, 226),
    Bound("push", BROKER, 921),
    Bound("push", CONSUMER, 215),
    Bound("json", BROKER, 549),
    Bound("binary", BROKER, 643),
)
