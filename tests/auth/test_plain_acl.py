"""RocketMQ 4.9's plain_acl.yml as users and policies."""

import sys

import pytest

from pocketmq.auth.errors import AuthIllegal
from pocketmq.auth.plain_acl import FILE_BYTES_MAX, networks_of, read_plain_acl
from pocketmq.auth.policies import PolicyType, decide
from pocketmq.auth.users import UserType
from pocketmq.common.errors import ConfigError
from pocketmq.remoting.protocol.access import Action, Resource

pytest.importorskip("yaml")

SHIPPED = b"""\
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""
"""The file in RocketMQ 4.9.8's distribution/conf."""


def account(lines: str) -> bytes:
    """Return a file with one account, which begins in line 2."""
    fields = "".join(f"    {line}\n" for line in ("secretKey: app-secret", *lines.splitlines()))
    return f"accounts:\n  - accessKey: app-user\n{fields}".encode()


def resources(data: bytes) -> dict[str, tuple[list[str], str, PolicyType]]:
    return {
        entry.resource: (entry.action_names, entry.decision.value, policy.policy_type)
        for policy in read_plain_acl(data).accounts[0].policies
        for entry in policy.entries
    }


def test_the_file_that_rocketmq_ships() -> None:
    plain = read_plain_acl(SHIPPED)
    app, admin = plain.accounts
    assert (app.user.username, app.user.password, app.user.user_type) == ("RocketMQ", "12345678", UserType.NORMAL)
    assert admin.user.user_type is UserType.SUPER
    assert not admin.policies
    custom, default = PolicyType.CUSTOM, PolicyType.DEFAULT
    assert resources(SHIPPED) == {
        "Topic:topicA": (["All"], "Deny", custom),
        "Topic:topicB": (["Pub", "Sub"], "Allow", custom),
        "Topic:topicC": (["Sub"], "Allow", custom),
        "Group:groupA": (["All"], "Deny", custom),
        "Group:groupB": (["Pub", "Sub"], "Allow", custom),
        "Group:groupC": (["Sub"], "Allow", custom),
        "Topic:*": (["All"], "Deny", default),
        "Group:*": (["Sub"], "Allow", default),
    }
    assert [note.partition(":")[0] for note in plain.notes] == ["line 2", "line 3"]


@pytest.mark.parametrize(
    ("kind", "name", "action", "is_allowed"),
    [
        (Resource.TOPIC, "topicA", Action.SUB, False),
        (Resource.TOPIC, "topicB", Action.PUB, True),
        (Resource.TOPIC, "topicC", Action.PUB, False),
        (Resource.TOPIC, "other", Action.SUB, False),
        (Resource.GROUP, "groupA", Action.SUB, False),
        (Resource.GROUP, "other", Action.SUB, True),
        (Resource.CLUSTER, "DefaultCluster", Action.UPDATE, False),
    ],
)
def test_what_an_account_may_do_stays(kind: Resource, name: str, action: Action, is_allowed: bool) -> None:
    policies = read_plain_acl(SHIPPED).accounts[0].policies
    assert decide(policies, kind, name, action, None).allowed is is_allowed


def test_a_secret_of_digits_stays_as_it_is_written() -> None:
    data = b"accounts:\n- {accessKey: app-user, secretKey: 00012345, admin: no}\n- {accessKey: on, secretKey: 1_000e10}"
    assert [each.user.password for each in read_plain_acl(data).accounts] == ["00012345", "1_000e10"]


def test_a_white_list_allows_everything_from_there() -> None:
    plain = read_plain_acl(account("whiteRemoteAddress: 10.1.2.*"))
    entry = plain.accounts[0].policies[0].entries[0]
    assert (entry.resource, entry.action_names, list(map(str, entry.sources))) == ("*", ["All"], ["10.1.2.0/24"])
    assert "may do everything from 10.1.2.*" in plain.notes[0]


