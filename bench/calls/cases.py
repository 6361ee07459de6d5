"""The loads whose calls are counted, on a broker and clients in processes of their own.

Lives here: ``CASES``, ``Counting`` (the processes and their windows). A window holds a part of the load, and
``SETTLE_S`` for what follows it. The calls of an idle window right after it are subtracted, by its length.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from bench.calls.child import NO_TELEMETRY
from bench.calls.client import PAUSE_S
from bench.calls.control import Counted
from bench.calls.counter import Counts
from bench.calls.figures import Calls, Figures, Measured, per_message
from bench.calls.rocketmq_client import FORMS, RocketmqConnection
from bench.calls.users import SENDER, SETTINGS, make_sender
from pocketmq.cli.own_broker import OwnBroker
from pocketmq.client.admin.admin import Admin
from pocketmq.remoting.loop import new_event_loop
from pocketmq.remoting.telemetry import TELEMETRY_KEY, decode_telemetry

WINDOWS: Final = 3
SETTLE_S: Final = 0.05
"""What a message leaves behind (index, statistics) is done by then."""
IDLE_S_MAX: Final = 0.25
"""Timers of the loop tick every 10 ms; a longer window counts as so many of these."""
WARM_COUNT: Final = 100
BODY: Final = bytes(1024)
QUEUES: Final = 4
BROKER, CLIENT, CONSUMER = "broker", "client", "consumer"
PATIENT: Final = ("--set", "broker.wait_time_mills_in_send_queue=60000")
"""Counting makes a send ten times slower: no request is refused for that."""


class CountedBroker(OwnBroker):
    """``pocketmq standalone`` that counts its calls."""

    def __init__(self, directory: Path, *arguments: str, telemetry: bool = True) -> None:
        super().__init__(data_dir=directory / "data", arguments=[*PATIENT, *arguments])
        self.control = Counted(directory, BROKER)
        self._words = () if telemetry else (NO_TELEMETRY,)

    def command(self) -> list[str]:
        """Return the same command with the counter around it."""
        python, _, _, *rest = super().command()
        return [python, "-m", "bench.calls.child", self.control.address, *self._words, *rest]

    def start(self) -> None:
        """Start and connect."""
        super().start()
        self.control.accept()

    def stop(self) -> int:
        """End the process."""
        self.control.close()
        return super().stop()


class CountedClient:
    """A process of ``bench.calls.client``."""

    def __init__(self, directory: Path, name: str, namesrv: str, handled: Path, *, users: bool) -> None:
        self.control = Counted(directory, name)
        command = [sys.executable, "-m", "bench.calls.client", self.control.address, namesrv, str(handled)]
        if users:
            command.append("users")
        self._process = subprocess.Popen(command)
        self.control.accept()

    def do(self, name: str, *arguments: object) -> None:
        """Run a method of ``Loads`` there."""
        self.control.ask("do", name, *arguments)

    def close(self) -> None:
        """End it."""
        self.control.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Counting:
    """A broker, a client and a consumer that are counted; a context manager that removes all of them.

    ``scale``: a factor of the number of messages of every case. ``pause_s``: before each message of one in flight.
    Without a pause a thread finds some messages before it has come to rest, and statistics fold several: fewer calls,
    but how many depends on the machine. ``users``: the clients' user needs a policy for each message. ``telemetry``:
    whether the broker counts times of stages.
    """

    def __init__(
        self,
        *settings: str,
        scale: float = 1.0,
        pause_s: float = PAUSE_S,
        users: bool = False,
        telemetry: bool = True,
    ) -> None:
        self.scale = scale
        self.pause_s = pause_s
        self.credentials = SENDER if users else None
        self._telemetry = telemetry
        self._settings = [word for setting in settings for word in ("--set", setting)]
        self._stack = ExitStack()
        self._clients: dict[str, CountedClient] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pocketmq-calls-")))
            self._handled = self.directory / "handled"
            os.mkfifo(self._handled)
            if self.credentials is not None:
                file = self.directory / "users.toml"
                file.touch(mode=0o600)
                file.write_text(SETTINGS)
                self._settings += ["--config", str(file)]
            broker = CountedBroker(self.directory, *self._settings, telemetry=self._telemetry)
            self.broker = stack.enter_context(broker)
            if self.credentials is not None:
                with asyncio.Runner(loop_factory=new_event_loop) as runner:
                    runner.run(make_sender(self.broker.namesrv))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def client(self, name: str) -> CountedClient:
        """Return the client process of this name, started if needed."""
        if name not in self._clients:
            made = CountedClient(
                self.directory, name, self.broker.namesrv, self._handled, users=self.credentials is not None
            )
            self._stack.callback(made.close)
            self._clients[name] = made
        return self._clients[name]

    def frames(self) -> int:
        """Return how many requests the broker's send thread has served so far."""

        async def ask() -> str:
            async with Admin(self.broker.namesrv, credentials=self.credentials) as admin:
                return (await admin.broker_runtime(self.broker.address))[TELEMETRY_KEY]

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            snapshot = decode_telemetry(runner.run(ask()))
        assert snapshot is not None
        return sum(pair.served for pair in snapshot.pairs if pair.name.startswith("SendMessage"))

    def count(self, case: str, load: Callable[[int], object], count: int, *clients: CountedClient) -> Measured:
        """Run ``load`` with the number of messages, first to warm up; count the calls of broker and ``clients``."""
        each = max(1, round(count * self.scale / WINDOWS))
        load(min(each, WARM_COUNT))
        controls = [self.broker.control, *(client.control for client in clients)]
        windows: dict[str, list[Calls]] = {control.name: [] for control in controls}
        frames = self.frames()
        for _ in range(WINDOWS):
            with _window(controls) as busy:
                begin = time.monotonic()
                load(each)
                time.sleep(SETTLE_S)
                seconds = time.monotonic() - begin
            idle_s = min(seconds, IDLE_S_MAX)
            with _window(controls) as idle:
                time.sleep(idle_s)
            for name, found in windows.items():
                found.append(per_message(busy[name], idle[name], each, seconds / idle_s))
        frames = self.frames() - frames
        sides = {name: Figures(found) for name, found in windows.items()}
        return Measured(case, each * WINDOWS, frames, sides)


