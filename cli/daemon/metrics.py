"""``pocketmq metrics record``: snapshots of a broker's ``/metrics`` in a file, for later.

Lives here: options, signals, what is printed.
"""

import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from pocketmq.common.errors import ConfigError

MIB = 1 << 20


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    app = typer.Typer(help="Keep a broker's figures.", no_args_is_help=True)

    @app.callback()
    def metrics() -> None:
        """Keep a broker's figures."""

    app.command()(record)
    return app


def record(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Snapshots are appended to it.")],
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="A broker's page.")
    ] = "http://127.0.0.1:5557/metrics",
    broker: Annotated[
        str, typer.Option("--broker", metavar="NAME", help="The broker's name; else /health beside the page says it.")
    ] = "",
    interval_s: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=1, max=60, help="Between two snapshots.")
    ] = 10.0,
    rotate_mb: Annotated[
        int,
        typer.Option(
            "--rotate-mb", min=1, max=1024, help="Begin a new file at this size, and each day, UTC; gzip the old one."
        ),
    ] = 64,
    keep: Annotated[
        int, typer.Option("--keep", min=0, max=10_000, help="Rotated files that stay; older ones are removed. 0: all.")
    ] = 200,
    count: Annotated[int, typer.Option("--count", min=0, help="End after so many snapshots; 0: until Ctrl-C.")] = 0,
) -> None:
    """Write what /metrics says, again and again, until Ctrl-C or SIGTERM.

    The file is input of pocketmq pipeline flow-control (--metrics). A broker that does not answer is asked again at
    the next interval.
    """
    from pocketmq.cli.daemon.metrics_recorder import Recorder

    if not url.startswith(("http://", "https://")):
        raise ConfigError("bad --url", why=repr(url), hint="write http://127.0.0.1:5557/metrics")
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        recorder = Recorder(url, broker, output, rotate_bytes=rotate_mb * MIB, keep=keep, say=_say)
        recorder.run(interval_s, count, stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    _say(f"{recorder.written:,} snapshots written, {recorder.missed:,} missed")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
