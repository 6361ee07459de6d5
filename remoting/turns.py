"""Fair turns for peers whose requests come faster than they are served.

A read may hold hundreds of small requests. Served at once, those of a few hundred flooding peers would keep all others
waiting for seconds. So a connection serves at most ``FRAMES_AT_ONCE`` as they come; more become its backlog. The
connection is not read until its backlog is served, a slice at a time, in turn with other backlogs, and all backlogs
together take at most ``TURN_NS`` of a turn of the loop.

Lives here: ``Backlog``, the frames of one connection, and ``Turns``, the order of all backlogs.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from pocketmq.remoting.frame import Frame

FRAMES_AT_ONCE: Final = 8
"""So many frames of one read are served as they come."""
SLICE_FRAMES: Final = 8
"""A backlog serves so many frames before the next one has its turn."""
TURN_NS: Final = 5_000_000
"""How long backlogs may keep one turn of the loop, in ns; the slice that is under way is finished."""


class Backlog:
    """The frames of one read that are not served yet."""

    __slots__ = ("_began_ns", "_frames", "_rest_ns", "_served")

    def __init__(self, frames: list[Frame], first_ns: int, rest_ns: int) -> None:
        """``first_ns``: when the first byte of the first frame arrived; ``rest_ns``: those of the others."""
        self._frames = frames
        self._began_ns = first_ns
        self._rest_ns = rest_ns
        self._served = 0

    def __len__(self) -> int:
        return len(self._frames) - self._served

    def take(self, frames_max: int) -> Iterator[tuple[Frame, int]]:
        """Yield up to so many frames, each with the time of its first byte; a frame counts as served when it is
        yielded."""
        for at in range(self._served, min(self._served + frames_max, len(self._frames))):
            began_ns, self._began_ns = self._began_ns, self._rest_ns
            self._served = at + 1
            yield self._frames[at], began_ns


class Postponed(Protocol):
    """A connection with a backlog."""

    def serve_turn(self, frames_max: int) -> bool:
        """Serve up to so many frames; return whether some are left and may be served."""
        ...

    def close_for_error(self, error: Exception) -> None:
        """Close: ``serve_turn`` raised this."""
        ...


class Turns:
    """Serves the backlogs of one loop's connections in turn. Loop thread only."""

    __slots__ = ("_armed", "_left_ns", "_loop", "_monotonic_ns", "_serving", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, monotonic_ns: Callable[[], int]) -> None:
        self._loop = loop
        self._monotonic_ns = monotonic_ns
        self._waiting: OrderedDict[Postponed, None] = OrderedDict()
        self._armed = False
        self._serving = False
        self._left_ns = 0

    def join(self, connection: Postponed) -> None:
        """Serve the backlog of ``connection``: now, if this turn of the loop has time left and no other waits."""
        self._waiting[connection] = None
        if not self._armed:
            self._armed = True
            self._left_ns = TURN_NS
            self._loop.call_soon(self._next_turn)
        self._serve()

    def _next_turn(self) -> None:
        if not self._waiting:
            self._armed = False
            return
        self._left_ns = TURN_NS
        self._loop.call_soon(self._next_turn)
        self._serve()

    def _serve(self) -> None:
        if self._serving:  # a connection became writable while an answer was written
            return
        self._serving = True
        waiting = self._waiting
        now_ns = self._monotonic_ns()
        while waiting and self._left_ns > 0:
            connection, _ = waiting.popitem(last=False)
            try:
                if connection.serve_turn(SLICE_FRAMES):
                    waiting[connection] = None
            except Exception as error:  # as a transport does with one from ``buffer_updated``
                connection.close_for_error(error)
            began_ns, now_ns = now_ns, self._monotonic_ns()
            self._left_ns -= now_ns - began_ns
        self._serving = False
