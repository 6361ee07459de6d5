"""CONSUMER_SEND_MSG_BACK: a consumer did not finish a message and wants it again later.

Lives here: ``SendBacks``: from the offset of a message in the log to its copy in the group's retry topic (delayed by
attempt) or dead-letter topic; RocketMQ's answer (docs/rocketmq.md, "Retry topics and dead letters").
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from pocketmq.auth.errors import AccessDenied
from pocketmq.auth.stored import check_stored
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay.delay_plan import DelayPlan
from pocketmq.broker.group.retry_topics import RetryTopics
from pocketmq.broker.request.request_task import Buffers, Refusal, Task, encode_answer
from pocketmq.broker.send.rocketmq_send import NotStored, RocketMQSend
from pocketmq.broker.send.send_batch import Appended
from pocketmq.broker.send.send_checks import SendChecks
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.common.errors import Cause, MessageIllegal
from pocketmq.common.message_id import offset_msg_id
from pocketmq.common.record import DELAY, HOSTS_V6_MASK, RETRY_TOPIC, WAIT, decode_properties, encode_properties
from pocketmq.common.record_codec import Record, decode_record, encode_record
from pocketmq.common.record_group import record_meta
from pocketmq.common.redelivery import FIRST_RETRY_LEVEL, LAST_ERROR, error_line, prepare_copy
from pocketmq.common.topics import is_send_forbidden
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.protocol.access import SUB
from pocketmq.store.append_result import PutStatus
from pocketmq.store.message_store import MessageStore

_STATUS_NAMES: Final = {status.code: status.name for status in reversed(PutStatus)}


def send_back_refusal(refusal: Refusal, status: PutStatus) -> Refusal:
    """Return RocketMQ's answer to a send-back whose put failed: code 1 and the name of the status."""
    return replace(refusal, code=int(ResponseCode.SYSTEM_ERROR), remark=status.name)


class SentBack(RocketMQSend):
    """One copy on its way into the log; it does not wait for the flush: RocketMQ stores it with WAIT=false."""

    __slots__ = ("consumer_group", "counters", "first_topic", "is_dead")
    counters: BrokerCounters
    is_dead: bool
    consumer_group: str
    first_topic: str
    """The topic that the message was first sent to."""

    def encode(self, appended: Appended) -> Buffers:
        """Return the answer: 0, or 1 with the name of the put status."""
        if appended.code:
            name = _STATUS_NAMES.get(appended.code, appended.remark)
            return encode_answer(self.task.request, ResponseCode.SYSTEM_ERROR, remark=name)
        self.counters.sent_back(self.is_dead, self.consumer_group, self.first_topic)
        return encode_answer(self.task.request)


@dataclass(slots=True, eq=False)
class SendBacks:
    """Turns send-backs into records. Belongs to one worker thread at a time."""

    config: BrokerConfig
    store: MessageStore
    checks: SendChecks
    retries: RetryTopics
    delays: DelayPlan
    counters: BrokerCounters

    def plan(self, task: Task) -> SentBack:
        """Read the message and make its copy; raises ``NotStored`` or ``MessageIllegal``.

        The message is read from the log: the topic and id in the request are neither needed nor trusted.
        """
        header: Any = task.request.header
        group = _accepted(self.retries.group(header.group, task.request.session))
        original = self._read(header.offset)
        self._check_user(task, original.topic)
        max_times = group.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        is_dead = header.delay_level < 0 or original.reconsume_times >= max_times or group.retry_queue_nums <= 0
        if is_dead:
            topic, queue_id = _accepted(self.retries.dead_letter_queue(header.group))
        else:
            topic, queue_id = _accepted(self.retries.retry_queue(group, header.unit_mode))
        _accepted(self.checks.check(topic, queue_id))
        properties = decode_properties(original.properties)
        prepare_copy(properties, original.topic, offset_msg_id(original.store_host, original.physical_offset))
        properties[WAIT] = "false"
        last_error = error_line(header.last_error)
        if last_error:
            properties[LAST_ERROR] = last_error
        asked_queue_id = queue_id
        if not is_dead:
            properties[DELAY] = str(header.delay_level or FIRST_RETRY_LEVEL + original.reconsume_times)
            waits = _accepted(self.delays.plan(topic, queue_id, properties))
            if waits is not None:
                topic, queue_id = waits
        send = self._copy(task, original, topic, queue_id, properties, asked_queue_id)
        send.is_dead = is_dead
        send.counters = self.counters
        send.consumer_group = header.group
        send.first_topic = properties[RETRY_TOPIC]
        return send

    def _read(self, offset: int) -> Record:
        record = self.store.read_record(offset) if offset >= 0 else None
        if record is not None:
            original = decode_record(record)
            if not is_send_forbidden(original.topic):  # consumers do not get messages of such topics
                return original
        text = f"look message by offset failed, {offset}"
        raise NotStored(Refusal(int(ResponseCode.SYSTEM_ERROR), text, Cause.BAD_REQUEST))

    @staticmethod
    def _check_user(task: Task, topic: str) -> None:
        """Raise ``NotStored`` if the user may not read ``topic``: through a copy for a group of one's own one could
        read any message."""
        try:
            check_stored(task.request, topic, SUB)
        except AccessDenied as error:
            raise NotStored(Refusal(error.code, str(error), error.cause)) from error

    def _copy(
        self,
        task: Task,
        original: Record,
        topic: str,
        queue_id: int,
        properties: dict[str, str],
        asked_queue_id: int,
    ) -> SentBack:
        try:
            encoded = encode_properties(properties)
        except MessageIllegal:
            if LAST_ERROR not in properties:
                raise
            del properties[LAST_ERROR]  # the message matters more than the error text
            encoded = encode_properties(properties)
        sys_flag = original.sys_flag & ~HOSTS_V6_MASK
        record = encode_record(
            topic,
            original.body,
            queue_id=queue_id,
            properties=encoded,
            flag=original.flag,
            sys_flag=sys_flag,
            born_timestamp=original.born_timestamp,
            born_host=original.born_host,
            store_host=self.store.store_host,
            reconsume_times=min(original.reconsume_times + 1, 0x7FFF_FFFF),
        )
        meta = record_meta(topic, queue_id, sys_flag, properties)
        host, config, size_bytes = self.store.store_host, self.config, len(record)
        return SentBack(task, topic, queue_id, False, [record], [meta], size_bytes, host, config, asked_queue_id)


def _accepted(verdict: Any) -> Any:
    """Return ``verdict``, or raise ``NotStored`` if it is a refusal."""
    if isinstance(verdict, Refusal):
        raise NotStored(verdict)
    return verdict
