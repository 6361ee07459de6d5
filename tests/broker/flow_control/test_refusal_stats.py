"""Statistics of refusals: the counts include every refusal, and the log is not flooded."""

import threading

from pocketmq.broker.flow_control.refusal_stats import EVENTS_PER_SECOND_MAX, KINDS_MAX, RefusalStats
from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog

BUSY = "page_cache_busy"


def new_refusal_stats() -> tuple[RefusalStats, ManualClock, CapturedLog]:
    clock, log = ManualClock(), CapturedLog()
    return RefusalStats(clock, log), clock, log


def test_the_last_minute_forgets_second_by_second_and_the_total_never() -> None:
    """A refusal counts for the 60 s that follow, with the time and text of the latest."""
    refusal_stats, clock, _ = new_refusal_stats()
    refusal_stats.note(BUSY, 2, "[REJECTREQUEST]one")
    clock.advance_ms(30_000)
    refusal_stats.note(BUSY, 2, "[REJECTREQUEST]two", 4)
    at_ms = clock.now_ms()
    (count,) = refusal_stats.snapshot()
    assert (count.cause, count.code, count.total, count.last_minute) == (BUSY, 2, 5, 5)
    assert (count.remark, count.last_ms) == ("[REJECTREQUEST]two", at_ms)
    clock.advance_ms(31_000)
    assert refusal_stats.snapshot()[0].last_minute == 4
    clock.advance_ms(3_600_000)
    assert (refusal_stats.snapshot()[0].last_minute, refusal_stats.snapshot()[0].total) == (0, 5)


def test_three_ways_to_a_busy_page_cache_are_kept_apart_by_their_tag() -> None:
    """Admission, expiry and the put have the same cause and different texts; times and sizes do not make new kinds."""
    refusal_stats, _, _ = new_refusal_stats()
    refusal_stats.note(BUSY, 2, "[REJECTREQUEST]system busy")
    for waited_ms in range(300):
        refusal_stats.note(BUSY, 2, f"[PCBUSY_CLEAN_QUEUE]broker busy, period in queue: {waited_ms}ms")
    refusal_stats.note(BUSY, 2, "[PC_SYNCHRONIZED]broker busy")
    totals = {count.remark.partition("]")[0]: count.total for count in refusal_stats.snapshot()}
    assert totals == {"[PCBUSY_CLEAN_QUEUE": 300, "[REJECTREQUEST": 1, "[PC_SYNCHRONIZED": 1}


def test_kinds_are_bounded_and_nothing_is_lost() -> None:
    """Remarks with unknown tags cannot grow the statistics."""
    refusal_stats, _, _ = new_refusal_stats()
    for number in range(KINDS_MAX * 3):
        refusal_stats.note("internal", number, f"[{number}]x")
    counts = refusal_stats.snapshot()
    assert len(counts) <= KINDS_MAX + 1
    assert sum(count.total for count in counts) == KINDS_MAX * 3


def test_at_most_ten_events_a_second_for_each_cause_and_the_rest_is_reported() -> None:
    """Omitted refusals are in the next event, or in a separate one after the second."""
    refusal_stats, clock, log = new_refusal_stats()
    for _ in range(100):
        refusal_stats.note("queue_full", 2, "[OVERLOAD]x", 3)
    refusal_stats.note("queue_timeout", 2, "[TIMEOUT_CLEAN_QUEUE]x")
    events = [event["event"] for event in log.events]
    assert events == ["refused_queue_full"] * EVENTS_PER_SECOND_MAX + ["refused_queue_timeout"]
    assert log.events[-1]["text"] == "CODE: 2  DESC: [TIMEOUT_CLEAN_QUEUE]x"
    refusal_stats.log_left_out()
    assert len(log.events) == EVENTS_PER_SECOND_MAX + 1
    clock.advance_ms(1000)
    refusal_stats.note("queue_full", 2, "[OVERLOAD]x")
    assert (log.events[-1]["count"], log.events[-1]["left_out"]) == (1, 270)
    for _ in range(20):
        refusal_stats.note("queue_full", 2, "[OVERLOAD]x")
    clock.advance_ms(1000)
    refusal_stats.log_left_out()
    assert (log.events[-1]["event"], log.events[-1]["count"], log.events[-1]["left_out"]) == (
        "refused_queue_full",
        0,
        11,
    )
    told = sum(event["count"] + event["left_out"] for event in log.events if event["event"] == "refused_queue_full")
    assert told == 300 + 1 + 20
    assert refusal_stats.snapshot()[0].total == told


def test_a_clients_mistake_is_no_warning() -> None:
    """A missing topic is no reason to alert an operator."""
    refusal_stats, _, log = new_refusal_stats()
    refusal_stats.note("bad_request", 13, "the message is illegal")
    refusal_stats.note("disk_error", 1, "the disk is broken")
    assert [(event["event"], event["level"]) for event in log.events] == [
        ("refused_bad_request", "info"),
        ("refused_disk_error", "warning"),
    ]


def test_a_watched_counter_is_counted_when_somebody_looks() -> None:
    """Connections that are closed at once have no request to refuse; only their number is known."""
    refusal_stats, _, _ = new_refusal_stats()
    refused = 5
    refusal_stats.watch("connection_limit", 0, "too many connections", lambda: refused)
    assert refusal_stats.snapshot() == []
    refused = 8
    refusal_stats.log_left_out()
    refused = 9
    (count,) = refusal_stats.snapshot()
    assert (count.cause, count.total) == ("connection_limit", 4)


def test_notes_of_many_threads_add_up() -> None:
    """The loop, the send threads and the flush thread all count in one place."""
    refusal_stats, _, log = new_refusal_stats()

    def write() -> None:
        for _ in range(2000):
            refusal_stats.note(BUSY, 2, "[PC_SYNCHRONIZED]x")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refusal_stats.snapshot()[0].total == 8000
    refusal_stats.log_left_out(all_of_them=True)
    assert sum(event["count"] + event["left_out"] for event in log.events) == 8000


def test_whoever_wants_to_know_of_a_refusal_is_told_its_cause() -> None:
    """The callback for thread dumps gets the cause."""
    causes: list[str] = []
    refusal_stats = RefusalStats(ManualClock(), CapturedLog(), causes.append)
    refusal_stats.note(BUSY, 2, "x", 7)
    assert causes == [BUSY]
