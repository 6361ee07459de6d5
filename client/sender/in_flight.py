"""The unsettled sends of a producer: RocketMQ's semaphores, counted in sends and in bytes.

Lives here: ``InFlight``: the limits, the waiting for room, the "too fast" errors.
"""

import asyncio
from collections import deque

from pocketmq.remoting.errors import RemotingTooMuchRequestError

IN_FLIGHT_BYTES_MAX = 64 << 20
"""Bytes that a producer holds at most without a receipt (5.x: semaphoreAsyncSendSize, 100 MiB)."""
ASYNC_PERMITS = 65_535
ONEWAY_PERMITS = 65_535
"""NettySystemConfig.java: permits of asynchronous and of oneway calls of one client."""


class InFlight:
    """Counts sends handed over and not settled: asynchronous ones, oneway ones, bytes of both.

    A send is one message, or one part of a batch: one future. Messages in the open frame are counted when it closes (at
    the end of the loop turn, or at 1 MiB), so a limit can be passed by one frame. ``full`` is true while ``send`` has
    to wait and ``send_nowait`` refuses.

    It is no stage of the producer: ``send`` waits for it before any stage is asked, and it counts parked and oneway
    sends, whose end no stage sees. The short path reads the plain attribute ``full``, without a call.
    """

    __slots__ = ("_waiting", "bytes_held", "bytes_max", "full", "oneways", "oneways_max", "sends", "sends_max")

    def __init__(self, bytes_max: int, sends_max: int = ASYNC_PERMITS, oneways_max: int = ONEWAY_PERMITS) -> None:
        self.bytes_max = bytes_max
        self.sends_max = sends_max
        self.oneways_max = oneways_max
        self.bytes_held = 0
        self.sends = 0
        self.oneways = 0
        self.full = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    def add(self, size_bytes: int, permits: int, oneway: bool) -> None:
        """Count one section or one parked message."""
        self.bytes_held += size_bytes
        if oneway:
            self.oneways += permits
        else:
            self.sends += permits
        self.full = self.bytes_held >= self.bytes_max or self.sends >= self.sends_max

    def remove(self, size_bytes: int, permits: int, oneway: bool) -> None:
        """Stop counting it; let the next waiting send in."""
        self.bytes_held -= size_bytes
        if oneway:
            self.oneways -= permits
        else:
            self.sends -= permits
        if self.full:
            self.full = self.bytes_held >= self.bytes_max or self.sends >= self.sends_max
        if self._waiting:
            self._make_room()

    def check(self, oneway: bool) -> None:
        """Raise ``RemotingTooMuchRequestError`` at once if there is no room, for sends that may not wait."""
        if oneway:
            if self.oneways >= self.oneways_max or self.bytes_held >= self.bytes_max:
                raise RemotingTooMuchRequestError(
                    "invokeOnewayImpl invoke too fast",
                    why=f"{self.oneways} oneway messages have not left yet, the limit is {self.oneways_max}; "
                    f"{self.bytes_held} bytes are held, the limit is {self.bytes_max}",
                    hint="the broker does not read fast enough; wait, or use send(), which waits",
                )
        elif self.full:
            raise RemotingTooMuchRequestError(
                "invokeAsyncImpl invoke too fast",
                why=f"{self.sends} sends wait for receipts, the limit is {self.sends_max}; "
                f"{self.bytes_held} bytes are held, the limit is {self.bytes_max}",
                hint="await some receipts first, or use send(), which waits",
            )

    async def wait(self, deadline_s: float) -> None:
        """Wait until there is room; raise ``RemotingTooMuchRequestError`` at ``deadline_s`` of the loop's time."""
        if not self.full:
            return
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        while self.full:
            future: asyncio.Future[None] = loop.create_future()
            self._waiting.append(future)
            try:
                async with asyncio.timeout_at(deadline_s):
                    await future
            except asyncio.CancelledError:
                self._leave(future)
                raise
            except TimeoutError as error:
                self._leave(future)
                raise RemotingTooMuchRequestError(
                    f"invokeAsyncImpl tryAcquire semaphore timeout, {(loop.time() - started_s) * 1000:.0f}ms, "
                    f"waiting thread nums: {len(self._waiting)} "
                    f"semaphoreAsyncValue: {max(self.sends_max - self.sends, 0)}",
                    why=f"{self.sends} sends with {self.bytes_held} bytes wait for receipts, the limits are "
                    f"{self.sends_max} and {self.bytes_max}",
                    hint="the broker is slower than this producer",
                ) from error
        if self._waiting:
            loop.call_soon(self._make_room)  # perhaps there is room for the next one too

    def fail_waiting(self, error: Exception) -> None:
        """End all waiting with ``error``."""
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    def _make_room(self) -> None:
        while self._waiting and not self.full:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return  # one at a time: each adds bytes before the next may

    def _leave(self, future: "asyncio.Future[None]") -> None:
        """Stop waiting for room; pass on a turn that was already given."""
        if future in self._waiting:
            self._waiting.remove(future)
        else:
            asyncio.get_running_loop().call_soon(self._make_room)
