"""Open-loop load: requests leave when they are due, independent of earlier answers.

Lives here: ``Load`` (what to offer), ``offer`` (one phase of it, in a process of its own) and ``Outcome`` (every
latency, counted from the intended time of sending, so a stalled client does not hide a stalled broker: no coordinated
omission).
"""

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field

import numpy as np

from bench.base.channel_load import open_channel
from bench.base.schedule import Schedule, happens, pace
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message
from pocketmq.common.message_id import UniqueIdGenerator
from pocketmq.common.record_codec import PlainRecordBuilder
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import RequestTimeout
from pocketmq.remoting.loop import new_event_loop
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader, NativeAppendResponseHeader

TICK_S = 0.001


@dataclass(slots=True)
class Load:
    """One phase: ``rate`` requests a second for ``seconds``, spread over ``channels`` connections, each a send of one
    message that its client gives up after ``timeout_ms``. Gaps between requests are exponential (``seed``).
    """

    address: str
    topic: str
    rate: float
    seconds: float
    size_bytes: int = 1024
    channels: int = 16
    queues: int = 4
    timeout_ms: int = 3000
    seed: int = 1
    in_flight: int = 0
    """When not 0: a closed loop instead, with so many requests on their way, to find what a broker can do at most."""


@dataclass(slots=True)
class Outcome:
    """The result of a phase. Latencies are ms since the intended time of sending."""

    offered: int = 0
    elapsed_s: float = 0.0
    accepted_ms: list[float] = field(default_factory=list)
    refused_ms: list[float] = field(default_factory=list)
    refusals: dict[str, int] = field(default_factory=dict)
    timed_out: int = 0
    lost: int = 0
    lag_ms_max: float = 0.0
    """The longest delay of the generator itself: beyond some ms it was not an open loop."""

    def summary(self) -> str:
        """Return the result in one line, for an error."""
        text = (
            f"of {self.offered:,} sends {len(self.accepted_ms):,} were accepted, {len(self.refused_ms):,} refused, "
            f"{self.timed_out:,} had no answer in time, {self.lost:,} lost their connection"
        )
        return f"{text}; refusals: {self.refusals}" if self.refusals else text

    def metrics(self, load: Load) -> dict[str, object]:
        """Return the phase as one flat row."""
        row: dict[str, object] = {
            "offered_per_s": round(self.offered / load.seconds),
            "accepted_per_s": round(len(self.accepted_ms) / load.seconds),
            "refused_per_s": round(len(self.refused_ms) / load.seconds),
            "timed_out_per_s": round(self.timed_out / load.seconds),
        }
        for name, values in (("accepted", self.accepted_ms), ("refused", self.refused_ms)):
            if values:
                for label, percentile in (("p50", 50), ("p99", 99), ("p999", 99.9), ("max", 100)):
                    row[f"{name}_{label}_ms"] = round(float(np.percentile(values, percentile)), 2)
        row["lag_ms_max"] = round(self.lag_ms_max, 1)
        row["refusals"] = dict(sorted(self.refusals.items()))
        return row


async def run_load(load: Load) -> Outcome:
    """Offer ``load`` from this loop; return when every request has its answer or its time is over."""
    channels = [await open_channel(load.address, expire_interval_ms=20) for _ in range(load.channels)]
    announcement = channels[0].announcement
    assert announcement is not None
    builder = PlainRecordBuilder(announcement.cluster, announcement.family)
    ids = UniqueIdGenerator(SystemClock())
    message = Message(load.topic, random.Random(load.seed).randbytes(load.size_bytes))
    headers = [
        NativeAppendRequestHeader("open-loop", True, [(load.topic, queue, 1)], load.timeout_ms)
        for queue in range(load.queues)
    ]
    outcome = Outcome()
    refusals: Counter[str] = Counter()
    loop, clock = asyncio.get_running_loop(), time.perf_counter
    pending = 0
    idle = asyncio.Event()

    def send(at_s: float) -> None:
        nonlocal pending

        def done(result: Response | PocketMQError) -> None:
            nonlocal pending
            pending -= 1
            if not pending:
                idle.set()
            if load.in_flight and clock() < begin + load.seconds:
                loop.call_soon(lambda: send(clock() - begin))
            took_ms = (clock() - begin - at_s) * 1000
            if isinstance(result, RequestTimeout):
                outcome.timed_out += 1
            elif isinstance(result, PocketMQError):
                outcome.lost += 1
            else:
                header = result.header
                code, text = result.code, result.remark
                if isinstance(header, NativeAppendResponseHeader) and code == 0:
                    code, _, _, text = header.results[0]
                if code == 0:
                    outcome.accepted_ms.append(took_ms)
                else:
                    outcome.refused_ms.append(took_ms)
                    refusals[text.split("]")[0].lstrip("[")] += 1

        queue, channel = outcome.offered % load.queues, channels[outcome.offered % len(channels)]
        outcome.offered += 1
        record = builder.build(message, queue, ids.next_bytes(1)[0], 1)
        body = len(record).to_bytes(4, "big") + record
        pending += 1
        idle.clear()
        try:
            channel.request_nowait(
                RequestCode.NATIVE_APPEND, headers[queue], body, timeout_ms=load.timeout_ms, done=done
            )
        except PocketMQError as error:
            done(error)

    begin = clock()
    for _ in range(load.in_flight):
        send(clock() - begin)
    if load.in_flight:
        await asyncio.sleep(load.seconds)
    else:
        schedule = Schedule(load.rate, load.seconds, load.seed)
        await pace(schedule, send, begin, TICK_S)
        outcome.lag_ms_max = schedule.lag_s_max * 1000
    # what has no answer after this counts nowhere: neither accepted nor refused
    await happens(idle, load.timeout_ms / 1000 + 1 if pending else 0.01)
    outcome.elapsed_s = clock() - begin
    outcome.refusals = dict(refusals)
    for channel in channels:
        channel.close()
    return outcome


def offer(load: Load) -> Outcome:
    """Run ``load`` in a process of its own and return its result."""
    with tempfile.TemporaryFile("w+") as out:  # every latency of a phase: more than a pipe holds
        command = [sys.executable, "-m", "bench.base.open_loop"]
        subprocess.run(command, input=json.dumps(asdict(load)), stdout=out, text=True, check=True)
        out.seek(0)
        return Outcome(**json.load(out))


def main() -> None:
    """Read a ``Load`` as JSON from standard input, write the ``Outcome`` as JSON."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        outcome = runner.run(run_load(Load(**json.load(sys.stdin))))
    print(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    main()
