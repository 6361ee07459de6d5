"""Transactions from the SDK to the SDK, against the real broker."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pocketmq.client import (
    LocalTransactionState,
    Message,
    NoRoute,
    Producer,
    PullConsumer,
    SendStatus,
    TransactionProducer,
    TransactionRefused,
)
from pocketmq.client.blocking_transaction import TransactionProducer as BlockingProducer
from pocketmq.client.connection.instance import BrokerConnection, ClientInstance
from pocketmq.client.message.transaction_message import HalfMessage, TransactionNotBegun, as_state
from pocketmq.common.errors import ConfigError, MessageIllegal, PocketMQError
from pocketmq.common.logs import CapturedLog
from pocketmq.testing.broker import PocketBroker
from tests.client.real_cluster import RealCluster

STATE = LocalTransactionState
FAST: dict[str, Any] = {
    "transaction_time_out": 1,
    "transaction_check_interval": 20,
    "transaction_check_max": 100_000,  # 15 checks are over in 0.3 s, perhaps before the answering producer has started
}


@pytest.fixture(scope="module")
def asking() -> Iterator[PocketBroker]:
    """Start a broker that checks at once."""
    with PocketBroker(broker=FAST) as broker:
        yield broker


async def bodies(namesrv: str, topic: str) -> list[bytes]:
    """Return the present bodies of a topic, in any order; nothing while the name server does not know it."""
    async with PullConsumer(group="look", namesrv=namesrv) as consumer:
        try:
            return sorted([m.body async for m in consumer.stream(topic, start="earliest", stop_at_end=True)])
        except NoRoute:
            return []


async def eventually(probe: Callable[[], Any]) -> None:
    """Wait until ``probe`` (plain or async) returns true; a minute at most."""
    async with asyncio.timeout(60):
        while True:
            result = probe()
            if await result if inspect.isawaitable(result) else result:
                return
            await asyncio.sleep(0.005)


async def eventually_bodies(namesrv: str, topic: str, wanted: list[bytes]) -> None:
    """Wait until a topic holds exactly these bodies."""

    async def same() -> bool:
        return await bodies(namesrv, topic) == wanted

    await eventually(same)


async def never(message: Any) -> None:
    raise AssertionError("nobody should ask")


async def test_each_state_ends_as_it_says(broker: Any) -> None:
    """Enum, True, False, from async and plain functions; the receipt has the broker's confirmation."""
    topic = "TxStates"
    async with TransactionProducer("tx", broker.namesrv, check=never) as producer:
        await producer.send(Message(topic, b"plain"))

        async def commit(message: Message) -> LocalTransactionState:
            return STATE.COMMIT_MESSAGE

        one = await producer.send_in_transaction(Message(topic, b"async", keys=["k"], tags="A"), commit)
        two = await producer.send_in_transaction(Message(topic, b"plain function"), lambda message: True)
        no = await producer.send_in_transaction(Message(topic, b"no"), lambda message: False)
        assert (one.committed, two.committed, no.committed) == (True, True, False)
        assert (no.state, no.acknowledged) == (STATE.ROLLBACK_MESSAGE, True)
        async with producer.transaction(Message(topic, b"body", sharding_key="s")) as transaction:
            assert transaction.msg_id
        assert transaction.result is not None
        assert transaction.result.committed
        transaction = producer.transaction(Message(topic, b"raised"))
        transaction.rollback()
        with pytest.raises(ZeroDivisionError):
            async with transaction:
                raise ZeroDivisionError
        assert transaction.result is not None
        assert transaction.result.state is STATE.ROLLBACK_MESSAGE
        async with producer.transaction(Message(topic, b"said no")) as transaction:
            transaction.rollback()
        slow = await producer.send_in_transaction(
            Message(topic, b"immune"), commit, check_immunity_sec=60, timeout_ms=2000
        )
        assert slow.committed
    wanted = [b"async", b"body", b"immune", b"plain", b"plain function"]
    assert await bodies(broker.namesrv, topic) == wanted
    async with PullConsumer(group="look", namesrv=broker.namesrv) as consumer:
        found = {m.msg_id: m async for m in consumer.stream(topic, start="earliest", stop_at_end=True)}
    message = found[one.msg_id]
    assert (message.keys, message.tags, message.prepared_offset > 0) == (["k"], "A", True)
    assert found[slow.msg_id].properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "60"


