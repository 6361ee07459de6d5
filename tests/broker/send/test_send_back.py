"""Messages that consumers send back: retry topics, delays by attempt, dead letters, RocketMQ's answers."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.common.record import decode_properties
from pocketmq.common.record_codec import Record, decode_record
from pocketmq.common.redelivery import LAST_ERROR_LENGTH_MAX
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frame import BINARY, JSON, MSGPACK
from pocketmq.remoting.protocol.body import MessageQueue as MessageQueueBody
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.group import SubscriptionGroupConfigBody
from pocketmq.remoting.protocol.lock import LockBatchRequestBody
from pocketmq.remoting.protocol.send import ConsumerSendMsgBackRequestHeader
from pocketmq.store.append_result import AppendResult, PutStatus
from tests.broker.conftest import Client, Harness, records_of, store_config
from tests.broker.raw_client import RawClient
from tests.delays import ALL_ONE_SECOND, short_seconds

GROUP = "group"
RETRY = "%RETRY%group"
DEAD = "%DLQ%group"


def properties(**values: object) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in values.items())


async def send_back(client: Client, offset: int, delay_level: int = 0, group: str = GROUP, **fields: Any) -> Any:
    return await client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        ConsumerSendMsgBackRequestHeader(offset, group, delay_level, **fields),
    )


def record_at_end(app: BrokerApp) -> Record:
    """Return the last record of the log."""
    log, at, last = app.store.log, app.store.log.min_offset, b""
    while at < log.committed_offset:
        found = app.store.read_record(at)
        assert found is not None
        last, at = found, at + len(found)
    return decode_record(last)


async def quick_broker(harness: Harness) -> BrokerApp:
    """Start a broker whose every delay level is 50 ms."""
    with short_seconds():
        return await harness.broker(store_settings=ALL_ONE_SECOND)


async def pulled(client: Client, topic: str, count: int = 1, offset: int = 0) -> list[Record]:
    records: list[Record] = []
    while len(records) < count:
        response = await client.native_pull((topic, 0, offset + len(records)), suspend_ms=5000)
        if response.code == 0:
            records += records_of(response)
    return records


async def test_the_copy_waits_at_the_level_of_the_attempt_and_keeps_what_counts(
    broker: BrokerApp, client: Client
) -> None:
    """Level 3 + attempts; body, tags, keys, unique id, born time and host stay; origin topic and id are noted once."""
    sent = await client.send(body=b"pay", properties=properties(UNIQ_KEY="U1", TAGS="A", KEYS="k", mine="x"), flag=7)
    original = decode_record(broker.store.read_record(0) or b"")
    offset = 0
    for attempt in range(3):
        answer = await send_back(client, offset, max_reconsume_times=16, last_error="boom\n" * 200)
        assert (answer.code, answer.remark) == (0, "")
        copy = record_at_end(broker)
        values = decode_properties(copy.properties)
        assert (copy.topic, copy.queue_id) == ("SCHEDULE_TOPIC_XXXX", 3 + attempt - 1)
        assert (values["DELAY"], values["REAL_TOPIC"], values["REAL_QID"]) == (str(3 + attempt), RETRY, "0")
        assert (values["RETRY_TOPIC"], values["ORIGIN_MESSAGE_ID"]) == ("T", sent.header.msg_id)
        assert (values["UNIQ_KEY"], values["TAGS"], values["KEYS"], values["mine"]) == ("U1", "A", "k", "x")
        assert values["WAIT"] == "false"
        assert values["POCKETMQ_LAST_ERROR"].startswith("boom boom")
        assert len(values["POCKETMQ_LAST_ERROR"]) == LAST_ERROR_LENGTH_MAX
        assert (copy.body, copy.flag, copy.reconsume_times) == (b"pay", 7, attempt + 1)
        assert (copy.born_timestamp, copy.born_host) == (original.born_timestamp, original.born_host)
        offset = copy.physical_offset
        offset = await _as_delivered(broker, client, copy)
    topic = broker.topics.get(RETRY)
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


async def _as_delivered(broker: BrokerApp, client: Client, copy: Record) -> int:
    """Store ``copy`` as its delivery would; return its offset."""
    answer = await client.send(
        topic=RETRY,
        body=copy.body,
        flag=copy.flag,
        born_timestamp=copy.born_timestamp,
        properties=properties(
            **{
                name: value
                for name, value in decode_properties(copy.properties).items()
                if name not in ("DELAY", "WAIT", "REAL_TOPIC", "REAL_QID")
            }
        ),
        reconsume_times=copy.reconsume_times,
        max_reconsume_times=99,
    )
    assert answer.code == 0
    stored = record_at_end(broker)
    assert stored.reconsume_times == copy.reconsume_times
    return stored.physical_offset


async def test_a_retry_comes_by_itself_and_wakes_a_held_pull(harness: Harness) -> None:
    """Through the delay to the retry topic, where any consumer can pull it; progress survives a broker's restart."""
    app = await quick_broker(harness)
    client = await harness.client(app)
    await client.put(b"again")
    assert (await send_back(client, 0)).code == 0
    (copy,) = await pulled(client, RETRY)
    assert (copy.body, copy.reconsume_times, copy.topic) == (b"again", 1, RETRY)
    assert (await send_back(client, copy.physical_offset)).code == 0
    await app.stop()
    app = await quick_broker(harness)
    client = await harness.client(app)
    (second,) = await pulled(client, RETRY, offset=1)
    assert second.reconsume_times == 2
    values = decode_properties(second.properties)
    assert values["RETRY_TOPIC"] == "T"
    assert values["ORIGIN_MESSAGE_ID"] == decode_properties(copy.properties)["ORIGIN_MESSAGE_ID"]


