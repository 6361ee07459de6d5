"""From a point in time to a queue offset.

Lives here: reading the store timestamp of one record, the search over a queue.
"""

import numpy as np

from pocketmq.common.record import BORN_HOST_V6_FLAG, HOST_V6_EXTRA, STORE_TIMESTAMP_AT, SYS_FLAG_AT
from pocketmq.store.commitlog.group_feed import LogSource
from pocketmq.store.consumequeue.consume_queue import BLANK_SIZE, ConsumeQueue
from pocketmq.store.errors import OffsetOutOfRange

_HEAD_BYTES = STORE_TIMESTAMP_AT + HOST_V6_EXTRA + 8


def store_time_at(log_source: LogSource, physical_offset: int) -> int:
    """Return the store timestamp (ms) of the record at a physical offset, -1 when the log does not have it."""
    head = np.zeros(_HEAD_BYTES, np.uint8)
    length = min(_HEAD_BYTES, log_source.committed_offset - physical_offset)
    if physical_offset < log_source.min_offset or length < _HEAD_BYTES:
        return -1
    try:
        log_source.read_into(physical_offset, head)
    except OffsetOutOfRange:
        return -1
    data = head.tobytes()
    at = STORE_TIMESTAMP_AT + (HOST_V6_EXTRA if data[SYS_FLAG_AT + 3] & BORN_HOST_V6_FLAG else 0)
    return int.from_bytes(data[at : at + 8], "big", signed=True)


def store_time(queue: ConsumeQueue, log_source: LogSource, offset: int) -> int:
    """Return the store timestamp (ms) of the message at a queue offset, -1 when it is not there."""
    entries = queue.read(offset, 1)
    if len(entries) == 0 or int(entries["size"][0]) == BLANK_SIZE:
        return -1
    return store_time_at(log_source, int(entries["offset"][0]))


def offset_by_time(queue: ConsumeQueue | None, log_source: LogSource, timestamp: int) -> int:
    """Return the queue offset that belongs to ``timestamp`` (ms), by a binary search on store times.

    The first message stored exactly then; else the nearer neighbour, the earlier one of two that are equally near
    (RocketMQ ConsumeQueue.getOffsetInQueueByTime). So a time after the last message gives the last message, not the
    end. 0 for an unknown queue, the min offset for one without messages. Messages that the log has lost count as
    earlier than any time. Unlike RocketMQ the search covers the whole queue, not only the file whose modification time
    fits.
    """
    if queue is None:
        return 0
    low, end = queue.min_offset, queue.max_offset
    if low >= end:
        return queue.min_offset
    left = right = -1  # last known message before, first known at or after
    left_time = right_time = 0
    high = end
    while low < high:
        middle = (low + high) // 2
        time = store_time(queue, log_source, middle)
        if time < timestamp:
            if time >= 0:
                left, left_time = middle, time
            low = middle + 1
        else:
            right, right_time = middle, time
            high = middle
    if right < 0:
        return left if left >= 0 else end - 1
    if left < 0 or right_time == timestamp:
        return right
    return right if timestamp - left_time > right_time - timestamp else left
