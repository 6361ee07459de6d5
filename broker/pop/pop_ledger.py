"""All queues that groups pop: what is in flight, what is committed, what becomes visible again.

    turn = ledger.begin("g", "t", 0, first_offset, now_ms)         # None: full, or somebody reads it right now
    ... read the store from turn.offset, at most turn.room messages ...
    ledger.take(turn, offsets, next_offset, now_ms, invisible_ms)  # or ledger.leave(turn)
    ledger.ack("g", "t", 0, handle, now_ms)
    for due in ledger.due(now_ms, 1024): ... copy ...; ledger.copied(due) or ledger.put_back(due, retry_ms)

A crash loses none and repeats some: only the lowest offset in flight is committed, and what is acknowledged above it is
in a snapshot, written now and then.

Lives here: ``PopLedger``. It does no I/O and has no clock; the table of consumer offsets is in memory.
"""

import heapq
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.pop.pop_queue import BUCKET_MS, PopQueue, Settled
from pocketmq.common.bounds import bounded
from pocketmq.common.receipt_handle import ReceiptHandle

ENTRY_BYTES: Final = 230
"""Memory of one message in flight, from above: measured 170."""
QUEUE_BYTES: Final = 2_000


class Turn(NamedTuple):
    """The right to read one queue; nobody else has it until ``take`` or ``leave``."""

    queue: PopQueue
    offset: int
    room: int
    """Messages that may be given out."""


class Due(NamedTuple):
    """Messages of one queue whose time is over, with the time of their pop."""

    queue: PopQueue
    messages: list[tuple[int, int]]


