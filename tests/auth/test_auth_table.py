"""Users and policies as one value, and its JSON."""

import msgspec
import pytest

from pocketmq.auth.auth_table import AuthContents, AuthTable, decode_contents, encode_contents
from pocketmq.auth.errors import AuthIllegal, PolicyNotFound, UserNotFound
from pocketmq.auth.policies import Policy, PolicyType, entry_of
from pocketmq.auth.users import User, UserStatus, UserType
from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.remoting.limits.user_limits import UserLimits

ALICE = User(username="alice", password="alice-secret", user_type=UserType.SUPER)
LIMITS = UserLimits(bytes_in_per_second=10, topics_max=0)
BOB = User(username="bob", password="bob-secret", user_status=UserStatus.DISABLE, limits=LIMITS)
POLICIES = (
    Policy((entry_of("Topic:orders*", ["Pub", "Sub"], "Allow", ["10.0.0.0/8", "::1"]), entry_of("*", ["All"], "Deny"))),
    Policy((entry_of("Group:*", ["Sub"], "Allow"),), PolicyType.DEFAULT),
)
BOTH = AuthContents().with_user(ALICE).with_user(BOB).with_policies("bob", POLICIES)


def test_contents_are_read_as_they_were_written() -> None:
    assert decode_contents(encode_contents(BOTH)) == BOTH
    table = AuthTable()
    before = table.generation
    table.load(encode_contents(BOTH))
    assert table.contents == BOTH
    assert table.generation > before
    assert table.encode() == encode_contents(BOTH)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(BOTH)


def test_a_user_goes_with_the_policies() -> None:
    without = BOTH.without_user("bob")
    assert set(without.users) == {"alice"}
    assert without.policies == {}
    with pytest.raises(UserNotFound):
        without.policies_of("bob")
    with pytest.raises(UserNotFound):
        without.without_user("bob")


def test_entries_of_a_resource_can_be_removed() -> None:
    fewer = BOTH.entry_removed("bob", "Topic:orders*")
    assert [entry.resource for policy in fewer.policies_of("bob") for entry in policy.entries] == ["*", "Group:*"]
    assert "bob" not in fewer.entry_removed("bob", "*").entry_removed("bob", "Group:*").policies
    with pytest.raises(PolicyNotFound):
        BOTH.entry_removed("bob", "Topic:orders*", PolicyType.DEFAULT)


@pytest.mark.parametrize(
    "user",
    [
        User(username="", password="long enough"),
        User(username="a b", password="long enough"),
        User(username="x" * 65, password="long enough"),
        User(username="carol", password="short"),
        User(username="carol", password="a line\nend"),
        User(username="carol", password="x" * 300),
    ],
)
def test_what_cannot_be_a_user_is_refused_without_its_password(user: User) -> None:
    with pytest.raises(AuthIllegal) as refused:
        AuthContents().with_user(user)
    assert not user.password or user.password not in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.pop("users"),
        lambda body: body["users"].append(body["users"][0]),
        lambda body: body["users"][0].update(userType="King"),
        lambda body: body["users"][0].update(username=7),
        lambda body: body["acls"][0].update(subject="nobody"),
        lambda body: body["acls"][0]["policies"][0]["entries"][0].update(resource="Topic"),
        lambda body: body["acls"][0]["policies"][0]["entries"][0].update(sourceIps=["everywhere"]),
    ],
)
def test_a_damaged_file_raises_our_errors_only(change: object) -> None:
    body = msgspec.json.decode(encode_contents(BOTH))
    assert callable(change)
    change(body)
    with pytest.raises(DECODE_ERRORS):
        decode_contents(msgspec.json.encode(body))
    with pytest.raises(DECODE_ERRORS):
        decode_contents(encode_contents(BOTH)[:-2])


def test_users_and_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.auth.auth_table.USERS_MAX", 2)
    monkeypatch.setattr("pocketmq.auth.auth_table.ENTRIES_MAX", 2)
    with pytest.raises(AuthIllegal, match="2 users"):
        BOTH.with_user(User(username="carol", password="carol-secret"))
    assert BOTH.with_user(BOB) == BOTH, "a known one may change"
    with pytest.raises(AuthIllegal, match="at most 2"):
        BOTH.with_policies("alice", (*POLICIES, *POLICIES))
    with pytest.raises(AuthIllegal, match="source addresses"):
        entry_of("*", ["Pub"], "Allow", [f"10.0.{number}.0/24" for number in range(101)])
