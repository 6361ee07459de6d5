"""The real name server and broker on a thread and event loop of their own, on free ports, with small files.

Lives here: ``PocketBroker`` and the settings that make it start and stop fast.
Nothing of the interpreter is changed: no loop policy, signal handler, switch interval, logging or structlog
configuration.
"""

import asyncio
import concurrent.futures
import contextlib
import datetime
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.common.clock import Clock
from pocketmq.common.errors import ConfigError, PocketMQError
from pocketmq.common.runner import ThreadRunner, Worker
from pocketmq.common.settings import SettingsReader
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.loop import new_event_loop
from pocketmq.remoting.server import ServerConfig
from pocketmq.store.config import StoreConfig
from pocketmq.testing.clock import MovableClock

if TYPE_CHECKING:
    from pocketmq.client import Producer, PushConsumer

STORE_SETTINGS: Final[Mapping[str, Any]] = {
    "mapped_file_size_commit_log": 8 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 1_000,
    "max_index_num": 4_000,
    "sync_on_close": False,
}
"""Small files, and no wait for the disk at the end of a store that is deleted then."""

BROKER_SETTINGS: Final[Mapping[str, Any]] = {"broker_name": "pocket", "listen_port": 0}

_WAIT_S: Final = 60.0


def consumer_settings() -> dict[str, Any]:
    """Return the settings that make a push consumer begin at once, and with the first message."""
    from pocketmq.client import ConsumeFromWhere

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    return {"consume_from_where": first, "rebalance_interval_ms": 100, "persist_interval_ms": 100}


StructT = TypeVar("StructT", bound=msgspec.Struct)


class NotRunning(PocketMQError):
    """The test broker is not running: not started yet, or stopped."""


