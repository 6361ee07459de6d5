"""Makes the faults of the table in a running cluster, all of them from outside.

Lives here: settings and images that a fault needs before the start, and what happens then.
Where these differ from the table: ``disk-slow`` freezes and thaws the file system in turn, because containers lack a
device mapper; the look at a frozen ordered holder comes after 8 to 12 s, not 30, because a round has at most 30 s;
``pair-cut`` drops all packets between the two hosts, not those of the HA port alone.
"""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
from collections.abc import Mapping
from typing import Final

from tests.cli.doctor.blind.cluster import PAIR_TOPIC, SECOND_TOPIC, Cluster
from tests.cli.doctor.blind_table import FAULTS, Node
from tests.e2e.nodes import Node as Process

SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "one-request-a-drain": {"broker.send_drain_max": 1},
    "queue-of-ten": {"broker.send_thread_pool_queue_capacity": 10},
    "fast-failure-off": {"broker.broker_fast_failure_enable": "false"},
    "limit-raised": {"store.os_page_cache_busy_timeout_mills": 60_000},
    "pool-of-one": {
        "store.transient_store_pool_enable": "true",
        "store.transient_store_pool_size": 1,
        "store.mapped_file_size_commit_log": 1 << 20,
    },
}
"""Of the second master."""
IMAGES: Final[Mapping[str, Node]] = {
    "slave-read-only": "slave",
    "slave-full": "slave",
    "master-full": "second",
    "master-read-only": "second",
    "disk-frozen": "second",
    "disk-slow": "second",
}
FLOODS: Final = {
    "one-request-a-drain": ("500", "1024"),
    "queue-of-ten": ("500", "1024"),
    "pool-of-one": ("16", "65536"),
}
ON_PAIR: Final = frozenset(
    [
        *("slave-frozen", "slave-killed", "master-frozen", "master-killed", "pair-cut", "slave-network-gone"),
        *("slave-read-only", "slave-full"),
    ]
)
DELAY_S: Final = 0.3
LOOK_AFTER_S: Final = {
    "disk-frozen": (3.0, 6.0),
    "ordered-holder-frozen": (8.0, 12.0),
    "disk-slow": (6.0, 9.0),
    "master-full": (11.0, 13.0),
}
"""A broker measures its file system every 10 s, as RocketMQ; until then it takes sends on a full one, too."""
USUALLY_S: Final = (4.0, 8.0)


def choose(seed: int) -> list[str]:
    """Return the faults of a round: one, or two, of which only one is on the pair."""
    rng = random.Random(seed)
    names = [fault.name for fault in FAULTS]
    first = rng.choice(names)
    if first == "nothing" or rng.random() < 0.75:
        return [first]
    others = [name for name in names if name != "nothing" and (name in ON_PAIR) != (first in ON_PAIR)]
    return [first, rng.choice(others)]


def asks(names: list[str], rng: random.Random) -> str:
    """Return whom the doctor is asked about: a name server forgets a master that was killed."""
    return "brokers" if "second-killed" in names or rng.random() < 0.4 else "namesrv"


class Maker:
    """Makes faults, and keeps those going that take time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._tasks: list[asyncio.Task[None]] = []

    async def make(self, name: str) -> None:
        """Begin a fault; those of settings are there already."""
        cluster = self._cluster
        what = name.rpartition("-")[2]
        if name in ("slave-frozen", "master-frozen"):
            self._node(name).freeze()
        elif name in ("slave-killed", "master-killed", "second-killed"):
            await self._node(name).kill()
        elif name == "pair-cut":
            cluster.network.cut_both("master", "slave")
        elif name == "slave-network-gone":
            cluster.network.isolate("slave")
        elif what == "only":
            await asyncio.to_thread(_make_read_only, str(cluster.mounts[IMAGES[name]]))
        elif what == "full":
            await asyncio.to_thread(_fill, str(cluster.mounts[IMAGES[name]]))
        elif name == "disk-frozen":
            cluster.freeze("second")
        elif name == "disk-slow":
            self._tasks.append(asyncio.create_task(self._pulse()))
        elif name == "ordered-holder-frozen":
            holder = await cluster.client("ordered", cluster.group.namesrv, SECOND_TOPIC, line=True)
            holder.send_signal(signal.SIGSTOP)
            await cluster.client("ordered", cluster.group.namesrv, SECOND_TOPIC)
        elif name == "illegal-heartbeats":
            await cluster.client("strange", cluster.nodes["second"].address)

    def _node(self, fault: str) -> Process:
        return next(node for name, node in self._cluster.nodes.items() if fault.startswith(f"{name}-"))

    async def load(self, names: list[str]) -> None:
        """Start the producers: a steady load everywhere, of which something is stored, and what the faults need."""
        for topic in (PAIR_TOPIC, SECOND_TOPIC):
            await self._cluster.client("steady", self._cluster.group.namesrv, topic, line=True)
        for name in names:
            if name in FLOODS:
                await self._cluster.client("flood", self._cluster.nodes["second"].address, SECOND_TOPIC, *FLOODS[name])

    async def stop(self) -> None:
        """End what is kept going."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _pulse(self) -> None:
        while True:
            await asyncio.to_thread(self._cluster.freeze, "second")
            await asyncio.sleep(DELAY_S)
            await asyncio.to_thread(self._cluster.thaw, "second")
            await asyncio.sleep(0.02)


def _make_read_only(place: str) -> None:
    """Let the kernel remount a file system as after an error of its disk: an operator's remount is refused while a
    file is open for writing.
    """
    device = subprocess.run(["findmnt", "-no", "SOURCE", place], check=True, capture_output=True, text=True)
    name = device.stdout.strip().rpartition("/")[2]
    trigger = f"/sys/fs/ext4/{name}/trigger_fs_error"
    subprocess.run(["mount", "-o", "remount,errors=remount-ro", place], check=True, capture_output=True)
    with open(trigger, "w") as file:
        file.write("blind round")


def _fill(place: str) -> None:
    path = os.path.join(place, "filler")
    with open(path, "wb") as file, contextlib.suppress(OSError):
        while True:
            os.posix_fallocate(file.fileno(), file.seek(0, 2), 1 << 20)
            file.seek(0, 2)
    with open(path + "2", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(65_536))
