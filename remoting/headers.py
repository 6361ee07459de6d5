"""The typed headers of every request and response: the one table.

Each header is an array-like struct: its field order is the msgpack wire format (append new fields at the end, with a
default). Its names on RocketMQ's wire (string maps of the JSON and binary codecs) are camelCase of the field names
unless ``wire_names`` says otherwise. A field without a default is required. Source: RocketMQ 4.9.8
``remoting/protocol/header``, 5.3.3 where marked.

Lives here: the structs and ``HEADERS``, which says what each request code carries.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

from pocketmq.remoting.codes import RequestCode

Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A Java int."""
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A Java long."""


class Header(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What all headers share."""

    wire_names: ClassVar[Mapping[str, str]] = {}


# ---- send ----------------------------------------------------------------------------------------------------------


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
    """PUSH_REPLY_MESSAGE_TO_CLIENT: the send fields and where the reply was stored."""

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
    """Ours: why the consumer did not finish it; other brokers skip it."""


class EndTransactionRequestHeader(Header, frozen=True):
    """END_TRANSACTION; ``commit_or_rollback`` is 8 commit, 12 rollback, 0 unknown; oneway from a client."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str = ""
    bname: str = ""


class CheckTransactionStateRequestHeader(Header, frozen=True):
    """CHECK_TRANSACTION_STATE, broker to producer, oneway; the body is the encoded message with its real topic."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str = ""
    transaction_id: str = ""
    offset_msg_id: str = ""
    bname: str = ""


class NativeEndTransactionRequestHeader(Header, frozen=True):
    """NATIVE_END_TRANSACTION: many decisions of one producer group."""

    producer_group: str
    ends: list[tuple[Long, Long, Int, bool]]
    """(half-queue offset, commit-log offset, 8 commit or 12 rollback or 0 unknown, from a check) of each."""


class NativeEndTransactionResponseHeader(Header, frozen=True):
    """One result a decision. The frame's code is SUCCESS if any was judged."""

    results: list[tuple[Int, str]]
    """(response code, remark) of each."""


class NamedStageRequestHeader(Header, frozen=True):
    """NAMED_TRANSACTION_STAGE: a chunk of one attempt; the body is that of NATIVE_APPEND."""

    producer_group: str
    name: str
    sequence: Long
    attempt: str
    index: Int
    """Which chunk of the attempt, from 0; one that is there already is not stored again."""
    sections: list[tuple[str, Int, Int]]
    """(topic, queue id, record count) of each section."""
    timeout_ms: Int
    wait: bool = True
    """For the flush and slaves, as the settings say."""


class NamedEndRequestHeader(Header, frozen=True):
    """NAMED_TRANSACTION_END. ``action``: 0 ask, 1 seal, 2 commit, 3 abort, 4 enlist."""

    producer_group: str
    name: str
    sequence: Long
    action: Int
    attempts: list[tuple[str, Int]]
    """(attempt, its chunks): all that belongs to the transaction, in order; of an abort: what is given up."""
    token: str = ""
    """Which seal is meant; empty: none."""
    lead: str = ""
    """Of a seal: the broker whose commit decides."""
    participants: list[str] = []
    """Of a seal and a commit: the brokers that have a part."""
    keep_hours: Int = 720
    """How long the commit is remembered at least."""
    brokers: list[str] = []
    """Of a seal, a commit and an enlist: all that may know something of the name, sorted; empty: this one alone."""
    gone: list[str] = []
    """Of an enlist: brokers that are no more."""
    epoch: Long = 0
    """Of a seal at another broker than the lead: the epoch that the lead's answered."""


class NamedResponseHeader(Header, frozen=True):
    """NAMED_TRANSACTION_STAGE, NAMED_TRANSACTION_END: what the transaction is now."""

    state: Int
    """0 unknown, 1 staged, 2 sealed, 3 committed."""
    delivered: bool = False
    """Committed, and its messages are all in their queues."""
    token: str = ""
    lead: str = ""
    participants: list[str] = []
    epoch: Long = 0
    """Of a seal: where the lead's is in its log; of two seals the higher one counts."""
    brokers: list[str] = []
    """All that may know something of the name, if they are several."""
    lost: Int = 0
    """Committed chunks that were gone before they could be delivered."""


class TransactionListRequestHeader(Header, frozen=True):
    """TRANSACTION_LIST: those from the half-queue offset ``from_offset`` on, at most ``count``; the body is JSON."""

    from_offset: Long = 0
    count: Int = 1000


class RecallMessageRequestHeader(Header, frozen=True):
    """RECALL_MESSAGE (5.3)."""

    topic: str
    recall_handle: str
    producer_group: str = ""
    bname: str = ""


