"""``make blind-doctor``: real clusters with faults that the doctor does not know, one look at each, and a verdict.

``python -m tests.cli.doctor.blind [--rounds N] [--seed S] [--faults a,b] [--out FILE] [--reports DIR]``. Needs root,
network namespaces and loop devices. Seeds are S, S + 1, …; at most two rounds run at once.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Final

from tests.cli.doctor.blind.verdict import table
from tests.e2e.network import why_not

AT_ONCE: Final = 2


async def one(seed: int, faults: list[str], reports: Path | None) -> dict[str, Any]:
    """Run a round in a process of its own; ``broken`` if the generator failed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.cli.doctor.blind.one_round", str(seed), *faults),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, said = await process.communicate()
    if process.returncode:
        return {"seed": seed, "faults": faults, "broken": said.decode()[-600:]}
    found: dict[str, Any] = json.loads(out)
    report = found.pop("report")
    if reports is not None and found["wrong"]:
        keep(reports, seed, report)
    return found


def keep(reports: Path, seed: int, report: dict[str, Any]) -> None:
    """Write a report for the tuning of rules."""
    reports.mkdir(parents=True, exist_ok=True)
    (reports / f"{seed}.json").write_text(json.dumps(report, indent=1))


async def run(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all rounds, two at once, and print each."""
    gate, done = asyncio.Semaphore(arguments.jobs), []
    names = [name for name in arguments.faults.split(",") if name]

    async def bounded(number: int) -> None:
        async with gate:
            seed = arguments.seed + number
            chosen = [names[number % len(names)]] if names else []
            found = await one(seed, chosen, arguments.reports)
        done.append(found)
        result = found.get("broken") or "; ".join(found["wrong"]) or "right"
        print(f"{len(done):>4} seed {seed:>6}  {'+'.join(found['faults']):<44} {result}", flush=True)
        if arguments.out is not None:
            with arguments.out.open("a") as file:
                file.write(json.dumps(found) + "\n")

    await asyncio.gather(*map(bounded, range(arguments.rounds)))
    return done


def main() -> int:
    """Return 1 if fewer than 95 % of the rounds are right, or a cure is forbidden."""
    parser = argparse.ArgumentParser("python -m tests.cli.doctor.blind", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default="", help="comma separated, in turn; default: one or two by the seed")
    parser.add_argument("--jobs", type=int, default=AT_ONCE)
    parser.add_argument("--out", type=Path, default=None, help="append a line of JSON for each round")
    parser.add_argument("--reports", type=Path, default=None, help="keep reports that are wrong")
    arguments = parser.parse_args()
    if why := why_not():
        print(f"no round: {why}", file=sys.stderr)
        return 2
    done = asyncio.run(run(arguments))
    judged = [found for found in done if "broken" not in found]
    right = sum(not found["wrong"] for found in judged)
    forbidden = sum(any(each.startswith("forbidden") for each in found["wrong"]) for found in judged)
    print("\n".join(table(judged)))
    print(f"{len(judged)} rounds, {right} right, {forbidden} with a forbidden cure, {len(done) - len(judged)} broken")
    return 0 if judged and right >= 0.95 * len(judged) and not forbidden else 1


if __name__ == "__main__":
    sys.exit(main())
