"""Requests that look at users and policies, or change them."""

from pathlib import Path

import msgspec
import pytest

from pocketmq.auth.auth_file import AuthFile
from pocketmq.auth.errors import AccessDenied, AuthIllegal, AuthNotWritten, NotSuper, PolicyNotFound, UserNotFound
from pocketmq.remoting.protocol import acl
from pocketmq.remoting.protocol.body import decode_body
from tests.auth.auth_rig import MANAGER, R, Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_user_is_made_changed_listed_and_deleted(rig: Rig) -> None:
    rig.make()
    with pytest.raises(AuthIllegal, match="existed"):
        rig.make()
    shown = decode_body(rig.ask(R.AUTH_GET_USER, acl.UserRequestHeader("alice")), acl.UserInfo)
    assert shown == acl.UserInfo("alice", "", "Normal", "enable")
    rig.ask(R.AUTH_UPDATE_USER, acl.UserRequestHeader("alice"), acl.UserInfo("alice", "", "", "disable"))
    kept = rig.auth.table.contents.users["alice"]
    assert (kept.password, kept.is_enabled, kept.is_super) == ("alice-secret", False, False)
    listed = msgspec.json.decode(rig.ask(R.AUTH_LIST_USER, acl.ListUsersRequestHeader("")), type=list[acl.UserInfo])
    assert [user.username for user in listed] == ["alice", "root"]
    listed = msgspec.json.decode(rig.ask(R.AUTH_LIST_USER, acl.ListUsersRequestHeader("ali")), type=list[acl.UserInfo])
    assert [user.username for user in listed] == ["alice"]
    rig.ask(R.AUTH_DELETE_USER, acl.UserRequestHeader("alice"))
    with pytest.raises(UserNotFound):
        rig.ask(R.AUTH_GET_USER, acl.UserRequestHeader("alice"))
    assert AuthFile(str(rig.path)).load() == rig.auth.table.contents


def test_limits_of_a_user_are_given_changed_and_taken_back(rig: Rig) -> None:
    def shown() -> dict[str, int] | None:
        return decode_body(rig.ask(R.AUTH_GET_USER, acl.UserRequestHeader("alice")), acl.UserInfo).limits

    def update(**limits: int) -> None:
        rig.ask(R.AUTH_UPDATE_USER, acl.UserRequestHeader("alice"), acl.UserInfo("alice", "", "", "", limits))

    rig.make(limits={"bytes_in_per_second": 10, "topics_max": 0})
    assert shown() == {"bytes_in_per_second": 10, "topics_max": 0}
    rig.ask(R.AUTH_UPDATE_USER, acl.UserRequestHeader("alice"), acl.UserInfo("alice", "", "", "disable"))
    assert shown() == {"bytes_in_per_second": 10, "topics_max": 0}
    update(bytes_in_per_second=-1, groups_max=7)
    assert shown() == {"topics_max": 0, "groups_max": 7}
    assert AuthFile(str(rig.path)).load() == rig.auth.table.contents
    update(topics_max=-1, groups_max=-5)
    assert shown() is None
    for wrong in ({"bytes": 1}, {"topics_max": 1 << 60}):
        with pytest.raises(AuthIllegal, match="limit"):
            update(**wrong)


def test_no_answer_and_no_event_shows_a_password(rig: Rig) -> None:
    rig.make()
    rig.allow()
    answers = rig.ask(R.AUTH_LIST_USER, acl.ListUsersRequestHeader(""))
    answers += rig.ask(R.AUTH_LIST_ACL, acl.ListAclsRequestHeader("", ""))
    assert b"secret" not in answers
    for each in ("alice-secret", "root-secret"):
        assert each not in str(rig.log.events)
    changed = [
        values for event, values in ((each["event"], each) for each in rig.log.events) if event == "auth_changed"
    ]
    assert [(each["what"], each["name"], each["by"]) for each in changed] == [
        ("create user", "alice", "root"),
        ("create acl", "alice", "root"),
    ]


def test_only_a_super_user_makes_changes_or_deletes_super_users(rig: Rig) -> None:
    body = acl.UserInfo("eve", "eve-secret", "Super")
    with pytest.raises(NotSuper, match="The super user can only be create by super user"):
        rig.ask(R.AUTH_CREATE_USER, acl.UserRequestHeader("eve"), body, user=MANAGER)
    rig.make()
    for info in (acl.UserInfo("alice", "", "Super"), acl.UserInfo("root", "taken over")):
        with pytest.raises(NotSuper):
            rig.ask(R.AUTH_UPDATE_USER, acl.UserRequestHeader(info.username or ""), info, user=MANAGER)
    with pytest.raises(NotSuper):
        rig.ask(R.AUTH_DELETE_USER, acl.UserRequestHeader("root"), user=MANAGER)


