"""What a process holds, read from outside: memory, descriptors and threads from /proc, tasks and logs where they are.

Lives here: ``Sample``, ``sample``, ``FIELDS``.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KIB: Final = 1024


@dataclass(slots=True, frozen=True)
class Sample:
    """One process at one moment. ``at_s`` counts from the begin of the run; a value is -1 where nobody reports it."""

    process: str
    at_s: float
    rss_bytes: int
    pss_bytes: int
    anon_bytes: int
    """The part of ``rss_bytes`` that is no file."""
    descriptors: int
    threads: int
    tasks: int
    log_bytes: int
    """Everything that the process has logged so far."""
    disk_bytes: int


FIELDS: Final = tuple(field.name for field in dataclasses.fields(Sample))


def sample(process: str, pid: int, at_s: float, *, tasks: int, logs: Iterable[Path], store: Path | None) -> Sample:
    """Read a running process. Raises ``FileNotFoundError`` or ``ProcessLookupError`` when it has ended."""
    proc = Path("/proc") / str(pid)
    memory = _kib(proc / "smaps_rollup")
    status = _kib(proc / "status")
    return Sample(
        process,
        at_s,
        rss_bytes=memory["Rss"] * KIB,
        pss_bytes=memory["Pss"] * KIB,
        anon_bytes=status["RssAnon"] * KIB,
        descriptors=sum(1 for _ in (proc / "fd").iterdir()),
        threads=status["Threads"],
        tasks=tasks,
        log_bytes=sum(_size(path) for path in logs),
        disk_bytes=-1 if store is None else sum(map(_blocks, _files(store))),
    )


def _kib(path: Path) -> dict[str, int]:
    found = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0])
    return found


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _files(directory: Path) -> Iterator[str]:
    for folder, _, names in os.walk(directory):  # passes over directories that are removed meanwhile
        for name in names:
            yield os.path.join(folder, name)


def _blocks(path: str) -> int:
    try:
        return os.stat(path).st_blocks * 512
    except FileNotFoundError:  # retention has removed it meanwhile
        return 0
