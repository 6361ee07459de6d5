"""Which settings of a running broker can change, and those that somebody has changed.

    live = LiveSettings(log)
    live.use({"broker": (config,), "store": (store_config,)})     # at each start, before anything reads them
    changes = live.change({"fileReservedTime": "48"}, by="admin")  # UPDATE_BROKER_CONFIG

The structs are frozen, and shared by everything that reads them: this module alone sets their fields.

A change survives a restart as long as the setting is still what it was when it was changed: ``changedSettings.json``
keeps both values. An operator who edits the setting in the file, environment or command line has the last word.

Lives here: ``LiveSettings``, ``Change``, ``LIVE``.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.common.errors import ConfigError
from pocketmq.common.events import EventLog
from pocketmq.common.logs import LogConfig
from pocketmq.common.settings import SettingsReader
from pocketmq.store.config import StoreConfig

FILE_NAME: Final = "changedSettings.json"
LIVE: Final[Mapping[str, frozenset[str]]] = {
    "broker": frozenset(
        {
            "broker_permission",
            "auto_create_topic_enable",
            "auto_create_subscription_group",
            "reject_transaction_message",
            "long_polling_enable",
            "transaction_time_out",
            "transaction_check_max",
            "transaction_check_interval",
            "wait_time_mills_in_send_queue",
            "wait_time_mills_in_pull_queue",
            "wait_time_mills_in_heartbeat_queue",
            "wait_time_mills_in_transaction_queue",
            "wait_time_mills_in_admin_broker_queue",
        }
    ),
    "store": frozenset(
        {
            "flush_interval_commit_log",
            "flush_commit_log_thorough_interval",
            "flush_commit_log_least_pages",
            "commit_interval_commit_log",
            "commit_commit_log_thorough_interval",
            "commit_commit_log_least_pages",
            "os_page_cache_busy_timeout_mills",
            "file_reserved_time",
            "delete_when",
            "clean_resource_interval",
            "delete_commit_log_files_interval",
            "clean_file_forcibly_enable",
            "disk_free_bytes_min",
            "disk_max_used_space_ratio",
            "disk_space_warning_level_ratio",
            "disk_space_clean_forcibly_ratio",
        }
    ),
    "log": frozenset({"level", "levels"}),
}
"""Section → the settings that can change while a broker runs: everything reads them where it uses them, or is told."""
SECTIONS: Final[Mapping[str, type[msgspec.Struct]]] = {"broker": BrokerConfig, "store": StoreConfig, "log": LogConfig}
CHARACTERS_MAX: Final = 1_000
"""Of one value."""

Structs = Mapping[str, Sequence[msgspec.Struct]]
"""Section → its structs: the one that was given, and that of the present role."""


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that has another value now."""

    name: str
    """``section.key``."""
    before: Any
    after: Any

    @property
    def section(self) -> str:
        """The section of the setting."""
        return self.name.partition(".")[0]

    @property
    def key(self) -> str:
        """The setting within its section."""
        return self.name.partition(".")[2]


class _Kept(msgspec.Struct):
    value: Any
    instead_of: Any
    by: str = ""
    at_ms: int = 0


class _File(msgspec.Struct):
    settings: dict[str, _Kept]


class NotLive(ConfigError):
    """A setting that is read at the start only, or no setting at all."""


