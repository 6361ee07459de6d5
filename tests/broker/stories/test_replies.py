"""Replies through a whole broker, spoken as RocketMQ's clients speak."""

import asyncio
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.send.reply_processor import PUSH_TIMEOUT_MS
from pocketmq.common.record import COMPRESSED_FLAG, decode_properties
from pocketmq.remoting.codec import encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.client import HeartbeatData, ProducerData, UnregisterClientRequestHeader
from pocketmq.remoting.protocol.send import SendMessageRequestHeader, SendMessageV2RequestHeader
from tests.broker.conftest import Client, Harness, eventually

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


def text(**properties: object) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


async def reply(client: Client, body: bytes = b"pong", to: str = "asker", **fields: Any) -> Any:
    """Send a reply as RocketMQ's client does."""
    properties = {"MSG_TYPE": "reply", "CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": to, "TTL": 3000, "UNIQ_KEY": "U"}
    values = {"code": RequestCode.SEND_REPLY_MESSAGE_V2, "properties": text(**properties), **fields}
    return await client.send(REPLY_TOPIC, body, **values)


class Asker:
    """A producer's connection that keeps pushed requests, and answers with ``code`` (None: not at all)."""

    def __init__(self) -> None:
        self.pushes: list[Any] = []
        self.code: int | None = 0

    def on_request(self, channel: Any, request: Any) -> None:
        self.pushes.append(request)
        if self.code is not None:
            channel.respond(
                encode_response(self.code, request.opaque, request.code, serialize_type=request.serialize_type)
            )

    async def register(self, client: Client, client_id: str = "asker") -> None:
        body = encode_body(HeartbeatData(client_id=client_id, producer_data_set=[ProducerData("askers")]))
        assert (await client.ask(RequestCode.HEART_BEAT, None, body)).code == 0


@pytest.fixture
async def asker(harness: Harness, broker: BrokerApp) -> Any:
    """A producer with the client id ``asker``."""
    asking = Asker()
    await asking.register(await harness.client(broker, on_request=asking.on_request))
    return asking


async def test_a_reply_is_pushed_with_all_fields_and_stored(broker: BrokerApp, client: Client, asker: Asker) -> None:
    """The requester gets body, flags, properties, hosts and times (326); the log has it, at the answered offset."""
    answer = await reply(client, b"pong", flag=7, sys_flag=COMPRESSED_FLAG | 0x300)
    assert answer.code == 0, answer
    (push,) = asker.pushes
    assert push.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert not push.oneway
    header = push.header
    assert (header.producer_group, header.topic, header.flag) == ("producers", REPLY_TOPIC, 7)
    assert header.sys_flag == COMPRESSED_FLAG | 0x300
    assert header.born_timestamp == 1_700_000_000_000
    assert header.born_host.startswith("127.0.0.1:")
    assert header.store_host == broker.address
    assert header.store_timestamp > 1_700_000_000_000
    properties = decode_properties(header.properties.encode())
    assert properties["CORRELATION_ID"] == "c-1"
    assert int(properties["PUSH_REPLY_TIME"]) == header.store_timestamp
    assert bytes(push.body) == b"pong"
    assert len(answer.header.msg_id) == 32
    assert await client.pull_bodies(REPLY_TOPIC) == [b"pong"]


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
async def test_both_codes_are_served(harness: Harness, code: int) -> None:
    """324 and 325 differ in the names of their fields only; without the store the answer has RocketMQ's id 0."""
    app = await harness.broker(store_reply_message_enable=False)
    asking = Asker()
    await asking.register(await harness.client(app, on_request=asking.on_request))
    client = await harness.client(app)
    kind: Callable[..., Any] = (
        SendMessageRequestHeader if code == RequestCode.SEND_REPLY_MESSAGE else SendMessageV2RequestHeader
    )
    properties = text(CORRELATION_ID="c", REPLY_TO_CLIENT="asker", MSG_TYPE="reply")
    header = kind("p", REPLY_TOPIC, "TBW102", 4, 0, 0, 1, 0, properties)
    answer = await client.ask(code, header, b"x")
    assert (answer.code, answer.header.msg_id, answer.header.queue_offset) == (0, "0", 0)
    assert [bytes(push.body) for push in asking.pushes] == [b"x"]
    nothing = await client.native_pull((REPLY_TOPIC, 0, 0))
    assert nothing.header.results[0][4] == 0


async def test_a_requester_that_is_gone_is_named(harness: Harness, broker: BrokerApp, client: Client) -> None:
    """Unknown, unregistered and disconnected requesters give RocketMQ's text, and say that the reply is stored."""
    remark = "push reply message fail, channel of <{}> not found."
    answer = await reply(client, to="nobody")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark.format("nobody"))
    assert (answer.extra["stored"], answer.extra["cause"]) == ("yes", "connection")
    asking = Asker()
    connected = await harness.client(broker, on_request=asking.on_request)
    await asking.register(connected)
    assert (await reply(client)).code == 0
    header = UnregisterClientRequestHeader(client_id="asker", producer_group="askers")
    await connected.ask(RequestCode.UNREGISTER_CLIENT, header)
    assert (await reply(client)).remark == remark.format("asker")
    await asking.register(connected)
    connected.channel.close()

    async def refused() -> bool:
        answer = await reply(client)
        return bool(answer.code)

    await eventually(refused)
    assert (await reply(client)).remark == remark.format("asker")


async def test_the_newest_connection_of_a_client_id_gets_the_reply(
    harness: Harness, broker: BrokerApp, client: Client, asker: Asker
) -> None:
    """A requester that has reconnected is found on its new connection, even after the old one is closed."""
    again = Asker()
    await again.register(await harness.client(broker, on_request=again.on_request))
    assert (await reply(client)).code == 0
    assert (len(asker.pushes), len(again.pushes)) == (0, 1)


