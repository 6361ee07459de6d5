"""The entries of one user, found by name: what ``policies.decide`` says, without a look at each entry.

    rules = rules_of(contents.policies_of("app"));  verdict = rules.decide(Resource.TOPIC, "orders", Action.PUB, source)

A literal name is looked up, then its beginnings as long as some prefix is, the longest first, then the entries for all
names. So a decision costs as much as the user has lengths of prefixes, and not as much as it has entries: a user with a
thousand entries names thousands of topics in one heartbeat, and the event loop decides on each.

Lives here: ``Rules``, ``Policies``, ``rules_of``.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

from pocketmq.auth.policies import NO_POLICY, Address, Decision, Entry, Match, Policy, PolicyType, Verdict
from pocketmq.remoting.protocol.access import Action, Resource

_Found = list[tuple[int, Entry]]
"""Entries for the same names, with the bits of their actions: a flag of ``enum`` takes ten times as long."""


class _Index:
    """The entries of one type of policy."""

    __slots__ = ("anys", "literals", "prefixes")

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.literals: dict[tuple[Resource | None, str], _Found] = {}
        self.anys: dict[Resource | None, _Found] = {}
        prefixes: dict[int, dict[tuple[Resource | None, str], _Found]] = {}
        for entry in entries:
            row = (entry.actions.value, entry)
            if entry.match is Match.LITERAL:
                self.literals.setdefault((entry.kind, entry.name), []).append(row)
            elif entry.match is Match.PREFIX:
                prefixes.setdefault(len(entry.name), {}).setdefault((entry.kind, entry.name), []).append(row)
            else:
                self.anys.setdefault(entry.kind, []).append(row)
        self.prefixes = sorted(prefixes.items(), reverse=True)

    def best(self, kind: Resource, name: str, bits: int, source: Address | None) -> Entry | None:
        """Return the entry that decides; None: none fits."""
        best = _best(self.literals.get((kind, name)), bits, source)
        if best is not None:
            return best
        for length, table in self.prefixes:
            if length <= len(name):
                best = _best(table.get((kind, name[:length])), bits, source)
                if best is not None:
                    return best
        return _best(self.anys.get(kind), bits, source) or _best(self.anys.get(None), bits, source)


def _best(rows: _Found | None, bits: int, source: Address | None) -> Entry | None:
    """Return the first entry that denies, else the first that allows."""
    allowing = None
    for actions, entry in rows or ():
        if actions & bits and entry.is_from(source):
            if entry.decision is Decision.DENY:
                return entry
            allowing = allowing or entry
    return allowing


class Rules:
    """All entries of a user. Never changed; any thread."""

    __slots__ = ("_types",)

    def __init__(self, policies: Sequence[Policy]) -> None:
        entries = {
            kind: [each for one in policies if one.policy_type is kind for each in one.entries] for kind in PolicyType
        }
        self._types = [_Index(of_type) for of_type in entries.values() if of_type]

    def decide(self, kind: Resource, name: str, actions: Action, source: Address | None) -> Verdict:
        """Return what the policies say about any one of ``actions`` on a resource, asked from ``source``."""
        bits = actions.value
        for index in self._types:
            best = index.best(kind, name, bits, source)
            if best is not None:
                return Verdict(best.decision is Decision.ALLOW, best)
        return NO_POLICY


class Policies(tuple[Policy, ...]):
    """A user's policies, with the rules that they are, made once for all sessions of the user."""

    @cached_property
    def rules(self) -> Rules:
        """The rules of these policies."""
        return Rules(self)


NO_RULES: Final = Rules(())


def rules_of(policies: Sequence[Policy]) -> Rules:
    """Return the rules of a user's policies."""
    if isinstance(policies, Policies):
        return policies.rules
    return Rules(policies) if policies else NO_RULES
