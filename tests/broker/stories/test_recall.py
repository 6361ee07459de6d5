"""RECALL_MESSAGE: a delayed message that is not delivered."""

import base64
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.common.recall_handle import RecallHandle, RecallHandleIllegal
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.send import RecallMessageRequestHeader
from tests.broker.conftest import Client, Harness, eventually, split_records


async def send(client: Client, body: bytes, message_id: str, delay_ms: int = 700) -> str:
    """Send a delayed message; return its recall handle."""
    properties = f"UNIQ_KEY\x01{message_id}\x02TIMER_DELAY_MS\x01{delay_ms}\x02"
    answer = await client.send("T", body, properties=properties)
    assert answer.code == 0, answer
    handle: str = answer.header.recall_handle
    return handle


async def recall(client: Client, handle: str, topic: str = "T") -> Any:
    return await client.ask(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader(topic, handle))


async def delivered(app: BrokerApp, client: Client, wanted: int) -> list[bytes]:
    bodies: list[bytes] = []

    async def enough() -> bool:
        bodies.clear()
        for queue_id in range(4):
            found = await client.pull(queue_id=queue_id)
            bodies.extend(record.body for record in split_records(found.body) if found.code == 0)
        return len(bodies) >= wanted

    await eventually(enough)
    return sorted(bodies)


async def test_a_recalled_message_is_not_delivered(broker: BrokerApp, client: Client) -> None:
    """Its neighbours are; the answer has its id."""
    handles = [await send(client, b"%d" % number, f"id{number}") for number in range(5)]
    for number in (1, 3):
        answer = await recall(client, handles[number])
        assert (answer.code, answer.header.msg_id) == (0, f"id{number}")
    last = await send(client, b"9", "id9", 800)
    assert last
    assert await delivered(broker, client, 4) == [b"0", b"2", b"4", b"9"]
    assert broker.delays is not None
    assert broker.delays.deliverer.recalled == 2


async def test_a_recall_outlives_a_restart(harness: Harness) -> None:
    """It is a message in the log."""
    app = await harness.broker()
    client = await harness.client(app)
    first, second = await send(client, b"0", "id0", 3_000), await send(client, b"1", "id1", 3_000)
    assert second
    assert (await recall(client, first)).code == 0
    await app.stop()
    app = await harness.broker()
    assert await delivered(app, await harness.client(app), 1) == [b"1"]


async def test_a_handle_that_cannot_be_used_is_refused(broker: BrokerApp, client: Client) -> None:
    """Of another topic or broker, of a time that has passed, or none at all."""
    good = RecallHandle.parse(await send(client, b"0", "id0", 60_000))
    await client.put(b"0", topic="U")
    illegal = int(ResponseCode.ILLEGAL_OPERATION)
    wrong = [
        str(good._replace(topic="U")),
        str(good._replace(broker="broker-b")),
        str(good._replace(due_ms=1)),
        str(good._replace(due_ms=10**17)),
        "",
        "?",
        "x" * 2000,
        base64.urlsafe_b64encode(b"v2 T broker-a 1 2").decode(),
        base64.urlsafe_b64encode(b"v1 T broker-a x 2").decode(),
    ]
    for handle in wrong:
        assert (await recall(client, handle)).code == illegal, handle
    assert (await recall(client, str(good), "nobody")).code == ResponseCode.TOPIC_NOT_EXIST
    with pytest.raises(RecallHandleIllegal):
        RecallHandle.parse("a")


async def test_no_send_passes_for_a_recall(broker: BrokerApp, client: Client) -> None:
    """The property is refused."""
    properties = "TIMER_DEL_UNIQKEY\x01T+id0\x02TIMER_DELAY_MS\x015000\x02"
    assert (await client.send("T", b"0", properties=properties)).code != 0
