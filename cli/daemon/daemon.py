"""Runs the daemons: settings, logs, loop, signals, the ready line.

Lives here: ``run_daemon`` for the three shapes (name server, broker, both), and choices for the whole process, which
only a daemon may make: uvloop, the interpreter's switch interval.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from pocketmq.auth.config import AuthConfig
from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.daemon.access import DEFAULT_ORIGIN, access_of, check_access, serves_http, warning_of_file
from pocketmq.cli.daemon.dashboard_child import DashboardChild, DashboardConfig
from pocketmq.cli.daemon.descriptors import room_for_files
from pocketmq.cli.daemon.disk_room import check_directory, kept_line, room_for_store, space_of, store_root
from pocketmq.cli.daemon.profiles import profile_settings
from pocketmq.cli.daemon.recovery_progress import RecoveryProgress
from pocketmq.cli.daemon.service_manager import ServiceManager
from pocketmq.cli.exit_codes import CannotStart, ExitCode
from pocketmq.common.addresses import address_text
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import ConfigError, PocketMQError
from pocketmq.common.java_properties import looks_like_properties
from pocketmq.common.logs import LogConfig, Logs
from pocketmq.common.settings import FILE_BYTES_MAX, NOT_SET, Settings, SettingsReader
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.errors import AddressInUse
from pocketmq.remoting.http_server import DEFAULT_PORT, MetricsConfig
from pocketmq.remoting.limits.config import LimitsConfig
from pocketmq.remoting.loop import new_event_loop
from pocketmq.remoting.security.tls_config import ENFORCING, TlsConfig
from pocketmq.remoting.server import ServerConfig
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.disk_limits import DiskLimits
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.testing.faults import FaultConfig, FaultFileSystem, FaultPlan

SWITCH_INTERVAL_S: Final = 0.0005
"""With CPython's 5 ms a worker thread can hold up the loop for that long."""
DEFAULT_DATA_DIR: Final = "./pocketmq-data"
GRPC_PORT: Final = 8081
"""That of RocketMQ's proxy."""
DAEMON_DEFAULTS: Final[Mapping[str, object]] = {
    "store.store_path_root_dir": DEFAULT_DATA_DIR,
    "metrics.listen_port": DEFAULT_PORT,
    "broker.grpc_port": GRPC_PORT,
}
"""Values that the daemons choose, but not the library."""

SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    "broker": BrokerConfig,
    "store": StoreConfig,
    "remoting": ServerConfig,
    "tls": TlsConfig,
    "namesrv": NamesrvConfig,
    "auth": AuthConfig,
    "limits": LimitsConfig,
    "log": LogConfig,
    "metrics": MetricsConfig,
    "dashboard": DashboardConfig,
    "fault": FaultConfig,
}
"""Sections of a settings file."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The servers of a daemon."""

    namesrv: bool
    broker: bool


def load_settings(
    options: Mapping[str, Mapping[str, object]],
    config_file: str | None,
    flags: Sequence[str],
    environment: Mapping[str, str],
    profile: str | None = None,
    kind: str | None = None,
) -> Settings:
    """Merge defaults, profile, file, environment, options and ``--set`` flags; raise ``ConfigError``, which names the
    bad value.

    ``options``: option name → its settings; None: the option was not given. ``kind``: whose settings a RocketMQ file
    has (``rocketmq_conf``); None: its name says so.
    """
    notes: list[str] = []
    missing: Mapping[tuple[str, str], str] = {}
    reader = SettingsReader(SECTIONS)
    layers = [reader.from_values(DAEMON_DEFAULTS, DEFAULT_ORIGIN)]
    if profile is not None:
        layers.append(reader.from_values(profile_settings(profile), f"--profile {profile}"))
    if config_file is not None:
        text = read_settings_file(config_file)
        if looks_like_properties(text):
            from pocketmq.cli.daemon.rocketmq_conf import MISSING, kind_of, translate

            kind = kind or kind_of(config_file)
            translation = translate(text, config_file, kind)
            layers.append(translation.layer)
            notes, missing = translation.notes, MISSING[kind]
        else:
            layers.append(reader.from_file(text, config_file))
    layers.append(reader.from_environment(environment))
    for option, values in options.items():
        layers.append(reader.from_values({name: value for name, value in values.items() if value is not None}, option))
    layers.append(reader.from_flags(flags))
    settings = reader.merge(*layers)
    unset = [text for place, text in missing.items() if settings.origin(*place) in (NOT_SET, DEFAULT_ORIGIN)]
    return settings.with_notes([*notes, *(f"{config_file}: {text}" for text in unset)])


