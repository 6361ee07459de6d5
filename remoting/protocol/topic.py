"""Topics of a broker.

Bodies: RocketMQ 4.9.8 ``TopicConfig`` and its tables.

Access: the annotations of RocketMQ 5.3.3's headers for 17, 18, 21, 202, 215 and 351. Its header of 21 names no
resource, so RocketMQ in effect checks nothing: here 21 needs List on topics, and so does 305, which has no header.
RocketMQ serves 22 and 23 nowhere. MAKE_TOPIC needs what the send would need.
"""

from typing import Final

import msgspec

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import (
    CREATE,
    DELETE,
    GET_TOPIC,
    LIST_TOPICS,
    PUB_TOPIC,
    Place,
    needs,
    topic,
)
from pocketmq.remoting.protocol.body import Body, DataVersion, MessageQueue, QueueTable
from pocketmq.remoting.protocol.lenient import TopicFilterType
from pocketmq.remoting.protocol.spec import Header, Int, Pool, Spec


class CreateTopicRequestHeader(Header, frozen=True):
    """UPDATE_AND_CREATE_TOPIC."""

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str = ""


class MakeTopicRequestHeader(Header, frozen=True):
    """MAKE_TOPIC: ``default_topic`` and ``queue_nums`` as in a send."""

    topic: str
    default_topic: str
    queue_nums: Int


class DeleteTopicRequestHeader(Header, frozen=True):
    """DELETE_TOPIC_IN_BROKER, DELETE_TOPIC_IN_NAMESRV."""

    topic: str
    cluster_name: str = ""


class TopicRequestHeader(Header, frozen=True):
    """GET_TOPIC_STATS_INFO, QUERY_TOPIC_CONSUME_BY_WHO, GET_TOPIC_CONFIG, REGISTER_TOPIC_IN_NAMESRV."""

    topic: str


class TopicConfigBody(Body):
    """One topic as RocketMQ's tables hold it (``topics.json``, registration)."""

    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: TopicFilterType = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] | None = None


class TopicConfigSerializeWrapper(Body):
    """GET_ALL_TOPIC_CONFIG and part of a registration."""

    topic_config_table: dict[str, TopicConfigBody] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class CreateTopicListBody(Body):
    """UPDATE_AND_CREATE_TOPIC_LIST (5.3)."""

    topic_config_list: list[TopicConfigBody] = []


class TopicList(Body):
    """Every request that lists topics."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class TopicOffset(Body):
    """The offsets of one queue; ``last_update_timestamp`` in ms."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStatsTable(QueueTable):
    """GET_TOPIC_STATS_INFO."""

    offset_table: dict[MessageQueue, TopicOffset] = {}


_R = RequestCode
SPECS: Final = (
    Spec(_R.UPDATE_AND_CREATE_TOPIC, Pool.ADMIN, needs(topic("topic", CREATE)), CreateTopicRequestHeader),
    Spec(_R.UPDATE_AND_CREATE_TOPIC_LIST, Pool.ADMIN, needs(topic(Place.BODY, CREATE)), body=CreateTopicListBody),
    Spec(_R.MAKE_TOPIC, Pool.ADMIN, PUB_TOPIC, MakeTopicRequestHeader),
    Spec(_R.GET_ALL_TOPIC_CONFIG, Pool.ADMIN, LIST_TOPICS, answer=TopicConfigSerializeWrapper),
    Spec(_R.GET_TOPIC_CONFIG_LIST, Pool.NOBODY, LIST_TOPICS),
    Spec(_R.GET_TOPIC_NAME_LIST, Pool.NOBODY, LIST_TOPICS),
    Spec(_R.GET_TOPIC_STATS_INFO, Pool.ADMIN, GET_TOPIC, TopicRequestHeader, answer=TopicStatsTable),
    Spec(_R.DELETE_TOPIC_IN_BROKER, Pool.ADMIN, needs(topic("topic", DELETE)), DeleteTopicRequestHeader),
    Spec(_R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Pool.ADMIN, LIST_TOPICS, answer=TopicList),
    Spec(_R.GET_TOPIC_CONFIG, Pool.ADMIN, GET_TOPIC, TopicRequestHeader, answer=TopicConfigBody),
)
