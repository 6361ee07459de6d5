"""The servers of compose.yaml as containers on a bridge, and programs of their host: each side is told its addresses.

The engine's part is done by hand: a network of its own for each service, names in ``/etc/hosts``, published ports.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.install.container import TIMEOUT_S, Container, started
from tests.install.dockerfile import Image
from tests.install.namespace import CHROOT
from tests.install.test_dockerfile import COMPOSE, OURS

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(1800)]

FORWARD = Path(__file__).with_name("forward.py")
ADDRESS = {name: f"172.30.0.{number}" for number, name in enumerate(OURS, 2)}


class Services:
    """What runs, and the network of their host."""

    def __init__(self, image: Image, network: int) -> None:
        self.image = image
        self.network = network
        """A process in the network of the host."""
        self.containers: dict[str, Container] = {}

    def on_host(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of the image in the network of the host, as a program there."""
        enter = ["nsenter", f"--target={self.network}", "--net", "env", "-i", f"PATH={self.image.environment['PATH']}"]
        return subprocess.run(
            [*enter, "HOME=/tmp", CHROOT, str(self.image.root), *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def connect(self, name: str, container: Container) -> None:
        """Give a container its address on the bridge."""
        device = f"pmq{ADDRESS[name].rpartition('.')[2]}"
        host = ["nsenter", f"--target={self.network}", "--net", "ip"]
        there = ["nsenter", f"--target={container.first}", "--net", "ip"]
        for command in (
            [*host, "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", str(container.first)],
            [*host, "link", "set", device, "master", "pmqbridge", "up"],
            [*there, "address", "add", f"{ADDRESS[name]}/24", "dev", "eth0"],
            [*there, "link", "set", "eth0", "up"],
        ):
            subprocess.run(command, check=True, capture_output=True)
        self.containers[name] = container


def until(condition: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < give_up_s, "it did not come about"
        time.sleep(0.1)


@pytest.fixture
def services(image: Image, tmp_path: Path) -> Iterator[Services]:
    if shutil.which("ip") is None:
        pytest.skip("ip is not installed (iproute2)")
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in ADDRESS.items()))
    bridge = "ip link set lo up && ip link add pmqbridge type bridge && ip address add 172.30.0.1/24 dev pmqbridge"
    bridge += " && ip link set pmqbridge up && echo up && exec sleep infinity"
    with contextlib.ExitStack() as stack:
        host = subprocess.Popen(
            ["unshare", "--net", "/bin/sh", "-c", bridge], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        stack.callback(host.wait)
        stack.callback(host.kill)
        assert host.stdout is not None
        stack.callback(host.stdout.close)
        if (said := host.stdout.readline()) != "up\n":
            pytest.skip(f"no bridge here: {said}")
        running = Services(image, host.pid)
        for name in OURS:
            service = COMPOSE["services"][name]
            data = tmp_path / name
            data.mkdir()
            container = stack.enter_context(
                started(image, data, *service["command"], environment=service.get("environment"), hosts=hosts)
            )
            running.connect(name, container)
        published = [
            f"{port}={ADDRESS[name]}:{to_port}"
            for name in OURS
            for _, port, to_port in (each.split(":") for each in COMPOSE["services"][name]["ports"])
        ]
        command = ["nsenter", f"--target={host.pid}", "--net", sys.executable, "-I", str(FORWARD), *published]
        forward = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        stack.callback(forward.wait)
        stack.callback(forward.kill)
        assert forward.stdout is not None
        stack.callback(forward.stdout.close)
        assert forward.stdout.readline() == "published\n"
        yield running


def test_the_pair_serves_its_network_and_its_host(services: Services) -> None:
    """A synchronous pair by names; a program of the host is told published ports, also that of the slave once the
    master is gone."""
    for container in services.containers.values():
        container.ready()
    inside = ["env", "POCKETMQ_NAMESRV=namesrv:9876", "pocketmq"]
    member = services.containers["broker-a"]
    until(lambda: "broker-a-slave:10911" in member.run(*inside, "brokers"))
    for name in ("namesrv", "dashboard"):
        services.containers[name].run(*COMPOSE["services"][name]["healthcheck"]["test"][1:])
    for name in ("broker-a", "broker-a-slave"):
        services.containers[name].run(*services.image.health)

    def confirmed() -> bool:
        return services.on_host("pocketmq", "produce", "Orders", "-m", "order").returncode == 0

    until(confirmed)  # a master that waits for its slave refuses first
    told = services.on_host("pocketmq", "brokers").stdout
    assert "127.0.0.1:10911" in told
    assert "127.0.0.1:10921" in told
    metrics = "import urllib.request as r; print(r.urlopen('http://{}:5557/metrics').read().decode())"
    for name in ("broker-a", "broker-a-slave"):  # as Prometheus asks
        assert "pocketmq_" in services.containers["namesrv"].run("python3", "-c", metrics.format(ADDRESS[name]))
    page = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8088/').read().decode())"
    until(lambda: "broker-a-slave:10911" in services.on_host("python3", "-c", page).stdout)
    until(lambda: "order" in services.on_host("pocketmq", "consume", "Orders", "-n", "1").stdout)
    os.kill(member.first, signal.SIGTERM)
    assert member.process.wait(TIMEOUT_S) == 0
    until(lambda: services.on_host("pocketmq", "consume", "Orders", "-n", "1").stdout == "order\n")
