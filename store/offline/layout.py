"""The content of a store directory, ours or RocketMQ's.

Lives here: ``read_layout``: the files of the commit log with their sizes, consume queues, index files, markers; the
checks whether a directory is a store.
Reads names and sizes only.

Each file of the log counts with its actual size, so any segment size works, and a half-copied file is a file that ends
early. RocketMQ's directory lacks ``pocketmq/`` and ``checksums/``, otherwise both are the same (docs/rocketmq.md,
"Store directory").
"""

import posixpath
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.commitlog.allocate import ALLOCATING_SUFFIX
from pocketmq.store.commitlog.segment import NAME_DIGITS
from pocketmq.store.config import CONSUME_QUEUE_ENTRY_BYTES
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.disk.queue_paths import queue_id_of, queues_directory, topic_error
from pocketmq.store.errors import DiskError, StoreError, StorePermission
from pocketmq.store.offline.errors import EmptyStore, MixedSegments, NotAStore

INDEX_NAME_DIGITS: Final = 17
QUEUE_FILE_BYTES_MAX: Final = 1 << 30
"""Larger ones are left out: RocketMQ's default is 6 MB."""
OFFSET_MAX: Final = (1 << 63) - 1
_PARTS: Final = ("commitlog", "consumequeue", "index", "checkpoint", "config")


@dataclass(slots=True, frozen=True)
class SegmentFile:
    """One file of the log: its bytes [base_offset, end_offset), of which the first ``have_bytes`` exist."""

    path: str
    base_offset: int
    end_offset: int
    have_bytes: int


@dataclass(slots=True)
class StoreLayout:
    """Names and sizes. ``queues``: (topic, queue id) → {first byte: file size}. Paths are absolute."""

    paths: StorePaths
    segments: list[SegmentFile] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)
    """Ranges between two files for which there is no file."""
    segment_bytes: int = 0
    """The size that most files have."""
    queues: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)
    queue_file_bytes: int = 0
    index_files: list[tuple[str, int]] = field(default_factory=list)
    """(path, size) of each, oldest first."""
    has_index: bool = False
    batch_topics: frozenset[str] = frozenset()
    """Topics whose queues are RocketMQ 5's BatchCQ, in ``batchconsumequeue/``, which are not read."""
    config_files: list[str] = field(default_factory=list)
    is_ours: bool = False
    """Whether PocketMQ wrote here: it has ``pocketmq/``."""
    is_open: bool = False
    """The abort marker exists: a broker has the store open, or did not close it."""
    strange: list[str] = field(default_factory=list)
    """Files that belong to no store or have an impossible size, and why; at most ``STRANGE_MAX``."""

    @property
    def start_offset(self) -> int:
        """First existing byte of the log."""
        return self.segments[0].base_offset

    @property
    def end_offset(self) -> int:
        """End of the last file."""
        return self.segments[-1].end_offset

    @property
    def log_bytes(self) -> int:
        """Bytes of all files of the log."""
        return sum(segment.have_bytes for segment in self.segments)

    def find(self, offset: int) -> SegmentFile | None:
        """Return the file that holds the byte at ``offset``."""
        low, high = 0, len(self.segments)
        while low < high:
            middle = (low + high) // 2
            if self.segments[middle].end_offset <= offset:
                low = middle + 1
            else:
                high = middle
        if low == len(self.segments) or self.segments[low].base_offset > offset:
            return None
        return self.segments[low]

    def note(self, text: str) -> None:
        """Remember something strange."""
        if len(self.strange) < STRANGE_MAX:
            self.strange.append(text)


STRANGE_MAX: Final = 100


def read_layout(file_system: FileSystem, directory: str) -> StoreLayout:
    """Return the content of ``directory`` (absolute; the store or its ``commitlog``).

    Raises ``NotAStore``, ``EmptyStore``, ``MixedSegments``, ``StorePermission``.
    """
    root = directory.rstrip("/") or "/"
    if posixpath.basename(root) == "commitlog":
        root = posixpath.dirname(root)
    paths = StorePaths(root)
    try:
        names = file_system.list(root)
        if not names and not file_system.exists(root):
            raise NotAStore("no store", why=f"{root} does not exist", hint="name the directory that holds commitlog/")
        layout = StoreLayout(paths)
        layout.is_ours = "pocketmq" in names
        layout.is_open = "abort" in names
        layout.has_index = "index" in names
        layout.batch_topics = frozenset(file_system.list(f"{root}/batchconsumequeue"))
        if not set(_PARTS) & set(names):
            raise NotAStore(
                "no store",
                why=f"{root} holds none of {', '.join(_PARTS)}",
                hint="name the directory that holds commitlog/ (RocketMQ: storePathRootDir)",
            )
        _read_segments(file_system, layout)
        _read_queues(file_system, layout)
        _read_index(file_system, layout)
    except DiskError as error:
        if not isinstance(error.__cause__, NotADirectoryError):
            raise
        raise NotAStore("no store", why=error.why, hint="name the directory that holds commitlog/") from error
    except StorePermission as error:
        raise StorePermission("store not read", why=error.why, hint="run as the store's owner") from error
    layout.config_files = [
        f"{root}/config/{name}" for name in file_system.list(f"{root}/config") if name.endswith(".json")
    ]
    return layout


