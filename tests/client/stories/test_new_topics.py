"""No send is refused because the route of its topic is that of the default topic, or older than the topic."""

import asyncio
from typing import Any

import pytest

from pocketmq.broker.topic.registered_topics import RegisteredTopics
from pocketmq.client import Message, Producer, SendFailed
from pocketmq.client.admin.admin import Admin
from pocketmq.client.sender.retry import QUEUE_UNKNOWN
from pocketmq.common import refusals
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.namesrv import BrokerData, QueueData, TopicRouteData
from pocketmq.remoting.protocol.send import NativeAppendResponseHeader, SendMessageResponseHeader
from pocketmq.remoting.protocol.topic import CreateTopicListBody, TopicConfigBody
from pocketmq.testing.broker import PocketBroker

NATIVE, TYPED = RequestCode.NATIVE_APPEND, RequestCode.SEND_MESSAGE_V2
PATIENT = {"wait_time_mills_in_send_queue": 60_000}
"""A machine that is busy with other tests is no reason to refuse a send."""
TOPICS = 1_000
AT_ONCE = 100


async def send_to_all(producers: list[Producer], topics: list[str]) -> int:
    """Send one message by each producer to each topic; return how often a producer tried."""
    sends = [producer.send(Message(topic, b"x")) for topic in topics for producer in producers]
    return sum(receipt.attempts for receipt in await asyncio.gather(*sends))


@pytest.mark.slow
async def test_a_thousand_new_topics_refuse_no_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four producers send to each new topic at the same time; it appears in the route before its first receipt."""
    monkeypatch.setattr(RegisteredTopics, "wait_ms", 60_000)
    with PocketBroker(broker=PATIENT) as broker:
        producers = [Producer("g", broker.namesrv, send_msg_timeout_ms=60_000) for _ in range(4)]
        async with producers[0], producers[1], producers[2], producers[3], Admin(broker.namesrv) as admin:
            for start in range(0, TOPICS, AT_ONCE):
                topics = [f"New-{number}" for number in range(start, start + AT_ONCE)]
                assert await send_to_all(producers, topics) == len(topics) * len(producers)
                for topic in topics[:3]:
                    data = await admin.instance.name_servers.route(topic, timeout_ms=60_000)
                    assert [queues.write_queue_nums for queues in data.queue_datas] == [4]


@pytest.mark.slow
async def test_topics_that_an_administrator_creates_meanwhile_refuse_no_send() -> None:
    """With fewer queues than the default topic's route promised: each producer tries a wrong queue once."""
    with PocketBroker(broker=PATIENT) as broker:
        producers = [Producer("g", broker.namesrv, send_msg_timeout_ms=60_000) for _ in range(4)]
        async with producers[0], producers[1], producers[2], producers[3]:
            tried = 0
            for start in range(0, TOPICS, AT_ONCE):
                topics = [f"Made-{number}" for number in range(start, start + AT_ONCE)]
                for topic in topics:  # the route that a client has before the topic exists
                    route = await producers[0].instance.route(topic, timeout_ms=60_000, for_send=True)
                    assert len(route.write_queues) == 4
                made = [TopicConfigBody(topic_name=topic, read_queue_nums=1, write_queue_nums=1) for topic in topics]
                body = encode_body(CreateTopicListBody(topic_config_list=made))
                found = await producers[0].instance.connection(route.write_queues[0].broker_name, timeout_ms=60_000)
                answer = await found.channel.request(
                    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body, timeout_ms=60_000
                )
                assert answer.code == ResponseCode.SUCCESS
                tried += await send_to_all(producers, topics)
                tried += await send_to_all(producers, topics)
            sends = TOPICS * len(producers)
            assert 2 * sends < tried <= 3 * sends, "each producer may try one wrong queue of each topic"


async def keyed_sends(producer: Producer, topic: str) -> list[int]:
    """Send by key, by selector, as a batch and as columns, all at once; return the queue of each message."""
    pa = pytest.importorskip("pyarrow")
    keys = [f"order-{number}" for number in range(8)]
    columns = [pa.array([b"x"] * 8, pa.binary()), pa.array(keys)]
    single, batch, rows = await asyncio.gather(
        asyncio.gather(
            *(producer.send(Message(topic, b"x", sharding_key=key)) for key in keys),
            producer.send(Message(topic, b"x"), selector=lambda queues, _: queues[-1]),
        ),
        producer.send_batch([Message(topic, b"x", sharding_key=key) for key in keys]),
        producer.send_arrow(pa.record_batch(columns, names=["body", "sharding_key"]), topic=topic),
    )
    receipts = [*single, *batch, *rows]
    assert {receipt.attempts for receipt in receipts} == {1}
    return [receipt.queue_id for receipt in receipts]


async def test_sends_by_key_use_no_queue_of_the_default_topic() -> None:
    """The topic has one queue, four were promised; a key's messages could not move afterwards."""
    with PocketBroker(broker=PATIENT) as broker:
        async with Producer("g", broker.namesrv, send_msg_timeout_ms=60_000, **options()) as producer:
            route = await producer.instance.route("Made", timeout_ms=60_000, for_send=True)
            assert (route.borrowed, len(route.write_queues)) == (True, 4)
            async with Admin(broker.namesrv) as admin:
                await admin.create_topic("Made", queues=1)
            assert set(await keyed_sends(producer, "Made")) == {0}


async def test_sends_by_key_make_a_new_topic_first() -> None:
    """With as many queues as a first send would give it."""
    with PocketBroker(broker=PATIENT) as broker:
        async with Producer("g", broker.namesrv, send_msg_timeout_ms=60_000, **options()) as producer:
            assert len(set(await keyed_sends(producer, "New"))) == 4
            route = producer.instance.routes.get("New")
            assert route is not None
            assert (route.borrowed, len(route.write_queues)) == (False, 4)


