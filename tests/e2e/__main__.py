"""``make partitions``: rounds of faults on replicated groups of real processes, many of them.

``python -m tests.e2e [--rounds N] [--seed S] [--faults a,b] [--links network|proxy|both] [--copies 2|3] [--pool]``.
Lives of a few rounds each, every third one with proxies instead of network namespaces, all of them where those are not
permitted. POCKETMQ_SEED is printed; a life that fails leaves its directory, and the run goes on.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Final

from tests.e2e.network import why_not
from tests.e2e.rounds import Tally, a_life, faults_of
from tests.sim.seeds import fresh_seed

ROUNDS_OF_LIFE: Final = 6
ROUND_S_MAX: Final = 120.0


async def one_life(seed: int, faults: list[str], tally: Tally, *, network: bool, copies: int, pool: bool) -> None:
    """Live through ``faults``, one per round."""
    directory = Path(tempfile.mkdtemp(prefix="pocketmq-e2e-"))
    async with a_life(seed, directory, tally, network=network, copies=copies, pool=pool) as life:
        for fault in faults:
            begin = time.monotonic()
            try:
                async with asyncio.timeout(ROUND_S_MAX):
                    await life.round(fault)
            except BaseException as error:
                error.add_note(f"in round {fault} of {faults}")
                raise
            print(f"  {fault:<24} {time.monotonic() - begin:5.1f} s  {len(life.load.sent):>7,} answered", flush=True)


def main() -> int:
    """Run the rounds, and print the faults and results; return 1 if anything failed."""
    parser = argparse.ArgumentParser("python -m tests.e2e", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--faults", default="", help="comma separated; default all that the links allow")
    parser.add_argument("--links", choices=["network", "proxy", "both"], default="both")
    parser.add_argument("--copies", type=int, choices=[2, 3], default=None, help="default: 2, sometimes 3")
    parser.add_argument("--pool", action="store_true", help="masters with write buffers that survive the process")
    arguments = parser.parse_args()
    seed = fresh_seed() if arguments.seed is None else arguments.seed
    why = why_not()
    if why:
        print(f"all lives with proxies: {why}")
    rng = random.Random(seed)
    print(f"POCKETMQ_SEED={seed}", flush=True)
    tally, lives, failed = Tally(), 0, 0
    left = arguments.rounds
    while left > 0:
        network = not why and (arguments.links == "network" or (arguments.links == "both" and lives % 3 != 2))
        copies = (arguments.copies or (3 if rng.random() < 0.25 else 2)) if network else 2
        known = faults_of(network=network)
        chosen = [name for name in arguments.faults.split(",") if name in known] or known
        faults = [rng.choice(chosen) for _ in range(min(left, ROUNDS_OF_LIFE))]
        left -= len(faults)
        life_seed = seed + lives
        lives += 1
        print(f"life {life_seed}: {copies} copies, {'network' if network else 'proxies'}", flush=True)
        try:
            asyncio.run(one_life(life_seed, faults, tally, network=network, copies=copies, pool=arguments.pool))
        except Exception:
            failed += 1
            print(f"FAILED, POCKETMQ_SEED={seed}\n{traceback.format_exc()}", flush=True)
    print(f"\nPOCKETMQ_SEED={seed}: {lives} lives, {failed} failed\n{tally}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
