"""The live tail of a topic: one consumer for all viewers of the same topic and filter.

The consumer reads from the end, joins no group of the application, and commits nothing. Each viewer has a short queue;
what does not fit is counted, and the count is shown.

Lives here: ``Tails``, ``Tail``, ``Viewer``.
"""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.pull.pull_consumer import PullConsumer
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.dashboard.options import DashboardOptions
from pocketmq.dashboard.watch.reading import TOOLS_GROUP
from pocketmq.remoting.security.credentials import Credentials

TAILS_MAX: Final = 20
"""Topics and filters that are followed at the same time."""
WAITING_MAX: Final = 100
"""Messages that wait for one viewer."""
LINGER_S: Final = 5.0
"""How long a tail goes on without viewers: a page that is loaded again finds it."""

Key = tuple[Credentials | None, str, str, str]
"""(user, topic, tags, SQL)."""


class TooManyTails(PocketMQError):
    """As many topics as the dashboard follows are followed now."""

    retriable = True
    default_cause = Cause.CONNECTION_LIMIT


@dataclass(slots=True, eq=False)
class Viewer:
    """One viewer's queue. ``left_out``: messages that did not fit since the last ``take``."""

    waiting: deque[ReceivedMessage] = field(default_factory=lambda: deque(maxlen=WAITING_MAX))
    left_out: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, message: ReceivedMessage) -> None:
        """Add a message; the oldest one makes room."""
        self.left_out += len(self.waiting) == WAITING_MAX
        self.waiting.append(message)
        self.wake.set()

    def take(self) -> tuple[list[ReceivedMessage], int]:
        """Return what waits, and how many were left out."""
        found, left_out = list(self.waiting), self.left_out
        self.waiting.clear()
        self.left_out = 0
        self.wake.clear()
        return found, left_out


class Tail:
    """Reads one topic for its viewers. ``error``: why it ended."""

    def __init__(self, options: DashboardOptions, key: Key) -> None:
        self.viewers: set[Viewer] = set()
        self.error: PocketMQError | None = None
        self._options = options
        self._key = key
        self.task = asyncio.create_task(self._read(), name="dashboard-tail")

    async def _read(self) -> None:
        credentials, topic, tags, sql = self._key
        instance = ClientInstance(self._options.namesrv, credentials=credentials, tls=self._options.tls)
        try:
            async with PullConsumer(TOOLS_GROUP, instance=instance) as consumer:
                stream = consumer.stream(topic, start="latest", tags=tags or "*", sql=sql)
                async with contextlib.aclosing(stream) as messages:
                    async for message in messages:
                        for viewer in self.viewers:
                            viewer.put(message)
        except PocketMQError as error:
            self.error = error
        finally:
            for viewer in self.viewers:
                viewer.wake.set()


class Tails:
    """The tails of a dashboard."""

    def __init__(self, options: DashboardOptions) -> None:
        self._options = options
        self._tails: dict[Key, Tail] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tails)

    def join(self, key: Key) -> tuple[Tail, Viewer]:
        """Return a tail and a place at it. Raises ``TooManyTails``."""
        tail = self._tails.get(key)
        if tail is None or tail.task.done():
            if len(self._tails) >= TAILS_MAX and key not in self._tails:
                raise TooManyTails(
                    "not followed", why=f"{TAILS_MAX} topics are followed now", hint="close another tail"
                )
            tail = self._tails[key] = Tail(self._options, key)
        viewer = Viewer()
        tail.viewers.add(viewer)
        return tail, viewer

    def leave(self, key: Key, viewer: Viewer) -> None:
        """Give a place up; the last one ends the tail after a moment."""
        tail = self._tails.get(key)
        if tail is None:
            return
        tail.viewers.discard(viewer)
        if not tail.viewers:
            task = asyncio.create_task(self._end_later(key, tail), name="dashboard-tail-end")
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def stop(self) -> None:
        """End all tails."""
        for task in list(self._ending):
            task.cancel()
        for key, tail in list(self._tails.items()):
            await self._end(key, tail)

    async def _end_later(self, key: Key, tail: Tail) -> None:
        await asyncio.sleep(LINGER_S)
        if not tail.viewers:
            await self._end(key, tail)

    async def _end(self, key: Key, tail: Tail) -> None:
        if self._tails.get(key) is tail:
            del self._tails[key]
        tail.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await tail.task
