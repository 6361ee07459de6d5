"""Sends: RocketMQ's, the native append, replies, and messages that a consumer sends back.

Header structs: RocketMQ 4.9.8 ``SendMessageRequestHeader`` and its neighbors, 5.3.3 where marked.

Access: RocketMQ 5.3.3 ``DefaultAuthorizationContextBuilder`` for 10, 310, 320, 36 and 370. RocketMQ checks 324 and 325
nowhere: they need what 10 and 310 need. The native appends need it for the topic of each section. 326 goes to clients.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import FROM_BROKER, PUB_SECTIONS, PUB_TOPIC, SUB, group, needs
from pocketmq.remoting.protocol.spec import Header, Int, Long, Pool, Raw, Spec


class SendMessageRequestHeader(Header, frozen=True):
    """SEND_MESSAGE, SEND_REPLY_MESSAGE; the body is the message body."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
    batch: bool = False
    bname: str = ""


class SendMessageV2RequestHeader(SendMessageRequestHeader, frozen=True):
    """SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE_V2: the same fields, named ``a`` to ``n`` on the wire."""

    wire_names: ClassVar[Mapping[str, str]] = dict(
        zip(SendMessageRequestHeader.__struct_fields__, "abcdefghijklmn", strict=True)
    )


class SendMessageResponseHeader(Header, frozen=True):
    """``msg_id`` is the offset message id, comma-joined for a batch. The last three fields are 5.3's."""

    wire_names: ClassVar[Mapping[str, str]] = {"msg_region": "MSG_REGION", "trace_on": "TRACE_ON"}

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str = ""
    msg_region: str = "DefaultRegion"
    trace_on: bool = True
    batch_uniq_id: str = ""
    recall_handle: str = ""


class NativeAppendRequestHeader(Header, frozen=True):
    """NATIVE_APPEND, NATIVE_HALF_APPEND; the body is ``u32 big-endian sizes[N]``, then the N records in order."""

    producer_group: str
    wait: bool
    sections: list[tuple[str, Int, Int]]
    """(topic, queue id, record count) of each section."""
    timeout_ms: Int


class NativeAppendResponseHeader(Header, frozen=True):
    """One result a section. The frame's code is SUCCESS if any section was processed."""

    store_timestamp: Long
    results: list[tuple[Int, Long, list[tuple[Long, Int]], str]]
    """(response code, first queue offset, [(physical offset of first record, record count) of each run], remark)."""


class ReplyMessageRequestHeader(Header, frozen=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT: the send fields and the place of the stored reply."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    born_host: str
    store_host: str
    store_timestamp: Long
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False


class ConsumerSendMsgBackRequestHeader(Header, frozen=True):
    """CONSUMER_SEND_MSG_BACK; ``offset`` is the commit-log offset."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str = ""
    origin_topic: str = ""
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
    bname: str = ""
    last_error: str = ""
    """Ours: why the consumer did not finish the message; other brokers skip the field."""


class RecallMessageRequestHeader(Header, frozen=True):
    """RECALL_MESSAGE (5.3)."""

    topic: str
    recall_handle: str
    producer_group: str = ""
    bname: str = ""


class MessageIdResponseHeader(Header, frozen=True):
    """The id of one message."""

    msg_id: str


_R = RequestCode
SPECS: Final = (
    Spec(_R.SEND_MESSAGE, Pool.SEND, PUB_TOPIC, SendMessageRequestHeader, SendMessageResponseHeader, body=Raw.MESSAGE),
    Spec(_R.CONSUMER_SEND_MSG_BACK, Pool.SEND, needs(group("group", SUB)), ConsumerSendMsgBackRequestHeader),
    Spec(
        _R.SEND_MESSAGE_V2,
        Pool.SEND,
        PUB_TOPIC,
        SendMessageV2RequestHeader,
        SendMessageResponseHeader,
        body=Raw.MESSAGE,
    ),
    Spec(
        _R.SEND_BATCH_MESSAGE,
        Pool.SEND,
        PUB_TOPIC,
        SendMessageV2RequestHeader,
        SendMessageResponseHeader,
        body=Raw.BATCH,
    ),
    Spec(
        _R.SEND_REPLY_MESSAGE,
        Pool.REPLY,
        PUB_TOPIC,
        SendMessageRequestHeader,
        SendMessageResponseHeader,
        body=Raw.MESSAGE,
    ),
    Spec(
        _R.SEND_REPLY_MESSAGE_V2,
        Pool.REPLY,
        PUB_TOPIC,
        SendMessageV2RequestHeader,
        SendMessageResponseHeader,
        body=Raw.MESSAGE,
    ),
    Spec(_R.PUSH_REPLY_MESSAGE_TO_CLIENT, Pool.CLIENT, FROM_BROKER, ReplyMessageRequestHeader, body=Raw.MESSAGE),
    Spec(_R.RECALL_MESSAGE, Pool.SEND, PUB_TOPIC, RecallMessageRequestHeader, MessageIdResponseHeader),
    Spec(
        _R.NATIVE_APPEND,
        Pool.SEND,
        PUB_SECTIONS,
        NativeAppendRequestHeader,
        NativeAppendResponseHeader,
        body=Raw.SIZED_RECORDS,
    ),
    Spec(
        _R.NATIVE_HALF_APPEND,
        Pool.SEND,
        PUB_SECTIONS,
        NativeAppendRequestHeader,
        NativeAppendResponseHeader,
        body=Raw.SIZED_RECORDS,
    ),
)
