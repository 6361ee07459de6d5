"""What the start of a server must not import: each of these cost it time and memory once, and none is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import environment

pytestmark = pytest.mark.slow

NOT_AT_A_START = (
    *("typer", "click", "rich", "pygments", "pydantic", "shellingham"),  # the command line for people
    *("structlog", "prometheus_client", "http", "email", "wsgiref"),
    *("lark", "pyarrow", "pandas", "numpy.random", "numpy.fft", "numpy.polynomial", "numpy.ma", "unittest"),
    *("pocketmq.client", "pocketmq.pipeline", "pocketmq.cli.app", "pocketmq.cli.admin", "pocketmq.cli.messages"),
    *("pocketmq.cli.scenario", "pocketmq.cli.doctor", "pocketmq.cli.bench", "pocketmq.cli.log"),
    *("pocketmq.testing.broker", "pocketmq.store.offline"),
)

SERVE_AND_TELL = """
import atexit, os, signal, sys, threading
from pocketmq.cli.daemon import daemon
from pocketmq.cli import main

class Ready:
    '''Standard output: when the ready line is written the server is up, and is asked to stop.'''
    def write(self, text):
        global loaded
        loaded = sorted(sys.modules)
        os.kill(os.getpid(), signal.SIGTERM)
    def flush(self):
        pass

out, sys.stdout = sys.stdout, Ready()
sys.argv = ["pocketmq", *sys.argv[1:]]
main.main()
out.write("\\n".join(loaded))
"""


@pytest.mark.parametrize("kind", ["standalone", "broker", "namesrv"])
def test_a_server_serves_without_them(tmp_path: Path, kind: str) -> None:
    arguments = [] if kind == "namesrv" else ["--broker-port", "0"]
    arguments += ["--namesrv-port", "0"] if kind != "broker" else []
    done = subprocess.run(
        [sys.executable, "-c", SERVE_AND_TELL, kind, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment(),
        cwd=tmp_path,
    )
    loaded = done.stdout.split()
    assert "pocketmq.cli.daemon.daemon" in loaded, done.stderr
    assert "numpy" in loaded
    found = [name for name in loaded if any(name == each or name.startswith(each + ".") for each in NOT_AT_A_START)]
    assert found == []


def test_the_first_scrape_imports_nothing(tmp_path: Path) -> None:
    """A page must not wait for modules on a disk that hangs."""
    script = (
        "import sys\n"
        "from pocketmq.common.exposition import Family, page\n"
        "before = set(sys.modules)\n"
        "family = Family('x', 'help', 'gauge', ('l',)); family.add_value(('v',), 1.5)\n"
        "page([family])\n"
        "print(sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n", "")
