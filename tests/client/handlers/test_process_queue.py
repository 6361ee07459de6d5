"""The messages in hand of one queue, and the offset that may be committed."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.handlers.process_queue import ProcessLimits, ProcessQueue

QUEUE = MessageQueue("T", "b", 0)


class FakeMessage:
    """The two fields a process queue reads."""

    def __init__(self, queue_offset: Any, size_bytes: Any = 10) -> None:
        self.queue_offset = queue_offset
        self.size_bytes = size_bytes


@given(st.lists(st.integers(1, 4), max_size=30), st.randoms(use_true_random=False))
def test_the_commit_offset_is_the_oldest_unfinished_message(gaps: Any, rng: Any) -> None:
    """In whatever order handlers finish, no unfinished message is below the commit offset, which never goes back."""
    queue = ProcessQueue(QUEUE, 0, ProcessLimits())
    offsets, offset = [], 0
    for gap in gaps:
        offset += gap
        offsets.append(offset)
    end = offset + 1
    messages = [FakeMessage(each) for each in offsets]
    queue.pulled(messages, end)
    open_offsets = set(offsets)
    rng.shuffle(messages)
    before = queue.commit_offset
    for message in messages:
        queue.finished(message)
        open_offsets.discard(message.queue_offset)
        assert queue.commit_offset <= min(open_offsets, default=end)
        assert queue.commit_offset >= before
        before = queue.commit_offset
    assert queue.commit_offset == (end if offsets else max(end, 0))
    assert len(queue) == queue.unfinished == queue.size_bytes == 0


def test_a_pull_without_matches_moves_the_commit_only_when_nothing_is_in_hand() -> None:
    """Filtered messages count as read, but not past one that is still being handled."""
    queue = ProcessQueue(QUEUE, 5, ProcessLimits())
    queue.pulled([], 9)
    assert queue.commit_offset == 9
    message = FakeMessage(9)
    queue.pulled([message], 10)
    queue.pulled([], 20)
    assert queue.commit_offset == 9
    queue.finished(message)
    assert queue.commit_offset == 20


def test_limits_by_count_size_and_span() -> None:
    """Each limit alone stops the pull, and the pull knows which one it was."""
    assert ProcessQueue(QUEUE, 0, ProcessLimits()).full() == ""
    by_count = ProcessQueue(QUEUE, 0, ProcessLimits(count_max=2))
    by_count.pulled([FakeMessage(0), FakeMessage(1)], 2)
    assert by_count.full() == "count"
    by_size = ProcessQueue(QUEUE, 0, ProcessLimits(size_bytes_max=100))
    by_size.pulled([FakeMessage(0, 100)], 1)
    assert by_size.full() == "size"
    by_span = ProcessQueue(QUEUE, 0, ProcessLimits(span_max=10))
    first, last = FakeMessage(0), FakeMessage(11)
    by_span.pulled([first, last], 12)
    assert by_span.full() == "span"
    by_span.finished(first)
    assert by_span.full() == ""


def test_an_offset_that_the_broker_moved_is_committed() -> None:
    """When the queue no longer has the offset of a pull, the commit follows the broker's, even back."""
    queue = ProcessQueue(QUEUE, 100, ProcessLimits())
    queue.moved(40)
    assert (queue.next_pull_offset, queue.commit_offset) == (40, 40)
