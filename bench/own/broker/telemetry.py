"""What telemetry costs: the same sends to two brokers, one that counts times and one that does not.

Both brokers run for the whole time, each in a process of its own; rounds alternate between them (on, off, off, on, …),
so that other work on the machine affects both. Rounds are short, so that some of them are not disturbed: beside
the middle of all pairs of rounds there is the ratio of the best quarters of the two sides. Each round gives two
numbers: messages per second, and CPU time of the broker's process a message, which a busy machine disturbs less. The
telemetry thread, its windows and the log lines run in the broker that counts; there is no scrape.
"""

import asyncio
import signal
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.base.channel_load import ChannelLoad, open_channel
from bench.base.harness import Row, in_loop, scaled, served, workspace
from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.daemon.daemon import SWITCH_INTERVAL_S
from pocketmq.common.clock import SystemClock
from pocketmq.common.message import Message
from pocketmq.common.message_id import UniqueIdGenerator
from pocketmq.common.record_codec import PlainRecordBuilder
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader
from pocketmq.store.config import StoreConfig

BODY_BYTES = 100
PAIRS_OF_ROUNDS = scaled(80, 6)
WARM_UP_ROUNDS = 2
CASES = {"one in flight": (1, 1, 1_000), "64 in flight": (64, 1, 5_000), "batches of 500, 4 in flight": (4, 500, 100)}
"""Frames in flight on one connection, messages in each, frames a round."""


@dataclass(slots=True)
class Side:
    """One of the two brokers and what was measured on it."""

    pid: int
    address: str
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def cpu_s(self) -> float:
        """Return what the process has used, in ns of the scheduler: a tick of ``stat`` is too coarse for a round."""
        fields = Path(f"/proc/{self.pid}/schedstat").read_text().split()
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
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


def frame_body(records: int, topic: str = "bench") -> bytes:
    """Return sizes and records, as a native append has them."""
    builder = PlainRecordBuilder("DefaultCluster")
    ids = UniqueIdGenerator(SystemClock())
    message = Message(topic, bytes(BODY_BYTES))
    built = [builder.build(message, 0, key, 1) for key in ids.next_bytes(records)]
    return b"".join(len(record).to_bytes(4, "big") for record in built) + b"".join(built)


async def measure(case: str, sides: tuple[Side, Side]) -> Row:
    """Run all rounds of a case and return its row."""
    in_flight, records, frames = CASES[case]
    request = (
        RequestCode.NATIVE_APPEND,
        NativeAppendRequestHeader("bench", True, [("bench", 0, records)], 30_000),
        frame_body(records),
    )
    loads: list[ChannelLoad] = []
    for side in sides:
        side.rates.clear()
        side.cpu_us.clear()
        loads.append(ChannelLoad(await open_channel(side.address), lambda _: request))
        for _ in range(WARM_UP_ROUNDS):
            await loads[-1].run(in_flight, count=frames)
    pairs = list(zip(sides, loads, strict=True))
    for number in range(PAIRS_OF_ROUNDS):
        for side, load in pairs if number % 2 else reversed(pairs):
            cpu_s = side.cpu_s()
            row = await load.run(in_flight, count=frames)
            side.rates.append(row.rate * records)
            side.cpu_us.append((side.cpu_s() - cpu_s) * 1e6 / (row.count * records))
    for load in loads:
        await load.close()
    on, off = sides
    return {
        "case": case,
        "size_bytes": BODY_BYTES,
        "pairs_of_rounds": PAIRS_OF_ROUNDS,
        **ratios("throughput", "messages_per_s", on.rates, off.rates),
        **ratios("cpu", "cpu_us_a_message", on.cpu_us, off.cpu_us),
    }


def ratios(name: str, unit: str, on: list[float], off: list[float]) -> Row:
    """Return both medians, and the median on/off ratio of neighbouring rounds with the middle half of them."""
    pairs = [with_it / without for with_it, without in zip(on, off, strict=True)]
    low, middle, high = statistics.quantiles(pairs, n=4)
    quarter = 2 if name == "throughput" else 0
    best_ratio = statistics.quantiles(on, n=4)[quarter] / statistics.quantiles(off, n=4)[quarter]
    return {
        f"{unit}_on": round(statistics.median(on), 3),
        f"{unit}_off": round(statistics.median(off), 3),
        f"{name}_ratio": round(middle, 3),
        f"{name}_ratio_middle_half": f"{low:.3f}..{high:.3f}",
        f"{name}_ratio_of_best_quarters": round(best_ratio, 3),
    }


def run() -> Iterator[Row]:
    """Yield one row a case."""
    with workspace() as directory, ExitStack() as stack:
        on, off = (stack.enter_context(served(__name__, str(directory / kind), kind)) for kind in ("on", "off"))
        sides = Side(*on), Side(*off)
        for case in CASES:
            yield in_loop(measure(case, sides))


if __name__ == "__main__":
    in_loop(serve(sys.argv[1], sys.argv[2] == "on"))
