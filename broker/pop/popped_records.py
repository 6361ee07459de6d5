"""Records as the answer to a pop has them.

Lives here: ``with_handle``, for messages of a retry topic: RocketMQ's clients want the topic that was popped, and the
handle, which they cannot derive then, as a property (PopMessageProcessor, "recode").
"""

import struct
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from pocketmq.common.receipt_handle import PoppedQueue, ReceiptHandle, retry_mark
from pocketmq.common.record import POP_CK, PROPERTIES_BYTES_MAX
from pocketmq.common.record_codec import record_spans
from pocketmq.store.consumequeue.get import GetResult

_U32: Final = struct.Struct(">I")
_U16: Final = struct.Struct(">H")
_NAME_END: Final = b"\x01"
_VALUE_END: Final = b"\x02"


def body_of(results: Iterable[GetResult]) -> list[Any]:
    """Return the records of all queues as they lie in the log."""
    return [each.body.data for each in results]


def with_handle(
    result: GetResult,
    queue: PoppedQueue,
    topic: str,
    pop_time: int,
    invisible_ms: int,
    revive_qid: int,
    broker: str,
) -> list[bytes]:
    """Return the records of ``queue`` with another topic and their receipt handles among the properties."""
    body = result.body.tobytes()
    ends = np.cumsum(result.sizes.astype(np.int64)).tolist()
    found: list[bytes] = []
    for start, end, offset in zip([0, *ends], ends, queue.offsets, strict=False):
        handle = ReceiptHandle(
            queue.start_offset,
            pop_time,
            invisible_ms,
            revive_qid,
            retry_mark(queue.topic),
            broker,
            queue.queue_id,
            offset,
        )
        found.append(_recoded(body[start:end], topic, f"{POP_CK}\x01{handle}\x02".encode()))
    return found


def _recoded(record: bytes, topic: str, prop: bytes) -> bytes:
    spans = record_spans(record)
    topic_bytes = topic.encode()
    properties = record[spans.property_start : spans.property_start + spans.property_length]
    if properties and not properties.endswith(_VALUE_END):
        properties += _VALUE_END
    if len(properties) + len(prop) <= PROPERTIES_BYTES_MAX:  # else: without it, a client cannot acknowledge it
        properties += prop
    body_end = spans.body_start + spans.body_length
    length_bytes = spans.topic_start - body_end
    tail = b"".join(
        (
            len(topic_bytes).to_bytes(length_bytes, "big"),
            topic_bytes,
            _U16.pack(len(properties)),
            properties,
        )
    )
    return _U32.pack(body_end + len(tail)) + record[4:body_end] + tail
