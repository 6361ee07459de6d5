"""RocketMQ's way to wait for a slave, for comparison with ours; only scenarios start it, in their own processes.

Lives here: ``SerialTransfer`` (one waiter behind the other, GroupTransferService of RocketMQ 4.5 to 4.9),
``StubbornSlave`` (stays connected when its disk refuses, HAClient of the same), ``main``.

``python -m pocketmq.cli.scenario.harness.original broker …`` is ``pocketmq broker …`` with these two instead of ours.
"""

import sys
from collections import deque
from functools import partial
from typing import Final

import typer

from pocketmq.broker.app import BrokerApp
from pocketmq.cli.daemon import daemon, daemon_commands
from pocketmq.store.append_result import PutStatus
from pocketmq.store.errors import StoreError
from pocketmq.store.ha.group_transfer import GroupTransfer
from pocketmq.store.ha.service import HaService
from pocketmq.store.ha.slave import HaSlave
from pocketmq.store.waiters import Done

STUBBORN_MS: Final = 500
"""Pause of a slave before it retries a write that its disk refused; RocketMQ's is 5 s."""


class SerialTransfer(GroupTransfer):
    """One thread, one waiting send after the other: each may take ``slave_timeout``, counted from its turn on.

    In RocketMQ 4.5 that time is ``syncFlushTimeout``, 5 s; with a slave that stands still the last of 8,000 waiting
    sends gets its answer after eleven hours.
    """

    _queue: deque[tuple[int, Done]] | None = None
    _turn_until_ns = 0

    @property
    def _waiting(self) -> deque[tuple[int, Done]]:
        if self._queue is None:
            self._queue = deque()
        return self._queue

    def wait(self, end_offset: int, done: Done) -> None:
        """Join the end of the queue."""
        if self._confirmed() >= end_offset:
            self.served += 1
            done(PutStatus.PUT_OK)
        elif not self._is_slave_ok(end_offset):
            self.not_available += 1
            done(PutStatus.SLAVE_NOT_AVAILABLE)
        else:
            self.waiters.add(end_offset, 1 << 62, _nothing)  # counted in the number of waiters
            self._waiting.append((end_offset, done))
            if self._watcher is not None:
                self._watcher.wake()

    def release(self, confirmed_offset: int) -> None:
        """Let the thread check again."""
        self.waiters.release(confirmed_offset)
        if self._watcher is not None:
            self._watcher.wake()

    def give_up(self) -> None:
        """Let all wait their turn: RocketMQ's service does not learn that a slave has left."""

    def watch(self) -> float | None:
        """Serve the first waiting send, and the next one only when that is done."""
        waiting = self._waiting
        while waiting:
            end_offset, done = waiting[0]
            now_ns = self._clock.monotonic_ns()
            if not self._turn_until_ns:
                self._turn_until_ns = now_ns + self._timeout_ns
            if self._confirmed() >= end_offset:
                self.served += 1
                status = PutStatus.PUT_OK
            elif now_ns >= self._turn_until_ns:
                self.timeouts += 1
                status = PutStatus.FLUSH_SLAVE_TIMEOUT
            else:
                return max(1.0, (self._turn_until_ns - now_ns) / 1_000_000)
            waiting.popleft()
            self._turn_until_ns = 0
            self._call([done], status)
        return None


def _nothing(status: PutStatus) -> None:
    """Do nothing: this waiter only counts; the thread of ``SerialTransfer`` answers."""


class StubbornSlave(HaSlave):
    """Keeps its connection when its disk refuses, and goes on reporting its offset: the master sees a slave that is
    alive and does not move.
    """

    _refused = False

    def step(self) -> float | None:
        """Retry the refused write, or follow."""
        if not self._refused or self._transport is None or self._stopping:
            return super().step()
        try:
            self._appender.retry()
            self._refused = False
        except StoreError:
            pass
        try:
            self._acknowledge(always=True)
        except Exception as error:
            self._disconnect(str(error))
        return 0 if not self._refused else STUBBORN_MS

    def _failed(self, error: StoreError) -> None:
        if self._transport is None or not self._following:
            super()._failed(error)
            return
        if not self._refused:
            self._log.error(
                "slave_disk_failed", error=str(error), what_to_do="as in RocketMQ, the slave stays connected"
            )
        self._refused = True


def main() -> None:
    """Run ``broker`` with RocketMQ's way."""
    HaService.transfer_class = SerialTransfer
    vars(daemon)["BrokerApp"] = partial(BrokerApp, slave_type=StubbornSlave)
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(_one_of_several)
    app.command()(daemon_commands.broker)
    app()


def _one_of_several() -> None:
    """Keep ``broker`` a subcommand, as ``pocketmq`` has it."""


if __name__ == "__main__":
    sys.argv[0] = "pocketmq"
    main()
