"""What a reader must know to compare measurements: the machine, the versions, the load at the time.

Lives here: ``environment``, ``library_versions``.
"""

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path

LIBRARIES = ("pocketmq", "numpy", "uvloop", "pyarrow", "hdrhistogram")
CLIENT_LIBRARIES = ("redis", "hiredis", "nats-py", "aio-pika", "rstream", "aiokafka", "confluent-kafka")


def library_versions() -> dict[str, str]:
    """Return the versions of the installed libraries."""
    found = {}
    for name in LIBRARIES + CLIENT_LIBRARIES:
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


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _processor() -> str:
    models = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _file_system(path: Path) -> str:
    """Return the kind of the file system that holds ``path``."""
    mounts = [line.split()[1:3] for line in _lines("/proc/mounts")]
    holding = [(len(at), kind) for at, kind in mounts if f"{path}/".startswith(at.rstrip("/") + "/")]
    return max(holding, default=(0, "unknown"))[1]


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=False, cwd=Path(__file__).parent
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
