"""Thread dumps: they show where a thread is stuck, at a limited rate and size."""

import threading

from pocketmq.broker.metrics.thread_dump import (
    FRAMES_MAX,
    STACK_CHARACTERS_MAX,
    THREADS_MAX,
    ThreadDumper,
    stack_text,
    thread_stacks,
)
from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import SteppedRunner
from pocketmq.common.stacks import thread_places
from tests.broker.conftest import eventually


def new_dumper() -> tuple[ThreadDumper, ManualClock, CapturedLog, SteppedRunner]:
    clock, log, runner = ManualClock(), CapturedLog(), SteppedRunner()
    dumper = ThreadDumper(clock, log)
    dumper.start(runner)
    return dumper, clock, log, runner


async def test_it_names_the_thread_and_the_call_it_is_stuck_in() -> None:
    """The innermost frame comes first, with its file and line."""
    gate, reached = threading.Event(), threading.Event()

    def stalled_store() -> None:
        reached.set()
        gate.wait(30)

    thread = threading.Thread(target=stalled_store, name="SendMessageThread")
    thread.start()
    try:
        reached.wait(30)
        await eventually(lambda: "wait (" in thread_stacks().get("thread_SendMessageThread", ""))
        dumper, _, log, runner = new_dumper()
        dumper.on_refused("page_cache_busy")
        runner.run_until_idle()
    finally:
        gate.set()
        thread.join()
    (event,) = log.events
    assert (event["event"], event["cause"]) == ("thread_dump", "page_cache_busy")
    stack = event["thread_SendMessageThread"]
    assert "stalled_store (metrics/test_thread_dump.py:" in stack
    assert stack.index("wait (") < stack.index("stalled_store (")


def test_at_most_one_in_fifteen_seconds_and_only_for_stalls() -> None:
    """A full queue or a bad request is no cause; the interval begins with the dump."""
    dumper, clock, log, runner = new_dumper()
    for cause in ("queue_full", "bad_request", "no_write_buffer"):
        dumper.on_refused(cause)
    runner.run_until_idle()
    assert log.events == []
    for _ in range(150):
        dumper.on_refused("queue_timeout")
        runner.run_until_idle()
        clock.advance_ms(100)
    assert len(log.events) == dumper.dumps == 1
    dumper.on_refused("page_cache_busy")
    runner.run_until_idle()
    assert [event["cause"] for event in log.events] == ["queue_timeout", "page_cache_busy"]


def test_a_dumper_that_does_not_run_remembers_nothing() -> None:
    """Before the start and after the stop a refusal causes no dump."""
    clock, log, runner = ManualClock(), CapturedLog(), SteppedRunner()
    dumper = ThreadDumper(clock, log)
    dumper.on_refused("page_cache_busy")
    dumper.start(runner)
    runner.run_until_idle()
    dumper.stop()
    dumper.on_refused("page_cache_busy")
    runner.run_until_idle()
    assert log.events == []


def test_stacks_are_bounded() -> None:
    """A deep recursion and many threads do not make a large event."""

    def deep(left: int) -> str:
        return deep(left - 1) if left else stack_text(thread_places()[threading.get_ident()])

    assert deep(100).count(" < ") == FRAMES_MAX - 1
    assert len(deep(100)) <= STACK_CHARACTERS_MAX + 1
    gate = threading.Event()
    threads = [threading.Thread(target=gate.wait, args=(30,)) for _ in range(THREADS_MAX + 10)]
    for thread in threads:
        thread.start()
    try:
        dumper, _, log, runner = new_dumper()
        dumper.on_refused("page_cache_busy")
        runner.run_until_idle()
    finally:
        gate.set()
        for thread in threads:
            thread.join()
    assert len([key for key in log.events[0] if key.startswith("thread_")]) == THREADS_MAX
    assert log.events[0]["threads"] >= THREADS_MAX + 10
