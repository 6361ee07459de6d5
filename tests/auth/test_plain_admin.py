"""The requests of RocketMQ 4.9's tools that change accounts."""

from typing import Any

import msgspec
import pytest

from pocketmq.auth.auth_file import AuthFile
from pocketmq.auth.errors import (
    AuthNotWritten,
    PlainAccountNotDeleted,
    PlainAccountRefused,
    WhiteAddressesRefused,
)
from pocketmq.auth.plain_admin import PlainAclAdmin
from pocketmq.auth.policies import PolicyType, decide
from pocketmq.auth.users import UserStatus, UserType
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import JSON
from pocketmq.remoting.limits.user_limits import UserLimits
from pocketmq.remoting.protocol.access import Action, Resource
from pocketmq.remoting.protocol.acl import (
    DeletePlainAccountRequestHeader,
    PlainAccountRequestHeader,
    UserInfo,
    UserRequestHeader,
    WhiteAddressesRequestHeader,
)
from tests.auth.auth_rig import MANAGER, ROOT, Rig
from tests.auth.test_auth_admin import rig as rig

R = RequestCode
Account = PlainAccountRequestHeader
NEW = Account("app-user", "app-secret", None, False, "DENY", "SUB", "orders=PUB|SUB,audit=PUB", "billing=SUB")


def update(rig: Rig, header: PlainAccountRequestHeader, **how: object) -> None:
    rig.admin.handlers = {**rig.admin.handlers, **PlainAclAdmin(rig.admin).handlers}
    rig.ask(R.UPDATE_AND_CREATE_ACL_CONFIG, header, **how)  # type: ignore[arg-type]


def entries(rig: Rig, name: str = "app-user") -> dict[str, tuple[list[str], str, PolicyType]]:
    return {
        entry.resource: (entry.action_names, entry.decision.value, policy.policy_type)
        for policy in rig.auth.table.contents.policies_of(name)
        for entry in policy.entries
    }


def may(rig: Rig, kind: Resource, name: str, action: Action) -> bool:
    return decide(rig.auth.table.contents.policies_of("app-user"), kind, name, action, None).allowed


def test_an_account_becomes_a_user_with_policies_and_is_kept(rig: Rig) -> None:
    update(rig, NEW)
    user = rig.auth.table.contents.users["app-user"]
    assert (user.password, user.user_type, user.user_status) == ("app-secret", UserType.NORMAL, UserStatus.ENABLE)
    assert entries(rig) == {
        "Topic:orders": (["Pub", "Sub"], "Allow", PolicyType.CUSTOM),
        "Topic:audit": (["Pub"], "Allow", PolicyType.CUSTOM),
        "Group:billing": (["Sub"], "Allow", PolicyType.CUSTOM),
        "Topic:*": (["All"], "Deny", PolicyType.DEFAULT),
        "Group:*": (["Sub"], "Allow", PolicyType.DEFAULT),
    }
    assert may(rig, Resource.TOPIC, "audit", Action.PUB)
    assert not may(rig, Resource.TOPIC, "audit", Action.SUB)
    assert not may(rig, Resource.TOPIC, "payments", Action.PUB)
    assert may(rig, Resource.GROUP, "any", Action.SUB)
    assert AuthFile(str(rig.path)).load() == rig.auth.table.contents


def test_what_49_cannot_say_of_a_user_stays(rig: Rig) -> None:
    update(rig, NEW)
    limits = UserLimits(bytes_in_per_second=10, topics_max=0)
    info = UserInfo("app-user", "", "", "disable", {"bytes_in_per_second": 10, "topics_max": 0})
    rig.ask(R.AUTH_UPDATE_USER, UserRequestHeader("app-user"), info)
    update(rig, Account("app-user", "another-secret"))
    user = rig.auth.table.contents.users["app-user"]
    assert (user.password, user.user_status, user.limits) == ("another-secret", UserStatus.DISABLE, limits)


def test_a_missing_field_stays_and_an_empty_list_takes_all_away(rig: Rig) -> None:
    update(rig, NEW)
    before = entries(rig)
    update(rig, Account("app-user"))
    assert entries(rig) == before
    assert rig.auth.table.contents.users["app-user"].password == "app-secret"
    update(rig, Account("app-user", topic_perms="", default_group_perm="DENY"))
    assert entries(rig) == {
        "Group:billing": before["Group:billing"],
        "Topic:*": before["Topic:*"],
        "Group:*": (["All"], "Deny", PolicyType.DEFAULT),
    }
    update(rig, Account("app-user", "another-secret", topic_perms="later=SUB"))
    assert rig.auth.table.contents.users["app-user"].password == "another-secret"
    assert "Topic:later" in entries(rig)


def test_a_white_list_allows_everything_from_there_and_can_be_taken_away(rig: Rig) -> None:
    update(rig, msgspec.structs.replace(NEW, white_remote_address="10.0.0.*"))
    [white] = [
        entry
        for policy in rig.auth.table.contents.policies_of("app-user")
        for entry in policy.entries
        if entry.resource == "*"
    ]
    assert [str(each) for each in white.sources] == ["10.0.0.0/24"]
    update(rig, Account("app-user", white_remote_address=""))
    assert "*" not in entries(rig)


