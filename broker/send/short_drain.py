"""The send thread's end of the short path: checked small sends, appended together and answered by the thread itself.

    serve         the small sends at the head of a drain become one append (``ShortAppend``)
    _answer       the thread writes the answers (``DirectWriter``): waking the loop costs more than the append
    _acknowledge  where flush or slaves are waited for, the answer is the usual one, later
    settle        statistics are sums until a tick of 50 ms, which also hands the rows for the key index on

Lives here: ``ShortDrain``. What it cannot append, it gives back to the executor for the wide way.
"""

from typing import Any, Final

from pocketmq.broker.request.executor import SETTLE_AFTER_MS, DrainExecutor
from pocketmq.broker.request.request_task import AnswerPort, Buffers, Task
from pocketmq.broker.send.native_append import NativeSend
from pocketmq.broker.send.send_processor import SendProcessor
from pocketmq.broker.send.send_times import PutTiming, SendTimes, stages_of
from pocketmq.broker.send.short_answer import answer_of
from pocketmq.broker.send.short_rocketmq_answers import RocketMQAnswers
from pocketmq.broker.send.short_routes import ShortRoutes
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.stage_times import SEND_PAIR, RequestTiming
from pocketmq.common.clock import Clock
from pocketmq.common.histogram import QUICK_NS
from pocketmq.remoting.connection import Connection
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.errors import PageCacheBusy
from pocketmq.store.message_store import MessageStore
from pocketmq.store.short_append import ShortFrame

_SETTLE_NS: Final = int(SETTLE_AFTER_MS * 1_000_000)
_Times = tuple[int, int, int]
"""When an append was asked for, when it had the append lock, and when it was done: monotonic ns."""


