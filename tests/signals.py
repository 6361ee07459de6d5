"""Child processes that react to Ctrl-C, however the test run was started."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Start the processes of this block with the default action for SIGINT.

    A run that a shell put into the background (``nohup make test &``) ignores SIGINT, and its children inherit that:
    a Python then never raises ``KeyboardInterrupt``. Only for the main thread.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a handler becomes the default at exec
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
