"""RocketMQ's admin tools, many commands in one JVM, and their output.

    with mqadmin(kind, directory, namesrv) as admin:
        output = admin.run("topicStatus", "-t", "Orders")
        output.rows                                          # the table: one dict a line, by the names of its head

Lives here: ``MqAdmin`` (drives ``java/AdminLoop.java``), ``Output``.
"""

import base64
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.interop.toolchain import JavaProcess, java_version, start_java

COMMAND_S = 20.0
"""Commands that go on for ever are interrupted after it."""
NO_LOGS = '<configuration><root level="OFF"/></configuration>\n'
_GAP = re.compile(r"\s{2,}")


@dataclass(frozen=True)
class Output:
    """The result of one command: ``status`` 0 returned, 1 raised, -1 interrupted, else the exit code."""

    command: str
    status: int
    out: str
    err: str

    @property
    def is_ok(self) -> bool:
        """Return whether it ended without an error; the tools print a stack trace and return nevertheless."""
        return self.status == 0 and "Exception" not in self.err + self.out

    @property
    def lines(self) -> list[str]:
        """Return the printed lines that are not empty."""
        return [line.rstrip() for line in self.out.splitlines() if line.strip()]

    @property
    def rows(self) -> list[dict[str, str]]:
        """Return its first table: a head of ``#Names``, then rows until a line with another number of columns."""
        lines = iter(self.lines)
        head = next(line for line in lines if line.startswith("#"))
        names = [name.strip() for name in head.split("#")[1:]]
        rows: list[dict[str, str]] = []
        for line in lines:
            columns = _GAP.split(line.strip())
            if len(columns) != len(names):
                break
            rows.append(dict(zip(names, columns, strict=True)))
        return rows

    @property
    def settings(self) -> dict[str, str]:
        """Return its ``name = value`` and ``name : value`` lines; the last one of a name counts."""
        pairs = (re.split(r"\s*[=:]\s+|\s*[=:]$", line.strip(), maxsplit=1) for line in self.lines)
        return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}

    def __str__(self) -> str:
        return f"$ {self.command} -> {self.status}\n{self.out}\n{self.err}"


class MqAdmin:
    """One JVM with ``MQAdminStartup`` of one version."""

    def __init__(self, kind: str, process: JavaProcess, directory: Path) -> None:
        """See ``mqadmin``."""
        self.kind = kind
        self.directory = directory
        self._process = process

    @property
    def is_5(self) -> bool:
        """Return whether these are the tools of 5.3."""
        return self.kind.endswith("5.3")

    def run(self, *words: str) -> Output:
        """Run one command and return its output."""
        return self.run_for(COMMAND_S, *words)

    def run_for(self, limit_s: float, *words: str) -> Output:
        """Run one command, interrupt it after ``limit_s``, and return its output."""
        assert not any("\t" in word or "\n" in word for word in words)
        self._process.write_line(f"{int(limit_s * 1000)}:" + "\t".join(words))
        answer = self._process.read(limit_s + 10)
        out, err = (base64.b64decode(answer[name]).decode(errors="replace") for name in ("out", "err"))
        return Output(" ".join(words), answer["status"], out, err)

    def ok(self, *words: str, within_s: float = 0) -> Output:
        """Run one command that must work; ``within_s``: once its condition is true."""
        give_up_s = time.monotonic() + within_s
        output = self.run(*words)
        while not output.is_ok and time.monotonic() < give_up_s:
            time.sleep(0.5)
            output = self.run(*words)
        assert output.is_ok, output
        return output


@contextmanager
def mqadmin(kind: str, directory: Path, namesrv: str) -> Iterator[MqAdmin]:
    """Run the tools of ``kind`` against a name server until the block ends; their files go below ``directory``."""
    quiet = directory / "conf" / "logback_tools.xml"
    quiet.parent.mkdir(parents=True, exist_ok=True)
    quiet.write_text(NO_LOGS)
    options = [
        "-Xms64m",
        "-Xmx512m",
        f"-Drocketmq.home.dir={directory}",  # 4.9 reads its log settings there
        f"-Drmq.logback.configurationFile={quiet}",  # 5.3
        f"-Drocketmq.namesrv.addr={namesrv}",
        *(["-Djava.security.manager=allow"] if 12 <= java_version() < 24 else []),
    ]
    with start_java(kind, "AdminLoop", directory=directory, options=options) as process:
        yield MqAdmin(kind, process, directory)
