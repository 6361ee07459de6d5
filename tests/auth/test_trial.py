"""What would happen to a request, and why: ``acl test``."""

from pathlib import Path
from typing import Any

import pytest

from pocketmq.auth.errors import AuthIllegal, UserNotFound
from pocketmq.auth.stored import OF_ALL_TOPICS
from pocketmq.auth.trial import try_out
from pocketmq.common.topics import SCHEDULE_TOPIC
from pocketmq.remoting.protocol.acl import AuthTestBody, AuthTestRequestHeader
from pocketmq.remoting.protocol.body import decode_body
from tests.auth.auth_rig import R, Rig


class Trials(Rig):
    """A server whose user alice may send to topics of orders."""

    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(path, **settings)
        self.make()
        self.allow("Topic:ord*", actions=["Pub", "Sub"])

    def test(self, resource: str, action: str = "Pub", user: str = "alice", source: str = "") -> AuthTestBody:
        return try_out(self.auth, AuthTestRequestHeader(user, resource, action, source))


@pytest.fixture
def trials(tmp_path: Path) -> Trials:
    return Trials(tmp_path)


def test_an_action_is_decided_by_the_best_entry(trials: Trials) -> None:
    allowed = trials.test("Topic:orders")
    assert allowed.allowed
    assert allowed.entry is not None
    assert (allowed.entry.resource, allowed.policy_type) == ("Topic:ord*", "Custom")
    assert trials.test("Topic:orders", "Get") == AuthTestBody(allowed=False, why="no matched policies.")
    assert not trials.test("Group:orders").allowed
    assert "super" in trials.test("Group:anything", "All", "root").why
    with pytest.raises(UserNotFound):
        trials.test("Topic:orders", "Pub", "nobody")


def test_the_request_of_an_administrator_gives_the_same(trials: Trials) -> None:
    header = AuthTestRequestHeader("alice", "Topic:orders", "Pub")
    assert decode_body(trials.ask(R.AUTH_TEST, header), AuthTestBody) == trials.test("Topic:orders")


@pytest.mark.parametrize("code", ["PULL_MESSAGE", "pull_message", "11"])
def test_a_request_code_needs_what_its_row_says(trials: Trials, code: str) -> None:
    """By name or number; only the needs on the kind of the resource are tried, and all are shown."""
    assert trials.test("Topic:orders", code).allowed
    refused = trials.test("Group:billing", code)
    assert (refused.allowed, refused.why) == (False, "no matched policies.")
    assert "Topic Sub" in refused.needs
    assert "Group Sub" in refused.needs
    assert not trials.test("Topic:payments", code).allowed


def test_a_retry_topic_counts_as_its_group(trials: Trials) -> None:
    assert not trials.test("Topic:%RETRY%billing", "SEND_MESSAGE_V2").allowed
    trials.allow("Group:billing", actions=["Sub"])
    assert trials.test("Topic:%RETRY%billing", "SEND_MESSAGE_V2").allowed


def test_topics_in_which_messages_of_all_topics_wait_are_refused_as_by_the_guard(trials: Trials) -> None:
    trials.allow("Topic:*", actions=["All"])
    for action in ("Sub", "PULL_MESSAGE"):
        assert trials.test(f"Topic:{SCHEDULE_TOPIC}", action).why == OF_ALL_TOPICS
    assert trials.test(f"Topic:{SCHEDULE_TOPIC}", "GET_MAX_OFFSET").allowed


def test_a_request_for_all_topics_wants_an_entry_for_all(trials: Trials) -> None:
    trials.allow("Topic:a*", actions=["List"])
    assert not trials.test("Topic:*", "GET_ALL_TOPIC_CONFIG").allowed
    trials.allow("Topic:*", actions=["List"])
    assert trials.test("Topic:*", "GET_ALL_TOPIC_CONFIG").allowed


def test_codes_that_ask_for_no_right(trials: Trials) -> None:
    assert trials.test("Topic:orders", "WHOAMI").allowed
    assert not trials.test("Topic:orders", "CHECK_TRANSACTION_STATE").allowed
    assert trials.test("Topic:orders", "HELLO").allowed


@pytest.mark.parametrize(
    ("resource", "action", "says"),
    [
        ("orders", "Pub", "is no resource"),
        ("*", "Pub", "is not one resource"),
        ("Topic:pre*", "Pub", "is not one resource"),
        ("Topic:orders", "Publish", "a request code, like SEND_MESSAGE_V2"),
        ("Topic:orders", "999999", "no request code 999999"),
        ("Group:billing", "SEND_MESSAGE_V2", "it needs Topic Pub"),
    ],
)
def test_what_cannot_be_tried_says_why(trials: Trials, resource: str, action: str, says: str) -> None:
    with pytest.raises(AuthIllegal, match=says):
        trials.test(resource, action)


def test_settings_count(tmp_path: Path) -> None:
    """White lists, a server without policies, and one without users."""
    lists = Trials(tmp_path / "lists", authentication_whitelist="105", authorization_whitelist="11")
    assert "anybody" in lists.test("Topic:payments", "GET_ROUTEINFO_BY_TOPIC", "nobody").why
    assert "each known user" in lists.test("Topic:payments", "PULL_MESSAGE").why
    known = Trials(tmp_path / "known", authorization_enabled=False)
    assert known.test("Topic:payments").allowed
    with pytest.raises(UserNotFound):
        known.test("Topic:payments", "Pub", "nobody")
    unchecked = Rig(tmp_path / "unchecked", authentication_enabled=False, authorization_enabled=False)
    assert "nothing is checked" in try_out(unchecked.auth, AuthTestRequestHeader("a", "Topic:x", "Pub")).why


def test_the_user_between_servers_is_a_super_user(tmp_path: Path) -> None:
    trials = Trials(tmp_path, inner_access_key="inner", inner_secret_key="inner-secret")
    assert trials.test("Topic:payments", "Pub", "inner").allowed


def test_a_disabled_user_and_an_address(trials: Trials) -> None:
    trials.allow("Topic:near", actions=["Pub"], source_ips=["10.0.0.0/8"])
    assert trials.test("Topic:near", source="10.1.2.3").allowed
    assert not trials.test("Topic:near", source="192.0.2.1").allowed
    trials.make("bob", "bob-secret", user_status="disable")
    assert trials.test("Topic:near", user="bob").why == "User:bob is disabled."
