"""Sends by the form of their headers: msgpack, JSON and RocketMQ's binary, interleaved in one run.

    python -m bench headers

One broker (``pocketmq standalone``), 1 KiB a message, 64 on the way. Two cases:
  SEND_MESSAGE_V2   a request a message, as RocketMQ's clients send them, from a bare channel
  Producer.send     64 tasks that each send one message after the other: the SDK batches what one turn brings
``of_msgpack`` is the median's share of msgpack's.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.base.broker_process import BrokerProcess
from pocketmq.client import ClientInstance, ClientOptions, Message, Producer
from pocketmq.client.admin.admin import Admin
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import NullLog
from pocketmq.remoting.channel import ChannelConfig, ClientChannel
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import BINARY, JSON, MSGPACK
from pocketmq.remoting.headers import SendMessageV2RequestHeader
from pocketmq.remoting.loop import new_event_loop

BODY_BYTES = 1024
IN_FLIGHT = 64
ROUNDS = 7
SECONDS = 1.0
TOPIC = "BenchHeaders"
QUEUES = 8
FORMS = {"msgpack": MSGPACK, "json": JSON, "binary": BINARY}
NAMES = {"msgpack": "MSGPACK", "json": "JSON", "binary": "ROCKETMQ"}


class TypedLoad:
    """Keeps ``IN_FLIGHT`` typed sends on the way over one channel."""

    def __init__(self, address: str, serialize_type: int) -> None:
        self._address = address
        self._type = serialize_type
        self._number = 0
        self._body = bytes(BODY_BYTES)

    async def open(self) -> None:
        config = ChannelConfig(serialize_type=self._type)
        self._channel = ClientChannel(self._address, clock=SystemClock(), log=NullLog(), config=config)
        await self._channel.open()
        await self._channel.hello()

    async def close(self) -> None:
        self._channel.close()
        await self._channel.wait_closed()

    async def rate(self) -> float:
        """Return sends per second."""
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        started_s = time.perf_counter()
        until_s = started_s + SECONDS
        count = on_the_way = 0

        def answered(result: Response | PocketMQError) -> None:
            nonlocal count, on_the_way
            on_the_way -= 1
            if isinstance(result, Response) and result.code == 0:
                count += 1
            elif not end.done():
                end.set_exception(RuntimeError(f"a send failed: {result}"))
            if time.perf_counter() < until_s:
                send()
            elif not on_the_way and not end.done():
                end.set_result(None)

        def send() -> None:
            nonlocal on_the_way
            self._number += 1
            header = SendMessageV2RequestHeader(
                producer_group="bench",
                topic=TOPIC,
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=self._number % QUEUES,
                sys_flag=0,
                born_timestamp=1_700_000_000_000,
                flag=0,
                properties=f"UNIQ_KEY\x01{self._number:032X}\x02WAIT\x01true\x02",
                reconsume_times=0,
                unit_mode=False,
                batch=False,
                bname="pocketmq",
            )
            on_the_way += 1
            self._channel.request_nowait(
                RequestCode.SEND_MESSAGE_V2, header, self._body, timeout_ms=10_000, done=answered
            )

        for _ in range(IN_FLIGHT):
            send()
        await end
        return count / (time.perf_counter() - started_s)


class ProducerLoad:
    """Keeps 64 tasks sending with the SDK."""

    def __init__(self, namesrv: str, name: str) -> None:
        options = ClientOptions(serialize_type=NAMES[name])
        self._producer = Producer(f"bench-{name}", instance=ClientInstance(namesrv, options=options))

    async def open(self) -> None:
        await self._producer.start()

    async def close(self) -> None:
        await self._producer.stop()

    async def rate(self) -> float:
        """Return sends per second."""
        body = bytes(BODY_BYTES)
        started_s = time.perf_counter()
        until_s = started_s + SECONDS

        async def one() -> int:
            count = 0
            while time.perf_counter() < until_s:
                await self._producer.send(Message(TOPIC, body))
                count += 1
            return count

        counts = await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))
        return sum(counts) / (time.perf_counter() - started_s)


async def _measure(loads: "dict[str, TypedLoad] | dict[str, ProducerLoad]") -> dict[str, list[float]]:
    """Return the rates of each form, taken in turns after one round that does not count."""
    for load in loads.values():
        await load.open()
    rates: dict[str, list[float]] = {name: [] for name in loads}
    for number in range(ROUNDS + 1):
        for name, load in loads.items():
            rate = await load.rate()
            if number:
                rates[name].append(rate)
    for load in loads.values():
        await load.close()
    return rates


def run() -> Iterator[dict[str, object]]:
    """Yield one result a case and form."""
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory) / "data") as broker:
        loop = new_event_loop()

        async def create() -> None:
            async with Admin(broker.namesrv) as admin:
                await admin.create_topic(TOPIC, queues=QUEUES)

        loop.run_until_complete(create())
        typed = {name: TypedLoad(broker.address, kind) for name, kind in FORMS.items()}
        yield from _rows("SEND_MESSAGE_V2", loop.run_until_complete(_measure(typed)))

        async def by_producer() -> dict[str, list[float]]:
            return await _measure({name: ProducerLoad(broker.namesrv, name) for name in FORMS})

        yield from _rows("Producer.send", loop.run_until_complete(by_producer()))
        loop.close()


def _rows(case: str, rates: dict[str, list[float]]) -> Iterator[dict[str, object]]:
    base = statistics.median(rates["msgpack"])
    for name, values in rates.items():
        middle = statistics.median(values)
        yield {
            "case": case,
            "headers": name,
            "in_flight": IN_FLIGHT,
            "body_bytes": BODY_BYTES,
            "per_s": round(middle),
            "slowest_per_s": round(min(values)),
            "fastest_per_s": round(max(values)),
            "of_msgpack": round(middle / base, 2),
        }
