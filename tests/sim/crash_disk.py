"""What a disk remembers when the power goes: files by pages, directories by names.

Lives here: ``Inode`` and ``Directory`` with their state now, their durable state and everything between the two;
``crash_states``, which yields the disks that a power cut may leave.

What POSIX leaves open, and this disk uses:

- a page not synced is on the disk as it was at the last sync, as after any write since, or torn: some of its sectors
  old, others new; each page by itself, in any order;
- a size not synced is any of the sizes since;
- a name not synced is there or not: of the changes of a directory since its last ``sync_dir`` any subset has
  happened, in order. A rename happens whole or not at all. Syncing a file says nothing of its name, syncing a directory
  nothing of its own name above.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Union

import numpy as np
from numpy.typing import NDArray

PAGE: Final = 4096
SECTOR: Final = 512
CACHE_LINE: Final = 64

Bytes = NDArray[np.uint8]


class Inode:
    """A file's bytes. ``versions``: page → what it was after each change since the last sync."""

    def __init__(self, data: bytes = b"") -> None:
        self.data: Bytes = np.frombuffer(data, np.uint8).copy()
        self.durable: bytes = data
        self.versions: dict[int, list[bytes]] = {}
        self.sizes: list[int] = []
        self.allocated: set[int] = set(range(-(-len(data) // PAGE)))
        self.modified_ms = 0
        self.mapped = False

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def is_dirty(self) -> bool:
        return bool(self.versions or self.sizes)

    def resize(self, size: int) -> None:
        before = len(self.data)
        if size == before:
            return
        assert not self.mapped or size > before, "a mapped file is cut"
        grown = np.zeros(size, np.uint8)
        kept = min(size, before)
        grown[:kept] = self.data[:kept]
        self.data = grown
        self.sizes.append(size)
        if size < before:
            for page in range(size // PAGE, -(-before // PAGE)):
                self._note(page)
            self.allocated = {page for page in self.allocated if page * PAGE < size}

    def write(self, offset: int, data: Bytes) -> None:
        if len(data) == 0:
            return
        end = offset + len(data)
        if end > len(self.data):
            self.resize(end)
        self.data[offset:end] = data
        for page in range(offset // PAGE, (end - 1) // PAGE + 1):
            self._note(page)
            self.allocated.add(page)

    def _note(self, page: int) -> None:
        self.versions.setdefault(page, []).append(self.page(page))

    def page(self, page: int) -> bytes:
        return self.data[page * PAGE : (page + 1) * PAGE].tobytes().ljust(PAGE, b"\0")

    def durable_page(self, page: int) -> bytes:
        return self.durable[page * PAGE : (page + 1) * PAGE].ljust(PAGE, b"\0")

    def sync(self) -> None:
        if self.is_dirty:
            self.durable = self.data.tobytes()
            self.versions.clear()
            self.sizes.clear()

    def copy(self) -> "Inode":
        other = Inode()
        other.data = self.data.copy()
        other.durable = self.durable
        other.versions = {page: list(versions) for page, versions in self.versions.items()}
        other.sizes = list(self.sizes)
        other.allocated = set(self.allocated)
        other.modified_ms = self.modified_ms
        return other


Node = Union[Inode, "Directory"]


@dataclass(slots=True)
class NameChange:
    """One change of a directory: ``node`` is linked at ``name`` (None: unlinked); ``source``: its former name."""

    name: str
    node: Node | None
    source: str | None = None


@dataclass(slots=True)
class Directory:
    """Names now, names at the last ``sync_dir``, and the changes between."""

    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    changes: list[NameChange] = field(default_factory=list)

    def change(self, change: NameChange) -> None:
        apply(self.names, change)
        self.changes.append(change)

    def sync(self) -> None:
        if self.changes:
            self.durable = dict(self.names)
            self.changes.clear()


def apply(names: dict[str, Node], change: NameChange) -> None:
    """Make one change of names, if its nodes exist."""
    if change.source is not None:
        if names.get(change.source) is change.node and change.node is not None:
            del names[change.source]
            names[change.name] = change.node
    elif change.node is None:
        names.pop(change.name, None)
    else:
        names[change.name] = change.node


def copy_tree(root: Directory) -> Directory:
    """Return a copy of everything, unsynced state included: what the next process finds after ``kill -9``."""
    seen: dict[int, Node] = {}

    def copied(node: Node) -> Node:
        found = seen.get(id(node))
        if found is not None:
            return found
        if isinstance(node, Inode):
            seen[id(node)] = inode = node.copy()
            return inode
        seen[id(node)] = directory = Directory()
        directory.names = {name: copied(child) for name, child in node.names.items()}
        directory.durable = {name: copied(child) for name, child in node.durable.items()}
        directory.changes = [
            NameChange(change.name, None if change.node is None else copied(change.node), change.source)
            for change in node.changes
        ]
        return directory

    tree = copied(root)
    assert isinstance(tree, Directory)
    return tree


# ---- power cuts

Choose = Callable[[int], int]
"""Pick one of n possibilities; 0 is always the durable state, n - 1 the state now."""


def page_choices(inode: Inode, page: int) -> list[bytes]:
    """Return the possible states of a page on disk: old, each later version, a torn mix between two, newest last."""
    before = inode.durable_page(page)
    choices = [before]
    for version in inode.versions[page]:
        if version == before:
            continue
        sectors = [at for at in range(0, PAGE, SECTOR) if version[at : at + SECTOR] != before[at : at + SECTOR]]
        if len(sectors) > 1:  # the first half of the changed bytes is new, or only the rest
            middle = sectors[len(sectors) // 2]
            choices += [version[:middle] + before[middle:], before[:middle] + version[middle:]]
        choices.append(version)
        before = version
    return choices


def _crashed_inode(inode: Inode, choose: Choose) -> Inode:
    if not inode.is_dirty:
        return Inode(inode.durable)
    sizes = [len(inode.durable), *inode.sizes]
    size = sizes[choose(len(sizes))]
    data = bytearray(inode.durable[:size].ljust(size, b"\0"))
    for page in sorted(inode.versions):
        choices = page_choices(inode, page)
        content = choices[choose(len(choices))]
        room = max(0, min(PAGE, size - page * PAGE))
        data[page * PAGE : page * PAGE + room] = content[:room]
    return Inode(bytes(data))


def crashed(root: Directory, choose: Choose) -> Directory:
    """Return the disk after a power cut; ``choose`` makes each choice."""
    inodes: dict[int, Inode] = {}

    def after(directory: Directory) -> Directory:
        names = dict(directory.durable)
        for change in directory.changes:
            if choose(2):
                apply(names, change)
        result = Directory()
        for name, node in sorted(names.items()):
            if isinstance(node, Inode):
                if id(node) not in inodes:
                    inodes[id(node)] = _crashed_inode(node, choose)
                result.names[name] = inodes[id(node)]
            else:
                result.names[name] = after(node)
        result.durable = dict(result.names)
        return result

    return after(root)


def crash_states(root: Directory, rng: random.Random, limit: int) -> Iterator[Directory]:
    """Yield disks that a power cut may leave: all of them if they are at most ``limit``, else that many. If there are
    more: all old, all new, one part old or new against the rest, then random ones.
    """
    taken: list[int] = []

    def state(prefix: list[int]) -> Directory:
        """Build a state: choices from ``prefix``, then 0; note in ``taken`` the number of possibilities of each."""
        taken.clear()

        def choose(count: int) -> int:
            at = len(taken)
            taken.append(count)
            return prefix[at] if at < len(prefix) else 0

        return crashed(root, choose)

    # depth first through all combinations; later choices may depend on earlier ones (a file that is not there)
    states: list[list[int]] = []
    prefix: list[int] = []
    while len(states) <= limit:
        state(prefix)
        counts = list(taken)
        full = prefix + [0] * (len(counts) - len(prefix))
        states.append(full)
        at = len(full) - 1
        while at >= 0 and full[at] + 1 >= counts[at]:
            at -= 1
        if at < 0:
            break
        prefix = [*full[:at], full[at] + 1]
    if len(states) <= limit:
        for choices in states:
            yield state(choices)
        return
    yield crashed(root, lambda count: 0)
    yield crashed(root, lambda count: count - 1)
    for number in range(limit - 2):
        yield crashed(root, _chooser(rng, number % 4))


def _chooser(rng: random.Random, kind: int) -> Choose:
    """Return a function that chooses: mostly new, mostly old, half and half, or anything."""
    newest = {0: 0.9, 1: 0.1, 2: 0.5, 3: 0.0}[kind]

    def choose(count: int) -> int:
        if kind == 3:
            return rng.randrange(count)
        if rng.random() < 0.1:
            return rng.randrange(count)
        return count - 1 if rng.random() < newest else 0

    return choose
