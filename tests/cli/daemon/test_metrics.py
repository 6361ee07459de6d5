"""``pocketmq metrics record``: whole snapshots in files that rotate, whatever the broker does in between."""

import gzip
import http.server
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.cli.daemon.metrics_recorder import PAGE_BYTES_MAX, Recorder
from pocketmq.common.errors import ConfigError
from tests.signals import interruptible

NOW_MS = 1_795_286_040_000


class Broker:
    """A page of metrics and one of health on a port of its own; ``status`` and ``body`` may be changed."""

    def __init__(self) -> None:
        self.status, self.body, self.name = 200, b"pocketmq_topics 1\n", b'"broker-a"'
        broker = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_health = self.path == "/health"
                self.send_response(503 if is_health else broker.status)
                self.end_headers()
                self.wfile.write(b'{"broker":%s}' % broker.name if is_health else broker.body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker that answers."""
    served = Broker()
    yield served
    served.close()


class Told:
    """A recorder with a clock of the test."""

    def __init__(
        self, broker: Broker, path: Path, *, rotate_bytes: int = 1 << 20, keep: int = 0, name: str = ""
    ) -> None:
        self.now_ms = NOW_MS
        self.said: list[str] = []
        self.recorder = Recorder(
            broker.url,
            name,
            path,
            rotate_bytes=rotate_bytes,
            keep=keep,
            say=self.said.append,
            now_ms=lambda: self.now_ms,
        )

    def snapshot(self, *, after_ms: int = 10_000) -> bool:
        self.now_ms += after_ms
        return self.recorder.snapshot()


def test_snapshots_stand_one_after_the_other_with_name_and_time(broker: Broker, tmp_path: Path) -> None:
    """The name is the one that /health says, even while it says 503; a page without a last new line gets one."""
    told = Told(broker, tmp_path / "a.prom")
    assert told.snapshot()
    broker.body = b"pocketmq_topics 2"
    assert told.snapshot()
    assert (tmp_path / "a.prom").read_text() == (
        f"# scraped broker-a {NOW_MS + 10_000}\npocketmq_topics 1\n"
        f"# scraped broker-a {NOW_MS + 20_000}\npocketmq_topics 2\n"
    )


def test_a_broker_that_does_not_answer_is_told_once_and_asked_again(broker: Broker, tmp_path: Path) -> None:
    """Errors and pages that are too large leave no line in the file."""
    told = Told(broker, tmp_path / "a.prom")
    assert told.snapshot()
    broker.status = 500
    assert not told.snapshot()
    assert not told.snapshot()
    broker.status, broker.body = 200, b"#" * (PAGE_BYTES_MAX + 1)
    assert not told.snapshot()
    broker.body = b"# scraped broker-z 1\n"
    assert not told.snapshot()
    broker.body = b"pocketmq_topics 2\n"
    assert told.snapshot()
    assert (told.recorder.written, told.recorder.missed) == (2, 4)
    assert [text.split(":")[0] for text in told.said] == ["no snapshot"] * 3 + ["snapshots again"]
    assert (tmp_path / "a.prom").read_text().count("# scraped") == 2


def test_a_full_file_is_put_aside_and_the_next_begins_with_its_last_page(broker: Broker, tmp_path: Path) -> None:
    """By size and by day; so many old ones stay; files of others stay always."""
    (tmp_path / "a.prom.old").touch()
    told = Told(broker, tmp_path / "a.prom", rotate_bytes=100, keep=2)
    for number in range(9):
        broker.body = b"pocketmq_topics %d\n" % number
        assert told.snapshot()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert len(names) == 4, names
    assert names[0] == "a.prom"
    assert names[-1] == "a.prom.old"
    packed = gzip.decompress((tmp_path / names[2]).read_bytes()).decode()
    assert packed.endswith("pocketmq_topics 7\n"), "the file before ends with the page that this one begins with"
    text = (tmp_path / "a.prom").read_text()
    assert text.startswith("# scraped broker-a ")
    assert text.split("\n", 1)[0].endswith(" again")
    assert text.endswith("pocketmq_topics 8\n")
    daily = Told(broker, tmp_path / "b.prom")
    assert daily.snapshot()
    assert daily.snapshot(after_ms=86_400_000)
    assert len(list(tmp_path.glob("b.prom*"))) == 2


def test_a_half_line_of_an_earlier_run_is_ended(broker: Broker, tmp_path: Path) -> None:
    """A mark of a snapshot always begins a line."""
    path = tmp_path / "a.prom"
    path.write_bytes(b"pocketmq_topics 1")
    told = Told(broker, path)
    told.now_ms = int(path.stat().st_mtime * 1000)
    assert told.snapshot(after_ms=0)
    assert path.read_bytes().startswith(b"pocketmq_topics 1\n# scraped broker-a ")


def test_a_name_that_nobody_can_use_is_refused(broker: Broker, tmp_path: Path) -> None:
    """A name is part of a line: no spaces, no new lines; and a page without a name asks for one."""
    with pytest.raises(ConfigError, match="--broker"):
        Told(broker, tmp_path / "a.prom", name="a b\n")
    broker.name = b'"evil\\nname"'
    with pytest.raises(ConfigError, match="--broker"):
        Told(broker, tmp_path / "a.prom").snapshot()


@pytest.mark.slow
def test_the_command_ends_cleanly_on_sigint(broker: Broker, tmp_path: Path) -> None:
    """Exit code 0, the number of snapshots, and a file that ends with a whole page."""
    path = tmp_path / "a.prom"
    words = [sys.executable, "-m", "pocketmq.cli.main", "metrics", "record", "--url", broker.url, "-o", str(path)]
    with interruptible():
        process = subprocess.Popen([*words, "--interval", "60"], stderr=subprocess.PIPE, text=True)
    with process:
        deadline = threading.Event()
        for _ in range(600):
            if path.exists() and path.stat().st_size:
                break
            deadline.wait(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert "1 snapshots written, 0 missed" in errors
    assert path.read_text().endswith("pocketmq_topics 1\n")
