"""Periodic work of a broker, outside the loop.

Lives here: ``Housekeeping``: writes tables to disk, checks free space, looks at the log's first message, forgets silent
clients.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.group_notifier import GroupNotifier
from pocketmq.broker.persisted_table import PersistedTable
from pocketmq.broker.stats.disk_space import DiskSpace
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import LoopMailbox, Runner, Worker
from pocketmq.remoting.server import Connection

STEP_MS = 1000
DISK_INTERVAL_NS = 10_000_000_000
"""Interval between checks of free space (RocketMQ CleanCommitLogService: 10 s)."""
SOON_PAUSE_NS = 100_000_000
"""Least pause after tables were written at once: a stranger can invent groups."""
SOON_SHARE = 9
"""The pause is as many times as long as writing took."""


@dataclass(slots=True, eq=False)
class Housekeeping:
    """One worker with a step a second."""

    config: BrokerConfig
    tables: Sequence[PersistedTable]
    clients: ClientTable[Connection]
    notifier: GroupNotifier
    disk: DiskSpace
    find_earliest: Callable[[], None]
    mailbox: LoopMailbox
    clock: Clock
    log: EventLog
    look: Callable[[], None] | None = None
    """Another look at files, as often as at free space."""
    _worker: Worker | None = None
    _persist_due_ns: int = 0
    _scan_due_ns: int = 0
    _disk_due_ns: int = 0
    _is_due_soon: bool = False
    _soon_from_ns: int = 0

    def start(self, runner: Runner) -> None:
        """Begin."""
        now_ns = self.clock.monotonic_ns()
        self._persist_due_ns = now_ns + self.config.flush_consumer_offset_interval * 1_000_000
        self._scan_due_ns = now_ns + self.config.client_scan_interval * 1_000_000
        self._worker = runner.start("BrokerHousekeeping", self.step, first_after_ms=STEP_MS)

    def stop(self) -> None:
        """Stop the worker and write all tables a last time. Blocks. Raises the first error at the end."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
        failed = self.persist()
        if failed is not None:
            raise failed

    def persist_soon(self) -> None:
        """Write the tables at once, but after a pause where they were written just now. Any thread."""
        self._is_due_soon = True
        if self._worker is not None:
            self._worker.wake()

    def step(self) -> float:
        """Do what is due; return the ms until the next step."""
        now_ns = self.clock.monotonic_ns()
        if self._is_due_soon and now_ns >= self._soon_from_ns:
            self._is_due_soon = False
            self.persist()
            ended_ns = self.clock.monotonic_ns()
            self._soon_from_ns = ended_ns + max(SOON_PAUSE_NS, SOON_SHARE * (ended_ns - now_ns))
        if now_ns >= self._disk_due_ns:
            self._disk_due_ns = now_ns + DISK_INTERVAL_NS
            self.disk.refresh()
            if self.look is not None:
                self.look()
        if now_ns >= self._persist_due_ns:
            self._persist_due_ns = now_ns + self.config.flush_consumer_offset_interval * 1_000_000
            self.persist()
        if now_ns >= self._scan_due_ns:
            self._scan_due_ns = now_ns + self.config.client_scan_interval * 1_000_000
            self._forget_silent_clients(now_ns)
        self.find_earliest()  # last: it may hang with the disk
        if self._is_due_soon:
            return min(STEP_MS, max(1.0, (self._soon_from_ns - self.clock.monotonic_ns()) / 1e6))
        return STEP_MS

    def load(self) -> None:
        """Check the disk, fill the tables from their files. Raises ``CorruptRecord`` and ``StoreError``. Blocks."""
        self.disk.refresh()
        for table in self.tables:
            table.load()

    def persist(self) -> Exception | None:
        """Write every table that has changed; one that cannot be written is logged and tried again.

        Returns the first error. Whatever it is, the other tables are written, and the other work is done.
        """
        failed: Exception | None = None
        for table in self.tables:
            try:
                table.persist()
            except Exception as error:
                failed = failed or error
                self.log.error("config_not_written", path=table.path, error=str(error) or repr(error))
        return failed

    def _forget_silent_clients(self, now_ns: int) -> None:
        connections, groups = self.clients.expire(now_ns - self.config.channel_expired_timeout * 1_000_000)
        if connections:
            self.log.warning("clients_expired", connections=len(connections), groups=len(groups))
            self.mailbox.post(_close_all, connections)
        self.notifier.members_changed(groups)


def _close_all(connections: Sequence[Connection]) -> None:
    for connection in connections:
        if not connection.closed:
            connection.close("no heartbeat")
