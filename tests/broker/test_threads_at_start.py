"""A system that gives no further thread: the start fails with one line, whichever thread it is, and leaves nothing."""

import contextlib
import threading
from pathlib import Path

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.common.runner import Step, ThreadNotStarted, ThreadRunner, ThreadWorker
from tests.broker.conftest import eventually, store_config

THREADS_AT_LEAST = 25


class Limited(ThreadRunner):
    """Starts ``left`` threads, then fails once."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left
        self.refused = ""
        self.names: list[str] = []

    def start(self, name: str, step: Step, *, first_after_ms: float | None = 0) -> ThreadWorker:
        self.left -= 1
        if self.left == -1:
            self.refused = name
            raise ThreadNotStarted(f"thread {name} not started", why="can't start new thread")
        self.names.append(name)
        return super().start(name, step, first_after_ms=first_after_ms)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


async def test_a_thread_that_cannot_be_started_fails_the_start(tmp_path: Path) -> None:
    """After the failure no thread of the broker is left, and the store opens again at once."""
    config = BrokerConfig(listen_port=0, broker_name="broker-a")
    before = threads()
    refused: list[str] = []
    for count in range(200):
        runner = Limited(count)
        app = BrokerApp(config, store_config(tmp_path / "store"), runner=runner)
        if runner.left < THREADS_AT_LEAST:
            with pytest.raises(ThreadNotStarted):
                await app.start()
        else:
            with contextlib.suppress(ThreadNotStarted):
                await app.start()
        if runner.refused:
            refused.append(runner.refused)
            await app.stop()
            await eventually(lambda: threads() <= before)
            continue
        started = set(runner.names)
        await app.stop()
        assert runner.refused in ("", "BrokerStop"), runner.refused
        break
    assert {"SendMessageThread", "AdminBrokerThread", "LockManageThread", "DelayDelivery", "dispatch"} <= set(refused)
    assert started >= set(refused)
    await eventually(lambda: threads() <= before)


def test_the_error_says_which_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python says "can't start new thread" and nothing else."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(ThreadNotStarted, match=r"thread x not started: can't start new thread.*pids\.max"):
        ThreadRunner().start("x", lambda: None)
