"""One blind round: from a seed to a verdict, as a line of JSON.

``python -m tests.cli.doctor.blind.one_round SEED [FAULT …]``: its own process, so that namespaces have their own names.
"""

import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.cli.doctor.blind.cluster import Cluster
from tests.cli.doctor.blind.faults import IMAGES, LOOK_AFTER_S, SETTINGS, USUALLY_S, Maker, asks, choose
from tests.cli.doctor.blind.verdict import judge, shown

WARM_S: Final = 2.0
ROUND_S_MAX: Final = 40.0


async def play(seed: int, names: list[str]) -> dict[str, Any]:
    """Make the faults, look once, and judge."""
    rng = random.Random(seed * 7919 + 1)
    second = {key: value for name in names for key, value in SETTINGS.get(name, {}).items()}
    images = {IMAGES[name] for name in names if name in IMAGES}
    directory = Path(tempfile.mkdtemp(prefix="pocketmq-blind-"))
    try:
        async with Cluster(directory, {"second": second}, images) as cluster:
            maker = Maker(cluster)
            try:
                await maker.load(names)
                await asyncio.sleep(WARM_S)
                for name in names:
                    await maker.make(name)
                spans = [LOOK_AFTER_S.get(name, USUALLY_S) for name in names]
                after_s = rng.uniform(low := max(low for low, _ in spans), max(low, *(high for _, high in spans)))
                await asyncio.sleep(after_s)
                whom = asks(names, rng)
                words = ["--namesrv", cluster.group.namesrv]
                if whom == "brokers":
                    words = [word for node in cluster.nodes.values() for word in ("--broker", node.address)]
                report, code, look_s = await cluster.look(words)
            finally:
                await maker.stop()
            nodes = cluster.by_address()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "seed": seed,
        "faults": names,
        "asked": whom,
        "after_s": round(after_s, 1),
        "look_s": round(look_s, 1),
        "code": code,
        "findings": [" ".join(each) for each in shown(report, nodes)],
        "wrong": judge(names, report, code, nodes),
        "report": report,
    }


def main() -> int:
    """Run a round; its line goes to standard output."""
    seed, names = int(sys.argv[1]), sys.argv[2:]
    begin = time.monotonic()

    async def bounded() -> dict[str, Any]:
        async with asyncio.timeout(ROUND_S_MAX):
            return await play(seed, names or choose(seed))

    print(json.dumps({**asyncio.run(bounded()), "round_s": round(time.monotonic() - begin, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
