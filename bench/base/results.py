"""Result lines: one JSON object a line, complete with its conditions, so that a file can be read alone.

Lives here: writing and reading them, what kinds there are. Kinds: ``environment`` (first line: machine, versions, disk
sync times), ``floor``, ``run`` (one measured round of one case for one peer), ``skip`` (a peer or case that cannot be
had, with the reason), ``failed``, ``row`` (a result of one of PocketMQ's own cases), ``end``.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

Line = dict[str, object]
KINDS = ("environment", "floor", "run", "skip", "failed", "row", "end")


class ResultFile:
    """Appends result lines to a file; each is there when ``write`` returns."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.lines: list[Line] = []
        self._file: TextIO = path.open("a", encoding="utf-8")

    def write(self, kind: str, **fields: object) -> Line:
        """Write one line and return it. Raises ``ValueError`` for an unknown kind."""
        if kind not in KINDS:
            raise ValueError(f"no such kind of result: {kind}")
        line: Line = {"kind": kind, "at": time.strftime("%Y-%m-%dT%H:%M:%S"), **fields}
        print(json.dumps(line, default=str), file=self._file, flush=True)
        self.lines.append(line)
        return line

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_lines(path: Path) -> list[Line]:
    """Return the lines of a result file; a last line cut short by a killed run is left out. Raises ``ValueError``."""
    return list(_lines(path))


def _lines(path: Path) -> Iterator[Line]:
    texts = path.read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except json.JSONDecodeError as error:
            if number == len(texts):
                return
            raise ValueError(f"{path}:{number} is no JSON: {error}") from error
        if not isinstance(line, dict) or line.get("kind") not in KINDS:
            raise ValueError(f"{path}:{number} is no result line: it needs a kind of {', '.join(KINDS)}")
        yield line
