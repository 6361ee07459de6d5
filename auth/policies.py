"""Policies: which user may do what with which topics, groups and clusters, from where.

    orders = Policy(entries=(entry_of("Topic:orders*", ["Pub"], "Allow", ["10.0.0.0/8"]),))
    verdict = decide(policies, Resource.TOPIC, "orders-eu", Action.PUB, ip_address("10.1.2.3"))

A resource is ``Topic:orders`` (that one), ``Topic:pre*`` (all whose names begin so), ``Topic:*`` (all of the kind), or
``*`` (all kinds). Of the entries that fit a request the best one decides: the user's own (Custom) before default ones,
a literal name before a prefix, a longer prefix before a shorter one, those before ``*``; then Deny before Allow. Where
no entry fits, the request is denied. (RocketMQ 5.3.3 ``AuthorizationHandler``; its comparator puts the shorter prefix
first, which its later versions mend.)

Lives here: ``Entry``, ``Policy``, ``Verdict``, ``entry_of``, ``decide``.
"""

import enum
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

import msgspec

from pocketmq.auth.errors import AuthIllegal
from pocketmq.remoting.protocol.access import Action, Resource

NAME_CHARACTERS_MAX: Final = 255
ENTRIES_MAX: Final = 1_000
"""Entries of one user."""
SOURCES_MAX: Final = 100
"""Source addresses of one entry."""
Address = IPv4Address | IPv6Address
_ALL: Final = Action(sum(action.value for action in Action))
_ACTIONS: Final = {action.name.capitalize(): action for action in Action if action.name} | {"All": _ALL, "Any": _ALL}
_KINDS: Final = {kind.value: kind for kind in Resource}


class Decision(enum.Enum):
    """What an entry says."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(enum.Enum):
    """Custom policies come before Default ones."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Match(enum.IntEnum):
    """How an entry names its resources; the better the match, the higher."""

    ANY = 0
    PREFIX = 1
    LITERAL = 2


class Entry(msgspec.Struct, frozen=True):
    """One rule. ``kind`` None: all kinds; ``name`` is without its ``*``; no ``sources``: from everywhere."""

    kind: Resource | None
    match: Match
    name: str
    actions: Action
    decision: Decision
    sources: tuple[IPv4Network | IPv6Network, ...] = ()

    @property
    def resource(self) -> str:
        """The resource as it is written."""
        if self.kind is None:
            return "*"
        return f"{self.kind.value}:{self.name}{'' if self.match is Match.LITERAL else '*'}"

    @property
    def action_names(self) -> list[str]:
        """The actions as they are written."""
        if self.actions == _ALL:
            return ["All"]
        return [action.name.capitalize() for action in Action if action in self.actions and action.name]

    def fits(self, kind: Resource, name: str, actions: Action, source: Address | None) -> bool:
        """Return whether the entry speaks about this request."""
        if not self.actions & actions or (self.kind is not None and self.kind is not kind):
            return False
        if self.match is Match.LITERAL:
            if name != self.name:
                return False
        elif not name.startswith(self.name):
            return False
        return self.is_from(source)

    def is_from(self, source: Address | None) -> bool:
        """Return whether the entry speaks about requests from this address."""
        return not self.sources or (source is not None and any(source in network for network in self.sources))


class Policy(msgspec.Struct, frozen=True):
    """Entries of one type."""

    entries: tuple[Entry, ...]
    policy_type: PolicyType = PolicyType.CUSTOM


class Verdict(msgspec.Struct, frozen=True):
    """Whether something is allowed, and the entry that decided; None: no entry fits."""

    allowed: bool
    entry: Entry | None = None

    @property
    def why(self) -> str:
        """RocketMQ's words for a refusal."""
        return "no matched policies." if self.entry is None else "the decision is deny."


NO_POLICY: Final = Verdict(False)


def entry_of(resource: str, actions: Iterable[str], decision: str, sources: Iterable[str] = ()) -> Entry:
    """Return the entry for texts as RocketMQ writes them. Raise ``AuthIllegal``."""
    kind, match, name = parse_resource(resource)
    wanted = Action(0)
    for text in actions:
        action = _ACTIONS.get(text.strip().capitalize())
        if action is None:
            raise _illegal(f"{text[:80]!r} is no action", f"one of {', '.join(_ACTIONS)}")
        wanted |= action
    if not wanted:
        raise _illegal(f"the entry for {resource[:80]!r} has no action", f"give some of {', '.join(_ACTIONS)}")
    try:
        decided = Decision(decision.strip().capitalize())
    except ValueError:
        raise _illegal(f"{decision[:80]!r} is no decision", "Allow or Deny") from None
    networks = []
    for text in sources:
        try:
            networks.append(ip_network(text.strip(), strict=False))
        except ValueError as error:
            raise _illegal(f"source {text[:80]!r}: {error}", "an address, or a range like 10.0.0.0/8") from None
    if len(networks) > SOURCES_MAX:
        raise _illegal(f"{len(networks)} source addresses", f"at most {SOURCES_MAX}")
    return Entry(kind, match, name, wanted, decided, tuple(networks))


def parse_resource(text: str) -> tuple[Resource | None, Match, str]:
    """Return kind, match and name (without ``*``) of a resource. Raise ``AuthIllegal``."""
    text = text.strip()
    if text == "*":
        return None, Match.ANY, ""
    kind_text, colon, name = text.partition(":")
    kind = _KINDS.get(kind_text.capitalize())
    if kind is None or not colon or not name:
        raise _illegal(f"{text[:80]!r} is no resource", "like Topic:orders, Topic:pre*, Group:*, Cluster:*, or *")
    if len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
        raise _illegal(f"{text[:80]!r} is no resource", f"at most {NAME_CHARACTERS_MAX} printable characters")
    if "*" in name[:-1]:
        raise _illegal(f"{text[:80]!r} is no resource", "a * may stand only at the end")
    if name == "*":
        return kind, Match.ANY, ""
    return (kind, Match.PREFIX, name[:-1]) if name.endswith("*") else (kind, Match.LITERAL, name)


def _illegal(why: str, hint: str) -> AuthIllegal:
    return AuthIllegal("policy refused", why=why, hint=hint)


def decide(policies: Sequence[Policy], kind: Resource, name: str, actions: Action, source: Address | None) -> Verdict:
    """Return what ``policies`` say about any one of ``actions`` on a resource, asked from ``source``. It looks at each
    entry; ``rules.Rules`` says the same faster."""
    for policy_type in PolicyType:
        fitting = [
            entry
            for policy in policies
            if policy.policy_type is policy_type
            for entry in policy.entries
            if entry.fits(kind, name, actions, source)
        ]
        if fitting:
            best = max(fitting, key=_rank)
            return Verdict(best.decision is Decision.ALLOW, best)
    return NO_POLICY


def _rank(entry: Entry) -> tuple[int, bool, int, bool]:
    return entry.match, entry.kind is not None, len(entry.name), entry.decision is Decision.DENY
