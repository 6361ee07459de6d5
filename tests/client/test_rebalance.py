"""Allocation of queues to consumers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.errors import SubscriptionIllegal
from pocketmq.client.rebalance import (
    STRATEGIES,
    MessageQueue,
    allocate_averagely,
    allocate_by_circle,
    allocate_by_config,
    rebalance,
    strategy_of,
)

QUEUES = [MessageQueue("T", "a", number) for number in range(8)]
MEMBERS = st.lists(st.text("abcdef@#1", min_size=1, max_size=6), min_size=1, max_size=9, unique=True)


def queues_of(count: Any) -> Any:
    return [MessageQueue("T", f"broker-{number % 3}", number // 3) for number in range(count)]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@given(members=MEMBERS, count=st.integers(0, 40))
def test_every_queue_goes_to_exactly_one_member(name: Any, members: Any, count: Any) -> None:
    """Whatever the group, its members' answers are a partition of the queues."""
    queues = sorted(queues_of(count))
    given_away = [queue for member in members for queue in STRATEGIES[name]("group", member, queues, sorted(members))]
    assert sorted(given_away) == queues


@given(members=MEMBERS, count=st.integers(0, 40))
def test_average_shares_differ_by_at_most_one(members: Any, count: Any) -> None:
    """AVG and AVG_BY_CIRCLE give shares as equal as possible, the larger ones to the first members."""
    for strategy in (allocate_averagely, allocate_by_circle):
        shares = [len(strategy("g", member, queues_of(count), sorted(members))) for member in sorted(members)]
        assert max(shares) - min(shares) <= 1
        assert shares == sorted(shares, reverse=True)


def test_average_gives_contiguous_blocks_and_circle_deals() -> None:
    """RocketMQ's own example: eight queues, three members."""
    ids = ["c1", "c2", "c3"]
    blocks = [[queue.queue_id for queue in allocate_averagely("g", each, QUEUES, ids)] for each in ids]
    dealt = [[queue.queue_id for queue in allocate_by_circle("g", each, QUEUES, ids)] for each in ids]
    assert blocks == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert dealt == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_a_member_that_is_not_listed_changes_nothing() -> None:
    """While the broker does not know us yet, queues in hand stay."""
    assert rebalance(allocate_averagely, "g", "me", QUEUES, ["other"], QUEUES[:2]) == ([], [])


def test_rebalance_names_what_goes_and_what_comes() -> None:
    """The change is the difference between what is held and what should be."""
    change = rebalance(allocate_averagely, "g", "b", reversed(QUEUES), ["b", "a", "a"], QUEUES[3:5])
    assert change.revoked == [QUEUES[3]]
    assert change.assigned == QUEUES[5:]


@given(members=MEMBERS)
def test_consistent_hash_moves_only_the_queues_of_who_leaves(members: Any) -> None:
    """When one member leaves, the others keep every queue they had."""
    strategy = STRATEGIES["CONSISTENT_HASH"]
    members = sorted(members)
    gone, rest = members[0], members[1:]
    for member in rest:
        assert set(strategy("g", member, QUEUES, members)) <= set(strategy("g", member, QUEUES, rest))
    assert strategy("g", gone, QUEUES, rest) == []


def test_a_fixed_assignment_ignores_queues_that_do_not_exist() -> None:
    """CONFIG gives what it was told, as far as it exists."""
    strategy = allocate_by_config([QUEUES[1], MessageQueue("T", "gone", 0)])
    assert strategy("g", "me", QUEUES, ["me", "other"]) == [QUEUES[1]]


def test_an_unknown_strategy_is_refused_with_the_known_names() -> None:
    """A typo is told at once."""
    assert strategy_of("avg") is allocate_averagely
    with pytest.raises(SubscriptionIllegal, match="AVG_BY_CIRCLE"):
        strategy_of("AVERAGE")
