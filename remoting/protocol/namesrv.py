"""The name server: routes, registrations of brokers, its table of settings.

Header structs and bodies: RocketMQ 4.9.8 ``protocol/header/namesrv``, ``protocol/route``, 5.3.3 where marked.

Access: RocketMQ's name server checks nothing, but its headers are annotated, and PocketMQ follows them: the annotations
of RocketMQ 5.3.3's headers for 100 to 104, 205, 216, 217, 219, 224, 322 and 327, and
``DefaultAuthorizationContextBuilder`` for 105. 106 and 319 have no header and need Get on the cluster; 318, which
changes settings, Update; the lists of topics (206, 304, 311 to 313) List on topics, as 224.
"""

from typing import Final

import msgspec

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import (
    GET,
    GET_CLUSTER,
    LIST_TOPICS,
    PUB,
    SUB,
    UPDATE,
    UPDATE_CLUSTER,
    cluster,
    needs,
    topic,
)
from pocketmq.remoting.protocol.body import Body, DataVersion, KVTable
from pocketmq.remoting.protocol.spec import Header, Int, Long, Pool, Raw, Spec
from pocketmq.remoting.protocol.topic import (
    DeleteTopicRequestHeader,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRequestHeader,
)


class GetRouteInfoRequestHeader(Header, frozen=True):
    """GET_ROUTEINFO_BY_TOPIC."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBrokerRequestHeader(Header, frozen=True):
    """REGISTER_BROKER; ``body_crc32`` 0 is not checked; the last fields are 5.3's."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    compressed: bool = False
    body_crc32: Int = 0
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    epoch: Long = 0
    """PocketMQ: the epoch of a master with slaves; 0: it has none, or it is a slave."""
    epoch_owner: str = ""
    listener_addrs: str = ""
    """PocketMQ: ``name=host:port;…``, where clients find the broker who ask at these listeners of the name server."""


class RegisterBrokerResponseHeader(Header, frozen=True):
    """Only slaves get the addresses."""

    ha_server_addr: str = ""
    master_addr: str = ""
    epoch: Long = 0
    """PocketMQ: the newest epoch of this broker name that the name server knows; 0: none."""


class BrokerIdentityRequestHeader(Header, frozen=True):
    """UNREGISTER_BROKER, QUERY_DATA_VERSION."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponseHeader(Header, frozen=True):
    """The body is the name server's DataVersion."""

    changed: bool


class PutKVConfigRequestHeader(Header, frozen=True):
    """PUT_KV_CONFIG."""

    namespace: str
    key: str
    value: str


class KVConfigRequestHeader(Header, frozen=True):
    """GET_KV_CONFIG, DELETE_KV_CONFIG."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, frozen=True):
    """Without ``value`` if the key is missing."""

    value: str = ""


class NamespaceRequestHeader(Header, frozen=True):
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: str


class ClusterRequestHeader(Header, frozen=True):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str


class BrokerNameRequestHeader(Header, frozen=True):
    """WIPE_WRITE_PERM_OF_BROKER, ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


class WipeWritePermResponseHeader(Header, frozen=True):
    """How many topics changed."""

    wipe_topic_count: Int


class AddWritePermResponseHeader(Header, frozen=True):
    """How many topics changed."""

    add_topic_count: Int


class QueueData(Body):
    """The queues a topic has on one broker name."""

    broker_name: str
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0


class BrokerData(Body):
    """The addresses of one broker name, by broker id as text (0 is the master)."""

    cluster: str | None = None
    broker_name: str = ""
    broker_addrs: dict[str, str] = {}
    enable_acting_master: bool = False
    """5.x: a slave may stand in for its master. Always false here; clients written for 5.x expect the field."""


