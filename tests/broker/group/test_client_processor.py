"""Heartbeats of any size: their fields have limits, and RocketMQ's clients stay far below them."""

from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.group.client_processor import HEARTBEAT_BYTES_MAX
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import KVTable, decode_body, encode_body
from pocketmq.remoting.protocol.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from pocketmq.remoting.telemetry import TELEMETRY_KEY, decode_telemetry
from tests.broker.conftest import Client, Harness, eventually

HUGE = "x" * (1 << 20)


def consumer(group: str = "group", **subscription: Any) -> HeartbeatData:
    wanted = SubscriptionData(**{"topic": "T", **subscription})
    return HeartbeatData("c1", consumer_data_set=[ConsumerData(group, subscription_data_set=[wanted])])


@pytest.mark.parametrize(
    ("heartbeat", "text"),
    [
        (HeartbeatData(HUGE), "clientID has 1048576 characters, limit 1024"),
        (HeartbeatData("c" * 1025), "clientID has 1025 characters, limit 1024"),
        (HeartbeatData("c", [ProducerData("g" * 256)]), "longer than group max length 255"),
        (consumer("g" * 256), "longer than group max length 255"),
        (consumer(sub_string=HUGE), "subString of group to T has 1048576 characters, limit 16384"),
        (consumer(sub_string="x" * 16_385, expression_type="SQL92"), "has 16385 characters, limit 16384"),
        (consumer(topic="T" * 391), "topic of a subscription of group has 391 characters, limit 390"),
        (consumer(expression_type="x" * 256), "expressionType of group to T has 256 characters, limit 255"),
        (consumer(tags_set=["x" * 20_000]), "tagsSet of group to T has 20000 characters, limit 16384"),
        (consumer(tags_set=["x"] * 4097), "tagsSet of group to T has 4097 elements, limit 4096"),
        (consumer(code_set=[1] * 4097), "codeSet of group to T has 4097 elements, limit 4096"),
    ],
)
async def test_a_heartbeat_beyond_a_limit_is_refused(
    broker: BrokerApp, client: Client, heartbeat: HeartbeatData, text: str
) -> None:
    """The answer names the field, its length and the limit; nothing is kept, and the connection stays usable."""
    response = await client.ask(RequestCode.HEART_BEAT, None, encode_body(heartbeat))
    assert response.code != 0
    assert "refused" in response.remark
    assert text in response.remark
    assert len(response.remark) < 600
    assert len(broker.clients) == 0
    assert (await client.ask(RequestCode.HEART_BEAT, None, encode_body(consumer()))).code == 0
    assert len(broker.clients) == 1


async def test_a_heartbeat_is_refused_by_its_length(broker: BrokerApp, client: Client) -> None:
    """Before it is decoded, which would keep every other thread waiting."""
    topics = [SubscriptionData(f"T{number}", "x" * 1000) for number in range(2100)]
    data = [ConsumerData("group", subscription_data_set=topics)]
    body = encode_body(HeartbeatData("me", consumer_data_set=data))
    refused = await client.ask(RequestCode.HEART_BEAT, None, body)
    assert f"{len(body)} bytes, limit {HEARTBEAT_BYTES_MAX}" in refused.remark
    assert len(broker.clients) == 0


async def test_nothing_of_a_refused_heartbeat_is_kept(broker: BrokerApp, client: Client) -> None:
    """Groups before the illegal one are not registered either."""
    heartbeat = consumer()
    heartbeat.consumer_data_set.append(ConsumerData("other", subscription_data_set=[SubscriptionData("T", HUGE)]))
    assert (await client.ask(RequestCode.HEART_BEAT, None, encode_body(heartbeat))).code != 0
    assert len(broker.clients) == 0
    assert broker.topics.get("%RETRY%group") is None


async def test_a_heartbeat_at_every_limit_is_taken(broker: BrokerApp, client: Client) -> None:
    """Ids as RocketMQ makes them, its longest names, the largest filters."""
    retry = SubscriptionData("%RETRY%" + "g" * 255)
    wanted = [
        retry,
        SubscriptionData("T" * 127, "x" * 16_384, expression_type="SQL92", sub_version=1),
        SubscriptionData("T", " || ".join(f"tag{number}" for number in range(1000)), sub_version=1),
    ]
    wanted[2].tags_set = [f"tag{number}" for number in range(1000)]
    wanted[2].code_set = list(range(4096))
    heartbeat = HeartbeatData("10.0.0.1@" + "i" * 1000 + "@unit", [ProducerData("p" * 255)])
    heartbeat.consumer_data_set.append(ConsumerData("g" * 255, subscription_data_set=wanted))
    assert (await client.ask(RequestCode.HEART_BEAT, None, encode_body(heartbeat))).code == 0
    assert len(broker.clients) == 2


async def test_refused_heartbeats_without_an_answer_are_counted(harness: Harness) -> None:
    """A client that sends them oneway gets no answer, so the broker must log the refusal."""
    app = await harness.broker()
    client = await harness.client(app)
    for _ in range(3):
        client.channel.send_oneway(RequestCode.HEART_BEAT, None, encode_body(HeartbeatData("c" * 1025)))
    await client.put(b"goes on")

    def told() -> list[dict[str, Any]]:
        return [event for event in harness.log.events if event["event"] == "request_refused"]

    await eventually(lambda: len(told()) == 1)
    assert "clientID has 1025 characters, limit 1024" in told()[0]["why"]
    assert (told()[0]["request"], told()[0]["cause"]) == ("HEART_BEAT", "bad_request")
    response = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    telemetry = decode_telemetry(decode_body(response.body, KVTable).table[TELEMETRY_KEY])
    assert [each.total for each in telemetry.refused_requests] == [3]


async def test_clients_have_a_bound_in_bytes(harness: Harness) -> None:
    """Legal heartbeats, too many of them: the next one is refused with the name of the setting."""
    app = await harness.broker(clients_size_bytes_max=1 << 20)
    client = await harness.client(app)
    texts: list[str] = []
    for number in range(80):
        heartbeat = consumer(f"group-{number}", sub_string="x" * 16_384, sub_version=1)
        response = await client.ask(RequestCode.HEART_BEAT, None, encode_body(heartbeat))
        if response.code:
            texts.append(response.remark)
    assert texts
    assert "limit 1048576 (raise broker.clients_size_bytes_max)" in texts[0]
    assert app.clients.size_bytes <= 1 << 20
    assert (await client.ask(RequestCode.HEART_BEAT, None, encode_body(consumer("group-0")))).code == 0
