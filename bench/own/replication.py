"""Replication: what a synchronous slave costs a send, and how fast a new slave catches up.

Conditions: master, slave and clients on one machine, each broker a process of its own with a fresh store for each
round, ASYNC_FLUSH, messages of 1 KiB, tasks in this process that each await ``Producer.send``; medians of ``ROUNDS``.
``none`` is an asynchronous master without a slave, ``async`` one with a slave that follows, ``sync`` a SYNC_MASTER
whose every send waits for the slave to have it in its log (``slave_ack_policy`` WRITTEN).

``of_async``: messages a second of ``sync`` / ``async`` at the same number in flight; the goal is 0.7 with 64.
``p50_of_none``: p50 beside that without a slave; the goal is below 2.5 with one in flight.

``catch_up``: a store of ``GIGABYTES`` (environment, default 2) in messages of 64 KiB, then a new slave, while this
process goes on sending with 64 in flight. ``catch_up_mb_per_s``: what the slave's log gained until it had all that was
there when it started; the goal is 300 or what the disk writes (``disk_mb_per_s``: a plain file of the same size written
and synced right after, alone). ``rate_kept``: messages a second while it caught up / before; the goal is 0.8.

Run: ``python -m bench replication``.
"""

import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import numpy as np

from bench.base.broker_process import BrokerProcess
from pocketmq.client import Message, Producer, SendStatus
from pocketmq.client.admin.admin import Admin
from pocketmq.remoting.loop import new_event_loop

IN_FLIGHT = (1, 64)
PHASE_S = 3.0
ROUNDS = 3
SIZE_BYTES = 1024
FILL_BYTES = 64 << 10
SEGMENT_BYTES = 256 << 20
GIGABYTES = float(os.environ.get("GIGABYTES", "2"))
COMMON = (f"store.mapped_file_size_commit_log={SEGMENT_BYTES}", "broker.broker_name=pair", "store.ha_listen_port=-1")


class SlaveProcess:
    """``pocketmq broker`` as a slave of the broker name ``pair``; a context manager."""

    def __init__(self, data_dir: Path, namesrv: str, *settings: str) -> None:
        command = [sys.executable, "-m", "pocketmq.cli.main", "broker", "--data-dir", str(data_dir)]
        command += ["--namesrv", namesrv, "--broker-port", "0"]
        for setting in (*COMMON, "store.broker_role=SLAVE", "broker.broker_id=1", "log.level=warning", *settings):
            command += ["--set", setting]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        log_path = data_dir.with_name(data_dir.name + ".log")
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("ready "):
            raise RuntimeError(f"the slave did not start: {line!r}; {log_path.read_text()[-2000:]}")
        self.address = dict(part.split("=", 1) for part in line.split()[1:])["broker"]

    def __enter__(self) -> "SlaveProcess":
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)


async def _until(is_so: Callable[[], Awaitable[bool]], every_s: float) -> None:
    async with asyncio.timeout(300):
        while True:
            if await is_so():
                return
            await asyncio.sleep(every_s)


async def _end_offset(admin: Admin, address: str) -> int:
    return int((await admin.broker_runtime(address))["commitLogMaxOffset"])


async def _until_followed(broker: BrokerProcess, slave: SlaveProcess) -> None:
    """Return when the slave has what the master has."""
    async with Admin(broker.namesrv) as admin:

        async def follows() -> bool:
            return await _end_offset(admin, slave.address) >= await _end_offset(admin, broker.address)

        await _until(follows, 0.1)


async def _send(producer: Producer, in_flight: int, seconds: float, times: list[float], size_bytes: int) -> None:
    """Keep so many messages in flight; note the ms of each. What is not SEND_OK ends the benchmark."""
    body = bytes(size_bytes)
    end = time.perf_counter() + seconds

    async def sender() -> None:
        while (begin := time.perf_counter()) < end:
            receipt = await producer.send(Message("replicated", body))
            if receipt.status is not SendStatus.SEND_OK:
                raise RuntimeError(f"{receipt.status} after {len(times)} messages")
            times.append((time.perf_counter() - begin) * 1000)

    await asyncio.gather(*(sender() for _ in range(in_flight)))


async def _first_ok(producer: Producer) -> None:
    """Return when a send is answered with SEND_OK: under SYNC_MASTER the slave follows then."""

    async def is_ok() -> bool:
        return (await producer.send(Message("replicated", b"first"))).status is SendStatus.SEND_OK

    await _until(is_ok, 0.1)


