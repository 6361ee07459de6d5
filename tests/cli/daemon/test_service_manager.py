"""What a service manager is told, over a real socket."""

import os
import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli.daemon.service_manager import EXTEND_US, ServiceManager
from pocketmq.common.clock import ManualClock


class Listener:
    """A service manager's end."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(60)

    def next(self) -> dict[str, str]:
        """Return the variables of the next datagram."""
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())

    def is_silent(self) -> bool:
        return not select.select([self.socket], [], [], 0)[0]


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    listener = Listener(str(tmp_path / "notify"))
    yield listener
    listener.socket.close()


def manager(address: str, clock: ManualClock | None = None) -> ServiceManager:
    return ServiceManager({"NOTIFY_SOCKET": address}, clock or ManualClock())


def test_it_is_told_when_the_process_serves_and_when_it_stops(listener: Listener, tmp_path: Path) -> None:
    told = manager(str(tmp_path / "notify"))
    told.ready("ready broker=127.0.0.1:10911")
    assert listener.next() == {"READY": "1", "STATUS": "ready broker=127.0.0.1:10911"}
    told.stopping()
    assert listener.next()["STOPPING"] == "1"


def test_a_long_recovery_asks_for_more_time_once_a_second(listener: Listener, tmp_path: Path) -> None:
    clock = ManualClock()
    told = manager(str(tmp_path / "notify"), clock)
    for offset in range(0, 3_000_000, 500_000):
        told.starting(offset, 3_000_000)
        clock.advance_ms(400)
    told.starting(3_000_000, 3_000_000)
    first, second = listener.next(), listener.next()
    assert first["EXTEND_TIMEOUT_USEC"] == str(EXTEND_US)
    assert [first["STATUS"], second["STATUS"]] == [
        "recovering the store: 1,500,000 of 3,000,000 bytes",
        "recovering the store: 3,000,000 of 3,000,000 bytes",
    ]
    assert listener.is_silent()


def test_an_abstract_socket_is_told_as_well() -> None:
    name = f"pocketmq-test-{os.getpid()}"
    listener = Listener(f"\0{name}")
    try:
        manager(f"@{name}").ready("up")
        assert listener.next()["READY"] == "1"
    finally:
        listener.socket.close()


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "vsock:2:1234"])
def test_without_one_nothing_happens(address: str) -> None:
    told = manager(address)
    told.starting(0, 1)
    told.ready("up")
    told.stopping()


def test_processes_of_this_one_do_not_answer_for_it() -> None:
    environment = {"NOTIFY_SOCKET": "/run/systemd/notify", "HOME": "/"}
    ServiceManager(environment, ManualClock())
    assert environment == {"HOME": "/"}


@pytest.mark.slow
def test_a_daemon_tells_it(listener: Listener, start_daemon: Any, tmp_path: Path) -> None:
    """Once it serves, and when SIGTERM has come."""
    address = str(tmp_path / "notify")
    daemon = start_daemon("standalone", "--namesrv-port", "0", "--broker-port", "0", env={"NOTIFY_SOCKET": address})
    told = listener.next()
    assert told["READY"] == "1"
    assert daemon.ready.startswith(told["STATUS"])
    assert listener.is_silent()
    assert daemon.end(signal.SIGTERM)[0] == 0
    assert listener.next()["STOPPING"] == "1"
