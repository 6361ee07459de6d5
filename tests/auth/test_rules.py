"""Entries found by name say what a look at each entry says."""

from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.auth.auth_table import AuthContents
from pocketmq.auth.policies import Entry, Policy, PolicyType, Verdict, decide, entry_of
from pocketmq.auth.rules import Policies, Rules, rules_of
from pocketmq.auth.users import User
from pocketmq.remoting.protocol.access import Action, Resource

ACTIONS = ["Pub", "Sub", "Get", "All"]
SOURCES = [[], ["10.0.0.0/8"], ["192.0.2.1", "10.1.2.3"], ["::1"]]
names = st.text("ab*", max_size=3)
resources = st.one_of(
    st.just("*"),
    st.builds(
        lambda kind, name, star: f"{kind}:{name}{star}" if name or star else f"{kind}:*",
        st.sampled_from(["Topic", "Group", "Cluster"]),
        st.text("ab", max_size=3),
        st.sampled_from(["", "*"]),
    ),
)
entries = st.builds(
    entry_of,
    resources,
    st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=2),
    st.sampled_from(["Allow", "Deny"]),
    st.sampled_from(SOURCES),
)
policies = st.lists(
    st.builds(Policy, st.lists(entries, max_size=6).map(tuple), st.sampled_from(list(PolicyType))), max_size=3
)


@given(
    policies,
    st.sampled_from(list(Resource)),
    names,
    st.sampled_from([Action.PUB, Action.SUB | Action.GET, Action.DELETE]),
    st.sampled_from([None, ip_address("10.1.2.3"), ip_address("192.0.2.1"), ip_address("::1")]),
)
def test_rules_say_what_the_policies_say(
    given_policies: list[Policy], kind: Resource, name: str, actions: Action, source: None
) -> None:
    expected: Verdict = decide(given_policies, kind, name, actions, source)
    found = Rules(given_policies).decide(kind, name, actions, source)
    assert found.allowed == expected.allowed
    assert (found.entry is None) == (expected.entry is None)
    if found.entry is not None and expected.entry is not None:
        assert (found.entry.resource, found.entry.decision) == (expected.entry.resource, expected.entry.decision)


def test_a_user_s_sessions_share_the_rules() -> None:
    """They are made at the first question; a change of other users leaves them."""
    user = User(username="alice", password="alice-secret")
    policy = Policy((entry_of("Topic:orders", ["Pub"], "Allow"),))
    contents = AuthContents().with_user(user).with_policies("alice", (policy,))
    kept = contents.policies["alice"]
    assert isinstance(kept, Policies)
    rules = rules_of(kept)
    other = contents.with_user(User(username="bob", password="bob-secret"))
    assert rules_of(other.policies["alice"]) is rules
    assert kept == (policy,)


def test_a_decision_looks_at_the_entries_for_its_name_alone() -> None:
    """Whatever else the user has: one heartbeat names thousands of topics."""
    looked: list[str] = []

    class Seen(Entry, frozen=True):
        def is_from(self, source: object) -> bool:
            looked.append(self.name)
            return True

    many = [entry_of(f"Topic:t{number}-*", ["Sub"], "Allow") for number in range(500)]
    seen = tuple(Seen(each.kind, each.match, each.name, each.actions, each.decision) for each in many)
    rules = Rules([Policy(seen)])
    assert rules.decide(Resource.TOPIC, "t77-x", Action.SUB, None).allowed
    assert not rules.decide(Resource.TOPIC, "other", Action.SUB, None).allowed
    assert looked == ["t77-"]
