"""Offsets: bounds of queues, progress of groups, resets.

Header structs: RocketMQ 4.9.8 ``protocol/header``, 5.3.3 where marked. Offsets count messages.

Access: RocketMQ 5.3.3 ``DefaultAuthorizationContextBuilder`` for 14 and 15, the annotations of the headers for 29 to
32, 222, 308 and 314 (which names the group written, not the one read). RocketMQ checks 43 and 45
nowhere: they show the progress of every group, so they need Get on the cluster. 220 goes to clients. 13 is not served
anywhere.
"""

from typing import Final

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import FROM_BROKER, GET, GET_CLUSTER, GET_TOPIC, SUB, UPDATE, group, needs, topic
from pocketmq.remoting.protocol.body import Body, DataVersion, MessageQueue, QueueTable
from pocketmq.remoting.protocol.spec import Header, Int, Long, Pool, Spec


class QueryConsumerOffsetRequestHeader(Header, frozen=True):
    """QUERY_CONSUMER_OFFSET; ``set_zero_if_not_found`` is 5.3's."""

    consumer_group: str
    topic: str
    queue_id: Int
    bname: str = ""
    set_zero_if_not_found: bool | None = None


class OffsetResponseHeader(Header, frozen=True):
    """One queue offset."""

    offset: Long


class UpdateConsumerOffsetRequestHeader(Header, frozen=True):
    """UPDATE_CONSUMER_OFFSET; RocketMQ's clients send it oneway."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long
    bname: str = ""
    fencing_token: Long | None = None
    """PocketMQ: the lock under which an ordered queue was consumed; the commit is refused if that lock has ended."""


class SearchOffsetRequestHeader(Header, frozen=True):
    """SEARCH_OFFSET_BY_TIMESTAMP."""

    topic: str
    queue_id: Int
    timestamp: Long
    bname: str = ""


class TopicQueueRequestHeader(Header, frozen=True):
    """GET_MAX_OFFSET, GET_MIN_OFFSET, GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int
    bname: str = ""


class TimestampResponseHeader(Header, frozen=True):
    """One wall time in ms."""

    timestamp: Long


class ResetOffsetRequestHeader(Header, frozen=True):
    """INVOKE_BROKER_TO_RESET_OFFSET, RESET_CONSUMER_CLIENT_OFFSET; ``queue_id`` and ``offset`` are 5.3's."""

    topic: str
    group: str
    timestamp: Long
    is_force: bool
    queue_id: Int = -1
    offset: Long | None = None


class QueryCorrectionOffsetRequestHeader(Header, frozen=True):
    """QUERY_CORRECTION_OFFSET; ``filter_groups`` is comma-joined."""

    compare_group: str
    topic: str
    filter_groups: str = ""


class CloneGroupOffsetRequestHeader(Header, frozen=True):
    """CLONE_GROUP_OFFSET."""

    src_group: str
    dest_group: str
    topic: str = ""
    offline: bool = False


class ConsumerOffsetWrapper(Body):
    """GET_ALL_CONSUMER_OFFSET: ``topic@group`` → queue id as text → offset."""

    offset_table: dict[str, dict[str, int]] = {}
    data_version: DataVersion | None = None


class DelayOffsetWrapper(Body):
    """GET_ALL_DELAY_OFFSET: delay level as text → offset."""

    offset_table: dict[str, int] = {}
    data_version: DataVersion | None = None


class ResetOffsetBody(QueueTable):
    """RESET_CONSUMER_CLIENT_OFFSET, and the answer to INVOKE_BROKER_TO_RESET_OFFSET."""

    offset_table: dict[MessageQueue, int] = {}


_R = RequestCode
SPECS: Final = (
    Spec(_R.QUERY_BROKER_OFFSET, Pool.NOBODY, GET_CLUSTER),
    Spec(
        _R.QUERY_CONSUMER_OFFSET,
        Pool.CONSUMER_MANAGE,
        needs(topic("topic", SUB | GET), group("consumer_group", SUB | GET)),
        QueryConsumerOffsetRequestHeader,
        OffsetResponseHeader,
    ),
    Spec(
        _R.UPDATE_CONSUMER_OFFSET,
        Pool.CONSUMER_MANAGE,
        needs(topic("topic", SUB | UPDATE), group("consumer_group", SUB | UPDATE)),
        UpdateConsumerOffsetRequestHeader,
    ),
    Spec(_R.SEARCH_OFFSET_BY_TIMESTAMP, Pool.ADMIN, GET_TOPIC, SearchOffsetRequestHeader, OffsetResponseHeader),
    Spec(_R.GET_MAX_OFFSET, Pool.STATUS, GET_TOPIC, TopicQueueRequestHeader, OffsetResponseHeader),
    Spec(_R.GET_MIN_OFFSET, Pool.STATUS, GET_TOPIC, TopicQueueRequestHeader, OffsetResponseHeader),
    Spec(_R.GET_EARLIEST_MSG_STORETIME, Pool.ADMIN, GET_TOPIC, TopicQueueRequestHeader, TimestampResponseHeader),
    Spec(_R.GET_ALL_CONSUMER_OFFSET, Pool.ADMIN, GET_CLUSTER, answer=ConsumerOffsetWrapper),
    Spec(_R.GET_ALL_DELAY_OFFSET, Pool.ADMIN, GET_CLUSTER, answer=DelayOffsetWrapper),
    Spec(_R.RESET_CONSUMER_CLIENT_OFFSET, Pool.CLIENT, FROM_BROKER, ResetOffsetRequestHeader, body=ResetOffsetBody),
    Spec(
        _R.INVOKE_BROKER_TO_RESET_OFFSET,
        Pool.ADMIN,
        needs(topic("topic", UPDATE), group("group", UPDATE)),
        ResetOffsetRequestHeader,
        answer=ResetOffsetBody,
    ),
    Spec(
        _R.QUERY_CORRECTION_OFFSET,
        Pool.NOBODY,
        needs(topic("topic", GET), group("filter_groups", GET), group("compare_group", GET)),
        QueryCorrectionOffsetRequestHeader,
    ),
    Spec(
        _R.CLONE_GROUP_OFFSET,
        Pool.ADMIN,
        needs(topic("topic", UPDATE), group("dest_group", UPDATE)),
        CloneGroupOffsetRequestHeader,
    ),
)
