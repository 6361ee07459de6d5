"""A counted ``pocketmq`` process: the command itself, with a profile function in every thread.

Run by ``bench.calls.cases``: ``python -m bench.calls.child SOCKET [--no-telemetry] standalone …``.
"""

import sys
from typing import Final

from bench.calls.control import serve
from bench.calls.counter import CallCounter

NO_TELEMETRY: Final = "--no-telemetry"
"""The broker counts no times of stages, as in ``bench.own.broker.telemetry``."""


def main() -> None:
    """Run the command ``pocketmq`` with the arguments after the socket."""
    counter = CallCounter()
    counter.install()
    serve(sys.argv[1], counter)
    words = sys.argv[2:]
    from pocketmq.cli.main import main as pocketmq

    if words[0] == NO_TELEMETRY:
        from pocketmq.broker.app import BrokerApp

        words = words[1:]
        defaults = BrokerApp.__init__.__kwdefaults__
        assert defaults is not None
        defaults["stage_times"] = False
    sys.argv = ["pocketmq", *words]
    pocketmq()


if __name__ == "__main__":
    main()
