"""Server-sent events (HTML Living Standard, 9.2) to one viewer that may be slow, or gone.

Lives here: ``EventStream``, ``event``.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

STUCK_S: Final = 60.0
"""A viewer that has not taken an event for so long is let go; its browser comes again."""


def event(name: str, data: str, number: int = 0) -> bytes:
    """Return one event; each line of the data is a field of its own, so that no data can end it."""
    lines = "".join(f"data: {line}\n" for line in data.replace("\r", "\n").split("\n"))
    return f"event: {name}\nid: {number}\n{lines}\n".encode()


class EventStream(Response):
    """An ASGI response of events. The generator is closed when the viewer has gone, or does not read, and when the
    server closes: a stream never ends by itself. ``left`` is called at the end, even if no event was made.
    """

    def __init__(self, events: AsyncGenerator[bytes, None], closing: asyncio.Event, left: Callable[[], None]) -> None:
        super().__init__()
        self._events = events
        self._closing = closing
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the generator ends or the viewer goes."""
        try:
            await self._stream(receive, send)
        finally:
            self._left()

    async def _stream(self, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        sending = asyncio.create_task(self._send(send), name="dashboard-events")
        leaving = asyncio.create_task(_gone(receive), name="dashboard-viewer")
        closing = asyncio.create_task(self._closing.wait(), name="dashboard-closing")
        tasks: list[asyncio.Task[Any]] = [sending, leaving, closing]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ends = closing.done() and not leaving.done()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if ends:
            await send({"type": "http.response.body", "body": b""})

    async def _send(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            async for data in events:
                async with asyncio.timeout(STUCK_S):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