class PocketBroker:
    """A broker for tests.

    >>> with PocketBroker() as broker:  # doctest: +SKIP
    ...     producer = Producer(group="test", namesrv=broker.namesrv)

    Also ``async with``; the caller's loop is never used and never blocked. After ``start``: ``namesrv`` and
    ``address`` are ``host:port``, and both serve. After ``stop``: its threads have ended, its ports are free, and the
    data directory is removed unless it was given. ``restart`` keeps ports and data. Start and stop it from one thread
    at a time.
    """

    def __init__(
        self,
        *,
        broker: Mapping[str, Any] | None = None,
        store: Mapping[str, Any] | None = None,
        data_dir: str | Path | None = None,
        log: Any = None,
        clock: Clock | None = None,
    ) -> None:
        """``broker``, ``store``: settings that differ from those of tests. ``log``: for instance a ``CapturedLog``.

        Raise ``ConfigError`` for a setting that does not exist or is impossible.
        """
        self._broker_config = _build(BrokerConfig, {**BROKER_SETTINGS, **(broker or {})}, "broker")
        self._store_settings = {**STORE_SETTINGS, **(store or {})}
        _build(StoreConfig, self._store_settings, "store")
        self._given_data_dir = None if data_dir is None else Path(data_dir)
        self._log = log
        self._clock = clock or MovableClock()
        self._namesrv_port = 0
        self._run: _Run | None = None

    @property
    def namesrv(self) -> str:
        """Where the name server listens: what a client is given."""
        return self._running().namesrv.address

    @property
    def address(self) -> str:
        """Where the broker listens."""
        return self._running().broker.address

    @property
    def grpc(self) -> str:
        """Where RocketMQ's gRPC clients connect; empty unless ``broker={"grpc_port": -1}`` or a port was given."""
        app = self._running().broker
        return f"127.0.0.1:{app.grpc_port}" if app.grpc_port else ""

    @property
    def data_dir(self) -> Path:
        """The directory of the store."""
        return self._running().data_dir

    @property
    def app(self) -> BrokerApp:
        """The broker itself, for tests that look inside. It lives on another thread."""
        return self._running().broker

    def producer(self, group: str = "test", **settings: Any) -> "Producer":
        """Return a producer for this broker, not started: ``async with broker.producer() as producer``."""
        from pocketmq.client import Producer

        return Producer(group, self.namesrv, **settings)

    def consumer(self, group: str = "test", **settings: Any) -> "PushConsumer":
        """Return a push consumer for this broker, not started. A new group reads its topics from the beginning."""
        from pocketmq.client import PushConsumer

        return PushConsumer(group, self.namesrv, **{**consumer_settings(), **settings})

    def now_ms(self) -> int:
        """Return the broker's wall time, ms since 1970: after ``advance`` it is ahead of the machine's."""
        return self._clock.now_ms()

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Move the broker's time forward: messages whose delay is over then are delivered at once, retries as well,
        and producers are asked for the transactions that have no decision yet.

        Limits of time in clients, heartbeats and connections do not notice. The store is as old as its time says:
        after ``file_reserved_time`` (72 hours) retention removes old files. Raises ``ConfigError`` if the broker was
        given another clock.
        """
        delay = datetime.timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        self._skip(int(delay.total_seconds() * 1000))

    def _skip(self, delay_ms: int) -> None:
        if not isinstance(self._clock, MovableClock) or delay_ms < 0:
            why = f"{delay_ms} ms" if delay_ms < 0 else f"its clock is a {type(self._clock).__name__}"
            raise ConfigError("time does not move", why=why, hint="move it forward, with the clock that a broker has")
        self._clock.advance_ms(delay_ms)
        delays, transactions = self.app.delays, self.app.transactions
        if delays is not None:
            delays.wake()
        if transactions is not None:
            transactions.check_now()

    def wait_idle(self, group: str, *topics: str, skip_delays: bool = False, timeout_s: float = 30.0) -> None:
        """Return when a group has consumed all that is there, of the topics that it subscribes to and of ``topics``.

        ``skip_delays``: what waits for a delay or a retry counts as well, and time is moved to it. Raises ``NotIdle``
        after ``timeout_s``, and ``ConfigError`` in a running event loop, which it would block: ``until_idle``.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(self.until_idle(group, *topics, skip_delays=skip_delays, timeout_s=timeout_s))
        else:
            why = "it would block the event loop, and the consumers in it"
            raise ConfigError("wait_idle refused", why=why, hint="await broker.until_idle(...)")

    async def until_idle(self, group: str, *topics: str, skip_delays: bool = False, timeout_s: float = 30.0) -> None:
        """Wait as ``wait_idle`` does, in an event loop."""
        from pocketmq.testing.idle import until_idle  # the SDK: a broker alone starts without it

        skip = self._skip if skip_delays else None
        await until_idle(self.app, self.namesrv, group, topics, timeout_s=timeout_s, skip=skip)

    def start(self) -> None:
        """Start name server and broker; return when they serve."""
        self._launch(None)
        self._wait_started()

    def stop(self) -> None:
        """Stop both and remove the data directory unless it was given. Does nothing if they do not run."""
        run, self._run = self._run, None
        if run is not None:
            run.ask_stop(remove=self._given_data_dir is None)
            run.stopped.result(_WAIT_S)
            run.join()

    def restart(self) -> None:
        """Stop cleanly and start again with the same data on the same ports."""
        run = self._running()
        self._namesrv_port = _port(self.namesrv)
        self._broker_config = msgspec.structs.replace(self._broker_config, listen_port=_port(self.address))
        run.ask_stop(remove=False)
        run.stopped.result(_WAIT_S)
        run.join()
        self._launch(run.data_dir)
        self._wait_started()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        run = self._launch(None)
        try:
            # shielded: a cancellation must not reach the future, which the broker's thread is about to set
            await asyncio.shield(asyncio.wrap_future(run.started))
        except BaseException:
            self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.ask_stop(remove=self._given_data_dir is None)
            try:
                await asyncio.shield(asyncio.wrap_future(run.stopped))
            finally:
                run.join()

    def _launch(self, data_dir: Path | None) -> "_Run":
        if self._run is not None and data_dir is None:
            raise ConfigError("the test broker runs already", why=f"at {self.address}", hint="stop it first")
        self._run = run = _Run(
            data_dir or self._given_data_dir,
            self._namesrv_port,
            self._broker_config,
            self._store_settings,
            log=self._log,
            clock=self._clock,
        )
        run.launch()
        return run

    def _wait_started(self) -> None:
        assert self._run is not None
        try:
            self._run.started.result(_WAIT_S)
        except BaseException:
            self.stop()
            raise

    def _running(self) -> "_Run":
        run = self._run
        if run is None or not run.started.done():
            raise NotRunning("the test broker does not run", hint="use it inside its with block")
        return run


