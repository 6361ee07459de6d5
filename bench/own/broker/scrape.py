"""What a scrape takes with many topics and groups, and what it does to the loop.

One broker in a process of its own with TOPICS topics (10,000, or the variable's value), each with a message and a group
that is behind in it. The floor is a page of the same bytes from the same HTTP server, made before; ``of_floor`` is how
many times that a scrape takes. Meanwhile a client sends one small request after the other: ``loop_*`` are how long it
waits, while nobody scrapes, while somebody does all the time, and while the thread that computes the figures of topics
and groups never pauses (it rests 49 of 50 parts of its time).
"""

import asyncio
import os
import signal
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterator

from bench.base.channel_load import open_channel
from bench.base.harness import Row, in_loop, scaled, served, workspace
from bench.base.processes import free_ports
from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.metrics.figures import Figures
from pocketmq.cli.daemon.daemon import SWITCH_INTERVAL_S
from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.common.message import Message
from pocketmq.common.message_id import UniqueIdGenerator
from pocketmq.common.record_codec import PlainRecordBuilder
from pocketmq.common.runner import ThreadRunner
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.http_server import Answer, HttpServer, MetricsConfig, Route
from pocketmq.remoting.protocol.offset import QueryConsumerOffsetRequestHeader
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader
from pocketmq.store.config import StoreConfig

TOPICS = int(os.environ.get("TOPICS", scaled(10_000, 1_000)))
SCRAPES = scaled(30, 5)
QUIET_S = scaled(5.0, 0.5)
AT_ONCE = 200


async def serve(directory: str) -> None:
    """Run a broker with its topics and groups until SIGTERM (in a child process)."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    app = BrokerApp(
        BrokerConfig(listen_port=0, default_topic_queue_nums=4, wait_time_mills_in_send_queue=60_000),
        StoreConfig(store_path_root_dir=directory, sync_on_close=False),
        metrics_config=MetricsConfig(listen_port=free_ports(1)[0], series_max=TOPICS),
    )
    await app.start()
    channel = await open_channel(app.address)
    builder, ids = PlainRecordBuilder("DefaultCluster"), UniqueIdGenerator(SystemClock())

    async def fill(topic: str) -> None:
        record = builder.build(Message(topic, bytes(100)), 0, ids.next().encode(), 1)
        header = NativeAppendRequestHeader("bench", True, [(topic, 0, 1)], 60_000)
        answer = await channel.request(
            RequestCode.NATIVE_APPEND, header, len(record).to_bytes(4, "big") + record, timeout_ms=60_000
        )
        assert answer.code == 0, answer.remark
        app.offsets.commit(f"group-of-{topic}", topic, 0, 0)

    names = [f"orders-of-customer-{number:05d}" for number in range(TOPICS)]
    for begin in range(0, TOPICS, AT_ONCE):
        await asyncio.gather(*(fill(name) for name in names[begin : begin + AT_ONCE]))
    figures = app.observation.figures
    assert figures is not None
    app.store.dispatch()
    await asyncio.to_thread(figures.step)
    began_ns = time.monotonic_ns()
    await asyncio.to_thread(figures.step)
    round_ms = (time.monotonic_ns() - began_ns) / 1e6
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, lambda: loop.run_in_executor(None, _rounds, figures))
    print(app.address, app.metrics_address, f"{round_ms:.1f}", flush=True)
    await stop.wait()
    await app.stop()


def _rounds(figures: Figures) -> None:
    """Compute without a pause for a while."""
    end_ns = time.monotonic_ns() + int(QUIET_S * 1e9)
    while time.monotonic_ns() < end_ns:
        figures.step()


def fetch(address: str, path: str = "/metrics") -> tuple[float, bytes]:
    """Return the milliseconds that a page took, and the page."""
    began_ns = time.monotonic_ns()
    with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
        page: bytes = answer.read()
    return (time.monotonic_ns() - began_ns) / 1e6, page


def floor_ms(page: bytes) -> list[float]:
    """Return what the HTTP server takes for a page of these bytes that it does not have to make."""

    server = HttpServer([Route("/metrics", lambda request: Answer(200, "text/plain", page))], SystemClock(), NullLog())
    server.bind("127.0.0.1", 0)
    server.start(ThreadRunner())
    try:
        return [fetch(f"127.0.0.1:{server.port}")[0] for _ in range(SCRAPES)]
    finally:
        server.stop()


async def measure(pid: int, address: str, metrics: str, round_ms: float) -> Row:
    """Scrape again and again, with a client beside it, and without scrapes first."""
    channel = await open_channel(address)
    header = QueryConsumerOffsetRequestHeader("g", "orders-of-customer-00000", 0)
    waits: list[float] = []

    async def ask() -> None:
        while True:
            began_ns = time.monotonic_ns()
            await channel.request(RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_ms=60_000)
            waits.append((time.monotonic_ns() - began_ns) / 1e6)
            await asyncio.sleep(0.001)

    client = asyncio.create_task(ask())
    await asyncio.sleep(QUIET_S)
    quiet, took = waits[:], []
    waits.clear()
    page = b""
    for _ in range(SCRAPES):
        took_ms, page = await asyncio.to_thread(fetch, metrics)
        took.append(took_ms)
    busy = waits[:]
    waits.clear()
    os.kill(pid, signal.SIGUSR1)
    await asyncio.sleep(QUIET_S)
    rounds = waits[:]
    client.cancel()
    channel.close()
    floor = await asyncio.to_thread(floor_ms, page)
    return {
        "topics": TOPICS,
        "groups": TOPICS,
        "series": sum(not line.startswith(b"#") for line in page.splitlines()),
        "page_mb": round(len(page) / 1e6, 2),
        "scrape_ms": round(statistics.median(took), 1),
        "slowest_ms": round(max(took), 1),
        "floor_ms": round(statistics.median(floor), 1),
        "of_floor": round(statistics.median(took) / statistics.median(floor), 1),
        "round_of_figures_ms": round_ms,
        **_percentiles("loop_quiet", quiet),
        **_percentiles("loop_scraped", busy),
        **_percentiles("loop_in_rounds", rounds),
    }


def _percentiles(name: str, waits_ms: list[float]) -> Row:
    parts = statistics.quantiles(waits_ms, n=1000)
    return {
        f"{name}_p50_ms": round(statistics.median(waits_ms), 2),
        f"{name}_p99_ms": round(parts[989], 2),
        f"{name}_max_ms": round(max(waits_ms), 2),
    }


def run() -> Iterator[Row]:
    """Yield one row."""
    with workspace() as directory, served(__name__, str(directory / "store")) as (pid, said):
        address, metrics, round_ms = said.split()
        yield in_loop(measure(pid, address, metrics, float(round_ms)))


if __name__ == "__main__":
    in_loop(serve(sys.argv[1]))
