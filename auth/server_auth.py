"""Access control of one server: its users and policies, their file, its guard.

    auth = ServerAuth(config, path, cluster="DefaultCluster", clock=clock, log=log, refused=refused)
    auth.load()                      # blocks
    server.guard = auth.guard        # None where nothing is checked

Lives here: ``ServerAuth``.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pocketmq.auth.auth_file import AuthFile
from pocketmq.auth.auth_table import AuthContents, AuthTable, decode_contents
from pocketmq.auth.config import AuthConfig
from pocketmq.auth.denials import Denials
from pocketmq.auth.guard import AuthGuard
from pocketmq.auth.http_access import HttpAccess
from pocketmq.auth.users import User, UserType
from pocketmq.auth.weak_secrets import weak_users
from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.remoting.codec import Request
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.protocol.body import DataVersion
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.security.credentials import Credentials

FILE_NAME: Final = "auth.json"
"""Of a broker, in ``config`` of its store."""


class ServerAuth:
    """Access control of one server. ``load`` blocks; all else in the loop's thread unless it says so."""

    def __init__(
        self,
        config: AuthConfig,
        path: str,
        *,
        cluster: str,
        clock: Clock,
        log: EventLog,
        refused: RefusedRequests,
    ) -> None:
        """``path``: the file of users and policies if ``config`` names none; empty: there is none."""
        self.config = config
        self.table = AuthTable()
        self.denials = Denials(clock.now_ms)
        self.change_lock = threading.Lock()
        """Held over each change of users and policies."""
        path = config.auth_file or path
        self.file = AuthFile(path) if path and config.authentication_enabled else None
        self._log = log
        self._refused = refused
        self.file_mode = 0
        """Permissions of others on the file, when it was last looked at."""
        self._weak: tuple[int, Mapping[str, int]] = (0, {})
        self.guard = (
            AuthGuard(config, self.table, cluster=cluster, clock=clock, denials=self.denials, note=self._note)
            if config.authentication_enabled
            else None
        )
        """None where nothing is checked."""
        self.http = HttpAccess(self, cluster, clock)
        """Who may read the pages of this server's HTTP port; in that port's thread."""

    def share(self, other: "ServerAuth") -> None:
        """Let another server of this process have the same users, policies and denials, kept in this one's file."""
        other.table, other.denials, other.file = self.table, self.denials, self.file
        other.change_lock = self.change_lock
        if other.guard is not None:
            other.guard.table, other.guard.denials = self.table, self.denials

    @property
    def inner(self) -> Credentials | None:
        """The keys for this server's requests to other servers of the cluster; None: they need none."""
        return self.config.inner

    def load(self) -> None:
        """Read the file; where there is no user yet, make the first one of the settings. Blocks.

        Raise ``AuthFileUnreadable``, ``AuthNotWritten`` or ``AuthIllegal``.
        """
        if not self.config.authentication_enabled:
            return
        contents = (self.file.load() if self.file is not None else None) or AuthContents()
        config = self.config
        if not contents.users and config.init_username:
            first = User(username=config.init_username, password=config.init_password, user_type=UserType.SUPER)
            contents = contents.with_user(first)
            if self.file is not None:
                self.file.save(contents)
            self._log.info("first_user_made", user=first.username, path=str(self.file.path if self.file else ""))
        self.table.replace(contents)
        self.warn_of_weak_secrets(self._all_users())
        if not any(user.is_super and user.is_enabled for user in contents.users.values()):
            self._log.warning(
                "no_super_user",
                consequence="nobody can administrate this server" if contents.users else "every request is refused",
                hint="set auth.init_username and auth.init_password before the first start",
            )

    def look(self) -> None:
        """See whether others may read the file meanwhile, and say so once. Blocks; one thread at a time."""
        mode = 0 if self.file is None else self.file.others_mode()
        if mode and not self.file_mode and self.file is not None:
            self._log.warning(
                "auth_file_readable_by_others",
                file=str(self.file.path),
                mode=f"{mode:04o}",
                consequence="it holds passwords, and the next start refuses it",
                hint=f"chmod 600 {self.file.path}",
            )
        self.file_mode = mode

    def weak_secrets(self) -> Mapping[str, int]:
        """Return why → how many users have a secret that is easily guessed. Any thread."""
        generation, found = self._weak
        if generation != self.table.generation:
            generation = self.table.generation
            found = Counter(why for _, why in weak_users(self._all_users()))
            self._weak = generation, found
        return found

    def _all_users(self) -> Iterator[User]:
        inner = self.config.inner
        yield from self.table.contents.users.values()
        if inner is not None:
            yield User(username=inner.access_key, password=inner.secret_key)

    def warn_of_weak_secrets(self, users: Iterable[User]) -> None:
        """Log which of these users have a secret that is easily guessed."""
        for user, why in weak_users(users):
            self._log.warning("weak_secret", user=user, why=why, hint="pocketmq user update NAME --generate")

    def version(self) -> DataVersion:
        """Return when users and policies last changed, as far as a file knows; any thread but the loop's. Blocks."""
        changed_ms = 0
        if self.file is not None:
            with contextlib.suppress(FileNotFoundError):  # no user was ever made
                changed_ms = self.file.path.stat().st_mtime_ns // 1_000_000
        return DataVersion(changed_ms, self.table.generation)

    def mirror(self, data: bytes) -> None:
        """Take over a master's users and policies (AUTH_CONTENTS); they hold at once. Blocks.

        Raise ``DECODE_ERRORS`` or ``AuthNotWritten``; then nothing changes.
        """
        contents = decode_contents(data)
        with self.change_lock:
            if contents == self.table.contents:
                return
            if self.file is not None:
                self.file.save(contents)
            self.table.replace(contents)
        self._log.info("auth_mirrored", users=len(contents.users))

    def _note(self, connection: Connection, request: Request, error: PocketMQError) -> None:
        self._refused.note_request(request, connection.remote, error.code, error.cause, str(error))
