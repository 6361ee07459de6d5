"""Request-reply from the SDK to the SDK, and against scripted brokers for answers that a real one does not give."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from pocketmq.client import (
    ClientInstance,
    Message,
    NoReply,
    NotStarted,
    Producer,
    PullConsumer,
    PushConsumer,
    RemotingTooMuchRequestError,
    ReplyIllegal,
    SendFailed,
    SendTimeout,
    is_request,
    reply_to,
)
from pocketmq.client.blocking import Producer as BlockingProducer
from pocketmq.client.connection.reply_table import ReplyTable, reply_table
from pocketmq.client.durable.policy import REQUEST, kind_of
from pocketmq.client.message.request_message import RequestMessage
from pocketmq.client.pull.offsets import ConsumeFromWhere
from pocketmq.common.errors import MessageIllegal, PocketMQError, Stored
from pocketmq.common.message import ReceivedMessage
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.codec import Request, decode_response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import JSON, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.protocol.send import ReplyMessageRequestHeader
from tests.client.real_cluster import RealCluster

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Echo:
    """A consumer that replies to each request with ``echo:`` and its body, or as ``work`` says."""

    def __init__(self, namesrv: str, topic: str, group: str, work: Any = None) -> None:
        self.requests: list[ReceivedMessage] = []
        self.errors: list[PocketMQError] = []
        self.heard = asyncio.Event()
        self._producer = Producer(group="replier", namesrv=namesrv, retry_times_when_send_failed=0)
        self._consumer = PushConsumer(group, namesrv, consume_from_where=FIRST, rebalance_interval_ms=100)
        self._work = work

        @self._consumer.subscribe(topic)
        async def answer(message: ReceivedMessage) -> None:
            if not is_request(message):
                return
            self.requests.append(message)
            self.heard.set()
            if self._work is not None:
                await self._work(message)
            try:
                await self._producer.send(reply_to(message, b"echo:" + message.body, tags="R", properties={"a": "b"}))
            except PocketMQError as error:
                self.errors.append(error)

    async def __aenter__(self) -> "Echo":
        await self._producer.start()
        await self._consumer.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._consumer.stop()
        await self._producer.stop()


async def make_topic(namesrv: str, topic: str) -> None:
    async with Producer(group="maker", namesrv=namesrv) as producer:
        await producer.send(Message(topic, b"no request"))


async def test_a_request_gets_its_reply(broker: Any, topic: str, group: str) -> None:
    """Body, tags, properties and correlation return; of many simultaneous requests each gets its own reply."""
    await make_topic(broker.namesrv, topic)
    async with Producer(group="asker", namesrv=broker.namesrv) as asker, Echo(broker.namesrv, topic, group) as echo:
        reply = await asker.request(Message(topic, b"one", keys="k"), timeout_ms=20_000)
        assert (reply.body, reply.tags, reply.properties["a"]) == (b"echo:one", "R", "b")
        (request,) = echo.requests
        assert request.properties["TTL"] == "20000"
        assert request.properties["REPLY_TO_CLIENT"] == asker.instance.client_id
        assert reply.properties["CORRELATION_ID"] == request.properties["CORRELATION_ID"]
        assert reply.properties["MSG_TYPE"] == "reply"
        assert int(reply.properties["ARRIVE_TIME"]) >= int(reply.properties["PUSH_REPLY_TIME"]) - 1000
        assert reply.topic == "DefaultCluster_REPLY_TOPIC"
        replies = await asyncio.gather(
            *(asker.request(Message(topic, b"%d" % number), timeout_ms=20_000) for number in range(50))
        )
        assert [each.body for each in replies] == [b"echo:%d" % number for number in range(50)]
        table = reply_table(asker.instance)
        assert table is not None
        assert len(table) == 0
        assert not echo.errors


async def test_callbacks_and_threads(broker: Any, topic: str, group: str) -> None:
    """The callback form and the blocking interface give the same; a callback that raises affects no other request."""
    await make_topic(broker.namesrv, topic)
    async with Producer(group="asker", namesrv=broker.namesrv) as asker, Echo(broker.namesrv, topic, group):
        got: list[Any] = []

        def done(result: Any) -> None:
            got.append(result)
            raise ValueError("mine")

        task = asker.request_nowait(Message(topic, b"back"), done, timeout_ms=20_000)
        assert (await task).body == b"echo:back"
        await asyncio.sleep(0)
        assert [each.body for each in got] == [b"echo:back"]
        late = asker.request_nowait(Message("Nobody-listens", b"x"), got.append, timeout_ms=1000)
        with pytest.raises(NoReply):
            await late
        await asyncio.sleep(0)
        assert isinstance(got[1], NoReply)

        def ask() -> bytes:
            with BlockingProducer(group="threads", namesrv=broker.namesrv) as producer:
                return producer.request(Message(topic, b"thread"), timeout_ms=20_000).body

        assert await asyncio.to_thread(ask) == b"echo:thread"


async def test_no_reply_says_what_is_known(broker: Any, topic: str) -> None:
    """Code 10006, the request's place in the log, and that a consumer may have seen it."""
    await make_topic(broker.namesrv, topic)
    async with Producer(group="asker", namesrv=broker.namesrv) as asker:
        with pytest.raises(NoReply) as caught:
            await asker.request(Message(topic, b"hello?"), timeout_ms=1000)
    error = caught.value
    assert (error.code, error.stored) == (10006, Stored.YES)
    assert error.receipt is not None
    assert f"msg_id {error.receipt.msg_id}" in error.why
    assert "is not known" in error.why
    assert "reply_to" in error.hint


