"""``pocketmq doctor disk``: measures, prints, explains.

Lives here: progress, tables, JSON, the signals that end the measurement early.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

import typer

from pocketmq.cli.doctor.disk.meaning import Meaning, meanings
from pocketmq.cli.doctor.disk.measure import DiskMeasurements, DiskProbe, Times
from pocketmq.cli.doctor.disk.mounts import MOUNT_TABLE, TABLE_BYTES_MAX, Mount, mount_of
from pocketmq.cli.doctor.report import SEVERITY_STYLES
from pocketmq.cli.doctor.words import ms_text
from pocketmq.cli.exit_codes import ExitCode
from pocketmq.cli.output import ProgressBar, print_json, print_note, print_table, quiet_broken_pipe
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.units import NO_DATA, bytes_text
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.disk.os_file_system import OsFileSystem

STORE_NAMES = ("commitlog", "consumequeue", "lock")


class _Steps:
    """Shows each step with its own bar; silent in a pipe."""

    def __init__(self) -> None:
        self._name = ""
        self._bar: ProgressBar | None = None
        self._done = 0

    def show(self, name: str, share: float) -> None:
        """Show the progress of a step."""
        if name != self._name:
            self.close()
            self._name, self._done = name, 0
            print_note(f"{name} …")
            self._bar = ProgressBar(name, 100, unit="%")
        if self._bar is not None and int(share * 100) > self._done:
            self._bar.advance(int(share * 100) - self._done)
            self._done = int(share * 100)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def measure_disk(directory: str, *, seconds: float, size_bytes: int, as_json: bool) -> None:
    """Measure the disk under ``directory`` and print measurements and sentences."""
    path = os.path.realpath(directory)
    files = OsFileSystem()
    mount = find_mount(path, files)
    here = set(files.list(path))
    if all(name in here for name in STORE_NAMES):
        print_note("this directory holds a store: if its broker runs, it shares the disk with this measurement")
    if mount is not None and "ro" in mount.options:
        _print(path, mount, None, meanings(_nothing(size_bytes), mount)[:1], as_json=as_json)
        raise typer.Exit(ExitCode.FAILED)
    steps = _Steps()
    probe = DiskProbe(path, files, SystemClock(), size_bytes=size_bytes, seconds=seconds, on_progress=steps.show)
    try:
        with _ended_by_signals():
            measured = probe.measure()
    except KeyboardInterrupt:
        print_note("interrupted; the files of the measurement are removed")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        steps.close()
    with quiet_broken_pipe():
        _print(path, mount, measured, meanings(measured, mount), as_json=as_json)


def find_mount(path: str, files: FileSystem) -> Mount | None:
    """Return the mount that holds ``path``; None where the system has no table of mounts."""
    try:
        file = files.open(MOUNT_TABLE, writable=False)
    except (FileNotFoundError, PocketMQError):
        return None
    try:
        return mount_of(path, file.read(0, TABLE_BYTES_MAX).decode("utf-8", "replace"))
    finally:
        file.close()


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the measurement as Ctrl-C does, so that its files are removed."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _nothing(size_bytes: int) -> DiskMeasurements:
    return DiskMeasurements(size_bytes=size_bytes, free_bytes=0, total_bytes=0, reserve_ms=0.0, blocks_reserved=None)


def _print(
    path: str, mount: Mount | None, measured: DiskMeasurements | None, said: list[Meaning], *, as_json: bool
) -> None:
    if as_json:
        print_json({"directory": path, "mount": mount, "figures": measured, "meaning": said})
        return
    if mount is None:
        print(f"{path}: file system: {NO_DATA}")
    else:
        print(f"{path}: {mount.fs_type} on {mount.source}, mounted at {mount.point} ({','.join(mount.notable) or '-'})")
    if measured is not None:
        print_table(("what", "p50", "p99", "longest", "count"), list(_rows(measured)))
        for text in measured.skipped:
            print(f"{NO_DATA}: {text}")
    if sys.stdout.isatty():
        _draw(said)
        return
    for meaning in said:
        print(f"{meaning.severity.value.upper()}\t{meaning.about}: {meaning.text}")


def _draw(said: list[Meaning]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for meaning in said:
        severity = Text(meaning.severity.value.upper(), SEVERITY_STYLES[meaning.severity])
        grid.add_row(severity, Text(meaning.about, "bold"), Text(meaning.text))
    Console(highlight=False).print(grid)


def _rows(measured: DiskMeasurements) -> Iterator[tuple[str, str, str, str, str]]:
    rate = measured.write_bytes_per_s
    yield ("sequential write, 1 MiB a call", NO_DATA if rate is None else f"{bytes_text(rate)}/s", "", "", "")
    steps: tuple[tuple[str, Times | None], ...] = (
        ("append 4 KiB + sync, written before", measured.sync_alone),
        ("append 4 KiB + sync, reserved blocks", measured.sync_reserved),
        ("append 4 KiB + sync, 1 MiB dirty beside", measured.sync_dirty),
        ("append 64 KiB to a map", measured.append_mapped),
        ("append 64 KiB by pwrite", measured.append_written),
        ("read 4 KiB at random", measured.read_random),
    )
    for name, times in steps:
        if times is None:
            yield (name, NO_DATA, "", "", "")
        else:
            yield (name, ms_text(times.p50_ms), ms_text(times.p99_ms), ms_text(times.max_ms), f"{times.count:,}")
    reserved = {True: "blocks reserved", False: "sparse", None: NO_DATA}[measured.blocks_reserved]
    yield ("fallocate of half the size", ms_text(measured.reserve_ms), "", "", reserved)
