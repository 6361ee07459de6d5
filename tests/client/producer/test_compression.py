"""Compressed bodies from producer to consumer, against the real broker."""

import asyncio
import json
import logging
import os
from typing import Any

import pytest

from pocketmq.client import (
    BodyUnreadable,
    CompressionType,
    ConsumeFromWhere,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
)
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.producer.compression import OFF_LOOP_BYTES, Compression
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.sender.rocketmq_send import rocketmq_request
from pocketmq.client.sender.section import Section
from pocketmq.client.transaction.transaction_producer import TransactionProducer
from pocketmq.common.body_codec import decompress_body
from pocketmq.common.errors import ConfigError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK, TRANSACTION_PREPARED
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.send import SendMessageV2RequestHeader
from tests.client.conftest import until_known

TEXT = json.dumps([{"order": number, "customer": f"customer {number}"} for number in range(200)]).encode()
BIG = TEXT * 12
NOISE = os.urandom(9000)


async def read(namesrv: str, topic: str) -> list[ReceivedMessage]:
    """Return the present messages of a topic, in the order of its queue."""
    async with PullConsumer(group="look", namesrv=namesrv) as consumer:
        return [message async for message in consumer.stream(topic, start="earliest", stop_at_end=True)]


def first_queue(queues: Any, message: Message) -> Any:
    return queues[0]


@pytest.mark.parametrize("kind", list(CompressionType))
async def test_each_type_arrives_and_is_packed_in_the_log(broker: Any, topic: str, kind: CompressionType) -> None:
    """Large bodies are stored compressed with RocketMQ's flags; small and incompressible ones unchanged."""
    bodies = [b"small", TEXT, NOISE, BIG, b"x" * 4095, b"x" * 4096]
    assert len(BIG) >= OFF_LOOP_BYTES[CompressionType.ZLIB]
    async with Producer(group="p", namesrv=broker.namesrv, compress_type=kind) as producer:
        for body in bodies:
            await producer.send(Message(topic, body, keys="k"), selector=first_queue)
    messages = await read(broker.namesrv, topic)
    assert [message.body for message in messages] == bodies
    packed = [bool(message.sys_flag & COMPRESSED_FLAG) for message in messages]
    assert packed == [False, True, False, True, False, True]
    for message in messages:
        if message.sys_flag & COMPRESSED_FLAG:
            assert message.sys_flag & COMPRESSION_TYPE_MASK == kind.value
            assert len(message.raw_body) < len(message.body)
            assert decompress_body(message.raw_body, message.sys_flag) == message.body


async def test_order_holds_while_threads_compress(broker: Any, topic: str) -> None:
    """Sends of one key keep their order when large bodies, compressed in a thread, are between small ones."""
    async with Producer(group="p", namesrv=broker.namesrv, compress_type="zlib") as producer:
        await producer.send(Message(topic, b"start", sharding_key="k"))
        sends = [
            producer.send_nowait(Message(topic, b"%03d" % number + (BIG if number % 3 else b""), sharding_key="k"))
            for number in range(30)
        ]
        await asyncio.gather(*sends)
    numbers = [message.body[:3] for message in await read(broker.namesrv, topic)][1:]
    assert numbers == [b"%03d" % number for number in range(30)]


