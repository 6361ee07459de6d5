"""The fixtures, as they work in a user's project."""

import json
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

def test_session_one(pocketmq_broker_session):
    test_session_one.address = pocketmq_broker_session.address

def test_session_two(pocketmq_broker_session):
    assert pocketmq_broker_session.address == test_session_one.address
"""


@pytest.mark.slow
def test_fixtures_marker_and_scopes_in_a_project_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text(INI)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert "5 passed" in done.stdout, done.stdout + done.stderr


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
