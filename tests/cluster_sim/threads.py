"""What threads are made of, on virtual time: locks, conditions, workers.

Lives here: ``SimLock``, ``SimRLock``, ``SimCondition``, ``SimRunner`` and its workers. ``installed.py`` puts the locks
in the place of ``threading``'s while a cluster is simulated.
"""

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

from pocketmq.common.runner import Step
from tests.cluster_sim.kernel import NS_PER_MS, Event, Kernel, Owner, Strand, StrandKilled

Crash = Callable[[str, BaseException], None]


class Present:
    """The kernel of the run that is under way; one process runs one cluster at a time."""

    kernel: Kernel


def present() -> Kernel:
    return Present.kernel


def strand_number() -> int:
    """Return what ``threading.get_ident`` returns in a simulated cluster."""
    strand = present().current
    return 0 if strand is None else strand.number


class SimLock:
    """``threading.Lock``."""

    __slots__ = ("_taken", "_waiters")

    def __init__(self) -> None:
        self._taken = False
        self._waiters: deque[Strand] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._taken:
            self._taken = True
            return True
        if not blocking:
            return False
        kernel = present()
        until_ns = None if timeout < 0 else kernel.now_ns + int(timeout * 1e9)
        while self._taken:
            left_ns = None if until_ns is None else until_ns - kernel.now_ns
            if left_ns is not None and left_ns <= 0:
                return False
            kernel.wait(self._waiters, left_ns)
        self._taken = True
        return True

    def release(self) -> None:
        if not self._taken:
            raise RuntimeError("release unlocked lock")
        self._taken = False
        if self._waiters:
            present().wake(self._waiters)

    def locked(self) -> bool:
        return self._taken

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


class SimRLock(SimLock):
    """``threading.RLock``."""

    __slots__ = ("_count", "_holder")

    def __init__(self) -> None:
        super().__init__()
        self._holder = -1
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        number = strand_number()
        if self._taken and self._holder == number:
            self._count += 1
            return True
        if not super().acquire(blocking, timeout):
            return False
        self._holder, self._count = number, 1
        return True

    def release(self) -> None:
        self._count -= 1
        if not self._count:
            self._holder = -1
            super().release()


class SimCondition:
    """``threading.Condition``."""

    def __init__(self, lock: Any = None) -> None:
        self._lock = SimRLock() if lock is None else lock
        self._waiters: deque[Strand] = deque()
        self.acquire = self._lock.acquire
        self.release = self._lock.release

    def __enter__(self) -> bool:
        return bool(self._lock.acquire())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        self._lock.release()
        try:
            return present().wait(self._waiters, None if timeout is None else int(timeout * 1e9))
        finally:
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        kernel = present()
        until_ns = None if timeout is None else kernel.now_ns + int(timeout * 1e9)
        while not (found := predicate()):
            left_ns = None if until_ns is None else until_ns - kernel.now_ns
            if left_ns is not None and left_ns <= 0:
                return predicate()
            self.wait(None if left_ns is None else left_ns / 1e9)
        return found

    def notify(self, n: int = 1) -> None:
        present().wake(self._waiters, n)

    def notify_all(self) -> None:
        present().wake(self._waiters, len(self._waiters))


class SimWorker:
    """A ``Worker`` whose steps are events."""

    def __init__(self, kernel: Kernel, owner: Owner, name: str, step: Step, on_crash: Crash) -> None:
        self.name = name
        self._kernel = kernel
        self._owner = owner
        self._step = step
        self._on_crash = on_crash
        self._strand = Strand(owner, name, kernel.number())
        self._event: Event | None = None
        self._soon = False
        self._running = False
        self._woken = False
        self._stopping = False
        self._joining: deque[Strand] = deque()

    def wake(self) -> None:
        if self._running:
            self._woken = True
        elif not self._soon and not self._stopping:
            self.plan(self._kernel.soon_ns(), soon=True)

    def plan(self, delay_ns: int, *, soon: bool = False) -> None:
        if self._event is not None:
            self._event.cancel()
        self._soon = soon
        self._event = self._kernel.after(delay_ns, self._owner, self._run)

    def _run(self) -> None:
        self._event, self._soon = None, False
        if self._stopping:
            return
        self._running, self._woken = True, False
        self._kernel.run_strand(self._strand, self._take_step)

    def _take_step(self) -> None:
        wait_ms: float | None = None
        try:
            wait_ms = self._step()
        except StrandKilled:
            return
        except BaseException as error:
            if not self._owner.alive:
                return
            self._on_crash(self.name, error)
            wait_ms = 1000.0
        finally:
            self._running = False
        if self._stopping:
            self._kernel.wake(self._joining, len(self._joining))
        elif self._woken or wait_ms == 0:
            self.plan(self._kernel.soon_ns(), soon=True)
        elif wait_ms is not None:
            self.plan(int(wait_ms * NS_PER_MS) + self._kernel.soon_ns())

    def stop(self, timeout_s: float = 10.0) -> bool:
        self._stopping = True
        if not self._running or self._kernel.current is self._strand:
            return True
        until_ns = self._kernel.now_ns + int(min(timeout_s, 86_400) * 1e9)
        while self._running and self._kernel.now_ns < until_ns:
            self._kernel.wait(self._joining, until_ns - self._kernel.now_ns)
        return not self._running


class SimRunner:
    """A ``Runner`` for one process."""

    def __init__(self, kernel: Kernel, owner: Owner, on_crash: Crash) -> None:
        self._kernel = kernel
        self._owner = owner
        self._on_crash = on_crash

    def start(self, name: str, step: Step, *, first_after_ms: float | None = 0) -> SimWorker:
        worker = SimWorker(self._kernel, self._owner, name, step, self._on_crash)
        if first_after_ms is not None:
            worker.plan(int(first_after_ms * NS_PER_MS) + self._kernel.soon_ns())
        return worker
