"""The epoch table finds how far two logs are equal, and never claims more."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.ha.epochs import (
    EPOCHS_MAX,
    BadEpochs,
    Epoch,
    EpochTable,
    common_end,
)


def table(*rows: tuple[int, str, int]) -> EpochTable:
    return EpochTable(Epoch(*row) for row in rows)


class Node:
    """A model of one node: its log as a list of (owner, number) bytes, its table."""

    def __init__(self) -> None:
        self.log: list[object] = []
        self.table = EpochTable()

    def open_epoch(self, number: int, owner: str) -> None:
        self.table = self.table.cut(len(self.log)).opened(Epoch(number, owner, len(self.log)))

    def follow(self, master: "Node", count: int) -> None:
        """Cut to the common part, then copy ``count`` bytes, as a slave does."""
        common = common_end(self.table, len(self.log), master.table, len(master.log)) if self.log else 0
        if common is None:
            return
        del self.log[common:]
        self.log += master.log[common : common + count]
        self.table = master.table.cut(len(self.log))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(0, 2), st.just(0), st.just(0)),
        st.tuples(st.just("write"), st.integers(0, 2), st.just(0), st.integers(1, 5)),
        st.tuples(st.just("follow"), st.integers(0, 2), st.integers(0, 2), st.integers(0, 9)),
        st.tuples(st.just("lose"), st.integers(0, 2), st.just(0), st.integers(1, 4)),
    ),
    max_size=40,
)


@given(steps)
def test_what_is_called_common_is_the_same(actions: list[tuple[str, int, int, int]]) -> None:
    """Whatever nodes opened, wrote, copied and lost: below the common end their logs are equal byte for byte."""
    nodes = [Node() for _ in range(3)]
    runs = itertools.count(1)
    leader = [""] * 3
    for action, index, other, count in actions:
        node = nodes[index]
        if action == "open" or (action == "write" and not leader[index]):
            run = next(runs)
            leader[index] = f"n{index}.{run}"
            node.open_epoch(max(run, node.table.last_number + 1), leader[index])
        if action == "write":
            node.log += [(leader[index], next(runs)) for _ in range(count)]
        elif action == "follow" and other != index:
            leader[index] = ""
            node.follow(nodes[other], count)
        elif action == "lose":  # a power loss: the log is shorter, the table, which was durable, is not; a new run
            del node.log[max(0, len(node.log) - count) :]
            leader[index] = ""
        for one, two in itertools.combinations(nodes, 2):
            common = common_end(one.table, len(one.log), two.table, len(two.log))
            assert common == common_end(two.table, len(two.log), one.table, len(one.log))
            if common is not None:
                assert common <= min(len(one.log), len(two.log))
                assert one.log[:common] == two.log[:common]


def test_a_follower_that_has_everything_shares_everything() -> None:
    """A slave at its master's end is not cut, even after the master has restarted."""
    master = table((1, "a", 0), (2, "a2", 100), (3, "a3", 250))
    assert common_end(master, 300, master, 300) == 300
    assert common_end(master.cut(120), 120, master, 300) == 120
    assert common_end(table((1, "a", 0), (2, "a2", 100)), 250, master, 300) == 250


def test_an_old_master_shares_what_was_there_before_the_promotion() -> None:
    """Two logs that left the same epoch at different ends agree up to the shorter of them."""
    promoted = table((1, "a", 0), (1_000_000, "b", 400))
    assert common_end(table((1, "a", 0)), 500, promoted, 900) == 400
    assert common_end(table((1, "a", 0), (2, "a2", 500)), 700, promoted, 900) == 400
    assert common_end(table((1, "a", 0)), 300, promoted, 900) == 300


def test_equal_numbers_of_two_owners_are_not_the_same_epoch() -> None:
    """Two nodes that both claimed a number share only the earlier part."""
    one, two = table((1, "a", 0), (2, "a", 50)), table((1, "a", 0), (2, "b", 50))
    assert common_end(one, 80, two, 90) == 50
    assert common_end(table((2, "a", 0)), 80, table((2, "b", 0)), 90) is None


def test_entries_behind_the_end_say_nothing() -> None:
    """After a power loss a table may name epochs that the log lost; they do not count."""
    durable = table((1, "a", 0), (2, "a2", 500))
    assert common_end(durable, 450, durable, 600) == 450
    assert durable.cut(499) == table((1, "a", 0))
    assert durable.cut(500) == durable


def test_a_table_is_bounded() -> None:
    """The oldest entry is dropped when there are too many; a longer table of a peer is refused."""
    rows = [(number, "a", number) for number in range(1, EPOCHS_MAX + 1)]
    full = table(*rows)
    assert full.opened(Epoch(9999, "b", 9999)).entries[0].number == 2
    assert len(full.opened(Epoch(9999, "b", 9999))) == EPOCHS_MAX
    with pytest.raises(BadEpochs, match="at most"):
        table(*rows, (9999, "b", 9999))


@pytest.mark.parametrize(
    "rows",
    [
        [(0, "a", 0)],
        [(1, "", 0)],
        [(1, "x" * 65, 0)],
        [(2, "a", 0), (2, "b", 5)],
        [(2, "a", 9), (3, "b", 5)],
        [(1, "a", -1)],
        [(1 << 53, "a", 0)],
        [(1, "a")],
        [("1", "a", 0)],
        "nonsense",
        None,
    ],
)
def test_what_is_no_table_is_refused(rows: object) -> None:
    """Epochs of a stranger are checked: numbers grow, offsets do not fall, names are short."""
    with pytest.raises(BadEpochs):
        EpochTable.from_rows(rows)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), max_size=10))
def test_rows_round_trip(pairs: list[tuple[int, int]]) -> None:
    """``from_rows`` reads the output of ``to_rows``."""
    numbers = sorted({number for number, _ in pairs})
    starts = sorted(start for _, start in pairs)
    made = table(*((number, f"o{number}", start) for number, start in zip(numbers, starts, strict=False)))
    assert EpochTable.from_rows(made.to_rows()) == made
