"""RocketMQ's HA bytes."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.ha.rocketmq_protocol import HEAD_BYTES, ReportDecoder, encode_head, start_offset
from pocketmq.store.ha.wire import OFFSET_MAX


@given(st.lists(st.integers(0, OFFSET_MAX), max_size=10), st.lists(st.integers(1, 30), max_size=10))
def test_only_the_newest_whole_report_counts(reports: list[int], cuts: list[int]) -> None:
    """HAConnection.ReadSocketService takes the last whole eight bytes of its input."""
    stream = b"".join(struct.pack(">q", report) for report in reports)
    decoder, taken, fed = ReportDecoder(), list[int](), 0
    for cut in [*cuts, len(stream)]:
        newest = decoder.feed(stream[fed : fed + cut])
        before, fed = fed, min(len(stream), fed + cut)
        assert (newest is not None) == (fed // 8 > before // 8)
        if newest is not None:
            assert newest == reports[fed // 8 - 1]
            taken.append(newest)
        assert len(decoder._rest) < 8
    assert taken[-1:] == reports[-1:]


def test_a_frame_begins_with_twelve_bytes() -> None:
    """Offset of the body and its size; without a body it is a heartbeat."""
    assert encode_head(1 << 40, 5) == struct.pack(">qi", 1 << 40, 5)
    assert HEAD_BYTES == 12


def test_an_empty_slave_starts_at_the_last_file_as_in_rocketmq() -> None:
    """Any other starts exactly at its reported offset (HAConnection.WriteSocketService)."""
    assert start_offset(0, 2500, 1000) == 2000
    assert start_offset(0, 0, 1000) == 0
    assert start_offset(1, 2500, 1000) == 1
