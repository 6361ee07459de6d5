"""Receipts and their common parts."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.arrow.packed import PackedIds
from pocketmq.client.message.receipts import (
    STATUS_OF_CODE,
    Receipt,
    Receipts,
    SectionOutcome,
    SectionReceipts,
    SendStatus,
)
from pocketmq.common.message_id import offset_msg_id
from pocketmq.remoting.codes import ResponseCode

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def outcome(**fields: Any) -> Any:
    fields = {"attempts": 1, "waited": True, **fields}
    return SectionOutcome("T", "b", 3, 100, fields.pop("status", SendStatus.SEND_OK), **fields)


def test_a_receipt_counts_from_its_section() -> None:
    """Queue offset and offset id follow from the place in the section; runs split where a segment rolled."""
    shared = outcome(runs=[(1000, 2), (5000, 2)], sizes=[10, 20, 30, 40], store_host=HOST)
    receipts = [Receipt(shared, index, b"ID%d" % index) for index in range(4)]
    assert [receipt.queue_offset for receipt in receipts] == [100, 101, 102, 103]
    assert [receipt.offset_msg_id for receipt in receipts] == [
        offset_msg_id(HOST, offset) for offset in (1000, 1010, 5000, 5030)
    ]
    assert receipts[2].msg_id == "ID2"
    assert "queue_offset=102" in repr(receipts[2])


def test_ids_that_the_broker_named_are_taken_as_they_are() -> None:
    """RocketMQ's answer to a batch lists the ids."""
    shared = outcome(offset_ids=["A", "B"])
    assert [Receipt(shared, index, b"").offset_msg_id for index in range(3)] == ["A", "B", ""]


def test_without_runs_there_is_no_offset_id() -> None:
    """No id is invented."""
    assert Receipt(outcome(store_host=HOST), 0, b"").offset_msg_id == ""


def test_durability_says_what_is_true() -> None:
    """Each status has its own text; a message that did not wait is not called safe."""
    words = {Receipt(outcome(status=status), 0, b"").durability for status in SendStatus}
    words.add(Receipt(outcome(waited=False), 0, b"").durability)
    assert len(words) == 6
    assert all(word.startswith("stored") for word in words)


def test_a_possible_duplicate_is_reported() -> None:
    """An earlier attempt may have been stored too."""
    assert not Receipt(outcome(), 0, b"ID").duplicate_possible
    receipt = Receipt(outcome(attempts=2, duplicate_possible=True), 0, b"ID")
    assert receipt.duplicate_possible
    assert "attempts=2, duplicate_possible=True" in repr(receipt)


def test_only_four_codes_mean_stored() -> None:
    """Every other code is a failure."""
    assert set(STATUS_OF_CODE) == {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }


def test_durability_says_what_the_broker_does() -> None:
    """Only a synced message is said to survive a power loss, and only a buffered one to die with the process."""
    words = {
        (flush, waited): Receipt(outcome(flush=flush, waited=waited), 0, b"").durability
        for flush in ("SYNC_FLUSH", "ASYNC_FLUSH", "WRITE_BUFFER")
        for waited in (True, False)
    }
    synced = words.pop(("SYNC_FLUSH", True))
    assert "survives the end of its process and a power loss" in synced
    for (flush, _), text in words.items():
        assert "power loss" in text
        assert "may lose it" in text
        assert ("survives the end of the broker's process" in text) == (flush != "WRITE_BUFFER")
    late = Receipt(outcome(flush="SYNC_FLUSH", status=SendStatus.FLUSH_DISK_TIMEOUT), 0, b"").durability
    assert "did not confirm in time" in late
    assert Receipt(outcome(flush="something new"), 0, b"").durability == Receipt(outcome(), 0, b"").durability


@given(st.permutations(list(range(12))), st.sets(st.integers(1, 11)))
def test_the_receipts_of_a_batch_are_in_its_order(order: list[int], cuts: set[int]) -> None:
    """In whichever part a message travelled, its receipt is at its place; indexes and slices work as in a list."""
    bounds = [0, *sorted(cuts), 12]
    parts = []
    for start, end in itertools.pairwise(bounds):
        places = order[start:end]
        ids = PackedIds(b"".join(b"ID%02d" % place for place in places), len(places))
        parts.append((places, SectionReceipts(outcome(), ids)))
    receipts = Receipts(parts)
    names = [f"ID{place:02d}" for place in range(12)]
    assert [receipt.msg_id for receipt in receipts] == names
    assert [receipts[index].msg_id for index in range(-12, 12)] == names * 2
    assert [receipt.msg_id for receipt in receipts[2:9:3]] == names[2:9:3]
    assert len(receipts) == 12
    for index in (12, -13):
        with pytest.raises(IndexError):
            receipts[index]