async def test_a_requester_that_refuses_or_is_silent_holds_up_nobody(
    harness: Harness, broker: BrokerApp, client: Client, asker: Asker
) -> None:
    """While one requester does not answer, others get their replies; a refusal is passed on."""
    asker.code = None
    silent = asyncio.ensure_future(reply(client))
    other = Asker()
    await other.register(await harness.client(broker, on_request=other.on_request), "other")
    for number in range(50):
        assert (await reply(client, b"%d" % number, to="other")).code == 0
    assert not silent.done()
    assert len(asker.pushes) == 1
    silent.cancel()
    other.code = ResponseCode.SYSTEM_ERROR
    refused = await reply(client, to="other")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark.startswith("push reply message to otherfail.")
    assert PUSH_TIMEOUT_MS == 10_000  # RocketMQ's


async def test_replies_that_wait_are_bounded(harness: Harness) -> None:
    """One reply too many for silent requesters is refused like a full queue, until there is room again."""
    app = await harness.broker(reply_pushes_max=2)
    asking = Asker()
    asking.code = None
    connected = await harness.client(app, on_request=asking.on_request)
    await asking.register(connected)
    client = await harness.client(app)
    waiting = [asyncio.ensure_future(reply(client)) for _ in range(2)]
    await eventually(lambda: len(asking.pushes) == 2)
    full = await reply(client)
    assert full.code == ResponseCode.SYSTEM_BUSY
    assert full.extra["stored"] == "no"
    connected.channel.close()
    for answer in await asyncio.gather(*waiting):
        assert answer.code == ResponseCode.SYSTEM_ERROR
    asking.code = 0
    again = await harness.client(app, on_request=asking.on_request)
    await asking.register(again)
    assert (await reply(client)).code == 0


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"properties": text(CORRELATION_ID="c", REPLY_TO_CLIENT="asker", DELAY=3)}, "delay"),
        ({"properties": text(REPLY_TO_CLIENT="asker", TRAN_MSG="true", PGROUP="g"), "sys_flag": 4}, "transactions"),
        ({"batch": True}, "one message"),
        ({"queue_id": 99}, "illegal"),
        ({"properties": text(CORRELATION_ID="c")}, "REPLY_TO_CLIENT] is null"),
    ],
)
async def test_replies_that_are_none_are_refused(
    client: Client, asker: Asker, fields: dict[str, Any], part: str
) -> None:
    """Each is answered with its error, and none is pushed."""
    answer = await reply(client, **fields)
    assert answer.code != 0
    assert part in answer.remark
    assert not asker.pushes


class JavaClient:
    """A peer that writes and reads RocketMQ's JSON frames by hand, without PocketMQ's codecs."""

    async def connect(self, app: BrokerApp) -> "JavaClient":
        host, port = app.address.split(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        return self

    def write(self, body: bytes = b"", **header: Any) -> None:
        fields = {"language": "JAVA", "version": 453, "opaque": 1, "flag": 0, "serializeTypeCurrentRPC": "JSON"}
        text = json.dumps({**fields, **header}).encode()
        self._writer.write(struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body)

    async def read(self) -> tuple[dict[str, Any], bytes]:
        size, head = struct.unpack(">II", await self._reader.readexactly(8))
        data = await self._reader.readexactly(size - 4)
        assert head >> 24 == 0  # JSON
        return json.loads(data[: head & 0xFFFFFF]), data[head & 0xFFFFFF :]

    def close(self) -> None:
        self._writer.close()


async def test_rocketmqs_clients_on_both_ends(broker: BrokerApp) -> None:
    """Heartbeat, reply (325, letters), push (326) and answers in RocketMQ's JSON, every field a string."""
    asker, replier = await JavaClient().connect(broker), await JavaClient().connect(broker)
    try:
        beat = {"clientID": "10.0.0.1@7", "producerDataSet": [{"groupName": "askers"}], "consumerDataSet": []}
        asker.write(json.dumps(beat).encode(), code=34)
        assert (await asker.read())[0]["code"] == 0
        properties = text(MSG_TYPE="reply", CORRELATION_ID="c-1", REPLY_TO_CLIENT="10.0.0.1@7", TTL=3000, UNIQ_KEY="U")
        values = ("p", REPLY_TOPIC, "TBW102", "4", "0", "0", "17", "5", properties, "0", "false", "false")
        fields = dict(zip("abcdefghijkm", values, strict=True))
        replier.write(b"pong", code=325, opaque=9, extFields=fields)
        push, body = await asker.read()
        assert (push["code"], push["flag"] & 3, body) == (326, 0, b"pong")
        pushed = push["extFields"]
        assert all(isinstance(value, str) for value in pushed.values())
        assert {"bornHost", "storeHost", "storeTimestamp", "bornTimestamp", "sysFlag", "queueId"} <= pushed.keys()
        assert (pushed["producerGroup"], pushed["topic"], pushed["flag"]) == ("p", REPLY_TOPIC, "5")
        assert "CORRELATION_ID\x01c-1\x02" in pushed["properties"]
        asker.write(code=0, opaque=push["opaque"], flag=1)
        answer, _ = await replier.read()
        assert (answer["code"], answer["opaque"], answer["flag"] & 1) == (0, 9, 1)
        assert len(answer["extFields"]["msgId"]) == 32
        assert answer["extFields"]["queueOffset"] == "0"
        asker.close()
    finally:
        asker.close()
        replier.close()
