"""A producer with one name server and two or three real brokers: no message is lost, the load is not amplified."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import (
    ClientInstance,
    ClientOptions,
    ConsumeFromWhere,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    SendFailed,
)
from pocketmq.client.blocking import Producer as BlockingProducer
from pocketmq.common.errors import Cause, Stored
from tests.client.real_cluster import RealCluster

pytestmark = pytest.mark.slow

TOPIC = "Orders"


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[RealCluster]:
    """Start brokers a and b with the topic on both."""
    cluster = RealCluster(tmp_path)
    await cluster.start("a", "b")
    await cluster.create_topic(TOPIC)
    yield cluster
    await cluster.stop_all()


def instance_of(cluster: RealCluster) -> ClientInstance:
    """Return a client that fetches routes every 100 ms."""
    return ClientInstance(cluster.namesrv, options=ClientOptions(poll_name_server_interval_ms=100))


async def read_ids(cluster: RealCluster, group: str = "reader") -> Counter[str]:
    async with PullConsumer(group, cluster.namesrv) as consumer:
        stream = consumer.stream(TOPIC, start="earliest", stop_at_end=True)
        return Counter([message.msg_id async for message in stream])


async def test_what_one_broker_refuses_the_other_takes(real: RealCluster) -> None:
    """A refuses every send for much longer than the budget's floor: all are delivered, each once."""
    offered = real.refuse("a")
    async with Producer("g", real.namesrv) as producer:
        receipts = [await producer.send(Message(TOPIC, b"%d" % number)) for number in range(100)]
    assert {receipt.broker for receipt in receipts} == {"b"}
    assert not any(receipt.duplicate_possible for receipt in receipts)
    assert 40 <= len(offered) <= 60
    assert await read_ids(real) == Counter(receipt.msg_id for receipt in receipts)
    real.refuse("a", None)


async def test_where_both_refuse_the_load_is_not_amplified(real: RealCluster) -> None:
    """Both brokers get at most 1.1 times as many requests as sends, and every error lists all attempts."""
    offered = [real.refuse(name) for name in ("a", "b")]
    async with Producer("g", real.namesrv) as producer:
        errors: list[Any] = []
        for _ in range(200):
            errors += await asyncio.gather(producer.send(Message(TOPIC, b"x")), return_exceptions=True)
        assert all(isinstance(error, SendFailed) for error in errors)
        assert 200 <= sum(map(len, offered)) <= 220
        last = errors[-1].attempts[-1]
        assert (last.cause, last.stored, last.retry_after_ms) == (Cause.PAGE_CACHE_BUSY, Stored.NO, 10)
        assert "the retry budget is empty" in str(errors[-1])
        for name in ("a", "b"):
            real.refuse(name, None)
        receipts = [await producer.send(Message(TOPIC, b"x")) for _ in range(20)]  # and the producer is not locked out
    assert {receipt.broker for receipt in receipts} == {"a", "b"}
    assert await read_ids(real) == Counter(receipt.msg_id for receipt in receipts)


async def test_a_broker_that_goes_in_the_middle_loses_nothing(real: RealCluster) -> None:
    """Every send ends with a receipt; messages with one on the live broker are there."""
    async with Producer("g", instance=instance_of(real)) as producer:
        receipts = [await producer.send(Message(TOPIC, b"%d" % number)) for number in range(20)]

        sent: list[Any] = []
        gone = asyncio.Event()

        async def go_on() -> list[Any]:
            after = 0
            while after < 100:
                after += gone.is_set()
                sent.append(producer.send_nowait(Message(TOPIC, b"%d" % len(sent))))
                await asyncio.sleep(0.001)
            return await asyncio.gather(*sent)

        going = asyncio.ensure_future(go_on())
        while len(sent) < 50:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await real.stop("a")
        gone.set()
        receipts += await going
    assert len(receipts) == 20 + len(sent)
    on_b = {receipt.msg_id for receipt in receipts if receipt.broker == "b"}
    assert on_b <= set(await read_ids(real))
    assert {receipt.broker for receipt in receipts[-20:]} == {"b"}


async def test_the_blocking_face_has_the_same_options(real: RealCluster) -> None:
    """Its options and errors are the same, from a thread."""
    for name in ("a", "b"):
        real.refuse(name)

    def send() -> SendFailed:
        with BlockingProducer(
            "g",
            real.namesrv,
            retry_times_when_send_failed=1,
            retry_times_when_send_async_failed=0,
            send_latency_fault_enable=True,
            retry_budget_ratio=0.5,
        ) as producer:
            assert isinstance(producer.send_nowait(Message(TOPIC, b"x")).exception(20), SendFailed)
            with pytest.raises(SendFailed) as caught:
                producer.send(Message(TOPIC, b"x"))
            return caught.value

    error = await asyncio.to_thread(send)
    assert [attempt.cause for attempt in error.attempts] == [Cause.PAGE_CACHE_BUSY] * 2
    assert {attempt.broker for attempt in error.attempts} == {"a", "b"}


async def test_a_broker_with_a_copied_topic_table_takes_traffic_without_a_restart(real: RealCluster) -> None:
    """topics.json of A in the new store of C: running producers and consumers use C with their next route refresh."""
    handled: Counter[str] = Counter()
    consumer = PushConsumer(
        "readers", instance=instance_of(real), consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )

    @consumer.subscribe(TOPIC)
    async def handle(message: Any) -> None:
        handled[message.msg_id] += 1

    async with consumer, Producer("g", instance=instance_of(real)) as producer:
        receipts = [await producer.send(Message(TOPIC, b"before")) for _ in range(8)]
        assert {receipt.broker for receipt in receipts} == {"a", "b"}
        real.copy_topics("a", "c")
        await real.add("c")
        async with asyncio.timeout(60):
            while not any(receipt.broker == "c" for receipt in receipts):
                receipts.append(await producer.send(Message(TOPIC, b"after")))
                await asyncio.sleep(0.01)
        receipts += [await producer.send(Message(TOPIC, b"after")) for _ in range(12)]
        by_broker = Counter(receipt.broker for receipt in receipts[-12:])
        assert by_broker == {"a": 4, "b": 4, "c": 4}
        async with asyncio.timeout(40):
            while len(handled) < len(receipts):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert set(handled) == {receipt.msg_id for receipt in receipts}
    assert await read_ids(real) == Counter(receipt.msg_id for receipt in receipts)
