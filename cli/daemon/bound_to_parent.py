"""``python -m pocketmq.cli.daemon.bound_to_parent PARENT_PID ARGUMENTS…``: ``pocketmq`` that ends with its parent.

Linux sends the process SIGTERM when its parent has ended, whatever ended it (``prctl(2)``, PR_SET_PDEATHSIG): a broker
then stops cleanly. On other systems only the parent's own stop ends it.
"""

import ctypes
import os
import runpy
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1
"""``linux/prctl.h``."""


def bind_to(parent_pid: int) -> bool:
    """Ask for the signal. Return False if the parent has ended already: it is too late for the signal then."""
    if not sys.platform.startswith("linux"):
        return True
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    return os.getppid() == parent_pid


if __name__ == "__main__":
    if not bind_to(int(sys.argv[1])):
        sys.exit(1)
    sys.argv = ["pocketmq", *sys.argv[2:]]
    runpy.run_module("pocketmq.cli.main", run_name="__main__")