class MessageIdResponseHeader(Header, frozen=True):
    """The id of one message."""

    msg_id: str


class ResumeCheckHalfMessageRequestHeader(Header, frozen=True):
    """RESUME_CHECK_HALF_MESSAGE; the offset message id of a half message."""

    msg_id: str = ""


# ---- pull ----------------------------------------------------------------------------------------------------------


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


# ---- offsets -------------------------------------------------------------------------------------------------------


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
    """PocketMQ: the lock under which an ordered queue was consumed; one that is over refuses the commit."""


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


# ---- clients and groups --------------------------------------------------------------------------------------------


class UnregisterClientRequestHeader(Header, frozen=True):
    """UNREGISTER_CLIENT."""

    wire_names: ClassVar[Mapping[str, str]] = {"client_id": "clientID"}

    client_id: str
    producer_group: str = ""
    consumer_group: str = ""


class ConsumerGroupRequestHeader(Header, frozen=True):
    """GET_CONSUMER_LIST_BY_GROUP, NOTIFY_CONSUMER_IDS_CHANGED, GET_CONSUMER_CONNECTION_LIST."""

    consumer_group: str


class ProducerGroupRequestHeader(Header, frozen=True):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class GetConsumerStatusRequestHeader(Header, frozen=True):
    """GET_CONSUMER_STATUS_FROM_CLIENT, INVOKE_BROKER_TO_GET_CONSUMER_STATUS."""

    topic: str
    group: str
    client_addr: str = ""


class GetConsumerRunningInfoRequestHeader(Header, frozen=True):
    """GET_CONSUMER_RUNNING_INFO, relayed to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequestHeader(Header, frozen=True):
    """CONSUME_MESSAGE_DIRECTLY, relayed to the client; the body is a record when the broker relays it."""

    consumer_group: str
    client_id: str = ""
    msg_id: str = ""
    broker_name: str = ""
    topic: str = ""
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


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


class LockListRequestHeader(Header, frozen=True):
    """LOCK_LIST; an empty name means all."""

    consumer_group: str = ""
    topic: str = ""
    locks_max: Int = 10_000


class LockReleaseRequestHeader(Header, frozen=True):
    """LOCK_RELEASE; ``fencing_token`` names the lock that was seen: a later one is not released."""

    consumer_group: str
    topic: str
    queue_id: Int
    fencing_token: Long


# ---- topics and broker ---------------------------------------------------------------------------------------------


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


class DeleteTopicRequestHeader(Header, frozen=True):
    """DELETE_TOPIC_IN_BROKER, DELETE_TOPIC_IN_NAMESRV."""

    topic: str
    cluster_name: str = ""


class TopicRequestHeader(Header, frozen=True):
    """GET_TOPIC_STATS_INFO, QUERY_TOPIC_CONSUME_BY_WHO, GET_TOPIC_CONFIG, REGISTER_TOPIC_IN_NAMESRV."""

    topic: str


class GetBrokerConfigResponseHeader(Header, frozen=True):
    """``version`` is the data version as JSON; the body is the settings as properties text."""

    version: str


class ViewBrokerStatsDataRequestHeader(Header, frozen=True):
    """VIEW_BROKER_STATS_DATA."""

    stats_name: str
    stats_key: str


class GetBrokerConsumeStatsRequestHeader(Header, frozen=True):
    """GET_BROKER_CONSUME_STATS."""

    is_order: bool


# ---- name server ---------------------------------------------------------------------------------------------------


class GetRouteInfoRequestHeader(Header, frozen=True):
    """GET_ROUTEINFO_BY_TOPIC."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBrokerRequestHeader(Header, frozen=True):
    """REGISTER_BROKER; ``body_crc32`` 0 is unchecked; the last fields are 5.3's."""

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


class RegisterBrokerResponseHeader(Header, frozen=True):
    """The addresses are given to slaves only."""

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
    """``value`` is missing when the key is."""

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


# ---- replication (PocketMQ) ----------------------------------------------------------------------------------------


class HaPromiseRequestHeader(Header, frozen=True):
    """HA_PROMISE: ``owner`` names the promotion that asks, ``address`` the broker that shall be master, if known."""

    broker_name: str
    epoch: Long
    owner: str
    address: str = ""


class HaPromiseResponseHeader(Header, frozen=True):
    """``granted`` False: what was promised before, or the node's own epoch, is in the way. ``end_offset`` is where the
    node's log ends now; after a granted promise only its old epoch's master can make it longer, or nobody."""

    granted: bool
    epoch: Long
    owner: str
    last_epoch: Long
    end_offset: Long


