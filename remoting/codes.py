"""Request, response and language codes.

Lives here: RocketMQ's numbers by RocketMQ's names (4.9.8 ``RequestCode.java``, ``ResponseCode.java``,
``LanguageCode.java``; 5.3.3 where marked) and PocketMQ's own, which start at 30,001.
"""

import enum


class RequestCode(enum.IntEnum):
    """The kind of a request."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_BROKER_OFFSET = 13
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_AND_CREATE_TOPIC_LIST = 18  # 5.3
    GET_ALL_TOPIC_CONFIG = 21
    GET_TOPIC_CONFIG_LIST = 22
    GET_TOPIC_NAME_LIST = 23
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    TRIGGER_DELETE_FILES = 27
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
    UPDATE_AND_CREATE_ACL_CONFIG = 50
    DELETE_ACL_CONFIG = 51
    GET_BROKER_CLUSTER_ACL_INFO = 52
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = 53
    GET_TIMER_CHECK_POINT = 60  # 5.3
    GET_TIMER_METRICS = 61  # 5.3
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    SUSPEND_CONSUMER = 209
    RESUME_CONSUMER = 210
    RESET_CONSUMER_OFFSET_IN_CONSUMER = 211
    RESET_CONSUMER_OFFSET_IN_BROKER = 212
    ADJUST_CONSUMER_THREAD_POOL = 213
    WHO_CONSUME_THE_MESSAGE = 214
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    REGISTER_TOPIC_IN_NAMESRV = 217  # 5.3
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225  # 5.3
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    REGISTER_FILTER_SERVER = 301
    REGISTER_MESSAGE_FILTER_CLASS = 302
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    GET_CONSUMER_RUNNING_INFO = 307
    QUERY_CORRECTION_OFFSET = 308
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    RESUME_CHECK_HALF_MESSAGE = 323
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    QUERY_TOPICS_BY_CONSUMER = 343  # 5.3
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345  # 5.3
    GET_TOPIC_CONFIG = 351  # 5.3
    GET_SUBSCRIPTIONGROUP_CONFIG = 352  # 5.3
    LITE_PULL_MESSAGE = 361  # 5.3
    RECALL_MESSAGE = 370  # 5.3
    QUERY_ASSIGNMENT = 400  # 5.3
    SET_MESSAGE_REQUEST_MODE = 401  # 5.3
    GET_ALL_MESSAGE_REQUEST_MODE = 402  # 5.3
    GET_BROKER_HA_STATUS = 907  # 5.3
    GET_BROKER_EPOCH_CACHE = 1007  # 5.3

    AUTH_CREATE_USER = 3001  # 5.3
    AUTH_UPDATE_USER = 3002  # 5.3
    AUTH_DELETE_USER = 3003  # 5.3
    AUTH_GET_USER = 3004  # 5.3
    AUTH_LIST_USER = 3005  # 5.3
    AUTH_CREATE_ACL = 3006  # 5.3
    AUTH_UPDATE_ACL = 3007  # 5.3
    AUTH_DELETE_ACL = 3008  # 5.3
    AUTH_GET_ACL = 3009  # 5.3
    AUTH_LIST_ACL = 3010  # 5.3

    POP_MESSAGE = 200050  # 5.3, as all from here to 200151
    ACK_MESSAGE = 200051
    PEEK_MESSAGE = 200052
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    NOTIFICATION = 200054
    POLLING_INFO = 200055
    BATCH_ACK_MESSAGE = 200151

    HELLO = 30001
    """PocketMQ: ask what the server supports. The remoting layer answers; RocketMQ answers "not supported"."""
    AUTHENTICATE = 30002
    """PocketMQ: prove once, on this connection, who sends its requests. The remoting layer answers."""
    NATIVE_PULL = 30011
    """PocketMQ: several queues of one broker in one request."""
    MAKE_TOPIC = 30017
    """PocketMQ: make a topic as its first message would, before messages whose queue a key chooses."""
    NATIVE_END_TRANSACTION = 30037
    """PocketMQ: the decisions on many half messages of one producer group, each with its answer."""
    NATIVE_POP = 30050
    """PocketMQ: messages of a topic for a time, as POP_MESSAGE gives them, but more of them."""
    NATIVE_SETTLE = 30051
    """PocketMQ: acknowledge popped messages, or change when they become visible, many at once."""
    TRANSACTION_LIST = 30039
    """PocketMQ: the half messages that wait for a decision."""
    STAGED_TRANSACTION_END = 30040
    """PocketMQ: prepare, commit or abort a staged transaction, or ask for its outcome."""
    GROUP_LIST = 30200
    """PocketMQ: the consumer groups a broker knows."""
    HA_STATUS = 30400
    """PocketMQ: role, epoch, offsets and replication of one broker."""
    HA_PROMISE = 30401
    """PocketMQ: promise an epoch: accept nothing from lower ones; a master fences itself."""
    HA_PROMOTE = 30402
    """PocketMQ: become the master of a promised epoch."""
    HA_DEMOTE = 30403
    """PocketMQ: become a slave, or start again as one."""
    HA_HOLD = 30404
    """PocketMQ: a master that is handing over refuses sends for a while."""
    HA_EPOCH = 30410
    """PocketMQ, name server: read or claim the epoch of a broker name."""
    NATIVE_APPEND = 30310
    """PocketMQ: records as the producer built them, in sections of one (topic, queue)."""
    LOCK_LIST = 30600
    """PocketMQ: the queue locks of ordered consumption: holder, age, expiry, token, waiting clients."""
    LOCK_RELEASE = 30601
    """PocketMQ: an administrator releases a queue lock."""
    AUTH_LOG = 30700
    """PocketMQ: the last refusals of access control."""
    WHOAMI = 30701
    """PocketMQ: the user that the server takes the sender for."""
    AUTH_TEST = 30702
    """PocketMQ: what access control would say to a request."""
    AUTH_CONTENTS = 30703
    """PocketMQ: all users and policies, for slaves."""
    NATIVE_HALF_APPEND = 30311
    """PocketMQ: NATIVE_APPEND of half messages of the producer group; the answer has a run for each record."""
    STAGED_TRANSACTION_WRITE = 30312
    """PocketMQ: NATIVE_APPEND into a staged transaction: consumers see no message before its commit."""


class ResponseCode(enum.IntEnum):
    """The result of a request."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29  # 5.3
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209  # 5.3; 4.9 uses 209 to 211 for failed ACL updates
    POLLING_TIMEOUT = 210  # 5.3
    BROKER_NOT_EXIST = 211  # 5.3
    BROKER_DISPATCH_NOT_COMPLETE = 212  # 5.3
    BROADCAST_CONSUMPTION = 213  # 5.3
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501  # 5.3
    ILLEGAL_OPERATION = 604  # 5.3
    GO_AWAY = 1500  # 5.3

    CONNECT_BROKER_EXCEPTION = 10001  # from here on: made by a client for itself (``ClientErrorCode.java``)
    ACCESS_BROKER_TIMEOUT = 10002
    BROKER_NOT_EXIST_EXCEPTION = 10003
    NO_NAME_SERVER_EXCEPTION = 10004
    NOT_FOUND_TOPIC_EXCEPTION = 10005
    REQUEST_TIMEOUT_EXCEPTION = 10006
    CREATE_REPLY_MESSAGE_EXCEPTION = 10007