def read_settings_file(path: str) -> str:
    """Return the text of a settings file, or raise ``ConfigError``. A RocketMQ file with comments in another encoding
    than UTF-8 is read as Java reads it, as Latin-1."""
    content = b""
    try:
        with Path(path).open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError(f"{path} is not read", why=f"above {FILE_BYTES_MAX} bytes", hint="settings are small")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError("the settings file cannot be read", why=f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        if looks_like_properties(latin := content.decode("latin-1")):
            return latin
        raise ConfigError("the settings file cannot be read", why=f"{path} is not UTF-8: {error.reason}") from error


def run_daemon(
    shape: Shape,
    options: Mapping[str, Mapping[str, object]],
    config_file: str | None,
    flags: Sequence[str],
    profile: str | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then stop cleanly. Raises ``ConfigError`` or ``CannotStart`` before serving."""
    kind = None if shape.namesrv and shape.broker else "broker" if shape.broker else "namesrv"
    settings = load_settings(options, config_file, flags, os.environ, profile, kind)
    check_access(settings, namesrv=shape.namesrv, broker=shape.broker)
    if warning := warning_of_file(settings, config_file):
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    if shape.broker:
        settings = look_at_disk(settings, OsFileSystem())
    for warning in (*settings.renamed, *settings.notes):
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    manager = ServiceManager(os.environ, SystemClock())
    logs = Logs(settings.get(LogConfig))
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(shape, settings, logs, manager))
    finally:
        logs.close()


def look_at_disk(settings: Settings, files: FileSystem) -> Settings:
    """Return the settings with the file size of the store; warn of a disk that is nearly full. Blocks. Raises
    ``CannotStart`` where a new store has no room.
    """
    chosen = settings.origin("store", "mapped_file_size_commit_log") != NOT_SET
    root = store_root(settings.get(StoreConfig))
    check_directory(root)
    config = room_for_store(settings.get(StoreConfig), files, size_is_chosen=chosen)
    warning = DiskLimits(config).warning(root, space_of(root, files))
    if warning:  # not on standard output, whose first line is the ready line
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    return settings.with_section(config)


class _StoppedEarly(Exception):
    """A signal to stop came while the store was opened: the next start does it again."""


async def _serve(shape: Shape, settings: Settings, logs: Logs, manager: ServiceManager) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():  # the second signal: end at once, the next start recovers the store
            os._exit(ExitCode.INTERRUPTED)
        logs.logger("broker").info("stopping", signal=number.name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    failed: list[BaseException] = []

    def on_failed(error: BaseException) -> None:
        failed.append(error)
        stop.set()

    serves = False

    def still_wanted() -> None:
        if stop.is_set() and not serves:
            raise _StoppedEarly

    log, began_s = logs.logger("broker" if shape.broker else "namesrv"), loop.time()
    try:
        async with _started(shape, settings, logs, on_failed, manager, still_wanted) as ready:
            serves = True
            sys.stdout.write(ready)  # one write: print() makes two on unbuffered output
            sys.stdout.flush()
            manager.ready(ready.partition("\n")[0])
            log.info("serving", took_ms=round((loop.time() - began_s) * 1000))
            await stop.wait()
            manager.stopping()
            began_s = loop.time()
    except _StoppedEarly:
        log.info("start_given_up", why="a signal came before it was ready")
    log.info("stopped", took_ms=round((loop.time() - began_s) * 1000))
    if failed:
        with _start_errors():
            raise failed[0]


@contextlib.asynccontextmanager
async def _started(
    shape: Shape,
    settings: Settings,
    logs: Logs,
    on_failed: Callable[[BaseException], None],
    manager: ServiceManager,
    still_wanted: Callable[[], None],
) -> AsyncIterator[str]:
    """Start what the shape names, yield the ready line and what the store keeps, stop in reverse order.

    ``on_failed``, ``still_wanted``: see ``BrokerApp``. ``manager`` learns of a long recovery.
    """
    clock = SystemClock()
    server_config = room_for_files(
        settings.get(ServerConfig), int(shape.namesrv) + int(shape.broker), logs.logger("remoting")
    )
    broker_config = settings.get(BrokerConfig)
    grpc_is_asked_for = settings.origin("broker", "grpc_port") != DEFAULT_ORIGIN
    if broker_config.listen_port == 0 and not grpc_is_asked_for:  # one of several brokers, or one of a test
        broker_config = msgspec.structs.replace(broker_config, grpc_port=0)
    auth_config = access_of(settings.get(AuthConfig), alone=shape.namesrv and shape.broker)
    tls_config = settings.get(TlsConfig)
    if shape.namesrv and shape.broker and tls_config.server_mode == ENFORCING and not tls_config.enable:
        raise ConfigError(
            "bad setting",
            why="tls.server_mode=enforcing without tls.enable: the broker could not register at its own name server",
            hint="set tls.enable=true and tls.client_trust_cert_path",
        )
    ready = "ready"
    async with contextlib.AsyncExitStack() as stack:
        if shape.namesrv:
            namesrv = NamesrvApp(
                _namesrv_config(settings),
                server_config=server_config,
                log=logs.logger("namesrv"),
                clock=clock,
                auth_config=auth_config,
                tls_config=tls_config,
                limits_config=settings.get(LimitsConfig),
                metrics_config=settings.get(MetricsConfig)
                if not shape.broker and serves_http(settings, broker=False)
                else None,
            )
            with _start_errors({settings.get(NamesrvConfig).listen_port: "--namesrv-port"}):
                await namesrv.start()
            stack.push_async_callback(namesrv.stop)
            ready += f" namesrv={namesrv.address}"
            if namesrv.metrics_address:
                ready += f" metrics={namesrv.metrics_address}"
            broker_config = msgspec.structs.replace(
                broker_config, namesrv_addr=";".join(dict.fromkeys([namesrv.address, *broker_config.name_servers()]))
            )
        if shape.broker:
            progress = RecoveryProgress(sys.stderr, clock)
            stack.callback(progress.close)

            def recovered(offset: int, end: int) -> None:
                progress(offset, end)
                manager.starting(offset, end)

            broker = BrokerApp(
                broker_config,
                settings.get(StoreConfig),
                server_config=server_config,
                loggers=logs.logger,
                logs=logs,
                clock=clock,
                file_system=_fault_file_system(settings, logs),
                metrics_config=settings.get(MetricsConfig),
                recovery_progress=recovered,
                still_wanted=still_wanted,
                on_failed=on_failed,
                auth_config=auth_config,
                auth=namesrv.auth if shape.namesrv else None,
                metrics_required=settings.origin("metrics", "listen_port") != DEFAULT_ORIGIN,
                grpc_required=grpc_is_asked_for,
                tls_config=tls_config,
                limits_config=settings.get(LimitsConfig),
            )
            with _start_errors({broker_config.listen_port: "--broker-port"}):
                await broker.start()
            progress.close()
            stack.push_async_callback(broker.stop)
            ready += f" broker={broker.address}"
            if broker.not_registered:  # it serves, and no client finds it: the log says why
                ready += " registered=no"
            if broker.metrics_address:
                ready += f" metrics={broker.metrics_address}"
            if broker.grpc_port:
                ready += f" grpc={address_text(broker_config.bind_address, broker.grpc_port)}"
            if settings.get(FaultConfig).enable:
                ready += " faults=on"
            ready += f"\n{kept_line(settings.get(StoreConfig), OsFileSystem())}"
        dashboard = settings.get(DashboardConfig)
        if shape.namesrv and shape.broker and dashboard.listen_port:
            child = DashboardChild(
                dashboard, namesrv.address, logs.logger("dashboard"), is_open=auth_config.open, tls=tls_config
            )
            await child.start()
            stack.push_async_callback(child.stop)
        yield f"{ready}\n"


def _namesrv_config(settings: Settings) -> NamesrvConfig:
    """Return the name server's settings; by default its epochs are stored beside the broker's data.

    Not with port 0: such a name server serves a test.
    """
    config = settings.get(NamesrvConfig)
    if config.epoch_store_dir or config.listen_port == 0:
        return config
    root = settings.get(StoreConfig).store_path_root_dir
    return msgspec.structs.replace(config, epoch_store_dir=f"{root}/namesrv-{config.listen_port}")


def _fault_file_system(settings: Settings, logs: Logs) -> FaultFileSystem | None:
    """Return a disk that fails on request, if the settings enable it; None: the real disk."""
    config = settings.get(FaultConfig)
    if not config.enable:
        return None
    root = store_root(settings.get(StoreConfig))
    files = OsFileSystem()
    log = logs.logger("store")
    log.warning("faults_enabled", control_file=config.control_file)
    return FaultFileSystem(files, FaultPlan(files, config.control_file, root, SystemClock(), log, seed=config.seed))


@contextlib.contextmanager
def _start_errors(options: Mapping[int, str] = MappingProxyType({})) -> Iterator[None]:
    """Turn errors at the start into ``CannotStart``; errors in settings stay ``ConfigError``.

    ``options``: port → the option that chooses another one.
    """
    try:
        yield
    except (ConfigError, CannotStart):
        raise
    except AddressInUse as error:
        option = options.get(error.port) if error.port else None
        hint = f"{error.hint}: {option}" if option else error.hint
        raise CannotStart(error.what, why=error.why, hint=hint, cause=error.cause) from error
    except PocketMQError as error:
        raise CannotStart(error.what, why=error.why, hint=error.hint, cause=error.cause) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise CannotStart("the daemon cannot start", why=f"{where}{error.strerror or error}") from error
