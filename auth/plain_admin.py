"""The requests with which RocketMQ 4.9's tools change its ``plain_acl.yml``: accounts become users and policies.

    plain = PlainAclAdmin(admin);  body = plain.handlers[code](request, connection.remote)     # blocks

As ``plain_acl`` reads the file: an admin is a super user, permissions are custom entries, defaults are default ones, a
white list an entry for ``*``. A field that is missing stays as it is; ``admin`` always counts, as in
RocketMQ, whose tool sends false unless it is told ``-m true``. Entries that 4.9 cannot say (prefixes, sources, other
actions) are not replaced unseen: such a change is refused. So are global white addresses, since here nobody is let in
for an address alone.

Lives here: ``PlainAclAdmin``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pocketmq.auth.auth_admin import AuthAdmin, Handler
from pocketmq.auth.auth_table import AuthContents
from pocketmq.auth.errors import (
    AuthIllegal,
    PlainAccountNotDeleted,
    PlainAccountRefused,
    UserNotFound,
    WhiteAddressesRefused,
)
from pocketmq.auth.plain_acl import is_plain, named_permission, networks_of, permission, white_entry
from pocketmq.auth.policies import Entry, Match, Policy, PolicyType
from pocketmq.auth.users import User, UserStatus, UserType
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.limits.user_limits import NO_LIMITS
from pocketmq.remoting.protocol.access import Resource

_NAMED = ((Resource.TOPIC, "topic_perms"), (Resource.GROUP, "group_perms"))
_DEFAULTS = ((Resource.TOPIC, "default_topic_perm"), (Resource.GROUP, "default_group_perm"))


class PlainAclAdmin:
    """The handlers of one broker. Worker threads: a change waits for the disk."""

    def __init__(self, admin: AuthAdmin) -> None:
        self._admin = admin
        self.handlers: Mapping[int, Handler] = {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self._update,
            RequestCode.DELETE_ACL_CONFIG: self._delete,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self._white_addresses,
        }
        """Request code → (request, address of its sender) → body of the answer; raises ``PocketMQError``."""

    def _update(self, request: Request, remote: str) -> bytes:
        header: Any = request.header
        name: str = header.access_key

        def change(contents: AuthContents) -> AuthContents:
            before = contents.users.get(name)
            after = User(
                username=name,
                password=header.secret_key or ("" if before is None else before.password),
                user_type=UserType.SUPER if header.admin else UserType.NORMAL,
                user_status=UserStatus.ENABLE if before is None else before.user_status,
                limits=NO_LIMITS if before is None else before.limits,
            )
            self._admin.check_inner(name)
            for user in (before, after):
                if user is not None:
                    self._admin.check_super(request, user)
            changed = contents.with_user(after)
            return changed.with_policies(name, _policies(header, changed.policies_of(name), name))

        try:
            return self._admin.change(request, remote, change, "update account", name)
        except AuthIllegal as error:
            raise PlainAccountRefused(error.what, why=error.why, hint=error.hint) from error

    def _delete(self, request: Request, remote: str) -> bytes:
        header: Any = request.header
        name: str = header.access_key

        def change(contents: AuthContents) -> AuthContents:
            self._admin.check_super(request, contents.user(name))
            return contents.without_user(name)

        try:
            return self._admin.change(request, remote, change, "delete account", name)
        except UserNotFound as error:
            raise PlainAccountNotDeleted("account not deleted", why=error.what) from error
        except AuthIllegal as error:
            raise PlainAccountNotDeleted(error.what, why=error.why, hint=error.hint) from error

    def _white_addresses(self, request: Request, remote: str) -> bytes:
        header: Any = request.header
        if header.global_white_addrs.strip():
            raise WhiteAddressesRefused(
                "global white addresses refused",
                why="no address is let in without a user here",
                hint="give each client a user; updateAclConfig -w lets a user do everything from an address",
            )
        return b""


def _policies(header: Any, known: tuple[Policy, ...], name: str) -> tuple[Policy, ...]:
    """Return the policies of a user after a change. Raise ``AuthIllegal``."""
    custom, default = (
        {entry.resource: entry for policy in known if policy.policy_type is each for entry in policy.entries}
        for each in (PolicyType.CUSTOM, PolicyType.DEFAULT)
    )
    for kind, field in _NAMED:
        text = getattr(header, field)
        if text is not None:
            replaced = [entry for entry in custom.values() if entry.kind is kind and entry.match is not Match.ANY]
            _drop(custom, name, replaced)
            given = [named_permission(kind.value, part) for part in text.split(",") if part.strip()]
            custom |= {entry.resource: entry for entry in given}
    if header.white_remote_address is not None:
        networks = networks_of(header.white_remote_address)
        _drop(custom, name, [entry for entry in custom.values() if entry.kind is None])
        if networks is not None and not header.admin:
            custom["*"] = white_entry(networks)
    for kind, field in _DEFAULTS:
        text = getattr(header, field)
        if text:
            resource = f"{kind.value}:*"
            _drop(default, name, [entry for entry in default.values() if entry.resource == resource])
            default[resource] = permission(resource, text)
    return Policy(tuple(custom.values())), Policy(tuple(default.values()), PolicyType.DEFAULT)


def _drop(entries: dict[str, Entry], name: str, chosen: Sequence[Entry]) -> None:
    """Take out the chosen entries. Raise ``AuthIllegal`` for one that 4.9 could not have said."""
    for entry in chosen:
        if not is_plain(entry):
            raise AuthIllegal(
                "account not changed",
                why=f"{name} has an entry that RocketMQ 4.9 cannot say, for {entry.resource[:80]}",
                hint="change policies with pocketmq acl, or delete that entry first",
            )
        del entries[entry.resource]