def _measure(directory: Path, mode: str) -> dict[int, tuple[float, float, float]]:
    """Run one round; return {in flight: (messages a second, p50, p99 in ms)}."""
    role = "SYNC_MASTER" if mode == "sync" else "ASYNC_MASTER"

    async def load(broker: BrokerProcess) -> dict[int, tuple[float, float, float]]:
        out = {}
        async with Producer(group="bench", namesrv=broker.namesrv) as producer:
            await _first_ok(producer)
            for in_flight in IN_FLIGHT:
                await _send(producer, in_flight, 0.5, [], SIZE_BYTES)
                times: list[float] = []
                begin = time.perf_counter()
                await _send(producer, in_flight, PHASE_S, times, SIZE_BYTES)
                rate = len(times) / (time.perf_counter() - begin)
                out[in_flight] = (rate, statistics.median(times), float(np.percentile(times, 99)))
        return out

    loop = new_event_loop()
    try:
        with BrokerProcess(directory / "master", *COMMON, f"store.broker_role={role}") as broker:
            if mode == "none":
                return loop.run_until_complete(load(broker))
            with SlaveProcess(directory / "slave", broker.namesrv) as slave:
                loop.run_until_complete(_until_followed(broker, slave))
                out = loop.run_until_complete(load(broker))
                loop.run_until_complete(_until_followed(broker, slave))
                return out
    finally:
        loop.close()
        for name in ("master", "slave"):
            shutil.rmtree(directory / name, ignore_errors=True)


async def _fill(producer: Producer, size_bytes: int) -> None:
    body = bytes(FILL_BYTES)
    left = iter(range(size_bytes // FILL_BYTES))

    async def sender() -> None:
        for _ in left:
            await producer.send(Message("replicated", body))

    await asyncio.gather(*(sender() for _ in range(32)))


async def _catch_up(broker: BrokerProcess, directory: Path) -> dict[str, float]:
    async with Producer(group="bench", namesrv=broker.namesrv) as producer, Admin(broker.namesrv) as admin:
        await _fill(producer, int(GIGABYTES * (1 << 30)))
        await _send(producer, 64, 1.0, [], SIZE_BYTES)
        before: list[float] = []
        await _send(producer, 64, PHASE_S, before, SIZE_BYTES)
        target = await _end_offset(admin, broker.address)
        slave = await asyncio.to_thread(SlaveProcess, directory / "slave", broker.namesrv)
        with slave:
            times: list[float] = []

            async def began() -> bool:
                return await _end_offset(admin, slave.address) > 0

            async def has_all() -> bool:
                return await _end_offset(admin, slave.address) >= target or sending.done()

            await _until(began, 0.01)  # it has to find its master first
            start = await _end_offset(admin, slave.address)
            begin = time.perf_counter()
            sending = asyncio.create_task(_send(producer, 64, 600, times, SIZE_BYTES))
            await _until(has_all, 0.05)
            end = await _end_offset(admin, slave.address)
            seconds = time.perf_counter() - begin
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            rate_before, rate = len(before) / PHASE_S, len(times) / seconds
            await _until_followed(broker, slave)
    return {
        "catch_up_mb_per_s": (end - start) / 1e6 / seconds,
        "seconds": seconds,
        "rate_before": rate_before,
        "rate_meanwhile": rate,
        "rate_kept": rate / rate_before,
    }


def _disk_mb_per_s(directory: Path, size_bytes: int) -> float:
    data = np.ones(1 << 20, np.uint8)
    begin = time.perf_counter()
    with (directory / "plain").open("wb", buffering=0) as file:
        for _ in range(size_bytes >> 20):
            file.write(data.data)
        os.fdatasync(file.fileno())
    seconds = time.perf_counter() - begin
    (directory / "plain").unlink()
    return size_bytes / 1e6 / seconds


def _measure_catch_up(directory: Path) -> dict[str, float]:
    loop = new_event_loop()
    try:
        with BrokerProcess(directory / "master", *COMMON) as broker:
            figures = loop.run_until_complete(_catch_up(broker, directory))
    finally:
        loop.close()
        for name in ("master", "slave"):
            shutil.rmtree(directory / name, ignore_errors=True)
    return {**figures, "disk_mb_per_s": _disk_mb_per_s(directory, int(GIGABYTES * (1 << 30)))}


def run() -> Iterator[dict[str, object]]:
    """Yield a row for each mode and number in flight, then the catch-up."""
    directory = Path(tempfile.mkdtemp(dir=".")).resolve()
    try:
        rounds: dict[str, list[dict[int, tuple[float, float, float]]]] = {"none": [], "async": [], "sync": []}
        for _ in range(ROUNDS):  # in turn: what else the machine does falls on all alike
            for mode, figures in rounds.items():
                figures.append(_measure(directory, mode))

        def middle(mode: str, in_flight: int, place: int) -> float:
            return statistics.median(figures[in_flight][place] for figures in rounds[mode])

        for in_flight in IN_FLIGHT:
            for mode in rounds:
                row: dict[str, object] = {"mode": mode, "in_flight": in_flight}
                for place, name in enumerate(("messages_per_s", "p50_ms", "p99_ms")):
                    row[name] = round(middle(mode, in_flight, place), 3)
                row["p50_of_none"] = round(middle(mode, in_flight, 1) / middle("none", in_flight, 1), 2)
                row["of_async"] = round(middle(mode, in_flight, 0) / middle("async", in_flight, 0), 2)
                yield row
        caught_up = [_measure_catch_up(directory) for _ in range(ROUNDS)]
        medians = {name: round(statistics.median(each[name] for each in caught_up), 2) for name in caught_up[0]}
        yield {"mode": "catch_up", "gigabytes": GIGABYTES, **medians}
    finally:
        shutil.rmtree(directory, ignore_errors=True)