@pytest.mark.parametrize(
    ("delay_level", "fields", "queue"),
    [
        (0, {}, 2),
        (5, {}, 4),
        (99, {}, 17),
        (2**31 - 1, {"max_reconsume_times": 1}, 17),
        (-1, {}, None),
        (-(2**31), {"max_reconsume_times": 99}, None),
        (0, {"max_reconsume_times": 0}, None),
        (3, {"max_reconsume_times": -1}, None),
    ],
)
async def test_levels_and_limits_decide(
    broker: BrokerApp, client: Client, delay_level: int, fields: dict[str, Any], queue: int | None
) -> None:
    """A given level counts (the highest at most); below 0, or without attempts left: a dead letter, no delay."""
    await client.put(b"x")
    assert (await send_back(client, 0, delay_level, **fields)).code == 0
    copy = record_at_end(broker)
    expected = (DEAD, 0) if queue is None else ("SCHEDULE_TOPIC_XXXX", queue)
    assert (copy.topic, copy.queue_id, copy.reconsume_times) == (*expected, 1)
    assert (broker.counters.totals.sent_back, broker.counters.totals.dead_letters) == (1, queue is None)
    topic = broker.topics.get(DEAD)
    assert (topic is None) == (queue is not None)
    if topic is not None:
        assert (topic.read_queue_nums, topic.perm) == (1, 6)
        assert [record.body for record in await pulled(client, DEAD)] == [b"x"]


async def test_the_groups_own_limit_counts_when_the_client_names_none(broker: BrokerApp, client: Client) -> None:
    """retryMaxTimes of the group; a group without retry queues has no retries, and loses no message."""
    await client.put(b"x")
    broker.groups.put(SubscriptionGroupConfigBody(group_name="strict", retry_max_times=0))
    broker.groups.put(SubscriptionGroupConfigBody(group_name="none", retry_queue_nums=0))
    for group in ("strict", "none"):
        assert (await send_back(client, 0, group=group)).code == 0
        assert record_at_end(broker).topic == f"%DLQ%{group}"
    assert (await send_back(client, 0, group="strict", max_reconsume_times=1)).code == 0
    assert record_at_end(broker).topic == "SCHEDULE_TOPIC_XXXX"


async def test_what_cannot_be_sent_back_is_refused_in_rocketmqs_words(harness: Harness) -> None:
    """Unknown group, no such message, message of a system topic, a read-only broker, a name that has no retry topic."""
    app = await harness.broker(auto_create_subscription_group=False)
    client = await harness.client(app)
    await client.put(b"x")
    answer = await send_back(client, 0)
    assert (answer.code, answer.remark) == (
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        "subscription group not exist, group",
    )
    for group in (GROUP, "g" * 200):
        app.groups.put(SubscriptionGroupConfigBody(group_name=group))
    end = app.store.appended_offset
    for offset in (-1, 1, end, 2**63 - 1):
        answer = await send_back(client, offset)
        assert (answer.code, answer.remark) == (1, f"look message by offset failed, {offset}")
    answer = await send_back(client, 0, group="g" * 200)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "200 characters" in answer.remark
    assert app.store.appended_offset == end
    assert (await send_back(client, 0)).code == 0
    waiting = record_at_end(app)
    assert waiting.topic == "SCHEDULE_TOPIC_XXXX"
    answer = await send_back(client, waiting.physical_offset, -1)
    assert answer.remark == f"look message by offset failed, {waiting.physical_offset}"
    await app.stop()
    read_only = await harness.broker(broker_permission=4)
    answer = await send_back(await harness.client(read_only), 0)
    assert (answer.code, answer.remark) == (16, "the broker[broker-a] sending message is forbidden")


