"""Clients behind a network that is silent for 40 s, with connections open on both sides: real processes and packets."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pocketmq.client import ConsumeFromWhere, Message, Producer, PullConsumer, PushConsumer
from pocketmq.common.errors import PocketMQError
from tests.e2e.network import HUB, Network, why_not
from tests.e2e.nodes import start_daemon

WHY_NOT = why_not()
SILENT_S = 40
RECOVERED_S = 3.0
"""From the repair to the first success."""


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")
async def test_clients_are_back_within_three_seconds_of_the_repair(tmp_path: Path) -> None:
    """A producer, a pull consumer and a push consumer from before, and a producer that starts after the repair."""
    with Network("server") as network:
        server = network["server"]
        arguments = ["standalone", "--host", server.address, "--data-dir", str(tmp_path / "data")]
        arguments += ["--namesrv-port", "9876", "--broker-port", "10911"]
        arguments += ["--set", "store.mapped_file_size_commit_log=4194304"]
        arguments += ["--set", "broker.default_topic_queue_nums=1", "--set", "metrics.listen_port=0"]
        daemon = await start_daemon(server.prefix, arguments, tmp_path / "errors")
        namesrv = f"{server.address}:9876"
        got: set[bytes] = set()
        consumer = PushConsumer("push", namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer.subscribe("Orders")(lambda message: got.add(message.body))
        try:
            async with Producer("old", namesrv) as old, PullConsumer("pull", namesrv) as pull:
                await old.send(Message("Orders", b"first"))
                async with consumer:
                    (queue,) = await pull.queues("Orders")
                    await _until(lambda: got)
                    busy = asyncio.ensure_future(_keep_sending(old))
                    network.cut_both(HUB, "server")
                    await asyncio.sleep(SILENT_S)
                    busy.cancel()
                    network.heal()
                    repaired_s = time.monotonic()
                    async with Producer("new", namesrv) as new:

                        async def push() -> None:
                            await _until(lambda: b"old" in got)

                        took_s = await asyncio.gather(
                            _first_success(lambda: old.send(Message("Orders", b"old")), repaired_s),
                            _first_success(lambda: new.send(Message("Orders", b"new")), repaired_s),
                            _first_success(lambda: pull.committed(queue), repaired_s),
                            _first_success(push, repaired_s),
                        )
                    print("old producer, new producer, pull, push:", [f"{each:.2f} s" for each in took_s])
                    assert max(took_s) < RECOVERED_S
        finally:
            network.heal()
            daemon.terminate()
            await daemon.wait()


async def _keep_sending(producer: Producer) -> None:
    while True:
        try:
            await producer.send(Message("Orders", b"busy"))
        except PocketMQError:
            continue


async def _first_success(call: Callable[[], Awaitable[object]], since_s: float) -> float:
    """Return the seconds from ``since_s`` until ``call`` first succeeds."""
    async with asyncio.timeout(60):
        while True:
            try:
                await call()
                return time.monotonic() - since_s
            except PocketMQError:
                await asyncio.sleep(0.01)


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