class TopicRouteData(Body):
    """GET_ROUTEINFO_BY_TOPIC."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}


class ClusterInfo(Body):
    """GET_BROKER_CLUSTER_INFO."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class RegisterBrokerBody(Body):
    """REGISTER_BROKER."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: list[str] = []


_R = RequestCode
SPECS: Final = (
    Spec(_R.PUT_KV_CONFIG, Pool.NAME_SERVER, UPDATE_CLUSTER, PutKVConfigRequestHeader),
    Spec(_R.GET_KV_CONFIG, Pool.NAME_SERVER, GET_CLUSTER, KVConfigRequestHeader, GetKVConfigResponseHeader),
    Spec(_R.DELETE_KV_CONFIG, Pool.NAME_SERVER, UPDATE_CLUSTER, KVConfigRequestHeader),
    Spec(
        _R.REGISTER_BROKER,
        Pool.NAME_SERVER,
        needs(cluster(UPDATE, "cluster_name")),
        RegisterBrokerRequestHeader,
        RegisterBrokerResponseHeader,
        body=RegisterBrokerBody,
        answer=KVTable,
    ),
    Spec(_R.UNREGISTER_BROKER, Pool.NAME_SERVER, needs(cluster(UPDATE, "cluster_name")), BrokerIdentityRequestHeader),
    Spec(
        _R.GET_ROUTEINFO_BY_TOPIC,
        Pool.NAME_SERVER,
        needs(topic("topic", PUB | SUB | GET)),
        GetRouteInfoRequestHeader,
        answer=TopicRouteData,
    ),
    Spec(_R.GET_BROKER_CLUSTER_INFO, Pool.NAME_SERVER, GET_CLUSTER, answer=ClusterInfo),
    Spec(
        _R.WIPE_WRITE_PERM_OF_BROKER,
        Pool.NAME_SERVER,
        UPDATE_CLUSTER,
        BrokerNameRequestHeader,
        WipeWritePermResponseHeader,
    ),
    Spec(_R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, Pool.NAME_SERVER, LIST_TOPICS, answer=TopicList),
    Spec(
        _R.DELETE_TOPIC_IN_NAMESRV, Pool.NAME_SERVER, needs(cluster(UPDATE, "cluster_name")), DeleteTopicRequestHeader
    ),
    Spec(_R.REGISTER_TOPIC_IN_NAMESRV, Pool.NOBODY, UPDATE_CLUSTER, TopicRequestHeader),
    Spec(_R.GET_KVLIST_BY_NAMESPACE, Pool.NAME_SERVER, GET_CLUSTER, NamespaceRequestHeader, answer=KVTable),
    Spec(_R.GET_TOPICS_BY_CLUSTER, Pool.NAME_SERVER, LIST_TOPICS, ClusterRequestHeader, answer=TopicList),
    Spec(_R.GET_SYSTEM_TOPIC_LIST_FROM_NS, Pool.NAME_SERVER, LIST_TOPICS, answer=TopicList),
    Spec(_R.GET_UNIT_TOPIC_LIST, Pool.NAME_SERVER, LIST_TOPICS, answer=TopicList),
    Spec(_R.GET_HAS_UNIT_SUB_TOPIC_LIST, Pool.NAME_SERVER, LIST_TOPICS, answer=TopicList),
    Spec(_R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, Pool.NAME_SERVER, LIST_TOPICS, answer=TopicList),
    Spec(_R.UPDATE_NAMESRV_CONFIG, Pool.NOBODY, UPDATE_CLUSTER, body=Raw.PROPERTIES),
    Spec(_R.GET_NAMESRV_CONFIG, Pool.NAME_SERVER, GET_CLUSTER, answer=Raw.PROPERTIES),
    Spec(
        _R.QUERY_DATA_VERSION,
        Pool.NAME_SERVER,
        needs(cluster(GET, "cluster_name")),
        BrokerIdentityRequestHeader,
        QueryDataVersionResponseHeader,
        body=DataVersion,
        answer=DataVersion,
    ),
    Spec(
        _R.ADD_WRITE_PERM_OF_BROKER,
        Pool.NAME_SERVER,
        UPDATE_CLUSTER,
        BrokerNameRequestHeader,
        AddWritePermResponseHeader,
    ),
)
