"""Upper bounds on the calls of a message, which a test holds.

Each is what the path takes, plus a twentieth for small changes and for versions of CPython. A change that needs more
makes each message slower: say in the commit what it buys, and raise the bound. A change that saves calls lowers it.

Bound is what does not depend on the machine: the threads that a message passes. Those behind it (index, flush) take as
many messages at a time as have come; theirs is only a limit that they do not get out of hand. With 100 connections the
same holds for the send thread, whose calls cannot be more than with one in flight; bound is the loop.
"""

from dataclasses import dataclass
from typing import Final

from bench.calls.cases import BROKER, CLIENT, CONSUMER
from bench.calls.figures import BACKGROUND, LOOP, Measured

PATH: Final = "path"
"""All threads but those behind the messages."""


@dataclass(frozen=True, slots=True)
class Bound:
    """At most ``calls`` per message in a case, on one side, in one thread or on the whole path."""

    case: str
    side: str
    calls: float
    thread: str = PATH

    def measured(self, found: Measured) -> float:
        """Return what this bound limits."""
        figures = found.sides[self.side]
        return figures.path if self.thread == PATH else figures.of(self.thread)


SURVIVING: Final = (
    "store.transient_store_pool_enable=true",
    "store.transient_store_pool_size=3",
    "store.transient_store_pool_buffer_size=16777216",
)
"""Settings of a broker that appends on the loop."""
SURVIVING_BOUNDS: Final = (
    Bound("one", BROKER, 48, LOOP),
    Bound("connections", BROKER, 47, LOOP),
    Bound("push", BROKER, 270),
)
"""With these settings."""
BOUNDS: Final = (
    Bound("one", BROKER, 73),
    Bound("one", BROKER, 60, BACKGROUND),
    Bound("one", CLIENT, 48),
    Bound("64", BROKER, 10.9),
    Bound("64", CLIENT, 16),
    Bound("connections", BROKER, 21, LOOP),
    Bound("connections", CLIENT, 62),
    Bound("push", BROKER, 245),
    Bound("push", CONSUMER, 106),
    Bound("json", BROKER, 100),
    Bound("binary", BROKER, 110),
)