class ShortDrain:
    """Serves the tasks that ``ShortPath.take`` has queued. Belongs to a send thread; one at a time."""

    def __init__(
        self,
        store: MessageStore,
        routes: ShortRoutes,
        rocketmq: RocketMQAnswers,
        processor: SendProcessor,
        executor: DrainExecutor,
        answers: AnswerPort,
        counters: BrokerCounters,
        clock: Clock,
        times: SendTimes | None,
    ) -> None:
        self._store = store
        self._append = store.short.append
        self._gate = store.gate
        self._routes = routes
        self._rocketmq = rocketmq
        self._processor = processor
        self._executor = executor
        self._answers = answers
        self._counters = counters
        self._monotonic_ns = clock.monotonic_ns
        self._times = times
        # sums since the last ``settle``
        self._messages = 0
        self._bytes = 0
        self._requests = 0
        self._answer_ns = 0
        self._quick = 0
        self._quick_wait_ns = 0
        self._quick_times: _Times = (0, 0, 0)
        self._settled_ns = 0
        self.unsettled = False
        """Whether ``settle`` has something to do."""
        self.served = 0
        """Requests appended here since the start."""

    def serve(self, tasks: list[Task]) -> list[Task]:
        """Append and answer the tasks at the head of a drain that came by ``take``; return the others, in order."""
        frames: list[ShortFrame] = []
        for task in tasks:
            if task.context is None:
                break
            frames += (task.context[0],)
        if not frames:
            return tasks
        started_ns = self._monotonic_ns()
        try:
            taken, entered_ns, appended_ns = self._append(frames, started_ns)
        except PageCacheBusy:
            return tasks
        if not taken:
            return tasks
        rest = tasks[taken:]
        if rest:
            tasks, frames = tasks[:taken], frames[:taken]
        if self._routes.acknowledges_later or frames[0].generation != self._gate.generation:
            self._acknowledge(tasks, frames, (started_ns, entered_ns, appended_ns))
        else:
            self._answer(tasks)
        for frame in frames:
            self._messages += frame.count
            self._bytes += frame.size_bytes
        self.served += taken
        self._requests += taken
        self.unsettled = True
        oldest_ns = tasks[0].created_ns
        if appended_ns - oldest_ns >= QUICK_NS:
            self._count(tasks, (started_ns, entered_ns, appended_ns))
        else:
            self._quick += taken
            self._quick_wait_ns = started_ns - oldest_ns
            self._quick_times = (started_ns, entered_ns, appended_ns)
        if appended_ns - self._settled_ns > _SETTLE_NS:
            self._answer_ns = self._monotonic_ns() - appended_ns
            self.settle()
        return rest

    def _answer(self, tasks: list[Task]) -> None:
        """Write the answers of stored frames: here where the sockets allow it, else by the loop."""
        posted: list[tuple[Connection, Buffers]] = []
        connection: Connection = tasks[0].connection
        turn = tasks[0].context[1]
        data = b""
        for task in tasks:
            if task.connection is not connection:
                if turn < 0 or not connection.direct.write(data, turn):  # type: ignore[union-attr]
                    posted.append((connection, [data]))
                connection, turn, data = task.connection, task.context[1], b""
            frame, _, sent = task.context
            data += answer_of(task.request.opaque, frame) if sent is None else self._rocketmq.answer(task)
            task.settled = True
        if turn < 0 or not connection.direct.write(data, turn):  # type: ignore[union-attr]
            posted.append((connection, [data]))
        if posted:
            self._answers.post(posted)

    def _acknowledge(self, tasks: list[Task], frames: list[ShortFrame], times: _Times) -> None:
        """Answer when flush and slaves allow it, in the usual way; so too after something has closed the gate."""
        sends: list[Any] = []
        result = AppendResult(PutStatus.PUT_OK, store_timestamp=frames[0].store_timestamp)
        for task, frame in zip(tasks, frames, strict=True):
            first = len(result.runs)
            for (_, records), (queue_offset, position) in zip(frame.parts, frame.places, strict=True):
                result.first_queue_offsets.append(queue_offset)
                result.runs.append([(position, len(records))])
                result.end_offset = position + sum(record[1] for record in records)
            task.settled = True
            if task.context[2] is not None:
                sends.append(self._rocketmq.send_of(task, first))
                continue
            header: Any = task.request.header
            sizes = memoryview(task.request.body)[: 4 * frame.count]
            sends.append(
                NativeSend(
                    task,
                    header,
                    header.wait,
                    sizes,
                    frame.buffer,
                    frame.count,
                    frame.size_bytes,
                    frame.host,
                    False,
                    {},
                    {},
                    range(first, len(result.runs)),
                )
            )
        started_ns, _, appended_ns = times
        self._processor.acknowledge(sends, result, PutTiming(started_ns, started_ns, appended_ns, stages_of(times, 0)))

    # ---- statistics

    def _count(self, tasks: list[Task], put: _Times) -> None:
        """Count an append of which something took a millisecond; log it if it was slow."""
        times = self._times
        if times is None:
            return
        started_ns, _, appended_ns = put
        stages_ns = stages_of(put, self._monotonic_ns() - appended_ns)
        times.stages.drained(tasks, started_ns, stages_ns, appended_ns - started_ns)
        if not self._routes.acknowledges_later:
            times.put_times.record(appended_ns - started_ns, len(tasks))
            timing: RequestTiming = (SEND_PAIR, tasks, tasks[0].created_ns, stages_ns, started_ns)
            self._answers.post([], timing)

    def settle(self) -> None:
        """Fold the sums into the broker's statistics, and give the collected rows to the key index. Blocks as an append
        does."""
        self.unsettled = False
        self._settled_ns = self._monotonic_ns()
        messages, self._messages = self._messages, 0
        size_bytes, self._bytes = self._bytes, 0
        quick, self._quick = self._quick, 0
        times = self._times
        if quick and times is not None:  # all as the last one: each of their stages took less than a millisecond
            started_ns, _, appended_ns = self._quick_times
            stages_ns = stages_of(self._quick_times, self._answer_ns)
            times.stages.add_quick(quick, self._quick_wait_ns, stages_ns)
            if not self._routes.acknowledges_later:
                times.put_times.record(appended_ns - started_ns, quick)
        requests, self._requests = self._requests, 0
        self._executor.count_served(requests)
        self._counters.put(messages, size_bytes)  # last: a reader that sees the messages sees their times
        self._store.short.hand_on()
