"""The ledger of pops against a model of fifty lines, and across crashes."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pocketmq.broker.group.consumer_offsets import ConsumerOffsets
from pocketmq.broker.pop.pop_ledger import PopLedger
from pocketmq.broker.pop.pop_queue import BUCKET_MS, PopQueue, Settled
from pocketmq.broker.pop.pop_snapshot import PopSnapshot
from pocketmq.common.clock import ManualClock, SteadyTime
from pocketmq.common.receipt_handle import ReceiptHandle

QUEUE = ("g", "t", 0)
UNACKED_MAX = 12


class Model:
    """What the documentation says: each message is waiting, in flight, being copied, or done."""

    def __init__(self) -> None:
        self.next = 0
        self.in_flight: dict[int, tuple[int, int]] = {}
        self.copying: set[int] = set()

    @property
    def low(self) -> int:
        return min([*self.in_flight, *self.copying, self.next])

    def settle(self, offset: int, times: tuple[int, int], now_ms: int) -> Settled:
        if offset >= self.next:
            return Settled.UNKNOWN
        if self.in_flight.get(offset) == times:
            return Settled.DONE
        is_gone = offset not in self.in_flight and offset not in self.copying
        return Settled.ALREADY if is_gone and now_ms < sum(times) else Settled.EXPIRED


def new_ledger(offsets: ConsumerOffsets) -> PopLedger:
    return PopLedger(offsets, UNACKED_MAX, 100, 10)


class Pops(RuleBasedStateMachine):
    """Any order of pops, acknowledgements, changes, ends of times, failed copies, foreign commits and crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = ConsumerOffsets(100)
        self.ledger = new_ledger(self.offsets)
        self.clock = ManualClock()
        self.model = Model()
        self.handles: list[ReceiptHandle] = []
        self.dues: list[Any] = []
        self.saved: tuple[bytes, int, Model] | None = None

    def handle(self, offset: int, pop_time: int, invisible_ms: int) -> ReceiptHandle:
        return ReceiptHandle(offset, pop_time, invisible_ms, 0, "0", "b", 0, offset)

    @rule(count=st.integers(1, 8), gaps=st.integers(0, 3), invisible_ms=st.integers(1, 400))
    def pop(self, count: int, gaps: int, invisible_ms: int) -> None:
        turn = self.ledger.begin(*QUEUE, lambda: 0)
        room = UNACKED_MAX - len(self.model.in_flight) - len(self.model.copying)
        if room <= 0:
            assert turn is None
            return
        assert turn is not None
        assert (turn.offset, turn.room) == (self.model.next, room)
        assert self.ledger.begin(*QUEUE, lambda: 0) is None
        offsets = [turn.offset + at * (gaps + 1) for at in range(min(count, room))]
        behind = offsets[-1] + 1 + gaps
        now_ms = self.clock.now_ms()
        assert self.ledger.take(turn, offsets, behind, now_ms, invisible_ms)
        self.model.next = behind
        for offset in offsets:
            self.model.in_flight[offset] = (now_ms, invisible_ms)
            self.handles.append(self.handle(offset, now_ms, invisible_ms))

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), shift=st.sampled_from([0, 0, 0, 0, 1]))
    def ack(self, data: st.DataObject, shift: int) -> None:
        handle = data.draw(st.sampled_from(self.handles))
        handle = handle._replace(pop_time=handle.pop_time + shift)
        times = (handle.pop_time, handle.invisible_time)
        expected = self.model.settle(handle.queue_offset, times, self.clock.now_ms())
        assert self.ledger.ack(*QUEUE, handle, self.clock.now_ms()) is expected
        if expected is Settled.DONE:
            del self.model.in_flight[handle.queue_offset]

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), invisible_ms=st.integers(0, 400))
    def change(self, data: st.DataObject, invisible_ms: int) -> None:
        handle = data.draw(st.sampled_from(self.handles))
        now_ms = self.clock.now_ms()
        times = (handle.pop_time, handle.invisible_time)
        expected = self.model.settle(handle.queue_offset, times, now_ms)
        assert self.ledger.change(*QUEUE, handle, now_ms, invisible_ms) is expected
        if expected is Settled.DONE:
            self.model.in_flight[handle.queue_offset] = (now_ms, invisible_ms)
            self.handles.append(handle.renewed(now_ms, invisible_ms))

    @rule(ms=st.integers(1, 300))
    def wait(self, ms: int) -> None:
        self.clock.advance_ms(ms)
        now_ms = self.clock.now_ms()
        found = self.ledger.due(now_ms, 1000)
        over = {offset for due in found for offset, _ in due.messages}
        for offset, times in list(self.model.in_flight.items()):
            if -(-sum(times) // BUCKET_MS) * BUCKET_MS <= now_ms:
                assert offset in over
                del self.model.in_flight[offset]
                self.model.copying.add(offset)
        assert over <= self.model.copying
        self.dues += found

    @precondition(lambda self: self.dues)
    @rule(is_good=st.booleans())
    def copy(self, is_good: bool) -> None:
        due = self.dues.pop(0)
        offsets = {offset for offset, _ in due.messages} & self.model.copying
        if is_good:
            self.ledger.copied(due)
            self.model.copying -= offsets
        else:
            packed = {offset: abs(due.queue.unacked.get(offset, 0)) for offset in offsets}
            self.ledger.put_back(due, self.clock.now_ms() + 1000)
            self.model.copying -= offsets
            self.clock.advance_ms(1100)
            again = {offset for each in self.ledger.due(self.clock.now_ms(), 1000) for offset, _ in each.messages}
            assert offsets <= again
            assert all(packed.values())
            self.dues.append(due)
            for offset, times in list(self.model.in_flight.items()):
                if offset in again:
                    assert -(-sum(times) // BUCKET_MS) * BUCKET_MS <= self.clock.now_ms()
                    del self.model.in_flight[offset]
                    self.dues.append(due._replace(messages=[(offset, times[0])]))
            self.model.copying |= again

    @precondition(lambda self: self.ledger.queues)
    @rule(data=st.data())
    def foreign_commit(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.model.next))
        committed = self.offsets.query(*QUEUE)
        self.offsets.commit(*QUEUE, offset)
        assert committed is not None
        if offset < committed:
            self.model.next = offset
            self.model.in_flight.clear()
            self.model.copying.clear()
            self.handles.clear()
        elif offset > committed:
            self.model.in_flight = {at: each for at, each in self.model.in_flight.items() if at >= offset}
            self.model.copying = {at for at in self.model.copying if at >= offset}
        self.ledger.ack(*QUEUE, self.handle(1 << 40, 0, 0), 0)  # anything that looks at the queue

    @rule()
    def save(self) -> None:
        snapshot = PopSnapshot(self.ledger, SteadyTime(self.clock))
        snapshot.prepare()
        model = Model()
        model.next, model.in_flight = self.model.next, dict(self.model.in_flight)
        model.copying = set(self.model.copying)
        self.saved = (snapshot.encode(), self.offsets.query(*QUEUE) or 0, model)

    @precondition(lambda self: self.saved is not None)
    @rule(commits_are_newer=st.booleans())
    def crash(self, commits_are_newer: bool) -> None:
        assert self.saved is not None
        content, committed, saved = self.saved
        known = self.offsets.query(*QUEUE)
        done = set(range(self.model.next)) - set(self.model.in_flight) - self.model.copying
        self.offsets = ConsumerOffsets(100)
        if known is not None:
            self.offsets.commit(*QUEUE, known if commits_are_newer else committed)
        self.ledger = new_ledger(self.offsets)
        snapshot = PopSnapshot(self.ledger, SteadyTime(self.clock))
        snapshot.load(content)
        snapshot.restore(self.offsets.query, lambda topic, queue_id: 1 << 40)
        self.dues.clear()
        queue = self.ledger.queues.get(QUEUE)
        base = self.offsets.query(*QUEUE) or 0
        self.model = Model()
        self.model.next = base if queue is None else queue.next_offset
        if queue is not None:
            assert set(queue.unacked) <= set(saved.in_flight) | saved.copying
            for offset, times in queue.unacked.items():
                self.model.in_flight[offset] = (times >> 26, times & (1 << 26) - 1)
        lost = set(range(self.model.next)) - set(self.model.in_flight) - done
        was_reset = commits_are_newer and known is not None and known < saved.low
        assert was_reset or not {offset for offset in lost if not self._was_done_when_saved(saved, offset)}
        self.saved = None

    @staticmethod
    def _was_done_when_saved(saved: Model, offset: int) -> bool:
        return offset < saved.next and offset not in saved.in_flight and offset not in saved.copying

    @invariant()
    def holds(self) -> None:
        queue: PopQueue | None = self.ledger.queues.get(QUEUE)
        if queue is None:
            return
        in_flight = {offset for offset, times in queue.unacked.items() if times >= 0}
        assert in_flight == set(self.model.in_flight)
        assert set(queue.unacked) - in_flight == self.model.copying
        assert list(queue.unacked) == sorted(queue.unacked)
        assert (queue.next_offset, queue.low) == (self.model.next, self.model.low)
        assert self.offsets.query(*QUEUE) == self.model.low
        assert self.ledger.count == len(queue.unacked)
        assert queue.entries == sum(map(len, queue.buckets.values()))
        waiting = {offset for bucket in queue.buckets.values() for offset in bucket}
        assert in_flight <= waiting


TestPops = Pops.TestCase


def popped(ledger: PopLedger, count: int, now_ms: int, invisible_ms: int) -> list[int]:
    turn = ledger.begin(*QUEUE, lambda: 0)
    assert turn is not None
    offsets = list(range(turn.offset, turn.offset + count))
    assert ledger.take(turn, offsets, turn.offset + count, now_ms, invisible_ms)
    return offsets


def test_changes_without_end_keep_the_buckets_small() -> None:
    """A consumer that changes the time of one message all day fills no memory."""
    ledger = PopLedger(ConsumerOffsets(10), 10, 10, 10)
    now_ms = 1_700_000_000_000
    popped(ledger, 1, now_ms, 1000)
    handle = ReceiptHandle(0, now_ms, 1000, 0, "0", "b", 0, 0)
    for step in range(20_000):
        now_ms += 7
        new_ms = 12 * 3_600_000 if step % 2 else 30_000
        assert ledger.change(*QUEUE, handle, now_ms, new_ms) is Settled.DONE
        handle = handle.renewed(now_ms, new_ms)
        ledger.due(now_ms, 1000)
    queue = ledger.queues[QUEUE]
    assert queue.entries < 1_100
    assert len(queue.buckets) < 1_100
    assert len(ledger._heap) < 5_000


def test_a_deleted_topic_takes_its_messages_along() -> None:
    """The next look at the queue notices."""
    offsets = ConsumerOffsets(10)
    ledger = PopLedger(offsets, 10, 10, 10)
    popped(ledger, 3, 1000, 1)
    offsets.remove_topic("t")
    assert ledger.due(10_000, 100) == []
    assert (ledger.count, ledger.queues) == (0, {})


def test_limits_in_all() -> None:
    """Of messages and of queues."""
    ledger = PopLedger(ConsumerOffsets(10), 10, 3, 1)
    popped(ledger, 2, 1000, 1)
    turn = ledger.begin(*QUEUE, lambda: 0)
    assert turn is not None
    assert turn.room == 1
    ledger.leave(turn)
    assert ledger.begin("g", "t", 1, lambda: 0) is None


@pytest.mark.soak
def test_a_million_messages_in_flight_take_less_than_300_mb() -> None:
    """100 queues with 10,000 each, popped one by one."""
    import tracemalloc

    tracemalloc.start()
    ledger = PopLedger(ConsumerOffsets(1000), 10_000, 1_000_000, 1000)
    now_ms = 1_700_000_000_000
    for queue_id in range(100):
        for at in range(10_000):
            turn = ledger.begin("g", "t", queue_id, lambda: 0)
            assert turn is not None
            ledger.take(turn, [at], at + 1, now_ms + at, 60_000)
    assert ledger.count == 1_000_000
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 300_000_000
