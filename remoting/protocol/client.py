"""How clients register, and learn the other members of their group.

Bodies: RocketMQ 4.9.8 ``protocol/heartbeat`` and ``protocol/body``.

Access: RocketMQ 5.3.3 ``DefaultAuthorizationContextBuilder`` for 34, 35 and 38: each group and each subscribed topic of
the body; producer groups need nothing. RocketMQ checks 46 nowhere: it needs what 34 needs. 40 goes to clients.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import FROM_BROKER, GET, SUB, SUB_BODY, group, needs
from pocketmq.remoting.protocol.body import Body
from pocketmq.remoting.protocol.lenient import ConsumeFromWhere, ConsumeType, MessageModel
from pocketmq.remoting.protocol.spec import Header, Int, Long, Pool, Spec


class UnregisterClientRequestHeader(Header, frozen=True):
    """UNREGISTER_CLIENT."""

    wire_names: ClassVar[Mapping[str, str]] = {"client_id": "clientID"}

    client_id: str
    producer_group: str = ""
    consumer_group: str = ""


class ConsumerGroupRequestHeader(Header, frozen=True):
    """GET_CONSUMER_LIST_BY_GROUP, NOTIFY_CONSUMER_IDS_CHANGED, GET_CONSUMER_CONNECTION_LIST."""

    consumer_group: str


class SubscriptionData(Body):
    """The subscription of one group to one topic; ``sub_version`` is a wall time in ms."""

    topic: str = ""
    sub_string: str | None = "*"
    tags_set: list[str] | None = []
    code_set: list[Int] | None = []
    sub_version: Long = 0
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


_R = RequestCode
SPECS: Final = (
    Spec(_R.HEART_BEAT, Pool.HEARTBEAT, SUB_BODY, body=HeartbeatData),
    Spec(_R.UNREGISTER_CLIENT, Pool.CLIENT_MANAGE, needs(group("consumer_group", SUB)), UnregisterClientRequestHeader),
    Spec(
        _R.GET_CONSUMER_LIST_BY_GROUP,
        Pool.CONSUMER_MANAGE,
        needs(group("consumer_group", SUB | GET)),
        ConsumerGroupRequestHeader,
        answer=ConsumerIdList,
    ),
    Spec(_R.NOTIFY_CONSUMER_IDS_CHANGED, Pool.CLIENT, FROM_BROKER, ConsumerGroupRequestHeader),
    Spec(_R.CHECK_CLIENT_CONFIG, Pool.CLIENT_MANAGE, SUB_BODY, body=CheckClientBody),
)
