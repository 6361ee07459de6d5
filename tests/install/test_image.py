"""The image, built from the Dockerfile's steps on Debian's base system, and started in a namespace.

It is what an engine does, without the engine: no layers, the same files, the same user, the same first process.
POCKETMQ_DEBIAN_ROOT names a root file system of Debian to build on; without it one is bootstrapped.
"""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.install.container import TIMEOUT_S, started
from tests.install.dockerfile import Image

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(1800)]

SIZE_BYTES_MAX = 250 << 20
"""Of everything above Debian's base system: Python, NumPy and the server."""
UID = 10911


def test_the_image_is_small(image: Image, debian_root: Path) -> None:
    def size_bytes(root: Path) -> int:
        command = ["du", "-s", "--bytes", "-x", "--exclude=var/cache/apt", "--exclude=var/lib/apt/lists", str(root)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])

    more = size_bytes(image.root) - size_bytes(debian_root)
    print(f"the image adds {more / 1e6:.0f} MB to Debian's base system")
    assert more < SIZE_BYTES_MAX


def test_it_serves_as_another_user_is_healthy_and_stops_on_its_signal(image: Image, tmp_path: Path) -> None:
    """A broker for a trusted network: started, used, checked, stopped; a second start finds what was sent."""
    data = tmp_path / "data"
    data.mkdir()
    command = [*image.command, "--open", "--advertise", "localhost", "--profile", "small"]
    with started(image, data, *command) as container:
        assert "broker=localhost:10911" in container.ready()
        assert container.status("NSpid")[-1] == "1"
        assert container.status("Uid") == [str(UID)] * 4
        assert int(container.status("CapEff")[0], 16) == 0
        container.run(*image.health)
        container.run("pocketmq", "produce", "Orders", "-m", "order 1")
        os.kill(container.first, getattr(signal, image.stop_signal))
        assert container.process.wait(TIMEOUT_S) == 0
    assert not (data / "abort").exists(), "the store was not closed"
    assert {path.stat().st_uid for path in data.rglob("*")} == {UID}
    with started(image, data, *command) as container:
        container.ready()
        assert container.run("pocketmq", "consume", "Orders", "-n", "1") == "order 1\n"


def test_it_does_not_start_for_strangers(image: Image, tmp_path: Path) -> None:
    """Its own command listens on all addresses: that takes --open, or users."""
    with started(image, tmp_path) as container:
        output, _ = container.process.communicate(timeout=TIMEOUT_S)
    assert container.process.returncode == 3
    assert re.search(r"0\.0\.0\.0 lets other machines connect.*--open", output)


def test_it_starts_with_what_init_made(image: Image, tmp_path: Path) -> None:
    """As docs/deployment.md says: init with the image, then a protected server; strangers are refused."""
    data = tmp_path / "data"
    data.mkdir()
    with started(image, data, "init", "--secure", "/data/secure", "--host", "localhost") as container:
        output, _ = container.process.communicate(timeout=TIMEOUT_S)
        assert container.process.returncode == 0, output
    command = [*image.command, "--config", "/data/secure/pocketmq.toml", "--advertise", "localhost", "--profile=small"]
    with started(image, data, *command) as container:
        container.ready()
        container.run(*image.health)
        inside = "POCKETMQ_CONNECTIONS_FILE=/data/secure/connections.toml"
        told = container.run("env", inside, "pocketmq", "--connection", "admin", "whoami")
        assert "admin" in told
        container.run("pocketmq", "topic", "list", code=4)
        os.kill(container.first, signal.SIGTERM)
        assert container.process.wait(TIMEOUT_S) == 0


def test_a_broker_that_cannot_work_is_not_healthy(image: Image, tmp_path: Path) -> None:
    """The check of a container without a broker fails."""
    data = tmp_path / "data"
    data.mkdir()
    with started(image, data, "namesrv", "--data-dir", "/data") as container:
        container.ready()
        container.run(*image.health, code=1)
