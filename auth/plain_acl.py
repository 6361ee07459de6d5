"""Accounts of RocketMQ 4.9's ``plain_acl.yml`` as users and policies.

    plain = read_plain_acl(Path("plain_acl.yml").read_bytes());  plain.accounts[0].user

As RocketMQ 5.3's ``AuthMigrator`` does it: an admin becomes a super user, the permissions of topics and groups custom
entries, the defaults default entries for ``Topic:*`` and ``Group:*``; DENY denies all actions. Ours: the white list of
an account becomes an entry that allows everything from there (RocketMQ drops it; the signature is still needed), and
whatever cannot mean the same here is refused with its line, so that no account gets more than it had.

Lives here: ``PlainAcl``, ``PlainAccount``, ``read_plain_acl``, ``networks_of``, the entries for 4.9's permissions. The
file needs PyYAML (``pip install 'pocketmq[acl-import]'``).
"""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address, summarize_address_range
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from pocketmq.auth.errors import AuthIllegal
from pocketmq.auth.policies import SOURCES_MAX, Entry, Match, Policy, PolicyType, entry_of
from pocketmq.auth.users import User, UserType, check_user
from pocketmq.common.errors import ConfigError

FILE_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 8
"""Levels of lists and mappings; RocketMQ's files have four."""
_WORDS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_ACTIONS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "PUB": (("Pub",), "Allow"),
    "SUB": (("Sub",), "Allow"),
    "PUB|SUB": (("Pub", "Sub"), "Allow"),
    "SUB|PUB": (("Pub", "Sub"), "Allow"),
    "DENY": (("All",), "Deny"),
}
_EVERYWHERE: Final = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_KEYS: Final = {
    "accessKey",
    "secretKey",
    "whiteRemoteAddress",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
}
Network = IPv4Network | IPv6Network
_T = TypeVar("_T")


class PlainAccount(msgspec.Struct, frozen=True):
    """One account of the file, as a user and policies."""

    user: User
    policies: tuple[Policy, ...] = ()


class PlainAcl(msgspec.Struct, frozen=True):
    """What a file says. ``notes``: what has no counterpart, or counts for more than it seems, with lines."""

    accounts: tuple[PlainAccount, ...]
    notes: tuple[str, ...]


class _Value(NamedTuple):
    """A value of the file; ``content``: a text, a list, a mapping by key, or None."""

    content: Any
    line: int


def read_plain_acl(data: bytes) -> PlainAcl:
    """Return the accounts of a file. Raise ``AuthIllegal``, which names the line; ``ConfigError`` without PyYAML."""
    if len(data) > FILE_BYTES_MAX:
        raise AuthIllegal("file refused", why=f"it has {len(data)} bytes", hint=f"at most {FILE_BYTES_MAX}")
    notes: list[str] = []
    top = _mapping(_parsed(data), "the file")
    for key, value in top.items():
        if key == "globalWhiteRemoteAddresses":
            notes += [
                f"line {each.line}: global white address {_text(each)}: not taken over, each client needs a user"
                for each in _list(value)
            ]
        elif key not in ("accounts", "dataVersion"):
            notes.append(f"line {value.line}: {key[:80]!r} is unknown, as to RocketMQ: left out")
    accounts: dict[str, PlainAccount] = {}
    for value in _list(top.get("accounts", _Value(None, 0))):
        account = _account(value, notes)
        name = account.user.username
        if name in accounts:
            raise _illegal(value, f"account {name} is there twice", "keep one of them")
        accounts[name] = account
    if not accounts:
        raise AuthIllegal("file refused", why="it has no accounts", hint="give RocketMQ 4.9's plain_acl.yml")
    return PlainAcl(tuple(accounts.values()), tuple(notes))