@dataclass(slots=True, eq=False)
class LiveSettings:
    """The settings of one broker. Any thread; changes come one after the other.

    ``generation``, ``encode`` and ``load`` are those of a table of ``PersistedTable``.
    """

    log: EventLog
    now_ms: Callable[[], int]
    generation: int = 0
    kept: dict[str, _Kept] = field(default_factory=dict)
    """Name → what was changed; at most one for each setting of ``LIVE``."""
    _structs: Structs = field(default_factory=dict)
    _reader: SettingsReader = field(default_factory=lambda: SettingsReader(SECTIONS))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _applied: set[str] = field(default_factory=set)
    """Names of ``kept`` whose values were set here, and so are no configured ones."""

    # ---- the table

    def encode(self) -> bytes:
        """Return the changes as JSON."""
        return msgspec.json.encode(_File(self.kept))

    def load(self, content: bytes) -> None:
        """Take the changes of a file. Raises ``msgspec.DecodeError``."""
        kept = msgspec.json.decode(content, type=_File).settings
        self.kept = {name: each for name, each in kept.items() if is_live(name)}

    # ---- a start

    def use(self, structs: Structs) -> None:
        """Set what was changed in the structs of this start. A setting that is configured otherwise since then keeps
        its configured value, and what was changed is forgotten; so it is once it is configured as it was changed."""
        with self._lock:
            self._structs = structs
            for name, each in list(self.kept.items()):
                if not self._is_live(name):
                    continue
                if self._now(name) == each.value:
                    if name not in self._applied:
                        self._forget(name)
                    continue
                try:
                    if self._now(name) != each.instead_of:
                        raise ConfigError("another value", why=f"it is configured as {self._now(name)!r} since then")
                    self._set(self._checked({name: each.value}))
                except (ConfigError, ValueError, TypeError) as error:
                    self._forget(name)
                    why = getattr(error, "why", str(error))
                    self.log.warning("changed_setting_forgotten", setting=name, value=each.value, why=why)

    def share(self, section: str, struct: msgspec.Struct) -> None:
        """Set what changes in this struct as well: a part of this start has a copy of its own."""
        with self._lock:
            self._structs = {**self._structs, section: (*self._structs[section], struct)}

    # ---- changes

    def change(self, values: Mapping[str, str], *, by: str) -> list[Change]:
        """Change settings, all or none; return those that have another value now. Names are ours (``key`` or
        ``section.key``) or RocketMQ's. Values that are in force already are passed over, whatever they belong to: tools
        send back the whole list. Raises ``NotLive`` and ``ConfigError``, whose texts name the setting."""
        long = [name for name, value in values.items() if len(value) > CHARACTERS_MAX]
        if long:
            raise ConfigError("setting not changed", why=f"{long[0][:100]} has more than {CHARACTERS_MAX} characters")
        with self._lock:
            given = self._given(values)
            changes = self._checked(given)
            self._set(changes)
            for change in changes:
                self._keep(change, by)
        for change in changes:
            self.log.info("setting_changed", setting=change.name, before=change.before, after=change.after, by=by)
        return changes

    def changed(self) -> dict[str, tuple[Any, Any, str]]:
        """Return name → (value, configured value, who changed it)."""
        with self._lock:
            return {name: (each.value, each.instead_of, each.by) for name, each in self.kept.items()}

    # ---- parts of them

    def _given(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return ``section.key`` → converted value of those that are to have another value. Raises ``NotLive``."""
        found: dict[str, Any] = {}
        for text, value in values.items():
            layer = self._reader.from_flags([f"{text}={value}"], option="setting")
            (section, key), *_ = layer
            name = f"{section}.{key}"
            if self._is_live(name):
                found[name] = self._reader.converted(layer)[section, key]
            elif section not in self._structs or text_of(self._now(name)) != value.strip():
                raise NotLive(
                    "setting not changed",
                    why=f"{name} is read at the start of a broker only",
                    hint="change it where the broker is configured, and start the broker again",
                )
        return {name: value for name, value in found.items() if self._now(name) != value}

    def _now(self, name: str) -> Any:
        section, _, key = name.partition(".")
        return getattr(self._structs[section][0], key)

    def _is_live(self, name: str) -> bool:
        return is_live(name) and name.partition(".")[0] in self._structs

    def _checked(self, values: Mapping[str, Any]) -> list[Change]:
        """Return the changes, if the struct of each section takes them together. Raise what its validation raises."""
        for section, kind in SECTIONS.items():
            own = {name.partition(".")[2]: value for name, value in values.items() if name.startswith(f"{section}.")}
            if own:
                for struct in self._structs[section]:
                    msgspec.convert(msgspec.to_builtins(msgspec.structs.replace(struct, **own)), kind)
        return [Change(name, self._now(name), value) for name, value in values.items()]

    def _set(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._applied.add(change.name)
            for struct in self._structs[change.section]:
                msgspec.structs.force_setattr(struct, change.key, change.after)

    def _forget(self, name: str) -> None:
        del self.kept[name]
        self.generation += 1

    def _keep(self, change: Change, by: str) -> None:
        known = self.kept.get(change.name)
        configured = change.before if known is None else known.instead_of
        if change.after == configured:
            self.kept.pop(change.name, None)
        else:
            self.kept[change.name] = _Kept(change.after, configured, by, self.now_ms())
        self.generation += 1


def text_of(value: object) -> str:
    """Return a value as GET_BROKER_CONFIG shows it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_live(name: str) -> bool:
    """Return whether ``section.key`` can change while a broker runs."""
    section, _, key = name.partition(".")
    return key in LIVE.get(section, ())


def live_names() -> Iterator[str]:
    """Yield each ``section.key`` that can change."""
    for section, keys in LIVE.items():
        for key in sorted(keys):
            yield f"{section}.{key}"
