"""The programs of ``examples/apps``: web application, supervised worker, cron script, notebook, test suite."""

import asyncio
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import Message
from pocketmq.client import Producer as AsyncProducer
from pocketmq.client.blocking import Producer
from pocketmq.testing.broker import PocketBroker

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
APPS = ROOT / "examples" / "apps"


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)} (pocketmq[dev])")


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker() as running:
        yield running


def environment(broker: PocketBroker, **extra: str) -> dict[str, str]:
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    commands = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "PATH": commands,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "POCKETMQ_NAMESRV": broker.namesrv,
        **extra,
    }


def run(broker: PocketBroker, *command: str, cwd: Path = APPS, **extra: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment(broker, **extra),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


FASTAPI = """
import sys
from fastapi.testclient import TestClient
from fastapi_app import app
for start in range(3):
    with TestClient(app) as client:
        for number in range(2):
            order = {"number": 10 * start + number, "cents": 250}
            assert client.post("/orders", json=order).status_code == 202
            assert client.get(f"/orders/{order['number']}").json() == order
print("restarted", start + 1)
"""


@needs("fastapi", "httpx")
def test_a_web_application_is_started_again_by_its_test_client(broker: PocketBroker) -> None:
    """Producer and consumer belong to the module; each test client has an event loop of its own."""
    assert run(broker, "-c", FASTAPI) == "restarted 3\n"


def test_a_cron_script_reads_what_is_new(broker: PocketBroker) -> None:
    """Each run goes on where the last one has committed; a body that is no order does not stop it."""
    with Producer("shop", broker.namesrv) as producer:
        producer.send_batch([Message.of("ShopOrders", {"number": 900 + n, "cents": 5}) for n in range(4)])
        producer.send(Message("ShopOrders", b"?"))
        first = run(broker, "cron_report.py")
        found = re.search(r"(\d+) orders, (\d+) cents, 1 unreadable", first)
        assert found is not None, first
        assert int(found[1]) >= 4  # and those of the web application
        assert run(broker, "cron_report.py") == "0 orders, 0 cents, 0 unreadable\n"
        producer.send(Message.of("ShopOrders", {"number": 990, "cents": 7}))
        assert run(broker, "cron_report.py") == "1 orders, 7 cents, 0 unreadable\n"


NOTEBOOK = """
import ast, asyncio, sys
names = {"__name__": "__main__"}
async def cells():
    for cell in open(sys.argv[1]).read().split("# %%"):
        code = compile(cell.removeprefix(" [markdown]"), "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if result is not None:
            await result
asyncio.run(cells())
"""


def test_the_cells_of_a_notebook_run_in_its_loop(broker: PocketBroker) -> None:
    """One loop for all cells; the blocking face warns, and works."""
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK, "notebook.py"],
        cwd=APPS,
        env=environment(broker),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "3 sent\n[0, 1, 2]\n[0, 1, 2]\n3\n"), done.stderr
    assert done.stderr.count("RuntimeWarning: a blocking call") == 1


@needs("xdist", "pytest_asyncio")
def test_a_suite_of_50_tests_runs_on_several_processes(broker: PocketBroker, tmp_path: Path) -> None:
    """Each test has its own broker or topic, and none disturbs another."""
    shutil.copytree(APPS / "shop_tests", tmp_path / "shop_tests")
    options = ["-q", "-n", "2", "-p", "no:cacheprovider", "-p", "pocketmq.testing.pytest_plugin"]
    if any(entry.name == "pocketmq" for entry in importlib.metadata.entry_points(group="pytest11")):
        del options[-2:]
    assert "50 passed" in run(broker, "-m", "pytest", *options, cwd=tmp_path / "shop_tests")


class Supervisor:
    """A real supervisord with the example's worker, in a directory of its own."""

    def __init__(self, broker: PocketBroker, directory: Path) -> None:
        for name in ("orders_worker.py", "supervisord.conf"):
            shutil.copy(APPS / name, directory)
        # the command of this environment, which may have no script
        text = (directory / "supervisord.conf").read_text()
        command = f"{sys.executable} -m pocketmq.cli.main worker"
        (directory / "supervisord.conf").write_text(text.replace("command=pocketmq worker", f"command={command}"))
        self.directory = directory
        with (directory / "log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "supervisor.supervisord", "-n", "-c", "supervisord.conf"],
                cwd=directory,
                env=environment(broker, SHOP_DIRECTORY=str(directory)),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def lines(self) -> list[dict[str, Any]]:
        path = self.directory / "packed.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    async def until(self, count: int) -> list[dict[str, Any]]:
        """Wait until the worker has written so many lines."""
        async with asyncio.timeout(100):
            while len(self.lines()) < count:
                assert self.process.poll() is None, (self.directory / "log").read_text()
                await asyncio.sleep(0.02)
        return self.lines()

    def close(self, parcel: str) -> None:
        (self.directory / f"{parcel}.closed").touch()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            for parcel in "abc":
                self.close(parcel)
            self.process.wait(60)


@needs("supervisor")
async def test_a_supervised_worker_ends_its_job_at_sigterm(broker: PocketBroker, tmp_path: Path) -> None:
    """A killed worker is restarted and repeats its job; SIGTERM of the supervisor waits for the running one."""
    async with AsyncProducer("shop", broker.namesrv) as producer:
        await producer.send(Message.of("ShopParcels", {"parcel": "a"}))
    supervisor = Supervisor(broker, tmp_path)
    try:
        [first] = await supervisor.until(1)
        os.kill(first["pid"], signal.SIGKILL)
        again = (await supervisor.until(2))[1]
        assert again["begun"] == "a"
        assert again["pid"] != first["pid"]
        supervisor.process.terminate()
        supervisor.close("a")
        assert await asyncio.to_thread(supervisor.process.wait, 100) == 0
        assert supervisor.lines()[2:] == [{"done": "a", "pid": again["pid"]}]
    finally:
        supervisor.end()
