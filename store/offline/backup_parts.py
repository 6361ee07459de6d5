"""Consume queues, index and small files of a backup.

Lives here: ``copy_queues``, ``copy_index``, ``read_small_set`` and ``write_small_set``. Each file is installed by
renaming, so the target has the old or the new one at every moment.

Consume queues are copied, not left to the rebuild: a queue whose messages retention has all removed has its next offset
only there. Entries of the log beyond the given end are left out; the start of a broker makes them again from the log.
"""

import posixpath
import struct
from typing import Final

import numpy as np

from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.consumequeue.consume_queue import ENTRY, ENTRY_BYTES, is_blank
from pocketmq.store.disk.file_system import FileSystem, StoreFile
from pocketmq.store.disk.queue_paths import queue_directory, queue_id_of, queues_directory, topic_directory, topic_error
from pocketmq.store.offline.errors import BackupFailed
from pocketmq.store.offline.files import copy_file
from pocketmq.store.offline.layout import INDEX_NAME_DIGITS
from pocketmq.store.offline.small_files import SMALL_BYTES_MAX

_NAME_DIGITS: Final = 20
_PIECE_BYTES: Final = (4 << 20) // ENTRY_BYTES * ENTRY_BYTES
TEMPORARY_NAME: Final = "backup.copying"
"""New files are written under this name in the target and then renamed: a start refuses it among queue files."""
_INDEX_HEADER: Final = struct.Struct(">qqqqii")
_SMALL_ENDINGS: Final = (".json", ".json.bak")
_SMALL_NAMES: Final = ("timercheck", "timermetrics")
_OF_ONE_RUN: Final = ("write_buffers.json", "positions.json")
"""Buffers belong to the original store; positions are written by the backup itself, last."""
SmallSet = dict[str, bytes]
"""Path below the store's root → content."""


# ---- consume queues


def copy_queues(source: FileSystem, from_root: str, target: FileSystem, to_root: str, end: int) -> int:
    """Copy every queue's entries for the log below ``end``; return how many. Queues that the source lacks are removed
    from the target.
    """
    count, kept = 0, set()
    for topic in source.list(queues_directory(from_root)):
        if topic_error(topic) is not None:
            continue
        for queue in source.list(topic_directory(from_root, topic)):
            queue_id = queue_id_of(queue)
            if queue_id is not None:
                directory = queue_directory(to_root, topic, queue_id)
                kept.add(directory)
                directories = (queue_directory(from_root, topic, queue_id), directory)
                count += _copy_queue(source, target, *directories, f"{to_root}/{TEMPORARY_NAME}", end)
    for topic in target.list(queues_directory(to_root)):
        for queue in target.list(f"{queues_directory(to_root)}/{topic}"):
            directory = f"{queues_directory(to_root)}/{topic}/{queue}"
            if directory not in kept:
                target.remove_tree(directory, below=to_root)
    return count


def _copy_queue(
    source: FileSystem, target: FileSystem, from_directory: str, to_directory: str, temporary: str, end: int
) -> int:
    count, wanted = 0, set()
    for name in source.list(from_directory):
        if len(name) != _NAME_DIGITS or not name.isdecimal():
            continue
        try:
            file = source.open(f"{from_directory}/{name}", writable=False)
        except FileNotFoundError:
            continue  # removed by retention, or with its topic
        try:
            size = file.size()
            copied = _copy_entries(file, size, target, f"{to_directory}/{name}", temporary, end)
        finally:
            file.close()
        if copied:
            wanted.add(name)
        count += copied
        if copied * ENTRY_BYTES < size:
            break  # later entries follow a gap
    for name in target.list(to_directory):
        if name not in wanted:
            target.remove(f"{to_directory}/{name}")
    return count


