"""Messages that the tests of stores put into RocketMQ: every kind that a store can hold.

Lives here: ``write_content`` and ``Content``, which says what must be found again.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from tests.interop.store_tool import Seen, StoreTool

ORDERS, SINGLE, GROUP = "orders", "single", "billing"
ORDERS_QUEUES = 4
RETRY, DLQ = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
HALF, OPERATIONS = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SCHEDULE, LEVELS = "SCHEDULE_TOPIC_XXXX", 18
TIMER = "rmq_sys_wheel_timer"
LONG_GROUP = "g" * 200
"""Its retry topic has a name that only RocketMQ 5's second record format holds."""
COMMITTED = {0: 17, 1: 5}
"""Queue of ``ORDERS`` → offset that ``GROUP`` committed."""
QUEUES = {ORDERS: ORDERS_QUEUES, SINGLE: 1, RETRY: 1, DLQ: 1, SCHEDULE: LEVELS}
QUEUES_5_3 = {f"%RETRY%{LONG_GROUP}": 1, TIMER: 1, HALF: 1, OPERATIONS: 1}
"""Also the two topics of transactions: 4.9 has their messages and serves them to no client."""
FOR_CONSUMERS = (ORDERS, SINGLE, RETRY, DLQ)


SEGMENT_BYTES, QUEUE_FILE_BYTES, INDEX_SLOTS, INDEX_ENTRIES = 16_384, 400, 50, 200
"""File sizes of these stores: some messages fill several files of each kind."""
ROCKETMQ_SIZES = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": QUEUE_FILE_BYTES,
    "maxHashSlotNum": INDEX_SLOTS,
    "maxIndexNum": INDEX_ENTRIES,
}
POCKETMQ_SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": SEGMENT_BYTES,
    "mapped_file_size_consume_queue": QUEUE_FILE_BYTES,
    "max_hash_slot_num": INDEX_SLOTS,
    "max_index_num": INDEX_ENTRIES,
}
COUNT = 80


@dataclass(slots=True)
class Content:
    """The written messages. ``seen``: topic → messages as RocketMQ's own consumer read them before the broker ended."""

    sent: list[dict[str, Any]] = field(default_factory=list)
    seen: dict[str, list[Seen]] = field(default_factory=dict)

    @property
    def messages(self) -> list[Seen]:
        """Return all messages, by topic."""
        return [each for topic in self.seen.values() for each in topic]


def queues_of(version: str) -> dict[str, int]:
    """Return topic → number of queues for all topics that a broker of this version gets."""
    return QUEUES | (QUEUES_5_3 if version == "5.3" else {})


def write_content(tool: StoreTool, version: str, count: int = COUNT, *, into_pocketmq: bool = False) -> Content:
    """Write all kinds; ``count`` plain messages and a few of each other kind. It waits for about four seconds.
    ``into_pocketmq``: into our broker, which accepts timers from every client, and no group of 200 characters. Pending
    at the end: a delay of 10 s (just begun) and one of two hours, the half message in doubt, a retry of level 18, with
    5.3 a timer of 12 s and one of an hour.
    """
    content = Content()
    tool.call("topic", ORDERS, ORDERS_QUEUES)
    tool.call("topic", SINGLE, 1)
    sent = content.sent
    sent += tool.call("delayed", SINGLE, 0, 1, "one-second")
    sent += tool.call("messages", ORDERS, ORDERS_QUEUES, count // 2, 7)
    sent += tool.call("batch", ORDERS, 2, 10)
    sent += tool.call("messages", ORDERS, ORDERS_QUEUES, count - count // 2, 8)
    sent += tool.call("delayed", SINGLE, 0, 18, "two-hours")
    tool.call("transaction", SINGLE, "COMMIT_MESSAGE", "committed")
    tool.call("transaction", SINGLE, "ROLLBACK_MESSAGE", "rolled-back")
    tool.call("transaction", SINGLE, "UNKNOW", "in-doubt")
    for offset, level in ((3, 1), (4, -1), (5, 18)):
        tool.call("back", ORDERS, 0, offset, GROUP, level)
    for queue_id, offset in COMMITTED.items():
        tool.call("commit", GROUP, ORDERS, queue_id, offset)
    has_timers = into_pocketmq or version == "5.3"
    if version == "5.3" and not into_pocketmq:
        tool.call("back", ORDERS, 1, 3, LONG_GROUP, 1)
    if has_timers:
        tool.call("timer", SINGLE, 3_600_000, "in-an-hour")
        tool.call("timer", SINGLE, 1000, "soon")
    time.sleep(4.0)  # the one-second delays are delivered, the op messages of transactions written
    sent += tool.call("delayed", SINGLE, 0, 3, "ten-seconds")
    if has_timers:
        tool.call("timer", SINGLE, 12_000, "twelve-seconds")
        time.sleep(1.5)
    topics = queues_of("4.9" if into_pocketmq else version)
    content.seen = {topic: tool.read(topic, queues) for topic, queues in topics.items()}
    return content