@pytest.mark.parametrize("status", [PutStatus.OS_PAGE_CACHE_BUSY, PutStatus.SERVICE_NOT_AVAILABLE])
async def test_a_put_that_failed_has_code_1_and_its_name(
    broker: BrokerApp, client: Client, monkeypatch: pytest.MonkeyPatch, status: PutStatus
) -> None:
    """RocketMQ's consumers only distinguish success; ours also learn that nothing was stored."""
    await client.put(b"x")
    monkeypatch.setattr(broker.store, "append", lambda group, **_: AppendResult(status, error="why"))
    answer = await send_back(client, 0)
    assert (answer.code, answer.remark, answer.extra["stored"]) == (1, status.name, "no")
    assert broker.counters.totals.sent_back == 0


@pytest.mark.parametrize(
    ("fields", "topic"),
    [
        ({"reconsume_times": 3, "max_reconsume_times": 3}, RETRY),
        ({"reconsume_times": 4, "max_reconsume_times": 3}, DEAD),
        ({"reconsume_times": 17}, DEAD),
        ({"reconsume_times": 16}, RETRY),
        ({}, RETRY),
    ],
)
async def test_a_client_may_send_to_its_retry_topic_itself(
    broker: BrokerApp, client: Client, fields: dict[str, Any], topic: str
) -> None:
    """A consumer's fallback after a failed send-back: creates the topic; one attempt too many is a dead letter."""
    answer = await client.send(topic=RETRY, properties=properties(UNIQ_KEY="U", RETRY_TOPIC="T"), **fields)
    assert (answer.code, answer.header.queue_id, answer.header.queue_offset) == (0, 0, 0)
    (record,) = await pulled(client, topic)
    assert record.reconsume_times == fields.get("reconsume_times", 0)
    assert decode_properties(record.properties)["RETRY_TOPIC"] == "T"


async def test_a_delayed_send_to_the_retry_topic_waits_unless_it_is_dead(broker: BrokerApp, client: Client) -> None:
    """RocketMQ's clients add level 3 + attempts themselves; the dead-letter topic has no delay."""
    text = properties(DELAY="4", TIMER_OUT_MS="1")
    assert (await client.send(topic=RETRY, properties=properties(DELAY="4"), reconsume_times=1)).code == 0
    assert record_at_end(broker).topic == "SCHEDULE_TOPIC_XXXX"
    assert (await client.send(topic=RETRY, properties=text, reconsume_times=1)).code == 0
    assert record_at_end(broker).topic == "SCHEDULE_TOPIC_XXXX"
    assert (await client.send(topic=RETRY, properties=text, reconsume_times=99)).code == 0
    dead = record_at_end(broker)
    assert (dead.topic, decode_properties(dead.properties).keys() & {"DELAY", "TIMER_OUT_MS"}) == (DEAD, set())


async def test_an_ordered_group_gives_up_what_it_sends_to_its_retry_topic(broker: BrokerApp, client: Client) -> None:
    """While queue locks are held, the last attempt made counts, not the next one."""
    await client.put(b"x")
    queue = MessageQueueBody(topic="T", broker_name="broker-a", queue_id=0)
    lock = LockBatchRequestBody(consumer_group=GROUP, client_id="c1", mq_set=[queue])
    assert (await client.ask(RequestCode.LOCK_BATCH_MQ, None, encode_body(lock))).code == 0
    assert (await client.send(topic=RETRY, reconsume_times=3, max_reconsume_times=3)).code == 0
    assert record_at_end(broker).topic == DEAD
    assert (await client.send(topic=RETRY, reconsume_times=2, max_reconsume_times=3)).code == 0
    assert record_at_end(broker).topic == RETRY
    assert (await client.send(topic="%RETRY%other", reconsume_times=3, max_reconsume_times=3)).code == 0
    assert record_at_end(broker).topic == "%RETRY%other"


