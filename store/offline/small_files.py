"""The small files of a store: checkpoint, positions, damage, settings in JSON.

Lives here: reading them with a limit on their size, so that a wrong file under such a name costs no memory.
"""

import struct
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.store.checkpoint import Checkpoint, Positions, StorePaths
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import StoreError

SMALL_BYTES_MAX: Final = 64 << 20
"""Largest JSON file read: a million topics."""
_CHECKPOINT_READ_BYTES: Final = 4096
_SECOND_PART = struct.Struct(">2q")


@dataclass(slots=True, frozen=True)
class CheckpointFile:
    """RocketMQ's checkpoint. The two offsets are those of RocketMQ 5.x (StoreCheckpoint), 0 in older files and ours."""

    checkpoint: Checkpoint
    master_flushed_offset: int
    confirm_offset: int
    size_bytes: int


def read_small(file_system: FileSystem, path: str) -> bytes | None:
    """Return a whole small file; None if it is missing, unreadable or above ``SMALL_BYTES_MAX``."""
    try:
        if file_system.size(path) > SMALL_BYTES_MAX:
            return None
        return file_system.read_all(path)
    except (FileNotFoundError, StoreError):
        return None


def read_json(file_system: FileSystem, path: str) -> Any:
    """Return the decoded content of a JSON file; None if there is none.

    RocketMQ's JSON (fastjson) may have numbers as keys, which is invalid JSON: such a file is returned as text.
    """
    data = read_small(file_system, path)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data)
    except DECODE_ERRORS:
        return data.decode("utf-8", "replace")


def read_positions(file_system: FileSystem, paths: StorePaths) -> Positions | None:
    """Return our positions, None if they are missing or not whole."""
    data = read_small(file_system, paths.positions)
    if data is None:
        return None
    return Positions.decode(data)


def read_checkpoint(file_system: FileSystem, paths: StorePaths) -> CheckpointFile | None:
    """Return the checkpoint file, None if it is missing or unreadable."""
    try:
        file = file_system.open(paths.checkpoint, writable=False)
    except (FileNotFoundError, StoreError):
        return None
    try:
        data = file.read(0, _CHECKPOINT_READ_BYTES)
        size = file.size()
    except StoreError:
        return None
    finally:
        file.close()
    flushed, confirmed = _SECOND_PART.unpack_from(data, 24) if len(data) >= 40 else (0, 0)
    return CheckpointFile(Checkpoint.decode(data), flushed, confirmed, size)
