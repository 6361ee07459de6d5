"""Children that react to Ctrl-C, whatever the run of the tests was started with."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Let the processes that start in this block begin with the default for SIGINT.

    A run that a shell put into the background (``nohup make test &``) ignores SIGINT, and its children inherit that:
    a Python then never raises ``KeyboardInterrupt``. Only for the main thread.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a handler becomes the default at exec
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
