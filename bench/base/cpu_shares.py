"""The same share of a core for each process of a measurement, so that few cores show what many would do.

Lives here: ``CpuShares``: control groups with ``cpu.max`` (cgroup v2) or ``cpu.cfs_quota_us`` (v1), which need root or
a delegated group; where neither can be had, each process is bound to one core (``sched_setaffinity``, as ``taskset``).
"""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

PERIOD_US: Final = 10_000
"""Short, so that a throttled process waits for milliseconds (the kernel's default is 100 ms)."""
REMOVE_S: Final = 5.0


def _mounted(kind: str, controller: str) -> list[Path]:
    """Return the mount points of control groups that may have the controller."""
    rows = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(row[1]) for row in rows if row[2] == kind and (kind == "cgroup2" or controller in row[3].split(","))]


def _own_group(kind: str, controller: str) -> str:
    """Return this process's path in the hierarchy (``/proc/self/cgroup``)."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if (kind == "cgroup2" and number == "0") or (kind == "cgroup" and controller in controllers.split(",")):
            return path.strip("/")
    return ""


def _limit_file(directory: Path) -> Path | None:
    for name in ("cpu.max", "cpu.cfs_quota_us"):
        if (directory / name).exists():
            return directory / name
    return None


def _new_group() -> Path | None:
    """Make a group in which CPU can be limited: below this process's own, or at the top. None: there is no way."""
    for kind in ("cgroup2", "cgroup"):
        for mount in _mounted(kind, "cpu"):
            for parent in dict.fromkeys([mount / _own_group(kind, "cpu"), mount]):
                directory = parent / f"pocketmq-bench-{os.getpid()}"
                with contextlib.suppress(OSError):
                    directory.mkdir()
                    if _limit_file(directory):
                        return directory
                    directory.rmdir()
    return None


class CpuShares:
    """Limit processes to ``share`` of a core each; removes its groups at the end, when the processes have ended."""

    def __init__(self, share: float) -> None:
        self._quota_us = max(1000, round(share * PERIOD_US))
        self.share = self._quota_us / PERIOD_US
        self._top = _new_group()
        self._groups: list[Path] = []
        self._cores = sorted(os.sched_getaffinity(0))

    @property
    def means(self) -> str:
        """How it limits, for the output."""
        if self._top is None:
            return f"taskset: pairs of processes on one of {len(self._cores)} cores"
        limit = _limit_file(self._top)
        assert limit is not None
        return f"cgroup {limit.name}: {self.share} of a core, period {PERIOD_US // 1000} ms"

    def pairs_max(self) -> int:
        """Return how many pairs of processes get their whole share on this machine, with a quarter to spare."""
        if self._top is None:
            return len(self._cores)
        return int(0.75 * len(self._cores) / (2 * self.share))

    def limit(self, pids: Sequence[int], pair: int) -> None:
        """Limit each process by itself. ``pair``: the core, where there are no control groups."""
        for pid in pids:
            if self._top is None:
                for task in Path(f"/proc/{pid}/task").iterdir():
                    os.sched_setaffinity(int(task.name), {self._cores[pair % len(self._cores)]})
                continue
            group = self._top / str(pid)
            group.mkdir()
            self._groups.append(group)
            if (group / "cpu.max").exists():
                (group / "cpu.max").write_text(f"{self._quota_us} {PERIOD_US}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(self._quota_us))
            (group / "cgroup.procs").write_text(str(pid))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        give_up = time.monotonic() + REMOVE_S
        for group in [*self._groups, *([self._top] if self._top else [])]:
            while group.exists():
                try:
                    group.rmdir()
                except OSError:  # a process of it has not quite ended
                    if time.monotonic() > give_up:
                        break
                    time.sleep(0.02)
