"""Batches of ordered pops, and RocketMQ's file."""

import json

from pocketmq.broker.pop.ordered_batches import OrderedBatches

T = ("T", "g", 0)


def begun(table: OrderedBatches, offsets: list[int], now_ms: int = 1000, attempt: str = "a") -> dict[int, int]:
    return table.begin(*T, offsets, now_ms, 100, attempt)


def test_a_batch_blocks_its_queue_until_it_is_acknowledged_or_over() -> None:
    """For every attempt but its own."""
    table = OrderedBatches(10)
    assert not table.is_blocked(*T, "a", 1000)
    assert begun(table, [5, 6, 9]) == {}
    assert table.is_blocked(*T, "b", 1099)
    assert not table.is_blocked(*T, "a", 1000)
    assert not table.is_blocked(*T, "b", 1100)
    assert [table.ack(*T, offset, 1000, 1001) for offset in (6, 5, 7, 9)] == [5, 9, None, 10]
    assert table.ack(*T, 5, 999, 1001) is None
    assert not table.is_blocked(*T, "b", 1001)


def test_what_is_delivered_again_is_counted() -> None:
    """Offset by offset; an attempt that repeats itself counts nothing."""
    table = OrderedBatches(10)
    begun(table, [5, 6])
    assert begun(table, [5, 6]) == {}
    assert begun(table, [5, 6, 7], 2000, "b") == {5: 1, 6: 1}
    assert begun(table, [6, 7, 8], 3000, "c") == {6: 2, 7: 1}


def test_a_changed_time_and_the_end_of_a_batch() -> None:
    """``due`` names the queue once, when all of its batch is visible."""
    table = OrderedBatches(10)
    begun(table, [5, 6])
    assert table.change(*T, 5, 1000, 1050, 1000)
    assert not table.change(*T, 7, 1000, 1050, 1000)
    assert table.due(1060) == []
    assert table.due(1100) == [("g", "T", 0)]
    assert table.due(2000) == []
    begun(table, [5, 6], 3000, "b")
    assert table.change(*T, 5, 3000, 3500, 3000)
    assert table.due(3200) == []
    assert table.next_due_ms() == 3500
    assert table.due(3500) == [("g", "T", 0)]


def test_rocketmqs_file() -> None:
    """Written by 5.3.3 (fastjson sorts its keys); what no pop could have made is left out."""
    batch = {"a": "x", "cm": 1, "i": 60000, "l": 1700000000000, "o": [10, 1, 2], "oc": {"11": 1}, "popTime": 5}
    table = OrderedBatches(10)
    table.load(json.dumps({"table": {"T@g": {"0": batch, "1": {"o": []}, "2": {"o": [3, 2, 1]}}}}).encode())
    assert table.count == 1
    assert table.ack(*T, 11, 5, 1_700_000_000_000) == 12
    written = json.loads(table.encode())["table"]["T@g"]["0"]
    assert written == {**batch, "cm": 3}


def test_batches_are_bounded() -> None:
    """A queue that has one may have its next."""
    table = OrderedBatches(2)
    for queue_id in range(2):
        assert table.has_room("T", "g", queue_id)
        table.begin("T", "g", queue_id, [1], 1, 1, "")
    assert table.has_room("T", "g", 1)
    assert not table.has_room("T", "g", 2)
    table.clear("T", "g", 0)
    assert table.has_room("T", "g", 2)
    table.forget(lambda group, topic: topic == "T")
    assert table.count == 0
