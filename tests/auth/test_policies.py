"""Which entry decides."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.auth.errors import AuthIllegal
from pocketmq.auth.policies import Entry, Policy, PolicyType, decide, entry_of, parse_resource
from pocketmq.remoting.protocol.access import GET, PUB, SUB, Resource

HERE = ip_address("10.1.2.3")


def allowed(*entries: Entry, name: str = "orders", kind: Resource = Resource.TOPIC) -> bool:
    return decide([Policy(entries)], kind, name, PUB, HERE).allowed


def allow(resource: str, *sources: str) -> Entry:
    return entry_of(resource, ["Pub"], "Allow", sources)


def deny(resource: str, *sources: str) -> Entry:
    return entry_of(resource, ["Pub"], "Deny", sources)


def test_without_an_entry_nothing_is_allowed() -> None:
    assert not allowed()
    assert decide([], Resource.TOPIC, "orders", PUB, HERE).why == "no matched policies."


@pytest.mark.parametrize("resource", ["Topic:orders", "Topic:ord*", "Topic:*", "*", "topic:orders"])
def test_an_entry_allows_what_it_names(resource: str) -> None:
    assert allowed(allow(resource))
    assert not allowed(allow(resource), name="ORDERS") or (resource.endswith("*") and "ord" not in resource)
    assert allowed(allow(resource), kind=Resource.GROUP) is (resource == "*")


@pytest.mark.parametrize(
    ("better", "worse"),
    [("Topic:orders", "Topic:ord*"), ("Topic:order*", "Topic:ord*"), ("Topic:o*", "Topic:*"), ("Topic:*", "*")],
)
def test_the_more_precise_name_decides(better: str, worse: str) -> None:
    for entries in ([allow(better), deny(worse)], [deny(worse), allow(better)]):
        assert allowed(*entries)
    for entries in ([deny(better), allow(worse)], [allow(worse), deny(better)]):
        assert not allowed(*entries)


def test_deny_comes_before_allow_where_names_are_as_precise() -> None:
    assert not allowed(allow("Topic:orders"), deny("Topic:orders"))
    assert not allowed(deny("Topic:orders"), allow("Topic:orders"))


def test_custom_policies_come_before_default_ones() -> None:
    custom = Policy((allow("*"),))
    default = Policy((deny("Topic:orders"),), PolicyType.DEFAULT)
    assert decide([default, custom], Resource.TOPIC, "orders", PUB, HERE).allowed
    assert decide([default], Resource.TOPIC, "orders", PUB, HERE).why == "the decision is deny."


def test_any_one_of_the_actions_is_enough() -> None:
    policies = [Policy((entry_of("Topic:orders", ["Sub"], "Allow"),))]
    assert decide(policies, Resource.TOPIC, "orders", SUB | GET, HERE).allowed
    assert not decide(policies, Resource.TOPIC, "orders", PUB | GET, HERE).allowed


@pytest.mark.parametrize(
    ("sources", "fits"),
    [
        (["10.1.2.3"], True),
        (["10.0.0.0/8"], True),
        (["192.168.0.0/16", "10.1.0.0/16"], True),
        (["10.1.2.4"], False),
        (["::/0"], False),
    ],
)
def test_an_entry_may_count_for_some_addresses_only(sources: list[str], fits: bool) -> None:
    assert allowed(allow("Topic:orders", *sources)) is fits
    assert not decide([Policy((allow("*", *sources),))], Resource.TOPIC, "orders", PUB, None).allowed


@pytest.mark.parametrize("text", ["", "orders", "Topic:", "Topic:a*b", "Queue:x", "Topic:a\nb", "Topic:" + "x" * 300])
def test_what_is_no_resource_is_refused(text: str) -> None:
    with pytest.raises(AuthIllegal):
        entry_of(text, ["Pub"], "Allow")


@pytest.mark.parametrize(
    ("actions", "decision", "sources"),
    [([], "Allow", []), (["Write"], "Allow", []), (["Pub"], "Perhaps", []), (["Pub"], "Allow", ["10.0.0"])],
)
def test_what_is_no_entry_is_refused(actions: list[str], decision: str, sources: list[str]) -> None:
    with pytest.raises(AuthIllegal):
        entry_of("Topic:orders", actions, decision, sources)


@given(st.sampled_from(["Topic", "Group", "Cluster"]), st.from_regex(r"[A-Za-z0-9_%|-]{1,30}\*?", fullmatch=True))
def test_a_resource_is_written_as_it_was_read(kind: str, name: str) -> None:
    text = f"{kind}:{name}"
    assert entry_of(text, ["All"], "Allow").resource == text
    assert parse_resource(f" {text} ") == parse_resource(text)
