"""Receipt handles and the texts of an answer to a pop."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.receipt_handle import (
    HandleIllegal,
    PoppedQueue,
    ReceiptHandle,
    first_topic,
    msg_offset_info,
    order_count_info,
    parse_msg_offsets,
    parse_order_counts,
    parse_start_offsets,
    pop_retry_topic,
    pop_retry_topic_v2,
    real_topic,
    retry_mark,
    start_offset_info,
)

LONG = st.integers(0, (1 << 63) - 1)
INT = st.integers(0, (1 << 31) - 1)
NAME = st.text(st.sampled_from("abcXYZ019-%|"), min_size=1, max_size=20)
HANDLES = st.builds(
    ReceiptHandle, LONG, LONG, LONG, INT, st.sampled_from("012"), NAME, INT, LONG, st.one_of(st.just(-1), LONG)
)


@given(HANDLES)
def test_a_handle_is_its_text(handle: ReceiptHandle) -> None:
    """And back; a renewed one names the same message."""
    assert ReceiptHandle.parse(str(handle)) == handle
    new = handle.renewed(5, 7)
    assert (new.queue_offset, new.start_offset, new.pop_time, new.expires_ms) == (
        handle.queue_offset,
        handle.queue_offset,
        5,
        12,
    )


@given(st.one_of(st.text(max_size=600), st.lists(st.text(max_size=8), min_size=7, max_size=10).map(" ".join)))
def test_any_text_is_a_handle_or_refused(text: str) -> None:
    """Never another error."""
    try:
        handle = ReceiptHandle.parse(text)
    except HandleIllegal:
        return
    assert ReceiptHandle.parse(str(handle)) == handle


def test_rocketmqs_text() -> None:
    """As ExtraInfoUtil.buildExtraInfo has it."""
    text = "10 1700000000000 60000 3 1 broker-a 2 12"
    handle = ReceiptHandle.parse(text)
    assert handle == ReceiptHandle(10, 1_700_000_000_000, 60_000, 3, "1", "broker-a", 2, 12)
    assert handle.real_topic("T", "g") == "%RETRY%g_T"
    assert not handle.is_ordered
    assert ReceiptHandle.parse(text.replace(" 3 1", " 999 0")).is_ordered


@pytest.mark.parametrize("topic", ["T", pop_retry_topic("g_h", "T_1"), pop_retry_topic_v2("g_h", "T_1")])
def test_retry_topics_lead_back(topic: str) -> None:
    """A mark and the first topic give the topic again."""
    first = first_topic(topic, "g_h")
    assert real_topic(first, "g_h", retry_mark(topic)) == topic


@given(st.lists(st.tuples(st.sampled_from(["T", "%RETRY%g_T"]), INT, LONG, st.lists(LONG, min_size=1)), max_size=5))
def test_the_texts_of_an_answer(queues: list[tuple[str, int, int, list[int]]]) -> None:
    """Start offsets and offsets of each queue."""
    popped = [PoppedQueue(*each) for each in {(each[0], each[1]): each for each in queues}.values()]
    keys = [(retry_mark(each.topic), each.queue_id) for each in popped]
    assert parse_start_offsets(start_offset_info(popped)) == dict(
        zip(keys, (each.start_offset for each in popped), strict=True)
    )
    assert parse_msg_offsets(msg_offset_info(popped)) == dict(zip(keys, (each.offsets for each in popped), strict=True))


def test_counts_of_an_ordered_pop() -> None:
    """By queue and offset; the least of all for old clients."""
    text = order_count_info("T", 3, {7: 1, 9: 2}, 0)
    assert text == "0 qo3%7 1;0 qo3%9 2;0 3 0"
    assert parse_order_counts(text) == {(3, 7): 1, (3, 9): 2}
    with pytest.raises(HandleIllegal):
        parse_order_counts("0 qo3%7")
