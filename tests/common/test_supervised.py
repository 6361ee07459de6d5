"""Background work: an error is logged and counted, and the work goes on; the stop ends it at once."""

import asyncio
import threading
from typing import Any

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import CorruptRecord, PocketMQError
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import NAMES_MAX, OTHERS, PAUSE_S_MAX, SOUND_NS, AllSteps, Supervisor, ThreadRunner


def told(log: CapturedLog) -> list[Any]:
    return [each for each in log.events if each["event"] == "task_failed"]


async def test_a_loop_that_fails_is_reported_counted_and_restarted() -> None:
    """It restarts even after errors that are Exceptions only in name: depth, memory, text that is no UTF-8."""
    log = CapturedLog()
    supervisor = Supervisor(log, pause_s=0)
    errors: list[Exception] = [
        RecursionError("deep"),
        MemoryError(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        PocketMQError("ours, but the loop did not expect it"),
    ]
    again = asyncio.Event()

    async def work() -> None:
        if errors:
            raise errors.pop(0)
        again.set()
        await asyncio.Event().wait()

    task = supervisor.keep(work, "some-loop")
    assert task in supervisor.tasks
    assert task.get_name() == "some-loop"
    await again.wait()
    assert supervisor.failures == {"some-loop": 4}
    assert [each["failures"] for each in told(log)] == [1, 2, 4]
    assert isinstance(told(log)[0]["exc_info"], RecursionError)
    assert supervisor.failed_within(1) in ([], ["some-loop"])
    assert supervisor.failed_within(SOUND_NS) == ["some-loop"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert supervisor.failures == {"some-loop": 4}


async def test_the_pause_grows_and_a_cancellation_in_it_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that cannot run fills neither the log nor the processor."""
    pauses: list[float] = []
    waiting = asyncio.Event()

    async def sleep(delay_s: float) -> None:
        pauses.append(delay_s)
        if len(pauses) == 12:
            waiting.set()
            await asyncio.Event().wait()

    monkeypatch.setattr("pocketmq.common.runner.asyncio.sleep", sleep)

    async def work() -> None:
        raise ValueError("always")

    task = Supervisor(pause_s=0.5).keep(work, "x")
    await waiting.wait()
    assert pauses[:4] == [0.5, 1, 2, 4]
    assert pauses[-1] == PAUSE_S_MAX
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()


async def test_work_that_returns_is_over() -> None:
    async def work() -> None:
        return None

    supervisor = Supervisor()
    await supervisor.keep(work, "x")
    assert supervisor.failures == {}


async def test_a_short_task_that_fails_is_reported() -> None:
    """It is logged unless the task was cancelled, or ended with an error of ours, which is an answer."""
    log = CapturedLog()
    supervisor = Supervisor(log)

    async def work(error: BaseException) -> None:
        raise error

    for error in (ValueError("boom"), PocketMQError("refused"), asyncio.CancelledError()):
        task = asyncio.create_task(work(error), name="short")
        supervisor.watch(task)
        await asyncio.wait((task,))
    await asyncio.sleep(0)
    assert supervisor.failures == {"short": 1}
    assert [each["event"] for each in log.events] == ["task_failed", "task_ended"]


def test_failures_are_reported_rarely_and_counted_in_a_bounded_table() -> None:
    """The log has the 1st, 2nd, 4th …, and the first after a quiet minute; numbered threads share one entry."""
    log, clock = CapturedLog(), ManualClock()
    supervisor = Supervisor(log, clock)
    for number in range(100):
        supervisor.crashed(f"ha-receive-{number}", ValueError())
    assert supervisor.failures == {"ha-receive": 100}
    assert [each["failures"] for each in told(log)] == [1, 2, 4, 8, 16, 32, 64]
    clock.advance_ms(SOUND_NS / 1e6 + 1)
    assert supervisor.failed_within(SOUND_NS) == []
    supervisor.crashed("ha-receive-1", ValueError())
    assert told(log)[-1]["failures"] == 101
    for number in range(1_000):
        supervisor.crashed(f"{number}-x", ValueError())
    assert len(supervisor.failures) == NAMES_MAX + 1
    assert supervisor.failures[OTHERS] == 1_000 - (NAMES_MAX - 1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_lives_on_when_even_the_telling_fails() -> None:
    """The step runs again even if the log fails."""
    again = threading.Event()
    steps: list[int] = []

    def step() -> float | None:
        steps.append(1)
        if len(steps) == 1:
            raise ValueError("boom")
        again.set()
        return None

    def on_crash(name: str, error: BaseException) -> None:
        worker.wake()
        raise RuntimeError("the log is broken")

    worker = ThreadRunner(on_crash).start("test", step, first_after_ms=None)
    worker.wake()
    assert again.wait(60)
    assert worker.stop()


async def test_an_error_in_the_place_of_a_cancellation_does_not_start_the_work_again() -> None:
    """Work that is cancelled may fail to close something; a stop must not wait for it for ever."""
    log, runs, begun = CapturedLog(), 0, asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("close failed")

    task = Supervisor(log, pause_s=0).keep(work, "closes-badly")
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)
    assert runs == 1
    assert [each["task"] for each in told(log)] == ["closes-badly"]


# ---- stops in many steps


def test_every_step_is_taken_and_each_failure_reported() -> None:
    """The first error is raised at the end; the others become its notes."""
    taken, told = [], []

    def fails(name: str, error: Exception) -> None:
        taken.append(name)
        raise error

    steps = AllSteps(lambda step, error: told.append((step, str(error))))
    assert steps.take("a", lambda: taken.append("a"))
    assert not steps.take("b", lambda: fails("b", CorruptRecord("first")))
    assert steps.have_failed
    assert not steps.take("c", lambda: fails("c", OSError("second")))
    assert steps.take("d", lambda: taken.append("d"))
    with pytest.raises(CorruptRecord, match="first") as caught:
        steps.raise_first()
    assert taken == ["a", "b", "c", "d"]
    assert told == [("b", "first"), ("c", "second")]
    assert caught.value.__notes__ == ["c failed as well: second"]


def test_a_foreign_error_becomes_one_of_ours() -> None:
    """The caller of a stop handles ``PocketMQError``; the original error is its cause."""
    steps = AllSteps(lambda step, error: None)
    queues: dict[str, int] = {}
    steps.take("queues", lambda: queues["x"])
    with pytest.raises(PocketMQError, match="queues: KeyError") as caught:
        steps.raise_first()
    assert isinstance(caught.value.__cause__, KeyError)


def test_nothing_is_raised_when_all_went_well() -> None:
    """A stop without an error raises none."""
    steps = AllSteps(lambda step, error: pytest.fail("told of nothing"))
    assert steps.take("a", list)
    steps.raise_first()
    assert not steps.have_failed
