"""Machines and the processes that run on them.

Lives here: ``Clock`` (drifts, jumps), ``Disk`` (faults), ``Machine``, ``Process``.
"""

import asyncio
import errno
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from pocketmq.common.logs import CapturedLog
from tests.cluster_sim.kernel import LOOK_NS, NS_PER_MS, Event, Kernel, StrandKilled
from tests.cluster_sim.loops import SimLoop
from tests.cluster_sim.network import Network
from tests.cluster_sim.threads import SimRunner
from tests.sim.checkers import fresh_disk
from tests.sim.crash_file_system import CrashFileSystem, Fault, Operation

PPM: Final = 1_000_000
STEP_AT_START_MS_MAX: Final = 5000
"""A clock that is further off is set before a program starts: times in messages are wall times."""
EPOCH_MS: Final = 1_760_000_000_000
SYNCS: Final = frozenset(("sync", "sync_dir", "sync_all"))
WRITES: Final = frozenset(("write", "store", "scatter", "create", "reserve", "resize", "zero", "rename"))


class Clock:
    """A machine's clocks: the steady one drifts, the wall clock also jumps."""

    def __init__(self, kernel: Kernel, drift_ppm: int, skew_ms: int) -> None:
        self._kernel = kernel
        self.drift_ppm = drift_ppm
        self._start_ns = kernel.rng.randrange(1, 1000) * 1_000_000_000
        self.skew_ms = skew_ms
        self.step_ms = 0
        """What somebody has added to the wall clock."""
        self.ahead_ns: list[tuple[int, int]] = []
        """From when to when it was so far ahead that its timers are due after the run."""

    def monotonic_ns(self) -> int:
        kernel = self._kernel
        kernel.now_ns += LOOK_NS
        return self._start_ns + kernel.now_ns + kernel.now_ns * self.drift_ppm // PPM

    def now_ms(self) -> int:
        now_ns = self._kernel.now_ns
        return EPOCH_MS + self.skew_ms + self.step_ms + (now_ns + now_ns * self.drift_ppm // PPM) // NS_PER_MS

    def kernel_ns(self, monotonic_ns: int) -> int:
        """Return the kernel's time at which the steady clock shows ``monotonic_ns``, never earlier."""
        return -(-(monotonic_ns - self._start_ns) * PPM // (PPM + self.drift_ppm)) + 2


class Disk:
    """What a disk does wrong at present; applied to each operation of the machine's file system."""

    def __init__(self) -> None:
        self.sync_ns = 200_000
        self.stalls_until_ns = 0
        self.fails_until_ns = 0
        self.lies_until_ns = 0
        self.kill_in: int | None = None
        """The process is killed in the middle of the change with this number from now on."""
        self.kill_in_append: int | None = None
        """The same, but only appends to the log count; long ones first reach the disk in any order."""
        self.loop_syncs = 0


class Machine:
    """A host with clock, disk and network; at most one process at a time."""

    def __init__(self, name: str, kernel: Kernel, network: Network, host: str, drift_ppm: int, skew_ms: int) -> None:
        self.name = name
        self.kernel = kernel
        self.network = network
        self.host = host
        self.clock = Clock(kernel, drift_ppm, skew_ms)
        self.faults = Disk()
        self.rng = random.Random(kernel.rng.getrandbits(64))
        self.files = fresh_disk()
        self.is_on = True
        self.process: Process | None = None
        self.lives = 0
        self.ended_ns: list[int] = []
        """When its processes ended or were killed."""
        self._ports = 30_000
        network.machines[host] = self

    def next_port(self) -> int:
        self._ports += 1
        return self._ports

    def start(self) -> "Process":
        """Start a process."""
        self.lives += 1
        self.is_on = True
        if abs(self.clock.step_ms) > STEP_AT_START_MS_MAX:
            self.clock.step_ms = 0
        self.process = process = Process(self)
        self.files.before = process.before
        return process

    def kill(self, *, power: bool = False) -> None:
        """End the process at once; ``power``: what was not synced may be lost, and nobody is told."""
        process = self.process
        if process is None:
            return
        self.process = None
        self.ended_ns.append(self.kernel.now_ns)
        process.die()
        self.network.process_died(process, silently=power)
        files = self.files
        rng = self.rng
        self.files = files.after_power_loss(lambda count: _choice(rng, count)) if power else files.after_kill()
        files.before = None
        files.operations.clear()
        if power:
            self.is_on = False

    def lose_disk(self) -> None:
        """Replace the disk by an empty one."""
        self.files = fresh_disk()


def _is_append(operation: Operation) -> bool:
    """Whether it copies messages into a mapped file of the log, or into a write buffer."""
    is_log = "/commitlog/" in operation.path or (operation.path.startswith("/dev/shm/") and operation.length > 64)
    return operation.kind == "store" and is_log


def _choice(rng: random.Random, count: int) -> int:
    return rng.choice((0, count - 1, rng.randrange(count)))


class Process:
    """One life of a program: its loop, its workers, its log."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.name = f"{machine.name}.{machine.lives}"
        self.kernel = machine.kernel
        self.files: CrashFileSystem = machine.files
        self.clock = machine.clock
        self.alive = True
        self.ended = False
        self.frozen_until_ns = 0
        self.held: list[Event] = []
        self.log = CapturedLog()
        self.crashes: list[tuple[str, BaseException]] = []
        self.loop: Any = SimLoop(  # type: ignore[abstract]
            self.kernel, self
        )
        self.runner = SimRunner(self.kernel, self, self._crashed)
        self.app: Any = None

    def _crashed(self, name: str, error: BaseException) -> None:
        self.crashes.append((name, error))

    def run(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> "list[asyncio.Task[None]]":
        """Start a task in the loop."""
        tasks: list[asyncio.Task[None]] = []
        self.loop.call_soon(lambda: tasks.append(self.loop.create_task(work(), name=name)))
        return tasks

    def die(self) -> None:
        """Nothing of this process happens any more."""
        self.alive = False
        self.files._dead = True
        self.kernel.end_strands(self)

    def freeze(self, for_ns: int) -> None:
        """Let nothing of it happen for a while, as SIGSTOP does, or a virtual machine that moves."""
        self.frozen_until_ns = max(self.frozen_until_ns, self.kernel.now_ns + for_ns)
        self.kernel.at(self.frozen_until_ns, None, self._thaw_when_due)

    def _thaw_when_due(self) -> None:
        if self.kernel.now_ns >= self.frozen_until_ns:
            self.thaw()

    def thaw(self) -> None:
        """Go on, as SIGCONT does."""
        self.frozen_until_ns = 0
        held, self.held = self.held, []
        self.kernel.put_back(held)

    def before(self, operation: Operation) -> Fault | None:
        """Decide what becomes of a disk operation. Runs in the strand that makes it."""
        kernel, faults = self.kernel, self.machine.faults
        strand = kernel.current
        if strand is None:
            return None
        if not self.alive:
            raise StrandKilled
        kind = operation.kind
        if faults.kill_in is not None and (kind in WRITES or kind in SYNCS):
            faults.kill_in -= 1
            if faults.kill_in < 0:
                faults.kill_in = None
                taken = self.machine.rng.randrange(operation.length + 1) if kind in ("write", "store") else 0
                kernel.after(0, None, self.machine.kill)
                self.alive = False
                return Fault(None, taken, rng=self.machine.rng)
        if faults.kill_in_append is not None and _is_append(operation):
            faults.kill_in_append -= 1
            if faults.kill_in_append < 0:
                faults.kill_in_append = None
                kernel.after(0, None, self.machine.kill)
                self.alive = False
                return Fault(None, self.machine.rng.randrange(operation.length + 1), rng=self.machine.rng)
        if kind in SYNCS:
            if strand.name == "loop":
                faults.loop_syncs += 1
            kernel.sleep(kernel.soon_ns(2 * faults.sync_ns))
            if faults.lies_until_ns > kernel.now_ns:
                return Fault(lost=True)
        if kind in WRITES or kind in SYNCS:
            while faults.stalls_until_ns > kernel.now_ns and strand.name != "loop":
                kernel.sleep(faults.stalls_until_ns - kernel.now_ns)
            if faults.fails_until_ns > kernel.now_ns and kind in ("write", "sync"):
                return Fault(errno.EIO)
        return None
