"""What one user may do from one address, as found out so far.

Lives here: ``Session``; ``Remembered``, which bounds what all sessions of a server remember together.
"""

import threading
import weakref
from typing import Final

from pocketmq.auth.auth_table import AuthContents
from pocketmq.auth.denials import Denials
from pocketmq.auth.policies import NAME_CHARACTERS_MAX, Address, Verdict
from pocketmq.auth.rules import rules_of
from pocketmq.auth.users import User
from pocketmq.common.bounds import bounded
from pocketmq.remoting.limits.user_limits import UserLimits
from pocketmq.remoting.protocol.access import Action, Resource

VERDICTS_MAX: Final = 10_000
"""Verdicts that a session remembers; a full table starts again. A user names what it likes, so the table has a bound.
A name longer than any policy can have is decided each time."""
ALL_VERDICTS_MAX: Final = 100_000
"""Those that all sessions of a server remember together: one user has as many sessions as it has addresses."""
ENTRY_BYTES: Final = 2_600
"""Of one verdict: a name of 255 characters outside of the BMP takes 1,100, and a pull has two."""
PULLED: Final = Verdict(True)


@bounded("verdicts of all sessions", limit=ALL_VERDICTS_MAX, size="count", entry_bytes=ENTRY_BYTES, when_full="evicts")
class Remembered:
    """How many verdicts the sessions of one server remember at most. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self.count = 0
        """Verdicts since all of them were forgotten."""

    def join(self, session: "Session") -> None:
        """Count the verdicts of a session, too."""
        with self._lock:
            self._sessions.add(session)

    def one_more(self) -> None:
        """Count a verdict that is about to be remembered; where there are too many, let all sessions forget first."""
        with self._lock:
            if self.count >= ALL_VERDICTS_MAX:
                self.count = 0
                for session in self._sessions:
                    session.verdicts.clear()
            self.count += 1


@bounded("verdicts of a session", limit=VERDICTS_MAX, size="verdicts", entry_bytes=ENTRY_BYTES, when_full="evicts")
class Session:
    """A user and an address, under one generation of users and policies. Any thread may ask."""

    __slots__ = (
        "__weakref__",
        "_remembered",
        "_rules",
        "checks",
        "denials",
        "generation",
        "how",
        "limits",
        "source",
        "user",
        "verdicts",
    )

    def __init__(
        self,
        user: User,
        source: Address | None,
        contents: AuthContents,
        generation: int,
        *,
        checks: bool,
        limits: UserLimits | None = None,
        denials: Denials | None = None,
        remembered: Remembered | None = None,
        how: str = "proof",
    ) -> None:
        """``checks``: whether policies count; else the user may do everything. ``limits``: how much the user may do;
        None: everything. ``denials``: notes what handlers refuse to the user. ``remembered``: of the server, for a
        session that is kept. ``how``: ``proof``, ``signature`` or ``certificate``."""
        self.limits = limits
        self.denials = denials
        self.user = user
        self.source = source
        self.generation = generation
        self.how = how
        self.checks = checks and not user.is_super
        self.verdicts: dict[tuple[Resource, str, Action] | tuple[int, str, str], Verdict] = {}
        """What was found out; of pulls that were let in, code, topic and group as well."""
        self._rules = rules_of(contents.policies.get(user.username, ()))
        self._remembered = remembered
        if remembered is not None and self.checks:
            remembered.join(self)

    def verdict(self, kind: Resource, name: str, actions: Action) -> Verdict:
        """Return whether the user may do any one of ``actions``, and why."""
        known = self.verdicts.get((kind, name, actions))
        if known is None:
            known = self._rules.decide(kind, name, actions, self.source)
            if len(name) <= NAME_CHARACTERS_MAX:
                self._remember((kind, name, actions), known)
        return known

    def let_in(self, pull: tuple[int, str, str]) -> None:
        """Remember that the user may make this pull: its code, topic and group."""
        if len(pull[1]) <= NAME_CHARACTERS_MAX and len(pull[2]) <= NAME_CHARACTERS_MAX:
            self._remember(pull, PULLED)

    def _remember(self, key: tuple[Resource, str, Action] | tuple[int, str, str], verdict: Verdict) -> None:
        if self._remembered is not None:
            self._remembered.one_more()
        if len(self.verdicts) >= VERDICTS_MAX:
            self.verdicts.clear()
        self.verdicts[key] = verdict

    def may(self, kind: Resource, name: str, actions: Action) -> bool:
        """Return whether the user may do any one of ``actions``."""
        return not self.checks or self.verdict(kind, name, actions).allowed
