"""Answers that several viewers of one page share for a moment.

Lives here: ``SharedAnswers``.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar, cast

KEPT_S: Final = 1.5
ANSWERS_MAX: Final = 256

_T = TypeVar("_T")


class SharedAnswers:
    """Asks once for all who want the same within ``KEPT_S``; an error is everybody's, too."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, tuple[int, asyncio.Future[Any]]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Return the answer to ``key``; raises what ``ask`` raises."""
        now_ns = time.monotonic_ns()
        found = self._answers.get(key)
        if found is None or now_ns > found[0]:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers = {each: value for each, value in self._answers.items() if value[0] >= now_ns}
            if len(self._answers) >= ANSWERS_MAX:
                return await ask()
            future = asyncio.ensure_future(ask())
            future.add_done_callback(_seen)
            found = self._answers[key] = (now_ns + int(KEPT_S * 1e9), future)
        return cast(_T, await asyncio.shield(found[1]))

    def forget(self) -> None:
        """Ask again from now on: something was changed."""
        self._answers.clear()


def _seen(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled():
        future.exception()  # every waiter may have gone
