"""Rules: the space on the disk of the store.

Lives here: ``disk_space``: free bytes against the limits of a PocketMQ broker, used shares against those of RocketMQ.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from pocketmq.cli.doctor.broker_metrics import BrokerMetrics
from pocketmq.cli.doctor.finding import Area, Finding, Severity
from pocketmq.cli.doctor.words import percent_text
from pocketmq.common.units import bytes_text
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.disk_limits import DiskLimits

DISK_CLEAN_RATIO: Final = 0.75
DISK_FORCED_RATIO: Final = 0.85
DISK_FULL_RATIO: Final = 0.90
"""RocketMQ's three steps (docs/rocketmq.md, "Retention"): expired files are deleted; files of any age are deleted;
puts are refused.
"""


def disk_space(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield findings on the disk: by free bytes where the broker counts them, and by used shares where these have
    limits.
    """
    limits = _limits(metrics)
    free = metrics.size_bytes("commitLogDiskFreeBytes")
    if limits is not None and free is not None and free < limits.next_file_bytes:
        yield from _short(metrics, limits, int(free))
    else:
        yield from _filled(metrics, by_ratio=limits is None)


def _limits(metrics: BrokerMetrics) -> DiskLimits | None:
    """Return the limits of a broker that counts free bytes; None for another one."""
    least, segment = (metrics.settings.number(name) for name in ("disk_free_bytes_min", "mapped_file_size_commit_log"))
    if least is None or segment is None or least < 0 or segment <= 0:
        return None
    return DiskLimits(
        msgspec.structs.replace(StoreConfig(), disk_free_bytes_min=int(least), mapped_file_size_commit_log=int(segment))
    )


def _short(metrics: BrokerMetrics, limits: DiskLimits, free: int) -> Iterator[Finding]:
    full = free < limits.free_bytes_min
    if full:
        cause = f"Below {bytes_text(limits.free_bytes_min)} (disk_free_bytes_min) puts are refused."
    elif _may_force(metrics):
        cause = "The next file of the log has no room: the oldest files are deleted, read or not."
    else:
        cause = (
            f"The next file of the log needs {bytes_text(limits.next_file_bytes)}: puts are refused when the present "
            "one is full. Messages younger than file_reserved_time are not deleted to make room, unless "
            "clean_file_forcibly_enable is true."
        )
    yield Finding(
        key="disk-full" if full else "disk-filling",
        area=Area.DISK,
        severity=Severity.ERROR if full else Severity.WARNING,
        title=f"the disk of the commit log has only {bytes_text(free)} free",
        evidence=(f"free: {bytes_text(free)}", f"a file of the log: {bytes_text(limits.segment_bytes)}"),
        cause=cause,
        cure="Free space, or keep fewer messages. Consumers can read meanwhile.",
        settings=metrics.advice("file_reserved_time", "fewer hours", "messages are deleted earlier"),
    )


def disk_ratios(metrics: BrokerMetrics) -> dict[str, float]:
    """Return the used share of the file systems of commit log and consume queues, where known."""
    found = {
        "commit log": metrics.ratio("commitLogDiskRatio"),
        "consume queues": metrics.ratio("consumeQueueDiskRatio"),
    }
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def _keeps_everything(metrics: BrokerMetrics) -> bool:
    """Return whether this broker has no retention: it sent its settings, without RocketMQ's file_reserved_time."""
    return len(metrics.settings) > 0 and metrics.settings.text("file_reserved_time") is None


def _limit(metrics: BrokerMetrics, setting: str, lowest: int, highest: int, default: float) -> float:
    """Return a limit of the disk in percent as a ratio; 2 where it is off, the default if the broker sent no valid
    one."""
    percent = metrics.settings.number(setting)
    if percent == 0:
        return 2.0
    return percent / 100 if percent is not None and lowest <= percent <= highest else default


def _may_force(metrics: BrokerMetrics) -> bool:
    """Return whether the broker may delete files before their time; its default if the setting is not known."""
    sent = metrics.settings.text("clean_file_forcibly_enable")
    return not metrics.snapshot.pocketmq if sent is None else sent == "true"


def _disk_cause(metrics: BrokerMetrics, ratio: float, expired: float, forced: float, full: float) -> str:
    if _keeps_everything(metrics):
        return "This broker deletes nothing by itself: when the disk is full, puts are refused."
    if full > 1:
        return f"Above {percent_text(min(expired, forced))} old files of the log are deleted at any hour."
    if ratio > full:
        return f"Above {percent_text(full)} puts are refused (SERVICE_NOT_AVAILABLE)."
    if ratio <= forced:
        return f"Above {percent_text(expired)} expired files are deleted at any hour."
    if _may_force(metrics):
        return (
            f"Above {percent_text(forced)} the oldest files of the log are deleted, read or not, above "
            f"{percent_text(full)} puts are refused."
        )
    return (
        f"Above {percent_text(full)} puts are refused; messages younger than file_reserved_time are not deleted to "
        "make room, unless clean_file_forcibly_enable is true."
    )


def _filled(metrics: BrokerMetrics, *, by_ratio: bool) -> Iterator[Finding]:
    """``by_ratio``: the broker has no other limits than shares, RocketMQ's where it sent none."""
    ratios = disk_ratios(metrics)
    if not ratios:
        return
    name, ratio = max(ratios.items(), key=lambda each: each[1])
    expired = _limit(metrics, "disk_max_used_space_ratio", 10, 95, DISK_CLEAN_RATIO if by_ratio else 2.0)
    forced_from = _limit(metrics, "disk_space_clean_forcibly_ratio", 1, 100, DISK_FORCED_RATIO if by_ratio else 2.0)
    full_from = _limit(metrics, "disk_space_warning_level_ratio", 1, 100, DISK_FULL_RATIO if by_ratio else 2.0)
    if ratio <= min(expired, forced_from):
        return
    full = ratio > full_from and not _keeps_everything(metrics)
    yield Finding(
        key="disk-full" if full else "disk-filling",
        area=Area.DISK,
        severity=Severity.ERROR if full else Severity.WARNING,
        title=f"the file system of the {name} is {percent_text(ratio)} full",
        evidence=tuple(f"{each}: {percent_text(share)} used" for each, share in ratios.items()),
        cause=_disk_cause(metrics, ratio, expired, forced_from, full_from),
        cure="Free space, or keep fewer messages. Consumers can read meanwhile.",
        settings=metrics.advice("file_reserved_time", "fewer hours", "messages are deleted earlier"),
    )
