"""A disk that fails on request, under a real daemon: what ``pocketmq scenario`` provokes its incidents with.

Lives here: ``FaultFileSystem``, which wraps another file system, ``FaultPlan``, which decides from rules in a file what
happens to each call, and the settings section ``fault``.

Nothing is wrapped unless ``[fault] enable=true``: then every call first asks the plan. The file of rules may be
replaced while the daemon runs:

    {"rules": [{"operations": ["store", "write_at"], "path": "commitlog/*", "delay_ms": 100}]}
"""

import errno
import fnmatch
import os
import random
import re
import threading
import time
from collections.abc import Callable
from typing import Annotated, Final, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from pocketmq.common.clock import Clock
from pocketmq.common.errors import DECODE_ERRORS, ConfigError
from pocketmq.common.events import EventLog
from pocketmq.store.disk.file_system import Bytes, FileLock, FileSystem, MappedFile, StoreFile, Words
from pocketmq.store.errors import StoreError, translated

LOOK_INTERVAL_NS: Final = 20_000_000
"""The file of rules is checked at most this often, and only by calls that happen anyway."""
HANG_STEP_S: Final = 0.02
RULES_BYTES_MAX: Final = 65_536
RULES_MAX: Final = 100

Operation = Literal[
    "store",
    "scatter",
    "read",
    "write_at",
    "reserve",
    "resize",
    "zero",
    "seek",
    "sync",
    "map",
    "open",
    "exists",
    "stat",
    "list",
    "make_dirs",
    "remove",
    "rename",
    "read_all",
    "replace",
    "sync_dir",
    "sync_all",
    "lock_file",
    "free_bytes",
]
"""Calls of ``FileSystem``, ``StoreFile`` and ``MappedFile``. ``read`` is ``read_into``, too; ``seek`` is ``next_data``
and ``next_hole``; ``stat`` is ``size`` and ``modified_ms``; ``remove`` is ``remove_tree``, too."""
OPERATIONS: Final[tuple[str, ...]] = get_args(Operation)
ERRORS: Final = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EROFS": errno.EROFS}


class FaultConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether faults can be switched on, and where the rules are. Ours; never for production."""

    enable: bool = False
    """Whether faults can be switched on; never in production."""
    control_file: str = ""
    """JSON with the rules; a missing file is no rules."""
    seed: int = 0
    """Seed of the rules that have a probability."""

    def __post_init__(self) -> None:
        if self.enable and not self.control_file:
            raise ConfigError(
                "bad setting",
                why="fault.enable=true without fault.control_file",
                hint="name the JSON file with the rules; it may be made later",
            )


class FaultRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault for some calls: a wait, then an error, each optional.

    A call is counted by the rule when operation and path fit. Of those every ``every``-th is taken, then those that
    ``probability`` picks, until ``count`` were hit (0: without end).
    """

    operations: Annotated[tuple[Operation, ...], msgspec.Meta(min_length=1)]
    path: str = "*"
    """Glob over the path relative to the store's directory; ``*`` passes slashes."""
    bytes_min: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Only stores, writes and reads of this size or more: an append may take more than one call. In mapped mode, too,
    a small group is written (``write_at``), and the first eight bytes of a large one, whose rest is a ``store``.
    """
    delay_ms: Annotated[float, msgspec.Meta(ge=0, le=600_000)] = 0
    error: Literal["EIO", "ENOSPC", "EROFS"] | None = None
    hang: bool = False
    """Wait until the rule is gone."""
    probability: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    every: Annotated[int, msgspec.Meta(ge=1)] = 1
    count: Annotated[int, msgspec.Meta(ge=0)] = 0


class FaultRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a control file."""

    rules: Annotated[tuple[FaultRule, ...], msgspec.Meta(max_length=RULES_MAX)] = ()


class _Armed:
    """A rule in force, with its counts."""

    __slots__ = ("hits", "pattern", "rule", "seen")

    def __init__(self, rule: FaultRule) -> None:
        self.rule = rule
        self.pattern = re.compile(fnmatch.translate(rule.path))
        self.seen = 0
        self.hits = 0