class OneQueue:
    """A scripted broker whose topic has one queue, and a name server that promises ``promised`` of them until the first
    refusal."""

    def __init__(self, cluster: Any, *, code: int = ResponseCode.INVALID_PARAMETER, learns: bool = True) -> None:
        self.cluster = cluster
        self.code = int(code)
        self.learns = learns
        self.refused: list[int] = []
        self.stored: list[int] = []

    async def start(self, *, native: int = 1) -> str:
        server = await self.cluster.add("a", native=native)
        server.answers[NATIVE] = self.native
        server.answers[TYPED] = self.typed
        self.cluster.namesrv.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self.route
        return str(self.cluster.namesrv.address)

    def route(self, connection: Any, request: Request) -> Any:
        topic = request.header.topic  # type: ignore[union-attr]
        known = self.learns and bool(self.refused)
        if topic != "TBW102" and not known:
            return ResponseCode.TOPIC_NOT_EXIST, "no", None, b""
        queues = 4 if topic == "TBW102" else 1
        address = self.cluster.brokers["a"].address
        data = TopicRouteData(
            queue_datas=[QueueData("a", queues, queues, 7)], broker_datas=[BrokerData("c", "a", {"0": address})]
        )
        return ResponseCode.SUCCESS, "", None, encode_body(data)

    def verdict(self, queue_id: int) -> str:
        (self.refused if queue_id else self.stored).append(queue_id)
        return refusals.SEND_QUEUE_ILLEGAL.template % (queue_id, "T", 1) if queue_id else ""

    def native(self, connection: Any, request: Any) -> Any:
        results = []
        for _, queue_id, count in request.header.sections:
            remark = self.verdict(queue_id)
            results.append((self.code, 0, [], remark) if remark else (0, 5, [(1000, count)], ""))
        return ResponseCode.SUCCESS, "", NativeAppendResponseHeader(1, results), b""

    def typed(self, connection: Any, request: Any) -> Any:
        remark = self.verdict(request.header.queue_id)
        if remark:
            return self.code, remark, None, b""
        return ResponseCode.SUCCESS, "", SendMessageResponseHeader("0" * 32, 0, 7), b""


def options(**settings: Any) -> Any:
    return {"retry_times_when_send_failed": 0, "retry_times_when_send_async_failed": 0, **settings}


@pytest.mark.parametrize("native", [1, 0])
@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("code", [ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR])
async def test_a_queue_that_the_topic_lacks_costs_one_more_request(
    cluster: Any, native: int, learns: bool, code: int
) -> None:
    """Without any retries, by PocketMQ's and RocketMQ's requests, with RocketMQ's codes of 5.3 and 4.9, and also while
    the name server does not know the topic yet."""
    one = OneQueue(cluster, code=code, learns=learns)
    namesrv = await one.start(native=native)
    async with Producer("g", namesrv, **options()) as producer:
        receipts = [await producer.send(Message("T", b"x")) for _ in range(8)]
    assert {receipt.queue_id for receipt in receipts} == {0}
    assert max(receipt.attempts for receipt in receipts) == 2
    assert len(one.stored) == 8
    assert len(one.refused) == sum(receipt.attempts == 2 for receipt in receipts)
    if learns:
        assert len(one.refused) == 1


async def test_batches_and_columns_follow_the_topic_too(cluster: Any) -> None:
    """``send_batch`` and ``send_arrow`` build their records again, for the queue that exists."""
    pa = pytest.importorskip("pyarrow")
    one = OneQueue(cluster, learns=False)
    namesrv = await one.start()
    async with Producer("g", namesrv, **options()) as producer:
        for _ in range(4):
            receipts = await producer.send_batch([Message("T", b"x") for _ in range(20)])
            assert {receipt.queue_id for receipt in receipts} == {0}
            rows = pa.record_batch([pa.array([b"x"] * 20, pa.binary())], names=["body"])
            receipts = await producer.send_arrow(rows, topic="T")
            assert {receipt.queue_id for receipt in receipts} == {0}
    assert one.refused


async def test_a_broker_that_refuses_every_queue_ends_the_send(cluster: Any) -> None:
    """One more request, not one after the other."""
    one = OneQueue(cluster)
    namesrv = await one.start()
    one.verdict = lambda queue_id: QUEUE_UNKNOWN + "0] is illegal"  # type: ignore[method-assign]
    async with Producer("g", namesrv, **options()) as producer:
        with pytest.raises(SendFailed) as caught:
            await producer.send(Message("T", b"x"))
    assert [attempt.answer_code for attempt in caught.value.attempts] == [ResponseCode.INVALID_PARAMETER] * 2


async def test_a_chosen_queue_stays_refused_and_the_next_one_is_right(cluster: Any) -> None:
    """Moving it could break the order of its key; the route is asked for again. This broker cannot make a topic before
    its first message, like RocketMQ's."""
    one = OneQueue(cluster)
    namesrv = await one.start()
    async with Producer("g", namesrv, **options()) as producer:
        with pytest.raises(SendFailed, match="is illegal"):
            await producer.send(Message("T", b"x"), selector=lambda queues, _: queues[3])
        receipt = await producer.send(Message("T", b"x", sharding_key="any"))
    assert (receipt.queue_id, receipt.attempts) == (0, 1)


def test_the_refusal_begins_as_the_table_says() -> None:
    """The client knows it by its text: both codes mean other refusals, too."""
    assert refusals.SEND_QUEUE_ILLEGAL.template.startswith(QUEUE_UNKNOWN)
