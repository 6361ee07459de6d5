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
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from bench.base.broker_process import BrokerProcess, SlaveProcess
from bench.base.harness import Row, in_loop, in_turns, medians, scaled, tails, workspace
from pocketmq.cli.bench import cases
from pocketmq.client import Message, Producer, SendStatus
from pocketmq.client.admin.admin import Admin

IN_FLIGHT = (1, 64)
PHASE_S = scaled(3.0, 0.5)
ROUNDS = scaled(3, 1)
SIZE_BYTES = 1024
FILL_BYTES = 64 << 10
GIGABYTES = float(os.environ.get("GIGABYTES", scaled("2", "0.2")))
SEGMENTS = f"store.mapped_file_size_commit_log={256 << 20}"
COMMON = (SEGMENTS, "broker.broker_name=pair", "store.ha_listen_port=-1")


async def _until(is_so: Callable[[], Awaitable[bool]], every_s: float) -> None:
    async with asyncio.timeout(300):
        while not await is_so():  # noqa: ASYNC110 - the state is that of other processes
            await asyncio.sleep(every_s)


async def _end_offset(admin: Admin, address: str) -> int:
    return int((await admin.broker_runtime(address))["commitLogMaxOffset"])


async def _until_followed(broker: BrokerProcess, slave: SlaveProcess) -> None:
    """Return when the slave has what the master has."""
    async with Admin(broker.namesrv) as admin:

        async def follows() -> bool:
            return await _end_offset(admin, slave.address) >= await _end_offset(admin, broker.address)

        await _until(follows, 0.1)


async def _send(producer: Producer, in_flight: int, seconds: float) -> cases.Row:
    """Keep so many messages in flight. What is not SEND_OK ends the benchmark."""
    message = Message("replicated", bytes(SIZE_BYTES))

    async def send() -> None:
        receipt = await producer.send(message)
        if receipt.status is not SendStatus.SEND_OK:
            raise RuntimeError(f"a send ended with {receipt.status}")

    return await cases.closed_loop(send, in_flight=in_flight, seconds=seconds)


async def _first_ok(producer: Producer) -> None:
    """Return when a send is answered with SEND_OK: under SYNC_MASTER the slave follows then."""

    async def is_ok() -> bool:
        return (await producer.send(Message("replicated", b"first"))).status is SendStatus.SEND_OK

    await _until(is_ok, 0.1)


async def _load(broker: BrokerProcess, slave: SlaveProcess | None) -> dict[int, cases.Row]:
    out = {}
    if slave is not None:
        await _until_followed(broker, slave)
    async with Producer(group="bench", namesrv=broker.namesrv) as producer:
        await _first_ok(producer)
        for in_flight in IN_FLIGHT:
            await _send(producer, in_flight, 0.5)
            out[in_flight] = await _send(producer, in_flight, PHASE_S)
    if slave is not None:
        await _until_followed(broker, slave)
    return out


def _measure(mode: str) -> dict[int, cases.Row]:
    """Run one round; return the loads by the number in flight."""
    role = f"store.broker_role={'SYNC_MASTER' if mode == 'sync' else 'ASYNC_MASTER'}"
    with workspace() as directory, BrokerProcess(directory / "master", *COMMON, role) as broker, ExitStack() as stack:
        slave = None
        if mode != "none":
            slave = stack.enter_context(SlaveProcess(directory / "slave", broker.namesrv, SEGMENTS))
        return in_loop(_load(broker, slave))


async def _catch_up(broker: BrokerProcess, directory: Path) -> dict[str, float]:
    async with Producer(group="bench", namesrv=broker.namesrv) as producer, Admin(broker.namesrv) as admin:
        large = Message("replicated", bytes(FILL_BYTES))
        count = int(GIGABYTES * (1 << 30)) // FILL_BYTES
        await cases.closed_loop(lambda: producer.send(large), in_flight=32, count=count)
        await _send(producer, 64, 1.0)
        before = await _send(producer, 64, PHASE_S)
        target = await _end_offset(admin, broker.address)
        with SlaveProcess(directory / "slave", broker.namesrv, SEGMENTS) as slave:
            sent = 0

            async def send() -> None:
                nonlocal sent
                await producer.send(Message("replicated", bytes(SIZE_BYTES)))
                sent += 1

            async def began() -> bool:
                return await _end_offset(admin, slave.address) > 0

            async def has_all() -> bool:
                return await _end_offset(admin, slave.address) >= target or sending.done()

            await _until(began, 0.01)  # it has to find its master first
            start = await _end_offset(admin, slave.address)
            begin = time.perf_counter()
            sending = asyncio.create_task(cases.closed_loop(send, in_flight=64, seconds=600))
            await _until(has_all, 0.05)
            end = await _end_offset(admin, slave.address)
            seconds = time.perf_counter() - begin
            rate = sent / seconds
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await _until_followed(broker, slave)
    return {
        "catch_up_mb_per_s": (end - start) / 1e6 / seconds,
        "seconds": seconds,
        "rate_before": before.rate,
        "rate_meanwhile": rate,
        "rate_kept": rate / before.rate,
    }


def _disk_mb_per_s(path: Path, size_bytes: int) -> float:
    data = np.ones(1 << 20, np.uint8)
    begin = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(size_bytes >> 20):
            file.write(data.data)
        os.fdatasync(file.fileno())
    return size_bytes / 1e6 / (time.perf_counter() - begin)


def _measure_catch_up() -> dict[str, float]:
    with workspace() as directory, BrokerProcess(directory / "master", *COMMON) as broker:
        measured = in_loop(_catch_up(broker, directory))
    with workspace() as directory:
        return {**measured, "disk_mb_per_s": _disk_mb_per_s(directory / "plain", int(GIGABYTES * (1 << 30)))}


def run() -> Iterator[Row]:
    """Yield a row for each mode and number in flight, then the catch-up."""
    rounds = in_turns(ROUNDS, ("none", "async", "sync"), _measure)
    measured = {
        (in_flight, mode): medians(
            [{"messages_per_s": one[in_flight].rate, **tails(one[in_flight])} for one in of_mode]
        )
        for in_flight in IN_FLIGHT
        for mode, of_mode in rounds.items()
    }
    for (in_flight, mode), row in measured.items():
        ratios = {
            "p50_of_none": round(row["p50_ms"] / measured[in_flight, "none"]["p50_ms"], 2),
            "of_async": round(row["messages_per_s"] / measured[in_flight, "async"]["messages_per_s"], 2),
        }
        yield {"mode": mode, "in_flight": in_flight, **row, **ratios}
    caught_up = [_measure_catch_up() for _ in range(ROUNDS)]
    yield {"mode": "catch_up", "gigabytes": GIGABYTES, **medians(caught_up, 2)}
