"""The fixtures, as they work in a user's project."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

INI = """
[pytest]
addopts = --strict-markers
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""

SUITE = """
import pytest
from pocketmq.client import Message, Producer

async def test_a_message(pocketmq_broker):
    async with Producer(group="g", namesrv=pocketmq_broker.namesrv) as producer:
        assert (await producer.send(Message("T", b"x"))).queue_offset == 0

async def test_each_test_has_an_empty_broker(pocketmq_broker):
    async with Producer(group="g", namesrv=pocketmq_broker.namesrv) as producer:
        assert (await producer.send(Message("T", b"x"))).queue_offset == 0

@pytest.mark.pocketmq(broker={"auto_create_topic_enable": False, "broker_name": "other"})
async def test_settings_by_marker(pocketmq_broker):
    assert pocketmq_broker.app.config.broker_name == "other"

def test_blocking_clients(pocketmq_broker, pocketmq_producer, pocketmq_consumer):
    tries = []
    consumer = pocketmq_consumer("billing")

    @consumer.subscribe("Orders")
    def bill(message):
        tries.append(message.reconsume_times)
        if len(tries) < 3:
            raise ValueError("not yet")

    consumer.start()
    pocketmq_producer.send(Message("Orders", b"x"))
    pocketmq_broker.wait_idle("billing", skip_delays=True)
    assert tries == [0, 1, 2]

async def test_async_clients(pocketmq_broker):
    got = []
    consumer = pocketmq_broker.consumer("billing")

    @consumer.subscribe("Orders")
    async def bill(message):
        got.append(message.body)

    async with consumer, pocketmq_broker.producer() as producer:
        await producer.send(Message("Orders", b"later", delay_time_ms=3_600_000))
        await pocketmq_broker.until_idle("billing")
        assert got == []
        pocketmq_broker.advance(hours=1)
        await pocketmq_broker.until_idle("billing")
        assert got == [b"later"]

def test_session_one(pocketmq_broker_session):
    test_session_one.address = pocketmq_broker_session.address

def test_session_two(pocketmq_broker_session):
    assert pocketmq_broker_session.address == test_session_one.address
"""


def run_project(directory: Path, suite: str) -> str:
    """Run pytest on a project of one file; return what it printed."""
    (directory / "test_it.py").write_text(suite)
    (directory / "pytest.ini").write_text(INI)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=directory)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_page_runs_as_it_is_printed(tmp_path: Path) -> None:
    """docs/testing.md: its blocks, one after the other, are a suite of tests that passes."""
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    assert "3 passed" in (said := run_project(tmp_path, "\n\n".join(blocks))), said


@pytest.mark.slow
def test_fixtures_marker_and_scopes_in_a_project_of_its_own(tmp_path: Path) -> None:
    assert "7 passed" in (said := run_project(tmp_path, SUITE)), said


def test_the_plugin_costs_a_project_that_does_not_use_it_nothing() -> None:
    """Loading the plugin imports no broker, numpy, msgspec or structlog, and no other event loop than asyncio."""
    script = (
        "import json, sys, pytest\n"
        "before = set(sys.modules)\n"
        "import pocketmq.testing.pytest_plugin\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True)
    assert json.loads(done.stdout) == ["pocketmq", "pocketmq.testing", "pocketmq.testing.pytest_plugin"]


@pytest.mark.slow
def test_a_broker_for_tests_loads_no_client() -> None:
    """The SDK is imported by the first client, or by the first wait for an idle group."""
    script = (
        "import sys\n"
        "from pocketmq.testing import PocketBroker\n"
        "with PocketBroker():\n"
        "    print([name for name in sys.modules if name.startswith('pocketmq.client')])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == "[]"
