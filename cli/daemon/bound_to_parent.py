"""``python -m pocketmq.cli.daemon.bound_to_parent ARGUMENTS…``: ``pocketmq`` that ends with its parent.

Its standard input is a pipe into which the parent writes nothing. When the parent has ended, whatever ended it, the
pipe has no writer any more: the process then sends itself SIGTERM, and a server stops cleanly. Linux' parent-death
signal (``prctl(2)``, PR_SET_PDEATHSIG) is no substitute: it comes once for each thread of a parent that is killed, and
a server takes the second SIGTERM as the order to stop at once.
"""

import contextlib
import os
import runpy
import signal
import sys
import threading


def end_with_parent(descriptor: int = 0) -> None:
    """Return at once; send this process SIGTERM when the pipe ends."""
    threading.Thread(target=_watch, args=(descriptor,), name="parent-watch", daemon=True).start()


def _watch(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # a socket pair of a killed parent may be reset
        while os.read(descriptor, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    end_with_parent()
    sys.argv = ["pocketmq", *sys.argv[1:]]
    runpy.run_module("pocketmq.cli.main", run_name="__main__")
