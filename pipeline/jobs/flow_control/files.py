"""Finding log files, and the parts of a rotated log.

Lives here: ``find_logs``, ``log_of`` (the log that a rotated file is a part of), ``logs_of`` (RocketMQ writes one log
as many files: they are one).
"""

import glob
import os
import re
from collections.abc import Sequence
from typing import Final

from pocketmq.common.errors import ConfigError

FILES_MAX: Final = 100_000
NAMES: Final = re.compile(r"\.(?:log|jsonl|ndjson)(?:[.\-_][\w.\-]*)?(?:\.gz)?$")
"""In a directory: broker.log, broker.log.1, broker.log-20240501.gz, client.jsonl.gz."""
ROCKETMQ_FILES: Final = frozenset(
    (
        *("store", "storeerror", "lock", "watermark", "stats", "remoting", "protection", "transaction", "filter"),
        *("commercial", "broker_default", "broker_traffic", "coldctr", "pop", "auth_audit"),
    )
)
"""Names, without ``.log``, of the files that RocketMQ's broker writes beside broker.log."""
OTHER_DAYS: Final = frozenset(("otherdays", "other_days"))
"""Folders of rotated files: otherdays/broker.1.log in 4.9, otherdays/broker.1.log.gz in 5.3."""
_NUMBERED: Final = re.compile(r"[.\-]\d{1,3}$")
_ROTATED: Final = re.compile(r"(?:\.gz|[.\-_]\d[\d\-_T.:]*)+$")
_INNER: Final = re.compile(r"[.\-_]\d{4,}[\d\-_T]*(?=\.(?:log|jsonl|ndjson)$)")


def find_logs(places: Sequence[str]) -> list[str]:
    """Return the absolute paths of the files that directories (recursively), patterns and paths name, sorted.

    Raises ``ConfigError`` for a place without files, and for too many files.
    """
    found: set[str] = set()
    for place in places:
        path = os.path.abspath(os.path.expanduser(place))
        if os.path.isdir(path):
            new = [
                os.path.join(directory, name)
                for directory, _, names in os.walk(path)
                for name in names
                if NAMES.search(name)
            ]
        elif os.path.isfile(path):
            new = [path]
        else:
            new = [match for match in glob.glob(path, recursive=True) if os.path.isfile(match)]
        if not new:
            hint = "name files, a pattern in quotes, or a directory of logs"
            raise ConfigError("no logs", why=f"nothing at {place}", hint=hint)
        found.update(new)
        if len(found) > FILES_MAX:
            raise ConfigError("too many logs", why=f"more than {FILES_MAX:,} files", hint="name fewer at once")
    return sorted(found)


def log_of(path: str) -> str:
    """Return the log of a file: its path without number or date of rotation and without ``.gz``."""
    directory, name = os.path.split(path)
    return os.path.join(directory, _INNER.sub("", _ROTATED.sub("", name)) or name)


def logs_of(paths: Sequence[str]) -> dict[str, str]:
    """Return the log of each file. All files of RocketMQ's broker in a directory, its rotated ones too, are one log,
    the directory: only one of them names the broker. ``-`` is a log of its own.
    """
    found: dict[str, str] = {}
    of_rocketmq: dict[str, list[str]] = {}
    for path in paths:
        found[path] = log_of(path)
        directory, name = os.path.split(path)
        if os.path.basename(directory) in OTHER_DAYS:
            directory = os.path.dirname(directory)
        name = _NUMBERED.sub("", name.removesuffix(".gz").removesuffix(".log"))
        if name == "broker" or name in ROCKETMQ_FILES:
            of_rocketmq.setdefault(directory, []).append(path)
        elif directory != os.path.dirname(path):
            found[path] = os.path.join(directory, f"{name}.log")
    for directory, files in of_rocketmq.items():
        if any(os.path.basename(path).partition(".")[0] in ROCKETMQ_FILES for path in files):
            found.update(dict.fromkeys(files, directory))
    return found
