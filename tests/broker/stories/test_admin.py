"""Administration through a real broker: topics, groups, offsets, clients, queries, and codes that are not served."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.common.sealed_json import unseal
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import KVTable, MessageQueue, decode_body, encode_body
from pocketmq.remoting.protocol.client import (
    ConsumerData,
    ConsumerGroupRequestHeader,
    ConsumerIdList,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    UnregisterClientRequestHeader,
)
from pocketmq.remoting.protocol.group import (
    ConsumerConnection,
    ConsumeStats,
    ConsumeStatsRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GroupList,
    ProducerConnection,
    ProducerGroupRequestHeader,
    SubscriptionGroupWrapper,
)
from pocketmq.remoting.protocol.offset import (
    QueryConsumerOffsetRequestHeader,
    ResetOffsetBody,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    TopicQueueRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.remoting.protocol.pull import QueryMessageRequestHeader, ViewMessageRequestHeader
from pocketmq.remoting.protocol.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    TopicConfigSerializeWrapper,
    TopicRequestHeader,
    TopicStatsTable,
)
from pocketmq.remoting.protocol.transaction import EndTransactionRequestHeader
from tests.broker.conftest import Client, Harness, eventually, split_records
from tests.broker.stories.test_pull import settle

QUEUE = MessageQueue("T", "broker-a", 0)


def heartbeat(client_id: str, *topics: Any, group: str = "group", producers: Any = ()) -> Any:
    consumers = [
        ConsumerData(
            group_name=group, subscription_data_set=[SubscriptionData(topic=topic, sub_version=1) for topic in topics]
        )
    ]
    data = HeartbeatData(
        client_id=client_id,
        producer_data_set=[ProducerData(name) for name in producers],
        consumer_data_set=consumers if topics else [],
    )
    return encode_body(data)


async def commit(client: Client, offset: int, *, group: str = "group", topic: str = "T", queue_id: int = 0) -> Any:
    header = UpdateConsumerOffsetRequestHeader(group, topic, queue_id, offset)
    return await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def committed(
    client: Client, *, group: str = "group", topic: str = "T", queue_id: int = 0, zero: Any = None
) -> Any:
    header = QueryConsumerOffsetRequestHeader(group, topic, queue_id, set_zero_if_not_found=zero)
    return await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)


async def test_offsets_are_kept_and_a_new_group_starts_at_zero_on_a_young_topic(client: Client) -> None:
    """RocketMQ's rule: no offset, queue still at 0 and in memory → 0 with SUCCESS; unless the client forbids it."""
    await client.put(b"x")
    assert (await committed(client)).header.offset == 0
    assert (await committed(client, zero=False)).code == ResponseCode.QUERY_NOT_FOUND
    assert (await commit(client, 1)).code == 0
    assert (await committed(client)).header.offset == 1
    assert (await committed(client, topic="nothing")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_new_group_on_an_old_queue_has_no_offset(harness: Harness) -> None:
    """A message too far behind the log's end does not count as in memory: code 22, the client decides."""
    app = await harness.broker(store_settings={"access_message_in_memory_max_ratio": 0})
    client = await harness.client(app)
    await client.put(b"x")
    await settle(app)
    response = await committed(client)
    assert response.code == ResponseCode.QUERY_NOT_FOUND
    assert response.remark == "Not found, V3_0_6_SNAPSHOT maybe this consumer group boot first"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"topic": "nothing"}, 17),
        ({"queue_id": 77}, 29),
        ({"queue_id": -1}, 29),
        ({"offset": -5}, 1),
        ({"group": "bad group"}, 29),
    ],
)
async def test_commits_of_nonsense_are_refused(
    broker: BrokerApp, client: Client, arguments: dict[str, Any], code: int
) -> None:
    """Unknown topic, queue, negative offset, illegal group: typed errors, nothing kept."""
    await client.put(b"x")
    response = await commit(client, **{"offset": 1, **arguments})
    assert response.code == code
    assert len(broker.offsets) == 0


