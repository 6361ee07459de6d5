"""PocketMQ's producer, in all its modes, on RocketMQ's servers; no test names a mode to the client."""

import asyncio
import time
from typing import Any

import pytest

from pocketmq.client import (
    ClientInstance,
    ClientOptions,
    LocalTransactionState,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendFailed,
    SendStatus,
    TransactionProducer,
    is_request,
    reply_to,
)
from pocketmq.client.pull.offsets import ConsumeFromWhere
from pocketmq.common.errors import Stored
from pocketmq.common.message_id import parse_offset_msg_id
from pocketmq.common.record import host_text
from tests.interop.rocketmq_servers import RocketMQServers
from tests.interop.sdk_on_rocketmq import new_name, new_topic, read_all, until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Facts:
    """An event log that keeps its events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []

    def _keep(self, level: str) -> Any:
        return lambda event, **fields: self.events.append((level, event, fields))

    def __getattr__(self, level: str) -> Any:
        return self._keep(level)

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the fields of each occurrence of an event."""
        return [fields for _, name, fields in self.events if name == event]


async def test_the_channel_stays_with_json_and_says_once_what_a_rocketmq_lacks(rocketmq: RocketMQServers) -> None:
    """The name server of 4.9 drops the first request, the others refuse it: the client finds out, and logs it."""
    facts = Facts()
    topic = await new_topic(rocketmq)
    async with Producer(new_name("producer"), instance=ClientInstance(rocketmq.namesrv, log=facts)) as producer:
        for _ in range(3):
            await producer.send(Message(topic, b"x"))
        connection = await producer.instance.connection(rocketmq.broker_name, timeout_ms=3000)
        assert connection.announcement is None
        assert connection.channel.serialize_type == 0
        assert connection.version == {"4.9": 407, "5.3": 479}[rocketmq.version], "MQVersion of 4.9.7 and 5.3.3"
    told = facts.of("rocketmq_broker")
    assert [each["address"] for each in told] == [rocketmq.broker]
    assert "stored" in told[0]["meaning"]


async def test_one_message_has_its_receipt_and_everything_it_was_sent_with(rocketmq: RocketMQServers) -> None:
    """Ids, offsets and the broker's name in the receipt equal those that a consumer sees."""
    topic = await new_topic(rocketmq)
    async with Producer(new_name("producer"), rocketmq.namesrv) as producer:
        message = Message(
            topic, "ü€😀".encode(), tags="T", keys=["k1", "k2"], properties={"price": "7", "Größe": "ä"}, flag=5
        )
        receipt = await producer.send(message)
    (got,) = await read_all(rocketmq, topic, 1)
    assert receipt.status is SendStatus.SEND_OK
    assert (receipt.topic, receipt.broker, receipt.attempts) == (topic, rocketmq.broker_name, 1)
    assert (got.queue_id, got.queue_offset) == (receipt.queue_id, receipt.queue_offset)
    assert (got.msg_id, got.offset_msg_id) == (receipt.msg_id, receipt.offset_msg_id)
    assert (got.body, got.tags, got.keys, got.flag) == ("ü€😀".encode(), "T", ["k1", "k2"], 5)
    assert (got.properties["price"], got.properties["Größe"]) == ("7", "ä")
    assert got.properties["CLUSTER"] == rocketmq.cluster
    host, offset = parse_offset_msg_id(receipt.offset_msg_id)
    assert (host_text(host), offset) == (rocketmq.broker, got.physical_offset)
    assert receipt.durability == "stored as the broker's flush and replication settings demand"


async def test_thousands_at_once_are_not_refused_and_none_is_lost(rocketmq: RocketMQServers) -> None:
    """A RocketMQ broker refuses requests that wait longer than 200 ms: the client sends no more than it can take."""
    topic = await new_topic(rocketmq)
    async with Producer(new_name("producer"), rocketmq.namesrv) as producer:
        sends = []
        for number in range(5_000):
            sends.append(producer.send_nowait(Message(topic, b"%d" % number, tags="abc"[number % 3])))
            if number % 50 == 0:
                await asyncio.sleep(0)  # several turns of the loop, so several requests
        receipts = await asyncio.gather(*sends)
    assert all(receipt.attempts <= 3 and not receipt.duplicate_possible for receipt in receipts)
    got = await read_all(rocketmq, topic, 5_000)
    places = {(message.queue_id, message.queue_offset): message.body for message in got}
    assert len(got) == len(places) == 5_000
    for number, receipt in enumerate(receipts):
        assert places[receipt.queue_id, receipt.queue_offset] == b"%d" % number