def _account(value: _Value, notes: list[str]) -> PlainAccount:
    fields = _mapping(value, "an account")
    notes += [
        f"line {each.line}: {key[:80]!r} is unknown, as to RocketMQ: left out"
        for key, each in fields.items()
        if key not in _KEYS
    ]
    missing = _Value(None, value.line)
    is_super = _flag(fields.get("admin", missing))
    user = User(
        username=_text(fields.get("accessKey", missing)),
        password=_text(fields.get("secretKey", missing)),
        user_type=UserType.SUPER if is_super else UserType.NORMAL,
    )
    _with_line(value, lambda: check_user(user))
    custom: dict[str, Entry] = {}
    for kind, key in (("Topic", "topicPerms"), ("Group", "groupPerms")):
        for each in _list(fields.get(key, missing)):
            entry = _with_line(each, partial(named_permission, kind, _text(each)))
            custom[entry.resource] = entry  # the last one counts, as in RocketMQ
    addresses = fields.get("whiteRemoteAddress", missing)
    networks = _with_line(addresses, lambda: networks_of(_text(addresses)))
    if networks is not None and not is_super:
        custom["*"] = white_entry(networks)
        where = _text(addresses) if networks else "everywhere"
        notes.append(f"line {addresses.line}: {user.username} may do everything from {where}, as in RocketMQ")
    default = tuple(
        _with_line(fields[key], partial(permission, resource, _text(fields[key])))
        for resource, key in (("Topic:*", "defaultTopicPerm"), ("Group:*", "defaultGroupPerm"))
        if key in fields and _text(fields[key])
    )
    if is_super and (custom or default):
        notes.append(f"line {value.line}: {user.username} is an admin: its permissions restrict it no longer")
    policies = (Policy(tuple(custom.values())), Policy(default, PolicyType.DEFAULT))
    return PlainAccount(user, tuple(policy for policy in policies if policy.entries))


# ---- permissions ---------------------------------------------------------------------------------------------------


def permission(resource: str, text: str) -> Entry:
    """Return the entry for a permission of 4.9, such as ``PUB|SUB`` or ``DENY``. Raise ``AuthIllegal``."""
    meaning = _ACTIONS.get(text.strip())
    if meaning is None:
        raise AuthIllegal("policy refused", why=f"{text[:80]!r} is no permission", hint=f"one of {', '.join(_ACTIONS)}")
    actions, decision = meaning
    return entry_of(resource, actions, decision)


def named_permission(kind: str, text: str) -> Entry:
    """Return the entry for ``name=PUB|SUB``; ``kind``: Topic or Group. Raise ``AuthIllegal``."""
    name, separator, allowed = text.partition("=")
    if not separator or not name.strip() or "*" in name:
        hint = f"like {kind.lower()}=PUB|SUB, without *"
        raise AuthIllegal("policy refused", why=f"{text[:80]!r} is no permission", hint=hint)
    return permission(f"{kind}:{name.strip()}", allowed)


def is_plain(entry: Entry) -> bool:
    """Return whether 4.9 could say this: a permission of a topic or a group or all of them, or a white list."""
    if entry.kind is None:
        return entry == white_entry(entry.sources)
    if entry.match is Match.PREFIX or entry.sources:
        return False
    return any(
        entry.action_names == list(actions) and entry.decision.value == decision
        for actions, decision in _ACTIONS.values()
    )


def white_entry(networks: tuple[Network, ...]) -> Entry:
    """Return the entry for the white list of an account."""
    return entry_of("*", ["All"], "Allow", map(str, networks))


# ---- addresses -----------------------------------------------------------------------------------------------------


def networks_of(text: str) -> tuple[Network, ...] | None:
    """Return the ranges of a white list: ``1.2.3.4``, ``1.2.3.*``, ``1.2.3.4-9``, ``1.2.3.{4,5}``, several with commas,
    IPv6 likewise. () means everywhere, None nowhere. Raise ``AuthIllegal``. (RocketMQ 4.9
    ``RemoteAddressStrategyFactory``.)"""
    text = text.strip()
    if not text:
        return None
    if text in _EVERYWHERE:
        return ()
    if text.endswith("}"):
        head, _, tail = text[:-1].partition("{")
        parts = [head + part.strip() for part in tail.split(",")]
    else:
        parts = text.split(",")
    found: list[Network] = []
    for part in parts:
        found += _range(part.strip(), text)
        if len(found) > SOURCES_MAX:
            raise AuthIllegal(
                "policy refused", why=f"{text[:80]!r} makes more than {SOURCES_MAX} ranges", hint="simplify it"
            )
    return tuple(found)


