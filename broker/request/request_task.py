"""One request on its way through the broker, and its answer.

Lives here: ``Task`` (a request in a queue), ``Refusal`` (an error answer with its cause), ``Drain`` (the tasks a worker
took together, with their answers and stage times), and the way of answers to the sockets.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from pocketmq.broker.stats.stage_times import STAGE_COUNT, RequestTiming
from pocketmq.common import refusals
from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.errors import Cause, PocketMQError, Stored
from pocketmq.common.histogram import SampledHistogram
from pocketmq.common.runner import LoopMailbox
from pocketmq.remoting.codec import Body, Request, encode_response
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.frame import Buffer
from pocketmq.remoting.server import Connection

Buffers = list[Buffer]
"""One encoded response: the head, and the body if it has one."""

Answer = tuple[Connection, Buffers]


class Task(msgspec.Struct, eq=False):
    """A request that waits for its processor, or is in it.

    ``created_ns`` is monotonic; ``size_bytes`` is its memory. ``settled`` is True once it has its answer, or an owner
    outside the drain (a held pull, a send that waits for the flush). ``context`` belongs to the processor. A struct,
    because one is made for each request.
    """

    connection: Connection
    request: Request
    created_ns: int
    size_bytes: int
    context: Any = None
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not served: RocketMQ's code and text, and the cause and advice that RocketMQ lacks.

    ``retry_after_ms``: see ``flow_control``. ``stages``: (stage, ns) for the stages the request passed, where known.
    """

    code: int
    remark: str
    cause: Cause
    stored: Stored = Stored.NO
    retry_after_ms: int = 0
    stages: tuple[tuple[str, int], ...] = ()

    def extra(self) -> dict[str, str]:
        """Return the response fields beside the text; ``stages`` are in ms: ``queue_wait=203.51,append=0.2``."""
        fields = {
            "cause": self.cause.value,
            "stored": self.stored.value,
            "retry_after_ms": str(self.retry_after_ms),
        }
        if self.stages:
            fields["stages"] = ",".join(f"{name}={took_ns / 1e6:.2f}" for name, took_ns in self.stages)
        return fields

    def with_stages(self, stages: tuple[tuple[str, int], ...]) -> "Refusal":
        """Return the same refusal with these stages."""
        return Refusal(self.code, self.remark, self.cause, self.stored, self.retry_after_ms, stages)


def refused(cause: Cause, text: refusals.Text, *values: object, retry_after_ms: int = 0) -> Refusal:
    """Return a refusal in words of the table of refusals; ``values`` stand in the places of its ``%s`` and ``%d``."""
    return Refusal(text.code, text.template % values, cause, retry_after_ms=retry_after_ms)


SHUTTING_DOWN: Final = refused(Cause.SHUTTING_DOWN, refusals.SHUTTING_DOWN, retry_after_ms=refusals.ELSEWHERE.ms_max)
OVERLOAD: Final = refused(
    Cause.QUEUE_FULL,
    refusals.OVERLOAD,
    retry_after_ms=refusals.REFUSALS[Cause.QUEUE_FULL].retry_after.ms_max,
)
"""The answer when a pair's queue is full (RocketMQ NettyRemotingAbstract)."""


def encode_answer(
    request: Request,
    code: int = 0,
    *,
    header: Any = None,
    remark: str = "",
    body: Body = b"",
    extra: Mapping[str, str] | None = None,
) -> Buffers:
    """Encode the response to ``request`` in the request's serialization."""
    return encode_response(
        code,
        request.opaque,
        request.code,
        header=header,
        remark=remark,
        body=body,
        serialize_type=request.serialize_type,
        extra=extra,
    )


def encode_refusal(request: Request, refusal: Refusal) -> Buffers:
    """Encode ``refusal`` as the response to ``request``."""
    return encode_answer(request, refusal.code, remark=refusal.remark, extra=refusal.extra())


def refusal_of(error: BaseException, stored: Stored | None = None) -> Refusal:
    """Return an exception as a refusal.

    A ``PocketMQError`` carries its own code and cause. Any other exception is a bug of the broker: SYSTEM_ERROR with
    its text and the line that raised it (RocketMQ RemotingHelper.exceptionSimpleDesc).
    """
    if isinstance(error, PocketMQError):
        return Refusal(error.code, str(error), error.cause, stored or error.stored, error.retry_after_ms)
    where, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        where = f", {code.co_qualname if hasattr(code, 'co_qualname') else code.co_name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return Refusal(
        ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}{where}", Cause.INTERNAL, stored or Stored.UNKNOWN
    )


