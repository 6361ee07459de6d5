"""Threads as an argument: work is written as steps, a runner decides which thread takes them.

Lives here: ``Worker`` (a wake-up and a stop), ``Runner`` (starts workers), the runner that uses real threads, and one
that takes the steps itself, in an order that a test or a seed decides. No other module of PocketMQ starts a thread.

Supervision: no background task or thread ends in silence.

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
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from pocketmq.common.clock import Clock, SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog, NullLog

Step = Callable[[], float | None]
"""Do all that is due, then return the ms until the next call, or None to sleep until woken. Never blocks for
long."""


class Worker(Protocol):
    """One loop of steps."""

    name: str

    def wake(self) -> None:
        """Wake the worker: its step runs once more, soon. Callable from any thread, cheap when it is awake already."""
        ...

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Take no step after the present one; wait for it. Return False if it did not end within ``timeout_s``."""
        ...


class Runner(Protocol):
    """Starts workers."""

    def start(self, name: str, step: Step, *, first_after_ms: float | None = 0) -> Worker:
        """Start a worker; its first step runs after ``first_after_ms`` (None: when first woken). Raise
        ``ThreadNotStarted``."""
        ...


WAIT_S_MAX = 86_400.0
"""Longest single wait, a day: a step that runs too early checks again. A time that the system cannot count in would
otherwise raise in the worker and end it."""


class _WakeUp:
    """Wakes one sleeper; a wake-up without a sleeper is remembered once. Waking an awake worker is one attribute
    store."""

    __slots__ = ("_lock", "_sleeping", "_woken")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._woken = False
        self._sleeping = False

    def wake(self) -> None:
        self._woken = True
        if self._sleeping:
            self._sleeping = False
            try:
                self._lock.release()
            except RuntimeError:  # two woke it at once, and the other one has released it
                pass

    def wait(self, timeout_s: float | None) -> None:
        """Return when woken, or after ``timeout_s``."""
        timeout_s = -1 if timeout_s is None else timeout_s if timeout_s < WAIT_S_MAX else WAIT_S_MAX
        self._sleeping = True
        # Tested after _sleeping is set: a wake-up from here on releases the lock.
        if self._woken or not self._lock.acquire(timeout=timeout_s):
            self._sleeping = False
            self._lock.acquire(blocking=False)  # a release that came between the test, or the end of the time, and here
        self._sleeping = False
        self._woken = False


class ThreadNotStarted(PocketMQError):
    """The system gave no further thread."""


class ThreadWorker:
    """A worker with a thread of its own."""

    def __init__(
        self, name: str, step: Step, first_after_ms: float | None, on_crash: Callable[[str, BaseException], None]
    ) -> None:
        self.name = name
        self._step = step
        self._wake_up = _WakeUp()
        self._stopping = False
        self._first_after_ms = first_after_ms
        self._on_crash = on_crash
        self.wake: Callable[[], None] = self._wake_up.wake  # the wake-up's own method: one call less on the hot path
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise ThreadNotStarted(
                f"thread {name} not started",
                why=f"{error}: the limit of processes and threads, or of memory, is reached",
                hint="raise it: pids.max of the container, ulimit -u, TasksMax= of the service, ulimit -v",
            ) from error

    def _run(self) -> None:
        wait_ms = self._first_after_ms
        while True:
            if wait_ms is None or wait_ms > 0:
                self._wake_up.wait(None if wait_ms is None else wait_ms / 1000.0)
            if self._stopping:
                return
            try:
                wait_ms = self._step()
            except BaseException as error:
                self._report(error)
                wait_ms = 1000.0  # a failed step runs again; its owner has fenced whatever must not go on

    def _report(self, error: BaseException) -> None:
        try:
            self._on_crash(self.name, error)
        except BaseException as fault:  # an error in the callback must not end the thread
            _print_crash(self.name, fault)

    def stop(self, timeout_s: float = 10.0) -> bool:
        """End the thread after its present step."""
        self._stopping = True
        self._wake_up.wake()
        if threading.current_thread() is self._thread:
            return True
        self._thread.join(min(timeout_s, WAIT_S_MAX))
        return not self._thread.is_alive()


def _print_crash(name: str, error: BaseException) -> None:
    threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, None)))


class ThreadRunner:
    """One daemon thread a worker."""

    def __init__(self, on_crash: Callable[[str, BaseException], None] = _print_crash) -> None:
        self._on_crash = on_crash

    def start(self, name: str, step: Step, *, first_after_ms: float | None = 0) -> ThreadWorker:
        """Start a thread that takes ``step`` repeatedly."""
        return ThreadWorker(name, step, first_after_ms, self._on_crash)


class SteppedWorker:
    """A worker without a thread: ``SteppedRunner`` takes its steps."""

    def __init__(self, name: str, step: Step) -> None:
        self.name = name
        self.step = step
        self.woken = True
        self.stopped = False

    def wake(self) -> None:
        """Mark the step as due."""
        self.woken = True

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Take no further step."""
        self.stopped = True
        return True


class SteppedRunner:
    """Takes the steps of all workers in the caller's thread, in the order the caller chooses: for tests and
    simulation."""

    def __init__(self) -> None:
        self.workers: list[SteppedWorker] = []

    def start(self, name: str, step: Step, *, first_after_ms: float | None = 0) -> SteppedWorker:
        """Register a worker; nothing runs yet."""
        worker = SteppedWorker(name, step)
        worker.woken = first_after_ms is not None
        self.workers.append(worker)
        return worker

    def run_until_idle(self, steps_max: int = 10_000) -> None:
        """Step every worker that was woken until none is left."""
        for _ in range(steps_max):
            due = [worker for worker in self.workers if worker.woken and not worker.stopped]
            if not due:
                return
            for worker in due:
                worker.woken = False
                worker.step()
        raise AssertionError(f"workers still wake each other after {steps_max} rounds")

    def step_all(self) -> None:
        """Step every worker once, woken or not, then those they woke: the effect of a long enough wait."""
        for worker in list(self.workers):
            if not worker.stopped:
                worker.woken = False
                worker.step()
        self.run_until_idle()


class LoopLike(Protocol):
    """The part of an event loop that a mailbox needs."""

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Run ``callback`` at the loop's next turn."""
        ...

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Run ``callback`` in the loop's thread."""
        ...


class LoopMailbox:
    """Calls into an event loop from other threads, with one wake-up for all that wait.

    ``post`` is safe from any thread and never blocks. Calls run in the order they were posted. Posts to a closed loop
    are dropped: no code is left to run them.
    """

    __slots__ = ("_calls", "_loop", "_scheduled")

    def __init__(self, loop: LoopLike) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._scheduled = False

    def post(self, callback: Callable[..., None], *args: Any) -> None:
        """Run ``callback(*args)`` soon in the loop's thread."""
        self._calls.append((callback, args))
        if not self._scheduled:
            self._scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._run)
            except RuntimeError:  # the loop is closed
                self._calls.clear()
                self._scheduled = False  # so that later posts end here too, and none piles up

    def _run(self) -> None:
        self._scheduled = False  # before the calls are taken: a post from here on schedules again, none is lost
        calls = self._calls
        try:
            for _ in range(len(calls)):
                callback, args = calls.popleft()
                callback(*args)
        except BaseException:
            if calls:
                self._scheduled = True
                self._loop.call_soon(self._run)  # the loop reports the error; the calls behind it still run
            raise


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
