"""What telemetry costs: the same sends to two brokers, one that counts times and one that does not.

    python -m bench telemetry

Both brokers run for the whole time, each in a process of its own; rounds alternate between them (on, off, off, on, …),
so that whatever else the machine does falls on both. Rounds are short, so that some of them are not disturbed: beside
the middle of all pairs of rounds there is the ratio of the best quarters of the two sides. Two figures come out of each
round: messages per second, and CPU time of the broker's process a message, which a busy machine disturbs less. The
telemetry thread, its windows and the log lines run in the broker that counts; there is no scrape.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.daemon.daemon import SWITCH_INTERVAL_S
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import NullLog
from pocketmq.common.message import Message
from pocketmq.common.message_id import UniqueIdGenerator
from pocketmq.common.record_codec import PlainRecordBuilder
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import NativeAppendRequestHeader
from pocketmq.remoting.loop import new_event_loop
from pocketmq.store.config import StoreConfig

BODY_BYTES = 100
PAIRS_OF_ROUNDS = 80
WARM_UP_ROUNDS = 2
TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Case:
    """``in_flight`` frames of ``records`` messages, ``frames`` a round, on one connection."""

    name: str
    in_flight: int
    records: int
    frames: int


CASES = (
    Case("one in flight", 1, 1, 1_000),
    Case("64 in flight", 64, 1, 5_000),
    Case("batches of 500, 4 in flight", 4, 500, 100),
)


@dataclass(slots=True)
class Side:
    """One of the two brokers and what was measured on it."""

    counts: bool
    process: "subprocess.Popen[str]"
    channel: ClientChannel
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/schedstat").read_text().split()
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        threads_ns = [int((task / "schedstat").read_text().split()[0]) for task in tasks]
        return max(int(fields[0]), sum(threads_ns)) / 1e9


async def serve(directory: str, counts: bool) -> None:
    """Run a broker until SIGTERM (in a child process)."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    app = BrokerApp(
        BrokerConfig(listen_port=0, default_topic_queue_nums=4),
        StoreConfig(store_path_root_dir=directory, sync_on_close=False),
        stage_times=counts,
    )
    await app.start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print(app.address, flush=True)
    await stop.wait()
    await app.stop()


async def start(directory: Path, counts: bool) -> Side:
    """Start one broker and connect to it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "bench.own.telemetry", str(directory), "on" if counts else "off"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: ASYNC220
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    channel = ClientChannel(address, clock=SystemClock(), log=NullLog())
    await channel.open()
    await channel.hello()
    return Side(counts, process, channel)


def frame_body(records: int) -> bytes:
    """Return sizes and records, as a native append has them."""
    builder = PlainRecordBuilder("DefaultCluster")
    ids = UniqueIdGenerator(SystemClock())
    message = Message("bench", bytes(BODY_BYTES))
    built = [builder.build(message, 0, key, 1) for key in ids.next_bytes(records)]
    return b"".join(len(record).to_bytes(4, "big") for record in built) + b"".join(built)


async def one_round(channel: ClientChannel, case: Case, body: bytes) -> float:
    """Send the frames of a round; return the seconds it took."""
    header = NativeAppendRequestHeader("bench", True, [("bench", 0, case.records)], TIMEOUT_MS)
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[None] = loop.create_future()
    left_to_send = case.frames
    left_to_answer = case.frames

    def send() -> None:
        nonlocal left_to_send
        left_to_send -= 1
        channel.request_nowait(RequestCode.NATIVE_APPEND, header, body, timeout_ms=TIMEOUT_MS, done=done)

    def done(result: Response | PocketMQError) -> None:
        nonlocal left_to_answer
        if isinstance(result, PocketMQError) or result.code:
            if not finished.done():
                finished.set_exception(RuntimeError(f"a send failed: {result}"))
            return
        left_to_answer -= 1
        if left_to_send:
            send()
        elif not left_to_answer:
            finished.set_result(None)

    begin = time.perf_counter()
    for _ in range(case.in_flight):
        send()
    await finished
    return time.perf_counter() - begin


async def measure(case: Case, sides: tuple[Side, Side]) -> dict[str, object]:
    """Run all rounds of a case and return its row."""
    body = frame_body(case.records)
    messages = case.frames * case.records
    for side in sides:
        side.rates.clear()
        side.cpu_us.clear()
        for _ in range(WARM_UP_ROUNDS):
            await one_round(side.channel, case, body)
    for number in range(PAIRS_OF_ROUNDS):
        for side in sides if number % 2 else reversed(sides):
            cpu_s = side.cpu_s()
            took_s = await one_round(side.channel, case, body)
            side.rates.append(messages / took_s)
            side.cpu_us.append((side.cpu_s() - cpu_s) * 1e6 / messages)
    on, off = sides
    return {
        "case": case.name,
        "size_bytes": BODY_BYTES,
        "pairs_of_rounds": PAIRS_OF_ROUNDS,
        "messages_per_s_on": round(statistics.median(on.rates)),
        "messages_per_s_off": round(statistics.median(off.rates)),
        **ratios("throughput", on.rates, off.rates),
        "cpu_us_a_message_on": round(statistics.median(on.cpu_us), 3),
        "cpu_us_a_message_off": round(statistics.median(off.cpu_us), 3),
        **ratios("cpu", on.cpu_us, off.cpu_us),
    }


def ratios(name: str, on: list[float], off: list[float]) -> dict[str, object]:
    """Return the median on/off ratio of neighbouring rounds and the middle half of them."""
    pairs = [with_it / without for with_it, without in zip(on, off, strict=True)]
    low, middle, high = statistics.quantiles(pairs, n=4)
    quarter = 2 if name == "throughput" else 0
    best_ratio = statistics.quantiles(on, n=4)[quarter] / statistics.quantiles(off, n=4)[quarter]
    return {
        f"{name}_ratio": round(middle, 3),
        f"{name}_ratio_middle_half": f"{low:.3f}..{high:.3f}",
        f"{name}_ratio_of_best_quarters": round(best_ratio, 3),
    }


async def compare(directory: Path) -> list[dict[str, object]]:
    """Start both brokers and run every case."""
    sides: list[Side] = []
    try:
        for counts in (True, False):  # one by one: what was started must be stopped whatever happens next
            side = await start(directory / str(counts), counts)
            sides.append(side)
        return [await measure(case, (sides[0], sides[1])) for case in CASES]
    finally:
        for side in sides:
            side.channel.close()
            side.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                side.process.wait(30)


def run() -> Iterator[dict[str, object]]:
    """Yield one row a case."""
    directory = Path(tempfile.mkdtemp(dir="."))
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield from loop.run_until_complete(compare(directory))
    finally:
        loop.close()
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    """Serve as one of the two brokers."""
    directory, kind = sys.argv[1:3]
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(directory, kind == "on"))


if __name__ == "__main__":
    main()
