"""Explains what a disk's measurements mean for the settings of a store.

Lives here: ``meanings``, a pure function from measurements and mount to sentences.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from pocketmq.cli.daemon.disk_room import SEGMENT_BYTES_MIN
from pocketmq.cli.doctor.disk.measure import DiskMeasurements
from pocketmq.cli.doctor.disk.mounts import Mount
from pocketmq.cli.doctor.finding import Severity
from pocketmq.cli.doctor.rules.disk_space import DISK_FULL_RATIO
from pocketmq.cli.doctor.rules.slow_stage import SLOW_US
from pocketmq.cli.doctor.words import ms_text, percent_text, rate_text
from pocketmq.common.units import bytes_text
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.disk_limits import DiskLimits

IN_FLIGHT: Final = 64
SYNC_TOO_FAST_MS: Final = 0.02
"""No disk makes 4 KiB durable in 20 µs: the answer comes from memory, or from a cache that you must trust."""
CACHED_READ_MS: Final = 0.01
SLOW_SYNC_MS: Final = 20.0
SMALL_MESSAGE_BYTES: Final = 1024
DIRTY_FACTOR: Final = 5.0
_NETWORK: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs", "virtiofs")


class Meaning(msgspec.Struct, frozen=True):
    """A sentence about a setting or a danger, with its severity."""

    severity: Severity
    about: str
    text: str


def meanings(measured: DiskMeasurements, mount: Mount | None, config: StoreConfig | None = None) -> list[Meaning]:
    """Return the conclusions from the measurements, worst first; ``config``: the store's defaults."""
    defaults = config or StoreConfig()
    found = [*_mount(mount), *_sync_flush(measured), *_async_flush(measured, defaults), *_append(measured, defaults)]
    found += [*_space(measured, defaults), *_reads(measured)]
    ranked = sorted(enumerate(found), key=lambda each: (each[1].severity.rank, each[0]))
    return [meaning for _, meaning in ranked]


def _mount(mount: Mount | None) -> Iterator[Meaning]:
    if mount is None:
        return
    options = set(mount.options)
    if "ro" in options:
        yield Meaning(Severity.ERROR, "mount", "The file system is mounted read-only: a broker cannot store anything.")
    if options & {"nobarrier", "barrier=0"}:
        yield Meaning(
            Severity.ERROR,
            "mount",
            "Barriers are off (nobarrier): a sync does not reach the disk, so SYNC_FLUSH guarantees nothing here.",
        )
    if mount.fs_type in ("tmpfs", "ramfs"):
        yield Meaning(
            Severity.WARNING,
            "mount",
            f"This is {mount.fs_type}: the numbers are those of memory, and all data is lost with the machine.",
        )
    if mount.fs_type in _NETWORK or mount.fs_type.startswith("fuse"):
        yield Meaning(
            Severity.WARNING,
            "mount",
            f"This is {mount.fs_type}: appends wait for a network or another process; a local disk suits a log better.",
        )
    if mount.fs_type == "overlay":
        yield Meaning(
            Severity.WARNING,
            "mount",
            "This is a container's own layer, which is removed with the container. Put the store on a volume.",
        )
    if "data=writeback" in options:
        yield Meaning(
            Severity.NOTE,
            "mount",
            "data=writeback: after a crash a file's size may be newer than its content; recovery checks every record.",
        )


def _sync_flush(measured: DiskMeasurements) -> Iterator[Meaning]:
    alone = measured.sync_alone
    if alone is None or alone.p50_ms <= 0:
        yield Meaning(Severity.NOTE, "SYNC_FLUSH", "No data: no sync was measured.")
        return
    if alone.p50_ms < SYNC_TOO_FAST_MS:
        yield Meaning(
            Severity.WARNING,
            "SYNC_FLUSH",
            f"A sync takes {ms_text(alone.p50_ms)}: no disk is that fast. Memory or a cache answers; make sure that it "
            "survives a loss of power, or SYNC_FLUSH guarantees nothing.",
        )
    rate = 1000 / alone.p50_ms
    many = rate * IN_FLIGHT
    bound = ""
    if measured.write_bytes_per_s is not None and measured.write_bytes_per_s / SMALL_MESSAGE_BYTES < many:
        many = measured.write_bytes_per_s / SMALL_MESSAGE_BYTES
        bound = ", bounded by the sequential rate"
    dirty = measured.sync_dirty
    beside = "" if dirty is None else f" While other data is written: p50 {ms_text(dirty.p50_ms)} a sync."
    yield Meaning(
        Severity.WARNING if alone.p99_ms >= SLOW_SYNC_MS else Severity.NOTE,
        "SYNC_FLUSH",
        f"Estimate from the sync alone (p50 {ms_text(alone.p50_ms)}), messages of 1 KiB: about {rate_text(rate)} with "
        f"one in flight; at most about {rate_text(many)} with {IN_FLIGHT} in flight (requests × sync rate{bound}). "
        f"The broker's own work adds to this.{beside}",
    )


