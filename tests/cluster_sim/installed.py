"""Puts virtual threads, randomness and connections in the place of the real ones, for the time of a run.

Lives here: ``installed``. The product takes clock, runner and file system as arguments; what it takes from modules is
replaced here: the locks of ``threading``, the system's random bytes, the sockets of replication, the file of a name
server's epochs, and the order of objects in sets, which would otherwise be that of their addresses.
"""

import contextlib
import gc
import os
import platform
import posixpath
import random
import secrets
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from pocketmq.broker.lock.fencing_tokens import FencingTokens
from pocketmq.broker.lock.lock_manager import LockManager
from pocketmq.broker.pull.long_polling import Hold
from pocketmq.broker.request.request_task import Task
from pocketmq.broker.send.reply_processor import ReplyProcessor
from pocketmq.broker.staged.staged_log import StagedLog
from pocketmq.client.handlers.handlers import ConcurrentRunner
from pocketmq.client.handlers.worker_pool import PoolQueue
from pocketmq.client.push import push_consumer
from pocketmq.client.sender.section import Section
from pocketmq.common.sealed_json import seal, unseal
from pocketmq.namesrv import epoch_store
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.connection import Connection
from pocketmq.store import components, message_store
from pocketmq.store.errors import StoreError
from pocketmq.store.ha import recover, service, slave
from pocketmq.store.ha.connection import SlaveConnection
from tests.cluster_sim.kernel import Kernel
from tests.cluster_sim.threads import Present, SimCondition, SimLock, SimRLock, SimRunner, strand_number
from tests.cluster_sim.transports import connect_blocking, listen_blocking, present_process
from tests.sim.checkers import SimMemory

ORDERED = (Connection, ClientChannel, SlaveConnection, Task, Hold, Section, ConcurrentRunner, PoolQueue)
"""Classes whose objects are kept in sets."""

LOCKS = ((FencingTokens, "_reserve_lock"), (LockManager, "_mutex"), (StagedLog, "lock"), (ReplyProcessor, "_lock"))
"""Attributes of dataclasses whose locks are made by what ``threading`` had when the class was."""


class SimEpochFile:
    """``namesrv.epoch_store.EpochFile`` on the disk of the present process."""

    def __init__(self, directory: str) -> None:
        self.path = posixpath.join(directory, epoch_store.FILE_NAME)

    def load(self) -> bytes | None:
        files = present_process().files
        if not files.exists(self.path):
            return None
        return unseal(files.read_all(self.path))

    def save(self, content: bytes) -> None:
        try:
            present_process().files.replace(self.path, seal(content))
        except StoreError as error:
            raise OSError(5, str(error)) from error


def _runner(on_crash: Callable[[str, BaseException], None]) -> SimRunner:
    return SimRunner(Present.kernel, present_process(), on_crash)


def with_lock(init: Callable[..., None], name: str) -> Callable[..., None]:
    """Return a constructor that gives the object a lock of the simulation."""

    def make(self: Any, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        setattr(self, name, SimRLock())

    return make


@contextlib.contextmanager
def installed(kernel: Kernel) -> Iterator[None]:
    """Simulate within this block; nothing else of the process may run meanwhile."""
    rng = random.Random(kernel.rng.getrandbits(64))
    numbers: dict[int, int] = {}
    keep: list[object] = []

    def place(each: object) -> int:
        found = numbers.get(id(each))
        if found is None:
            found = numbers[id(each)] = kernel.number()
            keep.append(each)  # so that its address stays its own
        return found

    def random_bytes(count: int) -> bytes:
        return rng.randbytes(count)

    def token_hex(count: int | None = None) -> str:
        return rng.randbytes(count or 32).hex()

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=rng.getrandbits(128), version=4)

    undo: list[Callable[[], None]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        had, before = not isinstance(owner, type) or name in vars(owner), getattr(owner, name)
        setattr(owner, name, value)
        undo.append(lambda: setattr(owner, name, before) if had else delattr(owner, name))

    Present.kernel = kernel
    put(threading, "Lock", SimLock)
    put(threading, "RLock", SimRLock)
    put(threading, "Condition", SimCondition)
    put(threading, "get_ident", strand_number)
    put(os, "urandom", random_bytes)
    put(secrets, "token_hex", token_hex)
    put(uuid, "uuid4", uuid4)
    put(
        slave.HaSlave.__init__,
        "__kwdefaults__",
        {**(slave.HaSlave.__init__.__kwdefaults__ or {}), "connect": connect_blocking},
    )
    put(service.HaService.open_port, "__defaults__", (listen_blocking,))
    put(recover.recover_from_slaves, "__defaults__", (listen_blocking,))
    put(message_store, "OsMemory", lambda files: SimMemory())
    put(components.build, "__defaults__", (random_bytes,))
    put(os, "getpid", lambda: 4242)
    put(platform, "node", lambda: "sim")
    put(push_consumer, "ThreadRunner", _runner)
    put(epoch_store, "EpochFile", SimEpochFile)
    for owner, name in LOCKS:
        put(owner, "__init__", with_lock(owner.__init__, name))
    for kind in ORDERED:
        put(kind, "__hash__", place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # coroutines of the run before, which ended in the middle
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        for each in reversed(undo):
            each()
        gc.enable()