async def test_a_late_reply_is_refused_to_who_sends_it(broker: Any, topic: str, group: str) -> None:
    """The requester has given up: the replier learns that no request waits, and that the reply is stored."""
    await make_topic(broker.namesrv, topic)
    go = asyncio.Event()

    async def wait(message: ReceivedMessage) -> None:
        await go.wait()

    async with (
        Producer(group="asker", namesrv=broker.namesrv) as asker,
        Echo(broker.namesrv, topic, group, wait) as echo,
    ):
        with pytest.raises(NoReply):
            await asyncio.gather(asker.request(Message(topic, b"x"), timeout_ms=1500), echo.heard.wait())
        go.set()
        async with asyncio.timeout(60):
            while not echo.errors:  # noqa: ASYNC110  a list, filled by nobody's event
                await asyncio.sleep(0.005)
        (error,) = echo.errors
        assert isinstance(error, SendFailed)
        assert error.stored is Stored.YES
        assert "not matched any request" in str(error)
        table = reply_table(asker.instance)
        assert table is not None
        assert table.late >= 1


async def test_a_requester_that_left_is_named_to_the_replier(broker: Any, topic: str, group: str) -> None:
    """Its producer stopped: the pending request ends with NotStarted, the reply with RocketMQ's text."""
    await make_topic(broker.namesrv, topic)
    go = asyncio.Event()

    async def wait(message: ReceivedMessage) -> None:
        await go.wait()

    async with Echo(broker.namesrv, topic, group, wait) as echo:
        asker = Producer(group="asker", namesrv=broker.namesrv)
        await asker.start()
        asked = asker.request_nowait(Message(topic, b"x"), timeout_ms=20_000)
        async with asyncio.timeout(60):
            await echo.heard.wait()
        await asker.stop()
        with pytest.raises(NotStarted):
            await asked
        go.set()
        async with asyncio.timeout(60):
            while not echo.errors:  # noqa: ASYNC110  a list, filled by nobody's event
                await asyncio.sleep(0.005)
        assert f"channel of <{asker.instance.client_id}> not found." in str(echo.errors[0])


async def test_a_request_that_cannot_be_sent_fails_at_once(broker: Any, topic: str) -> None:
    """The error of the send is raised; no reply could come."""
    async with Producer(group="asker", namesrv=broker.namesrv) as asker:
        with pytest.raises(MessageIllegal):
            await asker.request(Message(topic, b""), timeout_ms=20_000)
        with pytest.raises(MessageIllegal, match="cannot be delayed"):
            await asker.request(Message(topic, b"x", delay_time_level=1), timeout_ms=20_000)
        with pytest.raises(MessageIllegal, match="by themselves"):
            await asker.send_batch([RequestMessage(Message(topic, b"x"), topic, {})])


async def test_waiting_requests_are_bounded(broker: Any, topic: str) -> None:
    """One too many is refused before anything is sent."""
    instance = ClientInstance(broker.namesrv)
    async with Producer(group="asker", instance=instance) as asker:
        table = instance.shared(ReplyTable, lambda: ReplyTable(instance, 1))
        first = asker.request_nowait(Message(topic, b"x"), timeout_ms=20_000)
        await asyncio.sleep(0)
        with pytest.raises(RemotingTooMuchRequestError):
            await asker.request(Message(topic, b"y"), timeout_ms=20_000)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert len(table) == 0


async def test_a_shared_instance_that_was_connected_before_is_known(broker: Any, topic: str, group: str) -> None:
    """Two producers share an instance, and the second starts after the connections: its requests are answered."""
    await make_topic(broker.namesrv, topic)
    instance = ClientInstance(broker.namesrv)
    async with PullConsumer("looker", instance=instance) as looker, Echo(broker.namesrv, topic, group):
        await looker.poll(topic, timeout_ms=0)
        async with Producer(group="one", instance=instance) as one, Producer(group="two", instance=instance) as two:
            replies = await asyncio.gather(
                *(producer.request(Message(topic, b"x"), timeout_ms=20_000) for producer in (one, two) * 3)
            )
            assert {reply.body for reply in replies} == {b"echo:x"}


