"""``pocketmq worker``: options, one process or several.

Lives here: ``worker``, the start of its processes, the watch of files.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from pocketmq.cli.exit_codes import CannotStart
from pocketmq.cli.output import print_note
from pocketmq.cli.run import run_async
from pocketmq.cli.start_position import parse_duration
from pocketmq.common.errors import ConfigError

PROCESSES_MAX = 256
STOP_TIMEOUT_MS_MAX = 3_600_000


def worker(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:CONSUMER", help="Where the PushConsumer is: shop.orders:consumer.")
    ],
    processes: Annotated[int, typer.Option("--processes", min=1, max=PROCESSES_MAX, help="How many.")] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start again when a Python file changes (pip install 'pocketmq[reload]').")
    ] = False,
    reload_dirs: Annotated[
        list[Path] | None, typer.Option("--reload-dir", help="A directory to watch instead of the current one.")
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
    stop_timeout: Annotated[
        str, typer.Option("--stop-timeout", metavar="TIME", help="How long running handlers may take to end: 10s.")
    ] = "10s",
) -> None:
    """Run the consumers of an application until SIGTERM or Ctrl-C, which let running handlers finish and commit.

    The module is imported from the current directory or PYTHONPATH. CONSUMER is a PushConsumer, a list of them, or a
    function that returns one of these. Processes that end are started again.
    """
    from pocketmq.cli.worker.running import LOG_LEVELS, log_at, run_consumers

    level = log_level.lower()
    if level not in LOG_LEVELS:
        raise ConfigError("bad --log-level", why=repr(log_level), hint=f"write {', '.join(LOG_LEVELS)}")
    stop_timeout_ms = parse_duration("--stop-timeout", stop_timeout)
    if stop_timeout_ms > STOP_TIMEOUT_MS_MAX:
        raise ConfigError("bad --stop-timeout", why=repr(stop_timeout), hint="at most 1h")
    if processes == 1 and not reload:
        from pocketmq.cli.worker.loading import load_consumers

        consumers = load_consumers(target)
        log_at(level)
        run_consumers(consumers, stop_timeout_ms)
        return
    changes = _changes([str(path) for path in reload_dirs or [Path()]]) if reload else None
    arguments = ["worker", target, "--log-level", level, "--stop-timeout", f"{stop_timeout_ms}ms"]
    run_async(_keep_processes(processes, arguments, stop_timeout_ms / 1000, changes))


async def _keep_processes(
    count: int, arguments: Sequence[str], stop_timeout_s: float, changes: AsyncIterator[str] | None
) -> None:
    from pocketmq.cli.worker.processes import WorkerProcesses
    from pocketmq.client.push.stop_signals import DEFAULT_SIGNALS, StopSignals
    from pocketmq.common.clock import SystemClock

    async def launch() -> "_Process":
        return await _Process.launch(arguments)

    workers = WorkerProcesses(count, launch, print_note, SystemClock(), stop_timeout_s=stop_timeout_s, changes=changes)
    with StopSignals(DEFAULT_SIGNALS, workers.stop):
        await workers.run()


class _Process:
    """A worker of one process, which ends with this one; its output goes where ours goes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self._process = process

    @classmethod
    async def launch(cls, arguments: Sequence[str]) -> "_Process":
        """Start ``pocketmq ARGUMENTS``."""
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "pocketmq.cli.daemon.bound_to_parent",
                *arguments,
                stdin=asyncio.subprocess.PIPE,  # its end tells the process that this one has ended
                start_new_session=True,  # Ctrl-C reaches only this process, which stops them
            )
        except OSError as error:
            raise CannotStart("worker did not start", why=error.strerror or str(error)) from error
        return cls(process)

    async def wait(self) -> int:
        """Wait for the end; return the exit code."""
        return await self._process.wait()

    def terminate(self) -> None:
        """Ask it to stop cleanly."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


def _changes(directories: Sequence[str]) -> AsyncIterator[str]:
    """Yield a text for each change of Python files below these directories. Raises ``ConfigError``."""
    try:
        import watchfiles
    except ImportError:
        raise ConfigError(
            "--reload needs watchfiles", why="it is not installed", hint="pip install 'pocketmq[reload]'"
        ) from None
    for directory in directories:
        if not Path(directory).is_dir():
            raise ConfigError("bad --reload-dir", why=f"{directory} is no directory")

    async def texts() -> AsyncIterator[str]:
        async for changed in watchfiles.awatch(*directories, watch_filter=watchfiles.PythonFilter()):
            paths = sorted({path for _, path in changed})
            yield f"{paths[0]} changed" if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more changed"

    return texts()
