"""Buffers of other runs below a pool's path: whose they are, and whether anything uses them.

Lives here: ``leftovers``. Nothing here opens a file for writing: what belongs to another store is named, never touched.
"""

from dataclasses import dataclass
from typing import Final

from pocketmq.common.errors import BytesIllegal
from pocketmq.store.commitlog.buffer_header import HEADER_BYTES, Header
from pocketmq.store.commitlog.buffer_record import NAME_PREFIX, OWNER, boot_id, process_start
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import StoreError

LEFTOVERS_MAX: Final = 16
"""More are not looked at."""


@dataclass(slots=True, frozen=True)
class Leftover:
    """``root``: the directory of the store that the buffers belong to, as their header says."""

    directory: str
    root: str
    size_bytes: int


def leftovers(files: FileSystem, base: str, own: str) -> list[Leftover]:
    """Return the directories of runs whose process is dead, except ``own``. Those whose header cannot be read are not
    reported: they may be another user's. A process in a container of its own counts as dead: its pid is not ours.
    """
    found: list[Leftover] = []
    try:
        names = [name for name in files.list(base) if name.startswith(NAME_PREFIX)]
    except StoreError:
        return []
    boot = boot_id(files)
    for name in names:
        directory = f"{base.rstrip('/')}/{name}"
        if directory == own or len(found) == LEFTOVERS_MAX:
            continue
        try:
            identity = Header(files.open_private(f"{directory}/{OWNER}").read(0, HEADER_BYTES)).identity
        except (StoreError, BytesIllegal):
            continue
        start = process_start(files, identity.pid) if identity.boot_id == boot else ""
        if not start or start != identity.process_start:
            size_bytes = identity.buffers * (HEADER_BYTES + identity.buffer_bytes)
            found.append(Leftover(directory, identity.root, size_bytes))
    return found
