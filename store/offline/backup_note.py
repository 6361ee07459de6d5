"""What a backup says about itself: ``backup.json`` in its directory.

Lives here: ``BackupNote``; in which state a target is (``target_state``); the marker of an unfinished one.

``backup.unfinished`` is there while the first backup into a directory runs, and stays after its death: a store with
that marker is not opened (``store.opening``). A later backup into the same directory needs no marker, because it is
a whole store at every moment (``backup``).
"""

from typing import Final, Literal

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.common.sealed_json import seal, unseal
from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.offline.errors import BackupRefused
from pocketmq.store.offline.small_files import read_small

NOTE_VERSION: Final = 1
LOCK_NAME: Final = "backup.lock"
TargetState = Literal["new", "unfinished", "backup"]


class BackupNote(msgspec.Struct, kw_only=True, frozen=True):
    """``begin_offset`` and ``end_offset``: the log that is in it. Below ``safe_offset`` its consume queues were
    complete. ``begun_ms``: everything acknowledged before that time is in it.
    """

    version: int = NOTE_VERSION
    source: str = ""
    segment_bytes: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    safe_offset: int = 0
    begun_ms: int = 0
    ended_ms: int = 0


def read_note(files: FileSystem, paths: StorePaths) -> BackupNote | None:
    """Return the note; None: there is none. Raises ``BackupRefused`` for one that cannot be read."""
    data = read_small(files, paths.backup_note)
    if data is None:
        if files.exists(paths.backup_note):
            raise BackupRefused("no backup made", why=f"{paths.backup_note} cannot be read", hint=_ANOTHER)
        return None
    try:
        note = msgspec.json.decode(unseal(data), type=BackupNote)
    except DECODE_ERRORS as error:
        raise BackupRefused("no backup made", why=f"{paths.backup_note}: {error}", hint=_ANOTHER) from error
    if note.version != NOTE_VERSION or not 0 <= note.begin_offset <= note.end_offset or note.segment_bytes < 0:
        raise BackupRefused("no backup made", why=f"{paths.backup_note} is not of this version", hint=_ANOTHER)
    return note


def write_note(files: FileSystem, paths: StorePaths, note: BackupNote) -> None:
    """Replace the note, durably."""
    files.replace(paths.backup_note, seal(msgspec.json.encode(note)))


def target_state(files: FileSystem, paths: StorePaths) -> TargetState:
    """Return what the target is. Raises ``BackupRefused`` for anything that a backup must not write into."""
    names = set(files.list(paths.root)) - {LOCK_NAME}
    if not names:
        return "new"
    if "backup.unfinished" in names:
        return "unfinished"
    if "backup.json" not in names:
        raise BackupRefused("no backup made", why=f"{paths.root} is not empty and holds no backup", hint=_ANOTHER)
    if "lock" in names:
        why = f"a broker has been started from the backup in {paths.root}: its log has gone its own way"
        raise BackupRefused("no backup made", why=why, hint=_ANOTHER)
    return "backup"


_ANOTHER: Final = "name a directory that does not exist"
