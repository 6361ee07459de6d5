"""The wait for a route: brokers and name servers start in any order, and restart.

Lives here: ``wait_for_route``, ``no_route``.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.errors import NoNameServer, NoRoute, NotStarted

PAUSE_MS_FIRST: Final = 50
PAUSE_MS_MAX: Final = 500
LAST_MS: Final = 50
"""With less time left no further question is asked."""


async def wait_for_route(
    topic: str,
    fetch: "Callable[[int], asyncio.Task[TopicRoute]]",
    timeout_ms: float,
    waited_ms: float = 0,
    *,
    name_servers: Sequence[str] = (),
) -> TopicRoute:
    """Return the route that ``fetch(after_ms)`` brings, which is asked again and again until ``timeout_ms`` are over.

    Raise ``NoRoute`` at once if it is ``final``, else ``NoRoute`` or ``NoNameServer`` at the end, with the time waited;
    ``waited_ms`` of it had passed before, and ``name_servers`` are those that are asked. The task of ``fetch`` may be
    shared: it is not cancelled.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    failure: NoRoute | NoNameServer | None = None
    pause_ms = 0
    while True:
        task = fetch(pause_ms)
        await asyncio.wait([task], timeout=max(timeout_ms / 1000 - (loop.time() - began_s), 0))
        if task.cancelled():
            raise NotStarted(f"route of {topic} given up", why="the client was stopped")
        if task.done():
            try:
                return task.result()
            except (NoRoute, NoNameServer) as error:
                if error.final:
                    raise
                failure = error
        elapsed_ms = (loop.time() - began_s) * 1000
        left_ms = timeout_ms - elapsed_ms
        if left_ms < LAST_MS:
            break
        pause_ms = int(min(max(2 * pause_ms, PAUSE_MS_FIRST), PAUSE_MS_MAX, left_ms - LAST_MS / 2))
    waited = f"(waited {waited_ms + elapsed_ms:,.0f} ms)"
    if failure is None:
        asked = f" from {';'.join(name_servers)}" if name_servers else ""
        hint = "is a name server there, and does it hang?"
        raise NoRoute(f"route of {topic} timed out", why=f"no answer{asked} {waited}", hint=hint)
    raise type(failure)(failure.what, why=f"{failure.why} {waited}", hint=failure.hint) from failure


def no_route(topic: str, registered: bool, name_servers: Sequence[str]) -> NoRoute:
    """Return the error of a topic that no broker has or would create; ``registered``: there are brokers."""
    what = f"No route info of this topic: {topic}"
    if registered:
        refusal = NoRoute(
            what, why="it does not exist, and no broker creates topics by itself", hint="create the topic first"
        )
        refusal.final = True
        return refusal
    why = f"no broker that has or could create {topic} is registered at {';'.join(name_servers)}"
    return NoRoute(what, why=why, hint="is a broker running?")
