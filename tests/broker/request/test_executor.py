"""Executors: every task gets one answer, whatever the processor does."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.broker.flow_control.admission import Admission
from pocketmq.broker.request.executor import (
    FOLLOW_UP_AFTER_MS,
    SLOW_DRAIN_NS,
    AdaptiveDrain,
    DrainExecutor,
    OneByOne,
)
from pocketmq.broker.request.request_table import RequestTable
from pocketmq.broker.request.request_task import AnswerPort, Drain, Refusal, Task, encode_answer
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import SteppedRunner, ThreadRunner
from pocketmq.remoting.codec import decode_request, encode_request
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frame import FRAME_BYTES_MAX, JSON, MSGPACK, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader
from tests.broker.fakes import DirectMailbox, FakeConnection, make_request, parse_response

CODE = RequestCode.GET_BROKER_RUNTIME_INFO


class Echo:
    """Answers everything; keeps the drains."""

    def __init__(self) -> None:
        self.drains: list[int] = []
        self.refusal: Refusal | None = None
        self.error: Exception | None = None

    def reject_request(self) -> Any:
        return self.refusal

    def process(self, drain: Drain) -> None:
        self.drains.append(len(drain.tasks))
        for index, task in enumerate(drain.tasks):
            if self.error is not None and index == 1:
                raise self.error
            drain.answer(task, encode_answer(task.request))


class World:
    """One executor with everything around it."""

    def __init__(
        self,
        processor: Any,
        *,
        runner: Any = None,
        count_max: int = 100,
        drain_max: int = 8,
        threads: int = 1,
        follow_up: Callable[[], None] | None = None,
    ) -> None:
        self.clock = ManualClock()
        direct: Any = DirectMailbox()
        self.log = CapturedLog()
        self.runner = runner or SteppedRunner()
        self.executor = DrainExecutor(
            "TestThread",
            processor,
            count_max=count_max,
            size_bytes_max=1 << 20,
            threads=threads,
            drain=AdaptiveDrain(drain_max, 1 << 20),
            max_wait_ms=200,
            runner=self.runner,
            answers=AnswerPort(direct),
            clock=self.clock,
            log=self.log,
            follow_up=follow_up,
        )
        self.admission = Admission(lambda connection: None, self.clock, self.log)
        self.admission.open(RequestTable(self.executor))
        self.connection: Any = FakeConnection()

    def task(self, oneway: bool = False, opaque: int = 1) -> Task:
        return Task(self.connection, make_request(opaque=opaque, oneway=oneway), self.clock.monotonic_ns(), 10)

    def codes(self) -> list[int]:
        return [parse_response(each, CODE).code for each in self.connection.responses]


def test_a_drain_is_answered_with_one_write_per_connection() -> None:
    """Eight requests, one hop, one write."""
    echo = Echo()
    world = World(echo)
    for opaque in range(8):
        assert world.executor.offer(world.task(opaque=opaque))
    world.runner.run_until_idle()
    assert echo.drains == [8]
    assert world.connection.writes == 1
    assert [parse_response(each, CODE).opaque for each in world.connection.responses] == list(range(8))


def test_follow_up_comes_after_the_answers_once_the_queue_is_idle() -> None:
    """Follow-up work waits until the answers are out and no request is queued, or until 1 ms has passed."""
    seen: list[int] = []
    world = World(Echo(), follow_up=lambda: seen.append(len(world.connection.responses)))
    world.executor.offer(world.task())
    [worker] = world.runner.workers
    assert worker.step() == FOLLOW_UP_AFTER_MS
    assert (seen, world.codes()) == ([], [0])
    assert worker.step() is None
    assert seen == [1]
    assert worker.step() is None
    assert seen == [1]
    for _ in range(3):  # a steady stream: the worker is woken before the wait is over
        world.executor.offer(world.task())
        worker.step()
        world.clock.advance_ms(0.6)
    assert seen == [1, 4]
    world.executor.finish(world.clock.monotonic_ns() + 1)
    assert seen == [1, 4]


def test_what_is_left_to_follow_up_is_done_at_the_stop() -> None:
    """A stop does not lose it; an error in it is logged and does no harm."""

    def fail() -> None:
        raise ValueError("no")

    world = World(Echo(), follow_up=fail)
    world.executor.offer(world.task())
    [worker] = world.runner.workers
    worker.step()
    world.executor.finish(world.clock.monotonic_ns() + 1)
    assert len(world.log.of("follow_up_failed")) == 1


def test_an_error_in_the_processor_answers_the_rest_and_spares_the_worker() -> None:
    """Answered requests stay answered; the others get SYSTEM_ERROR with text; the next drain works."""
    echo = Echo()
    echo.error = KeyError("broken")
    world = World(echo)
    for opaque in range(3):
        world.executor.offer(world.task(opaque=opaque))
    world.runner.run_until_idle()
    responses = [parse_response(each, CODE) for each in world.connection.responses]
    assert [response.code for response in responses] == [0, 1, 1]
    assert "KeyError" in responses[1].remark
    assert len(world.log.of("processor_failed")) == 1
    echo.error = None
    world.executor.offer(world.task())
    world.runner.run_until_idle()
    assert world.codes() == [0, 1, 1, 0]


def test_a_processor_that_forgets_a_request_is_found_out() -> None:
    """Even a bug leaves no request without an answer."""

    class Forgetful(Echo):
        def process(self, drain: Drain) -> None:
            pass

    world = World(Forgetful())
    world.executor.offer(world.task())
    world.executor.offer(world.task(oneway=True))
    world.runner.run_until_idle()
    assert world.codes() == [1]
    assert world.log.of("processor_failed")


def test_one_bad_request_of_a_drain_is_its_own_error() -> None:
    """With OneByOne an error fails only its own request, with the error's code."""

    class Picky(OneByOne):
        def serve(self, task: Task, drain: Drain) -> None:
            if task.request.opaque == 1:
                raise PocketMQError("no", why="because", cause=Cause.BAD_REQUEST)
            drain.answer(task, encode_answer(task.request))

    world = World(Picky())
    for opaque in range(3):
        world.executor.offer(world.task(opaque=opaque))
    world.runner.run_until_idle()
    responses = [parse_response(each, CODE) for each in world.connection.responses]
    assert [response.code for response in responses] == [0, 1, 0]
    assert responses[1].remark == "no: because"
    assert responses[1].extra["cause"] == "bad_request"


