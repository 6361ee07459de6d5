"""Supervision: no background task or thread ends in silence.

    supervisor = Supervisor(log, clock)
    runner = ThreadRunner(supervisor.crashed)                # steps of threads: logged and counted, restarted there
    task = supervisor.keep(self._run, "slave-sync")          # a loop: logged, counted, restarted until it is cancelled
    supervisor.watch(loop.create_task(work, name="..."))     # a short task: logged and counted

Lives here: ``Supervisor``, one for each broker, name server and client instance; ``AllSteps``, an end in many steps,
none of which may keep the others from their turn.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final

from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog, NullLog

PAUSE_S: Final = 0.5
"""Before the first restart; doubled for each that follows, up to ``PAUSE_S_MAX``."""
PAUSE_S_MAX: Final = 30.0
SOUND_NS: Final = 60_000_000_000
"""A loop that ran for so long was sound: the next pause is short again, and the next failure is logged."""
NAMES_MAX: Final = 256
"""Names that are counted apart; failures of more are counted as ``OTHERS``."""
OTHERS: Final = "others"


class Supervisor:
    """Owns background work: an unexpected error is logged with its traceback, counted, and a loop goes on.

    ``keep`` and ``watch`` belong to the loop's thread; ``crashed`` and the counts may be used from any.
    """

    def __init__(self, log: EventLog | None = None, clock: Clock | None = None, *, pause_s: float = PAUSE_S) -> None:
        """``pause_s``: before the first restart of a loop."""
        self._log = log or NullLog()
        self._clock = clock or SystemClock()
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._last_ns: dict[str, int] = {}
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        """The tasks that ``keep`` and ``watch`` look after."""

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> "asyncio.Task[None]":
        """Start ``work()`` as a task; restart it after a pause whenever it raises. It ends when ``work`` returns,
        or is cancelled."""
        task = asyncio.get_running_loop().create_task(self._keep(work, name), name=name)
        self.tasks.add(task)
        return task

    async def _keep(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        pause_s = self._pause_s
        while True:
            began_ns = self._clock.monotonic_ns()
            try:
                await work()
                return
            except Exception as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():  # the error took the place of the cancellation
                    self.crashed(name, error)
                    raise asyncio.CancelledError from error
                if self._clock.monotonic_ns() - began_ns > SOUND_NS:
                    pause_s = self._pause_s
                self.crashed(name, error, restart_after_ms=round(pause_s * 1000))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def watch(self, task: "asyncio.Task[Any]") -> None:
        """Log an error that ends the task."""
        self.tasks.add(task)
        task.add_done_callback(self.ended)

    def ended(self, task: "asyncio.Task[Any]") -> None:
        """Check a finished task. A task may end with an error of PocketMQ's; that is no failure."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if isinstance(error, PocketMQError):
            self._log.info("task_ended", task=task.get_name(), error=str(error))
        else:
            self.crashed(task.get_name(), error)

    def crashed(self, name: str, error: BaseException, **fields: Any) -> None:
        """Count a failure of the task or thread ``name``, and log the 1st, 2nd, 4th, 8th … of it, and any after a
        minute of peace."""
        now_ns = self._clock.monotonic_ns()
        known = family(name)
        with self._lock:
            if known not in self._counts and len(self._counts) >= NAMES_MAX:
                known = OTHERS
            count = self._counts[known] = self._counts.get(known, 0) + 1
            last_ns, self._last_ns[known] = self._last_ns.get(known), now_ns
        if count & (count - 1) == 0 or last_ns is None or now_ns - last_ns > SOUND_NS:
            self._log.error("task_failed", task=name, error=repr(error), failures=count, exc_info=error, **fields)

    @property
    def failures(self) -> dict[str, int]:
        """Failures since the start, by name of the task or thread."""
        with self._lock:
            return dict(self._counts)

    def failed_within(self, span_ns: int) -> list[str]:
        """Return the names of the tasks and threads that failed in the last ``span_ns``."""
        since_ns = self._clock.monotonic_ns() - span_ns
        with self._lock:
            return sorted(name for name, last_ns in self._last_ns.items() if last_ns >= since_ns)


def family(name: str) -> str:
    """Return the name to count under: without the number of one of many (``ha-receive-17``)."""
    head, dash, tail = name.rpartition("-")
    return head if dash and tail.isdigit() else name


class AllSteps:
    """Takes steps one after the other, whatever the ones before have raised. One thread.

    ``on_error(step, error)`` is called at each failure; ``raise_first`` raises the first one at the end.
    """

    def __init__(self, on_error: Callable[[str, Exception], object]) -> None:
        self._on_error = on_error
        self._failed: list[tuple[str, Exception]] = []

    @property
    def have_failed(self) -> bool:
        """Whether a step so far has raised."""
        return bool(self._failed)

    def take(self, name: str, step: Callable[[], object]) -> bool:
        """Take one step; return whether it succeeded. It may raise anything: even a bug must not cost the steps behind
        it.
        """
        try:
            step()
        except Exception as error:
            self._failed.append((name, error))
            self._on_error(name, error)
            return False
        return True

    def raise_first(self) -> None:
        """Raise the first error, with a note for each later one; a foreign error becomes a ``PocketMQError``."""
        if not self._failed:
            return
        (name, first), *others = self._failed
        raised = first
        if not isinstance(first, PocketMQError):
            raised = PocketMQError("not ended cleanly", why=f"{name}: {first!r}", hint="see the log")
        for name, error in others:
            raised.add_note(f"{name} failed as well: {error}")
        raise raised from (None if raised is first else first)