def _async_flush(measured: DiskMeasurements, config: StoreConfig) -> Iterator[Meaning]:
    interval_ms = config.flush_interval_commit_log
    syncs = [each for each in (measured.sync_reserved, measured.sync_dirty) if each is not None]
    if not syncs:
        return
    worst = max(syncs, key=lambda each: each.p99_ms)
    if worst.p99_ms < interval_ms / 2:
        text = f"The default interval of {interval_ms} ms is fine: a sync takes {ms_text(worst.p99_ms)} at p99."
        severity = Severity.NOTE
    else:
        text = (
            f"A sync takes {ms_text(worst.p99_ms)} at p99, the default interval is {interval_ms} ms: flushes follow "
            "one another without a pause and may fall behind. A longer interval loses more with the machine; a faster "
            "disk is the cure."
        )
        severity = Severity.WARNING
    if measured.write_bytes_per_s is not None:
        text += f" Above {bytes_text(measured.write_bytes_per_s)}/s of messages it falls further and further behind."
    yield Meaning(severity, "ASYNC_FLUSH", text)


def _append(measured: DiskMeasurements, config: StoreConfig) -> Iterator[Meaning]:
    mapped, written = measured.append_mapped, measured.append_written
    limit_ms = config.os_page_cache_busy_timeout_mills
    if mapped is not None:
        stalls = mapped.max_ms >= SLOW_US / 1000
        dirty, alone = measured.sync_dirty, measured.sync_alone
        heavy = dirty is not None and alone is not None and dirty.p50_ms > alone.p50_ms * DIRTY_FACTOR
        text = f"The longest of {mapped.count} appends of 64 KiB to a map took {ms_text(mapped.max_ms)}"
        text += f", the broker refuses sends above {ms_text(limit_ms)}. "
        if stalls:
            text += "Appends stand still on this disk: the write-buffer pool (transient_store_pool_enable) would help."
        elif heavy:
            text += (
                "Appends alone are fine, but a sync is much slower while other data is written: under load the pool "
                "(transient_store_pool_enable) may help."
            )
        else:
            text += "The write-buffer pool would not help while nothing else uses this disk."
        text += " It costs memory, and uncommitted messages are lost when the machine dies."
        yield Meaning(Severity.WARNING if stalls else Severity.NOTE, "write-buffer pool", text)
    if mapped is not None and written is not None and mapped.p50_ms > 0 and written.p50_ms > 0:
        quicker, ratio = ("mapped", written.p50_ms / mapped.p50_ms)
        if ratio < 1:
            quicker, ratio = "written", 1 / ratio
        same = "about the same" if ratio < 1.3 else f"{quicker} is {ratio:.1f} times quicker at p50"
        yield Meaning(
            Severity.NOTE,
            "append_mode",
            f"64 KiB mapped: {ms_text(mapped.p50_ms)}, by pwrite: {ms_text(written.p50_ms)} at p50: {same}.",
        )


def _space(measured: DiskMeasurements, defaults: StoreConfig) -> Iterator[Meaning]:
    if measured.blocks_reserved is False:
        yield Meaning(
            Severity.WARNING,
            "space",
            "fallocate reserves nothing here: segments are sparse, so a full disk shows in the middle of one.",
        )
    if measured.total_bytes <= 0:
        return
    free, used = measured.free_bytes, 1 - measured.free_bytes / measured.total_bytes
    left = f"{bytes_text(free)} are free to this process, {percent_text(1 - used)} of the file system."
    limits = DiskLimits(defaults)
    smallest = DiskLimits(msgspec.structs.replace(defaults, mapped_file_size_commit_log=SEGMENT_BYTES_MIN))
    if not smallest.has_room(free):
        text = f"{left} A store does not begin with less than {bytes_text(smallest.next_file_bytes)}."
        yield Meaning(Severity.ERROR, "space", text)
    elif not limits.has_room(free):
        text = (
            f"{left} A file of the log of {bytes_text(limits.segment_bytes)} needs {bytes_text(limits.next_file_bytes)}"
            ": a new store takes smaller files; one that is there refuses sends when its present file is full."
        )
        yield Meaning(Severity.WARNING, "space", text)
    elif used > DISK_FULL_RATIO:
        text = f"{left} RocketMQ would refuse puts, above {percent_text(DISK_FULL_RATIO)} used; PocketMQ counts bytes."
        yield Meaning(Severity.NOTE, "space", text)
    else:
        yield Meaning(Severity.NOTE, "space", left)


def _reads(measured: DiskMeasurements) -> Iterator[Meaning]:
    reads = measured.read_random
    if reads is None:
        return
    if reads.p50_ms < CACHED_READ_MS:
        text = f"Random reads took {ms_text(reads.p50_ms)}: they came from memory, so there is no data on the disk."
    else:
        text = (
            f"A random read of 4 KiB takes {ms_text(reads.p50_ms)} at p50, {ms_text(reads.p99_ms)} at p99 (the disk or "
            "a cache in front of it); a consumer that is far behind waits for such reads."
        )
    yield Meaning(Severity.NOTE, "reads", text)
