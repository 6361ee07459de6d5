"""Consumer groups and producer groups, as administrators see them.

Bodies: RocketMQ 4.9.8 ``protocol/body``, 5.3.3 where marked.

Access: the annotations of RocketMQ 5.3.3's headers for 203, 204, 207, 208, 300, 303, 317, 328, 343, 345 and 352.
RocketMQ checks 200, 201 and 225 nowhere: 200 and 225 need on each group what 17 needs on a topic, 201 and our
GROUP_LIST need List on groups. RocketMQ serves 214 nowhere: only an administrator needs the answer.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import (
    CREATE,
    DELETE,
    GET,
    GET_CLUSTER,
    GET_CONSUMER_GROUP,
    GET_GROUP,
    GET_TOPIC,
    GET_TOPIC_AND_GROUP,
    LIST_GROUPS,
    Place,
    group,
    needs,
    topic,
)
from pocketmq.remoting.protocol.body import Body, DataVersion, MessageQueue, QueueTable, encode_body
from pocketmq.remoting.protocol.client import ConsumerGroupRequestHeader, SubscriptionData
from pocketmq.remoting.protocol.lenient import ConsumeFromWhere, ConsumeType, MessageModel
from pocketmq.remoting.protocol.spec import Header, Pool, Raw, Spec
from pocketmq.remoting.protocol.topic import TopicList, TopicRequestHeader


class ProducerGroupRequestHeader(Header, frozen=True):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class DeleteSubscriptionGroupRequestHeader(Header, frozen=True):
    """DELETE_SUBSCRIPTIONGROUP; the offsets go too with ``clean_offset`` (5.3's name) or ``remove_offset`` (4.9's)."""

    group_name: str
    clean_offset: bool = False
    remove_offset: bool = False


class GroupRequestHeader(Header, frozen=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG, QUERY_TOPICS_BY_CONSUMER (5.3)."""

    group: str


class ConsumeStatsRequestHeader(Header, frozen=True):
    """GET_CONSUME_STATS; without a topic all topics of the group."""

    consumer_group: str
    topic: str = ""


