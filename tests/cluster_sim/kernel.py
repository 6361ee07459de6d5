"""Virtual time for a whole cluster: one event happens at a time, in an order that the seed decides.

Lives here: ``Kernel`` (the events, the strands, the trace), ``Strand``, ``Event``, ``Stuck``.

A *strand* is one call of product code: a turn of an event loop, or a step of a worker. It may wait in the middle, for a
lock, a condition, the network or a slow disk, as a thread does. Python has no coroutines of that kind, so each strand
that waits keeps a real thread. Only one thread runs at any time: the one with the baton. A strand that waits hands the
baton to an idle thread, which takes the next event; a strand that goes on gets the baton back. A strand that never
waits costs no switch of threads.
"""

import _thread
import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

NS_PER_MS: Final = 1_000_000
LOOK_NS: Final = 200
"""Time that passes with each look at a clock: no code can spin on it forever."""

RealLock = _thread.allocate_lock


class Owner(Protocol):
    """A process of the cluster."""

    alive: bool
    frozen_until_ns: int
    held: "list[Event]"
    """What was due while it was frozen."""


class StrandKilled(BaseException):
    """The process of this strand has died while the strand waited."""


class Stuck(AssertionError):
    """Nothing can happen any more, or the run takes more events than it may."""


class Event:
    """Something that happens at a time. ``cancel`` keeps it from happening."""

    __slots__ = ("call", "cancelled", "owner", "when_ns")

    def __init__(self, when_ns: int, owner: Owner | None, call: Callable[[], None]) -> None:
        self.when_ns = when_ns
        self.owner = owner
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Strand:
    """One call of product code by one process."""

    __slots__ = ("baton", "name", "number", "owner", "woken")

    def __init__(self, owner: Owner | None, name: str, number: int) -> None:
        self.owner = owner
        self.name = name
        self.number = number
        """Like the identity of a thread: the same for all turns of one loop, and for all steps of one worker."""
        self.woken = False
        self.baton: Any = None


