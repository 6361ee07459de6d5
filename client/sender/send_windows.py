"""Order and measure for brokers that carry out the requests of one connection side by side, as RocketMQ's do.

A RocketMQ broker hands the requests that it reads to several threads: two sends for one queue, one behind the other on
one connection, may be stored the other way round (SendMessageProcessor, ``sendMessageThreadPoolNums``). And it refuses
what waits longer than 200 ms for a thread (BrokerFastFailure). So what must keep its order has one request of its queue
on the way, and the rest of a broker's sends ``WINDOW`` together.

Lives here: ``SendWindows``: what may leave now, what waits, what has waited too long.
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
"""Sends without an order of their own on the way to one broker: as many as RocketMQ's benchmark has threads."""
LOOK_MS: Final = 50
"""How late a section may learn that its time was over while it waited here."""

Lane = MessageQueue | str
"""A queue whose sends keep their order, or a broker's address for all others."""
_Waiting = tuple[Section, BrokerConnection, int]


class _Track:
    """What is on the way in one lane, and what waits for a place."""

    __slots__ = ("is_pumped", "on_the_way", "places", "waiting")

    def __init__(self, places: int) -> None:
        self.places = places
        self.on_the_way = 0
        self.waiting: deque[_Waiting] = deque()
        self.is_pumped = False


class SendWindows:
    """Belongs to one producer and its event loop.

    ``send(section, connection, until_ns, lane)`` sends a request now; ``leave(lane)`` must be called exactly once for
    each, when it was answered or has failed. ``late(section, connection, ahead)`` ends a section whose time was over
    before it left, with ``ahead`` others in front. Bounded by what the producer lets in (``in_flight_sends_max``).
    """

    def __init__(
        self,
        send: Callable[[Section, BrokerConnection, int, Lane], None],
        late: Callable[[Section, BrokerConnection, int], None],
        clock: Clock,
    ) -> None:
        self._send = send
        self._late = late
        self._clock = clock
        self._tracks: dict[Lane, _Track] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many sections wait for a place."""
        return sum(len(track.waiting) for track in self._tracks.values())

    def enter(self, section: Section, connection: BrokerConnection, until_ns: int, *, in_order: bool) -> None:
        """Send now if there is a place, else when there is one. ``in_order``: behind those before it for its queue."""
        lane: Lane = section.queue if in_order else connection.address
        track = self._tracks.get(lane)
        if track is None:
            track = self._tracks[lane] = _Track(1 if in_order else WINDOW)
        track.waiting.append((section, connection, until_ns))
        self._pump(lane, track)
        self._look_later(track)

    def put_back(self, sections: Sequence[Section], connection: BrokerConnection, until_ns: int, lane: Lane) -> None:
        """Let sections leave before all that wait: they are parts of one that was on the way and was refused whole.

        Before ``leave``: the lane still has its place.
        """
        self._tracks[lane].waiting.extendleft((section, connection, until_ns) for section in reversed(sections))

    def leave(self, lane: Lane) -> None:
        """Give a place back."""
        track = self._tracks[lane]
        track.on_the_way -= 1
        assert track.on_the_way >= 0
        self._pump(lane, track)
        self._look_later(track)

    def take_all(self) -> list[Section]:
        """Return every section that waits, and forget them: the producer ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left = [section for track in self._tracks.values() for section, _, _ in track.waiting]
        for track in self._tracks.values():
            track.waiting.clear()
        return left

    def _pump(self, lane: Lane, track: _Track) -> None:
        """Let go who has a place. A send that fails at once comes back here: the loop below goes on, nothing nests."""
        if track.is_pumped:
            return
        track.is_pumped = True
        try:
            while track.waiting and track.on_the_way < track.places:
                section, connection, until_ns = track.waiting.popleft()
                if until_ns <= self._clock.monotonic_ns():
                    self._late(section, connection, track.on_the_way)
                    continue
                track.on_the_way += 1
                self._send(section, connection, until_ns, lane)
        finally:
            track.is_pumped = False
        if not track.waiting and not track.on_the_way:
            self._tracks.pop(lane, None)

    def _look_later(self, track: _Track) -> None:
        if track.waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_MS / 1000, self._look)

    def _look(self) -> None:
        """End those whose time is over, wherever they stand."""
        self._timer = None
        now_ns = self._clock.monotonic_ns()
        for lane, track in list(self._tracks.items()):
            if not any(until_ns <= now_ns for _, _, until_ns in track.waiting):
                continue
            waiting, track.waiting = track.waiting, deque()
            late = [each for each in waiting if each[2] <= now_ns]
            track.waiting.extend(each for each in waiting if each[2] > now_ns)
            for section, connection, _ in late:
                self._late(section, connection, track.on_the_way)
            self._pump(lane, track)
        for track in self._tracks.values():
            self._look_later(track)