async def test_offsets_survive_a_restart(harness: Harness, tmp_path: Path) -> None:
    """A clean stop writes consumerOffset.json in RocketMQ's shape; the next start reads it."""
    app = await harness.broker()
    client = await harness.client(app)
    await client.put(b"x")
    await commit(client, 1)
    await app.stop()
    content = (tmp_path / "store" / "config" / "consumerOffset.json").read_bytes()
    assert msgspec.json.decode(unseal(content)) == {"offsetTable": {"T@group": {"0": 1}}}
    again = await harness.broker()
    client = await harness.client(again)
    assert (await committed(client)).header.offset == 1
    assert await client.pull_bodies() == [b"x"]


async def test_topics_are_created_changed_and_deleted(broker: BrokerApp, client: Client, tmp_path: Path) -> None:
    """UPDATE_AND_CREATE_TOPIC, GET_ALL_TOPIC_CONFIG, DELETE_TOPIC_IN_BROKER."""
    header = CreateTopicRequestHeader("orders", "TBW102", 3, 3, 6, "SINGLE_TAG")
    assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0
    table = decode_body((await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).body, TopicConfigSerializeWrapper)
    assert table.topic_config_table["orders"].write_queue_nums == 3
    assert table.data_version.counter > 0
    assert b'"orders"' in (tmp_path / "store" / "config" / "topics.json").read_bytes()
    await client.put(b"x", topic="orders", queue_id=2)
    assert (await client.send("orders", queue_id=3)).code == 29
    await settle(broker, "orders", 2)
    await commit(client, 1, topic="orders", queue_id=2)
    assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("orders"))).code == 0
    assert broker.topics.get("orders") is None
    assert len(broker.offsets) == 0
    assert (await client.pull("orders", 2)).code == 17


@pytest.mark.parametrize(
    "header",
    [
        CreateTopicRequestHeader("bad topic", "TBW102", 3, 3, 6, "SINGLE_TAG"),
        CreateTopicRequestHeader("TBW102", "TBW102", 3, 3, 6, "SINGLE_TAG"),
        CreateTopicRequestHeader("orders", "TBW102", 100_000, 3, 6, "SINGLE_TAG"),
        CreateTopicRequestHeader("orders", "TBW102", 3, -1, 6, "SINGLE_TAG"),
        CreateTopicRequestHeader("orders", "TBW102", 3, 3, 6, "x" * 256),
        CreateTopicRequestHeader("orders", "TBW102", 3, 3, 99, "SINGLE_TAG"),
    ],
)
async def test_impossible_topics_are_refused(broker: BrokerApp, client: Client, header: Any) -> None:
    """Names, system topics, queue numbers, permissions."""
    before = len(broker.topics)
    response = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert response.code in (1, 29)
    assert response.remark
    assert len(broker.topics) == before


async def test_a_topic_without_a_permission_takes_or_gives_nothing(client: Client) -> None:
    """NO_PERMISSION on send without W and on pull without R."""
    for topic, perm in (("readonly", 4), ("writeonly", 2)):
        header = CreateTopicRequestHeader(topic, "TBW102", 1, 1, perm, "SINGLE_TAG")
        assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0
    assert (await client.send("readonly")).code == ResponseCode.NO_PERMISSION
    assert (await client.append(("readonly", 0, [client.record("readonly")]))).code == ResponseCode.NO_PERMISSION
    assert (await client.send("writeonly")).code == 0
    assert (await client.pull("writeonly")).code == ResponseCode.NO_PERMISSION


