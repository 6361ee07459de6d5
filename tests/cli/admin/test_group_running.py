"""``pocketmq group describe --running`` as a process, beside a consumer that works."""

import asyncio
import json
from typing import Any

import pytest

from pocketmq.client import ConsumeFromWhere, Message, Producer, PushConsumer
from pocketmq.testing import PocketBroker

pytestmark = pytest.mark.slow


def test_what_members_do_is_shown(run_command: Any) -> None:
    """A row for each queue, the longest call, and whether the member is paused; as JSON too."""

    async def body(broker: PocketBroker) -> list[Any]:
        env = {"POCKETMQ_NAMESRV": broker.namesrv}
        async with Producer("p", broker.namesrv) as producer:
            await producer.send_batch([Message("T", b"x") for _ in range(10)])
        begun, release = asyncio.Event(), asyncio.Event()
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        consumer = PushConsumer("readers", broker.namesrv, concurrency=1, consume_from_where=first)

        @consumer.subscribe("T")
        async def stuck(message: Any) -> None:
            begun.set()
            await release.wait()

        async with consumer:
            await begun.wait()
            consumer.pause()
            answers = [await asyncio.to_thread(run, *more, env=env) for more in ((), ("--json",))]
            release.set()
        return answers

    def run(*more: str, env: dict[str, str]) -> Any:
        return run_command("group", "describe", "readers", "--running", *more, env=env)

    with PocketBroker() as broker:
        table, as_json = asyncio.run(body(broker))
    assert table.returncode == as_json.returncode == 0, table.stderr
    assert b"in_hand" in table.stdout
    [member] = json.loads(as_json.stdout)["running"]
    assert member["paused"]
    assert sum(queue["in_hand"] for queue in member["queues"] if queue["topic"] == "T") >= 1
    assert "stuck" in member["calls"][0]
