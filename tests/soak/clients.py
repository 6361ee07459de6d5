"""The client processes of a soak: ``python -m tests.soak.clients NAME NAMESRV MASTER_PORT METRICS_PORT``.

Lives here: ``producers``, ``consumers`` and ``visitors``, one process each. Every ten seconds a process prints a line
of JSON: its tasks, what it has done so far, and its errors by name. It ends with its standard input.

The rates are fixed and low, so that nothing is ever full: a soak looks for what stays behind, not for speed.
"""

import asyncio
import itertools
import json
import sys
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pyarrow as pa

from pocketmq.client import (
    ClientInstance,
    ClientOptions,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
    is_request,
    reply_to,
)
from pocketmq.client.admin import Admin
from pocketmq.client.staged.staged_transaction import StagedTransactions
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import BINARY, JSON
from pocketmq.remoting.protocol.pull import PullMessageRequestHeader
from tests.broker.raw_client import RawClient

TOPICS: Final = ("Single", "Batched", "Ordered", "Delayed", "Decided", "Staged", "Asked")
REPORT_S: Final = 10.0
BODY: Final = bytes(range(256))


class Work:
    """Repeated steps: each has a pause after it, and its errors are counted and not raised."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, pause_s: float, step: Callable[[], Awaitable[object]]) -> None:
        """Begin to repeat a step."""
        self._tasks.append(asyncio.get_running_loop().create_task(self._repeat(pause_s, step)))

    async def _repeat(self, pause_s: float, step: Callable[[], Awaitable[object]]) -> None:
        name = step.__name__
        while True:
            try:
                await step()
                self.done[name] += 1
            except (PocketMQError, OSError, TimeoutError) as error:
                self.errors[f"{name} {type(error).__name__}: {error}"[:160]] += 1
            await asyncio.sleep(pause_s)

    async def report(self) -> None:
        """Print a line every ten seconds until standard input ends."""
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        while not ended.done():
            line = {"tasks": len(asyncio.all_tasks()), "done": self.done, "errors": dict(self.errors.most_common(20))}
            print(json.dumps(line), flush=True)
            await asyncio.wait([ended], timeout=REPORT_S)
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


async def producers(work: Work, namesrv: str) -> None:
    """Every kind of message."""
    numbers = itertools.count()
    plain = Producer("soak-plain", namesrv)
    traced = Producer("soak-traced", namesrv, enable_message_trace=True, compress_type="ZLIB")
    decided = TransactionProducer("soak-decided", namesrv, check=lambda message: True)
    # headers of RocketMQ's two kinds
    json_headers = Producer("soak-json", instance=_instance(namesrv, "JSON"))
    binary_headers = Producer("soak-binary", instance=_instance(namesrv, "ROCKETMQ"))

    def message(topic: str, **fields: object) -> Message:
        number = next(numbers)
        keys, tags = f"k{number}", "ABC"[number % 3]
        return Message(topic, BODY, keys=keys, tags=tags, properties={"n": str(number)}, **fields)  # type: ignore[arg-type]

    async def single() -> None:
        await plain.send(message("Single"))

    async def with_rocketmqs_headers() -> None:
        await asyncio.gather(json_headers.send(message("Single")), binary_headers.send(message("Single")))

    async def in_flight() -> None:
        await asyncio.gather(*(plain.send_nowait(message("Single")) for _ in range(64)))

    async def batched() -> None:
        await plain.send_batch([message("Batched") for _ in range(50)])

    async def trace() -> None:
        await traced.send(Message("Single", b"x" * 8192, keys="t"))

    async def ordered() -> None:
        await plain.send(message("Ordered", sharding_key=f"o{next(numbers) % 8}"))

    async def delayed() -> None:
        await plain.send(message("Delayed", delay_time_level=1))
        await plain.send(message("Delayed", delay_time_ms=3_000))

    async def transactions() -> None:
        half = message("Decided")
        await decided.send_in_transaction(half, lambda _: (True, False, True, None)[next(numbers) % 4])

    async def asked() -> None:
        await plain.request(message("Asked"), timeout_ms=10_000)

    async with StagedTransactions("soak-staged", namesrv) as staged:

        async def staged_rows() -> None:
            version = work.done["staged_rows"] + 1
            writer = staged.writer("soak", version, topic="Staged")
            await writer.write(pa.record_batch({"body": [BODY] * 100}))
            await staged.commit("soak", version, [await writer.close()])

        clients = (plain, traced, decided, json_headers, binary_headers)
        for client in clients:
            await client.start()
        for pause_s, step in (
            (0.02, single),
            (0.5, with_rocketmqs_headers),
            (1.0, in_flight),
            (1.0, batched),
            (0.5, trace),
            (0.1, ordered),
            (0.5, delayed),
            (0.5, transactions),
            (0.5, asked),
            (5.0, staged_rows),
        ):
            work.every(pause_s, step)
        await work.report()
        for client in clients:
            await client.stop()


async def consumers(work: Work, namesrv: str) -> None:
    """Every kind of consumer; some messages fail and come again."""
    pushed = PushConsumer("soak-push", namesrv)
    in_order = PushConsumer("soak-ordered", namesrv)
    filtered = PushConsumer("soak-filtered", namesrv)
    broadcast = PushConsumer("soak-broadcast", namesrv, message_model="BROADCASTING", offset_store_dir=sys.argv[5])
    json_headers = PushConsumer("soak-push-json", instance=_instance(namesrv, "JSON"))
    answers = Producer("soak-answers", namesrv)
    puller = PullConsumer("soak-pull", namesrv)

    async def count(message: ReceivedMessage) -> bool:
        work.done[message.topic] += 1
        return work.done[message.topic] % 100 != 0 or message.reconsume_times > 0

    async def answer(message: ReceivedMessage) -> None:
        if is_request(message):
            await answers.send(reply_to(message, b"yes"))
            work.done["answers"] += 1

    async def count_all(messages: list[ReceivedMessage]) -> None:
        work.done["batches"] += 1

    for topic in ("Single", "Delayed", "Decided", "Staged"):
        pushed.subscribe(topic)(count)
    pushed.subscribe_batch("Batched", max_messages=32)(count_all)
    pushed.subscribe("Asked")(answer)
    in_order.subscribe("Ordered", ordered=True)(count)
    filtered.subscribe("Single", "A || B")(count)
    filtered.subscribe("Batched", sql="n > 1000 AND n IS NOT NULL")(count)
    broadcast.subscribe("Ordered")(count)
    json_headers.subscribe("Single")(count)

    async def pulled() -> None:
        work.done["messages pulled"] += len(await puller.poll("Single", max_messages=500, timeout_ms=500))
        await puller.commit()

    clients = (answers, pushed, in_order, filtered, broadcast, json_headers, puller)
    for client in clients:
        await client.start()
    work.every(0.5, pulled)
    await work.report()
    for client in reversed(clients):
        await client.stop()


async def visitors(work: Work, namesrv: str, port: int, metrics_port: int) -> None:
    """Clients, topics and groups that come and go; admins; scrapes; RocketMQ's requests in its own headers."""
    numbers = itertools.count()
    async with Admin(namesrv) as admin:

        async def come_and_go() -> None:
            number = next(numbers)
            topic, group = f"Visit{number}", f"visit-{number}"
            await admin.create_topic(topic, queues=2)
            options = ClientOptions(serialize_type=("", "JSON", "ROCKETMQ")[number % 3])
            instance = ClientInstance(namesrv, options=options)
            producer = Producer(group, instance=instance)
            consumer = PushConsumer(group, instance=instance, start="earliest")
            seen = asyncio.Event()
            consumer.subscribe(topic)(lambda message: seen.set())
            await producer.start()
            await consumer.start()
            try:
                await producer.send(Message(topic, BODY, keys="visit"))
                async with asyncio.timeout(30):
                    await seen.wait()
            finally:
                await consumer.stop()
                await producer.stop()
            await admin.delete_group(group, force=True)
            await admin.delete_topic(topic)

        async def raw(kind: int) -> None:
            async with RawClient(port, kind) as peer:
                sent = [peer.post_send(BODY, topic="Single", queue_id=number % 4) for number in range(10)]
                header: Any = (await peer.answer(sent[-1])).header
                end = header.queue_offset
                pull = PullMessageRequestHeader("soak-raw", "Single", 1, max(end - 5, 0), 32, 0, 0, 0, 0, "*")
                await peer.answer(peer.post(RequestCode.PULL_MESSAGE, pull))
                await peer.answer(peer.post(RequestCode.GET_BROKER_RUNTIME_INFO))

        async def raw_json() -> None:
            await raw(JSON)

        async def raw_binary() -> None:
            await raw(BINARY)

        async def ask() -> None:
            await admin.topics()
            await admin.groups()
            await admin.cluster_info()
            await admin.describe_topic("Single")
            await admin.describe_group("soak-push")
            await admin.query_messages("Batched", f"k{next(numbers)}")
            for address in (await admin.masters()).values():
                await admin.broker_runtime(address)

        async def scrape() -> None:
            await asyncio.to_thread(_scrape, metrics_port)

        for pause_s, step in ((3.0, come_and_go), (1.0, raw_json), (1.0, raw_binary), (2.0, ask), (5.0, scrape)):
            work.every(pause_s, step)
        await work.report()


def _scrape(port: int) -> None:
    for page in ("metrics", "health"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=10) as answer:
            answer.read()


def _instance(namesrv: str, serialize_type: str) -> ClientInstance:
    return ClientInstance(namesrv, options=ClientOptions(serialize_type=serialize_type))


async def main(name: str, namesrv: str, port: int, metrics_port: int) -> None:
    """Run one of the programs."""
    work = Work()
    if name == "producers":
        await producers(work, namesrv)
    elif name == "consumers":
        await consumers(work, namesrv)
    else:
        await visitors(work, namesrv, port, metrics_port)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
