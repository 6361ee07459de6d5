"""Speed side by side: ``python -m bench`` (``make bench``, ``make bench-quick``).

Without names: the comparison of PocketMQ with its peers; ``--quick`` in less than five minutes. Names are cases of the
comparison, or PocketMQ's own cases (``bench.own``). Results are printed as they come
and kept as JSON lines under ``bench-results/``, with a report in Markdown and its plots beside them. ``--report FILE``
writes the report of a result file again; ``--publish DIR`` copies the lines, the report and its plots there.
``calls`` and ``lean`` are commands of their own: see ``python -m bench calls --help``.
"""

import argparse
import importlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.base.conditions import environment
from bench.base.results import ResultFile, read_lines
from bench.cases import CASES
from bench.comparison.case import FULL, QUICK
from bench.comparison.suite import Suite
from bench.own import CASES as OWN_CASES
from bench.peers import BY_NAME as PEERS_BY_NAME
from bench.peers import PEERS
from bench.report.report import Report

COMMANDS = {
    "calls": ("bench.calls.command", "Python and C calls per message, which do not depend on the machine"),
    "lean": ("bench.lean.command", "single messages beside the peers, pinned to cores, with the goals"),
}
"""Name → module with ``main(arguments)``, and what it measures."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    lines = ["cases of the comparison:"]
    lines += [f"  {case.name:<15}{case.title}" for case in CASES]
    lines += ["peers:", *(f"  {peer.name:<17}{peer.label}" for peer in PEERS)]
    lines += ["PocketMQ's own cases:", *(f"  {name:<15}{text}" for name, (_, text) in OWN_CASES.items())]
    made = argparse.ArgumentParser(
        "bench", description=__doc__, epilog="\n".join(lines), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*(case.name for case in CASES), *OWN_CASES]
    made.add_argument("cases", nargs="*", metavar="CASE", choices=[[], *names], help="what to run")
    made.add_argument("--quick", action="store_true", help="fewer and shorter rounds: less than five minutes")
    made.add_argument("--peers", metavar="NAME,…", default="", help="only these peers")
    made.add_argument("--without", metavar="NAME,…", default="", help="all but these peers")
    made.add_argument("--repeats", type=int, default=0, metavar="N", help="rounds of each variant")
    made.add_argument("--report", type=Path, metavar="FILE", help="only write the report of this result file")
    made.add_argument("--publish", type=Path, metavar="DIR", help="copy lines, report and plots of the run there")
    return made


def chosen_peers(only: str, without: str) -> list[str]:
    """Return the names of the peers that take part. Raises ``ValueError`` for a name that is none."""
    wanted = [name for name in only.split(",") if name] or list(PEERS_BY_NAME)
    left_out = [name for name in without.split(",") if name]
    unknown = [name for name in [*wanted, *left_out] if name not in PEERS_BY_NAME]
    if unknown:
        raise ValueError(f"no such peer: {', '.join(unknown)}; there are {', '.join(PEERS_BY_NAME)}")
    return [name for name in wanted if name not in left_out]


def compare(names: Sequence[str], options: argparse.Namespace, results: ResultFile) -> None:
    """Run cases of the comparison."""
    scale = QUICK if options.quick else FULL
    if options.repeats:
        scale = replace(scale, repeats=options.repeats)
    peers = [PEERS_BY_NAME[name] for name in chosen_peers(options.peers, options.without)]
    Suite(scale, [case for case in CASES if not names or case.name in names], peers, results).run()


def run_own(names: Sequence[str], results: ResultFile) -> None:
    """Run PocketMQ's own cases; their rows join the same file."""
    if names and not results.lines:
        results.write("environment", **environment())
    for name in names:
        print(f"\n{name}: {OWN_CASES[name][1]}", file=sys.stderr)
        rows: Iterable[dict[str, object]] = importlib.import_module(f"bench.own.{OWN_CASES[name][0]}").run()
        for row in rows:
            print("  " + "  ".join(f"{key}={value}" for key, value in row.items()), flush=True)
            results.write("row", bench=name, figures=row)


def write_report(path: Path) -> Path:
    """Write the report and the plots of a result file beside it; return the report's path."""
    report = path.with_suffix(".md")
    report.write_text(Report(read_lines(path)).text(path.stem, path.parent))
    return report


def publish(path: Path, directory: Path) -> None:
    """Copy a run's lines, report and plots."""
    directory.mkdir(parents=True, exist_ok=True)
    for file in path.parent.glob(f"{path.stem}*"):
        shutil.copy(file, directory / file.name)


def _terminated(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Run what is asked for."""
    signal.signal(signal.SIGTERM, _terminated)  # remove servers and data in any case
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        status: int = importlib.import_module(COMMANDS[sys.argv[1]][0]).main(sys.argv[2:])
        return status
    made = parser()
    options = made.parse_args()
    if options.report:
        print(write_report(options.report))
        if options.publish:
            publish(options.report, options.publish)
        return 0
    try:
        chosen_peers(options.peers, options.without)
    except ValueError as error:
        made.error(str(error))
    if options.quick:
        os.environ["BENCH_QUICK"] = "1"  # before the modules of the own cases are imported
    own = [name for name in options.cases if name in OWN_CASES]
    compared = [name for name in options.cases if name not in OWN_CASES]
    path = Path("bench-results") / f"{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    results = ResultFile(path)
    status = 0
    try:
        if compared or not own:
            compare(compared, options, results)
        run_own(own, results)
    except KeyboardInterrupt:
        print("\nstopped; what was measured is kept", file=sys.stderr)
        status = 130
    finally:
        results.close()
    if results.lines:
        print(f"\nkept in {path}, report in {write_report(path)}", file=sys.stderr)
        if options.publish:
            publish(path, options.publish)
    return status


if __name__ == "__main__":
    sys.exit(main())
