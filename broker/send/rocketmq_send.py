"""SEND_MESSAGE, its V2 form and the batch: messages that the broker encodes.

Lives here: ``RocketMQSend``: checks of one request, the batch body, the records, the response.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay.delay_plan import DelayPlan, is_delayed
from pocketmq.broker.group.retry_topics import RetryTopics
from pocketmq.broker.request.request_task import Buffers, Refusal, Task, encode_answer
from pocketmq.broker.send.send_batch import Appended, SendBatch
from pocketmq.broker.send.send_checks import SendChecks
from pocketmq.broker.transaction.transaction_plan import HalfPlan, is_half
from pocketmq.broker.transaction.transaction_table import Half
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.message_id import offset_msg_id
from pocketmq.common.recall_handle import RecallHandle
from pocketmq.common.record import (
    CLUSTER,
    HOSTS_V6_MASK,
    MSG_REGION,
    PROPERTIES_BYTES_MAX,
    TIMER_OUT_MS,
    TRACE_ON,
    TRAN_MSG,
    TRANSACTION_MASK,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    encode_properties,
)
from pocketmq.common.record_codec import encode_records
from pocketmq.common.record_group import GroupSection, RecordGroup, RecordMeta, record_meta
from pocketmq.common.redelivery import forget_delay
from pocketmq.common.refusals import MESSAGE_ILLEGAL
from pocketmq.common.topics import TIMER_TOPIC, is_retry_topic
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import Buffer
from pocketmq.remoting.protocol.send import SendMessageResponseHeader

BATCH_ITEMS_MAX: Final = 10_000
"""They keep the send thread busy for 70 ms: less than fast failure lets other sends wait."""

_ITEM = struct.Struct(">iiiii")  # total size, magic, crc, flag, body length (MessageDecoder)
_I32 = struct.Struct(">i")
_U16 = struct.Struct(">H")


class NotStored(Exception):
    """Carries the refusal of one request out of its checks."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.remark)
        self.refusal = refusal


def of_broker(config: BrokerConfig) -> dict[str, str]:
    """Return the properties that the broker adds to each message of these clients."""
    added = {CLUSTER: config.broker_cluster_name, TRACE_ON: "true" if config.trace_on else "false"}
    if config.region_id:  # a 5.3 consumer traces no message that does not name its region
        added[MSG_REGION] = config.region_id
    return added


def decode_batch(body: Buffer) -> Iterator[tuple[int, memoryview, dict[str, str]]]:
    """Yield flag, body and properties of each message of a batch body; raise ``MessageIllegal`` when its lengths
    disagree. Neighbours with the same properties have the same ``dict``."""
    view = memoryview(body)
    count = at = 0
    while at + 4 <= len(view):  # the count first: it is cheap, and what is refused is not built
        size = _I32.unpack_from(view, at)[0]
        count += 1
        if count > BATCH_ITEMS_MAX:
            raise _illegal(f"more than {BATCH_ITEMS_MAX} messages in a batch")
        if size <= 0:
            break
        at += size
    raw, properties = b"", decode_properties(b"")
    number = at = 0
    while at < len(view):
        if at + _ITEM.size + 2 > len(view):
            raise _illegal(f"batch item {number} is cut off at byte {at}")
        size, _, _, flag, body_length = _ITEM.unpack_from(view, at)
        body_at = at + _ITEM.size
        properties_at = body_at + body_length
        if body_length < 0 or properties_at + 2 > len(view):
            raise _illegal(f"batch item {number} has a body of {body_length} bytes")
        properties_length = _U16.unpack_from(view, properties_at)[0]
        end = properties_at + 2 + properties_length
        if end - at != size or end > len(view):
            raise _illegal(f"batch item {number}: size {size}, its parts add up to {end - at}")
        if properties_length != len(raw) or view[properties_at + 2 : end] != raw:
            raw = bytes(view[properties_at + 2 : end])
            properties = decode_properties(raw)
        yield flag, view[body_at:properties_at], properties
        number += 1
        at = end
    if not number:
        raise _illegal("the batch is empty")