class FaultPlan:
    """Decides for each call. Thread-safe; no lock is held while a call waits.

    Rules that stay the same when the file is replaced keep their counts, and calls that hang in them stay there. A file
    that cannot be read or understood leaves the rules as they are and is reported once.
    """

    def __init__(
        self,
        files: FileSystem,
        control_file: str,
        root: str,
        clock: Clock,
        log: EventLog,
        *,
        seed: int = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``files`` reads the control file; ``root`` is the store's directory; ``sleep`` takes seconds."""
        self._files = files
        self._control_file = control_file
        self._prefix = root.rstrip("/") + "/"
        self._monotonic_ns = clock.monotonic_ns
        self._log = log
        self._random = random.Random(seed)
        self._sleep = sleep
        self._reading = threading.Lock()
        self._counting = threading.Lock()
        self._read_ns = clock.monotonic_ns() - LOOK_INTERVAL_NS
        self._content = b""
        self._unreadable = False
        self._armed: tuple[_Armed, ...] = ()

    def hits(self) -> int:
        """Return how many calls the present rules have hit."""
        return sum(armed.hits for armed in self._armed)

    def before(self, operation: Operation, path: str, size_bytes: int = 0) -> None:
        """Let a call pass, late or at once, or raise what its disk answers. Called ahead of the real one."""
        self._reload_if_due()
        if not self._armed:
            return
        relative = path.removeprefix(self._prefix)
        for armed in self._armed:
            rule = armed.rule
            if operation not in rule.operations or size_bytes < rule.bytes_min:
                continue
            if armed.pattern.match(relative) is None or not self._takes(armed):
                continue
            self._log.warning(
                "fault_injected",
                operation=operation,
                path=relative,
                delay_ms=rule.delay_ms,
                error=rule.error or "",
                hang=rule.hang,
                hit=armed.hits,
            )
            if rule.delay_ms:
                self._sleep(rule.delay_ms / 1000)
            while rule.hang and armed in self._armed:
                self._sleep(HANG_STEP_S)
                self._reload_if_due()
            if rule.error is not None:
                number = ERRORS[rule.error]
                error = OSError(number, os.strerror(number))
                raise translated(error, f"{operation} failed by a fault rule", path) from error

    def _takes(self, armed: _Armed) -> bool:
        rule = armed.rule
        with self._counting:
            armed.seen += 1
            taken = (
                armed.seen % rule.every == 0
                and (rule.count == 0 or armed.hits < rule.count)
                and (rule.probability >= 1 or self._random.random() < rule.probability)
            )
            armed.hits += taken
            return taken

    def _reload_if_due(self) -> None:
        """Read the rules again when it is time to; one thread does, the others go on with the present rules."""
        now_ns = self._monotonic_ns()
        if now_ns - self._read_ns < LOOK_INTERVAL_NS or not self._reading.acquire(blocking=False):
            return
        try:
            self._read_ns = now_ns
            content = self._read()
            if content is not None and content != self._content:
                self._content = content
                self._load(content)
            self._unreadable = self._unreadable and content is None
        finally:
            self._reading.release()

    def _read(self) -> bytes | None:
        try:
            if self._files.size(self._control_file) > RULES_BYTES_MAX:
                return b"too large"  # no JSON: refused below, once
            return self._files.read_all(self._control_file)
        except FileNotFoundError:
            return b""
        except StoreError as error:
            if not self._unreadable:
                self._unreadable = True
                self._log.error("fault_rules_unreadable", path=self._control_file, error=str(error))
            return None

    def _load(self, content: bytes) -> None:
        try:
            rules = msgspec.json.decode(content, type=FaultRules).rules if content else ()
        except DECODE_ERRORS as error:
            self._log.error("fault_rules_refused", path=self._control_file, error=str(error), kept=len(self._armed))
            return
        known = {armed.rule: armed for armed in self._armed}
        self._armed = tuple(known.get(rule) or _Armed(rule) for rule in dict.fromkeys(rules))
        self._log.warning("fault_rules_loaded", path=self._control_file, rules=len(rules))


class FaultMappedFile:
    """A map that asks the plan ahead of each store; reads through ``view`` cannot be stopped."""

    __slots__ = ("_inner", "_path", "_plan", "size_bytes")

    def __init__(self, inner: MappedFile, path: str, plan: FaultPlan) -> None:
        self._inner = inner
        self._path = path
        self._plan = plan
        self.size_bytes = inner.size_bytes

    def store(self, offset: int, data: Bytes) -> None:
        """Copy ``data``, if the plan lets it."""
        self._plan.before("store", self._path, len(data))
        self._inner.store(offset, data)

    def scatter(self, offsets: NDArray[np.int64], rows: NDArray[np.uint8]) -> None:
        """Copy rows, if the plan lets it."""
        self._plan.before("scatter", self._path, rows.size)
        self._inner.scatter(offsets, rows)

    def view(self) -> NDArray[np.uint8]:
        """Return the inner map's array."""
        return self._inner.view()

    def memory(self) -> NDArray[np.uint8]:
        """Return the inner map's writable array."""
        return self._inner.memory()

    def words(self, count: int) -> Words:
        """Return the inner map's words."""
        return self._inner.words(count)


class FaultFile:
    """A file that asks the plan ahead of each call."""

    __slots__ = ("_inner", "_plan", "path")

    def __init__(self, inner: StoreFile, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan
        self.path = inner.path

    def size(self) -> int:
        """Return the size."""
        self._plan.before("stat", self.path)
        return self._inner.size()

    def read_into(self, offset: int, out: NDArray[np.uint8]) -> int:
        """Fill ``out``."""
        self._plan.before("read", self.path, out.size)
        return self._inner.read_into(offset, out)

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes."""
        self._plan.before("read", self.path, length)
        return self._inner.read(offset, length)

    def write_at(self, offset: int, data: Bytes) -> None:
        """Write all of ``data``."""
        self._plan.before("write_at", self.path, len(data))
        self._inner.write_at(offset, data)

    def reserve(self, size_bytes: int) -> None:
        """Reserve blocks."""
        self._plan.before("reserve", self.path)
        self._inner.reserve(size_bytes)

    def resize(self, size_bytes: int) -> None:
        """Cut or extend."""
        self._plan.before("resize", self.path)
        self._inner.resize(size_bytes)

    def zero(self, offset: int, length: int) -> None:
        """Make a range read as zeros."""
        self._plan.before("zero", self.path)
        self._inner.zero(offset, length)

    def next_data(self, offset: int) -> int | None:
        """Find the next data."""
        self._plan.before("seek", self.path)
        return self._inner.next_data(offset)

    def next_hole(self, offset: int) -> int:
        """Find the next hole."""
        self._plan.before("seek", self.path)
        return self._inner.next_hole(offset)

    def sync(self) -> None:
        """Make data and size durable."""
        self._plan.before("sync", self.path)
        self._inner.sync()

    def map(self) -> FaultMappedFile:
        """Map the file; the map asks the plan, too."""
        self._plan.before("map", self.path)
        return FaultMappedFile(self._inner.map(), self.path, self._plan)

    def close(self) -> None:
        """Close the inner file; never a fault."""
        self._inner.close()


class FaultFileSystem:
    """Another file system with a plan ahead of every call. Without rules it does what the inner one does."""

    def __init__(self, inner: FileSystem, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> FaultFile:
        """Open a file."""
        self._plan.before("open", path)
        return FaultFile(self._inner.open(path, create=create, writable=writable), self._plan)

    def open_private(self, path: str, *, create: bool = False) -> FaultFile:
        """Open a file of this user alone."""
        self._plan.before("open", path)
        return FaultFile(self._inner.open_private(path, create=create), self._plan)

    def make_private_dir(self, path: str) -> None:
        """Create a directory of this user alone."""
        self._plan.before("make_dirs", path)
        self._inner.make_private_dir(path)

    def exists(self, path: str) -> bool:
        """Return whether it exists."""
        self._plan.before("exists", path)
        return self._inner.exists(path)

    def identity(self, path: str) -> tuple[int, int] | None:
        """Return what tells it from another file of that name."""
        self._plan.before("stat", path)
        return self._inner.identity(path)

    def size(self, path: str) -> int:
        """Return a file's size."""
        self._plan.before("stat", path)
        return self._inner.size(path)

    def modified_ms(self, path: str) -> int:
        """Return a file's modification time."""
        self._plan.before("stat", path)
        return self._inner.modified_ms(path)

    def list(self, path: str) -> list[str]:
        """Return the names in a directory."""
        self._plan.before("list", path)
        return self._inner.list(path)

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents."""
        self._plan.before("make_dirs", path)
        self._inner.make_dirs(path)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._plan.before("remove", path)
        self._inner.remove(path)

    def remove_tree(self, path: str, *, below: str) -> None:
        """Remove a directory."""
        self._plan.before("remove", path)
        self._inner.remove_tree(path, below=below)

    def rename(self, source: str, target: str) -> None:
        """Rename a file; rules see the new name."""
        self._plan.before("rename", target)
        self._inner.rename(source, target)

    def read_all(self, path: str) -> bytes:
        """Return a whole small file."""
        self._plan.before("read_all", path)
        return self._inner.read_all(path)

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write a whole small file."""
        self._plan.before("replace", path)
        self._inner.replace(path, data, durable=durable)

    def sync_dir(self, path: str) -> None:
        """Sync a directory's names."""
        self._plan.before("sync_dir", path)
        self._inner.sync_dir(path)

    def sync_all(self, path: str) -> None:
        """Sync the whole file system."""
        self._plan.before("sync_all", path)
        self._inner.sync_all(path)

    def lock_file(self, path: str, holder: str) -> FileLock:
        """Lock a file."""
        self._plan.before("lock_file", path)
        return self._inner.lock_file(path, holder)

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Return (free, total)."""
        self._plan.before("free_bytes", path)
        return self._inner.free_bytes(path)
