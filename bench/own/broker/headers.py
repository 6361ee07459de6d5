"""Sends by the form of their headers: msgpack, JSON and RocketMQ's binary, interleaved in one run.

One broker (``pocketmq standalone``), 1 KiB a message, 64 in flight. Two cases:
  SEND_MESSAGE_V2   a request a message, as RocketMQ's clients send them, from a bare channel
  Producer.send     64 tasks that each send one message after the other: the SDK batches what one turn brings
``of_msgpack`` is the median's share of msgpack's.
"""

import statistics
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from bench.base.channel_load import ChannelLoad, open_channel
from bench.base.harness import Row, fill, in_loop, own_broker, scaled
from pocketmq.cli.bench.cases import closed_loop
from pocketmq.client import ClientInstance, ClientOptions, Message, Producer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import BINARY, JSON, MSGPACK
from pocketmq.remoting.protocol.send import SendMessageV2RequestHeader

BODY = bytes(1024)
IN_FLIGHT = 64
ROUNDS = scaled(7, 2)
SECONDS = scaled(1.0, 0.3)
TOPIC = "BenchHeaders"
QUEUES = 8
FORMS = {"msgpack": (MSGPACK, "MSGPACK"), "json": (JSON, "JSON"), "binary": (BINARY, "ROCKETMQ")}


def rocketmq_send(number: int) -> tuple[int, Any, bytes]:
    """Return one send as RocketMQ's clients make it."""
    header = SendMessageV2RequestHeader(
        producer_group="bench",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=number % QUEUES,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties=f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02",
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        bname="pocketmq",
    )
    return RequestCode.SEND_MESSAGE_V2, header, BODY


async def measure(namesrv: str, address: str) -> list[Row]:
    """Return the rates of each form, taken in turns after one round that does not count."""
    await fill(namesrv, TOPIC, QUEUES, 0, lambda _: Message(TOPIC, BODY))
    rates: dict[tuple[str, str], list[float]] = {}
    async with AsyncExitStack() as stack:
        loads: dict[tuple[str, str], Any] = {}
        for name, (form, setting) in FORMS.items():
            load = ChannelLoad(await open_channel(address, serialize_type=form), rocketmq_send)
            stack.push_async_callback(load.close)
            loads["SEND_MESSAGE_V2", name] = partial(load.run, IN_FLIGHT, seconds=SECONDS)
            instance = ClientInstance(namesrv, options=ClientOptions(serialize_type=setting))
            producer = await stack.enter_async_context(Producer(f"bench-{name}", instance=instance))
            send = partial(producer.send, Message(TOPIC, BODY))
            loads["Producer.send", name] = partial(closed_loop, send, in_flight=IN_FLIGHT, seconds=SECONDS)
        for number in range(ROUNDS + 1):
            for key, one_round in loads.items():
                rate = (await one_round()).rate
                if number:
                    rates.setdefault(key, []).append(rate)
    middle = {key: statistics.median(of_key) for key, of_key in rates.items()}
    return [
        {
            "case": case,
            "headers": name,
            "in_flight": IN_FLIGHT,
            "body_bytes": len(BODY),
            "per_s": round(middle[case, name]),
            "slowest_per_s": round(min(rates[case, name])),
            "fastest_per_s": round(max(rates[case, name])),
            "of_msgpack": round(middle[case, name] / middle[case, "msgpack"], 2),
        }
        for case, name in sorted(loads)
    ]


def run() -> Iterator[Row]:
    """Yield one result a case and form."""
    with own_broker() as broker:
        yield from in_loop(measure(broker.namesrv, broker.address))
