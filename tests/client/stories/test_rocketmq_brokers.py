"""The SDK with brokers that announce no features, as RocketMQ's do. Without Java; tests/interop has real ones."""

import asyncio
from typing import Any

import pytest

from pocketmq.client import BrokerAnswerError, ClientInstance, Message, MessageQueue, Producer
from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.ha_admin import HaAdmin, HaFailed
from pocketmq.client.admin.transaction_admin import TransactionsUnknown, open_transactions
from pocketmq.client.connection.rocketmq_limits import RocketMQLimits
from pocketmq.client.pull.pull_wire import PullWire
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import ConfigError
from pocketmq.common.record import COMPRESSED_FLAG, COMPRESSION_LZ4
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.codec import encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.namesrv import BrokerData, ClusterInfo
from pocketmq.remoting.protocol.offset import OffsetResponseHeader
from pocketmq.remoting.protocol.send import SendMessageResponseHeader
from tests.client.conftest import ScriptedCluster
from tests.client.push.test_push_consumer import until
from tests.remoting.conftest import MemoryLog

COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET
TYPED, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


def stored(connection: Any, request: Any) -> Any:
    """Return an answer of a stored send: ids and offsets do not matter here."""
    count = 1 if request.code == TYPED else len(_bodies(request))
    ids = ",".join(f"{number:032X}" for number in range(count))
    return ResponseCode.SUCCESS, "", SendMessageResponseHeader(ids, request.header.queue_id, 0), b""


def _bodies(request: Any) -> list[bytes]:
    """Return the bodies of a send's messages."""
    data = bytes(request.body)
    if request.code == TYPED:
        return [data]
    bodies = []
    while data:
        size, length = int.from_bytes(data[:4], "big"), int.from_bytes(data[16:20], "big")
        bodies.append(data[20 : 20 + length])
        data = data[size:]
    return bodies


