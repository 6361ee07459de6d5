"""Masters and slaves with real stores, stepped by hand, over transports in memory."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import SteppedRunner
from pocketmq.store.append_result import PutStatus
from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.ha.environment import HaEnvironment
from pocketmq.store.ha.opening import needs_recovery, open_store
from pocketmq.store.ha.proved_transport import ClusterSecret
from pocketmq.store.ha.recover import recover_from_slaves
from pocketmq.store.ha.service import HaService
from pocketmq.store.ha.slave import HaSlave
from pocketmq.store.ha.state import HaState
from pocketmq.store.ha.transport import Transport, TransportError
from pocketmq.store.message_store import MessageStore
from tests.store.ha.transports import MemoryListener, MemoryTransport, pair
from tests.store.log_fakes import HOST, bodies, read_queue, store_config

Spoil = Callable[[bytes], bytes]


class SpoiledTransport(MemoryTransport):
    """A slave's end whose incoming bytes pass through ``spoil`` first."""

    spoil: Spoil | None = None

    def receive_into(self, buffer: memoryview, wait_ms: float) -> int | None:
        count = super().receive_into(buffer, wait_ms)
        if count and self.spoil is not None:
            buffer[:count] = self.spoil(bytes(buffer[:count]))
        return count


class PumpedTransport(MemoryTransport):
    """A master's end that lets the others work while it waits."""

    pump: Callable[[float], None]

    def receive_into(self, buffer: memoryview, wait_ms: float) -> int | None:
        count = super().receive_into(buffer, wait_ms)
        if count is None and wait_ms:
            self.pump(wait_ms)
            count = super().receive_into(buffer, wait_ms)
        return count


class PumpedListener(MemoryListener):
    """A port whose owner blocks in ``accept``; meanwhile ``pump(wait_ms)`` lets the others work."""

    pump: Callable[[float], None] | None = None

    def accept(self, wait_ms: float) -> Transport | None:
        if self.pump is not None:
            self.pump(wait_ms)
        return super().accept(wait_ms)


class Network:
    """Listeners by address, and connections that a test may cut or spoil."""

    def __init__(self) -> None:
        self.listeners: dict[str, PumpedListener] = {}
        self.transports: list[SpoiledTransport] = []
        self.spoil: Spoil | None = None
        self.window_bytes = 64 << 10

    def connect(self, address: str, timeout_ms: float) -> Transport:
        listener = self.listeners.get(address)
        if listener is None or listener.is_closed:
            raise TransportError("no connection to the master", why=f"{address}: refused")
        master_end, slave_end = pair(f"10.0.0.9:{len(self.transports) + 1000}", self.window_bytes)
        spoiled = SpoiledTransport(slave_end.peer, slave_end.receives, slave_end.sends)
        spoiled.spoil = self.spoil
        if listener.pump is not None:
            master_end = PumpedTransport(master_end.peer, master_end.receives, master_end.sends)
            master_end.pump = listener.pump
        listener.waiting.append(master_end)
        self.transports.append(spoiled)
        return spoiled

    def cut(self) -> None:
        for transport in self.transports:
            transport.cut()
        self.transports.clear()