class Kernel:
    """Time, events and strands of one run."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ns = 0
        self.events = 0
        self.current: Strand | None = None
        self.trace = hashlib.blake2b(digest_size=16)
        self.watch: Callable[[str], None] | None = None
        """Called with each line of the trace."""
        self._heap: list[tuple[int, int, Event]] = []
        self._numbers = 0
        self._waiting: list[Strand] = []
        self._idle: list[Any] = []
        self._finished = RealLock()
        self._finished.acquire()
        self._until: Callable[[], bool] = lambda: True
        self._events_max = 0
        self._error: BaseException | None = None
        self._ended = False
        self._closed = False

    # ---- events

    def number(self) -> int:
        """Return a new number."""
        self._numbers += 1
        return self._numbers

    def note(self, *fields: object) -> None:
        """Add a line to the trace."""
        line = f"{self.now_ns} " + " ".join(map(str, fields))
        self.trace.update(line.encode())
        if self.watch is not None:
            self.watch(line)

    def at(self, when_ns: int, owner: Owner | None, call: Callable[[], None]) -> Event:
        """Let ``call`` happen at a time, unless ``owner`` is dead by then; a frozen owner makes it late."""
        event = Event(max(when_ns, self.now_ns), owner, call)
        heapq.heappush(self._heap, (event.when_ns, self.number(), event))
        return event

    def put_back(self, events: "list[Event]") -> None:
        """Let what was held happen now, in its order."""
        for event in events:
            event.when_ns = self.now_ns
            heapq.heappush(self._heap, (self.now_ns, self.number(), event))

    def after(self, delay_ns: int, owner: Owner | None, call: Callable[[], None]) -> Event:
        return self.at(self.now_ns + delay_ns, owner, call)

    def soon_ns(self, most_ns: int = 60_000) -> int:
        """Return how long the machine takes to run something that is due: mostly microseconds."""
        rng = self.rng
        return int(rng.random() * most_ns) if rng.random() < 0.98 else int(rng.random() * 40 * most_ns)

    def run_strand(self, strand: Strand, call: Callable[[], None]) -> None:
        """Run ``call`` as ``strand`` in this thread; errors are its own affair."""
        self.current = strand
        try:
            call()
        except StrandKilled:
            pass
        finally:
            self.current = None

    # ---- waiting

    def wait(self, waiters: "deque[Strand]", timeout_ns: int | None) -> bool:
        """Let the present strand wait until ``wake(waiters)`` picks it; return False after ``timeout_ns``."""
        strand = self.current
        if strand is None:
            raise Stuck("code outside of any strand would wait forever")
        strand.woken = False
        waiters.append(strand)
        timer = None if timeout_ns is None else self.after(timeout_ns, strand.owner, lambda: self._resume(strand))
        try:
            self._park(strand)
        finally:
            if timer is not None:
                timer.cancel()
            if not strand.woken and strand in waiters:
                waiters.remove(strand)
        return strand.woken

    def wake(self, waiters: "deque[Strand]", count: int = 1) -> None:
        """Let the first strands that wait go on, soon."""
        while waiters and count:
            strand = waiters.popleft()
            strand.woken = True
            self.after(self.soon_ns(), strand.owner, lambda strand=strand: self._resume(strand))  # type: ignore[misc]
            count -= 1

    def sleep(self, delay_ns: int) -> None:
        """Let the present strand wait: the disk takes that long."""
        self.wait(deque(), delay_ns)

    def _park(self, strand: Strand) -> None:
        if self._ended or (strand.owner is not None and not strand.owner.alive):
            raise StrandKilled
        strand.baton = baton = RealLock()
        baton.acquire()
        self._waiting.append(strand)
        self.current = None
        if self._idle:
            self._idle.pop().release()
        else:
            _thread.start_new_thread(self._drive, ())
        baton.acquire()
        self.current = strand
        if self._ended or (strand.owner is not None and not strand.owner.alive):
            raise StrandKilled

    def _resume(self, strand: Strand) -> None:
        """Give the baton to a strand that waits; this thread is idle from now on. Runs as an event."""
        if strand not in self._waiting:
            return
        self._waiting.remove(strand)
        mine = RealLock()
        mine.acquire()
        self._idle.append(mine)
        strand.baton.release()
        mine.acquire()

    def end_strands(self, owner: Owner) -> None:
        """Let the strands of a dead process leave their calls. To be called from an event."""
        for strand in [each for each in self._waiting if each.owner is owner]:
            self.after(0, None, lambda strand=strand: self._resume(strand))  # type: ignore[misc]

    # ---- running

    def run(self, until: Callable[[], bool], events_max: int) -> None:
        """Let things happen until ``until()``. Raises ``Stuck``, and what events raise."""
        self._until, self._events_max = until, self.events + events_max
        self._error = None
        if self._idle:
            self._idle.pop().release()
        else:
            _thread.start_new_thread(self._drive, ())
        self._finished.acquire()
        if self._error is not None:
            raise self._error

    def _drive(self) -> None:
        """Take events with the baton, until the kernel is closed."""
        while not self._closed:
            if self._ended:  # a strand has left its call
                self._finished.release()
                return
            if not self._step():
                mine = RealLock()
                mine.acquire()
                self._idle.append(mine)
                self._finished.release()
                mine.acquire()

    def _step(self) -> bool:
        """Let one thing happen; False: the run is over."""
        try:
            if self._until():
                return False
            if not self._heap:
                raise Stuck("nothing is left to happen")
            when_ns, _, event = heapq.heappop(self._heap)
            owner = event.owner
            if event.cancelled or (owner is not None and not owner.alive):
                return True
            if owner is not None and owner.frozen_until_ns > when_ns:
                owner.held.append(event)
                return True
            if when_ns > self.now_ns:
                self.now_ns = when_ns
            self.events += 1
            self.trace.update(b"%d " % self.now_ns)
            if self.events > self._events_max:
                raise Stuck(f"{self.events} events")
            event.call()
        except BaseException as error:
            self._error = error
            return False
        return True

    def close(self) -> None:
        """End every strand and thread."""
        self._ended = True
        self._heap.clear()
        while self._waiting:
            strand = self._waiting.pop()
            strand.baton.release()
            self._finished.acquire()
        self._closed = True
        idle, self._idle = self._idle, []
        for each in idle:
            each.release()
