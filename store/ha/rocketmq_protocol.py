"""RocketMQ's own HA protocol, for slaves that speak it: raw TCP without a handshake (HAService, HAConnection 4.9).

Lives here: the frames, the decoder of a slave's reports, where a transfer starts. No I/O.

================  ====================================================================================
direction         bytes
================  ====================================================================================
slave -> master   i64: the slave's max offset; request, acknowledgement and heartbeat in one
master -> slave   i64 offset of the first body byte | i32 body size | body; size 0 is a heartbeat
================  ====================================================================================

Such a slave has no epochs: its log cannot be compared with the master's, it makes no promise at a promotion, and a
broken connection can leave it with different bytes at the same offsets. So it follows, but never counts for SEND_OK.
"""

import struct
from typing import Final

from pocketmq.store.ha.wire import OFFSET_MAX, HaProtocolError

REPORT_BYTES: Final = 8
BATCH_BYTES_MAX: Final = 32 << 10
"""RocketMQ's haTransferBatchSize; a slave of 4.9 has a buffer of 4 MiB for whole frames."""
_HEAD: Final = struct.Struct(">qi")
_REPORT: Final = struct.Struct(">q")
HEAD_BYTES: Final = _HEAD.size


def encode_head(offset: int, body_bytes: int) -> bytes:
    """Return a frame's head; with 0 bytes it is a heartbeat with the next offset."""
    return _HEAD.pack(offset, body_bytes)


def start_offset(reported: int, max_offset: int, segment_bytes: int) -> int:
    """Return the start offset of a slave that reported its max offset (HAConnection.WriteSocketService).

    An empty slave starts at the last file of the master, so it never gets the older ones.
    """
    return max_offset - max_offset % segment_bytes if reported == 0 else reported


class ReportDecoder:
    """Turn received bytes into the slave's newest report. Does no I/O; keeps at most 7 bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes | memoryview) -> int | None:
        """Return the last complete report, None if there is none. Raises ``HaProtocolError`` for an invalid offset."""
        received = self._rest + bytes(data)
        whole = len(received) // REPORT_BYTES * REPORT_BYTES
        self._rest = received[whole:]
        if not whole:
            return None
        (offset,) = _REPORT.unpack_from(received, whole - REPORT_BYTES)
        if not 0 <= offset <= OFFSET_MAX:
            raise HaProtocolError("HA connection closed", why=f"the slave reports offset {offset}")
        return int(offset)