class LanguageCode(enum.IntEnum):
    """The language that a peer is written in."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13  # 5.3


VERSION_4_9_8 = 409
"""The version we announce: the ordinal of ``MQVersion.V4_9_8``; 401 or later gets standard JSON route data."""

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2


_V4_1_0_SNAPSHOT, _V5_0_0_SNAPSHOT, _V6 = 232, 412, 612


def version_name(ordinal: int) -> str:
    """Return RocketMQ's name of a version (``MQVersion.java``), or the number as text if it fits no pattern.

    From V4_1_0_SNAPSHOT (232) on each minor version has ten patches, each with a snapshot before it.

    >>> version_name(409), version_name(479), version_name(412), version_name(63)
    ('V4_9_8', 'V5_3_3', 'V5_0_0_SNAPSHOT', '63')
    """
    if not _V4_1_0_SNAPSHOT <= ordinal < _V6:
        return str(ordinal)
    major, minor = (4, 1 + (ordinal - _V4_1_0_SNAPSHOT) // 20)
    if ordinal >= _V5_0_0_SNAPSHOT:
        major, minor = 5, (ordinal - _V5_0_0_SNAPSHOT) // 20
    patch = (ordinal - _V4_1_0_SNAPSHOT) % 20
    return f"V{major}_{minor}_{patch // 2}{'' if patch % 2 else '_SNAPSHOT'}"


def software(version: str, *, is_pocketmq: bool) -> str:
    """Return what a broker is, for people. ``version``: as it says itself; a PocketMQ says whose protocol it speaks.

    >>> software("V4_9_8", is_pocketmq=True), software("V5_3_3", is_pocketmq=False)
    ('PocketMQ (as V4_9_8)', 'RocketMQ V5_3_3')
    """
    return f"PocketMQ (as {version})" if is_pocketmq else f"RocketMQ {version}"


def request_name(code: int) -> str:
    """Return RocketMQ's name of a request code, or the number as text."""
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)
