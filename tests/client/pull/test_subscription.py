"""Tag expressions."""

from typing import Any

import pytest

from pocketmq.client.errors import SubscriptionIllegal
from pocketmq.client.pull.subscription import parse_sql, parse_subscription


def test_expressions() -> None:
    """A star or a blank text selects all messages; tags are trimmed and hashed as in Java."""
    assert parse_subscription("T", "*", 1).tags == parse_subscription("T", " ", 1).tags == frozenset()
    parsed = parse_subscription("T", " A || B||A ", 7)
    assert parsed.tags == {"A", "B"}
    assert parsed.codes == {65, 66}
    assert parsed.matches("A")
    assert not parsed.matches("AB")
    assert not parsed.matches("")
    assert parse_subscription("T", "*", 1).matches("")


@pytest.mark.parametrize("bad", ["||", "A | B", None, "a || " * 5000, "||".join(map(str, range(1001)))])
def test_what_cannot_be_a_filter_is_refused(bad: Any) -> None:
    """No tag, a single bar, too long, too many, not a text."""
    with pytest.raises(SubscriptionIllegal):
        parse_subscription("T", bad, 1)


def test_a_heartbeat_is_due_where_the_selection_changes() -> None:
    """Another SQL filter selects other messages, though neither has tags; the same one again does not."""
    everything, cheap = parse_subscription("T", "*", 1), parse_sql("T", "price < 1", 1)
    assert not everything.selects_as(cheap)
    assert not cheap.selects_as(parse_sql("T", "price < 2", 1))
    assert cheap.selects_as(parse_sql("T", "price < 1", 2))
    assert parse_subscription("T", "A || B", 1).selects_as(parse_subscription("T", "B||A", 2))
