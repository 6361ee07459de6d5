"""What the disk of a store allows, looked at before a daemon is ready.

Lives here: ``room_for_store``, which chooses the size of a new store's files on a small disk and refuses a disk without
room, and ``kept_line``, one line about what the store will keep.
"""

import os
from typing import Final

import msgspec

from pocketmq.cli.exit_codes import CannotStart
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.units import bytes_text
from pocketmq.store.commitlog.segment import NAME_DIGITS
from pocketmq.store.config import PAGE_BYTES, StoreConfig
from pocketmq.store.disk.disk_limits import DiskLimits, Space
from pocketmq.store.disk.file_system import FileSystem

SEGMENT_BYTES_MIN: Final = 16 << 20
"""The smallest file of the log that is chosen: it holds three of the largest messages."""
FILES_ON_DISK: Final = 16
"""A new store takes at most this part of the free bytes for each file of the log."""


def store_root(config: StoreConfig) -> str:
    """Return the store's directory as an absolute path."""
    return os.path.abspath(os.path.expanduser(config.store_path_root_dir))


def check_directory(root: str) -> None:
    """Raise ``CannotStart`` where the store's directory is, or would lie in, something else or a foreign directory.

    What else may be wrong (a disk that is read-only, a path that cannot be made) the opening of the store says. Blocks.
    """
    present = root
    while not os.path.lexists(present) and present != os.path.dirname(present):
        present = os.path.dirname(present)
    if not os.path.isdir(present):
        why = "it is no directory"
    elif present != root and not os.access(present, os.W_OK | os.X_OK) and not _is_read_only(present):
        why = "this user may not write in it"
    else:
        return
    at = present if present == root else f"{root} cannot be made in {present}"
    raise CannotStart("no directory for the store", why=f"{at}: {why}", hint="name another one: --data-dir DIR")


def _is_read_only(directory: str) -> bool:
    return bool(os.statvfs(directory).f_flag & os.ST_RDONLY)


def space_of(path: str, files: FileSystem) -> Space:
    """Return the room on the file system of ``path`` (of its nearest parent that exists), if it answers. Blocks."""
    try:
        while not files.exists(path) and path != os.path.dirname(path):
            path = os.path.dirname(path)
        return Space(*files.free_bytes(path))
    except (PocketMQError, OSError):  # the start will raise it
        return Space()


def room_for_store(config: StoreConfig, files: FileSystem, *, size_is_chosen: bool) -> StoreConfig:
    """Return the settings with the file size that this store has, or shall have. Blocks.

    ``size_is_chosen``: an operator has set ``mapped_file_size_commit_log``: it stays as it is. Else a store continues
    with the size that it has, and a new one begins with files of at most a sixteenth of the free bytes, from 16 MiB to
    the default. A member of a replicated pair begins with the default: both must have the same. Raises ``CannotStart``
    if a new store has no room for its first file.
    """
    root = store_root(config)
    directory = f"{root}/commitlog"
    present = _present_segment_bytes(directory, files)
    space = space_of(root, files)
    if not size_is_chosen:
        if present:
            config = msgspec.structs.replace(config, mapped_file_size_commit_log=present)
        elif config.broker_role == "ASYNC_MASTER" and space.is_known:
            config = msgspec.structs.replace(config, mapped_file_size_commit_log=_fitting(config, space.free_bytes))
    limits = DiskLimits(config)
    if present == 0 and space.is_known and not limits.has_room(space.free_bytes):
        raise CannotStart(
            "the disk has no room for a new store",
            why=f"{root}: {limits.no_room(space.free_bytes)}",
            hint=f"free {bytes_text(limits.next_file_bytes - space.free_bytes)} there, or name another directory "
            "(--data-dir)" + ("" if limits.segment_bytes <= SEGMENT_BYTES_MIN else ", or use smaller files"),
            cause=Cause.DISK_FULL,
        )
    return config


def kept_line(config: StoreConfig, files: FileSystem) -> str:
    """Return what the store keeps, for how long, and when the disk ends that. Blocks."""
    root, limits = store_root(config), DiskLimits(config)
    space = space_of(root, files)
    free = f", {bytes_text(space.free_bytes)} free" if space.is_known else ""
    hours = config.file_reserved_time
    kept = f"{hours // 24} days" if hours >= 48 and hours % 24 == 0 else f"{hours} hours"
    line = f"keeping messages for {kept} in {root} (files of {bytes_text(limits.segment_bytes)}{free})"
    if limits.may_force:
        return f"{line}; a full disk deletes the oldest messages, read or not"
    return f"{line}; below {bytes_text(limits.free_bytes_min)} free sends are refused, and nothing younger is deleted"


def _fitting(config: StoreConfig, free_bytes: int) -> int:
    """Return the largest power of two that is a sixteenth of the free bytes, between 16 MiB and the default."""
    size = SEGMENT_BYTES_MIN
    while size * 2 * FILES_ON_DISK <= free_bytes:
        size *= 2
    return min(size, config.mapped_file_size_commit_log)


def _present_segment_bytes(directory: str, files: FileSystem) -> int:
    """Return the file size of the log that is there; 0 without one, or if it does not show.

    Two names show it. A single file may have been cut: only a power of two is believed, and the opening names others.
    """
    try:
        names = sorted(name for name in files.list(directory) if len(name) == NAME_DIGITS and name.isdecimal())
        if len(names) > 1:
            return int(names[1]) - int(names[0])
        size = files.size(f"{directory}/{names[0]}") if names else 0
    except (PocketMQError, OSError):
        return 0
    return size if size >= PAGE_BYTES and size & (size - 1) == 0 else 0