async def test_what_cannot_be_a_transaction_is_refused_before_it_is_sent(broker: Any) -> None:
    """Delayed messages, a check that cannot be called, an impossible immunity, an unknown state."""
    no_check: Any = None
    with pytest.raises(ConfigError, match="cannot be called"):
        TransactionProducer("tx", broker.namesrv, check=no_check)
    async with TransactionProducer("tx", broker.namesrv, check=never) as producer:
        for message in (Message("Tx", b"x", delay_time_level=3), Message("Tx", b"x", delay_time_ms=5)):
            with pytest.raises(MessageIllegal, match="without the delay"):
                await producer.send_in_transaction(message, lambda message: True)
        with pytest.raises(MessageIllegal, match="check_immunity_sec"):
            await producer.send_in_transaction(Message("Tx", b"x"), lambda message: True, check_immunity_sec=0)
    with pytest.raises(PocketMQError, match="no state"):
        as_state("yes")
    assert [as_state(each) for each in (True, False, None)] == list(STATE)


@pytest.mark.parametrize("plain", [False, True])
async def test_what_is_unknown_is_asked_for(asking: PocketBroker, plain: bool) -> None:
    """None, an exception and a nonsense result leave the decision to the check; the caller gets the exception."""
    topic = f"TxUnknown{plain}"
    verdicts = {b"none": True, b"raised": True, b"nonsense": False}

    async def check_async(message: Any) -> bool:
        return verdicts[message.body]

    check = (lambda message: verdicts[message.body]) if plain else check_async
    async with TransactionProducer(f"unknown{plain}", asking.namesrv, check=check) as producer:
        result = await producer.send_in_transaction(Message(topic, b"none"), lambda message: None)
        assert (result.state, result.acknowledged) == (STATE.UNKNOW, False)

        async def fails(message: Message) -> None:
            raise RuntimeError("the database is gone")

        with pytest.raises(RuntimeError, match="database") as raised:
            await producer.send_in_transaction(Message(topic, b"raised"), fails)
        assert "half message" in raised.value.__notes__[0]
        with pytest.raises(PocketMQError, match="no state"):
            await producer.send_in_transaction(Message(topic, b"nonsense"), lambda message: "yes")
        await eventually_bodies(asking.namesrv, topic, [b"none", b"raised"])
        await eventually(lambda: producer.checks.checked >= 3)


async def test_a_check_that_raises_or_hangs_harms_no_other(asking: PocketBroker) -> None:
    """Both count as unknown and are logged; the good one beside them is answered; the bad ones are checked again."""
    topic, log = "TxBadChecks", CapturedLog()
    tries: dict[bytes, int] = {}

    async def check(message: Any) -> Any:
        count = tries[message.body] = tries.get(message.body, 0) + 1
        if count > 1 or message.body == b"good":
            return True
        if message.body == b"hangs":
            await asyncio.sleep(3600)
        if message.body == b"cancelled":
            raise asyncio.CancelledError
        return {b"nonsense": 7}[message.body]

    instance = ClientInstance(asking.namesrv, log=log)
    async with TransactionProducer(
        "bad", check=check, check_timeout_ms=50, check_concurrency=2, instance=instance
    ) as producer:
        names = [b"hangs", b"raises", b"nonsense", b"cancelled", b"good"]
        await asyncio.gather(
            *(producer.send_in_transaction(Message(topic, name), lambda message: None) for name in names)
        )
        await eventually_bodies(asking.namesrv, topic, sorted(names))
        assert producer.checks.failed == 4
    told = [event["why"] for event in log.events if event["event"] == "transaction_check_failed"]
    assert len(told) == 4
    assert any("no answer after 50 ms" in why for why in told)


