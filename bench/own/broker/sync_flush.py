"""Group commit: what SYNC_FLUSH makes of the disk's own rate of syncs.

Conditions: SYNC_FLUSH, one master, messages of 1 KiB, tasks in this process that each await ``Producer.send``
(``a_send`` 1) or ``send_batch`` of ``a_send`` messages, which takes a third of the CPU a message on two cores, a fresh
broker in another one for each round, segments of 256 MiB written with zeros before use; medians of ``ROUNDS``.
``bare_syncs_per_s``: ``fdatasync`` of a file made the same way after a write of the broker's mean batch, alone on the
machine right after each round, through the same fault file system. Two disks: the machine's own, and the same with each
sync of the log slowed by ``SLOW_MS``, where the sync and not the CPU is the limit.

``of_sync_rate``: messages a second / (messages a sync x bare syncs a second): the part of the time in which the disk
syncs; the goal is 0.8 at 64 and 1,024 in flight. ``of_in_flight``: messages a second / (messages in flight x bare syncs
a second): 1 would be every sync carrying all of them, which a closed loop cannot reach: the senders must first get the
answer of the last sync. With one in flight: the median send beside the median bare sync.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path

import numpy as np

from bench.base.broker_process import BrokerProcess
from bench.base.harness import Row, faulty_disk, in_loop, medians, scaled, tails, workspace
from pocketmq.cli.bench import cases
from pocketmq.client import Message, Producer
from pocketmq.client.admin.admin import Admin
from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.remoting.telemetry import TELEMETRY_KEY, decode_telemetry
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.testing.faults import FaultFileSystem, FaultPlan

SLOW_MS = 5
LOADS = ((1, 1), (64, 1), (64, 16), (1024, 1), (1024, 64))
"""Messages in flight, and how many of them each send takes."""
PHASE_S = scaled(3.0, 0.5)
ROUNDS = scaled(3, 1)
BARE_S = scaled(1.5, 0.3)
SEGMENT_BYTES = 256 << 20
SIZE_BYTES = 1024
RECORD_BYTES = SIZE_BYTES + 150


def bare_syncs_ms(directory: Path, rules: Path, batch_bytes: int) -> list[float]:
    """Write and sync for ``BARE_S``, on a file that was written with zeros; return the time of each sync."""
    root = directory / "bare"
    (root / "commitlog").mkdir(parents=True, exist_ok=True)
    plan = FaultPlan(OsFileSystem(), str(rules), str(root), SystemClock(), NullLog())
    file = FaultFileSystem(OsFileSystem(), plan).open(str(root / "commitlog" / f"{0:020d}"), create=True)
    size_bytes = 32 << 20
    file.reserve(size_bytes)
    for at in range(0, size_bytes, 1 << 20):
        file.write_at(at, bytes(1 << 20))
    file.sync()
    data = np.ones(min(batch_bytes, size_bytes // 2), np.uint8)
    times: list[float] = []
    at, end = 0, time.perf_counter() + BARE_S
    while time.perf_counter() < end:
        begin = time.perf_counter()
        file.write_at(at, data)
        file.sync()
        times.append((time.perf_counter() - begin) * 1000)
        at = at + len(data) if at + 2 * len(data) <= size_bytes else 0
    return times


async def _load(broker: BrokerProcess, in_flight: int, a_send: int) -> tuple[cases.Row, int]:
    """Send for about ``PHASE_S``; return what became of the sends, and how many syncs of the log there were."""
    body = bytes(SIZE_BYTES)

    async def syncs_so_far() -> int:
        async with Admin(broker.namesrv) as admin:
            table = await admin.broker_runtime(broker.address)
        snapshot = decode_telemetry(table[TELEMETRY_KEY])
        assert snapshot is not None
        return snapshot.flush.count  # of the last minute: of all there were

    async with Producer(group="bench", namesrv=broker.namesrv) as producer:

        def send() -> Awaitable[object]:
            if a_send == 1:
                return producer.send(Message("sync", body))
            return producer.send_batch([Message("sync", body) for _ in range(a_send)])

        await cases.closed_loop(send, in_flight=in_flight // a_send, seconds=0.5)
        await asyncio.sleep(1)  # the next segment is being written with zeros
        before = await syncs_so_far()
        row = await cases.closed_loop(send, in_flight=in_flight // a_send, seconds=PHASE_S)
        return row, await syncs_so_far() - before


def measure(slow: bool, in_flight: int, a_send: int) -> dict[str, float]:
    """Run one round on a fresh broker."""
    with workspace() as directory:
        rules = directory / "faults.json"
        slowed = [{"operations": ["sync"], "path": "commitlog/0*", "delay_ms": SLOW_MS}] if slow else []
        settings = [*faulty_disk(rules, *slowed), f"store.mapped_file_size_commit_log={SEGMENT_BYTES}"]
        settings.append("store.flush_disk_type=SYNC_FLUSH")
        with BrokerProcess(directory / "data", *settings) as broker:
            row, syncs = in_loop(_load(broker, in_flight, a_send))
        batch = row.count * a_send / syncs
        bare = bare_syncs_ms(directory, rules, round(batch * RECORD_BYTES))
    bare_per_s, bare_p50_ms = 1000 / statistics.mean(bare), statistics.median(bare)
    sends = tails(row)
    messages_per_s = row.rate * a_send
    return {
        "messages_per_s": messages_per_s,
        "syncs_per_s": messages_per_s / batch,
        "messages_a_sync": batch,
        "bare_syncs_per_s": bare_per_s,
        "of_sync_rate": messages_per_s / batch / bare_per_s,
        "of_in_flight": messages_per_s / in_flight / bare_per_s,
        **{f"send_{name}": value for name, value in sends.items()},
        "bare_p50_ms": bare_p50_ms,
        "send_to_bare": sends["p50_ms"] / bare_p50_ms,
    }


def run() -> Iterator[Row]:
    """Yield a row for each disk and number in flight."""
    for slow in (True, False):
        for in_flight, a_send in LOADS:
            rounds = [measure(slow, in_flight, a_send) for _ in range(ROUNDS)]
            disk = f"each sync {SLOW_MS} ms slower" if slow else "plain"
            yield {"disk": disk, "in_flight": in_flight, "a_send": a_send, **medians(rounds)}
