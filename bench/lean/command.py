"""``python -m bench lean``: the table of single messages beside the peers, and the goals.

Lives here: the options, the run of each mode of pinning, the tables.
"""

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from bench.base.conditions import environment
from bench.lean.cases import CASES, QUICK, Row, Run, run_cases
from bench.lean.goals import label, verdicts
from bench.lean.lineup import MODES, Lineup, OurServer
from bench.lean.pinning import PINS, choose
from pocketmq.cli.output import print_table

GOALS_PIN: Final = "split"
ROUNDS: Final = {"split": 9, "shared": 5, "none": 5}
SECONDS: Final = 0.4
"""Many short rounds: what else the machine does then hits few of them, and the median is one of the others."""
QUICK_ROUNDS: Final = 3
QUICK_SECONDS: Final = 0.3
OPEN_FILES: Final = 4_096


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser("bench lean", description="Single messages beside the peers, with goals.")
    made.add_argument(
        "cases", nargs="*", metavar="CASE", choices=[[], *CASES], help=f"all, or some of {', '.join(CASES)}"
    )
    pins = "client and servers on a core each (which the goals are about), on one core, or on all; default: all three"
    made.add_argument("--pin", choices=PINS, help=pins)
    made.add_argument("--broker-mode", choices=tuple(MODES), default="default", help="settings of PocketMQ's broker")
    made.add_argument("--quick", action="store_true", help="shorter rounds, no Java client, no 10,000 topics")
    made.add_argument("--rounds", type=int, default=0, metavar="N", help="rounds of every case")
    nice = "priority of all that is measured; -15 keeps other work of the machine off its cores (needs a privilege)"
    made.add_argument("--nice", type=int, default=0, metavar="N", help=nice)
    made.add_argument("--json", type=Path, metavar="FILE", help="write every round there")
    return made


def measure(pin: str, options: argparse.Namespace, directory: Path) -> tuple[list[Row], dict[str, str]]:
    """Run all cases in one mode of pinning; return the rows, and which contenders take no part and why."""
    cores = choose(pin)
    say(f"{pin}: {cores}, load {os.getloadavg()[0]:.1f}")
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS[pin])
    cases = QUICK if options.quick else CASES
    chosen = {name: case for name, case in cases.items() if not options.cases or name in options.cases}
    with Lineup(directory, cores, warm=0.5 if options.quick else 1.0, nice=options.nice) as lineup:
        run = Run(lineup, directory, rounds, QUICK_SECONDS if options.quick else SECONDS)
        rows = run_cases(run, chosen)
        return rows, lineup.missing


def table(rows: dict[str, list[Row]]) -> list[list[object]]:
    """Return a line for each contender of each case: unit, the median of each mode, the span of the first mode."""
    lines: list[list[object]] = []
    first = next(iter(rows.values()))
    for number, row in enumerate(first):
        names = dict.fromkeys(who for of_pin in rows.values() for who in of_pin[number].values)
        for who in names:
            medians = [_rounded(of_pin[number].median(who)) for of_pin in rows.values()]
            values = row.values.get(who)
            span = f"{min(values):,.0f} … {max(values):,.0f}" if values else ""
            lines.append([row.title, label(who), row.unit, *medians, span])
    return lines


def _rounded(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def print_all(rows: dict[str, list[Row]], missing: dict[str, str], mode: str) -> None:
    """Print the medians of all modes, the goals, and what could not be measured."""
    pins = list(rows)
    columns = ("case", "who", "unit", *pins, f"rounds of {pins[0]}")
    print_table(columns, table(rows), title=f"medians, PocketMQ's broker in mode {mode}")
    if GOALS_PIN in rows:
        found = verdicts(rows[GOALS_PIN], mode)
        title = f"goals, clients and servers pinned to a core each, mode {mode}"
        print()
        print_table(("goal", "ratio", "measured", "wanted", "verdict"), found, title=title)
    for name, why in missing.items():
        print(f"without {label(name)}: {why}")
    for pin, of_pin in rows.items():
        for row in of_pin:
            for who, why in row.failed.items():
                print(f"failed: {row.title}, {label(who)}, {pin}: {why}")


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    options = parser().parse_args(arguments)
    OurServer.mode = options.broker_mode
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES if most < 0 else min(OPEN_FILES, most), most))
    rows: dict[str, list[Row]] = {}
    missing: dict[str, str] = {}
    loads = [os.getloadavg()[0]]
    begin = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="bench-data-", dir=".")).resolve()
    try:
        for pin in [options.pin] if options.pin else PINS:
            rows[pin], more = measure(pin, options, directory)
            missing |= more
            loads.append(os.getloadavg()[0])
    except ValueError as error:
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        say("stopped; what was measured follows")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if rows:
        print_all(rows, missing, options.broker_mode)
    print(f"load average {' → '.join(f'{load:.1f}' for load in loads)}; {time.monotonic() - begin:.0f} s")
    if options.json:
        lines = {pin: [asdict(row) for row in of_pin] for pin, of_pin in rows.items()}
        found = {"environment": environment(), "mode": options.broker_mode, "loads": loads, "rows": lines}
        options.json.write_text(json.dumps(found, indent=1, default=str) + "\n")
    return 0


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)
