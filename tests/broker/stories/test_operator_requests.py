"""Requests of RocketMQ's admin tools: statistics, lists, contents of queues."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pocketmq.broker.admin.ha_runtime_admin import ha_runtime
from pocketmq.broker.app import BrokerApp
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import KVTable, MessageQueue, decode_body, encode_body
from pocketmq.remoting.protocol.broker import BrokerStatsData, ViewBrokerStatsDataRequestHeader
from pocketmq.remoting.protocol.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from pocketmq.remoting.protocol.group import (
    ConsumeStats,
    ConsumeStatsRequestHeader,
    ConsumeTimeSpanRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetBrokerConsumeStatsRequestHeader,
    GroupRequestHeader,
    ProducerTableInfo,
    QueryConsumeTimeSpanBody,
    QuerySubscriptionBody,
    QuerySubscriptionRequestHeader,
    SubscriptionGroupConfigBody,
    SubscriptionGroupListBody,
)
from pocketmq.remoting.protocol.ha import EpochCacheBody, HaRuntimeBody, HaSlaveBody, HaStatusBody
from pocketmq.remoting.protocol.offset import (
    CloneGroupOffsetRequestHeader,
    ResetOffsetBody,
    ResetOffsetRequestHeader,
    TopicQueueRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.remoting.protocol.pull import QueryConsumeQueueBody, QueryConsumeQueueRequestHeader
from pocketmq.remoting.protocol.topic import (
    CreateTopicListBody,
    CreateTopicRequestHeader,
    TopicConfigBody,
    TopicList,
    TopicRequestHeader,
)
from pocketmq.store import message_store
from tests.broker.conftest import Client, eventually

R = RequestCode


async def commit(client: Client, group: str, offset: int, *, topic: str = "T", queue_id: int = 0) -> None:
    header = UpdateConsumerOffsetRequestHeader(group, topic, queue_id, offset)
    assert (await client.ask(R.UPDATE_CONSUMER_OFFSET, header)).code == 0


async def be_member(client: Client, group: str, *topics: str, tags: str = "*") -> None:
    body = HeartbeatData(
        client_id="me",
        producer_data_set=[ProducerData(f"P-{group}")],
        consumer_data_set=[
            ConsumerData(
                group_name=group,
                subscription_data_set=[
                    SubscriptionData(topic=topic, sub_string=tags, sub_version=1) for topic in topics
                ],
            )
        ],
    )
    assert (await client.ask(R.HEART_BEAT, body=encode_body(body))).code == 0


async def test_consume_stats_of_all_groups(broker: BrokerApp, client: Client) -> None:
    """Every group with offsets, its topics queue by queue, and the sum of its lag."""
    await client.put(b"1", b"2", b"3")
    await client.pull_bodies(wanted=3)
    await commit(client, "a", 1)
    await commit(client, "b", 3)
    response = await client.ask(R.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsRequestHeader(False))
    text = bytes(response.body)
    assert text.endswith(b'"totalDiff":2,"totalInflightDiff":0}')
    groups = msgspec.json.decode(text.split(b'{"offsetTable"', 1)[0] + b"]}]}")["consumeStatsList"]
    assert [list(each) for each in groups] == [["a"]]
    first = text.index(b'{"offsetTable"')
    stats = decode_body(text[first : text.index(b"]}", first)], ConsumeStats)
    at = stats.offset_table[MessageQueue("T", "broker-a", 0)]
    assert (at.broker_offset, at.consumer_offset, at.pull_offset) == (3, 1, 1)
    ordered = await client.ask(R.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsRequestHeader(True))
    assert b'"consumeStatsList":[]' in bytes(ordered.body)


async def test_stats_by_name(broker: BrokerApp, client: Client) -> None:
    """Messages into a topic and out of it to a group; an unknown statistic is RocketMQ's error."""
    await client.put(b"1", b"2", b"3")
    await client.pull_bodies(wanted=3)
    for name, key, expected in (("TOPIC_PUT_NUMS", "T", 3), ("GROUP_GET_NUMS", "T@group", 3)):
        response = await client.ask(R.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequestHeader(name, key))
        data = decode_body(response.body, BrokerStatsData)
        assert [each.sum for each in (data.stats_minute, data.stats_hour, data.stats_day)] == [expected] * 3
        assert data.stats_minute.tps > 0
    response = await client.ask(R.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequestHeader("TOPIC_PUT_NUMS", "U"))
    assert (response.code, response.remark) == (1, "The stats <TOPIC_PUT_NUMS> <U> not exist")
    await commit(client, "group", 3)
    response = await client.ask(R.GET_CONSUME_STATS, ConsumeStatsRequestHeader("group"))
    assert decode_body(response.body, ConsumeStats).consume_tps > 0


