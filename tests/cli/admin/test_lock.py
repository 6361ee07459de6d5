"""``pocketmq lock`` as a process against a real broker."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pocketmq.cli.admin.lock_columns import seconds
from pocketmq.client import ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.handlers.queue_locks import QueueLocks
from pocketmq.testing import PocketBroker
from tests.client.conftest import until_known

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker() as running:
        yield running


@asynccontextmanager
async def holder(broker: PocketBroker, topic: str) -> Any:
    """Be a client with the locks of group ``g``; yield (client id, locks, name of the broker)."""
    instance = ClientInstance(broker.namesrv)
    await instance.start()
    route = await until_known(instance, topic)
    locks = QueueLocks(instance, "g", regained=lambda queue, same: None)
    locks.start()
    yield instance.client_id, locks, next(iter(route.brokers))
    await locks.stop()
    await instance.stop()


def test_list_and_release(broker: PocketBroker, run_command: Any) -> None:
    """Holders and waiting clients; a release is confirmed first, and gives the queue to the waiting client."""
    env = {"POCKETMQ_NAMESRV": broker.namesrv}

    def pocketmq(*arguments: str, code: int = 0, stdin: bytes = b"") -> str:
        done = run_command(*arguments, env=env, stdin=stdin)
        assert done.returncode == code, done.stderr.decode()
        assert b"Traceback" not in done.stderr
        return str((done.stdout if code == 0 else done.stdout + done.stderr).decode())

    async def body() -> None:
        run = asyncio.to_thread
        await run(pocketmq, "topic", "create", "Orders", "--queues", "2")
        assert await run(pocketmq, "lock", "list", "--json") == '{"locks":[],"left_out":0}\n'
        async with (
            holder(broker, "Orders") as (first_id, first, name),
            holder(broker, "Orders") as (second_id, second, _),
        ):
            queues = [MessageQueue("Orders", name, number) for number in range(2)]
            assert await first.acquire(queues) == queues
            assert await second.acquire(queues[:1]) == []
            listed = json.loads(await run(pocketmq, "lock", "list", "--json", "--group", "g", "--topic", "Orders"))
            one, two = listed["locks"]
            assert (one["queue_id"], one["holder"], one["broker"]) == (0, first_id, name)
            assert one["fencing_token"] == first.token(queues[0])
            assert [each["client_id"] for each in one["waiting"]] == [second_id]
            assert two["waiting"] == []
            assert 0 < one["expires_in_ms"] <= 60_000
            head, *rows = (await run(pocketmq, "lock", "list")).splitlines()
            assert head.split("\t")[4:7] == ["holder", "address", "age"]
            assert [row.split("\t")[4] for row in rows] == [first_id, first_id]
            ask = ("lock", "release", "--group", "g", "--topic", "Orders", "--queue", "0")
            assert "scripts say --yes" in await run(pocketmq, *ask, code=2, stdin=b"y\n")  # a pipe cannot answer
            assert await second.acquire(queues[:1]) == []
            assert first_id in await run(pocketmq, *ask, "--yes")
            assert await second.acquire(queues[:1]) == queues[:1]
            assert second_id in await run(pocketmq, *ask, "--yes")
        gone = await run(pocketmq, *ask, "--yes", code=1)
        assert "no client of g holds queue 0 of Orders" in gone

    asyncio.run(body())


@pytest.mark.parametrize(
    ("time_ms", "text"), [(0, "0.0 s"), (440, "0.4 s"), (54_321, "54 s"), (720_000, "12 min"), (12_600_000, "3.5 h")]
)
def test_times_are_written_as_people_read_them(time_ms: int, text: str) -> None:
    assert seconds(time_ms) == text
