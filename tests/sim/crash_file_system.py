"""A ``FileSystem`` in memory that fails, tears, forgets and dies on request.

Lives here: ``CrashFileSystem`` with its files and maps, the list of operations, ``Fault``, ``Killed``.

Every operation is announced to ``before``, a hook that may return a ``Fault``, block (a hanging call), or do nothing.
The hook runs outside of any lock. After ``Killed`` was raised once, every call raises it: the process is dead. ::

    files = CrashFileSystem()
    files.before = lambda operation: Fault(errno.EIO) if operation.kind == "sync" else None
    ...
    for disk in files.crash_states(random.Random(seed), limit=100): MessageStore(config, file_system=disk).open()
"""

import errno
import itertools
import os
import posixpath
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pocketmq.store.commitlog.buffer_header import HEADER_BYTES
from pocketmq.store.disk.file_system import Bytes, check_below
from pocketmq.store.errors import NotPrivate, StoreError, StoreInUse, translated
from tests.sim.crash_disk import CACHE_LINE, PAGE, Directory, Inode, NameChange, Node, copy_tree, crash_states, crashed

CHANGES = frozenset(
    (
        *("create", "write", "store", "scatter", "reserve", "resize", "zero"),
        *("sync", "sync_dir", "sync_all", "remove", "rename", "make_dir"),
    )
)
"""Operations after which a crash may find another disk; the others are ``open``, ``read``, ``list`` and ``map``."""


BOOT_ID = "/proc/sys/kernel/random/boot_id"
WORD = 8
"""Stored by one instruction: a kill finds it done or not."""


class Killed(BaseException):
    """The process dies here."""


@dataclass(slots=True, frozen=True)
class Operation:
    """One call: kind, path, position and size."""

    kind: str
    path: str
    offset: int = 0
    length: int = 0


@dataclass(slots=True, frozen=True)
class Fault:
    """A fault in place of an operation: ``taken`` bytes of a write are written, then it raises ``number`` as the system
    would; None: the process dies there. In a map these are cache lines, in any order by ``rng``; a word is stored whole
    or not at all, and a written one perhaps only as far as its first page. ``lost``: a sync does nothing and reports
    success.
    """

    number: int | None = errno.EIO
    taken: int = 0
    lost: bool = False
    rng: random.Random | None = None


Before = Callable[[Operation], Fault | None]


class CrashMap:
    """A map of a file in memory; its pages may reach the disk at any time, one by one."""

    def __init__(self, files: "CrashFileSystem", inode: Inode, path: str) -> None:
        self.size_bytes = inode.size
        self.path = path
        self._files = files
        self._inode = inode
        inode.mapped = True

    def store(self, offset: int, data: Bytes) -> None:
        array = _array(data)
        assert offset >= 0
        assert offset + len(array) <= self.size_bytes
        self._files.change(Operation("store", self.path, offset, len(array)), self._inode, array)

    def scatter(self, offsets: NDArray[np.int64], rows: NDArray[np.uint8]) -> None:
        for offset, row in zip(offsets.tolist(), rows, strict=True):
            self._files.change(Operation("scatter", self.path, offset, len(row)), self._inode, row)

    def view(self) -> NDArray[np.uint8]:
        view = self._inode.data.view()
        view.flags.writeable = False
        return view

    def memory(self) -> NDArray[np.uint8]:
        return cast("NDArray[np.uint8]", WatchedMemory(self, 0, self.size_bytes))

    def words(self, count: int) -> "WatchedWords":
        return WatchedWords(self)


