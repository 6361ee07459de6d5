"""The check of a container: a real broker's page, plain and over TLS, and what is not well."""

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pocketmq.cli.daemon.health_check import DEFAULT_PORT, PORT_VARIABLE, main, reasons
from pocketmq.remoting.http_server import DEFAULT_PORT as METRICS_PORT
from pocketmq.testing import PocketBroker
from tests.cli.conftest import StartDaemon
from tests.servers import free_port


@contextmanager
def page(status: int, body: bytes) -> Iterator[int]:
    """Serve one page; yield the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_it_asks_where_the_daemons_serve() -> None:
    assert DEFAULT_PORT == METRICS_PORT


def test_it_says_why_a_broker_is_not_well(capsys: pytest.CaptureFixture[str]) -> None:
    with page(503, b'{"status": "DOWN", "reasons": ["disk_full", "fenced"]}') as port:
        assert main([], {PORT_VARIABLE: str(port)}) == 1
    assert capsys.readouterr().out == "disk_full, fenced\n"


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b'{"reasons": 1}'])
def test_a_page_that_says_nothing_is_not_well(body: bytes) -> None:
    with page(500, body) as port:
        assert reasons(port) == "/health answered 500"


def test_nobody_there_is_not_well(capsys: pytest.CaptureFixture[str]) -> None:
    port = str(free_port())
    assert main([], {PORT_VARIABLE: port}) == 1
    assert f"no /health at 127.0.0.1:{port}" in capsys.readouterr().out
    assert main(["--port", port], {}) == 1
    assert main(["--port"], {}) == 1
    assert "usage" in capsys.readouterr().out


def test_a_name_server_is_well_where_it_accepts_connections() -> None:
    with PocketBroker() as broker:
        assert main(["--port", broker.namesrv.rpartition(":")[2]], {}) == 0


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True])
def test_a_real_broker_is_well(start_daemon: StartDaemon, tmp_path: Path, tls: bool) -> None:
    """As its own process, which reads nothing but the standard library."""
    port = str(free_port())
    arguments = ["--namesrv-port", "0", "--broker-port", "0", "--set", f"metrics.listen_port={port}"]
    if tls:
        from pocketmq.cli.tls.making import make_certificates

        make_certificates(tmp_path / "tls", ["localhost", "127.0.0.1"], 1, "admin")
        settings = {"server_mode": "enforcing", "enable": "true", "server_cert_path": tmp_path / "tls" / "server.pem"}
        settings |= {"server_key_path": tmp_path / "tls" / "server.key"}
        settings |= {"client_trust_cert_path": tmp_path / "tls" / "ca.pem"}
        for name, value in settings.items():
            arguments += ["--set", f"tls.{name}={value}"]
    daemon = start_daemon("standalone", *arguments, env={PORT_VARIABLE: port})
    done = subprocess.run(
        [sys.executable, "-m", "pocketmq.cli.daemon.health_check"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), PORT_VARIABLE: port},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert daemon.end()[0] == 0


def test_it_imports_nothing_of_the_server() -> None:
    code = "import sys, pocketmq.cli.daemon.health_check; print([m for m in sys.modules if m.startswith('pocketmq')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(eval(done.stdout))
    assert loaded <= {"pocketmq", "pocketmq.cli", "pocketmq.cli.daemon", "pocketmq.cli.daemon.health_check"}
