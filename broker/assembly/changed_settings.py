"""Settings that were changed while the broker ran: read at a start, and made to take effect.

Lives here: ``ChangedSettings``, ``SettingsNotWritten``.
"""

import os
import posixpath
from collections.abc import Sequence

import msgspec

from pocketmq.broker.assembly.build import Running
from pocketmq.broker.ha.ha_roles import RoleOfRun
from pocketmq.broker.persisted_table import PersistedTable
from pocketmq.broker.request.pairs import limits_changed
from pocketmq.broker.settings.live_settings import FILE_NAME, Change, LiveSettings
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.logs import Logs
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import StoreError


class SettingsNotWritten(StoreError):
    """The changes hold, and a restart would forget them."""


class ChangedSettings:
    """Those of one broker, over all its runs. Blocks on the disk: worker threads only."""

    def __init__(
        self, store_config: StoreConfig, file_system: FileSystem, clock: Clock, log: EventLog, logs: Logs | None
    ) -> None:
        """``logs``: those whose levels can change; None: they cannot."""
        self.live = LiveSettings(log, clock.now_ms)
        root = os.path.abspath(os.path.expanduser(store_config.store_path_root_dir))
        path = posixpath.join(root, "config", FILE_NAME)
        self._file = PersistedTable(self.live, path, file_system, log, durable=store_config.sync_on_close)
        self._logs = logs
        self._log = log
        self._running: Running | None = None

    def load(self, brokers: Sequence[msgspec.Struct], stores: Sequence[msgspec.Struct]) -> None:
        """Take what was changed before into the structs of this start. Raises ``CorruptRecord``."""
        self._file.load()
        structs = {"broker": brokers, "store": stores}
        if self._logs is not None:
            structs["log"] = (self._logs.config,)
        self.live.use(structs)
        if self._logs is not None:
            self._logs.levels_changed()
        try:
            self._write()  # what was forgotten must not come back with a later configuration
        except StoreError as error:
            self._log.warning("changed_settings_not_written", error=str(error), path=self._file.path)

    def begin(self, running: Running) -> None:
        """Serve this run from now on."""
        self._running = running
        self.live.share("store", running.store.config)

    def take_effect(self, role: RoleOfRun, changes: Sequence[Change]) -> None:
        """Tell whatever does not read its settings each time, and write the changes down, earlier ones that could not
        be written too; also while the broker stops. Raises ``StoreError``."""
        running = self._running
        assert running is not None, "begin first"
        if changes:
            self._tell(running, role, {change.key for change in changes})
        try:
            self._write()
        except StoreError as error:
            raise SettingsNotWritten(
                "settings changed, and not written",
                why=f"they hold until the broker stops: {error}",
                hint="send them again when the disk takes writes",
                cause=error.cause,
            ) from error
        self._publish(running, {change.key for change in changes})

    def _tell(self, running: Running, role: RoleOfRun, keys: set[str]) -> None:
        running.store.settings_changed()
        limits_changed(running.table, role.config)
        busy_ms = role.store_config.os_page_cache_busy_timeout_mills
        running.environment.mailbox.post(running.fast_failure.limits_changed, busy_ms)
        running.store.gate.changed()
        if self._logs is not None:
            self._logs.levels_changed()
        if "broker_permission" in keys:
            running.environment.topics.announce_again()

    def _write(self) -> None:
        if self.live.generation:  # else there is nothing that the file does not have
            self._file.persist()

    @staticmethod
    def _publish(running: Running, keys: set[str]) -> None:
        """Write and register what the changes mean for topics."""
        if "auto_create_topic_enable" in keys:
            running.environment.topics.add_system_topics()  # the model of topics that sends create is one
        if keys & {"broker_permission", "auto_create_topic_enable"}:
            running.registered_topics.publish()