def test_the_last_super_user_stays(rig: Rig) -> None:
    with pytest.raises(AuthIllegal, match="last super user"):
        rig.ask(R.AUTH_DELETE_USER, acl.UserRequestHeader("root"))
    for info in (acl.UserInfo("root", "", "Normal"), acl.UserInfo("root", "", "", "disable")):
        with pytest.raises(AuthIllegal, match="last super user"):
            rig.ask(R.AUTH_UPDATE_USER, acl.UserRequestHeader("root"), info)
    rig.make("second", "second-secret", user_type="Super")
    rig.ask(R.AUTH_DELETE_USER, acl.UserRequestHeader("root"))


def test_policies_are_made_changed_listed_and_deleted(rig: Rig) -> None:
    rig.make()
    rig.allow("Topic:orders")
    with pytest.raises(AuthIllegal, match="update it"):
        rig.allow("Topic:orders")
    rig.allow("Group:*", actions=["Sub"])
    rig.allow("Topic:orders", R.AUTH_UPDATE_ACL, decision="Deny")
    assert rig.resources() == ["Topic:orders", "Group:*"]
    listed = msgspec.json.decode(rig.ask(R.AUTH_LIST_ACL, acl.ListAclsRequestHeader("", "Topic")))
    assert [entry["decision"] for entry in listed[0]["policies"][0]["entries"]] == ["Deny"]
    rig.ask(R.AUTH_DELETE_ACL, acl.DeleteAclRequestHeader("User:alice", "", "Topic:orders"))
    assert rig.resources() == ["Group:*"]
    with pytest.raises(PolicyNotFound):
        rig.ask(R.AUTH_DELETE_ACL, acl.DeleteAclRequestHeader("User:alice", "Custom", "Topic:orders"))
    rig.ask(R.AUTH_DELETE_ACL, acl.DeleteAclRequestHeader("User:alice", "", ""))
    assert rig.resources() == []


@pytest.mark.parametrize("subject", ["alice", "User:", "Group:alice", "", "User:nobody"])
def test_policies_belong_to_users_that_exist(rig: Rig, subject: str) -> None:
    rig.make()
    body = acl.AclInfo("", [acl.PolicyInfo("Custom", [acl.PolicyEntryInfo("*", ["All"], [], "Allow")])])
    with pytest.raises(AuthIllegal):
        rig.ask(R.AUTH_CREATE_ACL, acl.AclRequestHeader(subject), body)


def test_the_user_between_servers_is_changed_in_the_settings_alone(tmp_path: Path) -> None:
    """Its password here would not count: after a change the old one would go on opening everything."""
    rig = Rig(tmp_path, init_username="rocketmq", inner_access_key="rocketmq", inner_secret_key="rocketmq-secret")
    for code, name in ((R.AUTH_UPDATE_USER, "rocketmq"), (R.AUTH_CREATE_USER, "rocketmq")):
        with pytest.raises(AuthIllegal, match="another name"):
            rig.ask(code, acl.UserRequestHeader(name), acl.UserInfo(name, "another-secret"))
    rig.make("other")


def test_who_am_i(rig: Rig) -> None:
    body = decode_body(rig.ask(R.WHOAMI), acl.WhoAmIBody)
    assert body == acl.WhoAmIBody("root", "Super", "proof", "10.0.0.1:5000", True, rig.auth.table.identity)


def test_the_last_denials_come_newest_first(rig: Rig) -> None:
    for name in ("one", "two", "two"):
        rig.auth.denials.note("policy", "alice", "10.0.0.1", 10, f"Topic:{name}", "Pub", "no matched policies.")
    body = decode_body(rig.ask(R.AUTH_LOG, acl.AuthLogRequestHeader(10)), acl.AuthLogBody)
    assert [(each.resource, each.count) for each in body.denials] == [("Topic:two", 2), ("Topic:one", 1)]


def test_all_contents_are_for_super_users_only(rig: Rig) -> None:
    assert b"root-secret" in rig.ask(R.AUTH_CONTENTS)
    with pytest.raises(AccessDenied):
        rig.ask(R.AUTH_CONTENTS, user=MANAGER)


def test_a_change_that_cannot_be_written_does_not_hold(rig: Rig) -> None:
    rig.path.unlink()
    rig.path.mkdir()
    with pytest.raises(AuthNotWritten):
        rig.make()
    assert set(rig.auth.table.contents.users) == {"root"}


def test_a_server_that_knows_no_users_makes_none(tmp_path: Path) -> None:
    rig = Rig(tmp_path, authentication_enabled=False, authorization_enabled=False)
    with pytest.raises(AuthIllegal, match="knows no users"):
        rig.make()
    assert not rig.path.exists()
