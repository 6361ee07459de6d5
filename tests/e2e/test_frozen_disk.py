"""A disk that really stalls under a broker, in each way to store: the rest of the broker goes on."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from pocketmq.client import ConsumeFromWhere, Message, Producer, PushConsumer, ReceivedMessage
from pocketmq.common.errors import PocketMQError
from tests.e2e.frozen_disk import FrozenDisk, why_not
from tests.e2e.nodes import start_daemon
from tests.servers import free_port

WHY_NOT = why_not()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-")]
MODES: Final = {
    "mapped": ("store.append_mode=mapped",),
    "written": ("store.append_mode=written",),
    "anonymous": ("store.transient_store_pool_enable=true", "store.transient_store_pool_path=anonymous"),
    "surviving": ("store.transient_store_pool_enable=true",),
}
SETTINGS: Final = (
    "store.mapped_file_size_commit_log=4194304",
    "store.mapped_file_size_consume_queue=20000",
    "store.max_hash_slot_num=1000",
    "store.max_index_num=10000",
    "store.disk_free_bytes_min=8388608",
    "broker.default_topic_queue_nums=1",
)
SMALL, LARGE = b"s" * 100, b"l" * 8192
"""The second is copied into the map, where there is one."""


class Broker:
    """A broker whose store is on a disk that can be frozen."""

    def __init__(self, disk: FrozenDisk, process: asyncio.subprocess.Process, namesrv: int, metrics: int) -> None:
        self.disk = disk
        self.namesrv = f"127.0.0.1:{namesrv}"
        self._process = process
        self._metrics = metrics

    async def health(self) -> dict[str, Any]:
        """Return what ``/health`` says."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._metrics)
        try:
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            page = await reader.read()
        finally:
            writer.close()
        found: dict[str, Any] = msgspec.json.decode(page.partition(b"\r\n\r\n")[2])
        return found

    async def until_healthy(self, wanted: bool) -> list[str]:
        """Return the reasons once the broker says that it is healthy or not."""
        while True:
            found = await self.health()
            if (found["status"] == "ok") is wanted:
                return list(found["reasons"])
            await asyncio.sleep(0.01)

    async def stop(self) -> int:
        """End it cleanly."""
        self._process.send_signal(signal.SIGTERM)
        return await self._process.wait()


@asynccontextmanager
async def broker_on(directory: Path, *settings: str) -> AsyncIterator[Broker]:
    """Run a broker on a disk of its own; it ends when the block does."""
    metrics, namesrv = free_port(), free_port()
    with FrozenDisk(directory) as disk:
        arguments = ["standalone", "--data-dir", str(disk.path / "data")]
        arguments += ["--namesrv-port", str(namesrv), "--broker-port", "0"]
        for setting in (*SETTINGS, *settings, f"metrics.listen_port={metrics}"):
            arguments += ["--set", setting]
        process = await start_daemon(disk.prefix, arguments, directory / "errors")
        try:
            disk.watch(process.pid)
            yield Broker(disk, process, namesrv, metrics)
        finally:
            disk.__exit__()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


@pytest.mark.parametrize("body", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("mode", ["mapped", "written"])
async def test_a_stalled_append_stops_no_other_thread(tmp_path: Path, mode: str, body: bytes) -> None:
    """While one append hangs in the disk ``/health`` names the reason, and further sends are refused in RocketMQ's
    words; what was acknowledged and what hung is there afterwards."""
    patient: dict[str, Any] = {"send_msg_timeout_ms": 60_000, "send_msg_max_timeout_per_request_ms": -1}
    async with broker_on(tmp_path, *MODES[mode]) as broker, Producer("first", broker.namesrv, **patient) as producer:
        for _ in range(3):
            await producer.send(Message("Stalled", body))
        broker.disk.freeze()
        hanging = asyncio.ensure_future(producer.send(Message("Stalled", body)))
        assert await broker.until_healthy(False) == ["page_cache_busy"]
        async with Producer("second", broker.namesrv, retry_times_when_send_failed=0) as other:
            with pytest.raises(PocketMQError, match=r"PCBUSY_CLEAN_QUEUE|TIMEOUT_CLEAN_QUEUE|\[REJECTREQUEST\]"):
                await other.send(Message("Stalled", body))
        assert not hanging.done()
        broker.disk.thaw()
        assert (await hanging).queue_offset == 3
        assert await broker.until_healthy(True) == []
        assert (await producer.send(Message("Stalled", body))).queue_offset == 4
        assert await broker.stop() == 0


@pytest.mark.parametrize("body", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("mode", ["anonymous", "surviving"])
async def test_a_pool_takes_sends_while_the_disk_stalls(tmp_path: Path, mode: str, body: bytes) -> None:
    """They are acknowledged, and consumers see them once the disk is back."""
    got: asyncio.Queue[int] = asyncio.Queue()
    async with broker_on(tmp_path, *MODES[mode]) as broker, Producer("first", broker.namesrv) as producer:
        await producer.send(Message("Stalled", body))
        consumer = PushConsumer("waits", broker.namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)

        @consumer.subscribe("Stalled")
        async def note(message: ReceivedMessage) -> None:
            got.put_nowait(message.queue_offset)

        async with consumer:
            assert await got.get() == 0
            broker.disk.freeze()
            receipts = [await producer.send(Message("Stalled", body)) for _ in range(20)]
            assert [receipt.queue_offset for receipt in receipts] == list(range(1, 21))
            assert (await broker.health())["status"] == "ok"
            assert got.empty()
            broker.disk.thaw()
            assert sorted([await got.get() for _ in receipts]) == list(range(1, 21))
        assert await broker.stop() == 0
