"""RECALL_MESSAGE: a delayed message is taken back before its time.

As in RocketMQ, a recall is itself a message that waits in the timer topic, with the key of the other one: the delivery
thread meets it just before that message, and delivers neither (``delay.delivery``). So a recall is as durable as a send
and reaches slaves with the log.

Lives here: ``Recalls``: from a handle to that record, and its answer.
"""

from dataclasses import dataclass
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer
from pocketmq.broker.send.rocketmq_send import RocketMQSend
from pocketmq.broker.send.send_batch import Appended
from pocketmq.broker.topic.queue_checks import find_topic
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import Clock
from pocketmq.common.recall_handle import RecallHandle, RecallHandleIllegal
from pocketmq.common.record import (
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    UNIQ_KEY,
    encode_properties,
)
from pocketmq.common.record_codec import encode_record
from pocketmq.common.record_group import record_meta
from pocketmq.common.topics import TIMER_TOPIC
from pocketmq.remoting.protocol.send import MessageIdResponseHeader
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore

RECALL_TAG: Final = "_RECALL_TAG_"
RECALL_BODY: Final = b"0"
"""Both RocketMQ's (RecallMessageProcessor)."""
BEFORE_MS: Final = 1
"""A recall is due so much before its message: the delivery thread meets it first."""


def recall_key(topic: str, message_id: str) -> str:
    """Return the key of a message in a recall (RocketMQ TimerMessageStore.buildDeleteKey)."""
    return f"{topic}+{message_id}"


class Recall(RocketMQSend):
    """One recall on its way into the log."""

    __slots__ = ("message_id",)
    message_id: str

    def encode(self, appended: Appended) -> Buffers:
        """Return the id of the message."""
        header = MessageIdResponseHeader(self.message_id)
        return encode_answer(self.task.request, appended.code, header=header, remark=appended.remark)


@dataclass(slots=True, eq=False)
class Recalls:
    """Turns recalls into records. Belongs to one worker thread at a time."""

    config: BrokerConfig
    store_config: StoreConfig
    store: MessageStore
    topics: TopicTable
    clock: Clock

    def plan(self, task: Task) -> Recall:
        """Check a handle and make the record; raises ``RecallHandleIllegal`` or ``TopicNotExist``."""
        header: Any = task.request.header
        find_topic(self.topics, header.topic)
        handle = RecallHandle.parse(header.recall_handle)
        left_ms = handle.due_ms - self.clock.now_ms()
        why = ""
        if handle.topic != header.topic:
            why = "topic not match"
        elif handle.broker != self.config.broker_name:
            why = f"the message is at broker {handle.broker[:64]}, and this is {self.config.broker_name}"
        elif not BEFORE_MS < left_ms <= self.store_config.timer_max_delay_sec * 1000:
            why = f"its time is {left_ms} ms away"
        if why:
            raise RecallHandleIllegal("recall failed", why=why, hint="only a message that still waits can be recalled")
        properties = {
            TIMER_DEL_UNIQKEY: recall_key(handle.topic, handle.message_id),
            UNIQ_KEY: handle.message_id,
            TAGS: RECALL_TAG,
            TIMER_DELIVER_MS: str(handle.due_ms),
            TIMER_OUT_MS: str(handle.due_ms - BEFORE_MS),
            REAL_TOPIC: handle.topic,
            REAL_QID: "0",
        }
        host = self.store.store_host
        record = encode_record(
            TIMER_TOPIC,
            RECALL_BODY,
            queue_id=0,
            properties=encode_properties(properties),
            born_timestamp=self.clock.now_ms(),
            born_host=host,
            store_host=host,
        )
        meta = record_meta(TIMER_TOPIC, 0, 0, properties)
        recall = Recall(task, TIMER_TOPIC, 0, True, [record], [meta], len(record), host, self.config, 0)
        recall.message_id = handle.message_id
        return recall
