"""Waiting pops: who is woken, and what is left behind."""

from types import SimpleNamespace
from typing import Any

from pocketmq.broker.pop.pop_service import PopHolds, split_key, waiting_key
from pocketmq.broker.pull.long_polling import Hold


def hold(owner: str, key: str, queue_id: int = -1, wants: int = 1) -> Hold:
    task: Any = SimpleNamespace(request=SimpleNamespace(header=SimpleNamespace(max_msg_nums=wants)))
    return Hold(owner, [(key, queue_id, 0)], 1000, 10, (task, None))


def test_a_key_says_what_it_is_made_of() -> None:
    """Group, topic, and whether the pop is ordered."""
    for is_ordered in (False, True):
        assert split_key(waiting_key("g", "T", is_ordered)) == ("g", "T", is_ordered)


def test_the_first_ones_that_want_enough_are_woken() -> None:
    """In the order in which they came."""
    table = PopHolds(100, 10_000, 10)
    key = waiting_key("g", "T", False)
    holds = [hold(f"c{number}", key, wants=number + 1) for number in range(4)]
    assert all(table.hold(each) for each in holds)

    def wants(each: Hold) -> int:
        return int(each.context[0].request.header.max_msg_nums)

    assert table.wake_some(key, -1, 0, wants) == []
    assert table.wake_some(key, -1, 3, wants) == holds[:2]
    assert table.wake_some(key, -1, 100, wants) == holds[2:]
    assert table.count == 0


def test_what_is_watched_goes_with_the_holds() -> None:
    """Whatever ends them; too many for the same are refused."""
    table = PopHolds(100, 10_000, 2)
    key, ordered = waiting_key("g", "T", False), waiting_key("g", "T", True)
    assert table.hold(hold("a", key))
    assert table.hold(hold("b", key))
    assert not table.hold(hold("c", key))
    assert table.hold(hold("c", key, 3))
    assert table.hold(hold("c", ordered))
    assert table.watched["T"] == {key: {-1, 3}, ordered: {-1}}
    assert table.watched["%RETRY%g_T"] == {key: {-1, 3}}
    table.drop_owner("c")
    assert table.watched["T"] == {key: {-1}}
    table.expire(10_000_000_000)
    assert (table.watched, table.count) == ({}, 0)
