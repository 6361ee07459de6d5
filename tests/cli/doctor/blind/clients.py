"""Client processes of a blind round: ``python -m tests.cli.doctor.blind.clients KIND ADDRESS [ARGUMENT …]``.

At a name server, ``steady TOPIC``: 200 sends a second, and a line when the first is stored; ``ordered TOPIC``: a
member of the ordered group, which prints a line for its first message. At a broker, ``flood TOPIC N BYTES``: N sends
always in flight; ``strange``: heartbeats that cannot be decoded.
"""

import asyncio
import contextlib
import json
import os
import struct
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from pocketmq.client import Message, Producer, PushConsumer, ReceivedMessage
from pocketmq.common.errors import PocketMQError

BODY: Final = bytes(1024)
TICK_S: Final = 0.05
SENDS_A_TICK: Final = 10
IN_FLIGHT_MAX: Final = 500
HEART_BEAT: Final = 34
SEND_MESSAGE_V2: Final = 310
FIRST_OPAQUE: Final = 1_000_000_000
SEND_ERRORS: Final = (PocketMQError, OSError, TimeoutError)


async def _send(producer: Producer, message: Message, first: asyncio.Event) -> None:
    with contextlib.suppress(*SEND_ERRORS):
        await producer.send(message)
        if not first.is_set():
            first.set()
            print("sending", flush=True)


async def steady(namesrv: str, topic: str) -> None:
    """Send at a fixed rate, whatever the answers take."""
    producer = Producer(f"blind-{topic}", namesrv)
    await producer.start()
    under_way: set[asyncio.Task[None]] = set()
    number = 0
    first = asyncio.Event()
    while True:
        for _ in range(min(SENDS_A_TICK, IN_FLIGHT_MAX - len(under_way))):
            number += 1
            task = asyncio.ensure_future(_send(producer, Message(topic, BODY, sharding_key=str(number % 64)), first))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.sleep(TICK_S)


async def flood(address: str, topic: str, in_flight: str, size: str) -> None:
    """Keep as many sends in flight, each a request of its own, and sent again at once whatever the answer."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    opaque = FIRST_OPAQUE

    def write(count: int) -> None:
        nonlocal opaque
        for _ in range(count):
            opaque += 1
            writer.write(frame.replace(b"%d" % FIRST_OPAQUE, b"%d" % opaque, 1))

    fields = dict.fromkeys("fhj", "0") | {"a": "blind-flood", "b": topic, "c": "TBW102", "d": "4", "e": "0"}
    fields |= {"g": "1700000000000", "i": "", "k": "false", "m": "false"}
    frame = _frame(SEND_MESSAGE_V2, FIRST_OPAQUE, bytes(int(size)), fields)
    write(int(in_flight))
    while True:
        length = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(length)
        write(1)
        await writer.drain()


def _frame(code: int, opaque: int, body: bytes, fields: dict[str, str]) -> bytes:
    """Return a request as RocketMQ's Java clients write it."""
    values = {"code": code, "language": "JAVA", "version": 401, "opaque": opaque, "flag": 0}
    header = json.dumps({**values, "extFields": fields, "serializeTypeCurrentRPC": "JSON"}).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


async def ordered(namesrv: str, topic: str) -> None:
    """Consume in order, and keep the locks."""
    consumer = PushConsumer("blind-ordered", namesrv, start="earliest")
    seen = asyncio.Event()

    async def consume(message: ReceivedMessage) -> None:
        seen.set()

    consumer.subscribe(topic, ordered=True)(consume)
    await consumer.start()
    await seen.wait()
    print("consuming", flush=True)
    await asyncio.Event().wait()


async def strange(address: str) -> None:
    """Send RocketMQ's heartbeats with a body of no JSON, twice a second."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    opaque = 0
    while True:
        opaque += 1
        writer.write(_frame(HEART_BEAT, opaque, b"\x00\x01no heartbeat", {}))
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK_S):
                await reader.read(65_536)
        await asyncio.sleep(0.5)


async def _until_parent_ends(work: "asyncio.Future[None]") -> None:
    """End with the round: also when that is killed."""
    parent = os.getppid()
    while os.getppid() == parent and not work.done():
        await asyncio.wait([work], timeout=1)
    work.cancel()


async def main(kind: str, *arguments: str) -> None:
    """Run one kind of client until its process is killed, or its parent ends."""
    kinds: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
        "steady": steady,
        "flood": flood,
        "ordered": ordered,
        "strange": strange,
    }
    work = asyncio.ensure_future(kinds[kind](*arguments))
    await _until_parent_ends(work)
    await work


if __name__ == "__main__":
    with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
