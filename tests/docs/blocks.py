"""The code blocks of the pages, and how to run them against a real broker.

A block in ``python``, ``console`` or ``sh`` is run as a reader would run it. A comment above it may say otherwise:

    <!-- not run: REASON -->           what it needs that a test has not
    <!-- block: file=worker.py -->     save it under this name; a program is run, test_x.py is not
    <!-- block: run=pytest -->         run the test that was saved
    <!-- block: in=NAME -->            a fragment: it takes the place of BLOCK in a program of tests/docs/frames.py
    <!-- block: until="TEXT" -->       the program runs on: end it with SIGTERM when it has printed this text
    <!-- block: feed="TOPIC text" -->  send this before the block runs; "TOPIC/TAG text" with a tag

Lives here: ``Block``, ``blocks_of``, and ``session``, which runs the blocks of one page in one directory.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pocketmq.cli.own_broker import OwnBroker
from pocketmq.client import Message
from pocketmq.client.blocking import Producer
from tests.docs import frames
from tests.docs.daemon import SMALL
from tests.servers import free_port

ROOT: Final = Path(__file__).resolve().parents[2]
ADDRESSES: Final = ("127.0.0.1:9876", "127.0.0.1:10911", "127.0.0.1:5557")
"""Name server, broker and metrics on the pages."""
PYTEST: Final = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto")
RUN: Final = {"python", "console", "sh"}
TIMEOUT_S: Final = 140.0

FENCE: Final = re.compile(
    r"(?:^<!-- (?P<verb>not run|block): (?P<note>[^\n]*?) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>[\w-]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)

SHELL: Final = """
set -e
shopt -s expand_aliases
python() { PYTHON "$@"; }
python3() {  # what the pages install is there
    if [ "$2" = venv ]; then mkdir -p "$3/bin" && touch "$3/bin/activate"; else PYTHON "$@"; fi
}
pip() { :; }
make() { :; }
command -v curl > /dev/null ||
    curl() { PYTHON -c 'import sys, urllib.request as u; print(u.urlopen("http://" + sys.argv[-1]).read())' "$@"; }
pytest() { PYTHON -m pytest -p no:cacheprovider "$@"; }
pocketmq() {
    case "$1" in
        standalone|broker|namesrv|cluster) PYTHON -m tests.docs.daemon "$@" ;;
        *) PYTHON -m pocketmq.cli.main "$@" ;;
    esac
}
"""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; ``line`` is that of its fence."""

    page: str
    line: int
    language: str
    text: str
    not_run: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        return self.language in RUN and not self.not_run

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of a page of the repository, such as ``docs/delay.md``."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("indent")) + 1
        note = match["note"] or ""
        options = dict(each.split("=", 1) for each in shlex.split(note)) if match["verb"] == "block" else {}
        yield Block(
            page,
            line,
            match["language"],
            textwrap.dedent(match["text"]),
            note if match["verb"] == "not run" else "",
            options,
        )


def commands(block: Block) -> str:
    """Return what a reader types; an error that the block shows is expected."""
    if block.language == "sh":
        return block.text
    lines, typed = block.text.splitlines(), []
    for number, line in enumerate(lines):
        if line.startswith("$ "):
            fails = number + 1 < len(lines) and lines[number + 1].startswith("error:")
            typed.append(f"if {line[2:]}\nthen exit 1; fi" if fails else line[2:])
        elif typed and lines[number - 1].endswith("\\"):
            typed.append(line)
    return "\n".join(typed)


class Session:
    """Runs the blocks of one page, in order, in ``directory``, with servers at other ``addresses`` than the page's."""

    def __init__(self, directory: Path, addresses: tuple[str, ...]) -> None:
        self._directory = directory
        host, _, port = addresses[1].partition(":")
        self._here_is = {
            **dict(zip(ADDRESSES, addresses, strict=True)),
            '"127.0.0.1", 10911': f'"{host}", {port}',
            "/var/lib/pocketmq": str(directory / "pocketmq-data"),
            "/var/lib/": f"{directory}/",
            "/data/": f"{directory}/data/",
        }
        self._namesrv = addresses[0]
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "PYTHONUNBUFFERED": "1",
            "POCKETMQ_NAMESRV": self._namesrv,
            "NO_COLOR": "1",
        }
        for name in ("examples", "pipeline"):
            (directory / name).symlink_to(ROOT / name)

    def run(self, block: Block) -> None:
        """Run a block; raise ``AssertionError`` with its output if it fails."""
        text = block.text
        name = block.options.get("file", "")
        if name and not name.endswith(".py"):
            (self._directory / name).write_text(self._here(text))
            return
        if topic := block.options.get("feed"):
            self._feed(topic)
        if block.language == "python":
            if frame := block.options.get("in"):
                text = frames.fill(frame, text)
            path = self._directory / (name or f"block_{block.line}.py")
            path.write_text(self._here(text))
            if block.options.get("run") == "pytest":
                self._check(block, [sys.executable, *PYTEST, str(path)])
            elif not path.name.startswith("test_"):
                self._check(block, [sys.executable, str(path)])
        else:
            script = SHELL.replace("PYTHON", shlex.quote(sys.executable))
            self._check(block, ["bash", "-c", script + self._here(commands(block))])

    def _here(self, text: str) -> str:
        for of_page, of_test in self._here_is.items():
            text = text.replace(of_page, of_test)
        return text

    def _feed(self, what: str) -> None:
        place, _, body = what.partition(" ")
        topic, _, tags = place.partition("/")
        with Producer("docs", self._namesrv) as producer:
            producer.send(Message(topic, body.encode(), tags=tags))

    def _check(self, block: Block, command: list[str]) -> None:
        until, output = block.options.get("until"), ""
        with subprocess.Popen(
            command,
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            timer = threading.Timer(TIMEOUT_S, os.killpg, (process.pid, signal.SIGKILL))
            timer.start()
            try:
                for line in process.stdout:
                    output += line
                    if until and until in output:
                        until = None
                        process.send_signal(signal.SIGTERM)
            finally:
                timer.cancel()
        assert process.returncode == 0, f"{block} ended with {process.returncode}:\n{output}"
        assert until is None, f"{block} did not print {until!r}:\n{output}"


@contextmanager
def session(directory: Path) -> Iterator[Session]:
    """Run the servers that the pages assume: ``pocketmq standalone`` in this directory."""
    metrics = f"127.0.0.1:{free_port()}"
    arguments = [*SMALL, "--set", f"metrics.listen_port={metrics.rpartition(':')[2]}"]
    with OwnBroker(data_dir=directory / "pocketmq-data", arguments=arguments) as broker:
        yield Session(directory, (broker.namesrv, broker.address, metrics))