def test_admission_refuses_with_rocketmqs_words_when_the_queue_is_full() -> None:
    """Full: code 2, [OVERLOAD], and the log line operators know; oneway requests are dropped and counted."""
    world = World(Echo(), count_max=2)
    for _ in range(3):
        world.admission.on_request(world.connection, make_request())
    world.admission.on_request(world.connection, make_request(oneway=True))
    (refusal,) = [parse_response(each, CODE) for each in world.connection.responses]
    assert refusal.code == ResponseCode.SYSTEM_BUSY
    assert refusal.remark == "[OVERLOAD]system busy, start flow control for a while"
    assert refusal.extra == {"cause": "queue_full", "stored": "no", "retry_after_ms": "100"}
    assert world.admission.oneway_dropped == 1
    assert world.log.of("too many requests and system thread pool busy, RejectedExecutionException")
    assert len(world.executor.queue) == 2


def test_a_processor_may_refuse_before_anything_is_queued() -> None:
    """reject_request runs on the loop."""
    echo = Echo()
    echo.refusal = Refusal(2, "[REJECTREQUEST]system busy, start flow control for a while", Cause.PAGE_CACHE_BUSY)
    world = World(echo)
    world.admission.on_request(world.connection, make_request())
    assert world.codes() == [2]
    assert len(world.executor.queue) == 0


def test_after_closing_everything_is_refused() -> None:
    """A stopping broker answers SERVICE_NOT_AVAILABLE at once."""
    world = World(Echo())
    world.admission.close()
    world.admission.on_request(world.connection, make_request())
    assert world.codes() == [ResponseCode.SERVICE_NOT_AVAILABLE]


def test_finish_serves_what_waits() -> None:
    """A stop answers every queued task, by serving it while there is time."""
    echo = Echo()
    world = World(echo)
    for opaque in range(20):
        world.executor.offer(world.task(opaque=opaque))
    assert world.executor.finish(world.clock.monotonic_ns() + 1_000_000_000)
    assert world.codes() == [0] * 20
    assert not world.executor.offer(world.task())


