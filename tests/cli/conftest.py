"""Daemons as real processes; commands inside the test's process, or as real ones."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pocketmq.cli.own_broker import READY_LINE
from pocketmq.client.admin.admin import Admin
from tests.cli.in_process import run_in_process
from tests.signals import interruptible

COMMAND = [sys.executable, "-m", "pocketmq.cli.main"]


@dataclass
class Daemon:
    """A running ``pocketmq standalone | namesrv | broker``."""

    process: "subprocess.Popen[str]"
    ready: str
    namesrv: str
    broker: str

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal; return exit code and the remaining output."""
        os.kill(self.process.pid, number)
        out, errors = self.process.communicate(timeout=100)
        return self.process.returncode, out, errors


def until_registered(namesrv: str, *, brokers: int = 1, topic: str = "") -> None:
    """Wait until a name server of its own process knows so many brokers, and the topic: it learns them a moment after
    the ready line and after the answer to the first send."""

    async def known() -> None:
        async with Admin(namesrv) as admin, asyncio.timeout(60):
            while len((await admin.cluster_info()).broker_addr_table) < brokers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            while topic and topic not in await admin.topics():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(known())


StartDaemon = Callable[..., Daemon]
RunCommand = Callable[..., "subprocess.CompletedProcess[bytes]"]


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("POCKETMQ_")}
    # a port that daemons of other tests cannot have
    return {**clean, "COLUMNS": "120", "POCKETMQ_METRICS__LISTEN_PORT": "0", **(extra or {})}


@pytest.fixture
def start_daemon(tmp_path: Path) -> Iterator[StartDaemon]:
    """Start a daemon; at the end of the test kill it if it still runs."""
    processes: list[subprocess.Popen[str]] = []

    def start(
        kind: str, *arguments: str, env: dict[str, str] | None = None, command: Sequence[str] = COMMAND
    ) -> Daemon:
        with interruptible():
            process = subprocess.Popen(
                [*command, kind, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(env),
                cwd=tmp_path,
            )
        processes.append(process)
        assert process.stdout is not None
        ready = process.stdout.readline()
        match = READY_LINE.fullmatch(ready)
        if match is None:
            process.kill()
            raise AssertionError(f"{ready!r} is no ready line: {process.communicate()[1]}")
        return Daemon(process, ready, match[1] or "", match[2] or "")

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run_command(tmp_path: Path) -> RunCommand:
    """Run a command to its end, inside this process (in_process.py)."""

    def run(
        *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> "subprocess.CompletedProcess[bytes]":
        return run_in_process(arguments, stdin, environment(env), tmp_path)

    return run


@pytest.fixture
def run_process(tmp_path: Path) -> RunCommand:
    """Run a command to its end, as a separate process, for effects that only a process shows."""

    def run(
        *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None, command: Sequence[str] = COMMAND
    ) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [*command, *arguments], input=stdin, capture_output=True, timeout=100, env=environment(env), cwd=tmp_path
        )

    return run