async def test_time_spans(broker: BrokerApp, client: Client) -> None:
    """Store times of the first, the last and the last consumed message of each queue."""
    await client.put(b"1", b"2")
    await client.pull_bodies(wanted=2)
    await commit(client, "g", 1)
    response = await client.ask(R.QUERY_CONSUME_TIME_SPAN, ConsumeTimeSpanRequestHeader("T", "g"))
    spans = decode_body(response.body, QueryConsumeTimeSpanBody).consume_time_span_set
    first = next(span for span in spans if span.message_queue.queue_id == 0)
    assert 0 < first.min_time_stamp == first.consume_time_stamp <= first.max_time_stamp
    assert first.delay_time >= 0
    empty = next(span for span in spans if span.message_queue.queue_id == 1)
    assert (empty.max_time_stamp, empty.delay_time) == (-1, 0)


async def test_all_producers(broker: BrokerApp, client: Client) -> None:
    """Every producer group with its clients and the wall time of their heartbeats."""
    before = broker._clock.now_ms()
    await be_member(client, "g", "T")
    response = await client.ask(R.GET_ALL_PRODUCER_INFO)
    [info] = decode_body(response.body, ProducerTableInfo).data["P-g"]
    assert (info.client_id, info.language) == ("me", "PYTHON")
    assert info.remote_ip.startswith("127.0.0.1:")
    assert before - 1000 <= info.last_update_timestamp <= broker._clock.now_ms()


async def test_a_look_into_a_consume_queue(broker: BrokerApp, client: Client) -> None:
    """Entries with their offsets and tags, filtered by the group's tags; missing queues and offsets."""
    await client.put(b"1", tags="A")
    await client.put(b"2", tags="B")
    await client.pull_bodies(wanted=2)
    await be_member(client, "g", "T", tags="B")

    async def query(index: int, group: str = "", queue_id: int = 0) -> Any:
        return await client.ask(R.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader("T", queue_id, index, 10, group))

    body = decode_body((await query(0, "g")).body, QueryConsumeQueueBody)
    assert (body.min_queue_index, body.max_queue_index) == (0, 2)
    assert [(each.physic_offset > 0, each.eval) for each in body.queue_data] == [(False, False), (True, True)]
    assert body.queue_data[0].physic_offset + body.queue_data[0].physic_size == body.queue_data[1].physic_offset
    assert body.subscription_data is not None
    assert body.subscription_data.sub_string == "B"
    body = decode_body((await query(1, "nobody")).body, QueryConsumeQueueBody)
    assert (len(body.queue_data), body.filter_data) == (1, "nobody@T is not online!")
    for response, text in (
        (await query(0, queue_id=9), "9@T is not exist!"),
        (await query(2), "Index 2 of 0@T is not exist!"),
    ):
        assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, text)
    assert (await query(-1)).code == ResponseCode.SYSTEM_ERROR


async def test_queues_without_a_topic_are_removed(broker: BrokerApp, client: Client) -> None:
    """Those of topics that exist stay."""
    await client.put(b"1")
    await client.put(b"1", topic="Gone")
    await client.pull_bodies(topic="Gone")
    broker.topics.delete("Gone")
    response = await client.ask(R.CLEAN_UNUSED_TOPIC)
    assert (response.code, response.remark) == (0, "1 topics removed")
    assert broker._running is not None
    assert {queue[0] for queue in broker._running.store.queues()} == {"T"}
    assert await client.pull_bodies() == [b"1"]
    assert (await client.ask(R.CLEAN_UNUSED_TOPIC)).remark == ""


async def test_offsets_are_cloned(broker: BrokerApp, client: Client) -> None:
    """Of one topic or all; a topic that the group has left only on request for offline ones."""
    await client.put(b"1", b"2")
    await client.put(b"1", topic="U")
    await client.pull_bodies(topic="U")
    await client.pull_bodies(wanted=2)
    await commit(client, "from", 2)
    await commit(client, "from", 1, topic="U")
    await be_member(client, "from", "T")
    assert (await client.ask(R.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader("from", "to"))).code == 0
    assert (broker.offsets.query("to", "T", 0), broker.offsets.query("to", "U", 0)) == (2, None)
    header = CloneGroupOffsetRequestHeader("from", "to", "U", True)
    assert (await client.ask(R.CLONE_GROUP_OFFSET, header)).code == 0
    assert broker.offsets.query("to", "U", 0) == 1


