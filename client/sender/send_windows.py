"""Order and limits for brokers that carry out the requests of one connection concurrently, as RocketMQ's do.

A RocketMQ broker hands the requests that it reads to several threads: two consecutive sends for one queue on one
connection may be stored in reverse (SendMessageProcessor, ``sendMessageThreadPoolNums``). And it refuses requests that
wait longer than 200 ms for a thread (BrokerFastFailure). So ordered sends have one request per queue in flight, and all
other sends to a broker ``WINDOW`` together.

Lives here: ``SendWindows``: sends requests that have a place, queues the others, ends those that waited too long.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from pocketmq.client.connection.instance import BrokerConnection
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.sender.section import Section
from pocketmq.common.clock import Clock

WINDOW: Final = 64
"""Unordered sends in flight to one broker: as many as RocketMQ's benchmark has threads."""
CHECK_MS: Final = 50
"""How late a section may time out while it waits here."""

WindowKey = MessageQueue | str
"""A queue whose sends keep their order, or a broker's address for all others."""
_Waiting = tuple[Section, BrokerConnection, int]


class _Window:
    """The sections in flight in one window, and those that wait for a place."""

    __slots__ = ("in_flight", "is_pumped", "places", "waiting")

    def __init__(self, places: int) -> None:
        self.places = places
        self.in_flight = 0
        self.waiting: deque[_Waiting] = deque()
        self.is_pumped = False


class SendWindows:
    """Belongs to one producer and its event loop.

    ``send(section, connection, until_ns, window_key)`` sends a request now; ``leave(window_key)`` must be called
    exactly once for each, when it was answered or has failed. ``late(section, connection, ahead)`` ends a section whose
    time was over before it left, with ``ahead`` others in front. Bounded by the producer's ``in_flight_sends_max``.
    """

    def __init__(
        self,
        send: Callable[[Section, BrokerConnection, int, WindowKey], None],
        late: Callable[[Section, BrokerConnection, int], None],
        clock: Clock,
    ) -> None:
        self._send = send
        self._late = late
        self._clock = clock
        self._windows: dict[WindowKey, _Window] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many sections wait for a place."""
        return sum(len(window.waiting) for window in self._windows.values())

    def enter(self, section: Section, connection: BrokerConnection, until_ns: int, *, in_order: bool) -> None:
        """Send now if there is a place, else when there is one. ``in_order``: behind earlier sections for its queue."""
        window_key: WindowKey = section.queue if in_order else connection.address
        window = self._windows.get(window_key)
        if window is None:
            window = self._windows[window_key] = _Window(1 if in_order else WINDOW)
        window.waiting.append((section, connection, until_ns))
        self._pump(window_key, window)
        self._check_later(window)

    def put_back(
        self, sections: Sequence[Section], connection: BrokerConnection, until_ns: int, window_key: WindowKey
    ) -> None:
        """Put sections before all waiting ones: they are parts of one that was in flight and was refused whole.

        Before ``leave``: the window still counts it.
        """
        self._windows[window_key].waiting.extendleft((section, connection, until_ns) for section in reversed(sections))

    def leave(self, window_key: WindowKey) -> None:
        """Give a place back."""
        window = self._windows[window_key]
        window.in_flight -= 1
        assert window.in_flight >= 0
        self._pump(window_key, window)
        self._check_later(window)

    def take_all(self) -> list[Section]:
        """Return every section that waits, and forget them: the producer ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left = [section for window in self._windows.values() for section, _, _ in window.waiting]
        for window in self._windows.values():
            window.waiting.clear()
        return left

    def _pump(self, window_key: WindowKey, window: _Window) -> None:
        """Send sections while there are places. A send that fails at once calls this again; the loop goes on, no
        nesting."""
        if window.is_pumped:
            return
        window.is_pumped = True
        try:
            while window.waiting and window.in_flight < window.places:
                section, connection, until_ns = window.waiting.popleft()
                if until_ns <= self._clock.monotonic_ns():
                    self._late(section, connection, window.in_flight)
                    continue
                window.in_flight += 1
                self._send(section, connection, until_ns, window_key)
        finally:
            window.is_pumped = False
        if not window.waiting and not window.in_flight:
            self._windows.pop(window_key, None)

    def _check_later(self, window: _Window) -> None:
        if window.waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK_MS / 1000, self._end_late)

    def _end_late(self) -> None:
        """End sections whose time is over, wherever they stand."""
        self._timer = None
        now_ns = self._clock.monotonic_ns()
        for window_key, window in list(self._windows.items()):
            if not any(until_ns <= now_ns for _, _, until_ns in window.waiting):
                continue
            waiting, window.waiting = window.waiting, deque()
            late = [each for each in waiting if each[2] <= now_ns]
            window.waiting.extend(each for each in waiting if each[2] > now_ns)
            for section, connection, _ in late:
                self._late(section, connection, window.in_flight)
            self._pump(window_key, window)
        for window in self._windows.values():
            self._check_later(window)
