"""``python -m bench calls``: the table of calls per message.

Lives here: the options, the table, the lines of ``--json``.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.calls.bounds import BOUNDS
from bench.calls.cases import CASES, Counting
from bench.calls.client import PAUSE_S
from bench.calls.figures import THREADS, Measured
from pocketmq.cli.output import print_table

COLUMNS: Final = ("case", "side", *THREADS, "all", "bound", "messages/frame")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    lines = [f"  {name:<13}{title}" for name, (title, _) in CASES.items()]
    made = argparse.ArgumentParser(
        "bench calls",
        description="Count the Python and C calls of a message in a broker and a client process, by thread.",
        epilog="\n".join(["cases:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("cases", nargs="*", metavar="CASE", choices=[[], *CASES], help="what to count; all by default")
    made.add_argument("--top", type=int, default=0, metavar="N", help="also the N functions with the most calls")
    made.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, each function included")
    closely = "one in flight without the pause of 2 ms before each message; the bounds are about those with the pause"
    made.add_argument("--back-to-back", action="store_true", help=closely)
    made.add_argument("--users", action="store_true", help="the broker wants a user and a policy for each request")
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker")
    made.add_argument("--no-telemetry", action="store_true", help="count no times of stages in the broker")
    made.add_argument("--scale", type=float, default=1.0, metavar="X", help="a factor of the number of messages")
    return made


def rows_of(measured: Measured) -> list[list[object]]:
    """Return a row for each side: its threads, its total, the bound that a test holds."""
    found: list[list[object]] = []
    for side, figures in measured.sides.items():
        bounds = [bound for bound in BOUNDS if (bound.case, bound.side) == (measured.case, side)]
        limit = ", ".join(f"{bound.thread} {bound.calls:g}" for bound in bounds)
        frames = round(measured.count / measured.frames, 1) if measured.frames else None
        cells = [round(figures.of(thread), 2) or None for thread in THREADS]
        found.append([CASES[measured.case][0], side, *cells, round(figures.total, 2), limit, frames])
    return found


def print_top(measured: Measured, count: int) -> None:
    """Print the functions with the most calls of each side."""
    for side, figures in measured.sides.items():
        rows = [[round(calls, 2), thread, function] for thread, function, calls in figures.top(count)]
        print_table(("calls/message", "thread", "function"), rows, title=f"{CASES[measured.case][0]}, {side}")


def as_json(measured: Measured) -> dict[str, object]:
    """Return everything that was counted."""
    return {
        "case": measured.case,
        "title": CASES[measured.case][0],
        "messages": measured.count,
        "frames": measured.frames,
        "sides": {
            side: {
                "calls": round(figures.total, 3),
                "path": round(figures.path, 3),
                "threads": {thread: round(figures.of(thread), 3) for thread in THREADS},
                "functions": [
                    {"thread": thread, "function": function, "calls": round(calls, 4)}
                    for thread, function, calls in figures.top(1 << 30)
                    if calls
                ],
            }
            for side, figures in measured.sides.items()
        },
    }


def main(arguments: Sequence[str]) -> int:
    """Count and print."""
    options = parser().parse_args(arguments)
    found: list[Measured] = []
    pause_s = 0.0 if options.back_to_back else PAUSE_S
    users, telemetry = options.users, not options.no_telemetry
    with Counting(*options.set, scale=options.scale, pause_s=pause_s, users=users, telemetry=telemetry) as counting:
        for name in options.cases or CASES:
            print(f"counting: {CASES[name][0]}", file=sys.stderr, flush=True)
            found.append(CASES[name][1](counting, name))
    print_table(COLUMNS, [row for measured in found for row in rows_of(measured)], title="calls per message")
    if options.top:
        for measured in found:
            print_top(measured, options.top)
    if options.json:
        options.json.write_text(json.dumps([as_json(measured) for measured in found], indent=1) + "\n")
    return 0
