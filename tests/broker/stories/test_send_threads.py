"""One or two send threads: an acknowledged message is stored once, its topic is on disk, and consumers see it."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.request_task import Refusal
from pocketmq.broker.send.send_checks import SendChecks
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import ManualClock
from pocketmq.remoting.protocol.send import SendMessageV2RequestHeader
from tests.broker.conftest import Client, Harness, eventually

TOPICS = 6
ROUNDS = 15


@pytest.mark.parametrize("threads", [1, 2])
async def test_topics_are_on_disk_before_their_first_acknowledgement(
    harness: Harness, tmp_path: Path, threads: int
) -> None:
    """Several connections send native and typed messages to topics created meanwhile; at each acknowledgement
    the file has the topic, and at the end every queue has exactly the acknowledged messages, offsets without a gap."""
    app = await harness.broker(send_message_thread_pool_nums=threads, send_drain_max=4)
    acknowledged: dict[str, list[tuple[int, bytes]]] = {f"topic-{number}": [] for number in range(TOPICS)}

    def topics_on_disk() -> set[str]:
        content = msgspec.json.decode((tmp_path / "store/config/topics.json").read_bytes())
        return set(content["topicConfigTable"])

    async def produce(client: Client, who: int) -> None:
        for number in range(ROUNDS):
            topic = f"topic-{(number + who) % TOPICS}"
            body = b"%d-%d" % (who, number)
            if number % 2:
                response = await client.send(topic, body)
                offset = response.header.queue_offset
            else:
                response = await client.append((topic, 0, [client.record(topic, body, 0)]))
                offset = response.header.results[0][1]
            assert response.code == 0, response
            if not acknowledged[topic]:
                assert topic in topics_on_disk()
            acknowledged[topic].append((offset, body))

    clients = [await harness.client(app) for _ in range(8)]
    async with asyncio.TaskGroup() as group:
        for who, client in enumerate(clients):
            group.create_task(produce(client, who))
    for topic, receipts in acknowledged.items():
        bodies = await clients[0].pull_bodies(topic, wanted=len(receipts))
        assert sorted(receipts) == list(enumerate(bodies))


async def test_two_threads_are_two_threads(harness: Harness) -> None:
    """The pair starts two workers, and consumers get messages without the executor's follow-up."""
    app = await harness.broker(send_message_thread_pool_nums=2)
    client = await harness.client(app)
    pulling = asyncio.ensure_future(client.pull_bodies(wanted=1))
    await client.put(b"x")
    assert await pulling == [b"x"]
    executor: Any = app.request_table.executor("SendMessageThread")
    assert [worker.name for worker in executor._workers] == ["SendMessageThread-0", "SendMessageThread-1"]


async def test_oneway_sends_of_two_threads_are_all_stored(harness: Harness) -> None:
    """No send waits for an answer, and no message is lost."""
    app = await harness.broker(send_message_thread_pool_nums=2, send_drain_max=2)
    client = await harness.client(app)
    await client.put(b"first")
    header = SendMessageV2RequestHeader("p", "T", "TBW102", 4, 0, 0, 0, 0)
    for number in range(200):
        client.channel.send_oneway(310, header, b"%d" % number)
    await eventually(lambda: app.store.max_offset("T", 0) == 201)


def test_a_topic_is_unsure_until_it_is_confirmed_and_again_after_a_failure() -> None:
    """The first send to a topic persists the table, whoever created the topic; later ones do not."""
    config = BrokerConfig()
    topics = TopicTable(config, ManualClock())
    topics.add_system_topics()
    checks, other = SendChecks(config, topics), SendChecks(config, topics)
    assert not isinstance(checks.check("T", 0), Refusal)
    assert checks.is_unsure
    checks.confirm()
    checks.check("T", 1)
    assert not checks.is_unsure
    assert not isinstance(other.check("T", 0), Refusal)
    assert other.is_unsure, "the other thread may not have written it yet"
    other.forget()
    other.check("T", 0)
    assert other.is_unsure
    assert isinstance(checks.check("no spaces", 0), Refusal)
    assert not checks.is_unsure


def test_who_sees_a_topic_sees_that_the_table_has_changed() -> None:
    """Otherwise a second thread could acknowledge a message before the first has written its topic."""
    config = BrokerConfig()
    topics = TopicTable(config, ManualClock())

    class Watched(dict[str, Any]):
        def __setitem__(self, topic: str, value: Any) -> None:
            assert topics.generation == generation + 1
            super().__setitem__(topic, value)

    generation = topics.generation
    topics._topics = Watched()
    topics.create("T", 4)
    assert topics.generation == generation + 1