class Drain:
    """Tasks that one worker took together, their answers so far, and their stage times.

    A processor settles every task: ``answer``, ``refuse``, ``finish`` (a oneway request) or ``release`` (another owner
    answers later). The executor answers tasks that are unsettled when ``process`` ends. ``stages_ns`` is indexed by
    ``Stage``; a processor adds the stages that it measures.
    """

    __slots__ = ("_on_refused", "answers", "released", "stages_ns", "tasks")

    def __init__(self, tasks: list[Task], on_refused: "Callable[[Task, Refusal], None] | None" = None) -> None:
        """``on_refused`` is called with each refusal, even of a oneway request; it must return at once."""
        self._on_refused = on_refused
        self.tasks = tasks
        self.answers: list[Answer] = []
        self.released: list[Task] = []
        """Tasks that another owner answers."""
        self.stages_ns = [0] * STAGE_COUNT

    def answer(self, task: Task, buffers: Buffers) -> None:
        """Settle ``task`` with an encoded response; a oneway request gets none."""
        assert not task.settled
        task.settled = True
        if not task.request.oneway:
            self.answers.append((task.connection, buffers))

    def refuse(self, task: Task, refusal: Refusal) -> None:
        """Settle ``task`` with a refusal."""
        if self._on_refused is not None:
            self._on_refused(task, refusal)
        if task.request.oneway:
            self.finish(task)
        else:
            self.answer(task, encode_refusal(task.request, refusal))

    def finish(self, task: Task) -> None:
        """Settle ``task`` without an answer."""
        assert not task.settled
        task.settled = True

    def release(self, task: Task) -> None:
        """Hand ``task`` to another owner, which answers it."""
        assert not task.settled
        task.settled = True
        self.released.append(task)

    def answered(self) -> list[Task]:
        """Return the tasks that this drain has settled itself, oldest first."""
        if not self.released:
            return self.tasks
        others = set(map(id, self.released))
        return [task for task in self.tasks if id(task) not in others]


def write_answers(answers: Sequence[Answer]) -> None:
    """Write ``answers`` to their sockets, one write per connection. Loop thread only."""
    if len(answers) == 1:
        connection, buffers = answers[0]
        if not connection.closed:
            connection.respond_all((buffers,))
        return
    by_connection: dict[Connection, list[Buffers]] = {}
    for connection, buffers in answers:
        known = by_connection.get(connection)
        if known is None:
            by_connection[connection] = [buffers]
        else:
            known.append(buffers)
    for connection, responses in by_connection.items():
        if not connection.closed:
            connection.respond_all(responses)


class AnswerPort:
    """Passes answers from worker threads to the loop, and measures how long that takes."""

    __slots__ = ("_finished", "_mailbox", "_monotonic_ns", "_write_times")

    def __init__(
        self,
        mailbox: LoopMailbox,
        *,
        clock: Clock | None = None,
        write_times: SampledHistogram | None = None,
        finished: Callable[[RequestTiming, int, int], None] | None = None,
    ) -> None:
        """``write_times`` counts the time from ``post`` to the transport, on the loop. ``finished(timing, write_ns,
        now_ns)`` is called when the answers to the requests of ``timing`` are written, or in the posting thread when
        there are none to write.
        """
        self._mailbox = mailbox
        self._monotonic_ns = (clock or SystemClock()).monotonic_ns
        self._write_times = write_times
        self._finished = finished

    def post(self, answers: list[Answer], timing: RequestTiming | None = None) -> None:
        """Write ``answers`` soon, in the loop's thread; callable from any thread. ``timing``: that of their
        requests."""
        if answers:
            if self._write_times is None and timing is None:
                self._mailbox.post(write_answers, answers)
            else:
                self._mailbox.post(self._write, answers, timing, self._monotonic_ns())
        elif timing is not None and self._finished is not None:
            self._finished(timing, 0, self._monotonic_ns())

    def _write(self, answers: list[Answer], timing: RequestTiming | None, posted_ns: int) -> None:
        write_answers(answers)
        now_ns = self._monotonic_ns()
        if self._write_times is not None:
            self._write_times.sample_ns(now_ns, now_ns - posted_ns, len(answers))
        if timing is not None and self._finished is not None:
            self._finished(timing, now_ns - posted_ns, now_ns)
