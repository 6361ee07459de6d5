"""Choice of a queue for messages with an order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import SelectorFailed
from pocketmq.client.producer.selectors import select_by_hash, select_by_user
from pocketmq.common.message import Message

QUEUES = [MessageQueue("T", name, number) for name in "ab" for number in range(2)]
MESSAGE = Message("T", b"x")


@given(st.text(max_size=20), st.integers(1, 9))
def test_a_key_has_one_queue(key: Any, count: Any) -> None:
    """The same key always goes to the same queue."""
    queues = [MessageQueue("T", "a", number) for number in range(count)]
    assert select_by_hash(key, queues) == select_by_hash(key, queues)


def test_hash_selection_is_java_s() -> None:
    """|hashCode % size| as Java computes it, also for negative hashes."""
    queues = [MessageQueue("T", "a", number) for number in range(7)]
    assert select_by_hash("polygenelubricants", queues).queue_id == 2147483648 % 7  # hashCode is -2^31
    assert select_by_hash("Aa", queues) == select_by_hash("BB", queues) == queues[2112 % 7]


def test_a_users_function_returns_a_queue_or_an_index() -> None:
    """Both forms select."""
    assert select_by_user(lambda queues, message: queues[2], QUEUES, MESSAGE) == QUEUES[2]
    assert select_by_user(lambda queues, message: 1, QUEUES, MESSAGE) == QUEUES[1]


@pytest.mark.parametrize("answer", [None, 4, -1, True, "a", MessageQueue("T", "c", 0), 1.0])
def test_anything_else_from_a_users_function_is_refused(answer: Any) -> None:
    """The error has the wrong value; no message is sent."""
    with pytest.raises(SelectorFailed):
        select_by_user(lambda queues, message: answer, QUEUES, MESSAGE)


def test_a_users_function_that_raises_is_named() -> None:
    """The user's exception is the cause."""
    with pytest.raises(SelectorFailed, match="KeyError") as caught:
        select_by_user(lambda queues, message: queues[{0: 1}[9]], QUEUES, MESSAGE)
    assert isinstance(caught.value.__cause__, KeyError)
