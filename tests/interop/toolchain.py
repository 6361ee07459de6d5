"""Java for the interop tests: class paths by Maven, our own small programs by javac, processes with a bounded end.

    require_java()                                       # skips the test, with one line that names the missing program
    with start_java("client-5.3", "Clients", directory=tmp_path) as java:
        java.send("produce", topic="T", body="hello")    # one line on its stdin
        answer = java.read(10)                           # one JSON line of its stdout

Programs live in ``java/`` (every kind), ``java/client`` and ``java/server`` (kinds of that family), ``java/5.3`` (kinds
of that version). A file without a ``main`` is shared: others may name its class. What Maven and javac make is kept in a
cache directory of the user, by the hash of what it was made of; delete it freely.

Lives here: tools, class paths, compiling, processes.
"""

import fcntl
import functools
import hashlib
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import pytest

JAVA_FOLDER = Path(__file__).parent / "java"
MODES = ("4.2.0", "4.4.0", "4.7.1", "4.9.8", "5.1.4", "5.3.3")
"""Versions of RocketMQ's Java client whose modes are tested; they share one POM."""
KINDS = (
    *("client-4.9", "client-5.3", "server-4.9", "server-5.3"),
    *(f"modes-{version}" for version in MODES),
    "grpc-5.2",
    *("spring-boot", "spring-stream", "camel-main"),
)
JAVA_MIN = 8
MAVEN_S = 240.0
JAVAC_S = 120.0
STOP_S = 15.0
SHOWN_LINES = 60
JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
    "-Dfile.encoding=UTF-8",
)
"""Short-lived JVMs on few cores: the first compiler and the serial collector are enough."""
MODULE_OPTIONS = tuple(
    f"--add-{what}=java.base/{package}=ALL-UNNAMED"
    for what in ("opens", "exports")
    for package in ("java.lang", "java.nio", "java.util", "jdk.internal.ref", "sun.nio.ch")
)
"""RocketMQ 4.9 unmaps its files, and Netty finds direct buffers, by reflection that Java 16 and later must allow."""

LOGBACK_5_3 = """<configuration>
  <appender name="file" class="org.apache.rocketmq.logging.ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%d %p %t %c{{0}} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


def require_java() -> None:
    """Skip the test where Java, javac or Maven is missing, with one line that says how to install it."""
    why = _missing()
    if why is not None:
        pytest.skip(why)


@functools.cache
def _missing() -> str | None:
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing:
        install = "apt-get install --no-install-recommends openjdk-17-jdk-headless maven"
        return f"interop tests need {', '.join(missing)}: {install}"
    if java_version() < JAVA_MIN:
        return f"interop tests need Java {JAVA_MIN} or later, this is {java_version()}"
    return None


@functools.cache
def java_version() -> int:
    """Return the major version of ``java``: 8, 11, 17."""
    said = subprocess.run(["java", "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60)
    for line in said.stderr.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "java.specification.version":
            return int(value.strip().removeprefix("1."))
    raise RuntimeError(f"java does not say its version: {said.stderr[-500:]}")


def cache_folder() -> Path:
    """Return the user's folder for the output of Maven and javac."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(root) / "pocketmq-interop"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _only_one() -> Iterator[None]:
    """Let one process at a time fill the cache."""
    with (cache_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def classpath(kind: str) -> str:
    """Return the class path of one of ``KINDS``, as Maven resolves its POM; every file of it exists."""
    assert kind in KINDS
    text = _pom(kind)
    kept = cache_folder() / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.classpath"
    with _only_one():
        if kept.exists():
            found = kept.read_text()
            if all(map(os.path.exists, found.split(os.pathsep))):
                return found
        with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
            output, pom = Path(scratch) / "classpath", Path(scratch) / "pom.xml"
            pom.write_text(text)
            command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={output}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_S, cwd=scratch)
            if done.returncode != 0:
                raise RuntimeError(f"Maven does not resolve the POM of {kind}:\n{(done.stdout + done.stderr)[-3000:]}")
            found = output.read_text().strip()
            output.replace(kept)
    return found


def _pom(kind: str) -> str:
    family, version = kind.split("-")
    if family == "modes":
        return (JAVA_FOLDER / "pom-modes.xml").read_text().replace("@VERSION@", version)
    return (JAVA_FOLDER / f"pom-{kind}.xml").read_text()


def _folders(kind: str) -> list[Path]:
    family, version = kind.split("-")
    return [folder for name in (".", family, version, kind) if (folder := JAVA_FOLDER / name).is_dir()]


def _has_main(source: Path) -> bool:
    return "static void main(" in source.read_text()


def compiled(kind: str, main_class: str) -> Path:
    """Return the folder with ``main_class`` and the classes it uses, compiled against ``kind``."""
    folders = _folders(kind)
    sources = [path for folder in folders for path in sorted(folder.glob("*.java"))]
    [main] = [path for path in sources if path.stem == main_class]
    shared = [path for path in sources if not _has_main(path)]
    digest = hashlib.sha256(classpath(kind).encode())
    for path in (main, *shared):
        digest.update(path.read_bytes())
    target = cache_folder() / "classes" / f"{kind}-{main_class}-{digest.hexdigest()[:16]}"
    if target.is_dir():
        return target
    with _only_one(), tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        made = Path(scratch) / "classes"
        made.mkdir()
        command = ["javac", "-nowarn", "-proc:none", "-encoding", "UTF-8", "-implicit:class", "-d", str(made)]
        command += ["-cp", classpath(kind), "-sourcepath", os.pathsep.join(map(str, folders)), str(main)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=JAVAC_S)
        if done.returncode != 0:
            raise RuntimeError(f"{main.name} does not compile against {kind}:\n{done.stderr[-3000:]}")
        target.parent.mkdir(exist_ok=True)
        if not target.is_dir():
            made.replace(target)
    return target