@dataclass(slots=True, eq=False)
class RocketMQSend:
    """One checked SEND_MESSAGE or batch; one section of a group.

    ``topic`` and ``queue_id`` say where it is stored; ``asked_queue_id`` is the queue in the answer: that of the
    message, even while it waits elsewhere for its time (RocketMQ).
    """

    task: Task
    topic: str
    queue_id: int
    wait: bool
    records: list[bytes]
    metas: list[RecordMeta]
    size_bytes: int
    offset_ids_host: bytes
    config: BrokerConfig
    asked_queue_id: int
    half: Half | None = None
    """Its entry in the table of transactions, if it is half of one."""
    position: int = 0
    recall: RecallHandle | None = None
    """By which its sender can take it back, while it waits for its time."""

    def shift(self, sections: int) -> None:
        """Move its section behind ``sections`` sections of other runs."""
        self.position += sections

    def encode(self, appended: Appended) -> Buffers:
        """Return RocketMQ's response: offset message ids, queue, offset; unique keys as transaction id (5.3)."""
        request = self.task.request
        ids: list[str] = []
        sizes = iter(self.records)
        for physical_offset, count in appended.runs[self.position]:
            at = physical_offset
            for _ in range(count):
                ids.append(offset_msg_id(self.offset_ids_host, at))
                at += len(next(sizes))
        header = SendMessageResponseHeader(
            msg_id=",".join(ids),
            queue_id=self.asked_queue_id,
            queue_offset=appended.first_queue_offsets[self.position],
            transaction_id=",".join(meta.uniq_key.decode("utf-8", "replace") for meta in self.metas),
            msg_region=self.config.region_id,
            trace_on=self.config.trace_on,
            recall_handle="" if self.recall is None else str(self.recall),
        )
        return encode_answer(request, appended.code, header=header, remark=appended.remark)


