"""Rules: the whole disk.

Lives here: appends and syncs that stand still together, which a page fault or a busy page cache does not explain.
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.cli.doctor.broker_metrics import BrokerMetrics
from pocketmq.cli.doctor.finding import Area, Finding, Severity
from pocketmq.cli.doctor.rules.refusals import page_cache_lines
from pocketmq.cli.doctor.rules.slow_stage import HELD_MS_MAX
from pocketmq.cli.doctor.words import ms_text, us_text

STALL_MS: Final = 1_000
"""A sync that takes this long while an append does, too: the disk answers neither."""


def stall_rules(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield a finding while the disk stands still, or did in the window; none without telemetry."""
    if metrics.telemetry is None:
        return
    flush, page_cache = metrics.telemetry.flush, metrics.telemetry.page_cache
    sync_ms = max(float(flush.running_ms), flush.max_us / 1000)
    hold_ms = max(page_cache.lock_held_ms, page_cache.longest_hold_ms_last_minute)
    buffered = metrics.pool is not None and metrics.pool.cannot_stall
    now = flush.running_ms >= STALL_MS and (buffered or STALL_MS <= page_cache.lock_held_ms < HELD_MS_MAX)
    if not now and (sync_ms < STALL_MS or not STALL_MS <= hold_ms < HELD_MS_MAX):
        return
    running = f"; one has run for {ms_text(flush.running_ms)} so far" if flush.running_ms else ""
    yield Finding(
        key="disk-stalled",
        area=Area.DISK,
        severity=Severity.ERROR if now else Severity.WARNING,
        title=f"the whole disk {'stands' if now else 'stood'} still: its syncs, too, and not one append alone",
        evidence=(f"longest sync {metrics.window}: {us_text(flush.max_us)}{running}", *page_cache_lines(metrics)),
        cause="The disk answered nothing for this long: a device that resets or fails, a limit of a cloud disk, an "
        "overloaded storage network, or a snapshot.",
        cure="See the kernel log and the device (dmesg, iostat -x 1), the limits and credits of a cloud disk, and what "
        "else uses it. Settings of the broker do not help: the write-buffer pool bridges a stall only until its "
        "buffers are full.",
        reference="pocketmq doctor disk DIR",
        concerns=(Area.PAGE_CACHE, Area.FLUSH),
    )