async def test_batches_are_stored_in_order_and_each_message_keeps_its_own(rocketmq: RocketMQServers) -> None:
    """A batch of one topic goes to one queue; each message keeps its tags, keys and ids; receipts name its place."""
    topic = await new_topic(rocketmq)
    async with Producer(new_name("producer"), rocketmq.namesrv) as producer:
        batch = [
            Message(topic, b"%d" % n, tags=f"t{n % 2}", keys=f"key{n}", properties={"n": str(n)}) for n in range(500)
        ]
        receipts = await producer.send_batch(batch)
        unsynced = await producer.send_batch([Message(topic, b"w", wait_store_msg_ok=False) for _ in range(3)])
    got = [message for message in await read_all(rocketmq, topic, 503) if message.body != b"w"]
    assert [int(message.body) for message in got] == list(range(500)), "one queue, in order"
    assert [(m.tags, m.keys, m.properties["n"]) for m in got[:2]] == [("t0", ["key0"], "0"), ("t1", ["key1"], "1")]
    assert [message.msg_id for message in got] == [receipt.msg_id for receipt in receipts]
    assert [message.queue_offset for message in got] == [receipt.queue_offset for receipt in receipts]
    assert [message.offset_msg_id for message in got] == [receipt.offset_msg_id for receipt in receipts]
    assert {receipt.status for receipt in unsynced} == {SendStatus.SEND_OK}


async def test_keyed_and_selected_sends_keep_their_order_whatever_the_brokers_threads_do(
    rocketmq: RocketMQServers,
) -> None:
    """RocketMQ's send threads may overtake each other: one request of a queue is in flight at a time."""
    topic = await new_topic(rocketmq)
    async with (
        Producer(new_name("producer"), rocketmq.namesrv) as producer,
        Producer(new_name("packer"), rocketmq.namesrv, compress_type="ZLIB") as packer,
    ):
        sends = []
        for number in range(600):
            sends.append(producer.send_nowait(Message(topic, b"%d" % number, sharding_key=f"key{number % 3}")))
            # compressed messages travel in no batch: one by one, and still in order
            large = Message(topic, b"%d" % number + bytes(5_000), tags="single")
            sends.append(packer.send_nowait(large, selector=lambda queues, _: queues[3]))
            if number % 7 == 0:
                await asyncio.sleep(0)
        receipts = await asyncio.gather(*sends)
    assert {receipt.queue_id for receipt in receipts[1::2]} == {3}
    by_queue: dict[tuple[int, str], list[int]] = {}
    for message in await read_all(rocketmq, topic, 1_200):
        by_queue.setdefault((message.queue_id, message.tags), []).append(int(message.body.rstrip(b"\0")))
    assert sum(map(len, by_queue.values())) == 1_200
    for name, numbers in by_queue.items():
        assert numbers == sorted(numbers), f"order of {name}"


async def test_oneway_sends_arrive(rocketmq: RocketMQServers) -> None:
    """No answer comes, but sent messages are stored."""
    topic = await new_topic(rocketmq)
    async with Producer(new_name("producer"), rocketmq.namesrv) as producer:
        await producer.send(Message(topic, b"first"))  # the connection is open
        for number in range(100):
            producer.send_oneway(Message(topic, b"%d" % number))
        assert producer.oneway_lost == 0
        got = await read_all(rocketmq, topic, 101)
    assert {message.body for message in got} == {b"first", *(b"%d" % number for number in range(100))}


async def test_delay_levels_wait_and_times_of_their_own_wait_where_the_broker_has_timers(
    rocketmq: RocketMQServers,
) -> None:
    """5.3 delivers at any time; 4.9 has levels only, stores a timed message at once, and the client warns."""
    topic, facts = await new_topic(rocketmq, 1), Facts()
    async with Producer(new_name("producer"), instance=ClientInstance(rocketmq.namesrv, log=facts)) as producer:
        await producer.send(Message(topic, b"level", delay_time_level=1))
        for _ in range(2):
            await producer.send(Message(topic, b"timed", delay_time_ms=2_500))
        await producer.send(Message(topic, b"at", deliver_time_ms=int(time.time() * 1000) + 2_500))
    waited: dict[bytes, float] = {}
    for message in await read_all(rocketmq, topic, 4):
        waited[message.body] = message.store_timestamp - message.born_timestamp
    assert waited[b"level"] >= 900, "level 1 is a second"
    if rocketmq.version == "5.3":
        assert waited[b"timed"] >= 1_000, "timers of RocketMQ have a precision of a second, rounded down"
        assert waited[b"at"] >= 1_000
        assert not facts.of("timed_message_delivered_at_once")
    else:
        assert waited[b"timed"] < 900
        (told,) = facts.of("timed_message_delivered_at_once")
        assert (told["broker"], told["topic"]) == (rocketmq.broker_name, topic)


@pytest.mark.parametrize("compress_type", ["ZLIB", "LZ4", "ZSTD"])
async def test_compressed_bodies_come_back_whole(rocketmq: RocketMQServers, compress_type: str) -> None:
    """The broker keeps the body unchanged."""
    topic = await new_topic(rocketmq, 1)
    body = b"compressible " * 2_000
    async with Producer(new_name("producer"), rocketmq.namesrv, compress_type=compress_type) as producer:
        await producer.send(Message(topic, body))
        await producer.send(Message(topic, body, sharding_key="k"))
    for message in await read_all(rocketmq, topic, 2):
        assert message.body == body
        assert message.size_bytes < 2_000, "it is stored compressed"


