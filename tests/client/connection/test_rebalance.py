"""Allocation of queues to consumers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.connection.rebalance import (
    STRATEGIES,
    MessageQueue,
    allocate_by_config,
    allocate_by_machine_room,
    allocate_machine_room_nearby,
    rebalance,
    strategy_of,
)
from pocketmq.client.errors import SubscriptionIllegal
from pocketmq.common.allocation import allocate_averagely, allocate_by_circle

QUEUES = [MessageQueue("T", "a", number) for number in range(8)]
MEMBERS = st.lists(st.text("abcdef@#1", min_size=1, max_size=6), min_size=1, max_size=9, unique=True)


def queues_of(count: Any) -> Any:
    return [MessageQueue("T", f"broker-{number % 3}", number // 3) for number in range(count)]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@given(members=MEMBERS, count=st.integers(0, 40))
def test_every_queue_goes_to_exactly_one_member(name: Any, members: Any, count: Any) -> None:
    """Whatever the group, the shares of its members are a partition of the queues."""
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
    """While the broker does not list us yet, we keep our queues."""
    assert rebalance(allocate_averagely, "g", "me", QUEUES, ["other"], QUEUES[:2]) == ([], [])


def test_rebalance_names_what_goes_and_what_comes() -> None:
    """The change is the difference between the present and the new queues."""
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
    """CONFIG assigns the configured queues that exist."""
    strategy = allocate_by_config([QUEUES[1], MessageQueue("T", "gone", 0)])
    assert strategy("g", "me", QUEUES, ["me", "other"]) == [QUEUES[1]]


def test_an_unknown_strategy_is_refused_with_the_known_names() -> None:
    """A typo raises at once."""
    assert strategy_of("avg") is allocate_averagely
    with pytest.raises(SubscriptionIllegal, match="AVG_BY_CIRCLE"):
        strategy_of("AVERAGE")


ROOMS = [
    MessageQueue("T", f"{room}@{number}", queue) for room in ("r1", "r2", "r3") for number in (1, 2) for queue in (0, 1)
]


def test_machine_room_shares_the_queues_of_its_rooms() -> None:
    """As AllocateMessageQueueByMachineRoom: contiguous blocks, the remainder from the end, no foreign rooms."""
    strategy = allocate_by_machine_room(["r1", "r2"])
    queues = sorted(ROOMS)
    shares = [strategy("g", client, queues, ["a", "b", "c"]) for client in ("a", "b", "c")]
    assert [len(share) for share in shares] == [3, 3, 2]
    assert shares[0] == [*queues[0:2], queues[6]]
    assert shares[1] == [*queues[2:4], queues[7]]
    assert sorted(queue for share in shares for queue in share) == queues[:8]
    assert strategy("g", "x", queues, ["a"]) == []
    plain = [MessageQueue("T", "broker-a", 0)]
    assert strategy("g", "a", plain, ["a"]) == []


def test_machine_room_nearby_reads_at_home_and_shares_the_orphans() -> None:
    """Only its clients read the queues of a room; all members share those of a room without clients."""
    strategy = allocate_machine_room_nearby(
        STRATEGIES["AVG"], lambda queue: queue.broker_name.split("@")[0], lambda client: client.split("-")[0]
    )
    clients = ["r1-a", "r1-b", "r2-a"]
    shares = {client: strategy("g", client, sorted(ROOMS), clients) for client in clients}
    assert sorted(queue for share in shares.values() for queue in share) == sorted(ROOMS)
    assert {queue.broker_name[:2] for queue in shares["r2-a"]} == {"r2", "r3"}
    assert {queue.broker_name[:2] for queue in shares["r1-a"]} == {"r1", "r3"}
    nowhere = allocate_machine_room_nearby(STRATEGIES["AVG"], lambda queue: "", lambda client: "r1")
    with pytest.raises(SubscriptionIllegal, match="no machine room for queue"):
        nowhere("g", "a", ROOMS, ["a"])


def test_strategies_with_settings_say_how_to_pass_them() -> None:
    """Their names alone do not suffice; a strategy that returns foreign queues is refused."""
    for name in ("CONFIG", "MACHINE_ROOM", "machine_room_nearby"):
        with pytest.raises(SubscriptionIllegal, match="pass allocate_"):
            strategy_of(name)
    number: Any = 5
    with pytest.raises(SubscriptionIllegal, match="unknown"):
        strategy_of(number)
    foreign = MessageQueue("U", "b", 0)
    with pytest.raises(SubscriptionIllegal, match="U@b:0"):
        rebalance(lambda *_: [foreign], "g", "a", ROOMS, ["a"], [])
