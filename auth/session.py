"""What one user may do from one address, as found out so far.

Lives here: ``Session``.
"""

from typing import Final

from pocketmq.auth.auth_table import AuthContents
from pocketmq.auth.denials import Denials
from pocketmq.auth.policies import Address, Verdict, decide
from pocketmq.auth.users import User
from pocketmq.common.bounds import bounded
from pocketmq.remoting.limits.user_limits import UserLimits
from pocketmq.remoting.protocol.access import Action, Resource

VERDICTS_MAX: Final = 10_000
"""Verdicts remembered; a full table starts again. A user names what it likes, so the table has a bound."""


@bounded("verdicts of a session", limit=VERDICTS_MAX, size="verdicts", entry_bytes=700, when_full="evicts")
class Session:
    """A user and an address, under one generation of users and policies. Any thread may ask."""

    __slots__ = ("_policies", "checks", "denials", "generation", "limits", "source", "user", "verdicts")

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
    ) -> None:
        """``checks``: whether policies count; else the user may do everything. ``limits``: how much the user may do;
        None: everything. ``denials``: notes what handlers refuse to the user."""
        self.limits = limits
        self.denials = denials
        self.user = user
        self.source = source
        self.generation = generation
        self.checks = checks and not user.is_super
        self.verdicts: dict[tuple[Resource, str, Action], Verdict] = {}
        self._policies = contents.policies.get(user.username, ())

    def verdict(self, kind: Resource, name: str, actions: Action) -> Verdict:
        """Return whether the user may do any one of ``actions``, and why."""
        known = self.verdicts.get((kind, name, actions))
        if known is None:
            known = decide(self._policies, kind, name, actions, self.source)
            if len(self.verdicts) >= VERDICTS_MAX:
                self.verdicts.clear()
            self.verdicts[kind, name, actions] = known
        return known

    def may(self, kind: Resource, name: str, actions: Action) -> bool:
        """Return whether the user may do any one of ``actions``."""
        return not self.checks or self.verdict(kind, name, actions).allowed