async def test_questions_about_one_queue(broker: BrokerApp, client: Client) -> None:
    """GET_MAX_OFFSET, GET_MIN_OFFSET, SEARCH_OFFSET_BY_TIMESTAMP, GET_EARLIEST_MSG_STORETIME, GET_TOPIC_STATS_INFO."""
    response = await client.put(b"0", b"1", b"2")
    stored_at = response.header.store_timestamp
    await settle(broker, wanted=3)
    queue = TopicQueueRequestHeader("T", 0)
    assert (await client.ask(RequestCode.GET_MAX_OFFSET, queue)).header.offset == 3
    assert (await client.ask(RequestCode.GET_MIN_OFFSET, queue)).header.offset == 0
    assert (await client.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, queue)).header.timestamp == stored_at
    search = SearchOffsetRequestHeader("T", 0, stored_at - 1000)
    assert (await client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)).header.offset == 0
    body = (await client.ask(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader("T"))).body
    table = decode_body(body, TopicStatsTable).offset_table
    assert len(table) == 4
    assert (table[QUEUE].min_offset, table[QUEUE].max_offset, table[QUEUE].last_update_timestamp) == (0, 3, stored_at)
    assert (await client.ask(RequestCode.GET_MAX_OFFSET, TopicQueueRequestHeader("T", 9))).code == 29
    assert (await client.ask(RequestCode.GET_MAX_OFFSET, TopicQueueRequestHeader("nothing", 0))).code == 17


async def test_a_record_inside_a_body_is_not_viewed(broker: BrokerApp, client: Client) -> None:
    """Its sender may have made up topic, host and time; only what is in the queue that it names is a message."""
    inner = bytearray(client.record(topic="Payroll", body=b"forged"))
    sent = []
    for _ in range(2):  # the second body knows where the first one was, and so where it will be itself
        record = client.record(body=bytes(inner))
        response = await client.append(("T", 0, [record]))
        offset = response.header.results[0][2][0][0]
        sent.append(offset)
        inside = bytes(record).index(bytes(inner))
        inner[28:36] = (offset + len(record) + inside).to_bytes(8, "big")
    inside_offset = sent[1] + inside
    assert broker.store.read_record(inside_offset) is not None
    forged = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(inside_offset))
    assert (forged.code, bytes(forged.body)) == (1, b"")
    for offset in sent:
        viewed = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset))
        assert (viewed.code, split_records(viewed.body)[0].topic) == (0, "T")


async def test_a_query_by_key_reads_no_more_than_it_may_answer(broker: BrokerApp, client: Client) -> None:
    """64 messages of 4 MiB would be a quarter of a gigabyte for one request; the first one is always there."""
    records = [client.record(body=b"%d" % number, keys=["many"]) for number in range(5)]
    await client.append(("T", 0, records))
    await settle(broker, wanted=5)
    for size_bytes_max, count in ((1, 1), (2 * len(records[0]), 2), (1 << 20, 5)):
        assert len(broker.store.find("T", "many", 0, 1 << 60, 32, size_bytes_max)[0]) == count


async def test_messages_are_found_by_key_and_by_place(broker: BrokerApp, client: Client) -> None:
    """QUERY_MESSAGE and VIEW_MESSAGE_BY_ID return the records."""
    record = client.record(body=b"keyed", keys=["order-7"])
    response = await client.append(("T", 0, [record]))
    physical_offset = response.header.results[0][2][0][0]
    await settle(broker)
    viewed = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(physical_offset))
    assert split_records(viewed.body)[0].body == b"keyed"
    lost = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(physical_offset + 1))
    assert (lost.code, lost.remark) == (1, f"can not find message by the offset, {physical_offset + 1}")
    assert (await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(-1))).code == 1
    query = QueryMessageRequestHeader("T", "order-7", 10, 0, 1 << 60)
    found = await client.ask(RequestCode.QUERY_MESSAGE, query)
    assert [each.body for each in split_records(found.body)] == [b"keyed"]
    missing = await client.ask(RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader("T", "nothing", 10, 0, 1 << 60))
    assert missing.code == ResponseCode.QUERY_NOT_FOUND
    assert missing.remark == "can not find message, maybe time range not correct"


