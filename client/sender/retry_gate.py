"""Whether retries may go to a broker: open, wait, or shut.

Lives here: ``RetryGate``: waits for tokens of the budget that are out with other retries.
"""

import asyncio
from collections import deque

from pocketmq.client.sender.retry_budget import RetryBudget, Room


class RetryGate:
    """Belongs to one producer and its loop. Each ``enter`` that returned True is followed by one ``leave``."""

    def __init__(self, budget: RetryBudget) -> None:
        self.budget = budget
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def waiting(self, broker: str) -> int:
        """How many retries wait for a token of ``broker``."""
        return len(self._waiting.get(broker, ()))

    async def enter(self, broker: str, timeout_ms: float) -> bool:
        """Take a token of ``broker``; wait while all are out. False: they are lost, no retry goes there now.

        Raise ``TimeoutError`` after ``timeout_ms``.
        """
        budget = self.budget
        room = budget.room(broker)
        if room is Room.WAIT:
            async with asyncio.timeout(max(timeout_ms, 0) / 1000):
                while room is Room.WAIT:
                    await self._wait(broker)
                    room = budget.room(broker)
        if room is Room.EMPTY:
            return False
        budget.take(broker)
        return True

    async def _wait(self, broker: str) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(broker, deque())
        queue.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future in queue:
                queue.remove(future)
            else:  # woken and cancelled at once: pass the turn on
                self._wake(broker)
            raise
        finally:
            if not queue and self._waiting.get(broker) is queue:
                del self._waiting[broker]

    def leave(self, broker: str, *, in_vain: bool) -> None:
        """End a retry: its token is lost if it reached the broker in vain."""
        if in_vain:
            self.budget.lose(broker)
        else:
            self.budget.give_back(broker)
        if self._waiting:
            self._wake(broker)

    def _wake(self, broker: str) -> None:
        """Wake one for each token there is, or all if there will be none."""
        queue = self._waiting.get(broker)
        if not queue:
            return
        room = self.budget.room(broker)
        count = 0 if room is Room.WAIT else len(queue) if room is Room.EMPTY else int(self.budget.tokens(broker))
        while queue and count > 0:
            future = queue.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1
