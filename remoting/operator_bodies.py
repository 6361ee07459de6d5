"""Bodies that only RocketMQ's admin tools ask for: JSON, camelCase on the wire (4.9.8 ``protocol/body``, 5.3.3 where
marked).

Lives here: the structs, and ``encode_consume_stats_list``, whose tables have queues as keys.
"""

from collections.abc import Sequence

import msgspec

from pocketmq.remoting.bodies import (
    Body,
    ConsumeStats,
    SubscriptionData,
    SubscriptionGroupConfigBody,
    TopicConfigBody,
    encode_body,
)


class ProducerInfo(Body):
    """One producer; ``last_update_timestamp`` is the wall time of its last heartbeat in ms."""

    client_id: str = ""
    remote_ip: str = msgspec.field(name="remoteIP", default="")
    language: str = "OTHER"
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTableInfo(Body):
    """GET_ALL_PRODUCER_INFO: producers by group."""

    data: dict[str, list[ProducerInfo]] = {}


class ConsumeQueueData(Body):
    """One entry of a consume queue; ``eval``: whether it passes the group's filter by tags."""

    physic_offset: int
    physic_size: int
    tags_code: int
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueBody(Body):
    """QUERY_CONSUME_QUEUE."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = []
    max_queue_index: int = 0
    min_queue_index: int = 0


class CreateTopicListBody(Body):
    """UPDATE_AND_CREATE_TOPIC_LIST (5.3)."""

    topic_config_list: list[TopicConfigBody] = []


class SubscriptionGroupListBody(Body):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (5.3)."""

    group_config_list: list[SubscriptionGroupConfigBody] = []


class QuerySubscriptionBody(Body):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (5.3)."""

    subscription_data: SubscriptionData | None = None
    group: str = ""
    topic: str = ""


class HaConnectionBody(Body):
    """One slave of a master (5.3); offsets are physical, ``diff`` in bytes."""

    addr: str = ""
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


class HaClientBody(Body):
    """A slave's own side (5.3); offsets are physical, times in ms since 1970, 0 where they are not known."""

    master_addr: str = ""
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    activated: bool = False


class HaRuntimeBody(Body):
    """GET_BROKER_HA_STATUS (5.3)."""

    master: bool = True
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HaConnectionBody] = []
    ha_client_runtime_info: HaClientBody = msgspec.field(default_factory=HaClientBody)


class EpochEntryBody(Body):
    """One epoch of a log (5.3); offsets are physical, ``end_offset`` is where the next one begins."""

    epoch: int
    start_offset: int
    end_offset: int


class EpochCacheBody(Body):
    """GET_BROKER_EPOCH_CACHE (5.3)."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: int = 0
    epoch_list: list[EpochEntryBody] = []
    max_offset: int = 0


def encode_consume_stats_list(
    stats: Sequence[tuple[str, Sequence[ConsumeStats]]], broker_addr: str, total_diff: int
) -> bytes:
    """Return GET_BROKER_CONSUME_STATS' answer: the figures of each (group, its topics)."""
    groups = (
        b"{" + msgspec.json.encode(group) + b":[" + b",".join(map(encode_body, topics)) + b"]}"
        for group, topics in stats
    )
    return b'{"consumeStatsList":[%b],"brokerAddr":%b,"totalDiff":%d,"totalInflightDiff":0}' % (
        b",".join(groups),
        msgspec.json.encode(broker_addr),
        total_diff,
    )