def _read_segments(file_system: FileSystem, layout: StoreLayout) -> None:
    directory = layout.paths.commit_log
    found: list[tuple[int, int, str]] = []
    for name in file_system.list(directory):
        path = f"{directory}/{name}"
        if name.endswith(ALLOCATING_SUFFIX):
            continue  # being prepared by a broker, or left by one that died
        if len(name) != NAME_DIGITS or not _is_number(name) or int(name) > OFFSET_MAX:
            layout.note(f"{path}: no file of a commit log")
            continue
        size = _file_size(file_system, path)
        if size > 0:
            found.append((int(name), size, path))
        elif size < 0:
            layout.note(f"{path}: no file")
    if not found:
        raise EmptyStore(
            "nothing to read",
            why=f"{directory} holds no file of a commit log",
            hint="no message was ever stored here, or commitlog/ was not copied",
        )
    found.sort()
    layout.segment_bytes = Counter(size for _, size, _ in found).most_common(1)[0][0]
    for (base, size, path), following in zip(found, [*found[1:], None], strict=True):
        end = base + size
        if following is None:
            end = max(end, base + layout.segment_bytes)
        elif following[0] < end:
            raise MixedSegments(
                "commit log not read",
                why=f"{path} has {size} bytes and reaches into {following[2]}",
                hint="the directory mixes files of stores with different mapped_file_size_commit_log; separate them",
            )
        elif following[0] > end:
            if size < layout.segment_bytes and following[0] >= base + layout.segment_bytes:
                end = base + layout.segment_bytes  # half copied
            if following[0] > end:
                layout.missing.append((end, following[0]))
        layout.segments.append(SegmentFile(path, base, end, size))


def _read_queues(file_system: FileSystem, layout: StoreLayout) -> None:
    root = queues_directory(layout.paths.root)
    sizes: Counter[int] = Counter()
    for topic in file_system.list(root):
        why = topic_error(topic)
        if why is not None:
            layout.note(f"{root}/{topic!a}: no topic: {why}")
            continue
        for queue in _names(file_system, f"{root}/{topic}", layout):
            queue_id = queue_id_of(queue)
            if queue_id is None:
                layout.note(f"{root}/{topic}/{queue}: no queue")
                continue
            files: dict[int, int] = {}
            for name in _names(file_system, f"{root}/{topic}/{queue}", layout):
                path = f"{root}/{topic}/{queue}/{name}"
                if len(name) != NAME_DIGITS or not _is_number(name) or int(name) > OFFSET_MAX:
                    layout.note(f"{path}: no file of a consume queue")
                    continue
                size = _file_size(file_system, path)
                if size < 0:
                    layout.note(f"{path}: no file")
                elif size > QUEUE_FILE_BYTES_MAX:
                    layout.note(f"{path}: {size} bytes, more than a file of a consume queue can have")
                else:
                    files[int(name)] = size
                    sizes[size] += size > 0 and size % CONSUME_QUEUE_ENTRY_BYTES == 0
            layout.queues[topic, queue_id] = files
    if sizes.total():
        layout.queue_file_bytes = sizes.most_common(1)[0][0]


def _read_index(file_system: FileSystem, layout: StoreLayout) -> None:
    directory = f"{layout.paths.root}/index"
    for name in _names(file_system, directory, layout):
        path = f"{directory}/{name}"
        if len(name) == INDEX_NAME_DIGITS and _is_number(name):
            layout.index_files.append((path, max(0, _file_size(file_system, path))))
        else:
            layout.note(f"{path}: no index file")


def _names(file_system: FileSystem, path: str, layout: StoreLayout) -> list[str]:
    """Return the names in a directory; none if it is not a directory."""
    try:
        return file_system.list(path)
    except StorePermission:
        raise
    except StoreError as error:
        layout.note(f"{path}: {error.why}")
        return []


def _file_size(file_system: FileSystem, path: str) -> int:
    """Return the size of a file that can be opened, -1 for a directory or a file that has gone."""
    try:
        file = file_system.open(path, writable=False)
    except StorePermission:
        raise
    except (FileNotFoundError, StoreError):
        return -1
    try:
        file.read(0, 1)
        return file.size()
    except StoreError:
        return -1
    finally:
        file.close()


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()
