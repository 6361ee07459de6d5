"""Bodies of administrative requests and responses: JSON, camelCase on the wire as RocketMQ writes them.

    data = encode_body(TopicRouteData(...));  route = decode_body(data, TopicRouteData)

Lives here: the structs (RocketMQ 4.9.8 ``remoting/protocol/body``, ``route``, ``heartbeat``) and the two functions.
Unknown keys are ignored, missing ones get their default, null where RocketMQ may write it is accepted.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.remoting.errors import BodyIllegal
from pocketmq.remoting.fastjson import standard_json
from pocketmq.remoting.frame import Buffer
from pocketmq.remoting.lenient import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    TopicFilterType,
    convert_leniently,
    decode_leniently,
)

_T = TypeVar("_T")
LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1
"""Java's long: JSON, and with it any program, can say more."""


class Body(msgspec.Struct, rename="camel"):
    """What all bodies share."""


class MessageQueue(msgspec.Struct, rename="camel", frozen=True, order=True):
    """One queue of a topic on a broker; a key in RocketMQ's tables."""

    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0


class DataVersion(Body):
    """Version of a table: later (timestamp in ms, counter) wins."""

    timestamp: int = 0
    counter: int = 0
    state_version: int = 0

    def bounded(self) -> "DataVersion":
        """Return it with each number a Java long, which another program's may not be."""
        numbers = (self.timestamp, self.counter, self.state_version)
        return DataVersion(*(min(max(number, LONG_MIN), LONG_MAX) for number in numbers))


# ---- routes --------------------------------------------------------------------------------------------------------


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
    """5.x: a slave may stand in for its master. Never so here; clients written for 5.x want to read it."""


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


class TopicList(Body):
    """Every request that lists topics."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class KVTable(Body):
    """A map of strings: name-server settings, runtime information."""

    table: dict[str, str] = {}


# ---- registration and topics ---------------------------------------------------------------------------------------


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


class RegisterBrokerBody(Body):
    """REGISTER_BROKER."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: list[str] = []


# ---- clients -------------------------------------------------------------------------------------------------------


class SubscriptionData(Body):
    """What one group wants of one topic; ``sub_version`` is a wall time in ms."""

    topic: str = ""
    sub_string: str | None = "*"
    tags_set: list[str] | None = []
    code_set: list[int] | None = []
    sub_version: int = 0
    expression_type: str | None = "TAG"
    class_filter_mode: bool = False


class ProducerData(Body):
    """A producer group of a client."""

    group_name: str = ""


class ConsumerData(Body):
    """A consumer group of a client; the enums as RocketMQ names them."""

    group_name: str = ""
    consume_type: ConsumeType | None = "CONSUME_PASSIVELY"
    message_model: MessageModel | None = "CLUSTERING"
    consume_from_where: ConsumeFromWhere | None = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class HeartbeatData(Body):
    """HEART_BEAT."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []


class CheckClientBody(Body):
    """CHECK_CLIENT_CONFIG."""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData = msgspec.field(default_factory=SubscriptionData)


class ConsumerIdList(Body):
    """GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: list[str] = []


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


class GroupList(Body):
    """QUERY_TOPIC_CONSUME_BY_WHO, GROUP_LIST."""

    group_list: list[str] = []


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


class SubscriptionGroupWrapper(Body):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    subscription_group_table: dict[str, SubscriptionGroupConfigBody] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class ConsumerOffsetWrapper(Body):
    """GET_ALL_CONSUMER_OFFSET: ``topic@group`` → queue id as text → offset."""

    offset_table: dict[str, dict[str, int]] = {}
    data_version: DataVersion | None = None


class DelayOffsetWrapper(Body):
    """GET_ALL_DELAY_OFFSET: delay level as text → offset."""

    offset_table: dict[str, int] = {}
    data_version: DataVersion | None = None


class LockBatchRequestBody(Body):
    """LOCK_BATCH_MQ, UNLOCK_BATCH_MQ."""

    consumer_group: str = ""
    client_id: str = ""
    mq_set: list[MessageQueue] = []


class LockBatchResponseBody(Body):
    """LOCK_BATCH_MQ: the queues that the client holds now."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)


# ---- statistics ----------------------------------------------------------------------------------------------------


class OffsetWrapper(Body):
    """Progress of a group in one queue; ``last_timestamp`` in ms."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0
    pull_offset: int = 0
    """5.3: how far the group has pulled; PocketMQ answers the committed offset."""


class TopicOffset(Body):
    """What one queue holds; ``last_update_timestamp`` in ms."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class QueueTable(Body):
    """A body with an ``offset_table`` by ``MessageQueue``; such keys are objects on RocketMQ's wire."""


