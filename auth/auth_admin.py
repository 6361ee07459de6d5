"""Requests that look at users and policies, or change them: those of RocketMQ 5, and ours.

    admin = AuthAdmin(auth, log);  header, body = admin.serve(request, connection.remote)     # blocks

A change holds once it is durable. It takes effect with the next request, on open connections as well. Each one is
logged as ``auth_changed`` with who made it, and without any password.

Lives here: ``AuthAdmin``.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from pocketmq.auth.auth_table import AuthContents
from pocketmq.auth.errors import AccessDenied, AuthIllegal, NotSuper, PolicyNotFound
from pocketmq.auth.policies import Entry, Policy, PolicyType, entry_of
from pocketmq.auth.server_auth import ServerAuth
from pocketmq.auth.session import Session
from pocketmq.auth.trial import entry_info, try_out
from pocketmq.auth.users import User, UserStatus, UserType
from pocketmq.common.events import EventLog
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.limits.user_limits import NO_LIMITS, UserLimits
from pocketmq.remoting.protocol.acl import (
    AclInfo,
    AuthLogBody,
    DenialInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    WhoAmIBody,
)
from pocketmq.remoting.protocol.body import decode_body, encode_body

SUBJECT_PREFIX: Final = "User:"
Handler = Callable[[Request, str], bytes]


class AuthAdmin:
    """The handlers of one server. Worker threads: a change waits for the disk."""

    def __init__(self, auth: ServerAuth, log: EventLog) -> None:
        self._auth = auth
        self._log = log
        self.handlers: Mapping[int, Handler] = {
            RequestCode.AUTH_CREATE_USER: self._create_user,
            RequestCode.AUTH_UPDATE_USER: self._update_user,
            RequestCode.AUTH_DELETE_USER: self._delete_user,
            RequestCode.AUTH_GET_USER: self._get_user,
            RequestCode.AUTH_LIST_USER: self._list_users,
            RequestCode.AUTH_CREATE_ACL: self._create_acl,
            RequestCode.AUTH_UPDATE_ACL: self._update_acl,
            RequestCode.AUTH_DELETE_ACL: self._delete_acl,
            RequestCode.AUTH_GET_ACL: self._get_acl,
            RequestCode.AUTH_LIST_ACL: self._list_acls,
            RequestCode.AUTH_LOG: self._denials,
            RequestCode.WHOAMI: self._who_am_i,
            RequestCode.AUTH_TEST: self._test,
            RequestCode.AUTH_CONTENTS: self._contents,
        }
        """Request code → (request, address of its sender) → body of the answer; raises ``PocketMQError``."""

    # ---- users -----------------------------------------------------------------------------------------------------

    def _create_user(self, request: Request, remote: str) -> bytes:
        info = decode_body(request.body, UserInfo)
        name = self._name(request, info)
        user = User(
            username=name,
            password=info.password or "",
            user_type=_user_type(info.user_type or UserType.NORMAL.value),
            user_status=_user_status(info.user_status or UserStatus.ENABLE.value),
            limits=_changed(NO_LIMITS, info.limits),
        )
        self.check_super(request, user)
        self.check_inner(name)

        def change(contents: AuthContents) -> AuthContents:
            if name in contents.users:
                raise AuthIllegal("The user is existed")
            return contents.with_user(user)

        return self.change(request, remote, change, "create user", name)

    def _update_user(self, request: Request, remote: str) -> bytes:
        info = decode_body(request.body, UserInfo)
        name = self._name(request, info)

        def change(contents: AuthContents) -> AuthContents:
            before = contents.user(name)
            after = User(
                username=name,
                password=info.password or before.password,
                user_type=_user_type(info.user_type) if info.user_type else before.user_type,
                user_status=_user_status(info.user_status) if info.user_status else before.user_status,
                limits=_changed(before.limits, info.limits),
            )
            self.check_super(request, before)
            self.check_super(request, after)
            self.check_inner(name)
            return contents.with_user(after)

        return self.change(request, remote, change, "update user", name)

    def _delete_user(self, request: Request, remote: str) -> bytes:
        name = self._name(request)

        def change(contents: AuthContents) -> AuthContents:
            self.check_super(request, contents.user(name))
            return contents.without_user(name)

        return self.change(request, remote, change, "delete user", name)

    def _get_user(self, request: Request, remote: str) -> bytes:
        return encode_body(_user_info(self._auth.table.contents.user(self._name(request))))

    def _list_users(self, request: Request, remote: str) -> bytes:
        header: Any = request.header
        wanted = header.filter
        users = [user for name, user in sorted(self._auth.table.contents.users.items()) if wanted in name]
        return msgspec.json.encode([_user_info(user) for user in users])

    @staticmethod
    def _name(request: Request, info: UserInfo | None = None) -> str:
        header: Any = request.header
        name: str = header.username or (info.username if info is not None else "") or ""
        if not name:
            raise AuthIllegal("The username is blank")
        return name

    @staticmethod
    def check_super(request: Request, user: User) -> None:
        """Raise ``NotSuper`` if ``user`` is a super user, and who asks is not."""
        session: Session | None = request.session
        if user.is_super and (session is None or not session.user.is_super):
            raise NotSuper("The super user can only be create by super user")

    def check_inner(self, name: str) -> None:
        """Raise ``AuthIllegal`` if ``name`` is the user between servers: what is changed here would not count."""
        inner = self._auth.inner
        if inner is not None and name == inner.access_key:
            raise AuthIllegal(
                "user refused",
                why=f"{name} is the user between servers, whose secret is that of the settings",
                hint="change auth.inner_secret_key on all servers, or choose another name",
            )

    # ---- policies --------------------------------------------------------------------------------------------------

    def _create_acl(self, request: Request, remote: str) -> bytes:
        name, given = self._acl(request)

        def change(contents: AuthContents) -> AuthContents:
            for policy in given:
                for entry in policy.entries:
                    if any(
                        each.resource == entry.resource and old.policy_type is policy.policy_type
                        for old in contents.policies_of(name)
                        for each in old.entries
                    ):
                        raise AuthIllegal(
                            "policy refused",
                            why=f"{name} has an entry for {entry.resource} already",
                            hint="update it",
                        )
            return contents.with_policies(name, _merged(contents.policies_of(name), given))

        return self.change(request, remote, change, "create acl", name)

    def _update_acl(self, request: Request, remote: str) -> bytes:
        """Replace the entries for the resources that are given; keep the others (RocketMQ Acl.updatePolicy)."""
        name, given = self._acl(request)

        def change(contents: AuthContents) -> AuthContents:
            return contents.with_policies(name, _merged(contents.policies_of(name), given))

        return self.change(request, remote, change, "update acl", name)

    def _delete_acl(self, request: Request, remote: str) -> bytes:
        header: Any = request.header
        name = _user_of(header.subject)
        kind = _policy_type(header.policy_type) if header.policy_type else None

        def change(contents: AuthContents) -> AuthContents:
            if header.resource:
                resource = entry_of(header.resource, ["All"], "Allow").resource
                return contents.entry_removed(name, resource, kind)
            if not contents.policies_of(name):
                raise PolicyNotFound("The acl is not exist")
            kept = tuple(policy for policy in contents.policies_of(name) if kind not in (None, policy.policy_type))
            return contents.with_policies(name, kept)

        return self.change(request, remote, change, "delete acl", name)

    def _get_acl(self, request: Request, remote: str) -> bytes:
        header: Any = request.header
        name = _user_of(header.subject)
        return encode_body(_acl_info(name, self._auth.table.contents.policies_of(name)))

    def _list_acls(self, request: Request, remote: str) -> bytes:
        header: Any = request.header
        found = []
        for name, policies in sorted(self._auth.table.contents.policies.items()):
            info = _acl_info(name, policies, header.resource_filter)
            if header.subject_filter in f"{SUBJECT_PREFIX}{name}" and info.policies:
                found.append(info)
        return msgspec.json.encode(found)

    @staticmethod
    def _acl(request: Request) -> tuple[str, tuple[Policy, ...]]:
        header: Any = request.header
        info = decode_body(request.body, AclInfo)
        name = _user_of(header.subject or info.subject or "")
        policies = tuple(
            Policy(tuple(_entry(each) for each in policy.entries or ()), _policy_type(policy.policy_type or "Custom"))
            for policy in info.policies or ()
        )
        if not any(policy.entries for policy in policies):
            raise AuthIllegal("policy refused", why="it has no entry")
        return name, policies

    # ---- a look at access control ----------------------------------------------------------------------------------

    def _denials(self, request: Request, remote: str) -> bytes:
        header: Any = request.header
        denials = [each for each in reversed(self._auth.denials.copy()) if each.last_ms >= header.since_ms]
        chosen = denials[: max(0, min(header.count, 1_000))]
        return encode_body(
            AuthLogBody(
                denials=[
                    DenialInfo(
                        each.time_ms,
                        each.last_ms,
                        each.count,
                        each.user,
                        each.address,
                        each.code,
                        each.resource,
                        each.action,
                        each.why,
                    )
                    for each in chosen
                ]
            )
        )

    def _who_am_i(self, request: Request, remote: str) -> bytes:
        session: Session | None = request.session
        body = WhoAmIBody(address=remote, authorization=self._auth.config.authorization_enabled)
        body.table = self._auth.table.identity
        if session is not None:
            body.username, body.user_type = session.user.username, session.user.user_type.value
            body.how = session.how
        return encode_body(body)

    def _test(self, request: Request, remote: str) -> bytes:
        header: Any = request.header
        return encode_body(try_out(self._auth, header))

    def _contents(self, request: Request, remote: str) -> bytes:
        session: Session | None = request.session
        if session is None or not session.user.is_super:
            raise AccessDenied("users and policies not shown", why="they hold passwords", hint="ask as a super user")
        return self._auth.table.encode()

    # ---- changes ---------------------------------------------------------------------------------------------------

    def change(
        self, request: Request, remote: str, change: Callable[[AuthContents], AuthContents], what: str, name: str
    ) -> bytes:
        """Let what ``change`` makes of the contents hold, once it is durable; log who did it. Raise ``AuthIllegal`` or
        ``AuthNotWritten``."""
        if self._auth.guard is None:
            raise AuthIllegal(
                "nothing changed",
                why="this server knows no users",
                hint="start it with auth.authentication_enabled=true",
            )
        session: Session | None = request.session
        with self._auth.change_lock:
            contents = change(self._auth.table.contents)
            user = self._auth.table.contents.users.get(name)
            before = any(user.is_super and user.is_enabled for user in self._auth.table.contents.users.values())
            if before and not any(user.is_super and user.is_enabled for user in contents.users.values()):
                raise AuthIllegal(
                    "nothing changed", why=f"{name} is the last super user", hint="make another super user first"
                )
            if self._auth.file is not None:
                self._auth.file.save(contents)
            self._auth.table.replace(contents)
        self._log.info(
            "auth_changed",
            what=what,
            name=name,
            by="" if session is None else session.user.username,
            remote=remote,
            is_kept=self._auth.file is not None,
        )
        after = contents.users.get(name)
        if after is not None and after != user:
            self._auth.warn_of_weak_secrets([after])
        return b""


def _user_of(subject: str) -> str:
    if not subject.startswith(SUBJECT_PREFIX) or subject == SUBJECT_PREFIX:
        raise AuthIllegal("policy refused", why=f"subject {subject[:80]!r}", hint="like User:alice")
    return subject[len(SUBJECT_PREFIX) :]


def _user_type(text: str) -> UserType:
    try:
        return UserType(text.capitalize())
    except ValueError:
        raise AuthIllegal("user refused", why=f"type {text[:80]!r}", hint="Super or Normal") from None


def _user_status(text: str) -> UserStatus:
    try:
        return UserStatus(text.lower())
    except ValueError:
        raise AuthIllegal("user refused", why=f"status {text[:80]!r}", hint="enable or disable") from None


def _policy_type(text: str) -> PolicyType:
    try:
        return PolicyType(text.capitalize())
    except ValueError:
        raise AuthIllegal("policy refused", why=f"type {text[:80]!r}", hint="Custom or Default") from None


def _user_info(user: User) -> UserInfo:
    return UserInfo(user.username, "", user.user_type.value, user.user_status.value, _limits_info(user.limits))


def _limits_info(limits: UserLimits) -> dict[str, int] | None:
    given = {name: getattr(limits, name) for name in limits.__struct_fields__}
    return {name: value for name, value in given.items() if value is not None} or None


def _changed(limits: UserLimits, given: Mapping[str, int] | None) -> UserLimits:
    """Return the limits with those that are given; one below 0 is as the settings say again."""
    unknown = [name for name in given or () if name not in UserLimits.__struct_fields__]
    if unknown:
        raise AuthIllegal(
            "user refused", why=f"there is no limit {unknown[0][:80]!r}", hint=", ".join(UserLimits.__struct_fields__)
        )
    try:
        changed = {name: None if value < 0 else value for name, value in (given or {}).items()}
        return msgspec.structs.replace(limits, **changed)
    except ValueError as error:
        raise AuthIllegal("user refused", why=str(error)) from None


def _entry(info: PolicyEntryInfo) -> Entry:
    return entry_of(info.resource or "", info.actions or (), info.decision or "", info.source_ips or ())


def _acl_info(name: str, policies: tuple[Policy, ...], resource: str = "") -> AclInfo:
    parts = [
        PolicyInfo(
            policy.policy_type.value, [entry_info(entry) for entry in policy.entries if resource in entry.resource]
        )
        for policy in policies
    ]
    return AclInfo(f"{SUBJECT_PREFIX}{name}", [part for part in parts if part.entries])


def _merged(known: tuple[Policy, ...], given: tuple[Policy, ...]) -> tuple[Policy, ...]:
    """Return the policies with ``given`` entries in the place of those for the same resource, one policy a type."""
    merged = []
    for kind in PolicyType:
        entries = {entry.resource: entry for policy in known if policy.policy_type is kind for entry in policy.entries}
        entries |= {entry.resource: entry for policy in given if policy.policy_type is kind for entry in policy.entries}
        if entries:
            merged.append(Policy(tuple(entries.values()), kind))
    return tuple(merged)
