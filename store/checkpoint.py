"""The state that a store keeps about itself between two runs.

Lives here: the paths of its files, the abort marker, the ``checkpoint`` file in RocketMQ's format, and our own exact
positions.

``checkpoint`` (RocketMQ StoreCheckpoint.java), 4096 bytes, big-endian; times are store timestamps in ms::

    i64 physicMsgTimestamp   i64 logicsMsgTimestamp   i64 indexMsgTimestamp   zeros
"""

import posixpath
import struct
from dataclasses import dataclass
from typing import Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.common.hashes import crc32
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import StoreError, StorePermission

CHECKPOINT_BYTES: Final = 4096
CHECKPOINT_SLACK_MS: Final = 3000
"""Subtracted from a checkpoint's time before use (RocketMQ StoreCheckpoint.getMinTimestamp)."""
POSITIONS_VERSION: Final = 1
_TIMES = struct.Struct(">3q")


@dataclass(slots=True, frozen=True)
class StorePaths:
    """Where the parts of a store are. ``pocketmq/`` and ``checksums/`` are ours, everything else is RocketMQ's."""

    root: str

    @property
    def commit_log(self) -> str:
        """The segments."""
        return f"{self.root}/commitlog"

    @property
    def checksums(self) -> str:
        """Group checksums."""
        return f"{self.root}/checksums"

    @property
    def own(self) -> str:
        """Files that only PocketMQ reads."""
        return f"{self.root}/pocketmq"

    @property
    def positions(self) -> str:
        """Exact positions."""
        return f"{self.own}/positions.json"

    @property
    def damage(self) -> str:
        """Known damage inside the log."""
        return f"{self.own}/damage.json"

    @property
    def deleted_topics(self) -> str:
        """Deleted topics, each with the end of the log at its deletion."""
        return f"{self.own}/deleted_topics.json"

    @property
    def quarantine(self) -> str:
        """Copies of bytes that recovery cut or found damaged."""
        return f"{self.own}/quarantine"

    @property
    def checkpoint(self) -> str:
        """RocketMQ's checkpoint."""
        return f"{self.root}/checkpoint"

    @property
    def abort(self) -> str:
        """Exists while the store is open, and still after a crash."""
        return f"{self.root}/abort"

    @property
    def lock(self) -> str:
        """Locked while the store is open."""
        return f"{self.root}/lock"

    @property
    def backup_note(self) -> str:
        """What a backup says about itself; only in copies made by ``pocketmq log backup``."""
        return f"{self.root}/backup.json"

    @property
    def backup_unfinished(self) -> str:
        """Exists in a copy that is not complete."""
        return f"{self.root}/backup.unfinished"


@dataclass(slots=True, frozen=True)
class Checkpoint:
    """Store timestamps (ms) up to which log, consume queues and index are durable; 0 is never."""

    physic_ms: int = 0
    logics_ms: int = 0
    index_ms: int = 0

    def encode(self) -> bytes:
        """Return the file's content."""
        return _TIMES.pack(self.physic_ms, self.logics_ms, self.index_ms).ljust(CHECKPOINT_BYTES, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> "Checkpoint":
        """Read the file's content; too short a file counts as never."""
        if len(data) < _TIMES.size:
            return cls()
        return cls(*(max(0, time) for time in _TIMES.unpack_from(data)))

    def safe_ms(self, index_safe: bool = False) -> int:
        """Return the time up to which everything is certainly durable."""
        times = [self.physic_ms, self.logics_ms, *([self.index_ms] if index_safe else [])]
        return max(0, min(times) - CHECKPOINT_SLACK_MS)


class Positions(msgspec.Struct, kw_only=True):
    """Exact positions at the last checkpoint or clean stop; offsets are physical, in bytes.

    Below ``recover_offset`` log and consume queues were durable: a recovery starts there. The index was durable up to
    ``indexed_offset``. ``queue_entries``: number of entries in all queues below ``recover_offset``, to detect lost
    files. ``clean``: the store was closed, and its log ends at ``end_offset`` with a group that starts at
    ``last_group_offset``.
    """

    version: int = POSITIONS_VERSION
    clean: bool = False
    segment_bytes: int = 0
    end_offset: int = 0
    recover_offset: int = 0
    indexed_offset: int = 0
    last_group_offset: int = 0
    last_store_timestamp: int = 0
    queue_entries: int = 0

    def encode(self) -> bytes:
        """Return the file's content: JSON with its own CRC."""
        inner = msgspec.json.encode(self)
        return b'{"positions":%b,"crc32":%d}\n' % (inner, crc32(inner))

    @classmethod
    def decode(cls, data: bytes) -> "Positions | None":
        """Read the file's content; None if it is incomplete or of another version."""
        try:
            outer = msgspec.json.decode(data, type=_PositionsFile)
            if crc32(bytes(outer.positions)) != outer.crc32:
                return None
            positions = msgspec.json.decode(outer.positions, type=cls)
        except DECODE_ERRORS:
            return None
        return positions if positions.version == POSITIONS_VERSION else None


class _PositionsFile(msgspec.Struct):
    positions: msgspec.Raw
    crc32: int


def read_checkpoint(file_system: FileSystem, paths: StorePaths) -> Checkpoint:
    """Return RocketMQ's checkpoint; zeros if it is missing or unreadable."""
    try:
        return Checkpoint.decode(file_system.read_all(paths.checkpoint))
    except (FileNotFoundError, StoreError):
        return Checkpoint()


def read_positions(file_system: FileSystem, paths: StorePaths) -> Positions | None:
    """Return our positions; None if they are missing or unreadable."""
    try:
        return Positions.decode(file_system.read_all(paths.positions))
    except (FileNotFoundError, StoreError):
        return None


def mark_open(file_system: FileSystem, paths: StorePaths, *, durable: bool) -> None:
    """Create the abort marker, before anything is appended.

    ``durable``: also against power loss, with the names of the store's directories. Without the marker an older clean
    stop would be trusted; without the directory names, synced files in them could not be found.
    """
    file_system.open(paths.abort, create=True).close()
    if durable:
        file_system.sync_dir(paths.root)
        try:
            file_system.sync_dir(posixpath.dirname(paths.root))
        except StorePermission:  # not readable for us: the creator of the store's directory had to sync it
            pass


def write_checkpoint(
    file_system: FileSystem, paths: StorePaths, checkpoint: Checkpoint, positions: Positions, *, durable: bool
) -> None:
    """Replace both files; everything they promise must be durable already. Positions, which take precedence, last."""
    file = file_system.open(paths.checkpoint, create=True)
    try:
        file.write_at(0, checkpoint.encode())
        if durable:
            file.sync()
    finally:
        file.close()
    file_system.replace(paths.positions, positions.encode(), durable=durable)
