"""Event loops: uvloop where it is installed, else asyncio's own.

Lives here: making one.
"""

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop; the caller runs and closes it."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
