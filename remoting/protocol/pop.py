"""POP: messages that are given out for a time and acknowledged one by one.

Header structs and bodies: RocketMQ 5.3.3 ``protocol/header`` and ``protocol/body``. Times are ms.

Access: the annotations of RocketMQ's headers, Sub on topic and group, but Get for POLLING_INFO. RocketMQ checks 200151
nowhere: it needs what 200051 needs, for each of its parts. NATIVE_POP and NATIVE_SETTLE need what 200050 needs. A topic
that is POP's retry topic of the group stands for the topic that it belongs to.
"""

from typing import Final

import msgspec

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import GET, PULL, SUB_BODY, group, needs, topic
from pocketmq.remoting.protocol.body import Body
from pocketmq.remoting.protocol.spec import Header, Int, Long, Pool, Raw, Spec


class PopMessageRequestHeader(Header, frozen=True):
    """POP_MESSAGE. ``queue_id`` -1: any queue; ``init_mode`` of a new group: 0 the oldest message, 1 the newest.

    ``order``: a batch of one queue at a time; an attempt that repeats its ``attempt_id`` gets its batch again.
    """

    consumer_group: str
    topic: str
    queue_id: Int
    max_msg_nums: Int
    invisible_time: Long
    poll_time: Long
    born_time: Long = 0
    init_mode: Int = 0
    exp_type: str = ""
    exp: str = ""
    order: bool = False
    attempt_id: str = ""


class PopMessageResponseHeader(Header, frozen=True):
    """The body is the records back to back; ``common.receipt_handle`` makes and reads the three texts."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int
    rest_num: Long
    start_offset_info: str = ""
    msg_offset_info: str = ""
    order_count_info: str = ""


class AckMessageRequestHeader(Header, frozen=True):
    """ACK_MESSAGE; ``topic`` is the one that the message lies in, ``extra_info`` the receipt handle."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long


class ChangeInvisibleTimeRequestHeader(Header, frozen=True):
    """CHANGE_MESSAGE_INVISIBLETIME: the message becomes visible ``invisible_time`` from now."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_time: Long


class ChangeInvisibleTimeResponseHeader(Header, frozen=True):
    """The fields of the new receipt handle."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int


class NotificationRequestHeader(Header, frozen=True):
    """NOTIFICATION: is there something to pop?"""

    consumer_group: str
    topic: str
    queue_id: Int
    poll_time: Long
    born_time: Long = 0
    order: bool = False
    attempt_id: str = ""


class NotificationResponseHeader(Header, frozen=True):
    """``polling_full``: too many wait already."""

    has_msg: bool
    polling_full: bool = False


class PeekMessageRequestHeader(Header, frozen=True):
    """PEEK_MESSAGE: what a pop would get, which stays where it is."""

    topic: str
    queue_id: Int
    max_msg_nums: Int
    consumer_group: str


class PollingInfoRequestHeader(Header, frozen=True):
    """POLLING_INFO."""

    consumer_group: str
    topic: str
    queue_id: Int


class PollingInfoResponseHeader(Header, frozen=True):
    """How many pops wait."""

    polling_num: Int


class BatchAck(Body):
    """Acknowledgements of messages of one pop; ``bits``: Base64 of the bits of their distances from
    ``start_offset``."""

    consumer_group: str = msgspec.field(name="c", default="")
    topic: str = msgspec.field(name="t", default="")
    """The topic that was popped, not the retry topic."""
    retry: str = msgspec.field(name="r", default="0")
    start_offset: int = msgspec.field(name="so", default=0)
    queue_id: int = msgspec.field(name="q", default=0)
    revive_queue_id: int = msgspec.field(name="rq", default=0)
    pop_time: int = msgspec.field(name="pt", default=0)
    invisible_time: int = msgspec.field(name="it", default=0)
    bits: str = msgspec.field(name="b", default="")


class BatchAckBody(Body):
    """BATCH_ACK_MESSAGE."""

    broker_name: str = ""
    acks: list[BatchAck] = []


class NativePopRequestHeader(Header, frozen=True):
    """NATIVE_POP: PocketMQ's POP_MESSAGE, for more messages at once. ``poll_ms`` counts from the request's arrival."""

    consumer_group: str
    topic: str
    queue_id: Int
    max_messages: Int
    max_bytes: Int
    invisible_ms: Int
    poll_ms: Int
    expression: str = "*"
    expression_type: str = "TAG"
    order: bool = False
    attempt_id: str = ""
    init_mode: Int = 0


class NativePopResponseHeader(Header, frozen=True):
    """The body is ``u32 big-endian sizes[N]`` and then the N records as they lie in the log; N is ``messages``. A
    record's topic tells whether it comes from the retry topic; handles are made of both times."""

    pop_time: Long
    invisible_ms: Int
    messages: Int = 0
    rest: Long = 0
    """Messages that were ready and not given out."""
    counts: list[tuple[Int, Long, Int]] = []
    """Of an ordered pop: (queue id, queue offset, earlier deliveries) of messages that had some."""


class NativeSettleRequestHeader(Header, frozen=True):
    """NATIVE_SETTLE: acknowledge messages, or change their invisible time.

    ``settled``: (retry mark, queue id, pop time, invisible ms, new invisible ms or -1 to acknowledge, offsets, whether
    an ordered pop gave them out).
    """

    consumer_group: str
    topic: str
    settled: list[tuple[str, Int, Long, Int, Int, list[Long], bool]]


class NativeSettleResponseHeader(Header, frozen=True):
    """``results``: of each offset, in the order of the request: 0 done, 1 was acknowledged before, 2 its time was over,
    3 it was not given out. ``pop_time``: that of the handles with changed times."""

    results: list[Int]
    pop_time: Long


_R = RequestCode
_SUB = PULL
SPECS: Final = (
    Spec(_R.POP_MESSAGE, Pool.POP, _SUB, PopMessageRequestHeader, PopMessageResponseHeader, answer=Raw.RECORDS),
    Spec(_R.ACK_MESSAGE, Pool.ACK, _SUB, AckMessageRequestHeader),
    Spec(_R.BATCH_ACK_MESSAGE, Pool.ACK, SUB_BODY, body=BatchAckBody),
    Spec(_R.PEEK_MESSAGE, Pool.POP, _SUB, PeekMessageRequestHeader, PopMessageResponseHeader, answer=Raw.RECORDS),
    Spec(
        _R.CHANGE_MESSAGE_INVISIBLETIME,
        Pool.ACK,
        _SUB,
        ChangeInvisibleTimeRequestHeader,
        ChangeInvisibleTimeResponseHeader,
    ),
    Spec(_R.NOTIFICATION, Pool.POP, _SUB, NotificationRequestHeader, NotificationResponseHeader),
    Spec(
        _R.POLLING_INFO,
        Pool.POP,
        needs(topic("topic", GET), group("consumer_group", GET)),
        PollingInfoRequestHeader,
        PollingInfoResponseHeader,
    ),
    Spec(_R.NATIVE_POP, Pool.POP, _SUB, NativePopRequestHeader, NativePopResponseHeader, answer=Raw.SIZED_RECORDS),
    Spec(_R.NATIVE_SETTLE, Pool.ACK, _SUB, NativeSettleRequestHeader, NativeSettleResponseHeader),
)
