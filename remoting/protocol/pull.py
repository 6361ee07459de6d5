"""Reads: pulls, and messages by key, by id and by place in the queue.

Header structs: RocketMQ 4.9.8 ``PullMessageRequestHeader`` and its neighbors, 5.3.3 where marked.

Access: RocketMQ 5.3.3 ``DefaultAuthorizationContextBuilder`` for 11 and 12, the annotations of the headers for 33 and
321. RocketMQ checks 361 nowhere: it needs what 11 needs. 33 names a topic in RocketMQ 5 alone, and a client could name
another one: the topic of the message found counts. NATIVE_PULL needs what 11 needs, for each queue.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import (
    GET,
    GET_CLUSTER,
    PULL,
    SUB,
    SUB_BODY,
    UPDATE_CLUSTER,
    Place,
    group,
    needs,
    topic,
)
from pocketmq.remoting.protocol.body import Body, MessageQueue
from pocketmq.remoting.protocol.client import SubscriptionData
from pocketmq.remoting.protocol.lenient import MessageModel, MessageRequestMode
from pocketmq.remoting.protocol.spec import Header, Int, Long, Pool, Raw, Spec


class PullMessageRequestHeader(Header, frozen=True):
    """PULL_MESSAGE, LITE_PULL_MESSAGE; the last fields are 5.3's."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    sub_version: Long
    subscription: str = ""
    expression_type: str = ""
    bname: str = ""
    max_msg_bytes: Int | None = None
    request_source: Int | None = None
    proxy_froward_client_id: str = ""


class PullMessageResponseHeader(Header, frozen=True):
    """The body is the records back to back; the last fields are 5.3's."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None


class NativePullRequestHeader(Header, frozen=True):
    """NATIVE_PULL: several queues of one broker."""

    consumer_group: str
    queues: list[tuple[str, Int, Long]]
    """(topic, queue id, queue offset) of each queue."""
    max_bytes: Int
    max_messages: Int
    suspend_timeout_millis: Int
    expression: str = "*"
    expression_type: str = "TAG"
    """TAG or SQL92."""


class NativePullResponseHeader(Header, frozen=True):
    """The body is ``u32 big-endian sizes[N]`` and then the N records in the order of the queues asked for."""

    results: list[tuple[Int, Long, Long, Long, Int]]
    """(response code, next begin offset, min offset, max offset, record count) of each queue."""
    suggest_which_broker_id: Long = 0
    """Where to pull next, as in PULL_MESSAGE."""


class QueryMessageRequestHeader(Header, frozen=True):
    """QUERY_MESSAGE by key; ``unique_key_query`` asks for a unique id and at most 32 messages."""

    wire_names: ClassVar[Mapping[str, str]] = {"unique_key_query": "_UNIQUE_KEY_QUERY"}

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    unique_key_query: bool = False


class QueryMessageResponseHeader(Header, frozen=True):
    """The body is the records back to back."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewMessageRequestHeader(Header, frozen=True):
    """VIEW_MESSAGE_BY_ID; ``offset`` is the commit-log offset."""

    offset: Long


class QueryConsumeQueueRequestHeader(Header, frozen=True):
    """QUERY_CONSUME_QUEUE."""

    topic: str
    queue_id: Int
    index: Long
    count: Int
    consumer_group: str = ""


class ConsumeQueueData(Body):
    """One entry of a consume queue; ``eval``: whether it passes the group's tag filter."""

    physic_offset: int
    physic_size: int
    tags_code: int
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueBody(Body):
    """QUERY_CONSUME_QUEUE."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = []
    max_queue_index: int = 0
    min_queue_index: int = 0


class QueryAssignmentRequest(Body):
    """QUERY_ASSIGNMENT (5.3): a member asks for its queues of a topic."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str | None = "AVG"
    message_model: MessageModel | None = "CLUSTERING"


class MessageQueueAssignment(Body):
    """A queue, and how its member gets the messages: PULL or POP."""

    message_queue: MessageQueue = msgspec.field(default_factory=MessageQueue)
    mode: MessageRequestMode = "PULL"


class QueryAssignmentAnswer(Body):
    """QUERY_ASSIGNMENT (5.3); None: the broker cannot say, and the member keeps its queues."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class SetMessageRequestMode(Body):
    """SET_MESSAGE_REQUEST_MODE (5.3): how the members of a group get the messages of a topic."""

    topic: str = ""
    consumer_group: str = ""
    mode: MessageRequestMode = "PULL"
    pop_share_queue_num: int = 0
    """Queues of how many other members a member also pops; 0: it pops all queues."""


class MessageRequestModes(Body):
    """GET_ALL_MESSAGE_REQUEST_MODE (5.3): topic → group → mode."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestMode]] = {}


_R = RequestCode
SPECS: Final = (
    Spec(_R.PULL_MESSAGE, Pool.PULL, PULL, PullMessageRequestHeader, PullMessageResponseHeader, answer=Raw.RECORDS),
    Spec(
        _R.QUERY_MESSAGE,
        Pool.QUERY,
        needs(topic("topic", SUB | GET)),
        QueryMessageRequestHeader,
        QueryMessageResponseHeader,
        answer=Raw.RECORDS,
    ),
    Spec(
        _R.VIEW_MESSAGE_BY_ID, Pool.QUERY, needs(topic(Place.STORED, GET)), ViewMessageRequestHeader, answer=Raw.RECORDS
    ),
    Spec(
        _R.QUERY_CONSUME_QUEUE,
        Pool.ADMIN,
        needs(topic("topic", GET), group("consumer_group", GET)),
        QueryConsumeQueueRequestHeader,
        answer=QueryConsumeQueueBody,
    ),
    Spec(
        _R.LITE_PULL_MESSAGE, Pool.PULL, PULL, PullMessageRequestHeader, PullMessageResponseHeader, answer=Raw.RECORDS
    ),
    Spec(_R.QUERY_ASSIGNMENT, Pool.ADMIN, SUB_BODY, body=QueryAssignmentRequest, answer=QueryAssignmentAnswer),
    Spec(_R.SET_MESSAGE_REQUEST_MODE, Pool.ADMIN, UPDATE_CLUSTER, body=SetMessageRequestMode),
    Spec(_R.GET_ALL_MESSAGE_REQUEST_MODE, Pool.ADMIN, GET_CLUSTER, answer=MessageRequestModes),
    Spec(
        _R.NATIVE_PULL,
        Pool.PULL,
        needs(topic("queues", SUB), group("consumer_group", SUB)),
        NativePullRequestHeader,
        NativePullResponseHeader,
        answer=Raw.SIZED_RECORDS,
    ),
)