@bounded(
    "messages in flight",
    limit="unacked_max",
    size="count",
    entry_bytes=ENTRY_BYTES,
    setting="broker.pop_unacked_max",
)
@bounded("popped queues", limit="queues_max", size="queues", entry_bytes=QUEUE_BYTES, setting="broker.pop_queues_max")
@dataclass(slots=True, eq=False)
class PopLedger:
    """Thread-safe. Its lock is held for memory work only: the loop may take it."""

    offsets: ConsumerOffsets
    queue_unacked_max: int
    """Messages of one queue in flight."""
    unacked_max: int
    """Messages in flight in all."""
    queues_max: int
    queues: dict[tuple[str, str, int], PopQueue] = field(default_factory=dict)
    count: int = 0
    """Messages in flight."""
    generation: int = 0
    refused_full: int = 0
    """Reads that found no room."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _heap: list[tuple[int, int, PopQueue]] = field(default_factory=list)
    _pushed: int = 0

    # ---- giving out

    def begin(self, group: str, topic: str, queue_id: int, first_offset: Callable[[], int]) -> Turn | None:
        """Return the turn to read a queue, or None. ``first_offset``: where a group begins that has no offset; called
        without the lock. Raises ``TableFull`` where the offsets of a new group cannot be kept."""
        key = (group, topic, queue_id)
        if self.offsets.query(group, topic, queue_id) is None:
            self.offsets.commit(group, topic, queue_id, first_offset())
        with self._lock:
            queue = self._known(group, topic, queue_id)
            if queue is None:
                committed = self.offsets.query(group, topic, queue_id)
                if committed is None or len(self.queues) >= self.queues_max:
                    self.refused_full += 1
                    return None
                queue = self.queues[key] = PopQueue(group, topic, queue_id, committed)
            elif queue.busy:
                return None
            room = min(self.queue_unacked_max - len(queue.unacked), self.unacked_max - self.count)
            if room <= 0:
                self.refused_full += 1
                return None
            queue.busy = True
            return Turn(queue, queue.next_offset, room)

    def take(self, turn: Turn, offsets: list[int], next_offset: int, now_ms: int, invisible_ms: int) -> bool:
        """Note what was read, and end the turn. False: somebody has moved the offset meanwhile, so that the messages
        must not be given out. ``offsets`` ascend from ``turn.offset`` on, ``next_offset`` lies behind them."""
        queue = turn.queue
        with self._lock:
            queue.busy = False
            self._follow(queue, self.offsets.query(queue.group, queue.topic, queue.queue_id))
            if queue.next_offset != turn.offset or self._of(queue) is not queue:
                return False
            self._push(queue, queue.take(offsets, next_offset, now_ms, invisible_ms))
            self.count += len(offsets)
            self.generation += 1
            self._commit(queue)
            return True

    def leave(self, turn: Turn) -> None:
        """End a turn that has read nothing."""
        with self._lock:
            turn.queue.busy = False

    def hold(self, turn: Turn, first_offset: int) -> bool:
        """End the turn of an ordered pop: the queue stays at the first message of its batch, and what lies before was
        not wanted. False as for ``take``."""
        return self.take(turn, [], first_offset, 0, 0)

    def step_back(self, turn: Turn, offset: int) -> None:
        """End a turn that found the end of the queue before its offset: part of the log is gone."""
        queue = turn.queue
        with self._lock:
            queue.busy = False
            if self._of(queue) is queue:
                self.count -= len(queue.unacked)
                queue.reset(offset)
                self.offsets.commit(queue.group, queue.topic, queue.queue_id, offset)
                self.generation += 1

    def next_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return where the group reads on; None: it has popped nothing of the queue, and has no offset."""
        queue = self.queues.get((group, topic, queue_id))
        committed = self.offsets.query(group, topic, queue_id)
        return committed if queue is None or committed != queue.committed else queue.next_offset

    def has_room(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a pop could give out messages of the queue."""
        queue = self.queues.get((group, topic, queue_id))
        return self.count < self.unacked_max and (queue is None or len(queue.unacked) < self.queue_unacked_max)

    def progress(self, group: str, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Return how far a group has popped a queue, and how many of the messages before that are in flight; None: it
        pops it not."""
        queue = self.queues.get((group, topic, queue_id))
        return None if queue is None else (queue.next_offset, len(queue.unacked))

    def in_flight(self, group: str, topic: str, queue_id: int) -> int:
        """Return how many messages of the queue are in flight."""
        queue = self.queues.get((group, topic, queue_id))
        return 0 if queue is None else len(queue.unacked)

    # ---- acknowledgements

    def ack(self, group: str, topic: str, queue_id: int, handle: ReceiptHandle, now_ms: int) -> Settled:
        """Acknowledge one message; ``topic`` is the one that it lies in."""
        return self.ack_all(group, topic, queue_id, [handle], now_ms)[0]

    def ack_all(
        self, group: str, topic: str, queue_id: int, handles: list[ReceiptHandle], now_ms: int
    ) -> list[Settled]:
        """Acknowledge messages of one queue, and commit once."""
        with self._lock:
            queue = self._known(group, topic, queue_id)
            if queue is None:
                return [self._unknown(group, topic, queue_id, each, now_ms) for each in handles]
            before = len(queue.unacked)
            results = [queue.settle(each.queue_offset, each.pop_time, each.invisible_time, now_ms) for each in handles]
            settled = before - len(queue.unacked)
            if settled:
                self.count -= settled
                self.generation += 1
                self._commit(queue)
            return results

    def change(
        self, group: str, topic: str, queue_id: int, handle: ReceiptHandle, now_ms: int, invisible_ms: int
    ) -> Settled:
        """Let a message become visible ``invisible_ms`` from now. Its new handle has the times ``now_ms`` and
        ``invisible_ms``."""
        with self._lock:
            queue = self._known(group, topic, queue_id)
            if queue is None:
                return self._unknown(group, topic, queue_id, handle, now_ms)
            result, buckets = queue.change(
                handle.queue_offset, handle.pop_time, handle.invisible_time, now_ms, invisible_ms
            )
            self._push(queue, buckets)
            if result is Settled.DONE:
                self.generation += 1
            return result

    def _unknown(self, group: str, topic: str, queue_id: int, handle: ReceiptHandle, now_ms: int) -> Settled:
        """Return what becomes of a handle where nothing is in flight: a restart does not keep such a queue."""
        committed = self.offsets.query(group, topic, queue_id)
        if committed is None or handle.queue_offset >= committed:
            return Settled.UNKNOWN
        return Settled.ALREADY if now_ms < handle.expires_ms else Settled.EXPIRED

    # ---- time over

    def next_due_ms(self) -> int | None:
        """Return when ``due`` may next find something."""
        return self._heap[0][0] * BUCKET_MS if self._heap else None

    def due(self, now_ms: int, count_max: int) -> list[Due]:
        """Return messages whose time is over, about ``count_max`` at most. Their handles are dead until ``copied`` or
        ``put_back``."""
        found: list[Due] = []
        count = 0
        with self._lock:
            while self._heap and count < count_max and self._heap[0][0] * BUCKET_MS <= now_ms:
                bucket, _, queue = heapq.heappop(self._heap)
                if self._known(queue.group, queue.topic, queue.queue_id) is not queue:
                    continue  # its topic or group is gone
                messages, buckets = queue.due(bucket)
                self._push(queue, buckets)
                if messages:
                    count += len(messages)
                    found.append(Due(queue, messages))
            if found:
                self.generation += 1
        return found

    def copied(self, due: Due) -> None:
        """Forget messages whose copies are on disk."""
        queue = due.queue
        with self._lock:
            before = len(queue.unacked)
            queue.copied([offset for offset, _ in due.messages])
            if self._of(queue) is queue:
                self.count -= before - len(queue.unacked)
                self.generation += 1
                self._commit(queue)

    def put_back(self, due: Due, visible_ms: int) -> None:
        """Let messages that could not be copied wait until ``visible_ms``."""
        with self._lock:
            if self._of(due.queue) is due.queue:
                self._push(due.queue, due.queue.put_back([offset for offset, _ in due.messages], visible_ms))

    # ---- others

    def forget(self, chosen: Callable[[str, str], bool]) -> None:
        """Forget the queues of each (group, topic) that is chosen: the group or the topic is gone."""
        with self._lock:
            for key in [key for key in self.queues if chosen(key[0], key[1])]:
                self.count -= len(self.queues.pop(key).unacked)
                self.generation += 1

    def totals(self) -> dict[tuple[str, str], int]:
        """Return (group, topic) → messages in flight."""
        found: dict[tuple[str, str], int] = {}
        for (group, topic, _), queue in list(self.queues.items()):
            found[group, topic] = found.get((group, topic), 0) + len(queue.unacked)
        return found

    def states(self) -> Iterator[tuple[PopQueue, int, int, dict[int, int]]]:
        """Yield each queue with its next offset, lowest offset in flight, and offset → packed times, as one moment
        shows them."""
        for queue in list(self.queues.values()):
            with self._lock:
                state = (queue, queue.next_offset, queue.low, dict(queue.unacked))
            yield state

    def restore(
        self, group: str, topic: str, queue_id: int, next_offset: int, in_flight: dict[int, int], now_ms: int
    ) -> bool:
        """Take over the state of one queue from a snapshot: ``in_flight`` are offset → packed times. Start only. What
        the committed offset says counts. False: there is no room."""
        committed = self.offsets.query(group, topic, queue_id)
        if committed is None or len(self.queues) >= self.queues_max:
            return False
        queue = PopQueue(group, topic, queue_id, committed)
        queue.next_offset = max(committed, next_offset)
        kept = {offset: times for offset, times in sorted(in_flight.items()) if committed <= offset < next_offset}
        with self._lock:
            self.queues[group, topic, queue_id] = queue
            self._push(queue, queue.restore(kept, now_ms))
            self.count += len(kept)
            self._commit(queue)
        return True

    def adopt(self, group: str, topic: str, queue_id: int, in_flight: dict[int, int], now_ms: int) -> bool:
        """Take over messages in flight below the committed offset of a queue that nobody has popped here: the committed
        offset is set back to the lowest of them. Start only. False: there is no room."""
        committed = self.offsets.query(group, topic, queue_id)
        if committed is None or len(self.queues) >= self.queues_max or (group, topic, queue_id) in self.queues:
            return False
        if self.count + len(in_flight) > self.unacked_max:
            return False
        queue = PopQueue(group, topic, queue_id, committed)
        with self._lock:
            self.queues[group, topic, queue_id] = queue
            queue.low = min(in_flight)
            self._push(queue, queue.restore(dict(sorted(in_flight.items())), now_ms))
            self.count += len(in_flight)
            self.generation += 1
            self._commit(queue)
        return True

    def _known(self, group: str, topic: str, queue_id: int) -> PopQueue | None:
        queue = self.queues.get((group, topic, queue_id))
        if queue is not None:
            self._follow(queue, self.offsets.query(group, topic, queue_id))
            queue = self._of(queue)
        return queue

    def _of(self, queue: PopQueue) -> PopQueue | None:
        return self.queues.get((queue.group, queue.topic, queue.queue_id))

    def _follow(self, queue: PopQueue, committed: int | None) -> None:
        """Notice that somebody else has committed, or removed, the group's offset."""
        if committed == queue.committed:
            return
        before = len(queue.unacked)
        if committed is None:  # the topic or the group was deleted
            self.queues.pop((queue.group, queue.topic, queue.queue_id), None)
            queue.unacked.clear()
        else:
            queue.moved(committed)
            self._commit(queue)
        self.count -= before - len(queue.unacked)
        self.generation += 1

    def _commit(self, queue: PopQueue) -> None:
        if queue.low != queue.committed:
            self.offsets.commit(queue.group, queue.topic, queue.queue_id, queue.low)
            queue.committed = queue.low

    def _push(self, queue: PopQueue, buckets: list[int]) -> None:
        for bucket in buckets:
            self._pushed += 1
            heapq.heappush(self._heap, (bucket, self._pushed, queue))
