"""Sends that wait for slaves: each gets the right answer, at its own time."""

import statistics
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.common.clock import ManualClock, SystemClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import SteppedRunner, ThreadRunner
from pocketmq.store.append_result import PutStatus
from pocketmq.store.ha.group_transfer import GroupTransfer

TIMEOUT_MS = 3000


class Group:
    """A group transfer with slaves whose offsets a test sets."""

    def __init__(self) -> None:
        self.confirmed = 0
        self.slave_ok = True
        self.clock = ManualClock()
        self.log = CapturedLog()
        self.runner = SteppedRunner()
        self.transfer = GroupTransfer(
            self.clock, TIMEOUT_MS, lambda: self.confirmed, lambda end: self.slave_ok, self.log
        )
        self.transfer.start(self.runner)
        self.told: list[tuple[int, PutStatus]] = []

    def wait(self, end_offset: int) -> None:
        self.transfer.wait(end_offset, lambda status: self.told.append((end_offset, status)))

    def confirm(self, offset: int) -> None:
        self.confirmed = offset
        self.transfer.release(offset)


def test_a_confirmation_serves_all_it_covers() -> None:
    """The lowest come first; the others still wait."""
    group = Group()
    for end in (300, 100, 200):
        group.wait(end)
    group.confirm(200)
    assert group.told == [(100, PutStatus.PUT_OK), (200, PutStatus.PUT_OK)]
    assert group.transfer.served == 2


def test_what_is_confirmed_before_it_is_asked_for_is_answered_at_once() -> None:
    """A slave can be faster than the sending thread."""
    group = Group()
    group.confirmed, group.slave_ok = 100, False
    group.wait(100)
    assert group.told == [(100, PutStatus.PUT_OK)]


def test_a_confirmation_between_the_look_and_the_wait_is_not_lost() -> None:
    """The waiter checks again once it waits."""
    group = Group()
    looks = iter([0, 100])
    group.transfer._confirmed = lambda: next(looks)
    group.wait(100)
    assert group.told == [(100, PutStatus.PUT_OK)]


def test_a_fence_between_the_look_and_the_wait_is_not_lost() -> None:
    """No send goes on waiting for slaves of a replaced master."""
    group = Group()

    def fenced_meanwhile(end: int) -> bool:
        group.transfer.fence()
        return True

    group.transfer._is_slave_ok = fenced_meanwhile
    group.wait(100)
    assert group.told == [(100, PutStatus.SERVICE_NOT_AVAILABLE)]


def test_without_a_slave_nobody_waits() -> None:
    """SLAVE_NOT_AVAILABLE at once; the message stays stored."""
    group = Group()
    group.slave_ok = False
    group.wait(100)
    assert group.told == [(100, PutStatus.SLAVE_NOT_AVAILABLE)]
    assert group.transfer.not_available == 1


def test_when_too_few_slaves_are_left_the_waiting_sends_learn_it_at_once() -> None:
    """No slave is left that could confirm them before their deadline."""
    group = Group()
    group.wait(100)
    group.wait(200)
    group.transfer.give_up()
    assert group.told == [(100, PutStatus.SLAVE_NOT_AVAILABLE), (200, PutStatus.SLAVE_NOT_AVAILABLE)]
    assert (group.transfer.not_available, group.transfer.timeouts) == (2, 0)
    group.transfer.give_up()
    assert len(group.told) == 2


def test_a_slave_that_leaves_between_the_look_and_the_wait_is_not_waited_for() -> None:
    """The waiter checks again once it waits."""
    group = Group()
    looks = iter([0, -1])
    group.transfer._confirmed = lambda: next(looks)
    group.wait(100)
    assert group.told == [(100, PutStatus.SLAVE_NOT_AVAILABLE)]


def test_each_waiter_times_out_at_its_own_deadline() -> None:
    """A stalled slave delays no send beyond its own time, however many wait before it."""
    group = Group()
    for number in range(100):
        group.wait(1000 + number)
        group.clock.advance_ms(1)
    group.clock.advance_ms(TIMEOUT_MS - 100)
    for number in range(100):
        assert group.transfer.watch() is not None or number == 99
        assert group.told == [(1000 + at, PutStatus.FLUSH_SLAVE_TIMEOUT) for at in range(number + 1)]
        group.clock.advance_ms(1)
    assert group.transfer.timeouts == 100
    assert {event["event"] for event in group.log.events} == {"flush_slave_timeout"}
    assert [event["text"] for event in group.log.events[:2]] == [
        "transfer messsage to slave timeout, 1000",
        "transfer messsage to slave timeout, 1001",
    ]


