"""``python -m tests.cluster_sim --seed 1 --runs 100``: simulate clusters, one for each seed.

A failure prints the seed, the reason and the command that repeats it. ``--trace`` prints what happens. The order of
texts in sets must not depend on the process: it starts itself again with ``PYTHONHASHSEED=0``.
"""

import argparse
import json
import os
import pickle
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster_sim.planted import BUGS
from tests.cluster_sim.run import Result, run_seed


def main() -> int:
    """Run the seeds; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster_sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first one; 0: from the clock")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--acknowledged", type=int, default=1000, help="at least so many in each run")
    parser.add_argument("--faults", type=int, default=6, help="in each run")
    parser.add_argument("--bug", default="", help="plant one of the bugs of planted.py")
    parser.add_argument("--planted", action="store_true", help="print in how many runs each planted bug is found")
    parser.add_argument("--sum", type=Path, help="print the row of a file of --record in docs/durability.md")
    parser.add_argument("--minutes", type=float, default=0.0, help="end after this time, whatever --runs says")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--record", type=Path, help="append a line of JSON for each run")
    arguments = parser.parse_args()
    if arguments.sum:
        print(row_of(arguments.sum))
        return 0
    if arguments.planted:
        return planted(arguments.seed, arguments.runs, arguments.acknowledged, arguments.faults)
    first = arguments.seed or time.time_ns() // 1_000_000 % 1_000_000_000
    total: Counter[str] = Counter()
    failed: list[int] = []
    begun = time.monotonic()
    for seed in range(first, first + arguments.runs):
        result = in_child(
            run_seed,
            seed,
            acknowledged=arguments.acknowledged,
            faults=arguments.faults,
            bug=arguments.bug,
            trace=arguments.trace,
        )
        total.update(result.counts)
        total["runs"] += 1
        if arguments.record is not None:
            with arguments.record.open("a") as file:
                line = {"seed": seed, "trace": result.trace, "failure": result.failure, "seconds": result.seconds}
                line |= result.counts
                file.write(json.dumps(line) + "\n")
        if result.failure:
            failed.append(seed)
            bug = f" --bug {arguments.bug}" if arguments.bug else ""
            options = f" --acknowledged {arguments.acknowledged} --faults {arguments.faults}{bug}"
            print(f"seed {seed} fails: {result.failure}")
            print(f"repeat it: python -m tests.cluster_sim --seed {seed} --runs 1{options} --trace", flush=True)
            if not arguments.keep_going:
                break
        if arguments.minutes and time.monotonic() - begun > arguments.minutes * 60:
            break
    seconds = time.monotonic() - begun
    print(
        f"{total['runs']} runs from seed {first}, {len(failed)} failed {failed}; {seconds:.0f} s, "
        f"{total['acknowledged'] / seconds:.0f} acknowledged/s"
    )
    print(json.dumps(dict(sorted(total.items()))))
    return 1 if failed else 0


def row_of(path: Path) -> str:
    """Return seeds, runs, those that count, operations, faults, failures and operations a second of a record."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    counted = [each for each in lines if each["acknowledged"] >= 1000 and each["faults"] >= 5 and each.get("slaves")]
    acknowledged, faults = (sum(each[name] for each in lines) for name in ("acknowledged", "faults"))
    failures = sum(bool(each["failure"]) for each in lines)
    rate = acknowledged / max(0.001, sum(each.get("seconds", 0) for each in lines))
    seeds = f"{lines[0]['seed']} to {lines[-1]['seed']}"
    return f"| {seeds} | {len(lines)} | {len(counted)} | {acknowledged} | {faults} | {failures} | {rate:.0f} |"


def planted(first: int, runs: int, acknowledged: int, faults: int) -> int:
    """Print a row of the table in docs/durability.md for each planted bug; return 1 if one is not found, or its seed
    fails without it, too."""
    code = 0
    for bug in BUGS:
        row = f"| {bug} | not found | {runs} |"
        for seed in range(first, first + runs):
            result = in_child(run_seed, seed, acknowledged=acknowledged, faults=faults, bug=bug)
            if result.failure:
                row = f"| {bug} | {result.failure[:100]} | {seed - first + 1} |"
                sound = in_child(run_seed, seed, acknowledged=acknowledged, faults=faults)
                if sound.failure:
                    code, row = 1, f"| {bug} | the seed {seed} fails without it: {sound.failure[:100]} | |"
                break
        else:
            code = 1
        print(row, flush=True)
    return code


def in_child(call: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
    """Return the result of a call in a copy of this process, which leaves no memory behind."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            result = call(*arguments, **named)
            with open(writer, "wb") as pipe:
                pickle.dump(result, pipe)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    with open(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    if not data:
        raise SystemExit(f"the run {arguments} ended without a result")
    result = pickle.loads(data)
    assert isinstance(result, Result)
    return result


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.cluster_sim", *sys.argv[1:]])
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.exit(130)
