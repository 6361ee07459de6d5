"""Workers, wake-ups and the mailbox of an event loop."""

import asyncio
import threading
import time
from typing import Any

import pytest

from pocketmq.common.runner import LoopMailbox, SteppedRunner, ThreadRunner

WAIT_S = 10.0


def test_every_ring_is_followed_by_a_step() -> None:
    """A step after a wake-up sees the work put before it, however wake-ups and steps interleave."""
    done = threading.Event()
    seen = 0
    put = 0

    def step() -> float | None:
        nonlocal seen
        seen = put
        if seen == 5_000:
            done.set()
        return None

    worker = ThreadRunner().start("test", step, first_after_ms=None)
    for put in range(1, 5_001):  # noqa: B007
        worker.wake()
    assert done.wait(WAIT_S)
    assert worker.stop()


def test_several_ringers_lose_nothing() -> None:
    """Two threads share one wake-up; each waits for its own work to be seen before it goes on."""
    served = [0, 0]
    asked = [0, 0]
    events = [threading.Event(), threading.Event()]

    def step() -> float | None:
        for number in (0, 1):
            if served[number] != asked[number]:
                served[number] = asked[number]
                events[number].set()
        return None

    worker = ThreadRunner().start("test", step, first_after_ms=None)
    results: list[bool] = []

    def ask(number: int) -> None:
        for turn in range(1, 300):
            events[number].clear()
            asked[number] = turn
            worker.wake()
            results.append(events[number].wait(WAIT_S))

    threads = [threading.Thread(target=ask, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert worker.stop()
    assert all(results)
    assert len(results) == 2 * 299


def test_a_step_that_fails_is_reported_and_taken_again() -> None:
    """The thread survives, and a wake-up shortens the wait."""
    crashes: list[tuple[str, BaseException]] = []
    crashed, again = threading.Event(), threading.Event()

    def step() -> float | None:
        if not crashes:
            raise ValueError("boom")
        again.set()
        return None

    def on_crash(name: str, error: BaseException) -> None:
        crashes.append((name, error))
        crashed.set()

    worker = ThreadRunner(on_crash).start("test", step)
    assert crashed.wait(WAIT_S)
    worker.wake()
    assert again.wait(WAIT_S)
    assert worker.stop()
    assert [(name, str(error)) for name, error in crashes] == [("test", "boom")]


def test_steps_end_with_stop_also_from_inside() -> None:
    """``stop`` waits for the present step; if the step calls it, it does not wait for itself."""
    results: list[bool] = []
    stopped = threading.Event()

    def step() -> float | None:
        results.append(worker.stop())
        stopped.set()
        return 0

    worker = ThreadRunner().start("test", step, first_after_ms=None)
    worker.wake()
    assert stopped.wait(WAIT_S)
    assert worker.stop()
    assert results == [True]


def test_a_stop_that_takes_too_long_says_so() -> None:
    """A step that hangs keeps its thread."""
    begun, release = threading.Event(), threading.Event()

    def step() -> float | None:
        begun.set()
        release.wait(WAIT_S)
        return None

    worker = ThreadRunner().start("test", step)
    assert begun.wait(WAIT_S)
    assert not worker.stop(timeout_s=0)
    release.set()
    assert worker.stop()


def test_steps_without_threads() -> None:
    """The test decides when steps run; wake-ups between workers are followed until no work is left."""
    runner = SteppedRunner()
    log: list[str] = []

    def first() -> float | None:
        log.append("first")
        if len(log) == 1:
            second.wake()
        return None

    def second_step() -> float | None:
        log.append("second")
        return 5

    one = runner.start("first", first)
    second = runner.start("second", second_step, first_after_ms=None)
    runner.run_until_idle()
    assert log == ["first", "second"]
    runner.step_all()
    assert log == ["first", "second", "first", "second"]
    one.stop()
    one.wake()
    runner.run_until_idle()
    assert len(log) == 4


def test_workers_that_never_rest_are_a_bug() -> None:
    """``run_until_idle`` gives up."""
    runner = SteppedRunner()

    def step() -> float | None:
        worker.wake()
        return None

    worker = runner.start("busy", step)
    with pytest.raises(AssertionError):
        runner.run_until_idle(steps_max=10)


async def test_posts_from_threads_run_in_order() -> None:
    """Each thread's calls arrive in its order, in the loop's thread."""
    loop = asyncio.get_running_loop()
    mailbox = LoopMailbox(loop)
    got: list[tuple[int, int]] = []
    finished = asyncio.Event()
    home = threading.current_thread()

    def take(number: int, turn: int) -> None:
        assert threading.current_thread() is home
        got.append((number, turn))
        if len(got) == 2_000:
            finished.set()

    def post(number: int) -> None:
        for turn in range(1_000):
            mailbox.post(take, number, turn)

    threads = [threading.Thread(target=post, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    await asyncio.wait_for(finished.wait(), WAIT_S)
    for thread in threads:
        thread.join()
    for number in (0, 1):
        assert [turn for who, turn in got if who == number] == list(range(1_000))


class FakeLoop:
    """A loop whose calls the test runs; when ``closed`` it refuses them."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.closed = False

    def call_soon(self, callback: Any, *args: Any) -> None:
        self.calls.append(callback)

    def call_soon_threadsafe(self, callback: Any, *args: Any) -> None:
        if self.closed:
            raise RuntimeError("Event loop is closed")
        self.calls.append(callback)


def test_one_wake_up_for_many_posts_and_a_failing_call_stops_no_other() -> None:
    """The loop reports the error, then runs the next calls."""
    loop = FakeLoop()
    mailbox = LoopMailbox(loop)
    got: list[int] = []

    def fail() -> None:
        raise ValueError("boom")

    mailbox.post(got.append, 1)
    mailbox.post(fail)
    mailbox.post(got.append, 2)
    assert len(loop.calls) == 1
    with pytest.raises(ValueError, match="boom"):
        loop.calls.pop()()
    loop.calls.pop()()
    assert got == [1, 2]
    assert loop.calls == []


def test_posts_to_a_closed_loop_are_dropped() -> None:
    """All of them are dropped: calls do not pile up for a closed loop."""
    loop = FakeLoop()
    loop.closed = True
    mailbox = LoopMailbox(loop)
    for _ in range(3):
        mailbox.post(print)
        assert len(mailbox._calls) == 0


def test_a_wait_too_long_to_count_does_not_end_the_worker() -> None:
    """A setting of 2^63 ms would raise in the thread's wait, outside of any step."""
    steps: list[int] = []
    crashes: list[BaseException] = []

    def step() -> float:
        steps.append(1)
        return float(1 << 63)

    worker = ThreadRunner(lambda name, error: crashes.append(error)).start("patient", step)
    deadline = time.monotonic() + 60
    while not steps and time.monotonic() < deadline:
        time.sleep(0.001)
    seen = len(steps)
    while len(steps) == seen and time.monotonic() < deadline:
        worker.wake()
        time.sleep(0.001)
    assert len(steps) > seen
    assert worker.stop(float(1 << 63))
    assert crashes == []
