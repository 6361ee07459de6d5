"""The interface of every server of the comparison: install, start, stop, its address.

Lives here: ``Server``, ``Unavailable``, the settings all have in common, the cache directory, installing by apt.
"""

import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bench.base.processes import Child, cpu_s, free_ports, memory_mb, port_answers, threads

INSTALL_S = 600


class Unavailable(Exception):
    """This peer is not available here; the text is one line and says what would help."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server is to keep messages: ``durability`` is ``async``, ``sync`` or ``replicated``."""

    durability: str = "async"


class Server(ABC):
    """One server, its data in the existing ``directory``, on free ports of the loopback address.

    ``obtain`` installs what is needed, once a run, and returns the version; raises ``Unavailable``. ``children`` are
    its processes after ``start``.
    """

    name: ClassVar[str]

    def __init__(self, directory: Path, settings: Settings) -> None:
        self.directory = directory
        self.settings = settings
        self.children: list[Child] = []
        self._ports: list[int] = []

    @classmethod
    @abstractmethod
    def obtain(cls) -> str:
        """Install what is missing and return the version."""

    @abstractmethod
    def start(self) -> None:
        """Start; return when it takes connections. Starts again on the same data after ``stop``."""

    @property
    @abstractmethod
    def target(self) -> dict[str, Any]:
        """What a client must know: host, port and more."""

    def ports(self, count: int, gap: int = 1) -> list[int]:
        """Return its ports, the same at every start, at least ``gap`` apart."""
        self._ports = self._ports or free_ports(count, gap)
        return self._ports

    def launch(
        self,
        command: Sequence[str],
        log_name: str,
        *ports: int,
        within_s: float = 60.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start one of its processes; return when it listens on ``ports``. Raises ``RuntimeError`` with its output."""
        child = Child(command, self.directory / f"{log_name}.log", environment)
        self.children.append(child)
        child.wait_until(lambda: all(map(port_answers, ports)), log_name, within_s)

    def stop(self, kind: signal.Signals = signal.SIGTERM) -> None:
        """End its processes, the last started first."""
        for child in reversed(self.children):
            child.stop(kind)
        self.children = []

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self.children]

    def cpu_s(self) -> float:
        """CPU seconds of all its processes."""
        return cpu_s(self.pids)

    def memory_mb(self) -> dict[str, float]:
        """Resident and anonymous megabytes of all its processes."""
        return memory_mb(self.pids)

    def threads(self) -> int:
        """Threads of all its processes."""
        return threads(self.pids)

    def data_bytes(self) -> int:
        """The size of its directory on the disk (blocks, so that sparse files count as what they hold)."""
        total = 0
        for root, _, names in os.walk(self.directory):
            for name in names:
                try:
                    total += os.stat(os.path.join(root, name)).st_blocks * 512
                except OSError:
                    continue
        return total


def cache_directory() -> Path:
    """Return the directory that keeps built servers and class paths between runs."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = base / "pocketmq-bench"
    path.mkdir(parents=True, exist_ok=True)
    return path


def find_program(name: str, *paths: str) -> str | None:
    """Return the path of a program, which may lie outside the usual PATH."""
    return shutil.which(name) or shutil.which(name, path=":".join(("/usr/sbin", "/usr/local/bin", *paths)))


def installed_by_apt(program: str, package: str, *paths: str) -> str:
    """Return the path of a program, installed by apt where that is allowed. Raises ``Unavailable``."""
    found = find_program(program, *paths)
    if found:
        return found
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Unavailable(f"{program} is not installed: apt-get install {package}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    lock = "-oDPkg::Lock::Timeout=300"
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", package]):
        run_tool(["apt-get", "-q", lock, *arguments], environment, f"{package} cannot be installed by apt")
    found = find_program(program, *paths)
    if not found:
        raise Unavailable(f"the package {package} has no {program}")
    return found


def run_tool(command: list[str], environment: dict[str, str] | None, what: str, directory: Path | None = None) -> str:
    """Run an installing tool and return its output. Raises ``Unavailable`` with ``what`` and the tool's last line."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError:
        raise Unavailable(f"{what}: {command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what}: {command[0]} took longer than {INSTALL_S} s") from None
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in lines if "ERROR" in line or line.startswith("E:")] or lines[-1:]
        raise Unavailable(f"{what}: {' '.join(errors[:1])[:300]}")
    return done.stdout
