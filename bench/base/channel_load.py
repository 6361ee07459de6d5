"""A closed loop of requests on one connection, below the SDK: a fixed number in flight until a count or time limit.

Lives here: ``ChannelLoad``, ``open_channel``.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from pocketmq.cli.bench.cases import Row
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import NullLog
from pocketmq.remoting.channel import ChannelConfig, ClientChannel
from pocketmq.remoting.codec import Response

TIMEOUT_MS = 30_000


async def open_channel(address: str, **settings: Any) -> ClientChannel:
    """Return an open connection after its hello; ``settings`` of ``ChannelConfig``."""
    channel = ClientChannel(address, clock=SystemClock(), log=NullLog(), config=ChannelConfig(**settings))
    await channel.open()
    await channel.hello()
    return channel


class ChannelLoad:
    """Sends what ``make(number)`` returns as (code, header, body)."""

    def __init__(self, channel: ClientChannel, make: Callable[[int], tuple[int, Any, bytes]]) -> None:
        self.channel = channel
        self._make = make

    async def run(self, in_flight: int, *, count: int = 1 << 62, seconds: float = float("inf")) -> Row:
        """Return how many were answered with SUCCESS, and each one's ms. Raises ``RuntimeError`` for any other."""
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        clock, latencies_ms = time.perf_counter, []
        started = on_the_way = 0
        begin = clock()

        def send() -> None:
            nonlocal started, on_the_way
            sent_at = clock()

            def done(result: Response | PocketMQError) -> None:
                nonlocal on_the_way
                on_the_way -= 1
                if not isinstance(result, Response) or result.code:
                    if not finished.done():
                        finished.set_exception(RuntimeError(f"a send failed: {result}"))
                    return
                now = clock()
                latencies_ms.append((now - sent_at) * 1000)
                if started < count and now - begin < seconds:
                    send()
                elif not on_the_way and not finished.done():
                    finished.set_result(None)

            code, header, body = self._make(started)
            started += 1
            on_the_way += 1
            self.channel.request_nowait(code, header, body, timeout_ms=TIMEOUT_MS, done=done)

        for _ in range(in_flight):
            send()
        await finished
        return Row("", 0, len(latencies_ms), clock() - begin, latencies_ms)

    async def close(self) -> None:
        """End the connection."""
        self.channel.close()
        await self.channel.wait_closed()
