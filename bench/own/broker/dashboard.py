"""What a dashboard with ten viewers costs a busy broker: CPU a message, with and without it, in interleaved pairs.

A broker (``pocketmq standalone``) has TOPICS topics and GROUPS groups that are behind. One client sends RATE messages
a second, in frames of FRAME, to all topics in turn, and commits for each group once a second. ``pocketmq dashboard``
runs in its own process, and its viewers, event streams of each list and of one topic and one group, in this one's
child. A round without them stops (SIGSTOP) the dashboard, so a look ends in the round in which it began. Rounds are
pairs in changing order, so that other work on the machine affects both. The interval is that of the median of the
pairs' ratios, from a bootstrap.

Pages: each screen is fetched again and again, beside the load.
"""

import asyncio
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

from bench.base.channel_load import open_channel
from bench.base.harness import Row, in_loop, own_broker, scaled
from bench.own.broker.telemetry import Side, frame_body
from pocketmq.client.admin.admin import Admin
from pocketmq.common.addresses import parse_address
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.offset import UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader

TOPICS = int(os.environ.get("TOPICS", scaled(200, 20)))
GROUPS = int(os.environ.get("CONSUMER_GROUPS", scaled(100, 10)))
RATE = int(os.environ.get("RATE", scaled(50_000, 5_000)))
PAIRS = int(os.environ.get("PAIRS", scaled(20, 2)))
ROUND_S = scaled(6.0, 3.5)
"""Two looks of the watch."""
FRAME = 50
TICK_S = 0.01
BEHIND_MAX = 64
"""Frames in flight, above which the client waits."""
STREAMS = ("overview", "overview", "overview", "overview", "topics", "groups", "groups", "dead-letters", "connections")
PAGES = ("/", "/topics", "/groups", "/topics/topic-1", "/groups/group-1", "/connections", "/waiting", "/replication")
PAGE_LOOKS = scaled(20, 3)