class HaPromoteRequestHeader(Header, frozen=True):
    """HA_PROMOTE: ``role`` is what the broker becomes: SYNC_MASTER or ASYNC_MASTER."""

    broker_name: str
    epoch: Long
    owner: str
    role: str
    force: bool = False


class HaDemoteRequestHeader(Header, frozen=True):
    """HA_DEMOTE: ``accept_loss`` lets the slave cut what its master never confirmed, this once."""

    broker_name: str
    broker_id: Long
    accept_loss: bool = False
    force: bool = False


class HaHoldRequestHeader(Header, frozen=True):
    """HA_HOLD: for how long, in ms; 0 ends a hold."""

    broker_name: str
    hold_ms: Int


class HaHoldResponseHeader(Header, frozen=True):
    """Where the log ends now."""

    end_offset: Long


class HaEpochRequestHeader(Header, frozen=True):
    """HA_EPOCH: ``epoch`` 0 reads, else claims it for ``owner`` at ``address``; ``force`` lets a node follow another
    one without the number of a promotion. ``last_epoch`` is the newest in the log of a node that shall be promoted."""

    broker_name: str
    epoch: Long = 0
    owner: str = ""
    address: str = ""
    role: str = ""
    force: bool = False
    last_epoch: Long = 0


class HaEpochResponseHeader(Header, frozen=True):
    """``granted`` is True for a claim that holds; the rest is what the name server knows now, ``epoch`` 0: nothing."""

    granted: bool
    epoch: Long = 0
    owner: str = ""
    address: str = ""
    role: str = ""
    fenced: str = ""
    """Addresses of masters that were refused since this epoch began, comma-joined."""
    is_kept: bool = True
    """Whether the name server remembers epochs over its own restart."""


# ---- the table -----------------------------------------------------------------------------------------------------


class HeaderSpec(msgspec.Struct, frozen=True):
    """What a request code carries; None: no typed header."""

    request: type[Header] | None = None
    response: type[Header] | None = None