def test_the_last_permission_of_a_name_counts_as_in_rocketmq() -> None:
    assert resources(account("topicPerms: [a=PUB, a=DENY]")) == {"Topic:a": (["All"], "Deny", PolicyType.CUSTOM)}


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("10.1.2.3", ["10.1.2.3/32"]),
        ("10.1.2.3, 10.9.9.9", ["10.1.2.3/32", "10.9.9.9/32"]),
        ("10.1.2.{4,5}", ["10.1.2.4/32", "10.1.2.5/32"]),
        ("10.1.2.*", ["10.1.2.0/24"]),
        ("10.1.*.*", ["10.1.0.0/16"]),
        ("10.1.2.4-9", ["10.1.2.4/30", "10.1.2.8/31"]),
        ("10.1.2-3.*", ["10.1.2.0/23"]),
        ("1050::5:600:300c:326b", ["1050::5:600:300c:326b/128"]),
        ("1050::5:600:300c:{1,200}", ["1050::5:600:300c:1/128", "1050::5:600:300c:200/128"]),
        ("1050::5:600:300c:*", ["1050::5:600:300c:0/112"]),
        ("1050::5:600:300c:10-1f", ["1050::5:600:300c:10/124"]),
    ],
)
def test_forms_of_addresses(text: str, ranges: list[str]) -> None:
    assert list(map(str, networks_of(text) or ())) == ranges


def test_everywhere_and_nowhere() -> None:
    assert networks_of("*") == networks_of("*.*.*.*") == ()
    assert networks_of(" ") is None


@pytest.mark.parametrize(
    "text",
    [
        "10.1.*.4",
        "10.1.2.9-4",
        "10.1.2.300",
        "10.1.2",
        "host",
        "1.2.3.{4-}",
        "1.2.3.{}",
        "a,",
        "-.*",
        "10.1.2.4-300",
        "::1-::2",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(AuthIllegal, match="is no address"):
        networks_of(text)


def test_a_white_list_that_makes_too_many_ranges_is_refused() -> None:
    with pytest.raises(AuthIllegal, match="more than 100 ranges"):
        networks_of(",".join(f"10.1.2.{number}" for number in range(101)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (account("topicPerms: [a=PUBLISH]"), "line 4: 'PUBLISH' is no permission"),
        (account("topicPerms:\n  - a=PUB\n  - orders*=PUB"), "line 6: 'orders[*]=PUB' is no permission"),
        (account("topicPerms: a=PUB"), "line 4: a list is missing"),
        (account("defaultTopicPerm: All"), "line 4: 'All' is no permission"),
        (account("whiteRemoteAddress: 10.1.2.x"), "line 4: '10.1.2.x' is no address"),
        (account("admin: maybe"), "line 4: admin is neither"),
        (account("admin: [true]"), "line 4: a text is missing"),
        (account("accessKey: other"), "line 4: 'accessKey' is there twice"),
        (b"accounts:\n- accessKey: app-user\n  secretKey: short", "line 2: the password of app-user"),
        (b"accounts:\n- accessKey: app-user", "line 2: the password of app-user"),
        (b"accounts:\n- secretKey: app-secret", "line 2: username can not be blank"),
        (SHIPPED.replace(b"rocketmq2", b"RocketMQ"), "account RocketMQ is there twice"),
        (b"accounts:\n- &a [1]\n- *a", "line 3: an alias"),
        (b"accounts: [\n", "line 2: "),
        (b"accounts: " + b"[" * 50_000, "line 1: more than 8 levels"),
        (b"\xff\xfe\x00", "no YAML|line 1"),
        (b"a\x00b", "no YAML"),
        (b"just a text", "line 1: the file is no mapping"),
        (b"", "line 1: the file is no mapping"),
        (b"dataVersion: []", "no accounts"),
        (b"#" * (FILE_BYTES_MAX + 1), "at most"),
    ],
)
def test_a_file_that_cannot_mean_the_same_is_refused_with_its_line(data: bytes, message: str) -> None:
    with pytest.raises(AuthIllegal, match=message) as caught:
        read_plain_acl(data)
    assert "app-secret" not in str(caught.value)
    assert "short" not in str(caught.value)


def test_unknown_keys_are_noted() -> None:
    plain = read_plain_acl(b"version: 2\n" + account("topicPerm: [a=PUB]"))
    assert [note[:25] for note in plain.notes] == ["line 1: 'version' is unkn", "line 5: 'topicPerm' is un"]


def test_without_pyyaml_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match="acl-import"):
        read_plain_acl(SHIPPED)
