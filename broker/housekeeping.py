"""What a broker does every now and then, off the loop.

Lives here: ``Housekeeping``: tables written to disk, free space looked at, silent clients forgotten.
"""

from collections.abc import Sequence

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
"""How often free space is looked at (RocketMQ CleanCommitLogService: each 10 s)."""


class Housekeeping:
    """One worker with a step a second."""

    def __init__(
        self,
        config: BrokerConfig,
        tables: Sequence[PersistedTable],
        clients: ClientTable[Connection],
        notifier: GroupNotifier,
        disk: DiskSpace,
        mailbox: LoopMailbox,
        clock: Clock,
        log: EventLog,
    ) -> None:
        self._config = config
        self._tables = tables
        self._clients = clients
        self._notifier = notifier
        self._disk = disk
        self._mailbox = mailbox
        self._clock = clock
        self._log = log
        self._worker: Worker | None = None
        now_ns = clock.monotonic_ns()
        self._persist_due_ns = now_ns
        self._scan_due_ns = now_ns
        self._disk_due_ns = now_ns

    def start(self, runner: Runner) -> None:
        """Begin."""
        now_ns = self._clock.monotonic_ns()
        self._persist_due_ns = now_ns + self._config.flush_consumer_offset_interval * 1_000_000
        self._scan_due_ns = now_ns + self._config.client_scan_interval * 1_000_000
        self._worker = runner.start("BrokerHousekeeping", self.step, first_after_ms=STEP_MS)

    def stop(self) -> None:
        """End the worker and write the tables a last time. Blocks. Raises the first error, when each had its turn."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
        failed = self.persist()
        if failed is not None:
            raise failed

    def step(self) -> float:
        """Do what is due; return the ms until the next step."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._disk_due_ns:
            self._disk_due_ns = now_ns + DISK_INTERVAL_NS
            self._disk.look()
        if now_ns >= self._persist_due_ns:
            self._persist_due_ns = now_ns + self._config.flush_consumer_offset_interval * 1_000_000
            self.persist()
        if now_ns >= self._scan_due_ns:
            self._scan_due_ns = now_ns + self._config.client_scan_interval * 1_000_000
            self._forget_silent_clients(now_ns)
        return STEP_MS

    def load(self) -> None:
        """Fill the tables from their files, look at the disk. Raises ``CorruptRecord`` and ``StoreError``. Blocks."""
        self._disk.look()
        for table in self._tables:
            table.load()

    def persist(self) -> Exception | None:
        """Write every table that has changed; one that cannot be written is logged and tried again.

        Returns the first error. Whatever it is, the tables behind it and the other duties have their turn.
        """
        failed: Exception | None = None
        for table in self._tables:
            try:
                table.persist()
            except Exception as error:
                failed = failed or error
                self._log.error("config_not_written", path=table.path, error=str(error) or repr(error))
        return failed

    def _forget_silent_clients(self, now_ns: int) -> None:
        connections, groups = self._clients.expire(now_ns - self._config.channel_expired_timeout * 1_000_000)
        if connections:
            self._log.warning("clients_expired", connections=len(connections), groups=len(groups))
            self._mailbox.post(_close_all, connections)
        self._notifier.members_changed(groups)


def _close_all(connections: Sequence[Connection]) -> None:
    for connection in connections:
        if not connection.closed:
            connection.close("no heartbeat")
