"""What the SDK costs a message, without a broker.

Lives here: µs of ``send_nowait`` up to the encoded frame and of its receipts, against a channel that answers at
once; µs of reading records as message objects and as Arrow columns.
Run: ``python -m bench.own.client``.
"""

import asyncio
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from pocketmq.client import Message, Producer
from pocketmq.client.arrow.arrow import COLUMNS, records_to_arrow
from pocketmq.client.arrow.arrow_records import ArrowRows, read_rows
from pocketmq.client.arrow.packed import PackedIds
from pocketmq.client.connection.instance import ClientInstance, Link
from pocketmq.client.connection.route import route_from_data
from pocketmq.common.record_codec import PlainRecordBuilder
from pocketmq.common.record_columns import received_messages
from pocketmq.remoting.bodies import Announcement, BrokerData, QueueData, TopicRouteData
from pocketmq.remoting.codec import Response, encode_request
from pocketmq.remoting.headers import NativeAppendResponseHeader
from pocketmq.remoting.loop import new_event_loop

ROUNDS = 7
TOPIC = "BenchTopic"


class NullChannel:
    """Encodes each frame, drops it, and answers at once that everything is stored."""

    closed = False
    frames = 0
    encoded_bytes = 0

    def request_nowait(
        self, code: int, header: Any, body: bytes, *, timeout_ms: int, done: Callable[[Any], None]
    ) -> None:
        self.encoded_bytes += sum(map(len, encode_request(code, self.frames, header, body)))
        self.frames += 1
        results = [(0, 0, [(0, count)], "") for _, _, count in header.sections]
        answer = Response(0, 0, "", NativeAppendResponseHeader(0, results), b"", 2, {}, 409)
        asyncio.get_running_loop().call_soon(done, answer)

    async def request(self, code: int, header: Any, *, timeout_ms: int) -> None:
        """Take the good-bye."""


class NullInstance(ClientInstance):
    """A client with a route and a link of its own making."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1")
        data = TopicRouteData(
            queue_datas=[QueueData("b", 8, 8, 6)], broker_datas=[BrokerData("c", "b", {"0": "127.0.0.1:1"})]
        )
        self.routes.put(route_from_data(TOPIC, data), 0)
        self.null = NullChannel()
        announcement = Announcement(cluster="DefaultCluster", broker="b")
        self._links["127.0.0.1:1"] = Link("b", "127.0.0.1:1", self.null, announcement)  # type: ignore[arg-type]


async def send_cost(size_bytes: int, count: int, per_turn: int) -> tuple[float, float]:
    """Return (µs a message in send_nowait with the frame's encoding, µs with receipts and futures resolved)."""
    body = bytes(size_bytes)
    messages = [Message(TOPIC, body) for _ in range(count)]
    issued, whole = [], []
    async with Producer("bench", instance=NullInstance()) as producer:
        for _ in range(ROUNDS):
            in_send = 0.0
            begin = time.perf_counter()
            for start in range(0, count, per_turn):
                started = time.perf_counter()
                futures = [producer.send_nowait(message) for message in messages[start : start + per_turn]]
                producer._flush()
                in_send += time.perf_counter() - started
                await asyncio.wait(futures[-1:])
            whole.append((time.perf_counter() - begin) / count * 1e6)
            issued.append(in_send / count * 1e6)
    return statistics.median(issued), statistics.median(whole)


def median_us(work: Callable[[], object], count: int) -> float:
    """Return the median µs a message of several rounds."""
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        work()
        times.append((time.perf_counter() - begin) / count * 1e6)
    return statistics.median(times)


def read_costs(size_bytes: int, count: int) -> dict[str, float]:
    """Return µs a message of each way to read a pull response."""
    builder = PlainRecordBuilder("DefaultCluster")
    keys = NullInstance().ids.next_bytes(count)
    records = [builder.build(Message(TOPIC, bytes(size_bytes)), 0, key, 1) for key in keys]
    body = memoryview(bytearray(b"".join(records)))
    sizes = np.array([len(record) for record in records], np.int64)
    return {
        "read as messages": median_us(lambda: received_messages(body, sizes, "b"), count),
        "read as messages, touching body": median_us(
            lambda: sum(len(message.body) for message in received_messages(body, sizes, "b")), count
        ),
        "read as Arrow, all columns": median_us(lambda: records_to_arrow(body, sizes, "b", COLUMNS), count),
        "read as Arrow, body only": median_us(lambda: records_to_arrow(body, sizes, "b", ("body",)), count),
    }


def arrow_send_cost(size_bytes: int, count: int) -> float:
    """Return µs a row of turning an Arrow batch into records."""
    batch = pa.record_batch({"body": pa.array([bytes(size_bytes)] * count, pa.binary())})
    ids = NullInstance().ids

    def build() -> object:
        rows = read_rows(batch, TOPIC, 1 << 22)
        return ArrowRows(rows, TOPIC, np.arange(count), PackedIds.new(ids, count)).records("DefaultCluster", 4, 0, 1)

    return median_us(build, count)


def main() -> None:
    """Print one table, or JSON with ``--json``."""
    figures: dict[str, float] = {}
    loop = new_event_loop()
    for size_bytes in (100, 1024):
        issued, whole = loop.run_until_complete(send_cost(size_bytes, 20_000, 1_000))
        figures[f"send_nowait to the frame, {size_bytes} B"] = issued
        figures[f"send_nowait to the receipt, {size_bytes} B"] = whole
        for name, value in read_costs(size_bytes, 5_000).items():
            figures[f"{name}, {size_bytes} B"] = value
        figures[f"Arrow batch to records, {size_bytes} B"] = arrow_send_cost(size_bytes, 5_000)
    loop.close()
    if "--json" in sys.argv:
        print(json.dumps(figures, indent=1))
        return
    print(
        f"Python {platform.python_version()}, one thread, medians of {ROUNDS}; 1,000 sends a turn, "
        "5,000 records a response"
    )
    for name, value in figures.items():
        print(f"{value:8.2f} µs a message  {name}")


if __name__ == "__main__":
    main()