def test_an_admin_is_a_super_user_and_only_super_users_make_or_take_one(rig: Rig) -> None:
    update(rig, msgspec.structs.replace(NEW, admin=True, white_remote_address="*"))
    assert rig.auth.table.contents.users["app-user"].is_super
    assert "*" not in entries(rig), "a super user needs none, and would keep it as a normal one"
    for header in (
        Account("app-user"),
        Account("root", "taken-over", admin=True),
        Account("new-admin", "x" * 9, admin=True),
    ):
        with pytest.raises(PlainAccountRefused, match="super user"):
            update(rig, header, user=MANAGER)
    update(rig, Account("app-user"))  # the tool sends admin=false unless it is told otherwise
    assert not rig.auth.table.contents.users["app-user"].is_super
    with pytest.raises(PlainAccountRefused, match="last super user"):
        update(rig, Account("root"))


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (Account("app-user", "short"), "password"),
        (Account("app-user"), "password"),
        (Account("", "app-secret"), "blank"),
        (Account("app user", "app-secret"), "no name"),
        (Account("app-user*", "app-secret"), "no name"),
        (Account("app-user", "app-secret", topic_perms="orders=READ"), "'READ' is no permission"),
        (Account("app-user", "app-secret", topic_perms="orders"), "'orders' is no permission"),
        (Account("app-user", "app-secret", topic_perms="or*=PUB"), "is no permission"),
        (Account("app-user", "app-secret", topic_perms="=PUB"), "is no permission"),
        (Account("app-user", "app-secret", group_perms="*=SUB"), "is no permission"),
        (Account("app-user", "app-secret", default_topic_perm="ALL"), "'ALL' is no permission"),
        (Account("app-user", "app-secret", "1.2.*.4"), "no address"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason_and_changes_nothing(
    rig: Rig, header: PlainAccountRequestHeader, why: str
) -> None:
    before = rig.auth.table.contents
    with pytest.raises(PlainAccountRefused, match=why) as refused:
        update(rig, header)
    assert refused.value.code == 209
    assert "app-secret" not in str(refused.value)
    assert rig.auth.table.contents is before


@pytest.mark.parametrize(
    "entry",
    [
        {"resource": "Topic:pre*"},
        {"resource": "Topic:orders", "actions": ["Get"]},
        {"resource": "Topic:orders", "source_ips": ["10.0.0.1"]},
        {"resource": "Topic:orders", "decision": "Deny"},
    ],
)
def test_entries_that_4_9_cannot_say_are_not_replaced_unseen(rig: Rig, entry: dict[str, Any]) -> None:
    rig.make()
    rig.allow(**entry)
    before = rig.auth.table.contents
    with pytest.raises(PlainAccountRefused, match=r"alice has an entry that RocketMQ 4.9 cannot say.*pocketmq acl"):
        update(rig, Account("alice", topic_perms="other=PUB"))
    assert rig.auth.table.contents is before
    update(rig, Account("alice", group_perms="billing=SUB"))
    assert entries(rig, "alice").keys() == {entry["resource"], "Group:billing"}


def test_an_account_is_deleted_once(rig: Rig) -> None:
    update(rig, NEW)
    rig.ask(R.DELETE_ACL_CONFIG, DeletePlainAccountRequestHeader("app-user"))
    assert "app-user" not in rig.auth.table.contents.users
    for name in ("app-user", "root"):
        with pytest.raises(PlainAccountNotDeleted) as refused:
            rig.ask(R.DELETE_ACL_CONFIG, DeletePlainAccountRequestHeader(name))
        assert refused.value.code == 210
    with pytest.raises(PlainAccountNotDeleted, match="super user"):
        rig.ask(R.DELETE_ACL_CONFIG, DeletePlainAccountRequestHeader("root"), user=MANAGER)


def test_no_address_is_let_in_without_a_user(rig: Rig) -> None:
    update(rig, NEW)
    with pytest.raises(WhiteAddressesRefused, match="without a user") as refused:
        rig.ask(R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, WhiteAddressesRequestHeader("10.0.0.1,*"))
    assert refused.value.code == 211
    assert rig.ask(R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, WhiteAddressesRequestHeader(" ")) == b"", "there are none"


def test_a_change_that_the_disk_refuses_does_not_hold(rig: Rig) -> None:
    update(rig, NEW)
    before = rig.auth.table.contents
    (rig.path.parent / "auth.json.tmp").mkdir()
    with pytest.raises(AuthNotWritten):
        update(rig, Account("app-user", topic_perms=""))
    assert rig.auth.table.contents is before


def test_the_version_changes_with_each_change(rig: Rig) -> None:
    before = rig.auth.version()
    update(rig, NEW)
    after = rig.auth.version()
    assert after.counter > before.counter
    assert after.timestamp == rig.path.stat().st_mtime_ns // 1_000_000


def test_no_text_of_the_request_shows_the_secret() -> None:
    request = Request(R.UPDATE_AND_CREATE_ACL_CONFIG, 1, False, 0, 0, JSON, NEW, b"", {})
    assert "app-secret" not in repr(request) + repr(NEW) + str(NEW)
    assert ROOT.password not in repr(ROOT)
