"""The wall clock of a real broker is set, forth and back, while delayed messages wait.

The clock is that of one process: a small library, compiled here, adds what a file says to the wall time. Lateness is
printed; earliness, which the broker must never show, is asserted.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.cli.own_broker import READY_LINE
from pocketmq.client import Message, Producer, PullConsumer

DAY_S = 86_400
DELAY_S = 5.0
"""Of level 2."""
EARLY_S_MAX = 1.0
pytestmark = [
    pytest.mark.slow,
    pytest.mark.soak,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler on this machine"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_PRELOAD is Linux's"),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library that sets the clock of a process."""
    library = tmp_path_factory.mktemp("shim") / "clock_shim.so"
    source = Path(__file__).with_name("clock_shim.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True, timeout=100)
    return library


class Broker:
    """A standalone broker whose wall clock ``set`` moves."""

    def __init__(self, directory: Path, shim: Path) -> None:
        self.directory = directory
        self.clock = directory / "clock"
        self.set(0)
        self.environment = {**os.environ, "LD_PRELOAD": str(shim), "CLOCK_SHIM_FILE": str(self.clock)}

    def set(self, ahead_s: int) -> None:
        """Let the clock be ahead of the machine's by some seconds."""
        fresh = self.clock.with_suffix(".new")
        fresh.write_text(str(ahead_s))
        fresh.replace(self.clock)

    def __enter__(self) -> "Broker":
        words = ["standalone", "--data-dir", str(self.directory / "store"), "--namesrv-port", "0", "--broker-port", "0"]
        words += ["--set", "metrics.listen_port=0", "--set", "store.mapped_file_size_commit_log=1048576"]
        with (self.directory / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pocketmq.cli.main", *words],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self.environment,
            )
        assert self.process.stdout is not None
        match = READY_LINE.fullmatch(self.process.stdout.readline())
        assert match is not None, (self.directory / "log.txt").read_text()
        self.namesrv = match[1]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(60) == 0
        finally:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def broker(tmp_path: Path, shim: Path) -> Iterator[Broker]:
    with Broker(tmp_path, shim) as running:
        yield running


@pytest.mark.parametrize("step_s", [DAY_S, -DAY_S, 100 * DAY_S, -100 * DAY_S, 20 * 365 * DAY_S])
async def test_delays_pass_as_they_should(broker: Broker, step_s: int) -> None:
    """Messages sent before a step, after it, and after the step back: each comes once, after its delay."""
    sent: dict[bytes, float] = {}
    late: dict[bytes, float] = {}
    async with Producer("clock", broker.namesrv) as producer, PullConsumer("clock", broker.namesrv) as consumer:

        async def send(name: str) -> None:
            for number in range(5):
                body = f"{name} {number}".encode()
                sent[body] = time.monotonic()
                await producer.send(Message("Clock", body, delay_time_level=2))

        await producer.send(Message("Clock", b"the topic exists"))
        await send("before")
        await asyncio.sleep(1)
        broker.set(step_s)
        await asyncio.sleep(1.5)
        await send("after")
        await asyncio.sleep(1)
        broker.set(0)
        await asyncio.sleep(1.5)
        await send("back")
        end_s = time.monotonic() + 60
        while len(late) < len(sent) and time.monotonic() < end_s:
            for message in await consumer.poll("Clock", timeout_ms=1_000):
                if message.body in sent:
                    assert message.body not in late
                    late[message.body] = time.monotonic() - sent[message.body] - DELAY_S
    print(f"step {step_s:+} s: late by {min(late.values()):.3f} to {max(late.values()):.3f} s")
    assert late.keys() == sent.keys(), "delayed for longer than a minute"
    assert min(late.values()) >= -EARLY_S_MAX
    assert (broker.directory / "log.txt").read_text().count("clock_stepped") == 2