_R = RequestCode
HEADERS: Mapping[int, HeaderSpec] = {
    int(code): spec
    for code, spec in {
        _R.SEND_MESSAGE: HeaderSpec(SendMessageRequestHeader, SendMessageResponseHeader),
        _R.PULL_MESSAGE: HeaderSpec(PullMessageRequestHeader, PullMessageResponseHeader),
        _R.QUERY_MESSAGE: HeaderSpec(QueryMessageRequestHeader, QueryMessageResponseHeader),
        _R.QUERY_CONSUMER_OFFSET: HeaderSpec(QueryConsumerOffsetRequestHeader, OffsetResponseHeader),
        _R.UPDATE_CONSUMER_OFFSET: HeaderSpec(UpdateConsumerOffsetRequestHeader),
        _R.UPDATE_AND_CREATE_TOPIC: HeaderSpec(CreateTopicRequestHeader),
        _R.UPDATE_AND_CREATE_TOPIC_LIST: HeaderSpec(),
        _R.GET_ALL_TOPIC_CONFIG: HeaderSpec(),
        _R.UPDATE_BROKER_CONFIG: HeaderSpec(),
        _R.GET_BROKER_CONFIG: HeaderSpec(None, GetBrokerConfigResponseHeader),
        _R.GET_BROKER_RUNTIME_INFO: HeaderSpec(),
        _R.SEARCH_OFFSET_BY_TIMESTAMP: HeaderSpec(SearchOffsetRequestHeader, OffsetResponseHeader),
        _R.GET_MAX_OFFSET: HeaderSpec(TopicQueueRequestHeader, OffsetResponseHeader),
        _R.GET_MIN_OFFSET: HeaderSpec(TopicQueueRequestHeader, OffsetResponseHeader),
        _R.GET_EARLIEST_MSG_STORETIME: HeaderSpec(TopicQueueRequestHeader, TimestampResponseHeader),
        _R.VIEW_MESSAGE_BY_ID: HeaderSpec(ViewMessageRequestHeader),
        _R.HEART_BEAT: HeaderSpec(),
        _R.UNREGISTER_CLIENT: HeaderSpec(UnregisterClientRequestHeader),
        _R.CONSUMER_SEND_MSG_BACK: HeaderSpec(ConsumerSendMsgBackRequestHeader),
        _R.END_TRANSACTION: HeaderSpec(EndTransactionRequestHeader),
        _R.GET_CONSUMER_LIST_BY_GROUP: HeaderSpec(ConsumerGroupRequestHeader),
        _R.CHECK_TRANSACTION_STATE: HeaderSpec(CheckTransactionStateRequestHeader),
        _R.NOTIFY_CONSUMER_IDS_CHANGED: HeaderSpec(ConsumerGroupRequestHeader),
        _R.LOCK_BATCH_MQ: HeaderSpec(),
        _R.UNLOCK_BATCH_MQ: HeaderSpec(),
        _R.GET_ALL_CONSUMER_OFFSET: HeaderSpec(),
        _R.GET_ALL_DELAY_OFFSET: HeaderSpec(),
        _R.CHECK_CLIENT_CONFIG: HeaderSpec(),
        _R.PUT_KV_CONFIG: HeaderSpec(PutKVConfigRequestHeader),
        _R.GET_KV_CONFIG: HeaderSpec(KVConfigRequestHeader, GetKVConfigResponseHeader),
        _R.DELETE_KV_CONFIG: HeaderSpec(KVConfigRequestHeader),
        _R.REGISTER_BROKER: HeaderSpec(RegisterBrokerRequestHeader, RegisterBrokerResponseHeader),
        _R.UNREGISTER_BROKER: HeaderSpec(BrokerIdentityRequestHeader),
        _R.GET_ROUTEINFO_BY_TOPIC: HeaderSpec(GetRouteInfoRequestHeader),
        _R.GET_BROKER_CLUSTER_INFO: HeaderSpec(),
        _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: HeaderSpec(),
        _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: HeaderSpec(),
        _R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: HeaderSpec(),
        _R.GET_TOPIC_STATS_INFO: HeaderSpec(TopicRequestHeader),
        _R.GET_CONSUMER_CONNECTION_LIST: HeaderSpec(ConsumerGroupRequestHeader),
        _R.GET_PRODUCER_CONNECTION_LIST: HeaderSpec(ProducerGroupRequestHeader),
        _R.WIPE_WRITE_PERM_OF_BROKER: HeaderSpec(BrokerNameRequestHeader, WipeWritePermResponseHeader),
        _R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: HeaderSpec(),
        _R.DELETE_SUBSCRIPTIONGROUP: HeaderSpec(DeleteSubscriptionGroupRequestHeader),
        _R.GET_CONSUME_STATS: HeaderSpec(ConsumeStatsRequestHeader),
        _R.DELETE_TOPIC_IN_BROKER: HeaderSpec(DeleteTopicRequestHeader),
        _R.DELETE_TOPIC_IN_NAMESRV: HeaderSpec(DeleteTopicRequestHeader),
        _R.REGISTER_TOPIC_IN_NAMESRV: HeaderSpec(TopicRequestHeader),
        _R.GET_KVLIST_BY_NAMESPACE: HeaderSpec(NamespaceRequestHeader),
        _R.RESET_CONSUMER_CLIENT_OFFSET: HeaderSpec(ResetOffsetRequestHeader),
        _R.GET_CONSUMER_STATUS_FROM_CLIENT: HeaderSpec(GetConsumerStatusRequestHeader),
        _R.INVOKE_BROKER_TO_RESET_OFFSET: HeaderSpec(ResetOffsetRequestHeader),
        _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: HeaderSpec(GetConsumerStatusRequestHeader),
        _R.GET_TOPICS_BY_CLUSTER: HeaderSpec(ClusterRequestHeader),
        _R.QUERY_TOPIC_CONSUME_BY_WHO: HeaderSpec(TopicRequestHeader),
        _R.QUERY_CONSUME_TIME_SPAN: HeaderSpec(ConsumeTimeSpanRequestHeader),
        _R.GET_SYSTEM_TOPIC_LIST_FROM_NS: HeaderSpec(),
        _R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: HeaderSpec(),
        _R.CLEAN_EXPIRED_CONSUMEQUEUE: HeaderSpec(),
        _R.GET_CONSUMER_RUNNING_INFO: HeaderSpec(GetConsumerRunningInfoRequestHeader),
        _R.QUERY_CORRECTION_OFFSET: HeaderSpec(QueryCorrectionOffsetRequestHeader),
        _R.CONSUME_MESSAGE_DIRECTLY: HeaderSpec(ConsumeMessageDirectlyRequestHeader),
        _R.SEND_MESSAGE_V2: HeaderSpec(SendMessageV2RequestHeader, SendMessageResponseHeader),
        _R.GET_UNIT_TOPIC_LIST: HeaderSpec(),
        _R.GET_HAS_UNIT_SUB_TOPIC_LIST: HeaderSpec(),
        _R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: HeaderSpec(),
        _R.CLONE_GROUP_OFFSET: HeaderSpec(CloneGroupOffsetRequestHeader),
        _R.VIEW_BROKER_STATS_DATA: HeaderSpec(ViewBrokerStatsDataRequestHeader),
        _R.CLEAN_UNUSED_TOPIC: HeaderSpec(),
        _R.GET_BROKER_CONSUME_STATS: HeaderSpec(GetBrokerConsumeStatsRequestHeader),
        _R.UPDATE_NAMESRV_CONFIG: HeaderSpec(),
        _R.GET_NAMESRV_CONFIG: HeaderSpec(),
        _R.SEND_BATCH_MESSAGE: HeaderSpec(SendMessageV2RequestHeader, SendMessageResponseHeader),
        _R.QUERY_CONSUME_QUEUE: HeaderSpec(QueryConsumeQueueRequestHeader),
        _R.QUERY_DATA_VERSION: HeaderSpec(BrokerIdentityRequestHeader, QueryDataVersionResponseHeader),
        _R.RESUME_CHECK_HALF_MESSAGE: HeaderSpec(ResumeCheckHalfMessageRequestHeader),
        _R.SEND_REPLY_MESSAGE: HeaderSpec(SendMessageRequestHeader, SendMessageResponseHeader),
        _R.SEND_REPLY_MESSAGE_V2: HeaderSpec(SendMessageV2RequestHeader, SendMessageResponseHeader),
        _R.PUSH_REPLY_MESSAGE_TO_CLIENT: HeaderSpec(ReplyMessageRequestHeader),
        _R.ADD_WRITE_PERM_OF_BROKER: HeaderSpec(BrokerNameRequestHeader, AddWritePermResponseHeader),
        _R.GET_ALL_PRODUCER_INFO: HeaderSpec(),
        _R.DELETE_EXPIRED_COMMITLOG: HeaderSpec(),
        _R.GET_TOPIC_CONFIG: HeaderSpec(TopicRequestHeader),
        _R.GET_SUBSCRIPTIONGROUP_CONFIG: HeaderSpec(GroupRequestHeader),
        _R.QUERY_TOPICS_BY_CONSUMER: HeaderSpec(GroupRequestHeader),
        _R.QUERY_SUBSCRIPTION_BY_CONSUMER: HeaderSpec(QuerySubscriptionRequestHeader),
        _R.GET_BROKER_HA_STATUS: HeaderSpec(),
        _R.GET_BROKER_EPOCH_CACHE: HeaderSpec(),
        _R.LITE_PULL_MESSAGE: HeaderSpec(PullMessageRequestHeader, PullMessageResponseHeader),
        _R.RECALL_MESSAGE: HeaderSpec(RecallMessageRequestHeader, MessageIdResponseHeader),
        _R.HELLO: HeaderSpec(),
        _R.NATIVE_PULL: HeaderSpec(NativePullRequestHeader, NativePullResponseHeader),
        _R.NATIVE_END_TRANSACTION: HeaderSpec(NativeEndTransactionRequestHeader, NativeEndTransactionResponseHeader),
        _R.NAMED_TRANSACTION_STAGE: HeaderSpec(NamedStageRequestHeader, NamedResponseHeader),
        _R.NAMED_TRANSACTION_END: HeaderSpec(NamedEndRequestHeader, NamedResponseHeader),
        _R.TRANSACTION_LIST: HeaderSpec(TransactionListRequestHeader),
        _R.GROUP_LIST: HeaderSpec(),
        _R.NATIVE_APPEND: HeaderSpec(NativeAppendRequestHeader, NativeAppendResponseHeader),
        _R.LOCK_LIST: HeaderSpec(LockListRequestHeader),
        _R.LOCK_RELEASE: HeaderSpec(LockReleaseRequestHeader),
        _R.HA_STATUS: HeaderSpec(),
        _R.HA_PROMISE: HeaderSpec(HaPromiseRequestHeader, HaPromiseResponseHeader),
        _R.HA_PROMOTE: HeaderSpec(HaPromoteRequestHeader),
        _R.HA_DEMOTE: HeaderSpec(HaDemoteRequestHeader),
        _R.HA_HOLD: HeaderSpec(HaHoldRequestHeader, HaHoldResponseHeader),
        _R.HA_EPOCH: HeaderSpec(HaEpochRequestHeader, HaEpochResponseHeader),
        _R.NATIVE_HALF_APPEND: HeaderSpec(NativeAppendRequestHeader, NativeAppendResponseHeader),
    }.items()
}
"""What each request code carries. A code that is missing here is unknown: its requests have no typed header."""
