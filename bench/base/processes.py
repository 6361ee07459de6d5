"""Processes that the benchmark starts: their logs, their end, their CPU time and memory.

Lives here: ``Child``, free ports, waiting for a port.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

STOP_S = 20.0
PR_SET_PDEATHSIG = 1
"""``linux/prctl.h``: the signal a child gets when its parent has ended."""


def free_ports(count: int, gap: int = 1) -> list[int]:
    """Return free ports of the loopback address, at least ``gap`` apart."""
    found: list[int] = []
    held = []
    while len(found) < count:
        server = socket.create_server(("127.0.0.1", 0))
        held.append(server)
        port: int = server.getsockname()[1]
        if all(abs(port - other) >= gap for other in found) and port < 60_000:
            found.append(port)
        if len(held) > 1000:
            raise RuntimeError("no free ports on the loopback address")
    for server in held:
        server.close()
    return found


def port_answers(port: int) -> bool:
    """Say whether something listens there."""
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Child:
    """A process with its output in ``log_path``. It ends with this process, even if that is killed."""

    def __init__(self, command: Sequence[str], log_path: Path, environment: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.log_path = log_path
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
                preexec_fn=_die_with_parent,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until(self, is_up: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        """Return when ``is_up``; raise with the end of the log when the process ends or the time is over."""
        give_up = time.monotonic() + timeout_s
        while not is_up():
            code = self.process.poll()
            if code is not None or time.monotonic() > give_up:
                why = f"ended with code {code}" if code is not None else f"is not up after {timeout_s:.0f} s"
                raise RuntimeError(f"{what} {why}: {self.tail()}")
            time.sleep(0.02)

    def tail(self, characters: int = 600) -> str:
        """Return the end of what it printed, on one line."""
        return " ".join(self.log_path.read_text(errors="replace")[-characters:].split())

    def stop(self, kind: signal.Signals = signal.SIGTERM) -> None:
        """End it; by force when it does not go."""
        if self.process.poll() is None:
            self.process.send_signal(kind)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def family(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    found = [pid]
    for each in found:
        try:
            tasks = list(Path(f"/proc/{each}/task").iterdir())
            found += [int(child) for task in tasks for child in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def _files(pids: Sequence[int], name: str) -> Iterator[str]:
    """Yield the text of ``/proc/PID/NAME`` for processes and their descendants, as far as they still run."""
    for pid in [each for root in pids for each in family(root)]:
        try:
            yield Path(f"/proc/{pid}/{name}").read_text()
        except OSError:
            continue


def _fields(pids: Sequence[int]) -> Iterator[dict[str, str]]:
    for text in _files(pids, "status"):
        yield dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def cpu_s(pids: Sequence[int]) -> float:
    """Return the CPU seconds, user and system, that processes and their children have used."""
    stats = [text.rsplit(")", 1)[1].split() for text in _files(pids, "stat")]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")


def memory_mb(pids: Sequence[int]) -> dict[str, float]:
    """Return resident and anonymous megabytes; mapped file pages are resident, but belong to the page cache."""
    processes = list(_fields(pids))
    names = {"resident_mb": "VmRSS", "anonymous_mb": "RssAnon"}
    return {
        key: round(sum(int(fields.get(name, "0").split()[0]) for fields in processes) / 1024, 1)
        for key, name in names.items()
    }


def machine_busy_s() -> float:
    """Return the CPU seconds that all processes of the machine have used since it started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal = (int(each) for each in fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def threads(pids: Sequence[int]) -> int:
    """Return how many threads the processes have."""
    return sum(int(fields["Threads"]) for fields in _fields(pids))
