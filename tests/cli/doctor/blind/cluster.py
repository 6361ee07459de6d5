"""The cluster of a blind round: a name server, a synchronous pair and a second master on hosts of their own.

Lives here: ``Cluster``: its nodes and images of file systems, its clients, and one look of ``pocketmq doctor``.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pocketmq.client import ClientInstance, ClientOptions
from pocketmq.client.admin.admin import Admin
from tests.cli.doctor.blind_table import Node as Name
from tests.e2e.network import HUB, Network
from tests.e2e.nodes import BROKER_PORT, Group, Node

IMAGE_BYTES: Final = 192 << 20
LOOK_S_MAX: Final = 12.0
PAIR_TOPIC: Final = "Pair"
SECOND_TOPIC: Final = "Second"
SETTINGS: Final[Mapping[str, object]] = {
    "store.mapped_file_size_commit_log": 16 << 20,
    "store.slave_timeout": 3000,
    "store.ha_send_heartbeat_interval": 5000,
    "store.ha_housekeeping_interval": 20_000,
    "store.ha_recover_wait_ms": 10_000,
    "broker.register_name_server_period": 30_000,
    "broker.register_broker_timeout_mills": 6000,
    "broker.slave_sync_interval": 1000,
}
"""The product's defaults in place of the partition rounds' short times; small segments."""


class Cluster:
    """One round's processes; a context manager that ends all of them, and heals what was broken."""

    def __init__(self, directory: Path, settings: Mapping[str, Mapping[str, object]], images: set[Name]) -> None:
        self.directory = directory
        self._settings = settings
        self._images = images
        self._stack = contextlib.AsyncExitStack()
        self._frozen: set[Name] = set()
        self.mounts: dict[Name, Path] = {}
        self.network = Network("master", "slave", "second")
        self.nodes: dict[Name, Node] = {}
        self.group: Group

    async def __aenter__(self) -> "Cluster":
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        for name in list(self._frozen):
            self.thaw(name)
        await self._stack.aclose()

    async def _start(self) -> None:
        self._stack.enter_context(self.network)
        for name in sorted(self._images):
            self._mount(name)
        self.group = Group(self.directory, self.network[HUB].address, 9876)
        self._stack.callback(self._thaw_all)
        for name, extra in (("master", _MASTER), ("slave", _SLAVE), ("second", _SECOND)):
            host = self.network[name]
            values = {**SETTINGS, **extra, **self._settings.get(name, {})}
            node = self.group.add(name, host.address, BROKER_PORT, BROKER_PORT + 1, host.prefix, **values)
            node.role, node.broker_id = _ROLES[name]
            self.nodes[name] = node
        await self._stack.enter_async_context(self.group)
        await asyncio.gather(*(node.start() for node in self.nodes.values()))
        await self.group.wait_for(self.nodes["master"], lambda each: any(s.is_in_sync for s in each.slaves), "in sync")
        admin = Admin(instance=ClientInstance(self.group.namesrv, options=ClientOptions(api_timeout_ms=3000)))
        await admin.start()
        try:
            await admin.create_topic(PAIR_TOPIC, queues=4, broker="broker-a")
            await admin.create_topic(SECOND_TOPIC, queues=4, broker="broker-b")
        finally:
            await admin.stop()

    def _mount(self, name: Name) -> None:
        image, place = self.directory / f"{name}.img", self.directory / name / "store"
        place.mkdir(parents=True)
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-m", "0", str(image))
        _run("mount", "-o", "loop", str(image), str(place))
        self._stack.callback(self._unmount, place, image)
        self.mounts[name] = place

    def _unmount(self, place: Path, image: Path) -> None:
        subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)
        image.unlink(missing_ok=True)

    def freeze(self, name: Name) -> None:
        """Let no write to a node's file system end until ``thaw``."""
        self._frozen.add(name)
        _run("fsfreeze", "-f", str(self.mounts[name]))

    def thaw(self, name: Name) -> None:
        """Let writes through."""
        if name in self._frozen:
            self._frozen.discard(name)
            _run("fsfreeze", "-u", str(self.mounts[name]))

    def _thaw_all(self) -> None:
        for name in list(self._frozen):
            self.thaw(name)

    async def client(self, kind: str, address: str, *words: str, line: bool = False) -> asyncio.subprocess.Process:
        """Start a client process, which ends with the round; ``line``: return when it has printed one."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.cli.doctor.blind.clients", kind, address, *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=(self.directory / "clients.txt").open("ab"),
            env=_environment(),
        )
        self._stack.push_async_callback(_end, process)
        if line:
            assert process.stdout is not None
            async with asyncio.timeout(15):
                assert await process.stdout.readline(), f"the client {kind} ended"
        return process

    async def look(self, words: list[str]) -> tuple[dict[str, Any], int, float]:
        """Ask the doctor once; return its report, its exit code and its seconds."""
        begin = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pocketmq.cli.main", "doctor", "--json", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(),
        )
        try:
            async with asyncio.timeout(LOOK_S_MAX):
                out, said = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        text = out.decode()
        report = json.loads(text) if text.startswith("{") else {"text": said.decode()[-500:]}
        return report, process.returncode or 0, time.monotonic() - begin

    def by_address(self) -> dict[str, Name]:
        """Return the names of the nodes by their addresses."""
        return {node.address: name for name, node in self.nodes.items()}


_ROLES: Final = {"master": ("SYNC_MASTER", 0), "slave": ("SLAVE", 1), "second": ("ASYNC_MASTER", 0)}
_MASTER: Final[Mapping[str, object]] = {"store.total_replicas": 2}
_SLAVE: Final[Mapping[str, object]] = {"store.total_replicas": 2}
_SECOND: Final[Mapping[str, object]] = {"broker.broker_name": "broker-b"}


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def _environment() -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if not name.startswith("POCKETMQ_")}
    found["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    found["POCKETMQ_AUTH__OPEN"] = "true"  # hosts of namespaces, beyond loopback
    return found


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)