class Load:
    """Sends and commits at a steady rate until it is cancelled. ``sent``: messages that were acknowledged."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.sent = 0
        self._in_flight = 0

    async def run(self) -> None:
        channel = await open_channel(self._address)
        try:
            frames = [frame_body(FRAME, f"topic-{number}") for number in range(TOPICS)]
            headers = [
                NativeAppendRequestHeader("bench", True, [(f"topic-{n}", 0, FRAME)], 30_000) for n in range(TOPICS)
            ]
            begin, number, next_commit, group = time.monotonic(), 0, 0.0, 0

            def done(result: object) -> None:
                self._in_flight -= 1
                if getattr(result, "code", 1):
                    raise RuntimeError(f"a send failed: {result}")
                self.sent += FRAME

            while True:
                now = time.monotonic() - begin
                while number * FRAME < now * RATE and self._in_flight < BEHIND_MAX:
                    at = number % TOPICS
                    self._in_flight += 1
                    channel.request_nowait(
                        RequestCode.NATIVE_APPEND, headers[at], frames[at], timeout_ms=30_000, done=done
                    )
                    number += 1
                if self._in_flight >= BEHIND_MAX:
                    begin, number = time.monotonic(), 0  # a broker that is too slow for the rate gets what it can take
                while next_commit < now:
                    header = UpdateConsumerOffsetRequestHeader(f"group-{group}", f"topic-{group}", 0, int(next_commit))
                    await channel.request(RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_ms=30_000)
                    group = (group + 1) % GROUPS
                    next_commit += 1 / GROUPS
                await asyncio.sleep(TICK_S)
        finally:
            channel.close()


@contextlib.contextmanager
def dashboard(namesrv: str) -> Iterator[tuple[int, str]]:
    """Serve a dashboard; yield its process and its address."""
    command = [sys.executable, "-m", "pocketmq.cli.main", "dashboard", "--namesrv", namesrv, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip().partition("=")[2].rstrip("/")
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()


async def view(url: str) -> None:
    """Be the viewers: read streams of events for ever (in a child process)."""
    host, port = parse_address(url.removeprefix("http://"))

    async def read(path: str) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"GET /live/{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        while await reader.read(65_536):
            pass

    await asyncio.gather(*map(read, (*STREAMS, "topics?sort=rate")))


async def fill(namesrv: str) -> None:
    async with Admin(namesrv) as admin:
        for number in range(TOPICS):
            await admin.create_topic(f"topic-{number}", queues=4)


def page_ms(url: str) -> list[float]:
    """Return the milliseconds of each page, in rounds over all of them."""
    took = []
    for _ in range(PAGE_LOOKS):
        for path in PAGES:
            began_ns = time.monotonic_ns()
            with urllib.request.urlopen(url + path, timeout=60) as answer:
                answer.read()
            took.append((time.monotonic_ns() - began_ns) / 1e6)
    return took


async def measure(broker_pid: int, address: str, namesrv: str) -> Row:
    """Run all pairs and return their row."""
    await fill(namesrv)
    load = Load(address)
    sending = asyncio.create_task(load.run())
    broker = Side(broker_pid, address)
    with dashboard(namesrv) as (pid, url):
        viewers = subprocess.Popen([sys.executable, "-m", __name__, url])  # noqa: ASYNC220 (before the load counts)
        looking = Side(pid, "")
        try:
            await asyncio.sleep(ROUND_S)
            pages = await asyncio.to_thread(page_ms, url)
            found: dict[bool, list[tuple[float, float, float]]] = {True: [], False: []}
            for number in range(2 * PAIRS):
                is_on = number % 4 in (0, 3)
                os.kill(pid, signal.SIGCONT if is_on else signal.SIGSTOP)
                before = (time.monotonic(), broker.cpu_s(), load.sent, looking.cpu_s())
                await asyncio.sleep(ROUND_S)
                if sending.done():
                    sending.result()
                took_s, cpu_s, messages, looked_s = (
                    now - then
                    for now, then in zip(
                        (time.monotonic(), broker.cpu_s(), load.sent, looking.cpu_s()), before, strict=True
                    )
                )
                found[is_on].append((cpu_s * 1e6 / messages, messages / took_s, looked_s * 1e3 / took_s))
            assert viewers.poll() is None, "the viewers have ended"
        finally:
            viewers.terminate()
            viewers.wait()
            sending.cancel()
    on, off = found[True], found[False]
    ratios = [with_it[0] / without[0] for with_it, without in zip(on, off, strict=True)]
    low, high = interval(ratios)
    return {
        "topics": TOPICS,
        "groups": GROUPS,
        "pairs": PAIRS,
        "viewers": len(STREAMS) + 1,
        "messages_per_s_on": round(statistics.median(each[1] for each in on)),
        "messages_per_s_off": round(statistics.median(each[1] for each in off)),
        "broker_cpu_us_a_message_on": round(statistics.median(each[0] for each in on), 3),
        "broker_cpu_us_a_message_off": round(statistics.median(each[0] for each in off), 3),
        "ratio": round(statistics.median(ratios), 4),
        "ratio_95": f"{low:.3f}..{high:.3f}",
        "dashboard_cpu_ms_a_s": round(statistics.median(each[2] for each in on), 1),
        "page_p50_ms": round(statistics.median(pages), 1),
        "page_p95_ms": round(statistics.quantiles(pages, n=20)[-1], 1),
        "page_max_ms": round(max(pages), 1),
        "load": os.getloadavg()[0],
        "cores": os.cpu_count() or 0,
    }


def interval(ratios: list[float], draws: int = 4_000) -> tuple[float, float]:
    """Return the 95 % interval of the median, from a bootstrap with a fixed seed."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[draws // 40], medians[-draws // 40]


def run() -> Iterator[Row]:
    """Yield one row."""
    with own_broker() as broker:
        yield in_loop(measure(broker.process_id, broker.address, broker.namesrv))


if __name__ == "__main__":
    asyncio.run(view(sys.argv[1]))