async def test_a_running_local_transaction_is_not_asked_about(asking: PocketBroker) -> None:
    """Its process itself answers "unknown": the check might see a state that is about to change."""
    release = asyncio.Event()

    async def local(message: Message) -> bool:
        await eventually(lambda: producer.checks.checked >= 2)
        release.set()
        return True

    async with TransactionProducer("running", asking.namesrv, check=never) as producer:
        result = await producer.send_in_transaction(Message("TxRunning", b"x"), local)
        assert release.is_set()
        assert result.committed
        assert producer.checks.failed == 0


async def test_a_producer_that_comes_later_is_asked_for_its_group(asking: PocketBroker) -> None:
    """The first process has gone; another one of the group, which has sent no message, answers."""
    async with TransactionProducer("handover", asking.namesrv, check=never) as first:
        first.instance.remove_request_handler(39, first.checks.on_request)
        await first.send_in_transaction(Message("TxLater", b"x"), lambda message: None)
    async with TransactionProducer("handover", asking.namesrv, check=lambda message: True):
        await eventually_bodies(asking.namesrv, "TxLater", [b"x"])


@pytest.fixture
def asking_alone() -> Iterator[PocketBroker]:
    """Start a broker that checks at once, without half messages of other tests."""
    with PocketBroker(broker=FAST) as broker:
        yield broker


async def test_a_decision_against_the_brokers_is_refused_loudly(asking_alone: PocketBroker) -> None:
    """A check has rolled it back while the local transaction committed: the caller gets an error."""
    decided = threading.Event()

    def check(message: Any) -> bool:
        decided.set()
        return False

    async with TransactionProducer("against", asking_alone.namesrv, check=check) as producer:

        async def local(message: Message) -> bool:
            producer.checks.end(next(iter(producer.checks._running)))  # as another process of the group would do
            await asyncio.to_thread(decided.wait, 20)
            transactions = asking_alone.app.transactions
            assert transactions is not None
            await eventually(lambda: not len(transactions.table))
            return True

        with pytest.raises(TransactionRefused, match="rolled back before") as raised:
            await producer.send_in_transaction(Message("TxAgainst", b"x"), local)
        assert raised.value.answer_code == 201
        assert await bodies(asking_alone.namesrv, "TxAgainst") == []


async def test_a_broker_without_native_transactions_gets_rocketmqs_requests(broker: Any) -> None:
    """Typed half messages and oneway ends, as for a real RocketMQ; the receipt claims no confirmation."""
    async with TransactionProducer("typed", broker.namesrv, check=never) as producer:
        await producer.send(Message("TxTyped", b"open"))
        connections: dict[str, BrokerConnection] = producer.instance._connections
        for address, connection in list(connections.items()):
            assert connection.announcement is not None
            announcement = msgspec.structs.replace(connection.announcement, transactions=0, native=0)
            connections[address] = BrokerConnection(connection.broker_name, address, connection.channel, announcement)
        result = await producer.send_in_transaction(Message("TxTyped", b"typed"), lambda message: True)
        assert (result.state, result.acknowledged) == (STATE.COMMIT_MESSAGE, False)
        await eventually_bodies(broker.namesrv, "TxTyped", [b"open", b"typed"])


async def test_a_lost_answer_is_asked_again_and_not_delivered_twice(tmp_path: Path) -> None:
    """The connection breaks while the end is on its way: the next attempt learns that it was committed before."""
    cluster = RealCluster(tmp_path)
    await cluster.start("a")
    await cluster.create_topic("T", queues=1)
    try:
        async with TransactionProducer("lost", cluster.namesrv, check=never) as producer:
            await producer.send(Message("T", b"open"))
            connection = producer.instance.open_connection("a")
            assert connection is not None

            async def local(message: Message) -> bool:
                channel: Any = connection.channel
                original = channel.request_nowait

                def once(code: int, header: Any, body: bytes, **rest: Any) -> None:
                    original(code, header, body, **rest)
                    asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(channel.close))

                channel.request_nowait = once
                return True

            result = await producer.send_in_transaction(Message("T", b"x"), local)
            assert result.committed
        assert await bodies(cluster.namesrv, "T") == [b"open", b"x"]
    finally:
        await cluster.stop_all()


