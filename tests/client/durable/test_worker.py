"""The store's thread, step by step: one write for many, limits, faults and openings."""

from typing import Any

from pocketmq.client.durable.entry import KeptMessage
from pocketmq.client.durable.errors import (
    RetryStoreCorrupt,
    RetryStoreFull,
    RetryStoreLocked,
    RetryStoreRefused,
    RetryStoreUnreachable,
)
from pocketmq.client.durable.options import RetryOptions
from pocketmq.client.durable.store import Changes
from pocketmq.client.durable.worker import StoreWorker, ToKeep
from pocketmq.common.clock import ManualClock
from pocketmq.common.events import NullLog
from pocketmq.common.runner import LoopMailbox, SteppedRunner
from tests.client.durable.fakes import FaultyStore


class Loop:
    """Runs posted calls at once."""

    def call_soon(self, callback: Any, *args: Any) -> None:
        callback(*args)

    call_soon_threadsafe = call_soon


class Bench:
    """A worker whose steps the test takes; ``answers`` has (name, entries or None, error or None)."""

    def __init__(self, **limits: int) -> None:
        self.store = FaultyStore()
        self.clock = ManualClock()
        self.runner = SteppedRunner()
        self.answers: list[Any] = []
        self.openings: list[Any] = []
        self.faults: list[Any] = []
        self.waits: list[Any] = []
        options: dict[str, Any] = {"count_max": 100, "size_bytes_max": 1 << 20, "keys_max": 10, **limits}
        self.worker = StoreWorker(
            self.store,
            self.runner,
            LoopMailbox(Loop()),
            self.clock,
            NullLog(),
            RetryOptions(lease_ms=3_000, reopen_ms=500, **options),
            opened=lambda summary, note: self.openings.append((summary.count, note)),
            failed=self.faults.append,
            waits=lambda wait, error: self.waits.append((wait.waited_ms, error)),
        )
        self.worker.start()

    def step(self) -> None:
        self.runner.run_until_idle()

    def add(self, name: str, count: int = 1, *, lane: str = "", key: str = "", body: bytes = b"x") -> None:
        kept = KeptMessage(topic="T", body=body, uniq_key=b"", order_key=key)
        items = [ToKeep(kept, lane, 1_000) for _ in range(count)]
        self.worker.add(items, lambda result, error: self.answers.append((name, result, error)))

    def change(self, name: str, changes: Changes) -> None:
        self.worker.change(changes, lambda result, error: self.answers.append((name, result, error)))


def test_what_gathers_is_one_write_and_numbers_grow() -> None:
    """Jobs that wait behind each other share a transaction; each answer has its own entries, in order."""
    bench = Bench()
    bench.step()
    bench.add("a", 2)
    bench.add("b")
    bench.step()
    assert [(name, len(result), error) for name, result, error in bench.answers] == [("a", 2, None), ("b", 1, None)]
    assert len(bench.store.writes) == 1
    seqs = [entry.seq for _, result, _ in bench.answers for entry in result]
    assert seqs == sorted(set(seqs))
    assert bench.answers[0][1][0].due_ms == bench.clock.now_ms() + 1_000
    assert bench.worker.summary.count == 3
    bench.change("c", Changes(removed=bench.answers[0][1], given_up=[(bench.answers[1][1][0], "why")]))
    bench.step()
    assert (bench.worker.summary.count, bench.worker.summary.given_up_count) == (0, 1)
    assert bench.worker.summary.size_bytes == 0


def test_limits_refuse_before_anything_is_written() -> None:
    """Messages, bytes and keys: a job over a limit is refused as a whole, others go on."""
    bench = Bench(count_max=3, size_bytes_max=2_000, keys_max=2)
    bench.add("fits", 2)
    bench.add("too many", 2)
    bench.add("too large", body=bytes(3_000))
    bench.step()
    found = {name: error for name, _, error in bench.answers}
    assert found["fits"] is None
    assert isinstance(found["too many"], RetryStoreFull)
    assert "count_max" in str(found["too many"])
    assert isinstance(found["too large"], RetryStoreFull)
    assert "size_bytes_max" in str(found["too large"])
    assert bench.worker.summary.count == 2

    bench = Bench(keys_max=2)
    for key in ("k1", "k2", "k3", "k1"):
        bench.add(key, lane="lane", key=key)
    bench.step()
    assert [type(error) for _, _, error in bench.answers] == [RetryStoreFull, type(None), type(None), type(None)]
    assert [name for name, _, error in bench.answers if error] == ["k3"]


def test_given_up_messages_count_for_the_limit() -> None:
    """Given-up messages fill the store, and are not dropped to make room."""
    bench = Bench(count_max=1)
    bench.add("a")
    bench.step()
    bench.change("gone", Changes(given_up=[(bench.answers[0][1][0], "why")]))
    bench.step()
    bench.add("b")
    bench.step()
    assert isinstance(bench.answers[-1][2], RetryStoreFull)


def test_a_failed_write_is_reported_and_the_store_reopened_later() -> None:
    """All jobs of the write get the error; until the next opening every job fails at once; then they work again."""
    bench = Bench()
    bench.step()
    bench.store.write_error = RetryStoreUnreachable("gone")
    bench.add("a")
    bench.add("b")
    bench.step()
    assert [type(error) for _, _, error in bench.answers] == [RetryStoreUnreachable, RetryStoreUnreachable]
    assert bench.worker.summary.count == 0
    assert len(bench.faults) == 1
    bench.store.write_error = None
    bench.add("early")
    bench.step()
    assert isinstance(bench.answers[-1][2], RetryStoreUnreachable)
    assert bench.store.opened == 1
    bench.clock.advance_ms(500)
    bench.add("later")
    bench.step()
    assert bench.store.opened == 2
    assert bench.answers[-1][2] is None


