"""All users and their policies, as one value that is replaced as a whole.

    table = AuthTable();  table.replace(table.contents.with_user(user))

Readers in any thread take ``contents`` once and use that; ``generation`` changes with each replacement, so that what
was derived from older contents can be told.

Lives here: ``AuthContents``, ``AuthTable``, the JSON that files, slaves and name servers carry.
"""

import itertools
import secrets
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from pocketmq.auth.errors import AuthIllegal, PolicyNotFound, UserNotFound
from pocketmq.auth.policies import ENTRIES_MAX, Policy, PolicyType, entry_of
from pocketmq.auth.rules import Policies
from pocketmq.auth.users import User, UserStatus, UserType, check_user
from pocketmq.remoting.limits.user_limits import NO_LIMITS, UserLimits

USERS_MAX: Final = 10_000
"""Users of one server; the limit is ours."""


_generations = itertools.count(1)


class AuthContents(msgspec.Struct, frozen=True):
    """Users by name, and their policies. Never changed: each change makes another value."""

    users: Mapping[str, User] = {}
    policies: Mapping[str, tuple[Policy, ...]] = {}
    """User name → policies; users without any are missing."""

    def user(self, name: str) -> User:
        """Return a user. Raise ``UserNotFound``."""
        user = self.users.get(name)
        if user is None:
            raise UserNotFound(f"The user {name[:80]} not exist.")
        return user

    def with_user(self, user: User) -> "AuthContents":
        """Return the contents with this user, new or changed. Raise ``AuthIllegal``."""
        check_user(user)
        if user.username not in self.users and len(self.users) >= USERS_MAX:
            raise AuthIllegal("user refused", why=f"there are {USERS_MAX} users", hint="delete some first")
        return AuthContents({**self.users, user.username: user}, self.policies)

    def without_user(self, name: str) -> "AuthContents":
        """Return the contents without a user and the user's policies. Raise ``UserNotFound``."""
        self.user(name)
        users = {each: user for each, user in self.users.items() if each != name}
        return AuthContents(users, {each: kept for each, kept in self.policies.items() if each != name})

    def with_policies(self, name: str, policies: tuple[Policy, ...]) -> "AuthContents":
        """Return the contents with ``policies`` as all that this user has. Raise ``UserNotFound``, ``AuthIllegal``."""
        self.user(name)
        entries = sum(len(policy.entries) for policy in policies)
        if entries > ENTRIES_MAX:
            raise AuthIllegal("policy refused", why=f"{entries} entries for {name}", hint=f"at most {ENTRIES_MAX}")
        kept = {each: policy for each, policy in self.policies.items() if each != name}
        if entries:
            kept[name] = Policies(policy for policy in policies if policy.entries)
        return AuthContents(self.users, kept)

    def policies_of(self, name: str) -> tuple[Policy, ...]:
        """Return a user's policies. Raise ``UserNotFound``."""
        self.user(name)
        return self.policies.get(name, ())

    def entry_removed(self, name: str, resource: str, policy_type: PolicyType | None = None) -> "AuthContents":
        """Return the contents without a user's entries for ``resource``. Raise ``PolicyNotFound``."""
        found = False
        kept = []
        for policy in self.policies_of(name):
            rest = policy.entries
            if policy_type in (None, policy.policy_type):
                rest = tuple(entry for entry in policy.entries if entry.resource != resource)
            found = found or len(rest) != len(policy.entries)
            kept.append(Policy(rest, policy.policy_type))
        if not found:
            raise PolicyNotFound(f"The acl of {name[:80]} for {resource[:80]} is not exist.")
        return self.with_policies(name, tuple(kept))


class AuthTable:
    """The users and policies of a server. ``replace`` in one thread at a time; readers in any."""

    def __init__(self, contents: AuthContents | None = None) -> None:
        self.contents = contents or AuthContents()
        self.identity = secrets.token_hex(8)
        self.generation = next(_generations)
        """Another number for each contents, in all tables; read it before ``contents``."""
        self.on_change: Callable[[], None] | None = None
        """Called after each replacement, in its thread."""

    def replace(self, contents: AuthContents) -> None:
        """Let ``contents`` hold from now on."""
        self.contents = contents
        self.generation = next(_generations)
        if self.on_change is not None:
            self.on_change()

    def encode(self) -> bytes:
        """Return the contents as JSON."""
        return encode_contents(self.contents)

    def load(self, data: bytes) -> None:
        """Replace the contents by those of ``encode``. Raise ``DECODE_ERRORS``."""
        self.replace(decode_contents(data))


# ---- JSON ---------------------------------------------------------------------------------------------------------


class EntryBody(msgspec.Struct, rename="camel", omit_defaults=True):
    """An entry as RocketMQ's AclInfo carries it."""

    resource: str
    actions: list[str]
    decision: str
    source_ips: list[str] = []


class PolicyBody(msgspec.Struct, rename="camel"):
    """A policy as RocketMQ's AclInfo carries it."""

    entries: list[EntryBody]
    policy_type: PolicyType = PolicyType.CUSTOM


class _AclBody(msgspec.Struct):
    subject: str
    policies: list[PolicyBody]


class _UserBody(msgspec.Struct, rename="camel", omit_defaults=True):
    username: str
    password: str
    user_type: UserType
    user_status: UserStatus
    limits: UserLimits = NO_LIMITS


class _FileBody(msgspec.Struct):
    users: list[_UserBody]
    acls: list[_AclBody] = []


def policy_body(policy: Policy) -> PolicyBody:
    """Return a policy for the wire or a file."""
    entries = [
        EntryBody(entry.resource, entry.action_names, entry.decision.value, [str(each) for each in entry.sources])
        for entry in policy.entries
    ]
    return PolicyBody(entries, policy.policy_type)


def policy_of(body: PolicyBody) -> Policy:
    """Return the policy of a body. Raise ``AuthIllegal``."""
    if len(body.entries) > ENTRIES_MAX:
        raise AuthIllegal("policy refused", why=f"{len(body.entries)} entries", hint=f"at most {ENTRIES_MAX}")
    entries = tuple(entry_of(each.resource, each.actions, each.decision, each.source_ips) for each in body.entries)
    return Policy(entries, body.policy_type)


def encode_contents(contents: AuthContents) -> bytes:
    """Return users and policies as JSON, passwords included: for files of mode 0600 and for slaves."""
    users = [
        _UserBody(user.username, user.password, user.user_type, user.user_status, user.limits)
        for user in contents.users.values()
    ]
    acls = [_AclBody(name, list(map(policy_body, policies))) for name, policies in contents.policies.items()]
    return msgspec.json.encode(_FileBody(users, acls))


def decode_contents(data: bytes) -> AuthContents:
    """Return the contents of ``encode_contents``. Raise ``DECODE_ERRORS``."""
    body = msgspec.json.decode(data, type=_FileBody)
    contents = AuthContents()
    users: dict[str, User] = {}
    for each in body.users:
        user = User(
            username=each.username,
            password=each.password,
            user_type=each.user_type,
            user_status=each.user_status,
            limits=each.limits,
        )
        check_user(user)
        if user.username in users:
            raise AuthIllegal("users refused", why=f"user {user.username} is there twice")
        users[user.username] = user
    if len(users) > USERS_MAX:
        raise AuthIllegal("users refused", why=f"{len(users)} users", hint=f"at most {USERS_MAX}")
    contents = AuthContents(users)
    policies: dict[str, tuple[Policy, ...]] = {}
    for acl in body.acls:
        checked = contents.with_policies(acl.subject, tuple(map(policy_of, acl.policies)))
        policies.update(checked.policies)
    return AuthContents(users, policies)
