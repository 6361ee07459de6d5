"""Which user a transactional id belongs to: the first one who has used it since the broker started.

A commit of a version makes it known as committed, whoever sends it, and what its owner stages for it afterwards counts
as delivered already. So a second user gets no say, until the first one is deleted or disabled. A super user may do
everything, and comes to own nothing.

Lives here: ``IdOwners``.
"""

from pocketmq.auth.errors import AccessDenied
from pocketmq.auth.guard import AuthGuard
from pocketmq.auth.session import Session
from pocketmq.broker.staged.staged_state import IDS_MAX
from pocketmq.common.bounds import bounded
from pocketmq.remoting.codec import Request


@bounded("owners of transactional ids", limit=IDS_MAX, size="users", entry_bytes=900, when_full="evicts")
class IdOwners:
    """The owners, in memory. One thread."""

    def __init__(self, guard: AuthGuard | None) -> None:
        """``guard``: knows the users; None where nothing is checked."""
        self._guard = guard
        self.users: dict[str, str] = {}
        """Transactional id → user."""
        self.ids: dict[str, dict[str, None]] = {}
        """User → its ids, the one that was used longest ago first. Where there are too many ids, one of the user with
        the most goes: so nobody drives out the ids of others with many of its own."""

    def check(self, request: Request, transactional_id: str) -> None:
        """Let the sender of ``request`` own the id if nobody does. Raise ``AccessDenied`` if another user does."""
        session: Session | None = request.session
        if session is None or self._guard is None or not session.checks:
            return
        name = session.user.username
        owner = self.users.get(transactional_id)
        if owner is not None and owner != name and self._guard.may_connect(owner):
            raise AccessDenied(
                f"User:{name} has no permission to use the transactional id {transactional_id[:80]!r}",
                why="another user has it",
                hint="use an id of your own, or disable the user that had it",
            )
        if owner is not None:
            self._forget(owner, transactional_id)
        elif len(self.users) >= IDS_MAX:
            most = max(self.ids, key=lambda user: len(self.ids[user]))
            self._forget(most, next(iter(self.ids[most])))
        self.users[transactional_id] = name
        self.ids.setdefault(name, {})[transactional_id] = None

    def _forget(self, owner: str, transactional_id: str) -> None:
        del self.users[transactional_id]
        of_owner = self.ids[owner]
        del of_owner[transactional_id]
        if not of_owner:
            del self.ids[owner]
