"""A counted ``pocketmq`` process: the command itself, with a profile function in every thread.

Run by ``bench.calls.cases``: ``python -m bench.calls.child SOCKET standalone …``.
"""

import sys

from bench.calls.control import serve
from bench.calls.counter import CallCounter


def main() -> None:
    """Run the command ``pocketmq`` with the arguments after the socket."""
    counter = CallCounter()
    counter.install()
    serve(sys.argv[1], counter)
    sys.argv = ["pocketmq", *sys.argv[2:]]
    from pocketmq.cli.main import main as pocketmq

    pocketmq()


if __name__ == "__main__":
    main()
