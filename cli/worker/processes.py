"""Several worker processes: started, restarted after an end, stopped together, started again when files change.

Lives here: ``WorkerProcesses``. It starts processes, sleeps and sees changes only through its arguments, so that a
test holds them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from pocketmq.cli.daemon.restart_policy import FAILED_STARTS_MAX, RestartPolicy
from pocketmq.cli.daemon.supervisor import ended_text
from pocketmq.cli.exit_codes import CannotStart, ExitCode
from pocketmq.common.clock import Clock
from pocketmq.common.errors import ConfigError

SERVED_MS = 10_000
"""A process that lives for so long counts as started."""
KILL_AFTER_S = 5.0
"""How much longer than its stop timeout a process may take to end."""


class WorkerProcess(Protocol):
    """A process that was started."""

    pid: int

    async def wait(self) -> int:
        """Wait for the end; return the exit code, or the signal as a negative."""
        ...

    def terminate(self) -> None:
        """Ask it to stop."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class WorkerProcesses:
    """``count`` processes of one worker. One event loop.

    A process that ends with 0 has stopped by itself and is not started again; one that ends with 2 cannot be used at
    all, which ends the others. ``changes``: yields a text for each change of files; None: no reload.
    """

    def __init__(
        self,
        count: int,
        launch: Callable[[], Awaitable[WorkerProcess]],
        tell: Callable[[str], None],
        clock: Clock,
        *,
        stop_timeout_s: float,
        changes: AsyncIterator[str] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._count = count
        self._launch = launch
        self._tell = tell
        self._clock = clock
        self._stop_timeout_s = stop_timeout_s
        self._changes = changes
        self._sleep = sleep
        self._stop_asked = asyncio.Event()

    def stop(self) -> None:
        """Let ``run`` end all processes and return."""
        self._stop_asked.set()

    async def run(self) -> None:
        """Run until ``stop``, or until all processes have stopped by themselves.

        Raises ``ConfigError`` or ``CannotStart`` when processes cannot start; with ``changes`` it waits for the next
        change instead.
        """
        stopped = asyncio.ensure_future(self._stop_asked.wait())
        change = self._next_change()
        try:
            while not stopped.done():
                generation = asyncio.ensure_future(self._generation())
                ends: set[asyncio.Future[Any]] = {generation, stopped}
                if change is not None:
                    ends.add(change)
                try:
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    generation.cancel()
                    await asyncio.wait([generation])
                error = None if generation.cancelled() else generation.exception()
                if change is None or stopped.done():
                    if error is not None:
                        raise error
                    return
                if error is not None:
                    self._tell(f"{error}; waits for a change of files")
                await asyncio.wait(ends - {generation}, return_when=asyncio.FIRST_COMPLETED)
                if change.done():
                    self._tell(f"{change.result()}: starting again")
                    change = self._next_change()
        finally:
            for future in (stopped, change):
                if future is not None:
                    future.cancel()

    def _next_change(self) -> "asyncio.Future[str] | None":
        changes = self._changes
        if changes is None:
            return None

        async def following() -> str:
            return await anext(changes)

        return asyncio.ensure_future(following())

    async def _generation(self) -> None:
        """Keep ``count`` processes; when cancelled, or at the first error, end them all."""
        slots = [asyncio.ensure_future(self._keep()) for _ in range(self._count)]
        try:
            await asyncio.gather(*slots)
        finally:
            for slot in slots:
                slot.cancel()
            await asyncio.gather(*slots, return_exceptions=True)

    async def _keep(self) -> None:
        policy = RestartPolicy()
        while True:
            started_ms = self._now_ms()
            launching = asyncio.ensure_future(self._launch())
            try:
                process = await asyncio.shield(launching)
            except asyncio.CancelledError:
                await self._end(await launching)  # it was started already, or is being started
                raise
            try:
                code = await process.wait()
            except asyncio.CancelledError:
                await self._end(process)
                raise
            if code == ExitCode.OK:
                return
            if code == ExitCode.USAGE:
                raise ConfigError("worker cannot run", why=f"process {process.pid} says so", hint="see its error above")
            if self._now_ms() - started_ms >= SERVED_MS:
                policy.ready(started_ms)
            pause_ms = policy.ended(self._now_ms())
            if pause_ms is None:
                raise CannotStart(
                    f"worker cannot start any more: {FAILED_STARTS_MAX} starts failed",
                    why=f"the last one ended with {ended_text(code)}",
                    hint="see its error above",
                )
            self._tell(f"worker {process.pid} has ended ({ended_text(code)}); restart in {pause_ms / 1000} s")
            await self._sleep(pause_ms / 1000)

    async def _end(self, process: WorkerProcess) -> None:
        """Ask a process to stop, and kill it when it takes longer than its stop timeout allows."""
        process.terminate()
        ended = asyncio.ensure_future(process.wait())
        await asyncio.wait([ended], timeout=self._stop_timeout_s + KILL_AFTER_S)
        if not ended.done():
            self._tell(f"worker {process.pid} did not stop in {self._stop_timeout_s + KILL_AFTER_S:.0f} s: killed")
            process.kill()
        await ended

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000
