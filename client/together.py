"""Many requests, a bounded number at a time.

Lives here: ``together``. A topic may have 65,536 queues: a request for each at once would exceed what a connection may
have under way, and keep every other request waiting.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

AT_ONCE: Final = 256

_T = TypeVar("_T")
_U = TypeVar("_U")


async def together(ask: Callable[[_T], Awaitable[_U]], items: Iterable[_T], *, at_once: int = AT_ONCE) -> list[_U]:
    """Call ``ask`` for each item, ``at_once`` at a time; return the results in the order of the items.

    Raises the first error, and starts no further call then.
    """
    waiting = list(items)
    results: list[_U] = []
    for start in range(0, len(waiting), at_once):
        results += await asyncio.gather(*map(ask, waiting[start : start + at_once]))
    return results
