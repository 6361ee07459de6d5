"""``pocketmq worker`` as real processes: messages in hand are finished at SIGTERM, whatever the kind of consumer."""

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.client import Message, Producer
from pocketmq.testing.broker import PocketBroker
from tests.cli.conftest import RunCommand, environment
from tests.client.push.test_push_consumer import until_committed

pytestmark = pytest.mark.slow

APPLICATION = """
import asyncio, os, pathlib, sys
from pocketmq.client import PushConsumer, blocking

async def wait_for(name):
    while not pathlib.Path(name).exists():
        await asyncio.sleep(0.01)

namesrv = os.environ["POCKETMQ_NAMESRV"]
consumer = PushConsumer("asynchronous", namesrv, start="earliest", rebalance_interval_ms=100)
threads = blocking.PushConsumer("threads", namesrv, start="earliest", rebalance_interval_ms=100)

@consumer.subscribe("Jobs")
async def work(message):
    print("begun", os.getpid(), flush=True)
    await wait_for("go")
    print("done", flush=True)

@threads.subscribe("Jobs")
def work_in_thread(message):
    asyncio.run(work(message))
"""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PocketBroker]:
    (tmp_path / "application.py").write_text(APPLICATION)
    async with PocketBroker() as running, Producer("senders", running.namesrv) as producer:
        await producer.send(Message("Jobs", b"x"))
        yield running


class Worker:
    """A running ``pocketmq worker``; its log goes to a file."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, broker: PocketBroker, directory: Path, *arguments: str) -> "Worker":
        with (directory / "log").open("w") as log:
            return cls(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "pocketmq.cli.main", "worker", *arguments),
                    cwd=directory,
                    env=environment({"POCKETMQ_NAMESRV": broker.namesrv}),
                    stdout=subprocess.PIPE,
                    stderr=log,
                )
            )

    async def line(self) -> list[str]:
        assert self.process.stdout is not None
        async with asyncio.timeout(100):
            return (await self.process.stdout.readline()).decode().split()

    async def ended(self) -> int:
        async with asyncio.timeout(100):
            return await self.process.wait()

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@pytest.mark.parametrize(
    ("arguments", "group"),
    [
        (["application:consumer"], "asynchronous"),
        (["application:threads"], "threads"),
        (["application:consumer", "--processes", "2"], "asynchronous"),
    ],
)
async def test_sigterm_lets_a_message_end(
    broker: PocketBroker, tmp_path: Path, arguments: list[str], group: str
) -> None:
    """The handler finishes, its offset is committed, and the worker ends with 0."""
    worker = await Worker.start(broker, tmp_path, *arguments)
    try:
        assert (await worker.line())[0] == "begun"
        worker.process.send_signal(signal.SIGTERM)
        (tmp_path / "go").touch()
        assert await worker.line() == ["done"]
        assert await worker.ended() == 0
        await until_committed(broker, group, "Jobs", 1)
    finally:
        await worker.end()


async def test_a_killed_process_is_replaced_and_the_message_done_again(broker: PocketBroker, tmp_path: Path) -> None:
    """The parent starts another one, which gets the message that the first had not finished."""
    worker = await Worker.start(broker, tmp_path, "application:consumer", "--processes", "2")
    try:
        _, pid = await worker.line()
        (tmp_path / "go").touch()
        os.kill(int(pid), signal.SIGKILL)
        line = await worker.line()
        while line != ["done"]:  # "begun" of the second try; or "done" of the first, which was faster than the kill
            assert line[0] == "begun"
            line = await worker.line()
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.ended() == 0
    finally:
        await worker.end()


@pytest.mark.skipif(importlib.util.find_spec("watchfiles") is None, reason="needs pocketmq[reload]")
async def test_a_changed_file_starts_it_again(broker: PocketBroker, tmp_path: Path) -> None:
    """The running handler ends first; the new program gets the next message."""
    (tmp_path / "go").touch()
    worker = await Worker.start(broker, tmp_path, "application:consumer", "--reload")
    try:
        assert (await worker.line())[0] == "begun"
        assert await worker.line() == ["done"]
        await until_committed(broker, "asynchronous", "Jobs", 1)
        (tmp_path / "application.py").write_text(APPLICATION.replace('"begun"', '"changed"'))
        async with Producer("senders", broker.namesrv) as producer:
            line: list[str] = []
            reading = asyncio.ensure_future(worker.line())
            while line[:1] != ["changed"]:
                await producer.send(Message("Jobs", b"y"))
                done, _ = await asyncio.wait([reading], timeout=0.2)
                if done:
                    line = reading.result()
                    assert line, (tmp_path / "log").read_text()
                    reading = asyncio.ensure_future(worker.line())
            reading.cancel()
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.ended() == 0
    finally:
        await worker.end()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["application:consumr"], b"it has consumer, threads"),
        (["application:consumr", "--processes", "2"], b"it has consumer, threads"),
    ],
)
def test_a_wrong_name_ends_with_2(run_process: RunCommand, tmp_path: Path, arguments: list[str], text: bytes) -> None:
    """One process or several."""
    (tmp_path / "application.py").write_text(APPLICATION)
    done = run_process("worker", *arguments, env={"POCKETMQ_NAMESRV": "127.0.0.1:9"})
    assert done.returncode == 2, done.stderr
    assert text in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [("--log-level", "loud", b"debug, info, warning, error"), ("--stop-timeout", "soon", b"bad --stop-timeout")],
)
def test_an_option_that_cannot_be_ends_with_2(run_command: RunCommand, option: str, value: str, text: bytes) -> None:
    done = run_command("worker", "application:consumer", option, value, env={"POCKETMQ_NAMESRV": "127.0.0.1:9"})
    assert done.returncode == 2, done.stderr
    assert text in done.stderr
    assert b"Traceback" not in done.stderr
