"""``make partitions``: rounds of faults on real processes, many of them, in every mode and with every kind of message.

``python -m tests.e2e [--rounds N] [--seed S] [--faults a,b] [--shapes alone,pair,masters] [--kinds plain,staged]
[--links network|proxy|both] [--copies 2|3] [--record FILE]``. Lives of a few rounds each; the modes of
``tests/modes.py`` have their turn. Of the pairs every third has proxies instead of network namespaces, all of them
where those are not permitted. POCKETMQ_SEED is printed; a life that fails leaves its directory, and the run goes on.
"""

import argparse
import asyncio
import json
import random
import sys
import time
import traceback
from pathlib import Path
from typing import Final

from tests.e2e.lives import Plan, one_life
from tests.e2e.masters import MASTER_FAULTS
from tests.e2e.network import why_not
from tests.e2e.rounds import FAULTS, faults_of
from tests.e2e.tally import Tally
from tests.modes import KINDS, SHAPES, Mode, in_turn
from tests.sim.seeds import fresh_seed

ROUNDS_OF_LIFE: Final = 6


def faults_for(mode: Mode, *, network: bool) -> list[str]:
    """Return the faults that a mode knows."""
    return faults_of(network=network) if mode.shape == "pair" else sorted(MASTER_FAULTS)


def main() -> int:
    """Run the rounds, and print the faults and results; return 1 if anything failed."""
    parser = argparse.ArgumentParser("python -m tests.e2e", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=0, help="begin no life after this time")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--faults", default="", help="comma separated; default all that the links allow")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="of the modes, comma separated")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of messages beside plain ones, comma separated")
    parser.add_argument("--links", choices=["network", "proxy", "both"], default="both")
    parser.add_argument("--copies", type=int, choices=[2, 3], default=None, help="default: 2, sometimes 3")
    parser.add_argument("--record", type=Path, help="append a line of JSON for each life")
    arguments = parser.parse_args()
    seed = fresh_seed() if arguments.seed is None else arguments.seed
    shapes = tuple(each for each in SHAPES if each in arguments.shapes.split(","))
    unknown = {*arguments.faults.split(",")} - {"", *FAULTS, *MASTER_FAULTS}
    unknown |= {*arguments.shapes.split(",")} - {*SHAPES} | {*arguments.kinds.split(",")} - {"", *KINDS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    why = why_not()
    if why:
        print(f"all lives with proxies: {why}")
    rng = random.Random(seed)
    modes = in_turn(seed, shapes)
    print(f"POCKETMQ_SEED={seed}", flush=True)
    tally, lives, failed, begun_s = Tally(), 0, 0, time.monotonic()
    left = arguments.rounds
    while left > 0 and not 0 < arguments.minutes * 60 <= time.monotonic() - begun_s:
        mode = modes[lives % len(modes)]
        network = not why and (arguments.links == "network" or (arguments.links == "both" and lives % 3 != 2))
        copies = (arguments.copies or (3 if rng.random() < 0.25 else 2)) if network else 2
        known = faults_for(mode, network=network)
        chosen = [name for name in arguments.faults.split(",") if name in known] or known
        faults = tuple(rng.choice(chosen) for _ in range(min(left, ROUNDS_OF_LIFE)))
        plan = Plan(seed + lives, mode, faults, tuple(arguments.kinds.split(",")), network, copies)
        left -= len(faults)
        lives += 1
        print(plan, flush=True)
        before = (tally.rounds, tally.confirmed, tally.lost)
        error = ""
        try:
            asyncio.run(one_life(plan, tally))
        except Exception as raised:
            failed += 1
            error = f"{type(raised).__name__}: {raised}"
            print(f"FAILED, POCKETMQ_SEED={seed}\n{traceback.format_exc()}", flush=True)
        if arguments.record:
            rounds, confirmed, lost = (
                now - then for now, then in zip((tally.rounds, tally.confirmed, tally.lost), before, strict=True)
            )
            line = {"seed": plan.seed, "mode": str(mode), "copies": copies, "network": network, "faults": faults}
            line |= {"rounds": rounds, "confirmed": confirmed, "lost": lost, "error": error}
            with arguments.record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    print(f"\nPOCKETMQ_SEED={seed}: {lives} lives, {failed} failed\n{tally}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