class Node:
    """One node, which a test may restart any number of times."""

    def __init__(
        self,
        root: Path,
        network: Network,
        clock: ManualClock,
        role: str,
        *,
        files: FileSystem | None = None,
        secret: ClusterSecret | None = None,
        **changes: Any,
    ) -> None:
        self.root = root
        self.network = network
        self.clock = clock
        self.role = role
        self.files: FileSystem = files or OsFileSystem()
        self.secret = secret
        self.changes = changes
        self.name = root.name
        self.master = ""
        self.log = CapturedLog()
        self.reopens = 0
        self.boot = "boot1"
        self.others: tuple[Node, ...] = ()
        """The nodes that work while this node's start waits for slaves."""
        self.pump: Callable[[float], None] = self.let_others_work
        self.recovered_bytes = -1
        self.random = random.Random(root.name)
        self.statuses: list[PutStatus] = []
        self.open()

    def open(self) -> None:
        config = store_config(self.root, broker_role=self.role, **{"sync_on_close": False, **self.changes})
        self.runner = SteppedRunner()
        self.state = HaState(self.files, StorePaths(str(self.root)), self.clock, self.random.randbytes)
        self.state.load()
        self.store = MessageStore(config, file_system=self.files, clock=self.clock, runner=self.runner, log=self.log)
        self.store.store_host = HOST
        self.state.present_boot_id = self.boot
        self.environment = HaEnvironment(
            self.store, self.state, "C", "b", self.clock, self.runner, self.log, self.secret
        )
        self.report = open_store(self.store, self.state, self.log)
        try:
            self._start()
        except BaseException:
            self.store.close()
            raise

    def _recover_bytes(self) -> int:
        listener = PumpedListener()
        listener.pump = self.pump
        self.network.listeners[self.name] = listener
        return recover_from_slaves(self.environment, "", 0, lambda bind_address, port: listener)

    def let_others_work(self, wait_ms: float) -> None:
        drive(*self.others, rounds=1)
        self.clock.advance_ms(wait_ms)

    def _start(self) -> None:
        self.service: HaService | None = None
        self.slave: HaSlave | None = None
        if self.role == "SLAVE":
            self.slave = HaSlave(
                self.environment,
                lambda: self.master,
                broker_id=1,
                on_reopen=self._wants_reopen,
                connect=self.network.connect,
            )
            self.slave.start()
        else:
            if needs_recovery(self.state, self.store.config, self.report):
                self.recovered_bytes = self._recover_bytes()
            self.service = HaService(self.environment)
            listener = PumpedListener()
            self.service.open_port("", 0, lambda bind_address, port: listener)
            self.network.listeners[self.name] = listener
            self.service.start()

    def _wants_reopen(self) -> None:
        self.reopens += 1

    def close(self) -> None:
        if self.slave is not None:
            self.slave.stop()
        if self.service is not None:
            self.service.stop()
        self.store.close()
        if self.service is not None:
            self.state.mark_clean()

    def restart(self, role: str | None = None) -> None:
        self.close()
        self.role = role or self.role
        self.open()

    def kill(self) -> None:
        """Die as by ``kill -9``: the page cache survives, no file is closed."""
        survivor = self.root.with_name(self.root.name + ".killed")
        shutil.copytree(self.root, survivor)
        self.close()
        shutil.rmtree(self.root)
        survivor.rename(self.root)

    def remember_disk(self) -> None:
        """Take the present disk for a later ``lose_power``, except for ha.json, which is always durable."""
        shutil.rmtree(self._durable, ignore_errors=True)
        shutil.copytree(self.root, self._durable)

    def lose_power(self) -> None:
        """Die and lose everything written since ``remember_disk``; the machine reboots."""
        state = (self.root / "pocketmq" / "ha.json").read_bytes()
        self.close()
        shutil.rmtree(self.root)
        shutil.copytree(self._durable, self.root)
        (self.root / "pocketmq" / "ha.json").write_bytes(state)
        self.boot += "+"

    @property
    def _durable(self) -> Path:
        return self.root.with_name(self.root.name + ".durable")

    def send(self, *texts: bytes) -> int:
        """Append one group and acknowledge it; ``statuses`` gets its status."""
        result = self.store.append(bodies(*texts))
        assert result.status.is_stored, result
        self.store.acknowledge(result.end_offset, True, self.statuses.append)
        return result.end_offset

    @property
    def end(self) -> int:
        return self.store.log.committed_offset

    def bytes(self) -> NDArray[np.uint8]:
        log = self.store.log
        return log.read(log.min_offset, log.committed_offset - log.min_offset)

    def events(self, name: str) -> list[dict[str, object]]:
        return self.log.of(name)


def drive(*nodes: Node, rounds: int = 12) -> None:
    """Let the workers of every node take ``rounds`` steps, except for the checkpoint, which syncs the whole disk."""
    for _ in range(rounds):
        for node in nodes:
            for worker in list(node.runner.workers):
                if worker.name != "checkpoint" and not worker.stopped:
                    worker.woken = False
                    worker.step()


def drive_replication(*nodes: Node, rounds: int = 12) -> None:
    """As ``drive``, but only the workers of replication: no flush, no checkpoint."""
    for _ in range(rounds):
        for node in nodes:
            for worker in list(node.runner.workers):
                if worker.name.startswith(("ha-", "group-transfer")) and not worker.stopped:
                    worker.step()


def is_prefix(slave: Node, master: Node) -> bool:
    """Return whether the slave's log is a prefix of the master's."""
    log, end = master.store.log, slave.end
    start = max(log.min_offset, slave.store.log.min_offset)
    return end <= master.end and bool(
        np.array_equal(slave.store.log.read(start, end - start), log.read(start, end - start))
    )


def texts_of(node: Node, topic: str = "T") -> list[bytes]:
    """Return the bodies that a consumer of queue 0 gets."""
    return [record.body for record in read_queue(node.store, topic)]


def follow(master: Node, *slaves: Node) -> None:
    for slave in slaves:
        slave.master = master.name
