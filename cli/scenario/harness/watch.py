"""Reads a broker's runtime information ten times a second while a scenario runs, and its log afterwards.

Lives here: ``Watch``: highest values, counts at the end, ``evidence``.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pocketmq.cli.scenario.harness.cluster import BrokerProcess
from pocketmq.cli.scenario.report.report import Evidence
from pocketmq.client.admin.admin import Admin
from pocketmq.common.errors import PocketMQError
from pocketmq.remoting.telemetry import TELEMETRY_KEY, TelemetrySnapshot, decode_telemetry

PERIOD_S: Final = 0.1
IDLE_S_MAX: Final = 20.0
HIGHEST: Final[Mapping[str, str]] = {
    "sendThreadPoolQueueSize": "most sends that waited in the queue",
    "sendThreadPoolQueueHeadWaitTimeMills": "longest wait of the oldest send, ms",
    "pageCacheLockTimeMills": "longest hold of the append lock that was seen, ms",
    "remainHowManyDataToCommit": "most bytes in write buffers, not committed",
}
LOG_LINE_CHARACTERS_MAX: Final = 300


class Watch:
    """Watches one broker from ``start`` to ``stop``, also while it does not answer."""

    def __init__(self, admin: Admin, broker: BrokerProcess) -> None:
        self.broker = broker
        self.highest: dict[str, int] = {}
        self.telemetry: TelemetrySnapshot | None = None
        self._admin = admin
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start asking."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"watch-{self.broker.name}")

    async def stop(self) -> None:
        """Stop asking."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            await self.ask()
            await asyncio.sleep(PERIOD_S)

    async def ask(self) -> dict[str, str]:
        """Ask once; return the runtime table, empty without an answer."""
        try:
            table = await self._admin.broker_runtime(self.broker.address)
        except PocketMQError:
            return {}
        for key in HIGHEST:
            value = table.get(key, "")
            if value.isdigit():
                self.highest[key] = max(self.highest.get(key, 0), int(value))
        if TELEMETRY_KEY in table:
            with contextlib.suppress(PocketMQError):
                self.telemetry = decode_telemetry(table[TELEMETRY_KEY])
        return table

    async def idle(self) -> bool:
        """Wait until the send queue is empty and all appended messages can be consumed; return False if that takes too
        long.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IDLE_S_MAX):
                quiet = 0
                while quiet < 3:
                    table = await self.ask()
                    waits = table.get("sendThreadPoolQueueSize") != "0"
                    behind = table.get("dispatchBehindBytes") != "0"
                    quiet = 0 if waits or behind else quiet + 1
                    await asyncio.sleep(PERIOD_S / 2)
                return True
        return False

    def fault_hits(self) -> int:
        """Return how many disk calls the rules hit, from the log."""
        return max((int(line.get("hit", 0)) for line in self.lines("fault_injected")), default=0)

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Return the log lines of an event."""
        return [line for line in self.broker.log_lines() if event in str(line.get("event", ""))]

    def evidence(self, events: Sequence[str]) -> list[Evidence]:
        """Return its measurements, and one log line for each of ``events`` that it wrote."""
        name = self.broker.name
        found = [
            Evidence(says, f"{self.highest[key]:,}", "runtime info", name)
            for key, says in HIGHEST.items()
            if self.highest.get(key)
        ]
        telemetry = self.telemetry
        if telemetry is not None:
            found += [
                Evidence(f"refused: {each.remark or each.cause}", f"{each.total:,}", "telemetry", name)
                for each in telemetry.refusals
                if each.total
            ]
            hold_ms = telemetry.page_cache.longest_hold_ms_last_minute
            if hold_ms:
                found.append(Evidence("longest hold of the append lock, ms", f"{hold_ms:,}", "telemetry", name))
            if telemetry.pool is not None:
                pool = f"{telemetry.pool.available} of {telemetry.pool.size}"
                found.append(Evidence("free write buffers at the end", pool, "telemetry", name))
        hits = self.fault_hits()
        if hits:
            found.append(Evidence("calls of the disk that the fault hit", f"{hits:,}", "log", name))
        for event in events:
            lines = self.lines(event)
            if lines:
                found.append(Evidence(f"log: {len(lines)} lines like", _line(lines[0]), "log", name))
        return found


def _line(line: Mapping[str, Any]) -> str:
    values = " ".join(
        f"{key}={value}" for key, value in line.items() if key not in ("event", "timestamp", "time", "level", "logger")
    )
    text = f"{line.get('event', '')} {values}".strip().replace("\n", " ")
    return text if len(text) <= LOG_LINE_CHARACTERS_MAX else text[: LOG_LINE_CHARACTERS_MAX - 1] + "…"