async def test_a_broker_that_is_gone_leaves_the_decision_to_the_check(tmp_path: Path) -> None:
    """The end cannot be delivered: no error, an event, acknowledged is False; a restarted broker checks and commits."""
    cluster = RealCluster(tmp_path)
    await cluster.start("a")
    await cluster.create_topic("T", queues=1)
    log = CapturedLog()
    try:
        instance = ClientInstance(cluster.namesrv, log=log)
        async with TransactionProducer(
            "gone", check=lambda message: True, instance=instance, send_msg_timeout_ms=5000
        ) as producer:
            await producer.send(Message("T", b"open"))

            async def local(message: Message) -> bool:
                await cluster.stop("a")
                return True

            result = await producer.send_in_transaction(Message("T", b"x"), local)
            assert (result.state, result.acknowledged) == (STATE.COMMIT_MESSAGE, False)
        assert "transaction_end_unconfirmed" in {event["event"] for event in log.events}
        app = await cluster.add("a")
        assert app.transactions is not None
        assert len(app.transactions.table) == 1
    finally:
        await cluster.stop_all()


async def test_a_half_message_that_is_not_safe_begins_nothing(broker: Any) -> None:
    """It is stored, but its status is not SEND_OK: the local transaction does not run, the half is rolled back."""
    async with TransactionProducer("unsafe", broker.namesrv, check=never) as producer:
        await producer.send(Message("TxUnsafe", b"open"))
        ran: list[Message] = []
        patched: Any = producer.port
        original = patched.send_half

        def doubtful(*arguments: Any) -> Any:
            future = original(*arguments)

            async def changed() -> Any:
                receipt = await future
                receipt._outcome.status = SendStatus.FLUSH_DISK_TIMEOUT
                return receipt

            return changed()

        patched.send_half = doubtful
        with pytest.raises(TransactionNotBegun, match="FLUSH_DISK_TIMEOUT"):
            await producer.send_in_transaction(Message("TxUnsafe", b"x"), ran.append)
        assert ran == []
        assert await bodies(broker.namesrv, "TxUnsafe") == [b"open"]
        assert producer._ends.acknowledged == 1


async def test_many_transactions_at_once_agree_with_their_local_side(broker: Any) -> None:
    """A thousand in flight, half of them rolled back, beside plain sends: exactly the committed ones arrive, once."""
    topic = "TxMany"
    async with (
        TransactionProducer("many", broker.namesrv, check=never) as producer,
        Producer("plain", broker.namesrv) as plain,
    ):

        async def one(number: int) -> None:
            async def local(message: Message) -> bool:
                await asyncio.sleep(0)
                return number % 2 == 0

            await producer.send_in_transaction(Message(topic, b"%04d" % number, keys=[f"k{number}"]), local)

        await asyncio.gather(*map(one, range(1000)), *(plain.send(Message("TxPlain", b"x")) for _ in range(300)))
    assert await bodies(broker.namesrv, topic) == [b"%04d" % number for number in range(0, 1000, 2)]


def test_threads_have_the_same_transactions(broker: Any) -> None:
    """The blocking interface: the body runs in the calling thread, functions in a separate thread."""
    where: list[int] = []

    def local(message: HalfMessage) -> bool:
        where.append(threading.get_ident())
        return bool(message.msg_id)

    with BlockingProducer("threads", broker.namesrv, check=never) as producer:
        producer.send(Message("TxThreads", b"open"))
        with producer.transaction(Message("TxThreads", b"body")) as transaction:
            assert transaction.msg_id == transaction.receipt.msg_id
        assert transaction.result is not None
        assert transaction.result.committed
        assert producer.send_in_transaction(Message("TxThreads", b"function"), local).committed
        transaction = producer.transaction(Message("TxThreads", b"raised"))
        transaction.rollback()
        with pytest.raises(ZeroDivisionError), transaction:
            raise ZeroDivisionError
        with producer.transaction(Message("TxThreads", b"no")) as transaction:
            transaction.rollback()
    assert where != [threading.get_ident()]
    assert asyncio.run(bodies(broker.namesrv, "TxThreads")) == [b"body", b"function", b"open"]
