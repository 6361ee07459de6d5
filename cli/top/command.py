"""``pocketmq top``: options, the refreshed screen, keys.

Lives here: the command; ``Keyboard``, which reads single keys and restores the terminal.
"""

import asyncio
import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pocketmq.cli import options
from pocketmq.cli.connection import given
from pocketmq.cli.output import print_json
from pocketmq.cli.run import run_async
from pocketmq.cli.start_position import parse_duration
from pocketmq.cli.top.drawing import KEYS, screen
from pocketmq.cli.top.overview import Overview, Sort, overview_of

if TYPE_CHECKING:
    from pocketmq.dashboard.watch.cluster_watch import ClusterWatch

ROWS: Final = 10
ONCE_S: Final = 1.0
"""Time between the two looks of --once: a rate needs two."""
INTERVAL_MS_MIN: Final = 500
"""A shorter time between two looks costs the brokers and shows nothing more."""
_SORT_KEYS: Final = {"r": Sort.RATE, "l": Sort.LAG, "f": Sort.REFUSALS}
_OPEN, _CLOSE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _LINE_END, _REST = "\x1b[H", "\x1b[K\r\n", "\x1b[K\x1b[J"


def top(
    sort: Annotated[
        Sort, typer.Option("--sort", help="Order of the tables: by rate, lag or refusals.", case_sensitive=False)
    ] = Sort.LAG,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Rows of each table.")] = ROWS,
    interval: Annotated[str, typer.Option("--interval", metavar="TIME", help="Time between two looks.")] = "2s",
    once: Annotated[bool, typer.Option("--once", help="Print the tables once; so does a pipe.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, once, with all rows.")] = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Show a cluster, PocketMQ's or RocketMQ's, and refresh: rates, lag in messages and time, refusals, health.

    Keys: r, l and f sort by rate, lag and refusals, q ends it. Each look asks each broker for its runtime table and for
    the progress of all groups in one answer; names are asked every 10 s.
    """
    interval_s = max(INTERVAL_MS_MIN, parse_duration("--interval", interval)) / 1000
    is_once = once or as_json or not (sys.stdout.isatty() and sys.stdin.isatty())

    async def body() -> None:
        watch = _watch(namesrv, ONCE_S if is_once else interval_s)
        try:
            await watch.start()
            await watch.admin.cluster_info()  # a name server that cannot be reached ends the command with its error
            if is_once:
                view = await _once(watch, sort)
                if as_json:
                    print_json(view)
                else:
                    print("\n".join(screen(view, sort, limit)))
            else:
                await _refresh(watch, sort, limit)
        finally:
            await watch.stop()

    run_async(body())


def _watch(namesrv: str, interval_s: float) -> "ClusterWatch":
    from pocketmq.cli.dashboard.findings import findings_of
    from pocketmq.dashboard.options import DashboardOptions
    from pocketmq.dashboard.watch.cluster_watch import ClusterWatch

    connection = given()
    chosen = DashboardOptions(namesrv=namesrv, tls=connection["tls"], interval_s=interval_s, doctor=findings_of)
    return ClusterWatch(chosen, connection["credentials"])


async def _once(watch: "ClusterWatch", sort: Sort) -> Overview:
    """Return the rows after two looks."""
    state = await watch.look()
    return overview_of(await watch.changed(state.revision), sort)


async def _refresh(watch: "ClusterWatch", sort: Sort, limit: int) -> None:
    """Draw after each look and each key until ``q`` or Ctrl-C."""
    pressed = asyncio.Event()
    chosen, is_over = sort, False

    def press(key: str) -> None:
        nonlocal chosen, is_over
        chosen = _SORT_KEYS.get(key.lower(), chosen)
        is_over = is_over or key in ("q", "Q", "")
        pressed.set()

    with _terminal(), keyboard(press):
        state = await watch.look()
        while not is_over:
            size = shutil.get_terminal_size()
            lines = screen(
                overview_of(state, chosen),
                chosen,
                limit,
                width=size.columns,
                height=max(1, size.lines - 1),
                is_colored=True,
                keys=KEYS,
            )
            sys.stdout.write(_HOME + _LINE_END.join(lines) + _REST)
            sys.stdout.flush()
            pressed.clear()
            look = asyncio.create_task(watch.changed(state.revision))
            key = asyncio.create_task(pressed.wait())
            try:
                await asyncio.wait({look, key}, return_when=asyncio.FIRST_COMPLETED)
                state = look.result() if look.done() else state
            finally:
                look.cancel()
                key.cancel()


@contextlib.contextmanager
def _terminal() -> Iterator[None]:
    """Draw on the second screen of the terminal, without a cursor; the first one comes back as it was."""
    sys.stdout.write(_OPEN)
    try:
        yield
    finally:
        sys.stdout.write(_CLOSE)
        sys.stdout.flush()


@contextlib.contextmanager
def keyboard(press: Callable[[str], None]) -> Iterator[None]:
    """Call ``press`` with each key, in the running loop; an empty one when the terminal is gone."""
    import os
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            keys = os.read(descriptor, 64).decode("ascii", "ignore")
        except OSError:
            keys = ""
        if not keys:
            loop.remove_reader(descriptor)
            press("")
        for key in keys:
            press(key)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