class QuerySubscriptionRequestHeader(Header, frozen=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (5.3)."""

    group: str
    topic: str


class ConsumeTimeSpanRequestHeader(Header, frozen=True):
    """QUERY_CONSUME_TIME_SPAN."""

    topic: str
    group: str


class GetBrokerConsumeStatsRequestHeader(Header, frozen=True):
    """GET_BROKER_CONSUME_STATS."""

    is_order: bool


class Connection(Body):
    """One connected client."""

    client_id: str = ""
    client_addr: str = ""
    language: str = "OTHER"
    version: int = 0


class ConsumerConnection(Body):
    """GET_CONSUMER_CONNECTION_LIST."""

    connection_set: list[Connection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: ConsumeType | None = "CONSUME_PASSIVELY"
    message_model: MessageModel | None = "CLUSTERING"
    consume_from_where: ConsumeFromWhere | None = "CONSUME_FROM_LAST_OFFSET"


class ProducerConnection(Body):
    """GET_PRODUCER_CONNECTION_LIST."""

    connection_set: list[Connection] = []


class ProducerInfo(Body):
    """One producer; ``last_update_timestamp`` is the wall time of its last heartbeat in ms. ``topics``: those that its
    connection was seen to send to, which RocketMQ does not tell."""

    client_id: str = ""
    remote_ip: str = msgspec.field(name="remoteIP", default="")
    language: str = "OTHER"
    version: int = 0
    last_update_timestamp: int = 0
    topics: list[str] = []


class ProducerTableInfo(Body):
    """GET_ALL_PRODUCER_INFO: producers by group."""

    data: dict[str, list[ProducerInfo]] = {}


class GroupList(Body):
    """QUERY_TOPIC_CONSUME_BY_WHO, GROUP_LIST."""

    group_list: list[str] = []


class GroupRetryPolicy(Body, omit_defaults=True):
    """When a message that a group has failed comes again: after the times of ``customized_retry_policy``, or of
    ``exponential_retry_policy``; RocketMQ 5's, as its clients and tools write it."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: dict[str, int] | None = None
    """``initial``, ``max`` in ms, ``multiplier``."""
    customized_retry_policy: dict[str, list[int]] | None = None
    """``next``: the times in ms."""


class SubscriptionGroupConfigBody(Body):
    """One consumer group as RocketMQ's ``subscriptionGroup.json`` holds it."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    group_retry_policy: GroupRetryPolicy | None = None
    """RocketMQ 5's, kept for its clients over gRPC."""
    attributes: dict[str, str] | None = {}
    """RocketMQ 5's; ours: the user who has created the group."""


class SubscriptionGroupWrapper(Body):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    subscription_group_table: dict[str, SubscriptionGroupConfigBody] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class SubscriptionGroupListBody(Body):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (5.3)."""

    group_config_list: list[SubscriptionGroupConfigBody] = []


class QuerySubscriptionBody(Body):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (5.3)."""

    subscription_data: SubscriptionData | None = None
    group: str = ""
    topic: str = ""


class OffsetWrapper(Body):
    """Progress of a group in one queue; ``last_timestamp`` in ms."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0
    pull_offset: int = 0
    """5.3: the offset that the group has pulled up to; PocketMQ answers the committed one."""


class ConsumeStats(QueueTable):
    """GET_CONSUME_STATS."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class QueueTimeSpan(Body):
    """Times of one queue in ms; ``delay_time`` is the consumer's lag."""

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


class QueryConsumeTimeSpanBody(Body):
    """QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: list[QueueTimeSpan] = []


def encode_consume_stats_list(
    stats: Sequence[tuple[str, Sequence[ConsumeStats]]], broker_addr: str, total_diff: int
) -> bytes:
    """Return GET_BROKER_CONSUME_STATS' answer: the statistics of each (group, its topics)."""
    groups = (
        b"{" + msgspec.json.encode(group) + b":[" + b",".join(map(encode_body, topics)) + b"]}"
        for group, topics in stats
    )
    return b'{"consumeStatsList":[%b],"brokerAddr":%b,"totalDiff":%d,"totalInflightDiff":0}' % (
        b",".join(groups),
        msgspec.json.encode(broker_addr),
        total_diff,
    )


_R = RequestCode
SPECS: Final = (
    Spec(
        _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Pool.ADMIN,
        needs(group(Place.BODY, CREATE)),
        body=SubscriptionGroupConfigBody,
    ),
    Spec(_R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Pool.ADMIN, LIST_GROUPS, answer=SubscriptionGroupWrapper),
    Spec(
        _R.GET_CONSUMER_CONNECTION_LIST,
        Pool.ADMIN,
        GET_CONSUMER_GROUP,
        ConsumerGroupRequestHeader,
        answer=ConsumerConnection,
    ),
    Spec(
        _R.GET_PRODUCER_CONNECTION_LIST, Pool.ADMIN, GET_CLUSTER, ProducerGroupRequestHeader, answer=ProducerConnection
    ),
    Spec(
        _R.DELETE_SUBSCRIPTIONGROUP,
        Pool.ADMIN,
        needs(group("group_name", DELETE)),
        DeleteSubscriptionGroupRequestHeader,
    ),
    Spec(
        _R.GET_CONSUME_STATS,
        Pool.ADMIN,
        needs(topic("topic", GET), group("consumer_group", GET)),
        ConsumeStatsRequestHeader,
        answer=ConsumeStats,
    ),
    Spec(_R.WHO_CONSUME_THE_MESSAGE, Pool.NOBODY, GET_CLUSTER),
    Spec(
        _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Pool.ADMIN,
        needs(group(Place.BODY, CREATE)),
        body=SubscriptionGroupListBody,
    ),
    Spec(_R.QUERY_TOPIC_CONSUME_BY_WHO, Pool.ADMIN, GET_TOPIC, TopicRequestHeader, answer=GroupList),
    Spec(
        _R.QUERY_CONSUME_TIME_SPAN,
        Pool.ADMIN,
        GET_TOPIC_AND_GROUP,
        ConsumeTimeSpanRequestHeader,
        answer=QueryConsumeTimeSpanBody,
    ),
    Spec(
        _R.GET_BROKER_CONSUME_STATS, Pool.ADMIN, GET_CLUSTER, GetBrokerConsumeStatsRequestHeader, answer=Raw.STATS_LIST
    ),
    Spec(_R.GET_ALL_PRODUCER_INFO, Pool.ADMIN, GET_CLUSTER, answer=ProducerTableInfo),
    Spec(_R.QUERY_TOPICS_BY_CONSUMER, Pool.ADMIN, GET_GROUP, GroupRequestHeader, answer=TopicList),
    Spec(
        _R.QUERY_SUBSCRIPTION_BY_CONSUMER,
        Pool.ADMIN,
        GET_TOPIC_AND_GROUP,
        QuerySubscriptionRequestHeader,
        answer=QuerySubscriptionBody,
    ),
    Spec(
        _R.GET_SUBSCRIPTIONGROUP_CONFIG, Pool.ADMIN, GET_GROUP, GroupRequestHeader, answer=SubscriptionGroupConfigBody
    ),
    Spec(_R.GROUP_LIST, Pool.ADMIN, LIST_GROUPS, answer=GroupList),
)
