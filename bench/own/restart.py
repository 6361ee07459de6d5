"""Time from start to the ready line over a store of ``GIGABYTES`` (default 5): after a clean stop, and after kill
-9."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.base.broker_process import BrokerProcess
from pocketmq.cli.bench import cases as bench_cases
from pocketmq.client import Message, Producer
from pocketmq.remoting.loop import new_event_loop


async def fill(namesrv: str, size_bytes: int) -> None:
    """Send 1 KiB messages until about ``size_bytes`` lie in the log."""
    async with Producer(group="bench", namesrv=namesrv) as producer:
        await producer.send(Message("restart", b"warm-up"))
        await bench_cases.produce_batches(producer, "restart", size_bytes=1024, batch=500, count=size_bytes // 1200)


def run() -> Iterator[dict[str, object]]:
    """Yield the two times with the size of the log."""
    gigabytes = float(os.environ.get("GIGABYTES", "5"))
    directory = Path(tempfile.mkdtemp(dir="."))
    try:
        data = directory / "data"
        broker = BrokerProcess(data)
        broker.start()
        loop = new_event_loop()
        loop.run_until_complete(fill(broker.namesrv, int(gigabytes * 1e9)))
        loop.close()
        stop_s = broker.stop()
        broker.start()
        yield {
            "case": "after a clean stop",
            "gigabytes": gigabytes,
            "ready_s": round(broker.ready_s, 3),
            "stop_s": round(stop_s, 3),
        }
        broker.stop(signal.SIGKILL)
        broker.start()
        yield {
            "case": "after kill -9, nothing written since start",
            "gigabytes": gigabytes,
            "ready_s": round(broker.ready_s, 3),
        }
        loop = new_event_loop()
        loop.run_until_complete(fill(broker.namesrv, int(1e9)))
        loop.close()
        broker.stop(signal.SIGKILL)
        broker.start()
        yield {
            "case": "after kill -9, right after 1 GB more",
            "gigabytes": gigabytes + 1,
            "ready_s": round(broker.ready_s, 3),
        }
        broker.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
