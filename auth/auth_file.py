"""The file of users and policies: replaced as a whole, synced, readable by its owner alone.

It has no backup that is taken by itself: an older one would give back rights that were taken away.

Lives here: ``AuthFile``.
"""

import os
import stat
from pathlib import Path
from typing import Final

from pocketmq.auth.auth_table import AuthContents, decode_contents, encode_contents
from pocketmq.auth.errors import AuthFileUnreadable, AuthNotWritten
from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.common.sealed_json import seal, unseal

FILE_BYTES_MAX: Final = 256 << 20
MODE: Final = 0o600


class AuthFile:
    """One file. Blocks; not for an event loop."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).expanduser()

    def load(self) -> AuthContents | None:
        """Return the contents; None: there is no file. Raise ``AuthFileUnreadable``."""
        try:
            status = self.path.stat()
            if stat.S_IMODE(status.st_mode) & 0o077:
                raise AuthFileUnreadable(
                    "users and policies not read",
                    why=f"others may read or write {self.path}, and it holds passwords",
                    hint=f"chmod 600 {self.path}",
                )
            if status.st_size > FILE_BYTES_MAX:
                raise AuthFileUnreadable("users and policies not read", why=f"{self.path} has {status.st_size} bytes")
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise AuthFileUnreadable(
                "users and policies not read", why=f"{self.path}: {error.strerror or error}"
            ) from error
        try:
            return decode_contents(unseal(data))
        except DECODE_ERRORS as error:
            raise AuthFileUnreadable(
                "users and policies not read",
                why=f"{self.path}: {error}",
                hint="repair it, or move it away: then only the users of the settings are known",
            ) from error

    def others_mode(self) -> int:
        """Return what the permissions of the file allow to others; 0: nothing, or there is no file. Blocks."""
        try:
            return stat.S_IMODE(self.path.stat().st_mode) & 0o077
        except OSError:
            return 0

    def save(self, contents: AuthContents) -> None:
        """Return when ``contents`` are durable. Raise ``AuthNotWritten``."""
        fresh = self.path.with_name(self.path.name + ".tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fresh.unlink(missing_ok=True)  # a leftover may have another mode
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(seal(encode_contents(contents)))
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self.path)
            directory = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise AuthNotWritten(
                "change of users or policies not made", why=f"{self.path}: {error.strerror or error}"
            ) from error