class _Run:
    """One start and stop: a thread with a loop for name server and broker. ``started`` and ``stopped`` report it."""

    namesrv: NamesrvApp
    broker: BrokerApp
    data_dir: Path

    def __init__(
        self,
        data_dir: Path | None,
        namesrv_port: int,
        broker_config: BrokerConfig,
        store_settings: Mapping[str, Any],
        *,
        log: Any,
        clock: Clock,
    ) -> None:
        self.started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.stopped: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._wanted_data_dir = data_dir
        self._namesrv_port = namesrv_port
        self._broker_config = broker_config
        self._store_settings = store_settings
        self._log = log
        self._clock = clock
        self._runner = ThreadRunner()
        self._remove = False
        self._loop = new_event_loop()
        self._stop = asyncio.Event()
        self._worker: Worker | None = None

    def launch(self) -> None:
        self._worker = self._runner.start("pocketmq-testing", self._live)

    def ask_stop(self, *, remove: bool) -> None:
        self._remove = remove
        with contextlib.suppress(RuntimeError):  # the loop is closed: the start failed, there is nothing to stop
            self._loop.call_soon_threadsafe(self._stop.set)

    def join(self) -> None:
        assert self._worker is not None
        self._worker.stop()

    def _live(self) -> None:
        """The one step of the worker: the whole life of the loop."""
        error: BaseException | None = None
        try:
            with asyncio.Runner(
                loop_factory=lambda: self._loop
            ) as runner:  # closes the loop, and no task is left in it
                runner.run(self._serve())
        except BaseException as caught:
            error = caught
        if self._remove and hasattr(self, "data_dir"):
            shutil.rmtree(self.data_dir, ignore_errors=True)
        if error is None:
            self.stopped.set_result(None)
        elif self.started.done():
            self.stopped.set_exception(error)
        else:
            self.stopped.set_result(None)
            self.started.set_exception(error)

    async def _serve(self) -> None:
        self.data_dir = self._wanted_data_dir or Path(tempfile.mkdtemp(prefix="pocketmq-"))
        self._remove = self._wanted_data_dir is None  # so a start that fails leaves nothing behind
        async with contextlib.AsyncExitStack() as stack:
            server_config = ServerConfig()
            self.namesrv = NamesrvApp(
                NamesrvConfig(listen_port=self._namesrv_port),
                server_config=server_config,
                log=self._log,
                clock=self._clock,
            )
            await self.namesrv.start()
            stack.push_async_callback(self.namesrv.stop)
            self.broker = BrokerApp(
                msgspec.structs.replace(self._broker_config, namesrv_addr=self.namesrv.address),
                _build(StoreConfig, {**self._store_settings, "store_path_root_dir": str(self.data_dir)}, "store"),
                server_config=server_config,
                log=self._log,
                clock=self._clock,
                runner=self._runner,
            )
            await self.broker.start()
            stack.push_async_callback(self.broker.stop)
            self.started.set_result(None)
            await self._stop.wait()


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _build(kind: type[StructT], values: Mapping[str, Any], section: str) -> StructT:
    """Build a settings struct as a settings file would: unknown names are refused with the nearest valid one."""
    reader = SettingsReader({section: kind})
    return reader.merge(reader.from_mapping({section: values}, "PocketBroker")).get(kind)
