"""Bytes of the log on one connection."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pocketmq.store.errors import OffsetOutOfRange
from pocketmq.store.ha import wire
from pocketmq.store.ha.transfer import FIRST_BUFFER_BYTES, LogTransfer, Pumped
from pocketmq.store.ha.transport import TransportError
from tests.store.ha.transports import pair


class ByteLog:
    """A log that is only bytes."""

    def __init__(self, segment_bytes: int, min_offset: int = 0) -> None:
        self.segment_bytes = segment_bytes
        self.min_offset = min_offset
        self.committed_offset = min_offset
        self.data = bytearray()

    def append(self, data: bytes) -> None:
        self.data += data
        self.committed_offset += len(data)

    def read_into(self, offset: int, out: NDArray[np.uint8]) -> None:
        if offset < self.min_offset:
            raise OffsetOutOfRange("read refused", why=f"offset {offset} is below the log's start")
        assert offset + out.size <= self.committed_offset
        at = offset - (self.committed_offset - len(self.data))
        out[:] = np.frombuffer(bytes(self.data[at : at + out.size]), np.uint8)


def head(offset: int, body: memoryview) -> bytes:
    return wire.encode_data_head(offset, wire.OFFSET_MAX, 0, 0, 0, len(body))


@given(
    st.integers(1, 700),
    st.integers(64, 400),
    st.integers(0, 3),
    st.lists(st.one_of(st.binary(min_size=1, max_size=900), st.integers(1, 2000)), max_size=30),
)
def test_the_slave_gets_the_log_whatever_the_socket_takes(
    batch_bytes: int, window_bytes: int, first_segment: int, steps: list[bytes | int]
) -> None:
    """For any order of appends and reads: equal bytes, no frame across a segment or above the batch, bounded memory."""
    segment_bytes = 512
    start = first_segment * segment_bytes
    log = ByteLog(segment_bytes, start)
    master_end, slave_end = pair(window_bytes=window_bytes)
    transfer = LogTransfer(log, master_end, batch_bytes, head, start)
    decoder = wire.FrameDecoder(wire.FROM_MASTER)
    got = bytearray()

    def receive(count: int) -> None:
        while count > 0 and (size := slave_end.receive_into(view := decoder.buffer()[:count], 0)):
            del view
            count -= size
            decoder.received(size)
            while (message := decoder.next()) is not None:
                assert isinstance(message, wire.Data)
                assert message.offset == start + len(got)
                assert 0 < len(message.body) <= batch_bytes
                assert message.offset // segment_bytes == (message.offset + len(message.body) - 1) // segment_bytes
                got.extend(message.body)

    for step in steps:
        if isinstance(step, bytes):
            log.append(step)
        else:
            receive(step)
        pumped = transfer.pump(3)
        if pumped is Pumped.DONE:
            assert transfer.sent_offset == log.committed_offset
            assert not transfer._pending
        assert sum(map(len, transfer._pending)) <= batch_bytes + wire.DATA_HEAD_BYTES
    for _ in range(100_000):
        if transfer.pump(8) is Pumped.DONE:
            break
        receive(1 << 20)
    receive(1 << 20)
    assert got == log.data
    assert transfer.sent_bytes == len(log.data)


def test_a_slave_that_keeps_up_costs_little_memory() -> None:
    """Only a slave that has to catch up needs memory for the whole batch."""
    log = ByteLog(1 << 30)
    master_end, _ = pair(window_bytes=8 << 20)
    transfer = LogTransfer(log, master_end, 1 << 20, head, 0)
    log.append(bytes(1000))
    assert transfer.pump(1) is Pumped.DONE
    assert transfer._buffer.size == FIRST_BUFFER_BYTES
    log.append(bytes(3 << 20))
    assert transfer.pump(2) is Pumped.MORE
    assert transfer._buffer.size == 1 << 20
    assert transfer.pump(2) is Pumped.DONE


def test_a_slave_that_retention_overtook_is_told_by_an_error() -> None:
    """Removed bytes cannot be sent; the connection ends and the slave starts again."""
    log = ByteLog(512)
    master_end, _ = pair()
    transfer = LogTransfer(log, master_end, 100, head, 0)
    log.append(bytes(1000))
    log.min_offset = 512
    with pytest.raises(OffsetOutOfRange, match="below the log's start"):
        transfer.pump(1)


def test_a_heartbeat_never_gets_into_a_frame() -> None:
    """While a frame is under way no heartbeat is sent: the peer has enough to read."""
    log = ByteLog(512)
    master_end, slave_end = pair(window_bytes=60)
    transfer = LogTransfer(log, master_end, 100, head, 0)
    log.append(bytes(100))
    assert transfer.pump(1) is Pumped.BLOCKED
    transfer.send_frame(b"heartbeat")
    out = bytearray(200)
    assert slave_end.receive_into(memoryview(out), 0) == 60
    assert b"heartbeat" not in out
    assert transfer.pump(1) is Pumped.BLOCKED
    slave_end.receive_into(memoryview(out), 0)
    assert transfer.pump(1) is Pumped.DONE
    transfer.send_frame(b"heartbeat")
    slave_end.receive_into(memoryview(out), 0)
    assert b"heartbeat" in out
    master_end.cut()
    with pytest.raises(TransportError):
        transfer.send_frame(b"heartbeat")