async def test_a_send_whose_time_ends_while_it_is_compressed_says_so(
    broker: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at its own time, the sends behind it go on, and none stays counted as in flight."""
    async with Producer(group="p", namesrv=broker.namesrv, compress_type="zlib") as producer:
        await producer.send(Message(topic, b"start"))
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (compression,) = producer._chain.stages
        real = compression.enter
        monkeypatch.setattr(
            producer._chain, "entering", (lambda send: gate if send.message.body == BIG else real(send),)
        )
        late = producer.send_nowait(Message(topic, BIG), timeout_ms=20)
        behind = producer.send_nowait(Message(topic, TEXT))
        with pytest.raises(Exception, match="timeout"):
            await late
        assert not behind.done()
        gate.set_result(None)
        await behind
        assert producer.in_flight_bytes == 0


async def test_no_compression_unless_asked(broker: Any, topic: str) -> None:
    """A producer without compress_type sends bodies unchanged; batches are never compressed."""
    async with Producer(group="p", namesrv=broker.namesrv) as producer:
        await producer.send(Message(topic, TEXT))
    async with Producer(group="p", namesrv=broker.namesrv, compress_type="ZLIB") as producer:
        await producer.send_batch([Message(topic, TEXT), Message(topic, TEXT)])
    assert [message.sys_flag & COMPRESSED_FLAG for message in await read(broker.namesrv, topic)] == [0, 0, 0]


async def test_half_messages_and_delayed_ones_are_compressed_too(broker: Any, topic: str) -> None:
    """The broker keeps the compressed body and its flags through half topic, timer and delivery."""
    async with TransactionProducer("tx", broker.namesrv, check=lambda message: None, compress_type="zlib") as producer:
        await producer.send_in_transaction(Message(topic, TEXT), lambda message: True)
        await producer.send(Message(topic, TEXT, delay_time_ms=1))
    async with PullConsumer(group="look", namesrv=broker.namesrv) as consumer:
        found: list[ReceivedMessage] = []
        while len(found) < 2:
            found += await consumer.poll(topic, timeout_ms=5000)
    assert [message.body for message in found] == [TEXT, TEXT]
    assert all(message.sys_flag & COMPRESSED_FLAG for message in found)


def test_a_rocketmq_send_has_the_flags_and_the_packed_body() -> None:
    """A real RocketMQ broker gets these; a body changed since then is not sent in its old form."""
    compression = Compression("zlib")
    message = Message("T", TEXT)
    send = PendingSend(message, False, None, False, None, 0, 1, False, 1)
    assert compression.enter(send) is None
    section = Section(
        None, MessageQueue("T", "b", 0), build=None, started_ns=0, deadline_ns=1, born_ms=1, attempts_max=1
    )
    section.messages.append(message)
    section.uniq_keys.append(b"U" * 32)
    code, header, body = rocketmq_request(section, "p", 4)
    assert (code, header.sys_flag) == (RequestCode.SEND_MESSAGE_V2, 0x301)
    assert not header.sys_flag & TRANSACTION_PREPARED
    assert decompress_body(body, header.sys_flag) == TEXT
    message.body = b"other" * 2000
    _, header, body = rocketmq_request(section, "p", 4)
    assert (header.sys_flag, body) == (0, message.body)


@pytest.mark.parametrize(
    "options",
    [
        {"compress_type": "snappy"},
        {"compress_type": "zlib", "compress_level": 10},
        {"compress_type": "zlib", "compress_msg_body_over_howmuch": 0},
    ],
)
def test_bad_settings_stop_the_producer(options: dict[str, Any]) -> None:
    """Each is named before a message is sent."""
    with pytest.raises(ConfigError, match=next(reversed(options))):
        Producer(group="p", namesrv="127.0.0.1:1", **options)


async def send_raw(broker: Any, topic: str, bodies: list[tuple[bytes, int]]) -> None:
    """Store bodies with the sysFlags of a client that lies."""
    async with Producer(group="p", namesrv=broker.namesrv) as producer:
        await producer.send(Message(topic, b"first"), selector=first_queue)
        queue = (await until_known(producer.instance, topic)).write_queues[0]
        connection = await producer.instance.connection(queue.broker_name, timeout_ms=30_000)
        for body, sys_flag in bodies:
            header = SendMessageV2RequestHeader(
                "p", topic, "TBW102", 4, queue.queue_id, sys_flag, 1_700_000_000_000, 0, "UNIQ_KEY\x01X\x02"
            )
            response = await connection.channel.request(RequestCode.SEND_MESSAGE_V2, header, body, timeout_ms=3000)
            assert response.code == 0, response


DAMAGED = [(b"no zlib", COMPRESSED_FLAG), (b"no zstd", COMPRESSED_FLAG | 0x200), (b"plain", 0)]


async def test_a_damaged_body_is_an_error_of_its_own_message(broker: Any, topic: str) -> None:
    """Polls go on; access to the body raises, the raw bytes stay readable; in Arrow it is null, and logged once."""
    await send_raw(broker, topic, DAMAGED)
    messages = await read(broker.namesrv, topic)
    assert (messages[0].body, messages[3].body) == (b"first", b"plain")
    for message, (raw, _) in zip(messages[1:3], DAMAGED, strict=False):
        with pytest.raises(BodyUnreadable):
            _ = message.body
        assert message.raw_body == raw
    async with PullConsumer(group="arrow", namesrv=broker.namesrv) as consumer:
        batch = await consumer.poll_arrow(topic)
    assert batch.column("body").to_pylist() == [b"first", None, None, b"plain"]


async def test_a_damaged_body_does_not_end_a_push_consumer(
    broker: Any, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler gets the message, its own exception is an ordinary failure, and the next messages come."""
    await send_raw(broker, topic, DAMAGED)
    consumer = PushConsumer(
        group,
        broker.namesrv,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        retry_delay_ms=60_000,
        rebalance_interval_ms=100,
    )
    got: list[bytes] = []
    done = asyncio.Event()

    @consumer.subscribe(topic)
    async def handle(message: ReceivedMessage) -> None:
        got.append(message.body)
        if len(got) == 2:
            done.set()

    with caplog.at_level(logging.CRITICAL + 1):
        async with consumer, asyncio.timeout(60):
            await done.wait()
    assert got == [b"first", b"plain"]


async def test_arrow_unpacks_every_type_and_bounds_what_it_unpacks(
    broker: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compressed and plain rows are adjacent; a pull that would grow beyond the limit is refused with a hint."""
    for kind in CompressionType:
        async with Producer(group="p", namesrv=broker.namesrv, compress_type=kind) as producer:
            await producer.send(Message(topic, TEXT), selector=first_queue)
            await producer.send(Message(topic, b"small"), selector=first_queue)
    async with PullConsumer(group="arrow", namesrv=broker.namesrv) as consumer:
        bodies: list[Any] = []
        while len(bodies) < 6:  # the last messages are shown a moment after their receipts
            bodies += (await consumer.poll_arrow(topic, timeout_ms=30_000)).column("body").to_pylist()
        assert bodies == [TEXT, b"small"] * 3
        await consumer.seek(topic, "earliest")
        monkeypatch.setattr("pocketmq.client.arrow.arrow.UNPACKED_BYTES_MAX", 2 * len(TEXT))
        with pytest.raises(BodyUnreadable, match="read fewer at once"):
            await consumer.poll_arrow(topic)