class WatchedMemory:
    """A writable array over a map whose every store is an operation; reads see the bytes."""

    def __init__(self, mapped: CrashMap, start: int, size: int) -> None:
        self._mapped = mapped
        self._start = start
        self.size = self.nbytes = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> Any:
        start, stop, _ = part.indices(self.size)
        if (start, stop) == (HEADER_BYTES, self.size):
            return WatchedMemory(self._mapped, self._start + start, stop - start)
        return self._mapped.view()[self._start + start : self._start + stop]

    def __setitem__(self, part: slice, data: Any) -> None:
        start, stop, _ = part.indices(self.size)
        assert stop - start == len(data)
        self._mapped.store(self._start + start, data)

    def __array__(self, *_: object, **__: object) -> NDArray[np.uint8]:
        return self._mapped.view()[self._start : self._start + self.size]


class WatchedWords:
    """Words of a map, each stored by an operation of its own."""

    def __init__(self, mapped: CrashMap) -> None:
        self._mapped = mapped

    def __getitem__(self, index: int) -> int:
        return int(self._mapped.view()[8 * index : 8 * index + 8].view(np.uint64)[0])

    def __setitem__(self, index: int, value: int) -> None:
        self._mapped.store(8 * index, np.array([value], np.uint64).view(np.uint8))