@contextlib.contextmanager
def _window(controls: list[Counted]) -> Iterator[dict[str, Counts]]:
    time.sleep(SETTLE_S)
    counts: dict[str, Counts] = {}
    for control in controls:
        control.start()
    yield counts
    for control in controls:
        counts[control.name] = control.stop()


def _sends(counting: Counting, case: str, count: int, connections: int, in_flight: int) -> Measured:
    client = counting.client(CLIENT)
    client.do("open", f"Calls{connections}x{in_flight}", connections, QUEUES)
    try:
        return counting.count(case, lambda some: client.do("send", some, in_flight, counting.pause_s), count, client)
    finally:
        client.do("close")


def one_in_flight(counting: Counting, case: str) -> Measured:
    """One message after the other on one connection."""
    return _sends(counting, case, 150, 1, 1)


def many_in_flight(counting: Counting, case: str) -> Measured:
    """64 tasks, each one message after the other, on one connection."""
    return _sends(counting, case, 2_880, 1, 64)


def many_connections(counting: Counting, case: str) -> Measured:
    """100 connections, each one message after the other."""
    return _sends(counting, case, 900, 100, 100)


def waiting_consumer(counting: Counting, case: str) -> Measured:
    """A push consumer whose pulls wait; the broker's calls include the send."""
    sender, consumer = counting.client(CLIENT), counting.client(CONSUMER)
    sender.do("open", "CallsPush", 1, 1)
    consumer.do("subscribe", "CallsPush", 1)
    try:
        return counting.count(case, lambda some: sender.do("deliver", some), 120, consumer)
    finally:
        consumer.do("close")
        sender.do("close")


def _rocketmq(form: str) -> Callable[[Counting, str], Measured]:
    def sends(counting: Counting, case: str) -> Measured:
        """One message after the other on one connection, as RocketMQ's Java client writes them."""
        topic = f"Calls{form}"
        sender = counting.client(CLIENT)
        sender.do("open", topic, 1, QUEUES)
        sender.do("close")
        connection = RocketmqConnection(counting.broker.address, FORMS[form], counting.credentials)
        try:
            return counting.count(case, lambda some: connection.send(topic, BODY, some, counting.pause_s), 150)
        finally:
            connection.close()

    return sends


CASES: Final[dict[str, tuple[str, Callable[[Counting, str], Measured]]]] = {
    "one": ("one in flight", one_in_flight),
    "64": ("64 in flight", many_in_flight),
    "connections": ("100 connections, one in flight each", many_connections),
    "push": ("send to a waiting push consumer", waiting_consumer),
    "json": ("RocketMQ's JSON send, one in flight", _rocketmq("JSON")),
    "binary": ("RocketMQ's binary send, one in flight", _rocketmq("binary")),
}
"""Name → what the table says, and what runs it."""
