"""What a reader must know to compare figures: the machine, the versions, the load at the time.

Lives here: ``environment``, ``library_versions``.
"""

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path

LIBRARIES = (
    "pocketmq",
    "numpy",
    "uvloop",
    "pyarrow",
    "redis",
    "hiredis",
    "nats-py",
    "aio-pika",
    "rstream",
    "aiokafka",
    "confluent-kafka",
    "hdrhistogram",
)


def library_versions() -> dict[str, str]:
    """Return the versions of the client libraries that are installed."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def environment() -> dict[str, object]:
    """Return the machine and its software."""
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "file_system": _file_system(Path.cwd()),
        "load": round(os.getloadavg()[0], 2),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "commit": _commit(),
        "libraries": library_versions(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _file_system(path: Path) -> str:
    """Return the kind of the file system that holds ``path``."""
    best, kind = "", "unknown"
    try:
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount, name, *_ = line.split()
            if (str(path) + "/").startswith(mount.rstrip("/") + "/") and len(mount) > len(best):
                best, kind = mount, name
    except OSError:
        pass
    return kind


def _commit() -> str:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            cwd=Path(__file__).parent,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