async def test_members_of_a_group_are_told_of_each_other(broker: BrokerApp, client: Client, harness: Harness) -> None:
    """Heartbeats create a group; all its members are notified of every change; a lost connection is one."""
    told: list[str] = []

    def on_request(channel: Any, request: Any) -> None:
        assert request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert request.oneway
        told.append(request.header.consumer_group)

    one, two = await harness.client(broker, on_request), await harness.client(broker, on_request)
    group = ConsumerGroupRequestHeader("group")
    alone = await one.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, group)
    assert (alone.code, alone.remark) == (1, "no consumer for this group, group")
    assert (await one.ask(RequestCode.HEART_BEAT, None, heartbeat("c1", "T", producers=["p"]))).code == 0
    assert (await two.ask(RequestCode.HEART_BEAT, None, heartbeat("c2", "T"))).code == 0
    assert broker.topics.snapshot()[0]["%RETRY%group"].write_queue_nums == 1
    listed = decode_body((await one.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, group)).body, ConsumerIdList)
    assert sorted(listed.consumer_id_list) == ["c1", "c2"]
    await eventually(lambda: len(told) >= 3)
    connections = decode_body((await one.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, group)).body, ConsumerConnection)
    assert {each.client_id for each in connections.connection_set} == {"c1", "c2"}
    assert {each.language for each in connections.connection_set} == {"PYTHON"}
    assert "T" in connections.subscription_table
    producers = decode_body(
        (await one.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupRequestHeader("p"))).body,
        ProducerConnection,
    )
    assert [each.client_id for each in producers.connection_set] == ["c1"]
    told.clear()
    two.channel.close()
    await eventually(lambda: told)
    listed = decode_body((await one.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, group)).body, ConsumerIdList)
    assert listed.consumer_id_list == ["c1"]
    left = UnregisterClientRequestHeader("c1", "p", "group")
    assert (await one.ask(RequestCode.UNREGISTER_CLIENT, left)).code == 0
    assert len(broker.clients) == 0
    gone = await one.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, group)
    assert gone.code == ResponseCode.CONSUMER_NOT_ONLINE


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b'{"clientID":[5]}', b'{"clientID":""}', b"\xff\xfe"])
async def test_a_heartbeat_of_garbage_is_a_typed_error(client: Client, body: bytes) -> None:
    """The connection stays usable."""
    response = await client.ask(RequestCode.HEART_BEAT, None, body)
    assert response.code != 0
    assert response.remark
    await client.put(b"fine")


async def test_groups_are_configured_listed_and_deleted(client: Client) -> None:
    """UPDATE_AND_CREATE_, GET_ALL_, DELETE_SUBSCRIPTIONGROUP and our GROUP_LIST."""
    body = msgspec.json.encode({"groupName": "billing", "retryMaxTimes": 3})
    assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)).code == 0
    table = decode_body((await client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body, SubscriptionGroupWrapper)
    assert table.subscription_group_table["billing"].retry_max_times == 3
    names = decode_body((await client.ask(RequestCode.GROUP_LIST)).body, GroupList).group_list
    assert "billing" in names
    delete = DeleteSubscriptionGroupRequestHeader("billing", True)
    assert (await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, delete)).code == 0
    names = decode_body((await client.ask(RequestCode.GROUP_LIST)).body, GroupList).group_list
    assert "billing" not in names
    bad = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b'{"groupName":"a b"}')
    assert bad.code == 29


async def test_statistics_go_with_their_topic_and_group(broker: BrokerApp, client: Client) -> None:
    """A deleted one would keep its statistics in memory for a day."""
    items = broker.counters.items
    for topic in ("T", "U"):
        items.add("N", f"{topic}@billing", 1)
    await client.put(b"x")
    assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T"))).code == 0
    assert items.data("N", "T@billing", 1000) is None
    assert items.data("N", "U@billing", 1000) is not None
    delete = DeleteSubscriptionGroupRequestHeader("billing", True)
    assert (await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, delete)).code == 0
    assert items.data("N", "U@billing", 1000) is None