async def test_transactions_commit_roll_back_and_are_asked_for(rocketmq: RocketMQServers) -> None:
    """The end travels oneway and is not confirmed; a check decides a message without a decision."""
    topic, group = await new_topic(rocketmq, 1), new_name("producer")
    asked: list[bytes] = []

    async def check(message: ReceivedMessage) -> LocalTransactionState:
        asked.append(message.body)
        commits = message.body in (b"commit", b"unknown-commit")
        return LocalTransactionState.COMMIT_MESSAGE if commits else LocalTransactionState.ROLLBACK_MESSAGE

    async with TransactionProducer(group, rocketmq.namesrv, check=check) as producer:
        states = {b"commit": True, b"rollback": False, b"unknown-commit": None, b"unknown-rollback": None}
        for body, state in states.items():

            async def local(message: Message, state: bool | None = state) -> bool | None:
                return state

            result = await producer.send_in_transaction(Message(topic, body, keys="tx"), local)
            assert result.acknowledged is False, "RocketMQ confirms no end"
            assert result.half.status is SendStatus.SEND_OK
        async with producer.transaction(Message(topic, b"block")) as transaction:
            pass
        assert transaction.result is not None
        await until(lambda: {b"unknown-commit", b"unknown-rollback"} <= set(asked), 25, "both checks")
        got = await read_all(rocketmq, topic, 3)
        await asyncio.sleep(0.5)
    assert sorted({message.body for message in got}) == [b"block", b"commit", b"unknown-commit"]
    assert b"rollback" not in {message.body for message in await read_all(rocketmq, topic, 3)}


async def test_a_request_gets_its_reply(rocketmq: RocketMQServers) -> None:
    """The reply comes through RocketMQ's reply topic and its push to the requester, as for RocketMQ's clients."""
    topic = await new_topic(rocketmq, 1)
    async with Producer(new_name("producer"), rocketmq.namesrv) as producer:
        answerer = PushConsumer(new_name("answerer"), rocketmq.namesrv, consume_from_where=FIRST)

        @answerer.subscribe(topic)
        async def answer(message: ReceivedMessage) -> None:
            assert is_request(message)
            await producer.send(reply_to(message, b"re: " + message.body, tags="R", properties={"p": "v"}))

        async with answerer:
            replies = await asyncio.gather(
                *(producer.request(Message(topic, b"%d" % number), timeout_ms=15_000) for number in range(20))
            )
    assert [reply.body for reply in replies] == [b"re: %d" % number for number in range(20)]
    assert (replies[0].tags, replies[0].properties["p"]) == ("R", "v")


async def test_a_topic_is_made_by_its_first_message(rocketmq: RocketMQServers) -> None:
    """autoCreateTopicEnable: the client borrows the route of TBW102, as RocketMQ's does."""
    topic = new_name("automatic")
    async with Producer(new_name("producer"), rocketmq.namesrv) as producer:
        receipt = await producer.send(Message(topic, b"made"))
    assert receipt.status is SendStatus.SEND_OK
    assert [message.body for message in await read_all(rocketmq, topic, 1)] == [b"made"]


async def test_what_rocketmq_refuses_has_its_code_and_is_not_taken_for_stored(rocketmq: RocketMQServers) -> None:
    """A message above maxMessageSize: code 13, surely not stored; without a cause, which RocketMQ does not give."""
    topic = await new_topic(rocketmq, 1)
    group = new_name("producer")
    async with Producer(group, rocketmq.namesrv, max_message_size=8 << 20, send_msg_timeout_ms=60_000) as producer:
        with pytest.raises(SendFailed) as refused:
            await producer.send(Message(topic, bytes(5 << 20)))
        assert refused.value.answer_code == 13
        assert refused.value.stored is Stored.NO
        assert "the broker gave no cause" in str(refused.value)
        assert (await producer.send(Message(topic, b"small"))).status is SendStatus.SEND_OK
    assert [message.body for message in await read_all(rocketmq, topic, 1)] == [b"small"]


@pytest.mark.parametrize("serialize_type", ["JSON", "ROCKETMQ"])
async def test_both_header_forms_work(rocketmq: RocketMQServers, serialize_type: str) -> None:
    """RocketMQ's binary headers are an option; 4.9 answers in them, 5.3 in its own type."""
    topic = await new_topic(rocketmq, 1)
    instance = ClientInstance(rocketmq.namesrv, options=ClientOptions(serialize_type=serialize_type))
    async with Producer(new_name("producer"), instance=instance) as producer:
        receipt = await producer.send(Message(topic, b"x", tags="T", keys="k", properties={"ä": "ö"}))
        receipts = await producer.send_batch([Message(topic, b"%d" % n) for n in range(3)])
        connection = await instance.connection(rocketmq.broker_name, timeout_ms=30_000)
        assert connection.channel.serialize_type == {"JSON": 0, "ROCKETMQ": 1}[serialize_type]
    got = await read_all(rocketmq, topic, 4)
    assert [message.queue_offset for message in got] == [0, 1, 2, 3]
    assert got[0].msg_id == receipt.msg_id
    assert got[0].properties["ä"] == "ö"
    assert [message.msg_id for message in got[1:]] == [each.msg_id for each in receipts]
