"""The doctor on a disk that stands still altogether."""

from pocketmq.cli.doctor.diagnosis import diagnose
from pocketmq.cli.doctor.finding import Severity
from pocketmq.remoting.telemetry import FlushTelemetry, PageCacheTelemetry, PoolTelemetry
from tests.cli.doctor.snapshots import found_by, refusal, settings, snapshot, telemetry, the

HELD = PageCacheTelemetry(busy=True, lock_held_ms=4_000, longest_hold_ms_last_minute=4_000, timeout_ms=1_000)
FREE_AGAIN = PageCacheTelemetry(longest_hold_ms_last_minute=4_000, timeout_ms=1_000)
RUNNING = FlushTelemetry(mode="ASYNC_FLUSH", count=9, max_us=9_000, running_ms=3_500)


def test_an_append_and_a_sync_that_do_not_end_are_a_disk_that_stands_still() -> None:
    """Already in the first stall, before either has ended."""
    finding = the(diagnose(snapshot(telemetry(page_cache=HELD, flush=RUNNING)), settings()), "disk-stalled")
    assert finding.severity is Severity.ERROR
    assert "one has run for 3.50 s so far" in finding.evidence[0]
    assert not finding.settings, "no setting cures it"


def test_with_the_pool_the_sync_alone_shows_it() -> None:
    """Appends go to memory that cannot stall."""
    pool = PoolTelemetry(size=5, available=4, locked=True, survives=True, cannot_stall=True)
    assert "disk-stalled" in found_by(telemetry(flush=RUNNING, pool=pool))


def test_one_that_is_over_is_a_warning_and_a_slow_append_alone_is_none() -> None:
    """A page fault holds the append lock while syncs are quick."""
    over = FlushTelemetry(mode="ASYNC_FLUSH", count=9, p99_us=4e6, max_us=4e6)
    finding = the(diagnose(snapshot(telemetry(page_cache=FREE_AGAIN, flush=over)), settings()), "disk-stalled")
    assert finding.severity is Severity.WARNING
    assert "disk-stalled" not in found_by(telemetry(page_cache=HELD))
    assert "disk-stalled" not in found_by(telemetry(flush=over))


def test_sends_that_waited_behind_a_stall_are_not_too_many() -> None:
    """The stages show quick appends: the one that stood still is in the longest hold of the lock."""
    told = telemetry(page_cache=FREE_AGAIN, refusals=[refusal("queue_timeout", "[TIMEOUT_CLEAN_QUEUE]broker busy")])
    finding = the(diagnose(snapshot(told), settings()), "refused-timeout")
    assert "the append is slow" in finding.title
    assert "more requests arrive" not in finding.cause