async def test_what_a_group_consumes(broker: BrokerApp, client: Client) -> None:
    """Its topics by offsets, and one subscription."""
    await client.put(b"1")
    await client.pull_bodies()
    await commit(client, "g", 1)
    await be_member(client, "g", "T", tags="A")
    response = await client.ask(R.QUERY_TOPICS_BY_CONSUMER, GroupRequestHeader("g"))
    assert decode_body(response.body, TopicList).topic_list == ["T"]
    response = await client.ask(R.QUERY_SUBSCRIPTION_BY_CONSUMER, QuerySubscriptionRequestHeader("g", "T"))
    body = decode_body(response.body, QuerySubscriptionBody)
    assert body.subscription_data is not None
    assert (body.group, body.topic, body.subscription_data.sub_string) == ("g", "T", "A")


async def test_topics_and_groups_in_lists(broker: BrokerApp, client: Client) -> None:
    """All topics of a list are created, or none if one is illegal."""
    topics = CreateTopicListBody([TopicConfigBody("One", 2, 2), TopicConfigBody("Two", 3, 3, 4)])
    assert (await client.ask(R.UPDATE_AND_CREATE_TOPIC_LIST, body=encode_body(topics))).code == 0
    made = [topic for name in ("One", "Two") if (topic := broker.topics.get(name)) is not None]
    assert [(topic.write_queue_nums, topic.perm) for topic in made] == [(2, 6), (3, 4)]
    for illegal in ("TBW102", "no good"):
        topics = CreateTopicListBody([TopicConfigBody("Three"), TopicConfigBody(illegal)])
        assert (await client.ask(R.UPDATE_AND_CREATE_TOPIC_LIST, body=encode_body(topics))).code != 0
    assert broker.topics.get("Three") is None
    groups = SubscriptionGroupListBody([SubscriptionGroupConfigBody("G1", retry_max_times=4)])
    assert (await client.ask(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=encode_body(groups))).code == 0
    group = broker.groups.get("G1")
    assert group is not None
    assert group.retry_max_times == 4
    groups = SubscriptionGroupListBody([SubscriptionGroupConfigBody("G2"), SubscriptionGroupConfigBody("no good")])
    assert (await client.ask(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=encode_body(groups))).code != 0
    assert broker.groups.get("G2") is None


@pytest.mark.parametrize("field", ["clean_offset", "remove_offset"])
async def test_a_group_goes_with_its_offsets(broker: BrokerApp, client: Client, field: str) -> None:
    """5.3 and 4.9 have different names for the same flag."""
    await client.put(b"1")
    await client.pull_bodies()
    await commit(client, "g", 1)
    header = DeleteSubscriptionGroupRequestHeader("g", **{field: True})
    assert (await client.ask(R.DELETE_SUBSCRIPTIONGROUP, header)).code == 0
    assert broker.offsets.query("g", "T", 0) is None


async def test_a_reset_to_a_time_after_the_last_message_is_the_end(broker: BrokerApp, client: Client) -> None:
    """RocketMQ 5.3; otherwise the last message would be delivered again."""
    await client.put(b"1", b"2")
    await client.pull_bodies(wanted=2)
    later = broker._clock.now_ms() + 60_000
    response = await client.ask(R.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader("T", "g", later, True))
    assert decode_body(response.body, ResetOffsetBody).offset_table[MessageQueue("T", "broker-a", 0)] == 2


async def test_replication_as_the_tools_of_5_3_ask(broker: BrokerApp, client: Client) -> None:
    """A master without slaves, and the epochs of its log."""
    await client.put(b"1")
    status = decode_body((await client.ask(R.GET_BROKER_HA_STATUS)).body, HaRuntimeBody)
    assert (status.master, status.ha_connection_info, status.in_sync_slave_nums) == (True, [], 0)
    assert status.master_commit_log_max_offset > 0
    epochs = decode_body((await client.ask(R.GET_BROKER_EPOCH_CACHE)).body, EpochCacheBody)
    assert (epochs.broker_name, epochs.max_offset) == ("broker-a", status.master_commit_log_max_offset)
    assert [(each.start_offset, each.end_offset) for each in epochs.epoch_list] == [(0, epochs.max_offset)]


def test_slaves_as_the_tools_of_5_3_see_them() -> None:
    """A master counts them and reports each one's progress; a slave reports its master, and invents no times."""
    slaves = [
        HaSlaveBody(
            address="h:1", ack_offset=900, behind_bytes=100, is_in_sync=True, connected_ms=2000, sent_bytes=5000
        ),
        HaSlaveBody(address="h:2", ack_offset=10, behind_bytes=990, connected_ms=0, sent_bytes=0),
    ]
    told = ha_runtime(HaStatusBody(role="SYNC_MASTER", end_offset=1000, slaves=slaves))
    assert (told.master, told.master_commit_log_max_offset, told.in_sync_slave_nums) == (True, 1000, 1)
    assert [(each.addr, each.slave_ack_offset, each.diff, each.in_sync) for each in told.ha_connection_info] == [
        ("h:1", 900, 100, True),
        ("h:2", 10, 990, False),
    ]
    assert [each.transferred_byte_in_second for each in told.ha_connection_info] == [2500, 0]
    told = ha_runtime(HaStatusBody(role="SLAVE", end_offset=900, master_address="h:9", is_connected=True))
    mine = told.ha_client_runtime_info
    assert (told.master, mine.master_addr, mine.max_offset, mine.activated) == (False, "h:9", 900, True)
    assert (mine.last_read_timestamp, mine.master_flush_offset) == (0, 0)