def test_one_refused_message_does_not_spoil_the_others() -> None:
    """If the store refuses a write for one message, the jobs are written one by one."""

    class Picky(FaultyStore):
        def write(self, changes: Changes) -> None:
            if any(b"bad" in entry.payload for entry in changes.added):
                raise RetryStoreRefused("not this one")
            super().write(changes)

    bench = Bench()
    bench.worker.store = bench.store = Picky()
    bench.add("good")
    bench.add("bad", body=b"bad")
    bench.add("good too")
    bench.step()
    assert [(name, type(error)) for name, _, error in bench.answers] == [
        ("good", type(None)),
        ("bad", RetryStoreRefused),
        ("good too", type(None)),
    ]
    assert bench.worker.fault is None


def test_a_corrupt_store_is_repaired_once() -> None:
    """It is repaired at the opening; corrupt again soon after, it is left alone and reported."""
    bench = Bench()
    bench.store.open_error = RetryStoreCorrupt("damaged")
    bench.step()
    assert bench.store.repaired == 1
    assert bench.openings == [(0, "repaired")]
    bench.store.write_error = RetryStoreCorrupt("again")
    bench.add("a")
    bench.step()
    for _ in range(5):
        bench.clock.advance_ms(500)
        bench.runner.step_all()
    assert bench.store.repaired == 1
    assert isinstance(bench.worker.fault, RetryStoreCorrupt)
    bench.store.write_error = None
    bench.clock.advance_ms(60_000)
    bench.runner.step_all()
    assert bench.store.repaired == 2
    assert bench.worker.fault is None


def test_a_locked_store_is_tried_again() -> None:
    """While another process owns it the worker reports that; once it is free it opens the store."""
    bench = Bench()
    bench.store.open_error = RetryStoreLocked("owned")
    bench.add("a")
    bench.step()
    assert isinstance(bench.answers[0][2], RetryStoreLocked)
    bench.store.open_error = None
    bench.clock.advance_ms(500)
    bench.runner.step_all()
    assert bench.openings == [(0, "")]


def test_a_store_whose_owner_may_be_dead_is_taken_as_soon_as_it_is_free() -> None:
    """It is tried more often than every reopen_ms, and reported each second; meanwhile jobs fail at once."""
    bench = Bench()
    bench.store.open_error = error = RetryStoreLocked("owned", owner="a", left_ms=2_000)
    bench.step()
    assert bench.waits == [(0, error)]
    bench.add("a")
    bench.step()
    assert bench.answers[0][2] is error
    assert bench.store.opened == 1, "a message does not bring the next look forward"
    for _ in range(40):
        bench.clock.advance_ms(50)
        bench.runner.step_all()
    assert 5 < bench.store.opened < 12
    assert [waited_ms // 1_000 for waited_ms, _ in bench.waits] == [0, 1]
    bench.store.open_error = None
    bench.clock.advance_ms(500)
    bench.runner.step_all()
    assert bench.openings == [(0, "")]
    assert bench.faults == []


def test_the_wait_for_an_owner_ends_when_it_lives() -> None:
    """It is then a fault like any other: reported, and retried every reopen_ms."""
    bench = Bench()
    bench.store.open_error = RetryStoreLocked("owned", owner="a", left_ms=2_000)
    bench.step()
    bench.store.open_error = error = RetryStoreLocked("it lives", owner="a")
    bench.clock.advance_ms(50)
    bench.runner.step_all()
    assert bench.faults == [error]
    assert bench.worker.fault is error
    opened = bench.store.opened
    bench.clock.advance_ms(499)
    bench.runner.step_all()
    assert bench.store.opened == opened
    bench.clock.advance_ms(1)
    bench.runner.step_all()
    assert bench.store.opened == opened + 1


def test_a_wait_for_an_owner_can_be_stopped() -> None:
    """The end of the producer does not wait for the end of the lease."""
    bench = Bench()
    bench.store.open_error = RetryStoreLocked("owned", owner="a", left_ms=2_000)
    bench.step()
    ended: list[int] = []
    bench.worker.stop(lambda: ended.append(1))
    bench.step()
    assert bench.worker.ended
    assert ended == [1]


def test_the_lease_is_renewed_while_nothing_is_written() -> None:
    """It happens three times in a lease; a write renews it, too."""
    bench = Bench()
    bench.step()
    for _ in range(6):
        bench.clock.advance_ms(500)
        bench.runner.step_all()
    assert bench.store.renewed == 3


def test_a_stop_writes_what_waits_and_closes() -> None:
    """Jobs handed over before the stop are written; later ones are refused."""
    bench = Bench()
    bench.add("a")
    ended: list[int] = []
    bench.worker.stop(lambda: ended.append(1))
    bench.step()
    assert bench.answers[0][2] is None
    assert bench.worker.ended
    assert ended == [1]
    assert bench.store.closed
    bench.add("late")
    bench.step()
    assert isinstance(bench.answers[-1][2], RetryStoreUnreachable)
