"""The table of pending requests."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.pending import OPAQUE_MAX, OPAQUE_MIN, Pending, PendingTable


def entry(deadline_ns: int) -> Pending:
    return Pending(34, 0, deadline_ns, lambda result: None, 0)


def test_opaque_numbers_wrap_around_those_in_use() -> None:
    """The smallest wide number follows the largest Java int, and no pending number is used twice."""
    table = PendingTable()
    table._opaque = OPAQUE_MAX - 1
    assert table.next_opaque() == OPAQUE_MAX
    table.add(OPAQUE_MAX, entry(1))
    table.add(OPAQUE_MIN, entry(1))
    table.add(OPAQUE_MIN + 1, entry(1))
    assert table.next_opaque() == OPAQUE_MIN + 2


@given(st.lists(st.tuples(st.sampled_from(["add", "take", "expire"]), st.integers(0, 50)), max_size=60))
def test_the_table_is_a_dict_with_deadlines(steps: list[tuple[str, Any]]) -> None:
    """Compared with a model, exactly the due entries expire, whatever was removed before."""
    table, model, now_ns = PendingTable(), {}, 0
    for what, number in steps:
        if what == "add":
            opaque = table.next_opaque()
            model[opaque] = entry(now_ns + number)
            table.add(opaque, model[opaque])
        elif what == "take":
            assert table.take(number) is model.pop(number, None)
        else:
            now_ns += number
            due = [opaque for opaque, item in model.items() if item.deadline_ns <= now_ns]
            assert table.expire(now_ns) == [model.pop(opaque) for opaque in due]
        assert len(table) == len(model)
    assert table.take_all() == list(model.values())
    assert len(table) == 0