async def test_a_batch_to_a_retry_topic_is_refused(broker: BrokerApp, client: Client) -> None:
    """As in RocketMQ: each message would need its own attempt count."""
    item = (22 + 1).to_bytes(4, "big") + bytes(12) + (1).to_bytes(4, "big") + b"x" + bytes(2)
    answer = await client.send(topic=RETRY, body=item, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    assert (answer.code, "retry group" in answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, True)
    assert broker.store.appended_offset == 0


async def test_a_burst_of_send_backs_is_one_append(broker: BrokerApp, client: Client, monkeypatch: Any) -> None:
    """Requests that gather in the send queue enter the log as one group, send-backs among the sends."""
    await client.put(*[b"%d" % number for number in range(50)])
    records = split(broker)
    groups: list[int] = []
    append = broker.store.append

    def counting(group: Any, **settings: Any) -> Any:
        groups.append(len(group))
        return append(group, **settings)

    monkeypatch.setattr(broker.store, "append", counting)
    raw_requests = [
        (RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(record.physical_offset, GROUP, 0))
        for record in records
    ]
    waiting = [client.channel.request(code, header, b"", timeout_ms=10_000) for code, header in raw_requests]
    answers = await asyncio.gather(*waiting)
    assert [answer.code for answer in answers] == [0] * 50
    assert sum(groups) == 50
    assert len(groups) < 50


def split(app: BrokerApp) -> list[Record]:
    records, at = [], 0
    while at < app.store.log.committed_offset:
        found = app.store.read_record(at)
        assert found is not None
        records.append(decode_record(found))
        at += len(found)
    return records


@pytest.mark.parametrize("codec", [JSON, BINARY, MSGPACK], ids=["json", "binary", "msgpack"])
async def test_rocketmqs_codecs_carry_a_send_back(tmp_path: Path, codec: int) -> None:
    """JSON and RocketMQ's binary header, without and with the fields that its clients leave out."""
    app = BrokerApp(BrokerConfig(listen_port=0), store_config(tmp_path / "store"))
    await app.start()
    try:
        async with RawClient(app.port, codec) as client:
            assert (await client.answer(client.post_send())).code == 0
            header = ConsumerSendMsgBackRequestHeader(
                0, GROUP, 0, origin_msg_id="id", origin_topic="T", unit_mode=True, max_reconsume_times=16
            )
            answer = await client.answer(client.post(RequestCode.CONSUMER_SEND_MSG_BACK, header))
            assert answer.code == 0
        topic = app.topics.get(RETRY)
        assert topic is not None
        assert topic.topic_sys_flag == 2
        assert record_at_end(app).reconsume_times == 1
    finally:
        await app.stop()


async def test_a_timed_message_can_be_sent_back(harness: Harness) -> None:
    """The properties left by its delivery neither delay nor forbid the copy."""
    app = await quick_broker(harness)
    client = await harness.client(app)
    await client.put(b"now")
    assert (await client.send(body=b"timed", properties=properties(TIMER_DELAY_MS=20))).code == 0
    timed = (await pulled(client, "T", offset=1))[0]
    assert timed.body == b"timed"
    assert (await send_back(client, timed.physical_offset)).code == 0
    (copy,) = await pulled(client, RETRY)
    assert copy.body == b"timed"
    assert not [name for name in decode_properties(copy.properties) if name.startswith("TIMER_")]


async def test_our_remark_never_costs_the_message(broker: BrokerApp, client: Client) -> None:
    """If the property string has no room for the last error, the copy is stored without it."""
    assert (await client.send(properties=properties(big="x" * 32_500))).code == 0
    assert (await send_back(client, 0, last_error="e" * 250)).code == 0
    values = decode_properties(record_at_end(broker).properties)
    assert "POCKETMQ_LAST_ERROR" not in values
    assert len(values["big"]) == 32_500


async def test_a_retry_topic_is_on_disk_before_the_first_answer(broker: BrokerApp, client: Client) -> None:
    """After a crash that follows the answer, the broker must know the topic of the copy."""
    await client.put(b"x")
    assert (await send_back(client, 0, -1)).code == 0
    path = Path(broker.store.config.store_path_root_dir) / "config" / "topics.json"
    assert DEAD in json.loads(path.read_bytes())["topicConfigTable"]
