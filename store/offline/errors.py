"""Errors of a directory that should hold a store.

Lives here: one class for each reason why a directory cannot be opened or repaired offline.
"""

from pocketmq.common.errors import Cause
from pocketmq.store.errors import StoreError


class NotAStore(StoreError):
    """The directory is missing or holds no part of a store."""

    default_cause = Cause.BAD_REQUEST


class EmptyStore(StoreError):
    """A store without a single commit-log file: nothing was ever written, or it was not copied."""

    default_cause = Cause.BAD_REQUEST


class MixedSegments(StoreError):
    """Commit-log files overlap: they come from stores with different file sizes."""

    default_cause = Cause.CORRUPT


class RepairRefused(StoreError):
    """A repair cannot begin, or its directory for copies is not empty; nothing was changed."""

    default_cause = Cause.BAD_REQUEST


class BackupRefused(StoreError):
    """A backup cannot begin: the target is in use, or the source cannot be copied; nothing was changed."""

    default_cause = Cause.BAD_REQUEST


class BackupFailed(StoreError):
    """A backup ended early. A directory that held an earlier backup still holds that one."""

    retriable = True
