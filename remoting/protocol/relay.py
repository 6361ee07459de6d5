"""An administrator's requests to a running consumer, through its broker.

Bodies: RocketMQ 4.9.8 ``ConsumerRunningInfo`` and its parts; the JSON of tables whose keys are queues.

Access: the annotations of RocketMQ 5.3.3's headers for 223, 307 and 309, checked by the broker before it asks the
client. The client checks nothing: it takes 221, 307 and 309 from its broker. RocketMQ serves 209 to 213 nowhere.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import BodyIllegal
from pocketmq.remoting.fastjson import standard_json
from pocketmq.remoting.protocol.access import (
    FROM_BROKER,
    GET_CONSUMER_GROUP,
    GET_TOPIC_AND_GROUP,
    PULL,
    UPDATE_CLUSTER,
)
from pocketmq.remoting.protocol.body import Body, MessageQueue
from pocketmq.remoting.protocol.client import SubscriptionData
from pocketmq.remoting.protocol.lenient import decode_leniently
from pocketmq.remoting.protocol.spec import Header, Int, Pool, Raw, Spec


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


class ProcessQueueInfo(Body):
    """A consumer's messages in progress of one queue; times in ms since 1970."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mi_b: int = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    """RocketMQ's spelling."""
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class ConsumeStatus(Body):
    """The last minute of one topic: times in ms, rates in messages a second; ``consume_failed_msgs`` in all."""

    pull_rt: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: int = 0


class ConsumerRunningInfo(msgspec.Struct, frozen=True, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO."""

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    status_table: dict[str, ConsumeStatus] = {}
    user_consumer_info: dict[str, str] = {}
    jstack: str | None = None

    def encode(self) -> bytes:
        """Return the JSON that RocketMQ's tools read."""
        parts = {
            "properties": msgspec.json.encode(self.properties),
            "subscriptionSet": msgspec.json.encode(self.subscription_set),
            "mqTable": _encode_table(self.mq_table),
            "mqPopTable": b"{}",
            "statusTable": msgspec.json.encode(self.status_table),
            "userConsumerInfo": msgspec.json.encode(self.user_consumer_info),
        }
        if self.jstack is not None:
            parts["jstack"] = msgspec.json.encode(self.jstack)
        return _encode_object(parts)

    @staticmethod
    def decode(data: bytes | memoryview) -> "ConsumerRunningInfo":
        """Read a client's answer; raise ``BodyIllegal``."""
        raw = _decode_object(data, "ConsumerRunningInfo")
        try:
            return ConsumerRunningInfo(
                properties=_part(raw, "properties", dict[str, str | None], {}),
                subscription_set=_part(raw, "subscriptionSet", list[SubscriptionData], []),
                mq_table=_decode_table(raw, "mqTable", ProcessQueueInfo),
                status_table=_part(raw, "statusTable", dict[str, ConsumeStatus], {}),
                user_consumer_info=_part(raw, "userConsumerInfo", dict[str, str], {}),
                jstack=_part(raw, "jstack", str | None, None),
            )
        except DECODE_ERRORS as error:
            raise BodyIllegal("ConsumerRunningInfo refused", why=str(error)) from error


class ConsumerStatusBody(msgspec.Struct, frozen=True, kw_only=True):
    """GET_CONSUMER_STATUS_FROM_CLIENT (``message_queue_table``) and INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    (``consumer_table``: client id → its queues). Offsets count messages."""

    message_queue_table: dict[MessageQueue, int] = {}
    consumer_table: dict[str, dict[MessageQueue, int]] = {}

    def encode(self) -> bytes:
        """Return the JSON that RocketMQ's tools read."""
        consumers = {name: _encode_table(table) for name, table in self.consumer_table.items()}
        return _encode_object(
            {"messageQueueTable": _encode_table(self.message_queue_table), "consumerTable": _encode_object(consumers)}
        )

    @staticmethod
    def decode(data: bytes | memoryview) -> "ConsumerStatusBody":
        """Read an answer; raise ``BodyIllegal``."""
        raw = _decode_object(data, "ConsumerStatusBody")
        try:
            consumers = _part(raw, "consumerTable", dict[str, msgspec.Raw] | None, None) or {}
            return ConsumerStatusBody(
                message_queue_table=_decode_table(raw, "messageQueueTable", int),
                consumer_table={
                    name: _decode_table({"table": table}, "table", int) for name, table in consumers.items()
                },
            )
        except DECODE_ERRORS as error:
            raise BodyIllegal("ConsumerStatusBody refused", why=str(error)) from error


class ConsumeMessageDirectlyResult(Body):
    """CONSUME_MESSAGE_DIRECTLY; ``consume_result``: CR_SUCCESS, CR_LATER, CR_THROW_EXCEPTION..."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str | None = None
    remark: str | None = None
    spent_time_mills: int = 0


def _encode_table(table: Mapping[MessageQueue, Any]) -> bytes:
    items = (msgspec.json.encode(queue) + b":" + msgspec.json.encode(item) for queue, item in table.items())
    return b"{" + b",".join(items) + b"}"


def _encode_object(parts: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join(msgspec.json.encode(name) + b":" + value for name, value in parts.items()) + b"}"


def _decode_object(data: bytes | memoryview, name: str) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(standard_json(bytes(data)), type=dict[str, msgspec.Raw])
    except DECODE_ERRORS as error:
        raise BodyIllegal(f"{name} refused", why=str(error), hint="its body is JSON") from error


def _part(raw: Mapping[str, msgspec.Raw], name: str, kind: Any, default: Any) -> Any:
    return decode_leniently(raw[name], kind) if name in raw else default


def _decode_table(raw: Mapping[str, msgspec.Raw], name: str, kind: Any) -> dict[MessageQueue, Any]:
    table = _part(raw, name, dict[str, msgspec.Raw] | None, None) or {}
    return {decode_leniently(key.encode(), MessageQueue): decode_leniently(item, kind) for key, item in table.items()}


_R = RequestCode
SPECS: Final = (
    Spec(_R.SUSPEND_CONSUMER, Pool.NOBODY, UPDATE_CLUSTER),
    Spec(_R.RESUME_CONSUMER, Pool.NOBODY, UPDATE_CLUSTER),
    Spec(_R.RESET_CONSUMER_OFFSET_IN_CONSUMER, Pool.NOBODY, UPDATE_CLUSTER),
    Spec(_R.RESET_CONSUMER_OFFSET_IN_BROKER, Pool.NOBODY, UPDATE_CLUSTER),
    Spec(_R.ADJUST_CONSUMER_THREAD_POOL, Pool.NOBODY, UPDATE_CLUSTER),
    Spec(
        _R.GET_CONSUMER_STATUS_FROM_CLIENT,
        Pool.CLIENT,
        FROM_BROKER,
        GetConsumerStatusRequestHeader,
        answer=ConsumerStatusBody,
    ),
    Spec(
        _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        Pool.ADMIN,
        GET_TOPIC_AND_GROUP,
        GetConsumerStatusRequestHeader,
        answer=ConsumerStatusBody,
    ),
    Spec(
        _R.GET_CONSUMER_RUNNING_INFO,
        Pool.ADMIN,
        GET_CONSUMER_GROUP,
        GetConsumerRunningInfoRequestHeader,
        answer=ConsumerRunningInfo,
        also_client=True,
    ),
    Spec(
        _R.CONSUME_MESSAGE_DIRECTLY,
        Pool.ADMIN,
        PULL,
        ConsumeMessageDirectlyRequestHeader,
        body=Raw.RECORDS,
        answer=ConsumeMessageDirectlyResult,
        also_client=True,
    ),
)