def test_finish_without_time_answers_what_is_left() -> None:
    """Nothing leaks when the stop has no time."""
    world = World(Echo())
    for opaque in range(5):
        world.executor.offer(world.task(opaque=opaque))
    assert world.executor.finish(world.clock.monotonic_ns())
    assert world.codes() == [ResponseCode.SERVICE_NOT_AVAILABLE] * 5


@pytest.mark.parametrize("threads", [1, 2])
def test_a_crowd_that_waits_does_not_hold_up_the_end(threads: int) -> None:
    """After its time to serve, the queue is answered as a whole, although the worker would go on for long."""
    served: list[int] = []

    class Slow(Echo):
        def process(self, drain: Any) -> None:
            served.append(len(drain.tasks))
            while len(world.executor.queue):  # until the stop has emptied it
                time.sleep(0.001)
            super().process(drain)

    world = World(Slow(), runner=ThreadRunner(), count_max=1000, threads=threads)
    for opaque in range(1000):
        world.executor.offer(world.task(opaque=opaque))
    now_ns = world.clock.monotonic_ns()
    assert world.executor.finish(now_ns + 60_000_000_000, now_ns)
    codes = world.codes()
    assert len(codes) == 1000
    assert codes.count(ResponseCode.SERVICE_NOT_AVAILABLE) >= 1000 - threads * 8


@pytest.mark.parametrize("threads", [1, 2])
def test_with_real_threads_every_task_is_answered_once(threads: int) -> None:
    """Offers against running workers: each opaque comes back exactly once."""
    world = World(Echo(), runner=ThreadRunner(), count_max=100_000, threads=threads)
    total = 5000
    for opaque in range(total):
        assert world.executor.offer(world.task(opaque=opaque))
    deadline_ns = world.clock.monotonic_ns() + 10_000_000_000
    assert world.executor.finish(deadline_ns)
    opaques = [parse_response(each, CODE).opaque for each in world.connection.responses]
    assert sorted(opaques) == list(range(total))


def test_the_drain_shrinks_while_it_is_slow_and_grows_back() -> None:
    """Slow drains shrink to one task, fast ones grow back to the maximum."""
    drain = AdaptiveDrain(4096, 1 << 22)
    sizes = []
    for _ in range(8):
        drain.record(SLOW_DRAIN_NS + 1, drain.count)
        sizes.append(drain.count)
    assert sizes == [1024, 256, 64, 16, 4, 1, 1, 1]
    for _ in range(12):
        drain.record(1_000_000, drain.count)
    assert drain.count == 4096
    drain.record(SLOW_DRAIN_NS + 1, 10)
    assert drain.count == 2
    assert AdaptiveDrain(1, 1).count == 1


def test_a_drain_that_is_neither_fast_nor_slow_keeps_its_size() -> None:
    """Between half of the limit and the limit nothing changes: a steady slow disk keeps its large drains (ADR 0007)."""
    drain = AdaptiveDrain(4096, 1 << 22, slow_ns=200_000_000)
    drain.record(200_000_001, 64)
    assert drain.count == 16
    for _ in range(3):
        drain.record(101_000_000, 16)
        drain.record(200_000_000, 16)
    assert drain.count == 16
    drain.record(100_000_000, 16)
    assert drain.count == 32


@pytest.mark.parametrize("serialize_type", [JSON, MSGPACK])
def test_a_queue_counts_the_headers_of_its_requests_too(serialize_type: int) -> None:
    """Requests with a long header and no body count in bytes: otherwise a flood of them would be unbounded."""
    world = World(Echo(), count_max=10_000)
    header = NativeAppendRequestHeader("g", True, [("T", 0, 1)] * 5000, 1000) if serialize_type == MSGPACK else None
    frame = encode_request(
        RequestCode.NATIVE_APPEND if header else CODE,
        1,
        header,
        serialize_type=serialize_type,
        extra={} if header else {"x": "y" * 100_000},
    )
    decoder = FrameDecoder(new_scratch(), FrameBudget(FRAME_BYTES_MAX))
    [whole] = decoder.feed(b"".join(frame))
    for _ in range(20):
        world.admission.on_request(world.connection, decode_request(whole))
    assert 1 <= len(world.executor.queue) < 5
    assert world.admission.refused == {"queue_full": 20 - len(world.executor.queue)}
