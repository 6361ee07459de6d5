"""The shell around held pulls: no message is missed between a pull and its hold, and slow readers are not served."""

from typing import Any, cast

from pocketmq.broker.pull.long_polling import PullHolds
from pocketmq.broker.pull.pull_service import PullService
from pocketmq.broker.request.request_task import Task, encode_answer
from pocketmq.common.clock import ManualClock
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.fakes import DirectMailbox, FakeConnection, make_request, parse_response

CODE = RequestCode.GET_BROKER_RUNTIME_INFO
SECOND_NS = 1_000_000_000


class FakeExecutor:
    """Keeps the tasks to run again; refuses on demand."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.full = False

    def offer(self, task: Task) -> bool:
        if not self.full:
            self.tasks.append(task)
        return not self.full


class FakeLoop:
    """Keeps the timer that was requested."""

    def __init__(self) -> None:
        self.timer: Any = None

    def call_later(self, delay_s: float, callback: Any) -> "FakeLoop":
        self.timer = callback
        return self

    def cancel(self) -> None:
        self.timer = None

    def fire(self) -> None:
        timer, self.timer = self.timer, None
        timer()


class World:
    """A service with fakes around it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.max_offset = 5
        self.executor = cast(Any, FakeExecutor())
        self.loop = cast(Any, FakeLoop())
        self.connection = cast(Any, FakeConnection())
        mailbox: Any = DirectMailbox()
        self.service = PullService(PullHolds(10, 1 << 20), self.end_of, mailbox, self.loop, self.clock)
        self.service.use_executor(self.executor)

    def end_of(self, topic: str, queue_id: int) -> int:
        return self.max_offset

    def hold(self, offset: int = 5) -> None:
        task = Task(self.connection, make_request(), 0, 10)
        nothing = encode_answer(task.request, ResponseCode.PULL_NOT_FOUND)
        self.service.hold(task, [("T", 0, offset)], self.clock.monotonic_ns() + SECOND_NS, nothing)

    def codes(self) -> list[int]:
        return [parse_response(each, CODE).code for each in self.connection.responses]


def test_a_message_that_came_before_the_hold_is_seen() -> None:
    """A message between the check of the queue and the hold is not missed: the pull runs again at once."""
    world = World()
    world.max_offset = 6
    world.hold()
    assert len(world.executor.tasks) == 1
    assert world.service.count == 0
    context = world.executor.tasks[0].context
    assert (context.offsets, context.is_due) == ([5], False)


def test_time_runs_a_pull_again_as_due() -> None:
    """The timer runs only while something waits."""
    world = World()
    assert world.loop.timer is None
    world.hold()
    world.clock.advance_ms(500)
    world.loop.fire()
    assert world.executor.tasks == []
    world.clock.advance_ms(600)
    world.loop.fire()
    assert [task.context.is_due for task in world.executor.tasks] == [True]
    assert world.loop.timer is None


def test_a_connection_that_does_not_read_is_not_served() -> None:
    """Its messages wait until it reads again."""
    world = World()
    world.hold()
    world.connection.over_high_water = True
    world.service.news([("T", 0, 6)])
    assert world.executor.tasks == []
    assert world.service.count == 1
    world.loop.fire()
    assert world.executor.tasks == []
    world.connection.over_high_water = False
    world.loop.fire()
    assert len(world.executor.tasks) == 1
    assert world.service.count == 0


def test_a_closed_connection_loses_its_deferred_pulls_too() -> None:
    """No part of it stays, wherever it waits."""
    world = World()
    world.hold()
    world.hold()
    world.connection.over_high_water = True
    world.service.news([("T", 0, 6)])
    world.service.connection_closed(world.connection)
    assert world.service.count == 0


def test_a_full_pull_queue_is_an_answer() -> None:
    """A woken pull that finds its queue full gets [OVERLOAD]."""
    world = World()
    world.hold()
    world.executor.full = True
    world.service.news([("T", 0, 6)])
    assert world.codes() == [ResponseCode.SYSTEM_BUSY]


def test_closing_answers_everything_and_holds_nothing_more() -> None:
    """Every held pull gets its 19; a later one is refused."""
    world = World()
    world.hold()
    world.service.close()
    world.hold()
    assert world.codes() == [ResponseCode.PULL_NOT_FOUND, ResponseCode.SERVICE_NOT_AVAILABLE]
    assert world.loop.timer is None