@dataclass(slots=True, eq=False)
class RocketMQSends:
    """Turns SEND_MESSAGE requests into records. Belongs to one worker thread at a time."""

    config: BrokerConfig
    checks: SendChecks
    store_host: bytes
    message_size_max: int
    delays: DelayPlan
    retries: RetryTopics
    halves: HalfPlan
    _random_queue: int = field(init=False, default=0)
    _of_broker: dict[str, str] = field(init=False)
    """Properties that the broker adds to each message."""

    def __post_init__(self) -> None:
        self._of_broker = of_broker(self.config)

    def plan(self, task: Task) -> RocketMQSend:
        """Check and encode one request; raises ``NotStored`` or ``MessageIllegal``."""
        request = task.request
        header: Any = request.header
        topic: str = header.topic
        batch = request.code == RequestCode.SEND_BATCH_MESSAGE or bool(header.batch)
        self._check_kind(topic, header, batch)
        queue_id: int = header.queue_id
        is_dead = False
        if is_retry_topic(topic):
            dead = self.retries.redirected(topic, header, request.session)
            if isinstance(dead, Refusal):
                raise NotStored(dead)
            if dead is not None:
                is_dead = True
                topic, queue_id = dead
        verdict = self.checks.check(
            topic, queue_id, header.default_topic, header.default_topic_queue_nums, request.session
        )
        if isinstance(verdict, Refusal):
            raise NotStored(verdict)
        if queue_id < 0:  # any queue: RocketMQ chooses one at random
            self._random_queue += 1
            queue_id = self._random_queue % max(1, verdict.write_queue_nums)
        if len(header.properties) > PROPERTIES_BYTES_MAX:
            raise _illegal(f"properties of {len(header.properties)} characters, limit {PROPERTIES_BYTES_MAX}")
        shared = decode_properties(header.properties.encode("utf-8", "replace"))
        self._check_properties(shared, batch)
        if len(request.body) > self.message_size_max:
            raise _illegal(f"body of {len(request.body)} bytes, limit {self.message_size_max}")
        wait = shared.get(WAIT, "true").lower() != "false"
        asked_queue_id = queue_id
        half: Half | None = None
        recall: RecallHandle | None = None
        if batch:
            items = self._batch_items(request.body, shared)
        else:
            own = dict(shared)
            if is_dead:
                forget_delay(own)
            elif is_retry_topic(topic):  # a copy of a delivered timed message still has its due time
                own.pop(TIMER_OUT_MS, None)
            if is_half(header.sys_flag, shared):
                planned = self.halves.plan(topic, queue_id, own)
                if isinstance(planned, Refusal):
                    raise NotStored(planned)
                topic, queue_id, half = planned
            elif is_delayed(own):
                waits = self.delays.plan(topic, queue_id, own)
                if isinstance(waits, Refusal):
                    raise NotStored(waits)
                if waits is not None:
                    if waits[0] == TIMER_TOPIC and not is_retry_topic(topic) and UNIQ_KEY in own:
                        recall = RecallHandle(topic, self.config.broker_name, int(own[TIMER_OUT_MS]), own[UNIQ_KEY])
                    topic, queue_id = waits
            own.pop(WAIT, None)
            own.update(self._of_broker)
            items = iter([(header.flag, memoryview(request.body), own)])
        metas: list[RecordMeta] = []
        sys_flag = header.sys_flag & ~(HOSTS_V6_MASK | TRANSACTION_MASK)

        def parts() -> Iterator[tuple[int, memoryview, bytes]]:
            properties: dict[str, str] | None = None
            for flag, body, its_properties in items:
                if its_properties is not properties:
                    properties = its_properties
                    encoded = encode_properties(properties)
                    meta = record_meta(topic, queue_id, sys_flag, properties)
                metas.append(meta)
                yield flag, body, encoded

        records = encode_records(
            topic,
            parts(),
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=task.connection.remote_host,
            store_host=self.store_host,
            reconsume_times=header.reconsume_times or 0,
        )
        quota = task.connection.quota
        if quota is not None and len(records) > 1:  # nobody knew how many they are before
            quota.owe(len(records) - 1, 0, task.created_ns)
        host, config, size_bytes = self.store_host, self.config, sum(map(len, records))
        send = RocketMQSend(task, topic, queue_id, wait, records, metas, size_bytes, host, config, asked_queue_id, half)
        send.recall = recall
        return send

    def _check_kind(self, topic: str, header: Any, batch: bool) -> None:
        """Refuse messages that a batch cannot hold."""
        if batch and header.sys_flag & TRANSACTION_MASK:
            raise _illegal("a batch cannot hold transactional messages: send each by itself")
        if batch and is_retry_topic(topic):
            raise _illegal(f"batch request does not support retry group {topic}")

    def _check_properties(self, properties: dict[str, str], batch: bool) -> None:
        if batch and properties.get(TRAN_MSG, "").lower() == "true":
            raise _illegal("a batch cannot hold transactional messages: send each by itself")

    def _batch_items(self, body: Buffer, shared: dict[str, str]) -> Iterator[tuple[int, memoryview, dict[str, str]]]:
        """Yield flag, body and whole properties of each message of a batch."""
        common = {name: value for name, value in shared.items() if name not in (UNIQ_KEY, WAIT)}
        own: dict[str, str] | None = None
        whole: dict[str, str] = {}
        for flag, item_body, properties in decode_batch(body):
            if properties is not own:
                own = properties
                whole = {**own, **common}
                self._check_properties(whole, batch=True)
                if is_delayed(whole):
                    raise _illegal("a batch cannot hold delayed messages: send each by itself")
                whole.pop(WAIT, None)
                whole.update(self._of_broker)
            yield flag, item_body, whole

    def check(self, sends: list[RocketMQSend]) -> SendBatch:
        """Return the group of all records of ``sends``, one section each."""
        records: list[bytes] = []
        metas: list[RecordMeta] = []
        sections: list[GroupSection] = []
        for position, send in enumerate(sends):
            send.position = position
            sections.append(GroupSection(send.topic, send.queue_id, len(records), len(send.records)))
            records += send.records
            metas += send.metas
        halves = [send for send in sends if send.half is not None]
        stored = partial(self.halves.stored, halves) if halves else None
        return SendBatch(list(sends), RecordGroup.from_records(records, metas, sections), stored)


def _illegal(why: str) -> MessageIllegal:
    return MessageIllegal(MESSAGE_ILLEGAL.template, why=why)
