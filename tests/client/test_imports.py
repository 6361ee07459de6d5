"""What the SDK imports for each name: msgspec, the checksums, and NumPy with the first batch or pull."""

import ast
import functools
import subprocess
import sys

import pytest

from pocketmq.testing.broker import PocketBroker

SHOW = "import sys; print(sorted({name.partition('.')[0] for name in sys.modules}))"
HEAVY_STDLIB = {"email", "http", "urllib", "statistics", "zipfile", "tempfile", "pathlib", "json", "sqlite3"}
THIRD_PARTY = {"isal", "msgspec", "pocketmq", "typing_extensions"}
"""msgspec imports typing_extensions where it is installed."""

ROLES = "from pocketmq.client import Message, Producer, PullConsumer, PushConsumer, TransactionProducer"

SENDS = """
import asyncio, sys
from pocketmq.client import Message, Producer
async def send():
    async with Producer("g", sys.argv[1]) as producer:
        await asyncio.gather(*(producer.send(Message(sys.argv[2], b"x")) for _ in range(3)))
asyncio.run(send())
"""
STARTS = """
import asyncio, sys
from pocketmq.client import PullConsumer, PushConsumer
async def start():
    consumer = {consumer}
    assert "numpy" not in sys.modules
    await consumer.start()
    assert "numpy" in sys.modules
    await consumer.stop()
asyncio.run(start())
"""
PUSH = "PushConsumer('g', sys.argv[1]); consumer.subscribe('T')(print)"
PULL = "PullConsumer('g', sys.argv[1])"
LISTS = """
import sys
from pocketmq.cli import main
sys.argv = ["pocketmq", "topic", "list", "--json", "--namesrv", sys.argv[1]]
try:
    main.main()
except SystemExit as end:
    assert not end.code, end.code
print()
"""


def loaded(program: str, *arguments: str) -> set[str]:
    """Return the top-level modules that a program of its own has loaded; the last line that starts with ``[``."""
    command = [sys.executable, "-c", program, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert result.returncode == 0, result.stderr
    names: list[str] = ast.literal_eval([line for line in result.stdout.splitlines() if line.startswith("[")][-1])
    return set(names) - started_with()


@functools.cache
def started_with() -> frozenset[str]:
    """Return what an empty program has loaded: the hooks of editable installs and coverage."""
    shown = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, timeout=110, check=True)
    return frozenset(ast.literal_eval(shown.stdout))


def third_party(names: set[str]) -> set[str]:
    return {name for name in names if name not in sys.stdlib_module_names}


def test_the_sdk_imports_what_it_uses() -> None:
    """No NumPy, and of the standard library nothing that only rare calls need."""
    names = loaded(f"{ROLES}\n{SHOW}")
    assert third_party(names) <= THIRD_PARTY
    assert names & HEAVY_STDLIB == set()


def test_the_package_alone_imports_nothing() -> None:
    """Each of its names comes with its first use."""
    assert loaded(f"import pocketmq.client\n{SHOW}") & {"asyncio", "msgspec", "logging"} == set()


def test_single_sends_need_no_numpy(broker: PocketBroker, topic: str) -> None:
    """They are one record each; many alike in one turn are a batch."""
    assert third_party(loaded(SENDS + SHOW, broker.namesrv, topic)) <= THIRD_PARTY


@pytest.mark.parametrize("consumer", [PUSH, PULL])
def test_a_consumer_loads_numpy_with_its_start(broker: PocketBroker, consumer: str) -> None:
    """Not with the first pull: that would stop the loop for a tenth of a second, while handlers run."""
    names = loaded(STARTS.replace("{consumer}", consumer) + SHOW, broker.namesrv)
    assert third_party(names) <= THIRD_PARTY | {"numpy"}


def test_a_command_that_asks_brokers_needs_no_numpy() -> None:
    """``pocketmq topic list`` reads no record. A list of more than 64 KiB, though, takes its memory from NumPy."""
    with PocketBroker() as broker:
        names = loaded(LISTS + SHOW, broker.namesrv)
    assert names & {"numpy", "structlog", "lark", "prometheus_client", "pyarrow"} == set()


def test_unrelated_test_runs_load_nothing_of_the_sdk() -> None:
    """The pytest plugin brings a marker and two fixtures; whoever uses them pays for the rest."""
    names = loaded(f"import pytest, pocketmq.testing.pytest_plugin\n{SHOW}")
    assert names & {"numpy", "structlog", "msgspec", "asyncio", "typer"} == set()