class ConsumeStats(QueueTable):
    """GET_CONSUME_STATS."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class TopicStatsTable(QueueTable):
    """GET_TOPIC_STATS_INFO."""

    offset_table: dict[MessageQueue, TopicOffset] = {}


class ResetOffsetBody(QueueTable):
    """RESET_CONSUMER_CLIENT_OFFSET, and the answer to INVOKE_BROKER_TO_RESET_OFFSET."""

    offset_table: dict[MessageQueue, int] = {}


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


class BrokerStatsItem(Body):
    """One window of VIEW_BROKER_STATS_DATA."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """VIEW_BROKER_STATS_DATA."""

    stats_minute: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)


class OpenTransaction(Body):
    """A half message that waits for its decision; times in ms since 1970."""

    queue_offset: int
    physical_offset: int
    producer_group: str = ""
    topic: str = ""
    uniq_key: str = ""
    store_timestamp: int = 0
    checks: int = 0


class TransactionList(Body):
    """TRANSACTION_LIST; ``next_offset`` is where the next request goes on, -1 at the end."""

    transactions: list[OpenTransaction] = []
    total: int = 0
    next_offset: int = -1


class Announcement(msgspec.Struct, frozen=True):
    """What a PocketMQ server says about itself in its first answer (ext field ``_pmq``, as JSON)."""

    serialize: tuple[int, ...] = (0, 1, 2)
    native: int = 1
    """Version of the native append and pull codes; 0: not served (a name server)."""
    family: int = 4
    """IP family of the host fields in plain records: 4 or 6."""
    frame_bytes_max: int = 16 * 1024 * 1024
    cluster: str = ""
    message_bytes_max: int = 4 * 1024 * 1024
    broker: str = ""
    flush: str = ""
    """What SEND_OK means: ``SYNC_FLUSH`` (on disk), ``ASYNC_FLUSH`` (in the page cache), ``WRITE_BUFFER`` (in a buffer
    of the broker's process); empty where the broker does not say.
    """
    replication: str = ""
    """What SEND_OK means beside ``flush``: ``SYNC_MASTER`` (``in_sync_replicas`` copies have it), ``ASYNC_MASTER``
    (slaves follow later, if there are any), ``SLAVE``; empty where the broker does not say.
    """
    in_sync_replicas: int = 1
    """Copies, the master's included, that have a message before SEND_OK."""
    trace_on: bool = True
    """Whether sends are to be traced by producers that can; RocketMQ says so in each answer."""
    region: str = "DefaultRegion"
    """The broker's ``region_id``."""
    transactions: int = 0
    """Version of the native end of transactions; 0: only END_TRANSACTION, without an answer to count on."""
    named_transactions: int = 0
    """Version of named transactions; 0: there are none."""


# ---- to and from bytes ---------------------------------------------------------------------------------------------


def encode_body(body: Any) -> bytes:
    """Return a body as JSON; tables by queue have objects as keys, as RocketMQ's own."""
    if not isinstance(body, QueueTable):
        return msgspec.json.encode(body)
    fields: Mapping[str, Any] = {name: getattr(body, name) for name in body.__struct_fields__}
    parts = []
    for name, wire in zip(body.__struct_fields__, body.__struct_encode_fields__, strict=True):
        value = fields[name]
        if name == "offset_table":
            items = (msgspec.json.encode(queue) + b":" + msgspec.json.encode(item) for queue, item in value.items())
            text = b"{" + b",".join(items) + b"}"
        else:
            text = msgspec.json.encode(value)
        parts.append(msgspec.json.encode(wire) + b":" + text)
    return b"{" + b",".join(parts) + b"}"


def decode_body(data: Buffer, kind: type[_T]) -> _T:
    """Return the body as ``kind``; standard JSON and fastjson's are understood, and what ``lenient`` takes. Raise
    ``BodyIllegal``."""
    try:
        if issubclass(kind, QueueTable):
            table: _T = _decode_queue_table(data, kind)
            return table
        try:
            return decode_leniently(data, kind)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return decode_leniently(standard_json(bytes(data)), kind)
    except DECODE_ERRORS as error:
        raise BodyIllegal(
            f"{kind.__name__} refused", why=str(error), hint="its body is JSON, see docs/protocol.md"
        ) from error


def _decode_queue_table(data: Buffer, kind: type[QueueTable]) -> Any:
    raw = msgspec.json.decode(standard_json(bytes(data)), type=dict[str, msgspec.Raw])
    table = msgspec.json.decode(raw.pop("offsetTable", msgspec.Raw(b"{}")), type=dict[str, Any])
    values: dict[str, Any] = {name: msgspec.json.decode(value) for name, value in raw.items()}
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    item_kind = fields["offset_table"].type.__args__[1]
    offsets = {
        decode_leniently(key.encode(), MessageQueue): convert_leniently(item, item_kind) for key, item in table.items()
    }
    others = {
        name: convert_leniently(values[field.encode_name], field.type)
        for name, field in fields.items()
        if field.encode_name in values
    }
    return kind(**others, offset_table=offsets)