def _range(text: str, whole: str) -> list[Network]:
    separator, highest = (":", "ffff") if ":" in text else (".", "255")
    lows, highs = [], []
    is_open = False
    for part in text.split(separator):
        low, dash, high = part.partition("-")
        if part == "*":
            low, high = "0", highest
        elif is_open:  # 1.2.*.4 is no range
            raise _no_address(whole)
        elif not dash:
            high = low
        is_open = is_open or part == "*" or bool(dash)
        lows.append(low)
        highs.append(high)
    try:
        first, last = ip_address(separator.join(lows)), ip_address(separator.join(highs))
        return list(summarize_address_range(first, last))
    except (ValueError, TypeError):
        raise _no_address(whole) from None


def _no_address(text: str) -> AuthIllegal:
    return AuthIllegal(
        "policy refused", why=f"{text[:80]!r} is no address", hint="like 1.2.3.4, 1.2.3.*, 1.2.3.4-9 or 1.2.3.{4,5}"
    )


# ---- YAML, with lines ------------------------------------------------------------------------------------------------


def _parsed(data: bytes) -> _Value:
    """Every scalar as text: a secret of digits stays as it is written."""
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise ConfigError(
            "plain_acl.yml cannot be read", why="PyYAML is not installed", hint="pip install 'pocketmq[acl-import]'"
        ) from error
    try:
        depth = 0
        for event in yaml.parse(data, Loader=yaml.BaseLoader):
            line = event.start_mark.line + 1
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH_MAX:  # PyYAML's time and stack grow with it
                raise AuthIllegal("file refused", why=f"line {line}: more than {DEPTH_MAX} levels")
            if isinstance(event, yaml.AliasEvent):  # a few of them make a file of a kilobyte endless
                raise AuthIllegal("file refused", why=f"line {line}: an alias", hint="write it out")
        node = yaml.compose(data, Loader=yaml.BaseLoader)
        if node is None:
            return _Value(None, 1)
        return _value(yaml, node)
    except yaml.MarkedYAMLError as error:
        where = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        raise AuthIllegal("file refused", why=f"{where}{error.problem}", hint="it must be YAML") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise AuthIllegal("file refused", why=f"no YAML: {type(error).__name__}") from None


def _value(yaml: Any, node: Any) -> _Value:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return _Value([_value(yaml, each) for each in node.value], line)
    if isinstance(node, yaml.MappingNode):
        found: dict[str, _Value] = {}
        for key, each in node.value:
            name = str(key.value)
            if name in found:
                raise AuthIllegal("file refused", why=f"line {key.start_mark.line + 1}: {name[:80]!r} is there twice")
            found[name] = _value(yaml, each)
        return _Value(found, line)
    is_empty = node.style is None and node.value in ("", "~", "null", "Null", "NULL")
    return _Value(None if is_empty else node.value, line)


def _mapping(value: _Value, what: str) -> dict[str, _Value]:
    if not isinstance(value.content, dict):
        raise _illegal(value, f"{what} is no mapping", "give RocketMQ 4.9's plain_acl.yml")
    return value.content


def _list(value: _Value) -> list[_Value]:
    if value.content is None:
        return []
    if not isinstance(value.content, list):
        raise _illegal(value, "a list is missing here", "lines that begin with -")
    return value.content


def _text(value: _Value) -> str:
    if value.content is None:
        return ""
    if not isinstance(value.content, str):
        raise _illegal(value, "a text is missing here", "quote it")
    return value.content.strip()


def _flag(value: _Value) -> bool:
    text = _text(value).lower()
    if text and text not in _WORDS:
        raise _illegal(value, "admin is neither true nor false", "true or false")
    return _WORDS.get(text, False)


def _with_line(value: _Value, call: Callable[[], _T]) -> _T:
    try:
        return call()
    except AuthIllegal as error:
        raise _illegal(value, error.why or str(error), error.hint or "") from None


def _illegal(value: _Value, why: str, hint: str) -> AuthIllegal:
    return AuthIllegal("file refused", why=f"line {value.line}: {why}", hint=hint)
