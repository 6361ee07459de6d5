"""Errors of the store, and the translation of the operating system's errors.

Lives here: one class for each failure of the disk or the files, ``translated`` for ``OSError``.
"""

import errno
from typing import Final

from pocketmq.common.errors import Cause, MessageIllegal, PocketMQError, Stored


class StoreError(PocketMQError):
    """An operation of the store failed."""

    code = 14  # SERVICE_NOT_AVAILABLE
    default_cause = Cause.DISK_ERROR


class StoreFull(StoreError):
    """The file system has no space left; writing resumes once there is some."""

    retriable = True
    default_cause = Cause.DISK_FULL


class StoreReadOnly(StoreError):
    """The file system refuses writes."""

    retriable = True
    default_cause = Cause.READ_ONLY


class DiskError(StoreError):
    """The disk or the system failed a call (EIO, and every error without a class of its own)."""


class FileMissing(DiskError, FileNotFoundError):
    """A file or its directory is missing. Callers that expect this catch ``FileNotFoundError``."""


class StorePermission(StoreError):
    """The process may not read or write the store's files."""

    default_cause = Cause.NO_PERMISSION


class NotPrivate(StoreError):
    """A file that only this user may have written belongs to another one, or others may have written it."""

    default_cause = Cause.NO_PERMISSION


class BackupUnfinished(StoreError):
    """A directory is a backup that ended early, and not a whole store; nothing was changed."""

    default_cause = Cause.CORRUPT


class OutsideStore(StoreError):
    """A directory to be removed lies outside its owner's directory; nothing was removed."""

    default_cause = Cause.INTERNAL


class NotLeading(StoreError):
    """The log of a slave, or of a replaced master, accepts no messages (RocketMQ DefaultMessageStore)."""

    default_cause = Cause.NOT_MASTER


class StoreFenced(StoreError):
    """A sync failed: bytes appended since the last good one may not be on disk, so nothing more is accepted.

    Reads continue. Only a restart, which reads the log from the disk again, ends this state.
    """

    default_cause = Cause.FENCED


class StoreClosed(StoreError):
    """The store is not open (not yet, or no longer)."""

    default_cause = Cause.SHUTTING_DOWN


class StoreInUse(StoreError):
    """Another broker has the store open."""

    default_cause = Cause.CONFIG


class SegmentSizeMismatch(StoreError):
    """The size of a commit-log file differs from the settings."""

    default_cause = Cause.CONFIG


class StoreReplaced(StoreError):
    """Another directory or file is where this store was opened; what is appended would be lost with the process."""

    default_cause = Cause.DISK_ERROR


class CorruptStore(StoreError):
    """The store's files contradict each other; nothing was changed."""

    default_cause = Cause.CORRUPT


class SegmentNotReady(StoreError):
    """The next segment was not ready in time (RocketMQ's CREATE_MAPEDFILE_FAILED); nothing was stored."""

    code = 1  # SYSTEM_ERROR
    retriable = True


class NoWriteBuffer(SegmentNotReady):
    """The next segment was not made because no write buffer is free (``fast_fail_if_no_buffer_in_store_pool``)."""

    default_cause = Cause.NO_WRITE_BUFFER


class CommitFailing(StoreError):
    """The write buffers cannot be written to the log's files; nothing is accepted until they have been written."""

    retriable = True


class PageCacheBusy(StoreError):
    """The append lock has been held for too long (RocketMQ's OS_PAGE_CACHE_BUSY); nothing was stored."""

    code = 2  # SYSTEM_BUSY
    retriable = True
    default_cause = Cause.PAGE_CACHE_BUSY


class OffsetOutOfRange(StoreError):
    """A read of bytes below the log's start or beyond its committed end."""

    code = 1
    default_cause = Cause.BAD_REQUEST


class GroupTooLarge(MessageIllegal):
    """A group of records is larger than the store accepts at once; nothing of it was stored."""


_READ_ONLY: Final = (errno.EROFS,)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_MISSING: Final = (errno.ENOENT,)
_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
_PERMISSION: Final = (errno.EACCES, errno.EPERM)


def translated(error: OSError, what: str, path: str, stored: Stored = Stored.NO) -> StoreError:
    """Return the store's error for ``error``, to be raised ``from`` it."""
    why = f"{path}: {error.strerror or error}"
    if error.errno in _FULL:
        return StoreFull(what, why=why, hint="free space on the store's file system", stored=stored)
    if error.errno in _MISSING:
        return FileMissing(what, why=why, hint="find out what has removed it or its directory", stored=stored)
    if error.errno in _READ_ONLY:
        return StoreReadOnly(what, why=why, hint="see the kernel log for why it was remounted", stored=stored)
    if error.errno in _DESCRIPTORS:
        return DiskError(
            what,
            why=why,
            hint="raise the limit of open files (ulimit -n, LimitNOFILE); the disk is fine",
            stored=stored,
        )
    if error.errno in _PERMISSION:
        return StorePermission(what, why=why, hint="run as the store's owner", stored=stored)
    return DiskError(what, why=why, hint="see the kernel log and check the disk", stored=stored)
