"""The send thread's end of the short path: checked small sends, appended together and answered by the thread itself.

    serve         the small sends at the head of a drain become one append (``ShortAppend``)
    _answer       the thread writes the answers (``DirectWriter``): waking the loop costs more than the append
    _acknowledge  where flush or slaves are waited for, the same answer, written by the thread that has the verdict;
                  this thread syncs itself where that is quick (``GroupCommit.lead``)
    settle        statistics are sums until a tick of 50 ms, which also hands the rows for the key index on

Lives here: ``ShortDrain``. What it cannot append, it gives back to the executor for the wide way.
"""

from typing import Any, Final

from pocketmq.broker.request.executor import SETTLE_AFTER_MS, DrainExecutor
from pocketmq.broker.request.request_task import AnswerPort, Buffers, Task, refusal_of
from pocketmq.broker.send.native_append import NativeSend
from pocketmq.broker.send.send_batch import PlannedSend
from pocketmq.broker.send.send_processor import SendProcessor
from pocketmq.broker.send.send_times import PutTiming, SendTimes, stages_of
from pocketmq.broker.send.short_answer import answer_of
from pocketmq.broker.send.short_rocketmq_answers import RocketMQAnswers
from pocketmq.broker.send.short_routes import ShortRoutes
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.sent_topics import REQUESTS_MAX, note_topic
from pocketmq.broker.stats.stage_times import SEND_PAIR, RequestTiming
from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError, Stored
from pocketmq.common.histogram import QUICK_NS
from pocketmq.remoting.connection import Connection
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.errors import PageCacheBusy
from pocketmq.store.message_store import MessageStore
from pocketmq.store.short_append import ShortFrame
from pocketmq.store.waiters import Done

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
        self._quick_codes: dict[int, int] = {}
        self._code = -1
        self._quick_of_code = 0
        self._quick_times: _Times = (0, 0, 0)
        self._synced = 0
        self._synced_times = (0, 0)  # of the latest: since the append was asked for, and the sync alone
        self._synced_code = -1
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
            code = tasks[0].request.code  # of a mixed drain the first one's: each code is first in its share of them
            if code != self._code:
                self._code_changes(code)
            self._quick_of_code += taken
            self._quick_wait_ns = started_ns - oldest_ns
            self._quick_times = (started_ns, entered_ns, appended_ns)
        if appended_ns - self._settled_ns > _SETTLE_NS:
            self._sample(tasks, frames)
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
        """Answer when flush and slaves allow it, here or in their threads; so too after something has closed the
        gate."""
        end_offset = 0
        for task, frame in zip(tasks, frames, strict=True):
            task.settled = True
            end_offset = frame.places[-1][1] + sum([record[1] for record in frame.parts[-1][1]])
        waiting = [task for task in tasks if _waits(task)]
        others = [task for task in tasks if not _waits(task)] if len(waiting) < len(tasks) else []
        # With more requests in the queue this thread has work, and the other one syncs meanwhile.
        may_sync = not self._executor.queue.tasks
        for chosen, wait in ((others, False), (waiting, True)):
            if chosen:
                self._acknowledge_some(chosen, end_offset, wait, times, may_sync)

    def _acknowledge_some(self, tasks: list[Task], end_offset: int, wait: bool, times: _Times, may_sync: bool) -> None:
        started_ns, _, appended_ns = times
        timing = PutTiming(started_ns, started_ns, appended_ns, stages_of(times, 0))

        def done(status: PutStatus) -> None:
            if status is not PutStatus.PUT_OK:
                result = AppendResult(PutStatus.PUT_OK, end_offset)
                self._processor.answer(self._sends_of(tasks, result), result, status, timing, waited=wait)
                return
            answered = None
            if self._times is not None:  # before the answer: a reader that has it sees its times
                stored = AppendResult(status, end_offset)
                answered = self._times.answering(tasks, tasks[0].created_ns, stored, timing, wait)
            self._answer(tasks)
            self._answers.post([], answered)

        try:
            if not (wait and may_sync):
                self._store.acknowledge(end_offset, wait, done)
            elif self._store.sync_here(end_offset, done):
                self._answer_synced(tasks, started_ns, appended_ns, done)
        except PocketMQError as error:
            result = AppendResult(PutStatus.PUT_OK, end_offset)
            self._processor.refuse(self._sends_of(tasks, result), refusal_of(error, Stored.UNKNOWN), result, started_ns)

    def _answer_synced(self, tasks: list[Task], started_ns: int, appended_ns: int, done: Done) -> None:
        """Answer what this thread has just synced: in the usual way if anything took a millisecond, else first, and its
        times are sums."""
        now_ns = self._monotonic_ns()
        if now_ns - tasks[0].created_ns >= QUICK_NS:
            done(PutStatus.PUT_OK)
            return
        self._answer(tasks)
        self._synced += len(tasks)
        self._synced_times = (now_ns - started_ns, now_ns - appended_ns)
        self._synced_code = tasks[0].request.code

    def _sends_of(self, tasks: list[Task], result: AppendResult) -> list[PlannedSend]:
        """Return stored sends as the wide way has them, which words every answer but the usual one; fill in
        ``result``."""
        sends: list[PlannedSend] = []
        for task in tasks:
            frame: ShortFrame = task.context[0]
            first = len(result.runs)
            result.store_timestamp = frame.store_timestamp
            for (_, records), (queue_offset, position) in zip(frame.parts, frame.places, strict=True):
                result.first_queue_offsets.append(queue_offset)
                result.runs.append([(position, len(records))])
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
        return sends

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

    def _code_changes(self, code: int) -> None:
        """Note how many requests had the code so far."""
        if self._quick_of_code:
            self._quick_codes[self._code] = self._quick_codes.get(self._code, 0) + self._quick_of_code
            self._quick_of_code = 0
        self._code = code

    @staticmethod
    def _sample(tasks: list[Task], frames: list[ShortFrame]) -> None:
        """Remember who sends to what."""
        for task, frame in zip(tasks[:REQUESTS_MAX], frames, strict=False):
            for section, _ in frame.parts:
                note_topic(task.connection, section.topic)

    def settle(self) -> None:
        """Fold the sums into the broker's statistics, and give the collected rows to the key index. Blocks as an append
        does."""
        self.unsettled = False
        self._settled_ns = self._monotonic_ns()
        messages, self._messages = self._messages, 0
        size_bytes, self._bytes = self._bytes, 0
        quick, self._quick = self._quick, 0
        self._code_changes(self._code)
        codes, self._quick_codes = self._quick_codes, {}
        times = self._times
        if quick and times is not None:  # all as the last one: each of their stages took less than a millisecond
            started_ns, _, appended_ns = self._quick_times
            stages_ns = stages_of(self._quick_times, self._answer_ns)
            times.stages.add_quick(quick, self._quick_wait_ns, stages_ns)
            if not self._routes.acknowledges_later:
                times.put_times.record(appended_ns - started_ns, quick)
                took_ns = appended_ns - started_ns + self._quick_wait_ns + self._answer_ns
                for code, count in codes.items():
                    times.rpc_times.add(code, took_ns, count)
        synced, self._synced = self._synced, 0
        if synced and times is not None:
            times.synced(synced, *self._synced_times)
            times.rpc_times.add(self._synced_code, self._synced_times[0], synced)  # of all: the latest one's
        requests, self._requests = self._requests, 0
        self._executor.count_served(requests)
        self._counters.put(messages, size_bytes)  # last: a reader that sees the messages sees their times
        self._store.short.index_shown()


def _waits(task: Task) -> bool:
    """Return whether a send waits for flush and slaves (RocketMQ property WAIT)."""
    _, _, sent = task.context
    header: Any = task.request.header
    return bool(header.wait if sent is None else sent.wait)
