"""Small sends appended on the event loop itself, where an append cannot stall.

With a write-buffer pool whose memory is reserved, locked and outlives the process (ADR 0012), an append is a copy that
neither disk nor swapping can hold back. Then the hop to the send thread costs more than the append: the loop appends
and answers in the turn in which the bytes came.

It never waits. Whatever would need waiting goes to the send thread: the append lock is taken, the buffer is full, sends
wait for flush or slaves, or earlier sends are still in the pair's queue, which later ones must not overtake.

Lives here: ``RunToCompletion``.
"""

import asyncio
from collections.abc import Callable

from pocketmq.broker.request.executor import SETTLE_AFTER_MS, DrainExecutor
from pocketmq.broker.request.request_task import Task
from pocketmq.broker.send.send_times import SendTimes, stages_of
from pocketmq.broker.send.short_answer import answer_of
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.stats.sent_topics import note_topic
from pocketmq.common.clock import Clock
from pocketmq.remoting.connection import Connection
from pocketmq.store.message_store import MessageStore
from pocketmq.store.short_append import ShortFrame


class RunToCompletion:
    """Appends and answers on the loop. Belongs to its thread."""

    def __init__(
        self,
        store: MessageStore,
        executor: DrainExecutor,
        counters: BrokerCounters,
        clock: Clock,
        times: SendTimes | None,
        loop: asyncio.AbstractEventLoop,
        ask_to_index: Callable[[], None],
    ) -> None:
        """``ask_to_index``: let another thread give what was appended to the key index."""
        self._store = store
        self._short = store.short
        self._executor = executor
        self._waiting = executor.queue.tasks
        self._busy = executor.busy
        self._counters = counters
        self._monotonic_ns = clock.monotonic_ns
        self._times = times
        self._loop = loop
        self._ask_to_index = ask_to_index
        self._generation = -1
        self._possible = False
        self._timer: asyncio.TimerHandle | None = None
        self._messages = self._bytes = self._requests = self._took_ns = self._code = 0
        self.served = 0
        """Requests served here since the start."""

    def serve(self, task: Task, frame: ShortFrame, turn: int) -> bool:
        """Append and answer a checked send now; False: nothing was done, the send thread has to."""
        if frame.generation != self._generation:
            self._generation = frame.generation
            self._possible = self._store.appends_cannot_stall and not self._store.acknowledges_later
        if not self._possible or self._waiting or True in self._busy:
            return False
        begin_ns = task.created_ns
        done_ns = self._short.append_now(frame, begin_ns)
        if not done_ns:
            return False
        connection: Connection = task.connection
        answer = answer_of(task.request.opaque, frame)
        if turn < 0 or not connection.direct.write(answer, turn):  # type: ignore[union-attr]
            connection.respond([answer])
        self._messages += frame.count
        self._bytes += frame.size_bytes
        self._requests += 1
        self.served += 1
        self._took_ns = done_ns - begin_ns
        self._code = task.request.code
        if self._timer is None:
            for section, _ in frame.parts:
                note_topic(connection, section.topic)
            self._timer = self._loop.call_later(SETTLE_AFTER_MS / 1000, self._settle)
        return True

    def _settle(self) -> None:
        """Fold the sums into the statistics, and let the send thread hand the collected rows on."""
        self._timer = None
        messages, size_bytes, requests = self._messages, self._bytes, self._requests
        self._messages = self._bytes = self._requests = 0
        if self._times is not None:
            self._times.stages.add_quick(requests, 0, stages_of((0, 0, self._took_ns), 0))
            self._times.put_times.record(self._took_ns, requests)
            self._times.rpc_times.add(self._code, self._took_ns, requests)  # of all: the latest one's
        self._executor.count_served(requests)
        self._counters.put(messages, size_bytes)
        self._ask_to_index()

    def stop(self) -> None:
        """Count what has not been counted yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._settle()