async def test_in_a_cluster_the_reply_goes_where_the_request_was(tmp_path: Path, group: str) -> None:
    """Of two brokers the replier uses the one that the requester is connected to."""
    cluster = RealCluster(tmp_path)
    await cluster.start("a", "b")
    try:
        await cluster.create_topic("Asked")
        async with Producer("asker", cluster.namesrv) as asker, Echo(cluster.namesrv, "Asked", group) as echo:
            replies = [await asker.request(Message("Asked", b"%d" % each), timeout_ms=20_000) for each in range(8)]
            assert [reply.broker_name for reply in replies] == [request.broker_name for request in echo.requests]
            assert {reply.broker_name for reply in replies} == {"a", "b"}
            assert not echo.errors
    finally:
        await cluster.stop_all()


async def test_large_replies_are_compressed_and_unpacked(broker: Any, topic: str, group: str) -> None:
    """The pushed reply carries its flags, so the requester reads it like a message."""
    await make_topic(broker.namesrv, topic)
    text = json.dumps(list(range(3000))).encode()
    async with (
        Producer(group="asker", namesrv=broker.namesrv) as asker,
        Producer(group="packer", namesrv=broker.namesrv, compress_type="zstd") as packer,
    ):
        async with PullConsumer(group, broker.namesrv) as consumer:
            await consumer.seek(topic, "latest")
            asked = asker.request_nowait(Message(topic, b"x"), timeout_ms=20_000)
            (request,) = await consumer.poll(topic, timeout_ms=20_000)
            await packer.send(reply_to(request, text))
        reply = await asked
    assert reply.body == text
    assert len(reply.raw_body) < len(text)


async def test_what_is_no_request_cannot_be_replied_to(broker: Any, topic: str) -> None:
    """Code 10007, with the missing property."""
    async with Producer(group="p", namesrv=broker.namesrv) as producer:
        await producer.send(Message(topic, b"x"))
    async with PullConsumer("look", broker.namesrv) as consumer:
        (message,) = await consumer.poll(topic, timeout_ms=5000)
    assert not is_request(message)
    with pytest.raises(ReplyIllegal, match="REPLY_TO_CLIENT") as caught:
        reply_to(message, b"y")
    assert caught.value.code == 10007
    nothing: Any = None
    with pytest.raises(ReplyIllegal):
        reply_to(nothing, b"y")


async def test_a_request_that_no_broker_confirms_says_so(broker: Any, topic: str, monkeypatch: Any) -> None:
    """The timeout of the send raises the same error as that of the reply."""
    async with Producer(group="asker", namesrv=broker.namesrv) as asker:
        await asker.send(Message(topic, b"so that route and connection are there"))

        def never(message: Message, **options: Any) -> Any:
            future = asyncio.get_running_loop().create_future()
            future.set_exception(SendTimeout("sendDefaultImpl call timeout", stored=Stored.UNKNOWN))
            return future

        monkeypatch.setattr(asker.port, "send_nowait", never)
        with pytest.raises(NoReply, match="no broker has confirmed") as caught:
            await asker.request(Message(topic, b"x"), timeout_ms=1_000)
    assert (caught.value.receipt, caught.value.stored) == (None, Stored.UNKNOWN)


def test_a_request_is_never_kept_for_a_resend() -> None:
    """No caller would wait for its reply."""
    assert kind_of(RequestMessage(Message("T", b"x"), "T", {"CORRELATION_ID": "c"})) == REQUEST


async def test_a_push_of_a_java_broker_is_read_and_a_bad_one_is_answered() -> None:
    """Java writes addresses as /ip:port; a malformed address, or an unknown reply, causes no harm."""
    instance = ClientInstance("127.0.0.1:1")
    table = ReplyTable(instance)
    future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
    table.add("c-1", future)
    answers: list[Any] = []

    class Channel:
        address = "127.0.0.1:10911"
        closed = False

        def respond(self, buffers: Any) -> None:
            (frame,) = FrameDecoder(new_scratch(), FrameBudget(1 << 20)).feed(b"".join(map(bytes, buffers)))
            answers.append(decode_response(frame, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT).code)

    def push(born_host: str, correlation_id: str, header: bool = True) -> None:
        fields = ReplyMessageRequestHeader(
            "p",
            "R",
            "TBW102",
            4,
            0,
            0,
            5,
            0,
            born_host,
            "/10.0.0.2:10911",
            6,
            f"CORRELATION_ID\x01{correlation_id}\x02",
        )
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        request = Request(code, 3, False, 453, 0, JSON, fields if header else None, b"pong", {})
        instance._on_request(cast(ClientChannel, Channel()), request)

    push("somewhere", "other")
    push("/10.0.0.1:99999", "other", header=False)
    push("/10.0.0.1:5000", "c-1")
    push("/10.0.0.1:5000", "c-1")
    assert answers == [1, 1, 0, 1]
    reply = future.result()
    assert (reply.body, reply.born_host, reply.store_host) == (b"pong", "10.0.0.1:5000", "10.0.0.2:10911")
    assert (reply.born_timestamp, reply.store_timestamp) == (5, 6)