@given(st.lists(st.tuples(st.sampled_from(["wait", "confirm", "pass"]), st.integers(1, 2000)), max_size=60))
def test_everybody_is_told_once_and_the_watcher_never_oversleeps(steps: list[tuple[str, int]]) -> None:
    """The watcher runs when woken, or when its own sleep is over, and at no other time."""
    group = Group()
    worker = group.runner.workers[0]
    asked: dict[int, tuple[int, int]] = {}
    answers: dict[int, PutStatus] = {}
    wakes_ms: float | None = None
    now = 0.0

    def look() -> None:
        nonlocal wakes_ms
        while worker.woken or (wakes_ms is not None and wakes_ms <= now):
            worker.woken = False
            sleep = group.transfer.watch()
            wakes_ms = None if sleep is None else now + sleep

    for number, (kind, value) in enumerate(steps):
        if kind == "wait":
            asked[number] = (value, int(now) + TIMEOUT_MS)

            def done(status: PutStatus, number: int = number) -> None:
                assert number not in answers
                answers[number] = status

            group.transfer.wait(value, done)
        elif kind == "confirm":
            group.confirm(max(group.confirmed, value))
        else:
            for _ in range(value // 50):
                group.clock.advance_ms(50)
                now += 50
                look()
        look()
        for asking, (offset, deadline) in asked.items():
            if asking not in answers:
                assert offset > group.confirmed
                assert deadline > now - 1
            elif answers[asking] is PutStatus.FLUSH_SLAVE_TIMEOUT:
                assert deadline <= now
    group.transfer.stop()
    assert answers.keys() == asked.keys()


def test_a_replaced_master_acknowledges_nothing() -> None:
    """Neither waiting nor new sends are acknowledged, whatever slaves confirm."""
    group = Group()
    group.wait(100)
    group.transfer.fence()
    group.confirm(1000)
    group.wait(50)
    assert group.told == [(100, PutStatus.SERVICE_NOT_AVAILABLE), (50, PutStatus.SERVICE_NOT_AVAILABLE)]


def test_more_waiters_than_fit_are_told_at_once() -> None:
    """A full table refuses the next waiter."""
    group = Group()
    group.transfer.waiters._count_max = 1
    group.wait(100)
    group.wait(200)
    assert group.told == [(200, PutStatus.FLUSH_SLAVE_TIMEOUT)]


def test_a_callback_that_raises_stops_no_other() -> None:
    """Its error is logged."""
    group = Group()

    def fail(status: PutStatus) -> None:
        raise ValueError("no")

    group.transfer.wait(100, fail)
    group.wait(100)
    group.confirm(100)
    assert group.told == [(100, PutStatus.PUT_OK)]
    assert group.log.events[-1]["event"] == "acknowledge_callback_failed"


def test_a_send_after_a_quiet_time_wakes_the_watcher_and_the_next_does_not() -> None:
    """With one message in flight, not every send may wake a thread."""
    group = Group()
    worker = group.runner.workers[0]
    group.wait(100)
    assert worker.woken
    worker.woken = False
    assert group.transfer.watch() == TIMEOUT_MS
    group.confirm(100)
    group.wait(200)
    assert not worker.woken, "it looks again before that deadline"


@pytest.mark.slow
def test_ten_thousand_waiters_time_out_on_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    """With real threads and a slave that stalls: none early, all answered; prints the median and the worst delay."""
    count, timeout_ms = 10_000, 800
    transfer = GroupTransfer(SystemClock(), timeout_ms, lambda: 0, lambda end: True, CapturedLog())
    transfer.start(ThreadRunner())
    late_ms: list[float] = []
    statuses: set[PutStatus] = set()
    finished = threading.Event()

    def wait(offset: int) -> None:
        deadline_ns = time.monotonic_ns() + timeout_ms * 1_000_000

        def done(status: PutStatus) -> None:
            late_ms.append((time.monotonic_ns() - deadline_ns) / 1e6)
            statuses.add(status)
            if len(late_ms) == count:
                finished.set()

        transfer.wait(offset, done)

    for number in range(count):
        wait(1 + number)
    assert finished.wait(60)
    transfer.stop()
    assert statuses == {PutStatus.FLUSH_SLAVE_TIMEOUT}
    assert min(late_ms) >= 0, "nobody is told before its time"
    with capsys.disabled():
        print(
            f" {count} waiters, late by: median {statistics.median(late_ms):.2f} ms, worst {max(late_ms):.2f} ms",
            end="",
        )
