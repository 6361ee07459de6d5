"""A broker's settings, statistics and clean-ups, and the requests among them that PocketMQ does not serve.

Bodies: RocketMQ 4.9.8 ``protocol/body``.

Access: the annotation of RocketMQ 5.3.3's header for 315. RocketMQ checks the others nowhere: here a read needs Get on
the cluster, a change or deletion Update. 50 to 53 change access itself: any account may send them to RocketMQ
4.9, here they need Update on the cluster, as 3001 to 3010 do in 5.3.3.
"""

from typing import Final

import msgspec

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.access import GET_CLUSTER, UPDATE_CLUSTER
from pocketmq.remoting.protocol.body import Body, KVTable
from pocketmq.remoting.protocol.spec import Header, Pool, Raw, Spec


class GetBrokerConfigResponseHeader(Header, frozen=True):
    """``version`` is the data version as JSON; the body is the settings as properties text."""

    version: str


class ViewBrokerStatsDataRequestHeader(Header, frozen=True):
    """VIEW_BROKER_STATS_DATA."""

    stats_name: str
    stats_key: str


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


_R = RequestCode
SPECS: Final = (
    Spec(_R.UPDATE_BROKER_CONFIG, Pool.ADMIN, UPDATE_CLUSTER, body=Raw.PROPERTIES),
    Spec(_R.GET_BROKER_CONFIG, Pool.STATUS, GET_CLUSTER, response=GetBrokerConfigResponseHeader, answer=Raw.PROPERTIES),
    Spec(_R.TRIGGER_DELETE_FILES, Pool.NOBODY, UPDATE_CLUSTER),
    Spec(_R.GET_BROKER_RUNTIME_INFO, Pool.STATUS, GET_CLUSTER, answer=KVTable),
    Spec(_R.GET_TIMER_CHECK_POINT, Pool.NOBODY, GET_CLUSTER),
    Spec(_R.GET_TIMER_METRICS, Pool.NOBODY, GET_CLUSTER),
    Spec(_R.REGISTER_FILTER_SERVER, Pool.NOBODY, UPDATE_CLUSTER),
    Spec(_R.REGISTER_MESSAGE_FILTER_CLASS, Pool.NOBODY, UPDATE_CLUSTER),
    Spec(_R.CLEAN_EXPIRED_CONSUMEQUEUE, Pool.ADMIN, UPDATE_CLUSTER),
    Spec(_R.VIEW_BROKER_STATS_DATA, Pool.ADMIN, GET_CLUSTER, ViewBrokerStatsDataRequestHeader, answer=BrokerStatsData),
    Spec(_R.CLEAN_UNUSED_TOPIC, Pool.ADMIN, UPDATE_CLUSTER),
    Spec(_R.DELETE_EXPIRED_COMMITLOG, Pool.ADMIN, UPDATE_CLUSTER),
)