async def test_keys_that_5_3_reads(broker: BrokerApp, client: Client) -> None:
    """Its tools fail without some keys of the runtime table and of the settings."""
    table = decode_body((await client.ask(R.GET_BROKER_RUNTIME_INFO)).body, KVTable).table
    assert table["getTransferredTps"] == table["getTransferedTps"]
    assert (table["brokerActive"], table["brokerVersion"]) == ("true", "409")
    text = bytes((await client.ask(R.GET_BROKER_CONFIG)).body).decode()
    assert {
        "filterServerNums=0",
        "useTLS=false",
        "brokerIP1=",
        "checkCRCOnRecover=true",
        "osPageCacheBusyTimeOutMills=1000",
    } <= set(text.splitlines())


async def test_runtime_information_reads_no_disk(
    broker: BrokerApp, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While reads hang, in requests for the log and in the broker's own look at its first message, a monitor gets its
    answers (``test_lock_requests.py``: and holders of queue locks renew them)."""
    store, released, hanging = broker.store, threading.Event(), threading.Semaphore(0)
    assert store.earliest_store_time() == -1
    await client.put(b"1")
    await eventually(lambda: store.earliest_store_time() > 0)
    earliest = store.earliest_store_time()

    def hang(*_: object) -> int:
        hanging.release()
        released.wait(60)
        return -1

    monkeypatch.setattr(store, "store_time", hang)
    monkeypatch.setattr(message_store, "store_time_at", hang)
    store._earliest = -1, earliest  # retention has removed the first segment
    statistics = asyncio.ensure_future(client.ask(R.GET_TOPIC_STATS_INFO, TopicRequestHeader("T")))
    try:
        for _ in range(2):  # the default pair and housekeeping
            assert await asyncio.to_thread(hanging.acquire, timeout=30)
        table = decode_body((await client.ask(R.GET_BROKER_RUNTIME_INFO)).body, KVTable).table
        assert table["earliestMessageTimeStamp"] == str(earliest)
        for code, header in (
            (R.GET_BROKER_CONFIG, None),
            (R.HA_STATUS, None),
            (R.GET_MAX_OFFSET, TopicQueueRequestHeader("T", 0)),
            (R.GET_MIN_OFFSET, TopicQueueRequestHeader("T", 0)),
        ):
            assert (await client.ask(code, header)).code == 0
        assert not statistics.done()
    finally:
        released.set()
    assert (await statistics).code == 0


async def test_a_topic_that_is_made_again_counts_from_its_beginning(broker: BrokerApp, client: Client) -> None:
    """Its queues start at 0, and so do its statistics (RocketMQ BrokerStatsManager.onTopicDeleted)."""
    await client.put(b"1", b"2", b"3")
    await client.pull_bodies(wanted=3)
    assert (await client.ask(R.DELETE_TOPIC_IN_BROKER, TopicRequestHeader("T"))).code == 0
    header = CreateTopicRequestHeader("T", "TBW102", 1, 1, 6, "SINGLE_TAG")
    assert (await client.ask(R.UPDATE_AND_CREATE_TOPIC, header)).code == 0
    await client.put(b"4")
    await eventually(lambda: broker._running is not None and broker._running.store.max_offset("T", 0) > 0)
    response = await client.ask(R.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequestHeader("TOPIC_PUT_NUMS", "T"))
    assert decode_body(response.body, BrokerStatsData).stats_day.sum == 1


async def test_what_a_restart_finds_is_not_counted_as_put(harness: Any, tmp_path: Path) -> None:
    """Counting begins with the process; old messages are not counted again."""
    first = await harness.broker()
    client = await harness.client(first)
    await client.put(b"1", b"2")
    await client.pull_bodies(wanted=2)
    await first.stop()
    second = await harness.broker()
    client = await harness.client(second)
    await client.put(b"3")
    await client.pull_bodies(wanted=3)
    response = await client.ask(R.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequestHeader("TOPIC_PUT_NUMS", "T"))
    assert decode_body(response.body, BrokerStatsData).stats_day.sum == 1