async def test_without_automatic_groups_an_unknown_group_is_code_26(harness: Harness) -> None:
    """RocketMQ's SUBSCRIPTION_GROUP_NOT_EXIST."""
    app = await harness.broker(auto_create_subscription_group=False)
    client = await harness.client(app)
    await client.put(b"x")
    assert (await client.pull()).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_consume_stats_show_the_lag(broker: BrokerApp, client: Client) -> None:
    """Broker offset, consumer offset and the time of the last message consumed."""
    stored_at = (await client.put(b"0", b"1", b"2")).header.store_timestamp
    await settle(broker, wanted=3)
    await commit(client, 2)
    for topic in ("T", ""):
        body = (await client.ask(RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader("group", topic))).body
        progress = decode_body(body, ConsumeStats).offset_table[QUEUE]
        assert (progress.broker_offset, progress.consumer_offset, progress.last_timestamp) == (3, 2, stored_at)


async def test_a_reset_moves_offsets_and_tells_the_members(broker: BrokerApp, client: Client, harness: Harness) -> None:
    """By time, to the end, or one queue to an offset; without force only backwards."""
    told: list[tuple[int, ResetOffsetBody]] = []
    member = await harness.client(
        broker, lambda channel, request: told.append((request.code, decode_body(request.body, ResetOffsetBody)))
    )
    stored_at = (await client.put(b"0", b"1", b"2")).header.store_timestamp
    await settle(broker, wanted=3)
    await member.ask(RequestCode.HEART_BEAT, None, heartbeat("c1", "T"))
    told.clear()

    async def reset(timestamp: Any, force: Any = True, queue_id: int = -1, offset: int | None = None) -> Any:
        header = ResetOffsetRequestHeader("T", "group", timestamp, force, queue_id, offset)
        response = await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert response.code == 0
        return decode_body(response.body, ResetOffsetBody).offset_table

    assert (await reset(-1))[QUEUE] == 3
    assert (await committed(client)).header.offset == 3
    assert (await reset(stored_at - 5))[QUEUE] == 0
    assert (await reset(-1, force=False))[QUEUE] == 0
    assert await reset(0, queue_id=0, offset=2) == {QUEUE: 2}
    assert (await committed(client)).header.offset == 2
    await eventually(lambda: len([code for code, _ in told if code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET]) >= 4)
    assert told[-1][1].offset_table == {QUEUE: 2}


async def test_the_broker_tells_its_settings_and_statistics(client: Client) -> None:
    """GET_BROKER_CONFIG in RocketMQ's names, GET_BROKER_RUNTIME_INFO with counters."""
    await client.put(b"0", b"1")
    await client.pull_bodies(wanted=2)
    text = bytes((await client.ask(RequestCode.GET_BROKER_CONFIG)).body).decode()
    assert "brokerClusterName=DefaultCluster\n" in text
    assert "autoCreateTopicEnable=true\n" in text
    assert "flushDiskType=ASYNC_FLUSH\n" in text
    table = decode_body((await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body, KVTable).table
    assert table["msgPutTotalTodayNow"] == "2"
    assert table["msgGetTotalTodayNow"] == "2"
    assert table["sendThreadPoolQueueCapacity"] == "10000"
    assert table["pullThreadPoolQueueSize"] == "0"
    assert int(table["commitLogMaxOffset"]) > 0


async def test_unknown_codes_get_rocketmqs_refusal(client: Client) -> None:
    """With RocketMQ's leading space."""
    response = await client.ask(4711)
    assert (response.code, response.remark) == (3, " request type 4711 not supported")


async def test_transactions_end_through_their_own_pair(broker: BrokerApp, client: Client) -> None:
    """END_TRANSACTION has its own queue; a missing half message is reported."""
    response = await client.ask(RequestCode.END_TRANSACTION, EndTransactionRequestHeader("p", 0, 0, 8, "id"))
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert broker.request_table.pair_for(RequestCode.END_TRANSACTION).served == 1
