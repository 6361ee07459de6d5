"""A worker for a process supervisor, a container or systemd: it ends cleanly when it gets SIGTERM.

    pocketmq worker orders_worker:consumer --stop-timeout 20s

It works through jobs that take a while. SIGTERM lets the running ones end and commits; what had not begun goes to the
next worker.
"""

import asyncio
import json
import os
from pathlib import Path

from pocketmq.client import PushConsumer

NAMESRV = os.environ.get("POCKETMQ_NAMESRV", "127.0.0.1:9876")
PLACE = Path(os.environ.get("SHOP_DIRECTORY", "."))

consumer = PushConsumer("shop-packing", NAMESRV, start="earliest", rebalance_interval_ms=1_000, concurrency=1)


@consumer.subscribe("ShopParcels")
async def pack(job: dict[str, str]) -> None:
    """Pack a parcel: write a line when it begins, wait until it is closed, write another line."""
    _log({"begun": job["parcel"], "pid": os.getpid()})
    while not (PLACE / f"{job['parcel']}.closed").exists():  # noqa: ASYNC110 - the work of this example
        await asyncio.sleep(0.01)
    _log({"done": job["parcel"], "pid": os.getpid()})


def _log(line: dict[str, object]) -> None:
    with (PLACE / "packed.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
