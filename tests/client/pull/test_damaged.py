"""One bad record of an answer costs no other; the oracle is the scalar codec, record by record."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.pull.damaged import Damaged, damage_error, sort_out
from pocketmq.client.pull.pull_wire import PullResult, QueueResult
from pocketmq.common.errors import CorruptRecord
from pocketmq.common.record_codec import decode_record, encode_record
from pocketmq.remoting.codes import ResponseCode

DAMAGES = st.sampled_from(["", "", "body", "head", "size", "cut"])
QUEUES = (MessageQueue("T", "b", 0), MessageQueue("T", "b", 1))


def record(queue_id: int, offset: int, body: bytes) -> bytes:
    return encode_record(
        topic="T", body=body, queue_id=queue_id, queue_offset=offset, born_host=bytes(8), store_host=bytes(8)
    )


def damaged(data: bytes, kind: str) -> bytes:
    """Return a record of the same length with one kind of damage."""
    if kind == "body":
        return data[:88] + bytes([data[88] ^ 4]) + data[89:]
    if kind == "head":
        return bytes(40) + data[40:]
    if kind == "size":
        return (len(data) + 1).to_bytes(4, "big") + data[4:]
    if kind == "cut":  # its end is missing, as behind the end of a torn write
        return data[: len(data) // 2] + bytes(len(data) - len(data) // 2)
    return data


def is_whole(data: bytes, check_crc: bool) -> bool:
    try:
        return decode_record(data, check_crc=check_crc).size == len(data)
    except CorruptRecord:
        return False


@given(
    st.lists(st.lists(st.tuples(st.binary(min_size=1, max_size=20), DAMAGES), max_size=8), min_size=1, max_size=2),
    st.booleans(),
    st.integers(0, 1 << 40),
)
def test_an_answer_is_sorted_record_by_record(
    parts: list[list[tuple[bytes, str]]], check_crc: bool, start: int
) -> None:
    """Whole records stay in their order; every other one is named with its queue and its offset."""
    records: list[bytes] = []
    queues: list[QueueResult] = []
    bad: list[tuple[MessageQueue, int]] = []
    for queue, rows in zip(QUEUES, parts, strict=False):
        for row, (body, kind) in enumerate(rows):
            records.append(damaged(record(queue.queue_id, start + row, body), kind))
            if not is_whole(records[-1], check_crc):
                bad.append((queue, start + row))
        queues.append(QueueResult(queue, int(ResponseCode.SUCCESS), start + len(rows), 0, 1 << 50, len(rows)))
    sizes = np.array([len(each) for each in records], np.int64)
    result = PullResult("b", queues, memoryview(b"".join(records)), sizes)
    found = sort_out(result, dict.fromkeys(QUEUES, start), is_filtered=False, check_crc=check_crc)
    whole = [each for each in records if is_whole(each, check_crc)]
    assert found.body == b"".join(whole)
    assert found.sizes.tolist() == [len(each) for each in whole]
    assert [(each.queue, each.offset) for each in found.damaged] == bad
    assert all(each.is_exact and each.why for each in found.damaged)
    assert found.resume_at is None


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=20), DAMAGES), min_size=1, max_size=8), st.integers(0, 1 << 40)
)
def test_without_sizes_it_ends_at_a_damaged_head(rows: list[tuple[bytes, str]], start: int) -> None:
    """RocketMQ's answers: what follows a head that gives no size is pulled once more."""
    records = [damaged(record(0, start + row, body), kind) for row, (body, kind) in enumerate(rows) if kind != "size"]
    kinds = [kind for _, kind in rows if kind != "size"]
    queue = QueueResult(QUEUES[0], int(ResponseCode.SUCCESS), start + len(records), 0, 1 << 50, -1)
    result = PullResult("b", [queue], memoryview(b"".join(records)), None)
    found = sort_out(result, {QUEUES[0]: start}, is_filtered=False, check_crc=True)
    ends = kinds.index("head") if "head" in kinds else len(kinds)
    assert found.body == b"".join(each for each in records[:ends] if is_whole(each, True))
    assert found.resume_at == (None if ends == len(kinds) else found.damaged[-1].offset + 1)


def test_under_a_filter_the_offset_is_the_records_own_or_a_lower_bound() -> None:
    """The broker leaves out messages: the place in the answer says nothing."""
    records: list[Any] = [record(0, 4, b"x"), record(0, 9, b"y"), record(0, 11, b"z")]
    records[1] = damaged(records[1], "body")
    records[2] = damaged(records[2], "head")
    queue = QueueResult(QUEUES[0], int(ResponseCode.SUCCESS), 20, 0, 20, 3)
    sizes = np.array([len(each) for each in records], np.int64)
    result = PullResult("b", [queue], memoryview(b"".join(records)), sizes)
    found = sort_out(result, {QUEUES[0]: 0}, is_filtered=True, check_crc=True)
    assert [(each.offset, each.is_exact) for each in found.damaged] == [(9, True), (10, False)]


def test_the_error_of_a_consumer_says_where_and_what_to_do() -> None:
    """Topic, queue, broker, offset, reason, and the way past it."""
    error = damage_error(Damaged(QUEUES[1], 17, True, "body CRC differs"))
    with pytest.raises(CorruptRecord, match=r"(?s)T queue 1 of b: offset 17 is damaged.*CRC.*seek_offset"):
        raise error
