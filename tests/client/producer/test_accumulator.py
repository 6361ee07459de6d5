"""How frames and sections fill and close."""

from typing import Any

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.producer.accumulator import Accumulator
from pocketmq.client.sender.section import Section, native_body
from pocketmq.common.message import Message
from pocketmq.common.record_codec import PlainRecordBuilder


def section(key: Any = "T", broker: str = "b", queue_id: Any = 0, build: Any = None, **fields: Any) -> Any:
    queue = MessageQueue("T", broker, queue_id)
    return Section(key, queue, build=build, started_ns=0, deadline_ns=10**9, born_ms=1, attempts_max=3, **fields)


def test_one_turn_to_one_broker_is_one_frame() -> None:
    """Sections of a broker share a frame; another broker, oneway sends and sends that do not wait have their own."""
    accumulator = Accumulator()
    first = section("A")
    assert accumulator.begin(first)
    assert not accumulator.begin(section("B", queue_id=1))
    others = [section("C", broker="c"), section("D", oneway=True), section("E", wait=False)]
    for other in others:
        accumulator.begin(other)
    for each in list(accumulator.open.values()):
        accumulator.add(each, Message("T", b"x"), b"k" * 32, None)
    frames = accumulator.flush()
    assert [len(frame.sections) for frame in frames] == [2, 1, 1, 1]
    assert not accumulator
    assert accumulator.open == {}
    assert accumulator.flush() == []


def test_a_frame_says_when_it_is_full() -> None:
    """The byte limit closes a frame before the turn ends."""
    accumulator = Accumulator(frame_bytes_max=1000)
    current = section(build=PlainRecordBuilder("c").build)
    accumulator.begin(current)
    full = [accumulator.add(current, Message("T", b"x" * 100), b"k" * 32, None) for _ in range(5)]
    assert full == [False, False, False, False, True]
    frame = accumulator.take(current.frame)
    assert frame.sections[0].count == 5
    assert frame.sections[0].size_bytes == frame.size_bytes == sum(map(len, current.records))


def test_a_section_without_messages_is_not_sent() -> None:
    """A section whose only message was refused leaves no trace."""
    accumulator = Accumulator()
    accumulator.begin(section())
    assert accumulator.flush() == []


def test_the_native_body_is_sizes_and_records() -> None:
    """u32 sizes of all records, big-endian, then the records back to back."""
    build = PlainRecordBuilder("c").build
    sections = [section("A", build=build), section("B", queue_id=1, build=build)]
    accumulator = Accumulator()
    for number, each in enumerate(sections):
        accumulator.begin(each)
        for _ in range(number + 1):
            accumulator.add(each, Message("T", b"body"), b"k" * 32, None)
    body = native_body(sections)
    records = [record for each in sections for record in each.records]
    assert body == b"".join(len(record).to_bytes(4, "big") for record in records) + b"".join(records)
