"""Child processes that react to Ctrl-C and to the end of their terminal, however the test run was started."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Start the processes of this block with the default action for SIGINT and SIGHUP.

    A run that a shell put into the background (``nohup make test &``) ignores both, and its children inherit that: a
    Python then never raises ``KeyboardInterrupt``, and outlives its terminal. Only for the main thread.
    """
    # a handler becomes the default at exec
    before = {each: signal.signal(each, signal.default_int_handler) for each in (signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