class CrashFile:
    """An open file."""

    def __init__(self, files: "CrashFileSystem", inode: Inode, path: str) -> None:
        self.path = path
        self._files = files
        self._inode = inode

    def size(self) -> int:
        return self._inode.size

    def read_into(self, offset: int, out: NDArray[np.uint8]) -> int:
        self._files.announce(Operation("read", self.path, offset, out.size))
        part = self._inode.data[offset : offset + out.size]
        out[: len(part)] = part
        return len(part)

    def read(self, offset: int, length: int) -> bytes:
        out = np.empty(length, np.uint8)
        return out[: self.read_into(offset, out)].tobytes()

    def write_at(self, offset: int, data: Bytes) -> None:
        array = _array(data)
        self._files.change(Operation("write", self.path, offset, len(array)), self._inode, array)

    def reserve(self, size_bytes: int) -> None:
        self._files.announce(Operation("reserve", self.path, 0, size_bytes))
        with self._files.lock:
            inode = self._inode
            self._files.take_space(inode, range(-(-size_bytes // PAGE)), self.path)
            if inode.size < size_bytes:
                inode.resize(size_bytes)
            inode.allocated.update(range(-(-size_bytes // PAGE)))

    def resize(self, size_bytes: int) -> None:
        self._files.announce(Operation("resize", self.path, 0, size_bytes))
        with self._files.lock:
            self._inode.resize(size_bytes)

    def zero(self, offset: int, length: int) -> None:
        if length > 0:
            length = min(length, max(0, self._inode.size - offset))
            zeros = np.zeros(length, np.uint8)
            self._files.change(Operation("zero", self.path, offset, length), self._inode, zeros)

    def next_data(self, offset: int) -> int | None:
        nonzero = np.flatnonzero(self._inode.data[offset:])
        return None if len(nonzero) == 0 else max(offset, (offset + int(nonzero[0])) // PAGE * PAGE)

    def next_hole(self, offset: int) -> int:
        inode = self._inode
        page = offset // PAGE + 1
        while page * PAGE < inode.size and inode.data[page * PAGE : (page + 1) * PAGE].any():
            page += 1
        return min(page * PAGE, inode.size)

    def sync(self) -> None:
        fault = self._files.announce(Operation("sync", self.path))
        if fault is None or not fault.lost:
            with self._files.lock:
                self._inode.sync()

    def map(self) -> CrashMap:
        self._files.announce(Operation("map", self.path))
        return CrashMap(self._files, self._inode, self.path)

    def close(self) -> None:
        pass


class CrashLock:
    """A lock of this process; a copy of the disk does not have it."""

    def __init__(self, locks: dict[str, str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.pop(self._path, None)


class CrashFileSystem:
    """Files in memory. ``read_only``, ``denied`` (path prefixes) and ``capacity_bytes`` may change at any time."""

    def __init__(self, root: Directory | None = None) -> None:
        self.root = Directory() if root is None else root
        self.lock = threading.RLock()
        self.before: Before | None = None
        self.operations: list[Operation] = []
        self.read_only = False
        self.denied: tuple[str, ...] = ()
        self.foreign: set[str] = set()
        self.capacity_bytes: int | None = None
        self._locks: dict[str, str] = {}
        self._dead = False
        self._now_ms = 0

    # ---- operations and faults

    @property
    def changes(self) -> int:
        """Return how many operations so far change the disk."""
        return sum(operation.kind in CHANGES for operation in self.operations)

    def announce(self, operation: Operation) -> Fault | None:
        """Record an operation and follow the hook; return the fault only if part of its bytes must still be written."""
        if self._dead:
            raise Killed
        self.operations.append(operation)
        fault = None if self.before is None else self.before(operation)
        if fault is None:
            if operation.kind in CHANGES:
                if self.read_only:
                    raise _error(errno.EROFS, operation)
                self._now_ms += 1
            if self.denied and operation.path.startswith(self.denied):
                raise _error(errno.EACCES, operation)
            return None
        if fault.taken == 0 and not fault.lost:
            self.fail(operation, fault)
        return fault

    def fail(self, operation: Operation, fault: Fault) -> None:
        if fault.number is None:
            self._dead = True
            raise Killed
        raise _error(fault.number, operation)

    def change(self, operation: Operation, inode: Inode, data: NDArray[np.uint8]) -> None:
        """Write bytes, or the part of them that a fault lets through."""
        fault = self.announce(operation)
        with self.lock:
            if fault is None:
                pages = range(operation.offset // PAGE, -(-(operation.offset + len(data)) // PAGE))
                if operation.kind in ("write", "store", "scatter"):
                    self.take_space(inode, pages, operation.path)
                inode.write(operation.offset, data)
                inode.modified_ms = self._now_ms
                return
            is_killed_write = operation.kind == "write" and fault.number is None
            if len(data) <= WORD and (operation.kind == "store" or is_killed_write):
                taken = len(data) if fault.taken * 2 > len(data) else 0
                if is_killed_write and 0 < fault.taken < len(data):
                    taken = min(taken, PAGE - operation.offset % PAGE)
                inode.write(operation.offset, data[:taken])
            elif operation.kind == "store" and fault.rng is not None:
                for at, end in _some_lines(operation.offset, len(data), fault.taken, fault.rng):
                    inode.write(operation.offset + at, data[at:end])
            else:
                inode.write(operation.offset, data[: fault.taken])
        self.fail(operation, fault)

    def take_space(self, inode: Inode, pages: range, path: str) -> None:
        if self.capacity_bytes is None:
            return
        new = sum(page not in inode.allocated for page in pages)
        if new and self.used_bytes() + new * PAGE > self.capacity_bytes:
            raise translated(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "write failed", path)

    def used_bytes(self) -> int:
        return sum(len(inode.allocated) * PAGE for _, inode in self.files())

    # ---- crashes

    def after_kill(self) -> "CrashFileSystem":
        """Return the disk as the next process finds it: all written bytes are there, synced ones stay known."""
        return CrashFileSystem(copy_tree(self.root))

    def after_power_loss(self, choose: Callable[[int], int]) -> "CrashFileSystem":
        """Return one disk that a power cut may leave."""
        return CrashFileSystem(rebooted(crashed(self.root, choose)))

    def crash_states(self, rng: random.Random, limit: int = 1000) -> "Iterator[CrashFileSystem]":
        """Yield disks that a power cut may leave; see ``crash_disk.crash_states``."""
        for root in crash_states(self.root, rng, limit):
            yield CrashFileSystem(rebooted(root))

    def files(self, under: str = "/") -> list[tuple[str, Inode]]:
        """Return (path, file) of everything below a directory, sorted."""
        found: list[tuple[str, Inode]] = []

        def walk(directory: Directory, path: str) -> None:
            for name, node in sorted(directory.names.items()):
                if isinstance(node, Inode):
                    found.append((f"{path}/{name}", node))
                else:
                    walk(node, f"{path}/{name}")

        start = self._find(under)
        if isinstance(start, Directory):
            walk(start, under.rstrip("/"))
        return found

    def image(self, under: str = "/") -> dict[str, bytes]:
        """Return all files as path → bytes."""
        return {path: inode.data.tobytes() for path, inode in self.files(under)}

    # ---- names

    def _find(self, path: str) -> Node | None:
        node: Node = self.root
        for part in path.split("/"):
            if part:
                if not isinstance(node, Directory) or part not in node.names:
                    return None
                node = node.names[part]
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        head, name = posixpath.split(path)
        parent = self._find(head)
        if not isinstance(parent, Directory):
            raise _missing(path)
        return parent, name

    def inode(self, path: str) -> Inode:
        node = self._find(path)
        if not isinstance(node, Inode):
            raise _missing(path)
        return node

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> CrashFile:
        self.announce(Operation("open", path))
        with self.lock:
            node = self._find(path)
        if node is None and create:
            self._parent(path)
            self.announce(Operation("create", path))
            with self.lock:
                parent, name = self._parent(path)
                node = Inode()
                parent.change(NameChange(name, node))
        if not isinstance(node, Inode):
            if node is not None:
                raise _error(errno.EISDIR, Operation("open", path))
            raise _missing(path)
        return CrashFile(self, node, path)

    def open_private(self, path: str, *, create: bool = False) -> CrashFile:
        if create and self._find(path) is not None:
            raise _error(errno.EEXIST, Operation("open", path))
        if path in self.foreign:
            raise NotPrivate("file refused", why=f"{path}: it belongs to user 1001, not to 1000")
        return self.open(path, create=create)

    def make_private_dir(self, path: str) -> None:
        if self._find(path) is not None:
            raise _error(errno.EEXIST, Operation("make_dir", path))
        self._parent(path)
        self.make_dirs(path)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def identity(self, path: str) -> tuple[int, int] | None:
        found = self._find(path)
        return None if found is None else (0, id(found))

    def size(self, path: str) -> int:
        return self.inode(path).size

    def modified_ms(self, path: str) -> int:
        return self.inode(path).modified_ms

    def list(self, path: str) -> list[str]:
        self.announce(Operation("list", path))
        node = self._find(path)
        return sorted(node.names) if isinstance(node, Directory) else []

    def make_dirs(self, path: str) -> None:
        built = ""
        for part in path.split("/"):
            if not part:
                continue
            built += "/" + part
            if self._find(built) is None:
                self.announce(Operation("make_dir", built))
                with self.lock:
                    parent, name = self._parent(built)
                    parent.change(NameChange(name, Directory()))

    def remove(self, path: str) -> None:
        if self._find(path) is None:
            return
        self.announce(Operation("remove", path))
        with self.lock:
            parent, name = self._parent(path)
            parent.change(NameChange(name, None))

    def remove_tree(self, path: str, *, below: str) -> None:
        check_below(path, below, posixpath.normpath)
        node = self._find(path)
        if not isinstance(node, Directory):
            return
        for name in sorted(node.names):
            child = f"{path}/{name}"
            if isinstance(node.names[name], Directory):
                self.remove_tree(child, below=path)
            else:
                self.remove(child)
        self.remove(path)

    def rename(self, source: str, target: str) -> None:
        moved = self._find(source)
        if moved is None:
            raise _missing(source)
        self.announce(Operation("rename", target))
        with self.lock:
            parent, name = self._parent(target)
            before, old_name = self._parent(source)
            if before is parent:
                parent.change(NameChange(name, moved, old_name))
            else:  # two directories: each separately, as in some file systems
                parent.change(NameChange(name, moved))
                before.change(NameChange(old_name, None))

    def read_all(self, path: str) -> bytes:
        file = self.open(path, writable=False)
        return file.read(0, file.size())

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        temporary = path + ".tmp"
        try:
            file = self.open(temporary, create=True)
        except FileNotFoundError:
            directory = posixpath.dirname(path)
            self._parent(directory)
            self.make_dirs(directory)
            self.sync_dir(posixpath.dirname(directory))
            file = self.open(temporary, create=True)
        file.resize(0)
        file.write_at(0, data)
        if durable:
            file.sync()
        self.rename(temporary, path)
        if durable:
            self.sync_dir(posixpath.dirname(path))

    def sync_dir(self, path: str) -> None:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise _missing(path)
        fault = self.announce(Operation("sync_dir", path))
        if fault is None or not fault.lost:
            with self.lock:
                node.sync()

    def sync_all(self, path: str) -> None:
        if self._find(path) is None:
            raise _missing(path)
        fault = self.announce(Operation("sync_all", path))
        if fault is not None and fault.lost:
            return

        def sync(directory: Directory) -> None:
            directory.sync()
            for node in directory.names.values():
                if isinstance(node, Inode):
                    node.sync()
                else:
                    sync(node)

        with self.lock:
            sync(self.root)

    def lock_file(self, path: str, holder: str) -> CrashLock:
        if path in self._locks:
            raise StoreInUse(
                "a second broker on the same store",
                why=f"{posixpath.dirname(path)} is locked by {self._locks[path].removeprefix('lock').strip()}",
                hint="stop that one, or give this one a directory of its own",
            )
        file = self.open(path, create=True)
        file.resize(0)
        file.write_at(0, holder.encode())
        self._locks[path] = holder
        return CrashLock(self._locks, path)

    def free_bytes(self, path: str) -> tuple[int, int]:
        total = (1 << 40) if self.capacity_bytes is None else self.capacity_bytes
        return max(0, total - self.used_bytes()), total


def rebooted(root: Directory) -> Directory:
    """Empty shared memory and count the boots, where a disk has files for that; see ``checkers.fresh_disk``."""
    node: Node = root
    for part in BOOT_ID.strip("/").split("/"):
        if not isinstance(node, Directory) or part not in node.names:
            return root
        node = node.names[part]
    assert isinstance(node, Inode)
    node.write(0, _array(b"%08d" % (int(node.data[:8].tobytes()) + 1)))
    device = root.names["dev"]
    assert isinstance(device, Directory)
    device.names["shm"] = Directory()
    return root


def kill_at(change: int, rng: random.Random) -> Before:
    """Return a hook that kills the process in the middle of the disk's change number ``change`` (0: the first)."""
    left = [change]

    def before(operation: Operation) -> Fault | None:
        if operation.kind not in CHANGES:
            return None
        left[0] -= 1
        if left[0] >= 0:
            return None
        taken = rng.randrange(operation.length + 1) if operation.kind in ("write", "store") else 0
        return Fault(None, taken, rng=rng)

    return before


def _array(data: Bytes) -> NDArray[np.uint8]:
    return data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)


def _missing(path: str) -> StoreError:
    return translated(OSError(errno.ENOENT, os.strerror(errno.ENOENT)), "not found", path)


def _error(number: int, operation: Operation) -> Exception:
    return translated(OSError(number, os.strerror(number)), f"{operation.kind} failed", operation.path)


def _some_lines(offset: int, length: int, taken: int, rng: random.Random) -> list[tuple[int, int]]:
    """Return about ``taken`` of ``length`` bytes as (start, end): cache lines, from the front, the back or anywhere."""
    cuts = [0, *range(CACHE_LINE - offset % CACHE_LINE, length, CACHE_LINE), length]
    lines = list(itertools.pairwise(cuts))
    order = rng.choice(("forward", "backward", "any"))
    if order == "backward":
        lines.reverse()
    elif order == "any":
        rng.shuffle(lines)
    return lines[: len(lines) * taken // max(1, length)]
