"""What would happen to a request that a user might make, and why: AUTH_TEST.

    body = try_out(auth, "DefaultCluster", AuthTestRequestHeader("app", "Topic:orders", "PULL_MESSAGE"))

It decides as the guard does, and changes nothing: no denial is noted.

Lives here: ``try_out``, ``entry_info``.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pocketmq.auth.config import codes_of
from pocketmq.auth.errors import AuthIllegal
from pocketmq.auth.guard import source_of
from pocketmq.auth.needed import ALL_NAMES, resource_of
from pocketmq.auth.policies import Entry, Match, Policy, Verdict, entry_of, parse_resource
from pocketmq.auth.rules import rules_of
from pocketmq.auth.stored import OF_ALL_TOPICS, RECORDS
from pocketmq.common.topics import TOPICS_OF_ALL
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.access import FROM_BROKER, SUB, Action, Resource
from pocketmq.remoting.protocol.acl import AuthTestBody, AuthTestRequestHeader, PolicyEntryInfo
from pocketmq.remoting.protocol.spec import Spec

if TYPE_CHECKING:
    from pocketmq.auth.server_auth import ServerAuth

_CODES: Final = {code.name: code for code in RequestCode}


def try_out(auth: "ServerAuth", header: AuthTestRequestHeader) -> AuthTestBody:
    """Return what this server would answer to ``header.username``. ``header.action`` is an action, or a request code by
    name or number, of which only the needs on the kind of ``header.resource`` are tried; ``needs`` of the answer has
    all. Raise ``UserNotFound`` or ``AuthIllegal``."""
    kind, match, name = parse_resource(header.resource)
    if kind is None or match is Match.PREFIX:
        raise AuthIllegal(
            "not tested",
            why=f"{header.resource!r} is not one resource",
            hint="like Topic:orders, or Topic:* for a request for all topics",
        )
    if match is Match.ANY:
        name = ALL_NAMES
    spec = _spec_of(header.action)
    needs = "" if spec is None else str(spec.access)
    body = _by_user(auth, header.username, spec) or _by_policies(auth, header, kind, name, spec)
    body.needs = needs
    return body


def _spec_of(text: str) -> Spec | None:
    """Return the row of a request code, given by name or number; None: the text is none of ours."""
    code = _CODES.get(text.strip().upper())
    if code is None and text.strip().isdecimal():
        number = int(text)
        if number not in PROTOCOL:
            raise AuthIllegal("not tested", why=f"there is no request code {number}", hint="see docs/protocol.md")
        return PROTOCOL[number]
    return None if code is None else PROTOCOL[code]


def _by_user(auth: "ServerAuth", username: str, spec: Spec | None) -> AuthTestBody | None:
    """Return the answer where no policy is asked; None: policies decide."""
    config = auth.config
    if not config.authentication_enabled:
        return AuthTestBody(allowed=True, why="nothing is checked: auth.authentication_enabled is off")
    if spec is not None and spec.access is FROM_BROKER:
        return AuthTestBody(allowed=False, why="a broker sends it, no user does")
    if spec is not None and spec.code in codes_of(config.authentication_whitelist):
        return AuthTestBody(allowed=True, why="anybody may send it: auth.authentication_whitelist")
    inner = auth.inner
    if inner is None or username != inner.access_key:
        user = auth.table.contents.user(username)
        if not user.is_enabled:
            return AuthTestBody(allowed=False, why=f"User:{user.username} is disabled.")
        if not user.is_super:
            return _by_settings(auth, spec)
    return AuthTestBody(allowed=True, why="a super user may do everything")


def _by_settings(auth: "ServerAuth", spec: Spec | None) -> AuthTestBody | None:
    if not auth.config.authorization_enabled:
        return AuthTestBody(allowed=True, why="each known user may: auth.authorization_enabled is off")
    if spec is None:
        return None
    if spec.code in codes_of(auth.config.authorization_whitelist):
        return AuthTestBody(allowed=True, why="each known user may send it: auth.authorization_whitelist")
    if not spec.access.needs:
        return AuthTestBody(allowed=True, why=f"it needs no right: {spec.access}")
    return None


def _by_policies(
    auth: "ServerAuth", header: AuthTestRequestHeader, kind: Resource, name: str, spec: Spec | None
) -> AuthTestBody:
    policies = auth.table.contents.policies_of(header.username)
    source = source_of(header.source) if header.source else None
    verdict = Verdict(True)
    for actions in _actions(header, kind, spec):
        if kind is Resource.TOPIC and name in TOPICS_OF_ALL and (SUB in actions if spec is None else _reads(spec)):
            return AuthTestBody(allowed=False, why=OF_ALL_TOPICS)
        verdict = rules_of(policies).decide(*resource_of(kind, name, actions), source)
        if not verdict.allowed:
            break
    if verdict.entry is None:
        return AuthTestBody(allowed=False, why=verdict.why)
    return AuthTestBody(
        allowed=verdict.allowed,
        why="an entry allows it" if verdict.allowed else verdict.why,
        entry=entry_info(verdict.entry),
        policy_type=_type_of(policies, verdict.entry),
    )


def _reads(spec: Spec) -> bool:
    return spec.answer in RECORDS


def _actions(header: AuthTestRequestHeader, kind: Resource, spec: Spec | None) -> Iterator[Action]:
    """Yield the actions, of each of which any one is enough."""
    if spec is None:
        try:
            wanted = entry_of(header.resource, [header.action], "Allow").actions
        except AuthIllegal as error:
            raise AuthIllegal(
                "not tested", why=error.why, hint=f"{error.hint}; or a request code, like SEND_MESSAGE_V2 or 310"
            ) from None
        yield wanted
        return
    found = [need.actions for need in spec.access.needs if need.resource is kind]
    if not found:
        code = RequestCode(spec.code).name
        raise AuthIllegal("not tested", why=f"{code} needs nothing of a {kind.value}", hint=f"it needs {spec.access}")
    yield from found


def entry_info(entry: Entry) -> PolicyEntryInfo:
    """Return an entry for the wire."""
    return PolicyEntryInfo(
        entry.resource, entry.action_names, [str(each) for each in entry.sources], entry.decision.value
    )


def _type_of(policies: tuple[Policy, ...], entry: Entry) -> str:
    return next((policy.policy_type.value for policy in policies if entry in policy.entries), "")
