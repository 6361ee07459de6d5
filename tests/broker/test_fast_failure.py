"""Fast failure: who is answered, with which words, and who is left alone."""

from typing import Any

from pocketmq.broker.executor import AdaptiveDrain, DrainExecutor, OneByOne
from pocketmq.broker.fast_failure import FastFailure
from pocketmq.broker.task import AnswerPort, Drain, Task
from pocketmq.common.clock import ManualClock
from pocketmq.common.events import NullLog
from pocketmq.common.runner import SteppedRunner
from pocketmq.remoting.codes import RequestCode
from tests.broker.fakes import DirectMailbox, FakeConnection, make_request, parse_response

CODE = RequestCode.GET_BROKER_RUNTIME_INFO


class Never(OneByOne):
    """A processor whose worker is never stepped."""

    def serve(self, task: Task, drain: Drain) -> None:
        raise AssertionError("nothing is served here")


def new_executor(clock: ManualClock, max_wait_ms: int) -> DrainExecutor:
    direct: Any = DirectMailbox()
    return DrainExecutor(
        "SendMessageThread",
        Never(),
        count_max=100,
        size_bytes_max=1 << 20,
        threads=1,
        drain=AdaptiveDrain(1, 1 << 20),
        max_wait_ms=max_wait_ms,
        runner=SteppedRunner(),
        answers=AnswerPort(direct),
        clock=clock,
        log=NullLog(),
    )


def test_heads_that_waited_their_limit_are_answered_in_rocketmqs_words() -> None:
    """At 200 ms exactly, oldest first, each with its own wait and the queue behind it; oneway requests are dropped."""
    clock = ManualClock()
    executor = new_executor(clock, 200)
    connection: Any = FakeConnection()
    for opaque, oneway in ((1, False), (2, True), (3, False), (4, False)):
        assert executor.offer(Task(connection, make_request(opaque=opaque, oneway=oneway), clock.monotonic_ns(), 10))
        clock.advance_ms(35)
    fast_failure = FastFailure([executor], clock)
    clock.advance_ms(235 - 4 * 35 - 1)
    fast_failure.sweep()
    clock.advance_ms(1)
    fast_failure.sweep()
    responses = [parse_response(each, CODE) for each in connection.responses]
    assert [(response.opaque, response.code) for response in responses] == [(1, 2)]
    assert responses[0].remark == (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 234ms, size of queue: 3"
    )
    assert responses[0].extra == {"cause": "queue_timeout", "stored": "no", "retry_after_ms": "200"}
    clock.advance_ms(60)
    fast_failure.sweep()
    assert [parse_response(each, CODE).opaque for each in connection.responses] == [1, 3]
    assert (len(executor.queue), fast_failure.swept) == (1, {"SendMessageThread": 3})


def test_a_pair_without_a_longest_wait_is_left_alone() -> None:
    """0 means no limit (RocketMQ's query and admin queues)."""
    clock = ManualClock()
    executor = new_executor(clock, 0)
    connection: Any = FakeConnection()
    executor.offer(Task(connection, make_request(), clock.monotonic_ns(), 10))
    clock.advance_ms(1e9)
    FastFailure([executor], clock).sweep()
    assert len(executor.queue) == 1
    assert connection.responses == []
