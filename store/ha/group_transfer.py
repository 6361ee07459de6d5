"""Group transfer: sends that wait for slaves, each with its own deadline.

Lives here: ``GroupTransfer``: the waiting sends, the confirmation that serves them, the watcher of their deadlines.

RocketMQ's service of this name tests its waiters one after the other, each for up to its whole timeout, so that one
stalled slave turned seconds into hours for the later ones (docs/replication.md). Here no send waits for another one.
"""

from collections.abc import Callable

from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, Worker
from pocketmq.store.append_result import PutStatus
from pocketmq.store.waiters import Done, Waiters


class GroupTransfer:
    """Waiters for replication; one per drain of sends.

    Counters: ``served``, ``timeouts``, ``not_available``. ``confirmed()`` returns the offset that enough slaves have
    confirmed, -1 while too few are connected; ``is_slave_ok(end_offset)`` whether enough are close enough to wait for;
    both are quick, for any thread.
    Callbacks run in the thread that brought the confirmation, in the watcher, or at once in ``wait``.
    """

    def __init__(
        self,
        clock: Clock,
        timeout_ms: int,
        confirmed: Callable[[], int],
        is_slave_ok: Callable[[int], bool],
        log: EventLog,
    ) -> None:
        self.served = 0
        self.timeouts = 0
        self.not_available = 0
        self.is_fenced = False
        self.waiters = Waiters()
        self._clock = clock
        self._timeout_ns = timeout_ms * 1_000_000
        self._confirmed = confirmed
        self._is_slave_ok = is_slave_ok
        self._log = log
        self._watcher: Worker | None = None
        self._watcher_sleeps = True  # until woken; else it checks again before any deadline that is added now

    def start(self, runner: Runner) -> None:
        """Start the watcher of deadlines."""
        self._watcher = runner.start("ha-group-transfer", self.watch, first_after_ms=None)

    def stop(self) -> None:
        """End the watcher; waiting sends get FLUSH_SLAVE_TIMEOUT."""
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None
        self._call(self.waiters.leave_all(), PutStatus.FLUSH_SLAVE_TIMEOUT)

    def fence(self) -> None:
        """Acknowledge nothing from now on: waiting and new sends get SERVICE_NOT_AVAILABLE."""
        self.is_fenced = True
        self._call(self.waiters.leave_all(), PutStatus.SERVICE_NOT_AVAILABLE)

    def wait(self, end_offset: int, done: Done) -> None:
        """See ``Replicas.wait``."""
        if self.is_fenced:
            done(PutStatus.SERVICE_NOT_AVAILABLE)
        elif self._confirmed() >= end_offset:
            self.served += 1
            done(PutStatus.PUT_OK)
        elif not self._is_slave_ok(end_offset):
            self.not_available += 1
            done(PutStatus.SLAVE_NOT_AVAILABLE)
        elif not self.waiters.add(end_offset, self._clock.monotonic_ns() + self._timeout_ns, done):
            self.timeouts += 1
            done(PutStatus.FLUSH_SLAVE_TIMEOUT)
        else:
            if self._watcher_sleeps and self._watcher is not None:
                self._watcher_sleeps = False
                self._watcher.wake()
            if self.is_fenced:  # fenced since the first check: the fence may have missed this waiter
                self.fence()
                return
            confirmed = self._confirmed()  # a confirmation may have missed it as well
            if confirmed >= end_offset:
                self.release(confirmed)
            elif confirmed < 0:  # and so may the end of the last slave
                self.give_up()

    def give_up(self) -> None:
        """Answer the waiting sends with SLAVE_NOT_AVAILABLE: too few slaves are left to confirm them."""
        left = self.waiters.leave_all()
        if left:
            self.not_available += len(left)
            self._call(left, PutStatus.SERVICE_NOT_AVAILABLE if self.is_fenced else PutStatus.SLAVE_NOT_AVAILABLE)

    def release(self, confirmed_offset: int) -> None:
        """Answer the sends that waited for ``confirmed_offset`` or less."""
        served = self.waiters.release(confirmed_offset)
        if served:
            self.served += len(served)
            self._call(served, PutStatus.SERVICE_NOT_AVAILABLE if self.is_fenced else PutStatus.PUT_OK)

    def watch(self) -> float | None:
        """Answer the sends whose deadline has passed; return the ms until the next check.

        All wait equally long, so a deadline added later is never before the one awaited, nor before now + timeout: with
        that as the longest sleep no send has to wake the watcher. When no send waits, it sleeps until it is woken.
        """
        now_ns = self._clock.monotonic_ns()
        first_offset = self.waiters.next_offset()
        expired = self.waiters.expire(now_ns)
        if expired:
            self.timeouts += len(expired)
            self._log.warning(
                "flush_slave_timeout",
                text=f"transfer messsage to slave timeout, {first_offset}",  # RocketMQ's, up to 4.9.2 (HAService)
                waiters=len(expired),
                confirmed_offset=self._confirmed(),
            )
            self._call(expired, PutStatus.FLUSH_SLAVE_TIMEOUT)
        self._watcher_sleeps = True
        deadline_ns = self.waiters.next_deadline_ns()
        if deadline_ns is None:
            return None
        self._watcher_sleeps = False
        return max(1.0, (deadline_ns - now_ns) / 1_000_000)

    def _call(self, callbacks: list[Done], status: PutStatus) -> None:
        for done in callbacks:
            try:
                done(status)
            except Exception as error:
                self._log.error("acknowledge_callback_failed", error=repr(error))
