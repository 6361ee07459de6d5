"""A replicated group of real daemons: a name server and brokers of one name, on hosts or behind proxies of a test.

Lives here: ``Node`` (one broker process over its lives), ``Group`` (all of them, and questions to them).
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from pocketmq.client import ClientInstance, ClientOptions
from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.ha_admin import HaAdmin
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.protocol.ha import HaStatusBody

BROKER_NAME: Final = "broker-a"
BROKER_PORT: Final = 10911
SEGMENT_BYTES: Final = 1 << 20
START_S_MAX: Final = 60.0
WAIT_S_MAX: Final = 60.0
POLL_S: Final = 0.03
POOL: Final = "store.transient_store_pool"
"""Begins the settings of write buffers, which a slave must not have."""
SETTINGS: Final[Mapping[str, object]] = {
    "store.mapped_file_size_commit_log": SEGMENT_BYTES,
    "store.mapped_file_size_consume_queue": 20 * 2000,
    "store.max_hash_slot_num": 1000,
    "store.max_index_num": 50_000,
    "store.sync_on_close": "false",
    "store.slave_timeout": 500,
    "store.ha_send_heartbeat_interval": 100,
    "store.ha_housekeeping_interval": 1000,
    "store.ha_recover_wait_ms": 5000,
    "broker.broker_name": BROKER_NAME,
    "broker.register_name_server_period": 300,
    "broker.register_broker_timeout_mills": 500,
    "broker.slave_sync_interval": 100,
    "broker.transaction_time_out": 1500,
    "broker.transaction_check_interval": 700,
    "metrics.listen_port": 0,
    "log.format": "json",
}
"""Small files, so that a round crosses many of their borders; short times, so that faults are noticed in a round."""


def free_ports(count: int) -> int:
    """Return the first of ``count`` adjacent free ports of the loopback address."""
    for first in range(23_000 + os.getpid() % 500 * 20, 60_000, count):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")


@dataclass(slots=True)
class Node:
    """One broker. Directory, address and log stay over ``kill``, ``wipe`` and ``start``."""

    name: str
    directory: Path
    namesrv: str
    ip: str
    port: int
    ha_port: int
    prefix: Sequence[str] = ()
    settings: dict[str, object] = field(default_factory=dict)
    role: str = "SLAVE"
    broker_id: int = 1
    process: asyncio.subprocess.Process | None = None
    starting: list[asyncio.subprocess.Process] = field(default_factory=list)
    """The process that does not serve yet."""
    is_frozen: bool = False

    @property
    def address(self) -> str:
        """Return the address for clients."""
        return f"{self.ip}:{self.port}"

    @property
    def store(self) -> Path:
        """Return its store's directory."""
        return self.directory / "store"

    @property
    def lives(self) -> bool:
        """Return whether it runs, frozen or not."""
        return self.process is not None

    async def start(self) -> None:
        """Start it on its directory, and return when it serves."""
        assert self.process is None
        self.directory.mkdir(parents=True, exist_ok=True)
        values = {
            **SETTINGS,
            "log.file": self.directory / "broker.log",
            "store.broker_role": self.role,
            "store.ha_listen_port": self.ha_port,
            "broker.broker_id": self.broker_id,
            **self.settings,
        }
        if self.role == "SLAVE":
            values = {key: value for key, value in values.items() if not key.startswith(POOL)}
        arguments = ["broker", "--namesrv", self.namesrv, "--data-dir", str(self.store), "--host", self.ip]
        arguments += ["--broker-port", str(self.port)]
        values.setdefault("broker.vip_channel", "OFF")  # two below: it would be the port of the node before this one
        arguments += [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        try:
            errors = self.directory / "stderr.txt"
            self.process = await start_daemon(self.prefix, arguments, errors, self.starting.append)
        finally:
            self.starting.clear()
        self.is_frozen = False

    async def kill(self) -> None:
        """``kill -9``; does nothing if it does not run."""
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def kill_start(self) -> None:
        """``kill -9`` while it starts, if it has not served yet."""
        for process in self.starting:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def terminate(self) -> None:
        """Stop it cleanly (SIGTERM), and return when it has ended."""
        process, self.process = self.process, None
        assert process is not None
        process.terminate()
        code = await process.wait()
        assert code == 0, f"{self.name} ended with {code} at SIGTERM: {_tail(self.directory / 'stderr.txt')}"

    def freeze(self) -> None:
        """Stop the process (SIGSTOP), and return when it stands still; its connections stay open."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT | os.WEXITED)
        self.is_frozen = True

    def thaw(self) -> None:
        """Let the process run again."""
        if self.process is not None and self.is_frozen:
            self.process.send_signal(signal.SIGCONT)
        self.is_frozen = False

    def wipe(self) -> None:
        """Delete its disk."""
        assert self.process is None
        shutil.rmtree(self.store, ignore_errors=True)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the lines of its log of one event, oldest first."""
        found: list[dict[str, Any]] = []
        path = self.directory / "broker.log"
        for line in path.read_text("utf-8", "replace").splitlines() if path.exists() else ():
            with contextlib.suppress(json.JSONDecodeError):
                values = json.loads(line)
                if values.get("event") == name:
                    found.append(values)
        return found


async def start_daemon(
    prefix: Sequence[str],
    arguments: Sequence[str],
    errors: Path,
    begun: Callable[[asyncio.subprocess.Process], object] = lambda process: None,
) -> asyncio.subprocess.Process:
    """Start ``pocketmq`` with these words and return when it reports that it serves; ``begun`` gets it before that."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POCKETMQ_")}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    environment["POCKETMQ_AUTH__OPEN"] = "true"  # hosts of its own network namespaces reach each other
    with errors.open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(
            *prefix,
            sys.executable,
            *("-m", "pocketmq.cli.main"),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )
    begun(process)
    assert process.stdout is not None
    line = ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_S_MAX):
            line = (await process.stdout.readline()).decode()
    if not line.startswith("ready "):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise AssertionError(f"{arguments[0]} did not start: {line!r} {_tail(errors)}")
    return process


def _tail(path: Path) -> str:
    return path.read_text("utf-8", "replace")[-3000:]


class Group:
    """A name server and brokers of one name; a context manager that leaves no process, and keeps the directory."""

    def __init__(self, directory: Path, name_server_ip: str, name_server_port: int) -> None:
        self.directory = directory
        self.namesrv = f"{name_server_ip}:{name_server_port}"
        self.nodes: dict[str, Node] = {}
        self._name_server: asyncio.subprocess.Process | None = None
        self._admin: Admin | None = None
        self.ha: HaAdmin

    def add(self, name: str, ip: str, port: int, ha_port: int, prefix: Sequence[str], **settings: object) -> Node:
        """Add a broker that does not run yet."""
        node = Node(name, self.directory / name, self.namesrv, ip, port, ha_port, prefix, dict(settings))
        self.nodes[name] = node
        return node

    async def __aenter__(self) -> Self:
        ip, _, port = self.namesrv.rpartition(":")
        words = ["namesrv", "--host", ip, "--namesrv-port", port, "--log-level", "warning"]
        words += ["--set", f"namesrv.epoch_store_dir={self.directory / 'namesrv'}"]
        self._name_server = await start_daemon((), words, self.directory / "namesrv.txt")
        options = ClientOptions(api_timeout_ms=1000, connect_timeout_ms=1000)
        self._admin = Admin(instance=ClientInstance(self.namesrv, options=options))
        await self._admin.start()
        self.ha = HaAdmin(self._admin)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            await node.kill()
        if self._admin is not None:
            await self._admin.stop()
        if self._name_server is not None:
            self._name_server.kill()
            await self._name_server.wait()

    async def status(self, node: Node) -> HaStatusBody | None:
        """Return a node's own status; None when it does not answer."""
        try:
            return await self.ha.status(node.address)
        except (PocketMQError, TimeoutError):
            return None

    async def wait_for(self, node: Node, is_there: Callable[[HaStatusBody], bool], what: str) -> HaStatusBody:
        """Poll a node until ``is_there(status)``."""
        last: HaStatusBody | None = None
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                while True:
                    last = await self.status(node) or last
                    if last is not None and is_there(last):
                        return last
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError(f"{node.name} at {node.address}: {what} did not happen; last: {last}") from None

    async def command(self, *words: str) -> dict[str, Any]:
        """Run ``pocketmq ha WORDS``; return its JSON, if any. Raises ``CommandError`` with the command's output."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pocketmq.cli.main", "ha", *words, "--namesrv", self.namesrv),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                out, said = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise CommandError(f"pocketmq ha {' '.join(words)}: {said.decode().strip()[-1500:]}")
        text = out.decode()
        found: dict[str, Any] = json.loads(text) if text.startswith("{") else {}
        return found


class CommandError(AssertionError):
    """An operator's command was refused or failed."""