def _copy_entries(file: StoreFile, size: int, target: FileSystem, path: str, temporary: str, end: int) -> int:
    """Copy the entries of one file up to the first that was never written or lies beyond ``end``."""
    copy: StoreFile | None = None
    at = 0
    try:
        while at < size:
            data = file.read(at, min(_PIECE_BYTES, size - at))
            entries = np.frombuffer(data, ENTRY, len(data) // ENTRY_BYTES)
            offsets, sizes = entries["offset"].astype(np.int64), entries["size"].astype(np.int64)
            good = is_blank(entries) | ((sizes > 0) & (offsets >= 0) & (offsets + sizes <= end))
            count = len(good) if good.all() else int(np.argmin(good))
            if count:
                if copy is None:
                    target.make_dirs(posixpath.dirname(path))
                    copy = target.open(temporary, create=True)
                    copy.resize(0)
                    copy.resize(size)
                copy.write_at(at, entries[:count].view(np.uint8))
            at += count * ENTRY_BYTES
            if count < len(good) or count == 0:
                break
        if copy is not None:
            copy.sync()
    finally:
        if copy is not None:
            copy.close()
    if copy is not None:
        target.rename(temporary, path)
    return at // ENTRY_BYTES


# ---- index


def copy_index(
    source: FileSystem, from_root: str, target: FileSystem, to_root: str, indexed_to: int | None
) -> int | None:
    """Copy the files of the index; return up to which offset of the log all keys are in them, None if none was copied.

    ``indexed_to``: the source may be in use: only files before the last one whose keys were durable by then. None: all.
    """
    from_directory, to_directory = f"{from_root}/index", f"{to_root}/index"
    names = [name for name in source.list(from_directory) if len(name) == INDEX_NAME_DIGITS and name.isdecimal()]
    done: dict[str, int] = {}
    for name in names if indexed_to is None else names[:-1]:
        path = f"{from_directory}/{name}"
        try:
            header = source.read_all(path) if source.size(path) < _INDEX_HEADER.size else _head(source, path)
        except FileNotFoundError:
            continue  # removed by retention
        if len(header) < _INDEX_HEADER.size:
            continue
        begin, end = _INDEX_HEADER.unpack_from(header)[2:4]
        if indexed_to is not None and not 0 <= begin <= end <= indexed_to:
            break
        if not _is_same(source, path, target, f"{to_directory}/{name}", header):
            try:
                copy_file(target, path, f"{to_root}/{TEMPORARY_NAME}", source)
            except FileNotFoundError:
                continue
            target.make_dirs(to_directory)
            target.rename(f"{to_root}/{TEMPORARY_NAME}", f"{to_directory}/{name}")
        done[name] = end
    for name in target.list(to_directory):
        if name not in done:
            target.remove(f"{to_directory}/{name}")
    return max(done.values(), default=None)


def _is_same(source: FileSystem, path: str, target: FileSystem, copy: str, header: bytes) -> bool:
    """Return whether the copy is of the same file: a file has another header after every change."""
    return target.exists(copy) and target.size(copy) == source.size(path) and _head(target, copy) == header


def _head(files: FileSystem, path: str) -> bytes:
    file = files.open(path, writable=False)
    try:
        return file.read(0, _INDEX_HEADER.size)
    finally:
        file.close()


# ---- small files


def read_small_set(files: FileSystem, root: str) -> SmallSet:
    """Return the tables in ``config/`` and ``pocketmq/``: topics, groups, offsets, progress of delayed messages and
    transactions, epochs, users. The broker replaces each as a whole. Call it before the end of the log is read: then
    none of them speaks of anything that is not in the copied log.
    """
    found: SmallSet = {}
    for directory in ("config", "pocketmq"):
        for name in files.list(f"{root}/{directory}"):
            if name in _OF_ONE_RUN or not (name.endswith(_SMALL_ENDINGS) or name in _SMALL_NAMES):
                continue
            path = f"{root}/{directory}/{name}"
            try:
                if files.size(path) > SMALL_BYTES_MAX:
                    raise BackupFailed("backup not finished", why=f"{path} has more than {SMALL_BYTES_MAX:,} bytes")
                found[f"{directory}/{name}"] = files.read_all(path)
            except FileNotFoundError:
                continue  # a backup (.bak) that was replaced just now: the file itself is there
    return found


def write_small_set(files: FileSystem, root: str, found: SmallSet) -> None:
    """Install them, durably, and remove those that the source no longer has.

    All with mode 0600: ``auth.json`` holds passwords, and a name may be a link to what only its reader may read.
    """
    for name, data in sorted(found.items()):
        _replace_private(files, f"{root}/{name}", data)
    for directory in ("config", "pocketmq"):
        for name in files.list(f"{root}/{directory}"):
            if f"{directory}/{name}" not in found and name not in _OF_ONE_RUN:
                files.remove(f"{root}/{directory}/{name}")


def _replace_private(files: FileSystem, path: str, data: bytes) -> None:
    """Replace a file that only its owner may read."""
    temporary = path + ".tmp"
    files.make_dirs(posixpath.dirname(path))
    files.remove(temporary)  # a leftover may have another mode
    file = files.open_private(temporary, create=True)
    try:
        file.write_at(0, data)
        file.sync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_dir(posixpath.dirname(path))


def left_out(files: FileSystem, paths: StorePaths) -> list[str]:
    """Return the names in the store's directory that a backup does not take."""
    taken = {"commitlog", "consumequeue", "index", "checksums", "config", "pocketmq", "checkpoint", "abort", "lock"}
    return [name for name in files.list(paths.root) if name not in taken and not name.startswith("backup.")]


def remove_parts(files: FileSystem, paths: StorePaths) -> None:
    """Empty the directory of a backup that was not finished; its marker stays. Raises ``StoreError``."""
    for name in ("commitlog", "consumequeue", "index", "checksums", "config", "pocketmq"):
        files.remove_tree(f"{paths.root}/{name}", below=paths.root)
    for path in (paths.checkpoint, paths.abort, paths.backup_note):
        files.remove(path)
