"""``pocketmq topic locate`` and what ``group describe`` shows of locks, against a real broker."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq.client.blocking import PullConsumer
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.common.hashes import java_string_hash
from pocketmq.testing import PocketBroker
from tests.cli.admin.test_lock import holder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker() as running:
        yield running


@pytest.fixture
def pocketmq(run_command: Any, broker: PocketBroker) -> Any:
    """Run ``pocketmq …`` against the module's broker; return its output, of standard error if it fails."""

    def run(*arguments: str, stdin: bytes = b"", code: int = 0) -> str:
        done = run_command(*arguments, stdin=stdin, env={"POCKETMQ_NAMESRV": broker.namesrv})
        assert done.returncode == code, done.stderr.decode()
        return str((done.stdout if code == 0 else done.stderr).decode())

    return run


def test_a_key_leads_to_its_queue_its_lag_and_the_holder_of_its_lock(broker: PocketBroker, pocketmq: Any) -> None:
    """The queue is the producer's; a waiting client is named with the holder."""
    queue_id = abs(java_string_hash("customer-17")) % 4

    async def body() -> None:
        run = asyncio.to_thread
        await run(pocketmq, "topic", "create", "Located", "--queues", "4")
        words = ("produce", "Located", "--key-sep", ":", "--sharding-key-from-key")
        await run(pocketmq, *words, stdin=b"customer-17:a\ncustomer-17:b\n")
        found = json.loads(await run(pocketmq, "topic", "locate", "Located", "--key", "customer-17", "--json"))
        assert (found["queue_id"], found["address"], found["max_offset"]) == (queue_id, broker.address, 2)
        assert found["groups"] == []
        async with (
            holder(broker, "Located") as (first_id, first, name),
            holder(broker, "Located") as (second_id, second, _),
        ):
            queue = MessageQueue("Located", name, queue_id)
            assert await first.acquire([queue]) == [queue]
            assert await second.acquire([queue]) == []
            asked = ("topic", "locate", "Located", "--key", "customer-17", "--group", "g")
            head, row = (await run(pocketmq, *asked)).splitlines()
            cells = dict(zip(head.split("\t"), row.split("\t"), strict=True))
            assert cells["broker"] == name
            assert (cells["group"], cells["consumer_offset"], cells["lag"]) == ("g", "0", "2")
            assert cells["holder"] == first_id
            assert second_id in cells["waiting"]
            described = json.loads(await run(pocketmq, "group", "describe", "g", "--topic", "Located", "--json"))
            holders = {each["queue_id"]: (each["holder"], each["waiting"]) for each in described["queues"]}
            assert holders[queue_id][0] == first_id
            assert second_id in holders[queue_id][1]
            assert holders[(queue_id + 1) % 4] == (None, None)

    asyncio.run(body())


def test_a_group_that_is_stuck_on_its_first_message_is_described(broker: PocketBroker, pocketmq: Any) -> None:
    """It has committed nothing: its subscription tells the topic, and the queue counts from 0."""
    pocketmq("topic", "create", "Stuck", "--queues", "1")
    pocketmq("produce", "Stuck", stdin=b"a\nb\n")
    with PullConsumer("stuck", broker.namesrv) as consumer:
        consumer.poll("Stuck", max_messages=1, timeout_ms=0)
        described = json.loads(pocketmq("group", "describe", "stuck", "--json"))
        [row] = [each for each in described["queues"] if each["topic"] == "Stuck"]
        assert (row["consumer_offset"], row["lag"], described["lag"]) == (None, 2, 2)
        [listed] = [each for each in json.loads(pocketmq("group", "list", "--json")) if each["group"] == "stuck"]
        assert (listed["members"], listed["lag"], listed["topics"]) == (1, None, "Stuck")
