"""The durable retry: what the store takes, and what a producer resends from it, beside its plain sends.

One run with a broker of its own. ``store``: messages of 1 KiB into the store's thread, in groups as failed frames bring
them, until the store has all. ``send_batch`` and ``send_nowait``: the producer's own sends to the broker, the latter
message by message, 2,000 in flight. ``resend``: the same number of messages that wait in the store, from the moment the
producer starts until none waits.
"""

import asyncio
import os
import time
from collections.abc import Iterator

from bench.base.harness import fill, own_broker, scaled, workspace
from pocketmq.cli.bench.cases import closed_loop
from pocketmq.client import Message, Producer
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.durable import DurableRetry, RetryRule
from pocketmq.client.durable.entry import KeptMessage, lane_of
from pocketmq.client.durable.opening import StoreOptions, open_url
from pocketmq.client.durable.options import RetryOptions
from pocketmq.client.durable.worker import StoreWorker, ToKeep
from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.common.runner import LoopMailbox, ThreadRunner

COUNT = int(os.environ.get("COUNT", scaled("200000", "20000")))
GROUP = 500
BODY = os.urandom(1024)
TOPIC = "RetryBench"


async def _fill(directory: str, *, ordered: bool, sync: bool = False) -> float:
    """Put messages into a new store; return the seconds until it confirmed the last one."""
    store = open_url(f"rocksdb://{directory}", StoreOptions(sync=sync), SystemClock())
    loop = asyncio.get_running_loop()
    opened, closed = asyncio.Event(), asyncio.Event()
    worker = StoreWorker(
        store,
        ThreadRunner(),
        LoopMailbox(loop),
        SystemClock(),
        NullLog(),
        RetryOptions(count_max=1 << 40, size_bytes_max=1 << 50, keys_max=1 << 20, lease_ms=10_000, reopen_ms=1_000),
        opened=lambda summary, note: opened.set(),
        failed=lambda error: None,
    )
    worker.start()
    await opened.wait()
    answered, done = 0, asyncio.Event()

    def answer(entries: object, error: object) -> None:
        nonlocal answered
        assert error is None
        answered += GROUP
        if answered >= COUNT:
            done.set()

    order_keys = [lane_of(MessageQueue(TOPIC, "broker-a", number)) for number in range(8)]
    begin = time.perf_counter()
    for start in range(0, COUNT, GROUP):
        items = []
        for number in range(start, start + GROUP):
            key = f"key-{number % 64}" if ordered else ""
            kept = KeptMessage(
                topic=TOPIC,
                body=BODY,
                uniq_key=b"7F000001%024X" % number,
                sharding_key=key or None,
                broker="broker-a" if ordered else "",
                queue_id=number % 8 if ordered else -1,
                order_key=key,
            )
            items.append(ToKeep(kept, order_keys[number % 8] if ordered else "", 1))
        worker.add(items, answer)
        await asyncio.sleep(0)
    await done.wait()
    elapsed = time.perf_counter() - begin
    worker.stop(closed.set)
    await closed.wait()
    worker.join()
    return elapsed


async def _send(namesrv: str) -> float:
    batch = [Message(TOPIC, BODY) for _ in range(4_000)]
    async with Producer("bench", namesrv) as producer:
        await producer.send_batch(batch)
        begin = time.perf_counter()
        for start in range(0, COUNT, len(batch)):
            await producer.send_batch(batch[: COUNT - start])
        return time.perf_counter() - begin


async def _send_each(namesrv: str) -> float:
    async with Producer("bench", namesrv) as producer:
        await producer.send(Message(TOPIC, BODY))

        async def thousand() -> None:
            await asyncio.gather(*[producer.send_nowait(Message(TOPIC, BODY)) for _ in range(1_000)])

        return (await closed_loop(thousand, in_flight=2, count=COUNT // 1_000)).elapsed_s


async def _resend(namesrv: str, directory: str, *, ordered: bool) -> float:
    rules = (RetryRule(age_ms_max=1 << 50),)
    retry = DurableRetry(f"rocksdb://{directory}", rules=rules, order_by_key=ordered)
    async with Producer("bench", namesrv, durable_retry=retry):
        begin = time.perf_counter()
        while retry.state.waiting:  # noqa: ASYNC110 - the count is the store's
            await asyncio.sleep(0.005)
        return time.perf_counter() - begin


def run() -> Iterator[dict[str, object]]:
    """Yield one row a measurement."""

    def row(name: str, elapsed: float) -> dict[str, object]:
        return {"case": name, "msg_per_s": round(COUNT / elapsed), "messages": COUNT, "body_bytes": len(BODY)}

    with workspace() as directory, own_broker("broker.broker_name=broker-a") as broker:
        yield row("store synced", asyncio.run(_fill(f"{directory}/synced", ordered=False, sync=True)))
        asyncio.run(fill(broker.namesrv, TOPIC, 8, 0, lambda _: Message(TOPIC, BODY)))
        yield row("send_batch", asyncio.run(_send(broker.namesrv)))
        yield row("send_nowait", asyncio.run(_send_each(broker.namesrv)))
        for name, ordered in (("without order", False), ("in order", True)):
            path = f"{directory}/{ordered}"
            yield row(f"store {name}", asyncio.run(_fill(path, ordered=ordered)))
            yield row(f"resend {name}", asyncio.run(_resend(broker.namesrv, path, ordered=ordered)))
