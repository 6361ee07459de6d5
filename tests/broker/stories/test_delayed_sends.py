"""Delayed messages through a whole broker."""

import json
import time
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.conftest import Client, Harness, eventually, records_of


def property_text(**properties: object) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


async def pulled(client: Client, queue_id: int, count: int) -> list[Any]:
    """Pull until ``count`` messages came."""
    records: list[Any] = []
    while len(records) < count:
        response = await client.native_pull(("T", queue_id, len(records)), suspend_ms=5000)
        if response.code == 0:
            records += records_of(response)
    return records


async def test_a_delayed_send_answers_at_once_and_comes_when_it_is_due(broker: BrokerApp, client: Client) -> None:
    """The answer names the requested queue; the delivery wakes a held pull; never early."""
    await client.put(b"now")
    begin_ms = time.time_ns() // 1_000_000
    due_ms = begin_ms + 80
    answer = await client.send(
        queue_id=1, body=b"timed", properties=property_text(UNIQ_KEY="U1", TIMER_DELIVER_MS=due_ms)
    )
    assert (answer.code, answer.header.queue_id, answer.header.transaction_id) == (0, 1, "U1")
    (record,) = await pulled(client, 1, 1)
    assert record.body == b"timed"
    assert record.store_timestamp >= due_ms
    assert record.property_map()["UNIQ_KEY"] == "U1"
    answer = await client.ask(RequestCode.GET_ALL_DELAY_OFFSET)
    assert json.loads(answer.body)["offsetTable"] == {}


async def test_a_restart_keeps_what_waits(harness: Harness) -> None:
    """Levels and timers due while the broker is down are delivered after its restart, once."""
    settings = {"message_delay_level": "1s"}
    app = await harness.broker(store_settings=settings)
    client = await harness.client(app)
    await client.put(b"now")
    for body, properties in ((b"level", {"DELAY": 1}), (b"timer", {"TIMER_DELAY_MS": 300})):
        assert (await client.send(body=body, properties=property_text(**properties))).code == 0
    assert app.delays is not None
    await eventually(lambda: app.delays is not None and app.delays.timers.pending == 1)
    await app.stop()
    for _ in range(2):
        app = await harness.broker(store_settings=settings)
        client = await harness.client(app)
        assert [record.body for record in await pulled(client, 0, 3)] == [b"now", b"timer", b"level"]
        assert app.store.max_offset("T", 0) == 3
        await app.stop()


@pytest.mark.parametrize("properties", [{"DELAY": 1}, {"TIMER_DELAY_MS": 5}])
async def test_a_batch_holds_no_delayed_message(broker: BrokerApp, client: Client, properties: dict[str, Any]) -> None:
    """As with RocketMQ: 13, and nothing is stored."""
    text = property_text(**properties).encode()
    item = (20 + 1 + 2 + len(text)).to_bytes(4, "big") + bytes(12) + (1).to_bytes(4, "big") + b"x"
    item += len(text).to_bytes(2, "big") + text
    for body, header_text in ((item, ""), (item[: 20 + 1] + bytes(2), property_text(**properties))):
        if header_text:
            body = (23).to_bytes(4, "big") + body[4:]
        answer = await client.send(body=body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, properties=header_text)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "batch" in answer.remark
    assert broker.store.appended_offset == 0


async def test_nobody_sends_to_where_delayed_messages_wait(broker: BrokerApp, client: Client) -> None:
    """Otherwise a client could write due times and targets itself."""
    for topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"):
        assert (await client.send(topic=topic)).code == ResponseCode.NO_PERMISSION
    assert broker.store.appended_offset == 0


async def test_a_crowded_second_is_refused(harness: Harness) -> None:
    """timerCongestNumEachSlot: code 1 with the cause and a retry time; other seconds still accept timers."""
    app = await harness.broker(store_settings={"timer_congest_num_each_slot": 2})
    client = await harness.client(app)
    await client.put(b"now")
    due_ms = time.time_ns() // 1_000_000 + 60_000
    for _ in range(2):
        assert (await client.send(properties=property_text(TIMER_DELIVER_MS=due_ms))).code == 0
    assert app.delays is not None
    await eventually(lambda: app.delays is not None and app.delays.is_congested(due_ms))
    answer = await client.send(properties=property_text(TIMER_DELIVER_MS=due_ms))
    assert (answer.code, answer.extra["cause"]) == (ResponseCode.SYSTEM_ERROR, "timer_congested")
    assert (await client.send(properties=property_text(TIMER_DELIVER_MS=due_ms + 1000))).code == 0


async def test_the_runtime_info_shows_progress(broker: BrokerApp, client: Client) -> None:
    """RocketMQ's key for each level that was ever used, and the timers."""
    await client.put(b"now")
    await client.send(properties=property_text(DELAY=3))
    await client.send(properties=property_text(TIMER_DELAY_SEC=100))
    await eventually(lambda: broker.delays is not None and broker.delays.timers.pending)
    response = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = json.loads(response.body)["table"]
    assert table["scheduleMessageOffset_3"] == "0,1"
    assert "scheduleMessageOffset_1" not in table
    assert (table["timerPending"], table["timerOffsetBehind"], table["timerReadBehind"]) == ("1", "0", "0")
