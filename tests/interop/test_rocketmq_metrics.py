"""The names and labels of the metrics of RocketMQ 5.3.3's broker, from its own Prometheus exporter.

    RECORD_VECTORS=1 make interop ARGS=tests/interop/test_rocketmq_metrics.py

The recording is tests/vectors/rocketmq-5.3.3-metrics.txt; ``tests/broker/metrics/test_rocketmq_names.py`` holds ours
against it.
"""

import asyncio
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.client import (
    ConsumeFromWhere,
    DeadLetter,
    LocalTransactionState,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
)
from pocketmq.client.admin.admin import Admin
from tests.broker.metrics.rocketmq_page import VECTOR, named
from tests.interop.rocketmq_servers import RocketMQServers, free_ports, rocketmq_servers
from tests.interop.sdk_on_rocketmq import until
from tests.interop.vectors import RECORD

TOPIC = "orders"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Exporting:
    """A RocketMQ broker with its exporter."""

    def __init__(self, servers: RocketMQServers, port: int) -> None:
        self.namesrv = servers.namesrv
        self.url = f"http://127.0.0.1:{port}/metrics"

    def scrape(self) -> str:
        with urllib.request.urlopen(self.url, timeout=30) as answer:
            text: str = answer.read().decode()
            return text


@pytest.fixture(scope="module")
def exporting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporting]:
    port = free_ports(1)[0]
    with rocketmq_servers(
        "5.3",
        tmp_path_factory.mktemp("metrics"),
        metricsExporterType="PROM",
        metricsPromExporterPort=port,
        metricsPromExporterHost="127.0.0.1",
        transactionTimeOut=60_000,
        brokerFastFailureEnable="false",
        osPageCacheBusyTimeOutMills=60_000,
    ) as servers:
        yield Exporting(servers, port)


async def _work(exporting: Exporting) -> str:
    """Send and consume messages of every kind, and scrape while the clients are connected."""
    async with Admin(exporting.namesrv) as admin:
        await admin.create_topic(TOPIC, queues=1)
    seen: list[bytes] = []
    consumer = PushConsumer("billing", exporting.namesrv, consume_from_where=FIRST)

    @consumer.subscribe(TOPIC)
    async def handle(message: ReceivedMessage) -> DeadLetter | None:
        seen.append(message.body)
        if message.body == b"again" and message.reconsume_times == 0:
            raise ValueError("again")
        return DeadLetter("no use") if message.body == b"dead" else None

    async def check(message: ReceivedMessage) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW

    def local(state: LocalTransactionState):  # type: ignore[no-untyped-def]
        async def run(message: Message) -> LocalTransactionState:
            return state

        return run

    async with (
        Producer("shop", exporting.namesrv) as producer,
        TransactionProducer("tx", exporting.namesrv, check=check) as transactions,
    ):
        for body in (b"one", b"two", b"again", b"dead"):
            await producer.send(Message(TOPIC, body, keys=body.decode()))
        await producer.send(Message(TOPIC, b"fifo", sharding_key="k"))
        await producer.send(Message(TOPIC, b"level", delay_time_ms=1_000))
        await producer.send(Message(TOPIC, b"later", delay_time_ms=3_600_000))
        for state in LocalTransactionState:
            await transactions.send_in_transaction(Message(TOPIC, state.name.encode()), local(state))
        await consumer.start()
        await until(lambda: seen.count(b"again") == 2 and b"level" in seen, 60, "all messages")
        text = ""
        for _ in range(60):  # the exporter shows counters that its threads have written, some a second later
            text = exporting.scrape()
            if "rocketmq_send_to_dlq_messages_total{" in text and "rocketmq_producer_connections{" in text:
                break
            await asyncio.sleep(1)
        await consumer.stop()
    return text


def test_the_recorded_names_are_rocketmqs(exporting: Exporting) -> None:
    """What is recorded is what 5.3.3 exports: each name with its labels."""
    text = asyncio.run(_work(exporting))
    if os.environ.get(RECORD):
        Path(VECTOR).write_text(text)
    now, recorded = named(text), named(Path(VECTOR).read_text())
    assert now.keys() == recorded.keys()
    for name in recorded:
        assert now[name] == recorded[name], name
