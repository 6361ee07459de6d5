"""Messages as RocketMQ's own clients send them: SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.

Lives here: the request of one section for a broker that takes no native append, or for messages that are not plain.
Batches travel unpacked, as RocketMQ's do.
"""

import struct

from pocketmq.client.message.request_message import ReplyMessage
from pocketmq.client.message.transaction_message import HalfMessage
from pocketmq.client.sender.section import Section
from pocketmq.common import record as names
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.message import Message
from pocketmq.common.record import TRANSACTION_PREPARED, encode_properties
from pocketmq.common.topics import AUTO_CREATE_TOPIC
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.send import SendMessageV2RequestHeader

_ITEM = struct.Struct(">iiiii")
_U16 = struct.Struct(">H")


def rocketmq_request(
    section: Section, producer_group: str, queue_nums: int
) -> tuple[int, SendMessageV2RequestHeader, bytes]:
    """Return (request code, header, body) of a section: one message, or a batch of one topic."""
    batch = section.count > 1
    code, sys_flag = (RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2), 0
    if batch:
        properties, body = _batch_properties(section), batch_body(section)
    else:
        message = section.messages[0]
        properties = encode_properties(message.property_map(section.uniq_keys[0].decode("ascii"))).decode()
        body = message.body
        if message.packed is not None and message.packed[0] is body:
            _, sys_flag, body = message.packed
        if isinstance(message, HalfMessage):
            sys_flag |= TRANSACTION_PREPARED
        elif isinstance(message, ReplyMessage):
            code = RequestCode.SEND_REPLY_MESSAGE_V2
    header = SendMessageV2RequestHeader(
        producer_group=producer_group,
        topic=section.queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=queue_nums,
        queue_id=section.queue_id,
        sys_flag=sys_flag,
        born_timestamp=section.born_ms,
        flag=0 if batch else section.messages[0].flag,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        batch=batch,
        bname=section.queue.broker_name,
    )
    return code, header, body


def can_batch(section: Section) -> bool:
    """Return whether messages that happen to travel together may form a RocketMQ batch and are stored as they would be
    one by one. Compressed ones may not: batches are not compressed (``check_batchable`` for the others).
    """
    return section.plain and not section.half and all(message.packed is None for message in section.messages)


def _batch_properties(section: Section) -> str:
    """Return the properties of the batch itself: whether its answer waits for disk and slaves (MessageBatch.java)."""
    return "" if section.wait else encode_properties({names.WAIT: "false"}).decode()


def batch_body(section: Section) -> bytes:
    """Return the items of a batch: size, magic 0, crc 0, flag, body, properties (MessageDecoder.encodeMessage)."""
    parts: list[bytes] = []
    for message, uniq_key in zip(section.messages, section.uniq_keys, strict=True):
        check_batchable(message)
        pairs = message.property_map(uniq_key.decode("ascii"))
        properties = encode_properties(pairs)
        body = message.body
        size = _ITEM.size + len(body) + _U16.size + len(properties)
        parts += (_ITEM.pack(size, 0, 0, message.flag, len(body)), body, _U16.pack(len(properties)), properties)
    return b"".join(parts)


def check_batchable(message: Message) -> None:
    """Raise ``MessageIllegal`` for what RocketMQ refuses in batches (MessageBatch.java)."""
    if message.delay_time_level or message.is_timed or (message.properties and names.DELAY in message.properties):
        raise MessageIllegal(
            "batch refused", why="TimeDelayLevel is not supported for batching", hint="send it by itself"
        )
    if message.topic.startswith("%RETRY%"):
        raise MessageIllegal("batch refused", why="Retry Group is not supported for batching", hint="send it by itself")
