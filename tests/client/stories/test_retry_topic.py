"""Failed messages are redelivered: through the retry topic of a real broker, around a broker that is gone, into the
dead letters, and after a restart.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import ConsumeFromWhere, Message, Producer, PullConsumer, PushConsumer, ReceivedMessage
from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.dead_letters import TO_ORIGIN, TO_RETRY, DeadLetters
from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.handlers.consume_result import ConsumeResult, Later
from pocketmq.client.idempotence import Idempotent
from pocketmq.client.push.send_back import SendBack, show_origin
from pocketmq.common.errors import ConfigError, MessageIllegal
from pocketmq.common.logs import CapturedLog
from pocketmq.common.redelivery import LAST_ERROR, LAST_ERROR_LENGTH_MAX, RESENT_FROM, error_line
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.send import SendMessageResponseHeader
from pocketmq.testing.broker import PocketBroker
from tests.client.conftest import until_known
from tests.client.idempotence.conftest import message_of
from tests.client.real_cluster import RealCluster
from tests.delays import ALL_ONE_SECOND, short_seconds

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture(scope="module")
def fast_broker() -> Any:
    """A broker whose delay levels are 50 ms each."""
    with short_seconds(), PocketBroker(store=ALL_ONE_SECOND) as running:
        yield running


@pytest.fixture
async def producer(fast_broker: PocketBroker, group: str) -> AsyncIterator[Producer]:
    async with Producer(group=group, namesrv=fast_broker.namesrv) as running:
        yield running


def consumer_of(namesrv: str, group: str, **options: Any) -> PushConsumer:
    return PushConsumer(
        group, namesrv, **{"consume_from_where": FIRST, "rebalance_interval_ms": 100, "retry_delay_ms": 50, **options}
    )


async def until(condition: Any, timeout_s: float = 60) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def dead_letters(namesrv: str, group: str, count: int = 1) -> list[ReceivedMessage]:
    """Wait for so many dead letters of a group."""
    async with Admin(namesrv) as admin, asyncio.timeout(60):
        while True:
            try:
                found = [message async for message in DeadLetters(admin).read(group)]
            except Exception as error:
                if "route" not in str(error).lower():
                    raise
                found = []
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_message_fails_until_it_is_dead(pocketmq_broker: PocketBroker, topic: str, group: str) -> None:
    """After an exception, LATER, or a level, it returns under its own topic, id and attempt count; at last it is a dead
    letter with its origin and reason.
    """
    seen: list[tuple[str, str, int, str, str]] = []
    consumer = pocketmq_broker.consumer(group, max_reconsume_times=3)
    answers: list[Any] = [ValueError("boom"), ConsumeResult.LATER, Later(delay_level=1), ValueError("the end")]

    @consumer.subscribe(topic, tags="A")
    async def handle(message: ReceivedMessage) -> Any:
        seen.append((message.topic, message.msg_id, message.reconsume_times, message.origin_message_id, message.tags))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with pocketmq_broker.producer() as producer, consumer:
        receipt = await producer.send(Message(topic, b"pay", tags="A", keys=["k"], properties={"mine": "x"}))
        await pocketmq_broker.until_idle(group, skip_delays=True)  # 10 s, 30 s and a level
        async with Admin(instance=producer.instance) as admin:
            (letter,) = [message async for message in DeadLetters(admin).read(group)]
    assert [times for _, _, times, _, _ in seen] == [0, 1, 2, 3]
    assert {(name, msg_id, tags) for name, msg_id, _, _, tags in seen} == {(topic, receipt.msg_id, "A")}
    assert [origin for _, _, _, origin, _ in seen] == ["", *[receipt.offset_msg_id] * 3]
    assert (letter.body, letter.msg_id, letter.reconsume_times) == (b"pay", receipt.msg_id, 4)
    assert (letter.keys, letter.tags, letter.properties["mine"]) == (["k"], "A", "x")
    assert (letter.properties["RETRY_TOPIC"], letter.origin_message_id) == (topic, receipt.offset_msg_id)
    assert letter.properties[LAST_ERROR] == "ValueError('the end')"


async def test_a_handler_can_give_up_at_once(
    fast_broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """Level -1: the first failure is the last; the rest of a batch is not affected."""
    await producer.send_batch([Message(topic, b"%d" % number, sharding_key="s") for number in range(4)])
    consumer = consumer_of(fast_broker.namesrv, group + "c")
    done: list[bytes] = []

    @consumer.subscribe_batch(topic)
    async def handle(batch: list[ReceivedMessage]) -> Later:
        done.extend(message.body for message in batch if message.body != b"2")
        return Later(delay_level=-1, messages=[message for message in batch if message.body == b"2"])

    async with consumer:
        (letter,) = await dead_letters(fast_broker.namesrv, group + "c")
        await until(lambda: len(done) == 3)
    assert (letter.body, letter.reconsume_times, sorted(done)) == (b"2", 1, [b"0", b"1", b"3"])
    async with Admin(fast_broker.namesrv) as admin:
        progress = await admin.describe_group(group + "c", topic=topic)
        assert progress.lag == 0


async def test_an_ordered_message_that_keeps_failing_dies_in_its_order(
    fast_broker: PocketBroker, producer: Producer, topic: str, group: str
) -> None:
    """It is retried here, in its place, until the attempts are used up; then the queue goes on."""
    await producer.send_batch([Message(topic, b"%d" % number, sharding_key="s") for number in range(3)])
    options = {"max_reconsume_times": 2, "suspend_current_queue_time_millis": 10}
    consumer = consumer_of(fast_broker.namesrv, group + "c", **options)
    seen: list[bytes] = []

    @consumer.subscribe(topic, ordered=True)
    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body == b"1":
            raise ValueError("never")

    async with consumer:
        (letter,) = await dead_letters(fast_broker.namesrv, group + "c")
        await until(lambda: len(seen) == 5)
    assert seen == [b"0", b"1", b"1", b"1", b"2"]
    assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"1", topic)


@pytest.mark.slow
async def test_a_retry_survives_a_restart_of_broker_and_consumer(tmp_path: Path, topic: str, group: str) -> None:
    """The copy waits in the log, not in memory."""
    with short_seconds(), PocketBroker(store=ALL_ONE_SECOND, data_dir=tmp_path) as broker:
        async with Producer(group=group, namesrv=broker.namesrv) as producer:
            await producer.send(Message(topic, b"again"))
        consumer = consumer_of(broker.namesrv, group + "c")
        failed = asyncio.Event()

        @consumer.subscribe(topic)
        async def fails(message: ReceivedMessage) -> ConsumeResult:
            failed.set()
            return ConsumeResult.LATER

        async with consumer:
            await failed.wait()
            policy: Any = consumer._policy
            await until(lambda: policy.sent_back == 1)
    with short_seconds(), PocketBroker(store=ALL_ONE_SECOND, data_dir=tmp_path) as broker:
        consumer = consumer_of(broker.namesrv, group + "c")
        seen: list[tuple[bytes, int]] = []

        @consumer.subscribe(topic)
        async def works(message: ReceivedMessage) -> None:
            seen.append((message.body, message.reconsume_times))

        async with consumer:
            await until(lambda: seen)
    assert seen == [(b"again", 1)]


@pytest.mark.slow
async def test_a_broker_that_is_gone_keeps_no_message_from_its_retry(tmp_path: Path, topic: str, group: str) -> None:
    """Messages in hand fail after it has gone: their copies go to the retry topic at another broker."""
    cluster = RealCluster(tmp_path)
    await cluster.start("a", "b")
    await cluster.create_topic(topic, queues=1)
    log = CapturedLog()
    instance = ClientInstance(cluster.namesrv, log=log)
    try:
        async with Producer(group=group, namesrv=cluster.namesrv) as producer:
            for _ in range(4):
                await producer.send(Message(topic, b"x"))
        consumer = consumer_of("", group + "c", instance=instance)
        in_hand: dict[str, ReceivedMessage] = {}
        go_on = asyncio.Event()

        @consumer.subscribe(topic)
        async def handle(message: ReceivedMessage) -> ConsumeResult:
            in_hand.setdefault(message.broker_name, message)
            await go_on.wait()
            return ConsumeResult.LATER

        async with consumer:
            await until(lambda: len(in_hand) == 2)
            async with consumer._rebalance_service._lock:  # no round notices that the broker has gone
                await cluster.stop("a")
                go_on.set()
                policy: Any = consumer._policy
                await until(lambda: policy.sent_back >= 4, 60)
            assert (policy.sent_back, policy.sent_as_copy, policy.not_taken) == (4, 2, 0)
            await until(lambda: cluster.brokers["b"].store.max_offset("SCHEDULE_TOPIC_XXXX", 2) == 4)
        (told,) = log.of("send_back_failed")[:1]
        assert told["broker"] == "a"
    finally:
        await cluster.stop_all()


async def _all(admin: Admin, topic: str) -> AsyncIterator[ReceivedMessage]:
    async with PullConsumer("audit", instance=admin.instance) as consumer:
        async for message in consumer.stream(topic, start="earliest", stop_at_end=True):
            yield message


@pytest.mark.slow
async def test_what_nobody_takes_stays_here_and_is_consumed_again(
    fast_broker: PocketBroker, producer: Producer, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways fail: the handler gets it again after the pause, with the offset unchanged; then the broker works."""
    await producer.send(Message(topic, b"x"))
    consumer = consumer_of(fast_broker.namesrv, group + "c")
    seen: list[int] = []
    policy: Any = consumer._policy
    good = policy._send_back
    failures = 0

    async def broken(*arguments: Any, **_: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures > 2:
            return await good(*arguments)
        raise MessageIllegal("refused", why="the test wants it")

    monkeypatch.setattr(policy, "_send_back", broken)
    monkeypatch.setattr(policy._copies, "send", broken)

    @consumer.subscribe(topic)
    async def handle(message: ReceivedMessage) -> ConsumeResult:
        seen.append(message.reconsume_times)
        return ConsumeResult.LATER if len(seen) < 3 else ConsumeResult.SUCCESS

    async with consumer:
        await until(lambda: len(seen) == 3)
    assert seen == [0, 0, 1]
    assert (policy.not_taken, policy.sent_back) == (1, 1)


async def test_a_rocketmq_broker_gets_rocketmqs_request(
    topic: str, group: str, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no field of ours and 16 attempts as in RocketMQ's clients; when refused, the copy is as theirs."""
    server = await cluster.add("b")
    cluster.topics[topic] = cluster.topics[f"%RETRY%{group}"] = ["b"]
    requests: list[Any] = []

    def take_back(connection: Any, request: Any) -> Any:
        requests.append(request)
        return ResponseCode.SYSTEM_BUSY, "busy", None, b""

    def take_copy(connection: Any, request: Any) -> Any:
        requests.append(request)
        return 0, "", SendMessageResponseHeader("7F000001000000010000000000000000", 0, 0), b""

    server.answers[RequestCode.CONSUMER_SEND_MSG_BACK] = take_back
    server.answers[RequestCode.SEND_MESSAGE_V2] = take_copy
    instance = ClientInstance(cluster.namesrv.address, log=CapturedLog())
    connection_of = instance.connection

    async def connection_without_announcement(name: str, **settings: Any) -> Any:
        return dataclasses.replace(await connection_of(name, **settings), announcement=None)

    monkeypatch.setattr(instance, "connection", connection_without_announcement)
    await instance.start()
    try:
        await until_known(instance, topic)
        message = message_of(b"pay", "U1", topic)
        message.broker_name = "b"
        policy = SendBack(instance, group)
        assert await policy.failed([message], "boom", 0) == ()
        back, copy = (request.header for request in requests)
        assert (back.delay_level, back.max_reconsume_times, back.last_error) == (0, 16, "")
        assert (back.offset, back.group, back.origin_topic) == (message.physical_offset, group, topic)
        assert (copy.topic, copy.reconsume_times, copy.max_reconsume_times) == (f"%RETRY%{group}", 1, 16)
        for pair in ("DELAY\x013", f"RETRY_TOPIC\x01{topic}", "UNIQ_KEY\x01U1"):
            assert f"{pair}\x02" in copy.properties
        assert await policy.failed([message], "boom", -1) == ()
        assert requests[-1].header.max_reconsume_times == 0
        assert "DELAY" not in requests[-1].header.properties
        assert (policy.sent_back, policy.sent_as_copy) == (2, 2)
    finally:
        await instance.stop()


@pytest.mark.slow
async def test_duplicates_and_resends_of_what_is_done_reach_no_handler(
    fast_broker: PocketBroker, producer: Producer, topic: str, group: str, tmp_path: Path
) -> None:
    """The whole chain: fails, dies, is sent again by an administrator, works; sent once more, it is skipped."""
    receipt = await producer.send(Message(topic, b"pay"))
    consumer = consumer_of(fast_broker.namesrv, group + "c", max_reconsume_times=0)
    idempotent = Idempotent(f"sqlite:///{tmp_path}/marks.db", scope=group)
    works, effects = False, []

    @consumer.subscribe(topic)
    @idempotent
    async def charge(message: ReceivedMessage) -> None:
        if not works:
            raise ValueError("no money")
        effects.append(message.msg_id)

    async with Admin(fast_broker.namesrv) as admin, idempotent, consumer:
        (letter,) = await dead_letters(fast_broker.namesrv, group + "c")
        letters = DeadLetters(admin)
        assert (await letters.resends(letter, group + "c")).count == 0
        works = True
        await letters.resend(letter, group + "c", TO_RETRY)
        await until(lambda: effects)
        assert (await letters.resends(letter, group + "c")).count == 1
        await letters.resend(letter, group + "c", TO_ORIGIN)
        await until(lambda: idempotent.counts.skipped == 1)
        sent = await letters.resends(letter, group + "c")
        assert (sent.count, sent.error) == (2, "")
        (again,) = [message async for message in _all(admin, topic) if RESENT_FROM in message.properties]
        assert (again.properties[RESENT_FROM], again.reconsume_times) == (letter.offset_msg_id, 0)
        assert LAST_ERROR not in again.properties
        assert [each.group for each in await letters.groups() if each.group == group + "c"] == [group + "c"]
    assert effects == [receipt.msg_id]


def test_the_reason_of_a_failure_is_one_bounded_line() -> None:
    """Any error of a handler fits into a property."""
    assert error_line("") == ""
    assert error_line("a\nb\x01c\x02 \t d") == "a b c d"
    assert error_line("a\ud800b") == "a b"
    long = error_line("x" * 10_000)
    assert (len(long), long[-3:]) == (LAST_ERROR_LENGTH_MAX, "...")


def test_only_messages_of_retry_topics_change_their_topic() -> None:
    """A RETRY_TOPIC property has no meaning elsewhere."""
    plain, retried, bare = message_of(topic="T"), message_of(topic="%RETRY%g"), message_of(topic="%RETRY%g")
    plain.properties["RETRY_TOPIC"] = retried.properties["RETRY_TOPIC"] = "origin"
    show_origin([plain, retried, bare])
    assert [message.topic for message in (plain, retried, bare)] == ["T", "origin", "%RETRY%g"]


@pytest.mark.parametrize("times", [-2, 1 << 31, 1.5, True])
def test_a_limit_that_cannot_be_meant_is_refused(times: Any) -> None:
    """Only whole numbers from -1 on are accepted."""
    with pytest.raises(ConfigError, match="max_reconsume_times"):
        SendBack(ClientInstance("127.0.0.1:1"), "g", times)


def test_a_group_whose_name_is_too_long_for_a_retry_topic_is_refused() -> None:
    """The error comes when the consumer is made, not with its first failure; broadcasting needs no retry topic."""
    with pytest.raises(ConfigError, match="at most 120"):
        PushConsumer("g" * 121, "127.0.0.1:1")
    PushConsumer("g" * 121, "127.0.0.1:1", message_model="BROADCASTING")
