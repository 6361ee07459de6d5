"""What a store remembers of its surviving write buffers, in ``<store>/pocketmq/write_buffers.json``.

Without it no buffer is read: a file in shared memory that says it belongs to this store proves nothing. The file is
JSON with its own CRC. It is replaced in one step, so the death of the process leaves the old or the new content; a
power cut may bring back an older one, whose buffers are gone with the machine.

Lives here: ``BufferRecord``, reading and writing it, the names of the directories; who this process is.
"""

import os
import posixpath
from typing import Final, Literal

import msgspec

from pocketmq.common.errors import DECODE_ERRORS, BytesIllegal
from pocketmq.common.sealed_json import seal, unseal
from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import StoreError

RECORD_VERSION: Final = 1
NAME_PREFIX: Final = "pocketmq-"
ID_BYTES: Final = 16
NAME_ID_CHARS: Final = 16
OWNER: Final = "owner"
LOCK: Final = "lock"
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class BufferRecord(msgspec.Struct, kw_only=True):
    """``store_id``: made once for a store. ``state``: ``open``: the run's buffers may hold what the log does not have;
    ``written``: it has all of it, and ``directory`` is to be removed; empty: there are none.

    ``root``: the store's directory at that time, to know a copy of the store from the store itself.
    """

    version: int = RECORD_VERSION
    store_id: str
    root: str
    run_id: str = ""
    directory: str = ""
    boot_id: str = ""
    buffers: int = 0
    buffer_bytes: int = 0
    state: Literal["open", "written", ""] = ""


def record_path(paths: StorePaths) -> str:
    """Return the file's path."""
    return f"{paths.own}/write_buffers.json"


def read_record(file_system: FileSystem, paths: StorePaths) -> BufferRecord | None:
    """Return the record, None if there is none. Raises ``BytesIllegal`` if it is damaged, disk errors."""
    try:
        data = file_system.read_all(record_path(paths))
    except FileNotFoundError:
        return None
    content = unseal(data)
    if content == data:
        raise BytesIllegal("file refused", why="it has no checksum")
    try:
        record = msgspec.json.decode(content, type=BufferRecord)
        int(record.store_id, 16), int(record.run_id or "0", 16)
    except DECODE_ERRORS as error:
        raise BytesIllegal("file refused", why=str(error)) from error
    if record.version != RECORD_VERSION or (record.state and len(record.run_id) != 2 * ID_BYTES):
        raise BytesIllegal("file refused", why=f"version {record.version} is not known")
    return record


def write_record(file_system: FileSystem, paths: StorePaths, record: BufferRecord) -> None:
    """Replace the record. Raises ``StoreError``."""
    file_system.replace(record_path(paths), seal(msgspec.json.encode(record)), durable=False)


def directory_of(base: str, store_id: str, run_id: str) -> str:
    """Return the directory of a run's buffers: no two runs ever share one."""
    return f"{base.rstrip('/')}/{NAME_PREFIX}{store_id[:NAME_ID_CHARS]}-{run_id[:NAME_ID_CHARS]}"


def remove_directory(file_system: FileSystem, directory: str) -> None:
    """Remove a run's directory. Raises ``StoreError``; run again, it continues."""
    file_system.remove_tree(directory, below=posixpath.dirname(directory))


def boot_id(file_system: FileSystem) -> str:
    """Return the id of this boot of the machine; empty where the system has none."""
    return _kernel_file(file_system, _BOOT_ID).strip()


def process_start(file_system: FileSystem, pid: int) -> str:
    """Return when a process began, in the kernel's ticks since the boot; empty if there is none, or it is unknown."""
    fields = _kernel_file(file_system, f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


def own_pid() -> int:
    """Return this process's id."""
    return os.getpid()


def _kernel_file(file_system: FileSystem, path: str) -> str:
    """Return a small file of the kernel, empty where there is none. Its reported size is 0."""
    try:
        file = file_system.open(path, writable=False)
        try:
            return file.read(0, 4096).decode("ascii", "replace")
        finally:
            file.close()
    except (OSError, StoreError):
        return ""