class JavaProcess:
    """One started JVM: lines in, JSON lines out; ``output`` has all its text for the report of a failure. A line of
    stdout that begins with ``{`` is an answer; all other text, and stderr, goes to the file. ``stop`` always ends it:
    SIGTERM, then SIGKILL after a bounded wait, and only this process.
    """

    def __init__(self, command: Sequence[str], directory: Path, environment: dict[str, str] | None = None) -> None:
        """Start it with ``directory`` as its working directory and home."""
        directory.mkdir(parents=True, exist_ok=True)
        self.output = Path(tempfile.mkstemp(prefix="java-", suffix=".log", dir=directory)[1])
        self._log = self.output.open("ab", buffering=0)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=directory,
            env=os.environ | (environment or {}),
        )
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_output, name="java-output", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self.process.pid

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._log.write(line)
            if line.startswith(b"{"):
                try:
                    self._answers.put(json.loads(line))
                except ValueError:
                    continue  # no answer: it is in the file
        self._answers.put(None)

    def send(self, verb: str, /, **fields: object) -> None:
        """Write one command: the verb, then name=value with both percent-encoded."""
        words = [verb, *(f"{quote(name)}={quote(str(value), safe='')}" for name, value in fields.items())]
        self.write_line(" ".join(words))

    def write_line(self, line: str) -> None:
        """Write one line to its stdin."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise self.failure(f"it ended before {line.split(' ')[0]!r}") from error

    def read(self, timeout_s: float) -> dict[str, Any]:
        """Return its next answer; fails with the end of its output when there is none in time."""
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise self.failure(f"no answer for {timeout_s:g} s") from None
        if answer is None:
            self._answers.put(None)
            raise self.failure(f"it ended with {self.process.poll()}")
        return answer

    def call(self, verb: str, /, timeout_s: float = 30, **fields: Any) -> dict[str, Any]:
        """Send one command and return its answer; fail if the answer is ``failed``."""
        self.send(verb, **fields)
        answer = self.read(timeout_s)
        if "failed" in answer:
            raise self.failure(f"{verb}: {answer['failed']}")
        return answer

    def failure(self, what: str) -> AssertionError:
        """Return an error with the reason and the end of its output."""
        return AssertionError(f"Java process {self.pid}: {what}; the end of its output:\n{self.last_lines()}")

    def last_lines(self) -> str:
        """Return the last lines of its output."""
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-SHOWN_LINES:])

    def kill(self) -> None:
        """End it with SIGKILL and wait."""
        self.process.kill()
        self.process.wait(STOP_S)

    def stop(self) -> None:
        """Stop it, gracefully if possible."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._reader.join(STOP_S)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _log_options(kind: str, main_class: str, directory: Path) -> list[str]:
    """Return options that make 5.3 write one plain log below ``directory`` instead of its forty rolling ones."""
    if not kind.endswith("5.3"):
        return []
    name = main_class.rsplit(".", 1)[-1]
    logback = directory / f"logback-{name}.xml"
    directory.mkdir(parents=True, exist_ok=True)
    logback.write_text(LOGBACK_5_3.format(file=directory / f"{name}.log"))
    return [f"-Drmq.logback.configurationFile={logback}"]


def java_command(
    kind: str, main_class: str, directory: Path, options: Sequence[str], arguments: Sequence[str]
) -> list[str]:
    """Return the command line of one JVM; ``main_class`` with a dot is one of RocketMQ's, otherwise ours."""
    path = classpath(kind)
    if "." not in main_class:
        path = os.pathsep.join((str(compiled(kind, main_class)), path))
    modules = MODULE_OPTIONS if java_version() >= 9 else ()
    homes = [f"-Duser.home={directory}", f"-Djava.io.tmpdir={directory}"]
    return [
        "java",
        *JVM_OPTIONS,
        *modules,
        *homes,
        *_log_options(kind, main_class, directory),
        *options,
        "-cp",
        path,
        main_class,
        *arguments,
    ]


def start_java(
    kind: str, main_class: str, *arguments: str, directory: Path, options: Sequence[str] = ("-Xms64m", "-Xmx512m")
) -> JavaProcess:
    """Start ``main_class`` in a JVM of its own with the jars of ``kind``; ``options`` are the JVM's.

    RocketMQ writes its logs below ``directory``, which is its home.
    """
    require_java()
    return JavaProcess(java_command(kind, main_class, directory, options, arguments), directory)


def wait_until(is_so: object, timeout_s: float, what: str, *, pause_s: float = 0.1) -> None:
    """Wait until ``is_so()`` is true; after the timeout fail with ``what``."""
    assert callable(is_so)
    give_up_s = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > give_up_s:
            raise AssertionError(f"{what}: not within {timeout_s:g} s")
        time.sleep(pause_s)