@pytest.fixture
async def rocket(cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One broker with the topic T, whose announcement is dropped."""
    monkeypatch.setattr(ClientChannel, "_upgrade", lambda channel, text: None)
    server = await cluster.add("rocket", native=0)
    server.answers[TYPED] = server.answers[BATCH] = stored
    cluster.topics["T"] = ["rocket"]
    info = ClusterInfo({"rocket": BrokerData("c", "rocket", {"0": server.address})}, {"c": ["rocket"]})
    cluster.namesrv.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda *_: (0, "", None, encode_body(info))
    return cluster


async def test_messages_of_one_turn_travel_as_a_batch_and_say_whether_they_wait_for_the_disk(rocket: Any) -> None:
    """Keys, delays and similar fields keep a message out of a batch, or out of its queue."""
    server = rocket.brokers["rocket"]
    async with Producer("g", rocket.namesrv.address) as producer:
        await producer.send(Message("T", b"alone"))
        await asyncio.gather(*(producer.send(Message("T", b"%d" % number)) for number in range(3)))
        await asyncio.gather(*(producer.send(Message("T", b"w", wait_store_msg_ok=False)) for _ in range(2)))
        await asyncio.gather(*(producer.send(Message("T", b"d", delay_time_level=1)) for _ in range(2)))
    sent = [(request.code, _bodies(request)) for request in server.requests if request.code in (TYPED, BATCH)]
    assert sent[:2] == [(TYPED, [b"alone"]), (BATCH, [b"0", b"1", b"2"])]
    assert sent[-2:] == [(TYPED, [b"d"]), (TYPED, [b"d"])]
    by_body = {_bodies(request)[0]: request.header for request in server.requests if request.code == BATCH}
    assert by_body[b"0"].properties == ""
    assert by_body.get(b"w") is None or by_body[b"w"].properties == "WAIT\x01false\x02"


async def test_a_batch_that_is_too_large_for_the_broker_is_sent_message_by_message_in_order(rocket: Any) -> None:
    """The user sent single messages, so the batch's refusal is not theirs. Later sends of the queue stay behind."""
    server = rocket.brokers["rocket"]
    server.answers[BATCH] = lambda *_: (ResponseCode.MESSAGE_ILLEGAL, "the message is illegal", None, b"")
    async with Producer("g", rocket.namesrv.address) as producer:
        await producer.send(Message("T", b"first", sharding_key="k"))
        sends = [producer.send_nowait(Message("T", b"%d" % number, sharding_key="k")) for number in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        sends += [producer.send_nowait(Message("T", b"%d" % number, sharding_key="k")) for number in range(3, 5)]
        receipts = await asyncio.gather(*sends)
    bodies = [_bodies(request)[0] for request in server.requests if request.code == TYPED]
    assert bodies == [b"first", b"0", b"1", b"2", b"3", b"4"]
    assert {receipt.attempts for receipt in receipts} == {1}


async def test_a_queue_has_one_send_on_the_way(rocket: Any) -> None:
    """The second send leaves when the first is answered, without another reason to wait."""
    server, held = rocket.brokers["rocket"], []
    server.answers[TYPED] = lambda connection, request: held.append((connection, request))

    def answer(connection: Any, request: Any) -> None:
        code, _, header, _ = stored(connection, request)
        connection.respond(encode_response(code, request.opaque, request.code, header=header))

    async with Producer("g", rocket.namesrv.address) as producer:
        first = producer.send_nowait(Message("T", b"1", sharding_key="k"), timeout_ms=60_000)
        await until(lambda: held)
        second = producer.send_nowait(Message("T", b"2", sharding_key="k"), timeout_ms=60_000)
        await asyncio.sleep(0.02)
        assert [_bodies(request) for _, request in held] == [[b"1"]]
        answer(*held[0])
        await first
        await until(lambda: len(held) == 2)
        assert _bodies(held[1][1]) == [b"2"]
        answer(*held[1])
        await second


async def test_a_forced_seek_tells_a_rocketmq_broker_the_time_and_not_an_offset(rocket: Any) -> None:
    """4.9 ignores the offset, and would move the group to the end."""
    server = rocket.brokers["rocket"]
    for code in (
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.QUERY_CONSUMER_OFFSET,
    ):
        server.answers[code] = lambda *_: (0, "", OffsetResponseHeader(7), b"")
    async with Admin(rocket.namesrv.address) as admin:
        for to in ("earliest", "latest", 1_234):
            await admin.seek_group("g", "T", to, force=True)
    resets = [
        request.header for request in server.requests if request.code == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    ]
    assert [(header.timestamp, header.queue_id, header.offset, header.is_force) for header in resets] == [
        (0, -1, None, True),
        (-1, -1, None, True),
        (1_234, -1, None, True),
    ]


async def test_the_first_commit_of_a_group_goes_alone_and_the_others_together(rocket: Any) -> None:
    """RocketMQ keeps only one of several simultaneous first commits. If the first fails, the others go on."""
    server, held = rocket.brokers["rocket"], []
    server.answers[COMMIT] = lambda connection, request: held.append((connection, request))

    def answer(code: int) -> None:
        for connection, request in held:
            connection.respond(encode_response(code, request.opaque, request.code))
        held.clear()

    async with Admin(rocket.namesrv.address) as admin:
        await admin.instance.route("T", timeout_ms=30_000)
        queues = [MessageQueue("T", "rocket", number) for number in range(4)]
        for code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS):
            wire = PullWire(admin.instance, "g")
            commits = asyncio.gather(*(wire.store_offset(queue, 1) for queue in queues), return_exceptions=True)
            await until(lambda: len(held) == 1)
            answer(code)
            await until(lambda: len(held) == 3)
            answer(ResponseCode.SUCCESS)
            refused = [isinstance(result, BrokerAnswerError) for result in await commits]
            assert refused == [code != ResponseCode.SUCCESS, False, False, False]
        again = asyncio.gather(*(wire.store_offset(queue, 2) for queue in queues))
        await until(lambda: len(held) == 4)
        answer(ResponseCode.SUCCESS)
        await again


async def test_commands_for_masters_and_transactions_say_that_it_is_a_rocketmq(rocket: Any) -> None:
    """The error has the command to use instead, and no request leaves that RocketMQ does not know."""
    server = rocket.brokers["rocket"]
    server.answers[RequestCode.TRANSACTION_LIST] = lambda *_: (3, " request type 30039 not supported", None, b"")
    async with Admin(rocket.namesrv.address) as admin:
        group = await HaAdmin(admin).group("rocket")
        assert group.rocketmq == {server.address}
        with pytest.raises(HaFailed, match="mqadmin haStatus"):
            group.check_ours("not promoted")
        with pytest.raises(TransactionsUnknown, match="TRANS_CHECK_MAX_TIME_TOPIC"):
            await open_transactions(admin)
    assert RequestCode.HA_STATUS not in server.codes()
    assert RequestCode.HA_EPOCH not in rocket.namesrv.codes()


def test_what_a_broker_lacks_is_reported_once_and_only_of_versions_that_lack_it() -> None:
    """Timers came with 5.0, other compression than ZLIB with 4.9.4."""
    log = MemoryLog()
    limits = RocketMQLimits(log)
    packed = Message("T", b"x")
    packed.packed = (packed.body, COMPRESSED_FLAG | COMPRESSION_LZ4, b"y")
    messages = [packed, Message("T", b"x", delay_time_ms=5)]
    for version in (479, 407, 407, 300):
        limits.opened("b", "a:1", version)
        limits.sent("b", f"a:{version}", version, messages)
    assert [event for event, _ in log.events] == [
        "rocketmq_broker",
        "timed_message_delivered_at_once",
        "compression_unknown_to_clients",
        "timed_message_delivered_at_once",
    ]


def test_a_form_of_headers_that_nobody_knows_is_refused() -> None:
    """Only RocketMQ's names are valid."""
    from pocketmq.client import ClientOptions

    with pytest.raises(ConfigError, match="ROCKETMQ"):
        ClientInstance("127.0.0.1:1", options=ClientOptions(serialize_type="BINARY"), clock=SystemClock())
